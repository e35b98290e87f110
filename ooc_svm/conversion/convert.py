"""Conversion of SVMlight text, or of a matrix in memory, to a store.

Text is read, parsed, compressed and written at the same time, in threads of their own; or on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ooc_svm.conversion.external_sort import Piece
from ooc_svm.conversion.matrix import MatrixRows, read_column
from ooc_svm.conversion.options import Meter, Progress, Request, check_rejected
from ooc_svm.conversion.plan import ConversionPlan
from ooc_svm.conversion.reorder import Grouper
from ooc_svm.conversion.report import ConvertReport
from ooc_svm.conversion.shuffle import Shuffler
from ooc_svm.conversion.text import TextOptions
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.errors import InputError, UsageError
from ooc_svm.options import ENGINES
from ooc_svm.store.writer import StoreWriter
from ooc_svm.system.folders import Scratch
from ooc_svm.text.reader import Input

__all__ = ["ConvertReport", "convert", "convert_matrix"]

# Rows in memory against the input on disk: 0.7 for plain text, 3 for compressed text; between them.
_USUAL_GROWTH = 2


def convert(
    inputs: Sequence[Input] | Input,
    output: str | os.PathLike[str],
    *,
    index_base: int = 1,
    features: int | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
    bad_lines: Literal["stop", "skip"] = "stop",
    max_bad_lines: int | None = None,
    shuffle: int | None = None,
    group: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    engine: Literal["local", "dask"] = "local",
    scheduler: str | None = None,
    insecure_cluster: bool = False,
    progress: Progress | None = None,
) -> ConvertReport:
    """Convert SVMlight text to a store.

    The bytes of the store follow from the text and the options, not from threads or memory. Whatever
    happens, the output is absent, the old store or the new one, complete and on the disk.

    Parameters
    ----------
    inputs : path or sequence of paths
        Files, plain or compressed, read one after another; ``-`` is standard input.
    output : path
        The store.
    index_base : {1, 0}
        What the first column is called in the text.
    features : int, optional
        Number of columns; by default up to the last one that the text names.
    dtype : {"float32", "float64"}
        Type of the values.
    overwrite : bool
        Replace a store that this package has written.
    bad_lines : {"stop", "skip"}
        What happens at a line that breaks a rule. With "skip" these lines go to ``<output>.rejected``.
    max_bad_lines : int, optional
        With "skip": InputError when there are more.
    shuffle : int, optional
        Seed of a random order of the rows. Needs free disk space of about the size of the text.
    group : bool
        Rows of equal qid together, groups in the order of their first rows, rows of a group in their own.
        Needs free disk space of about the size of the text.
    threads : int, optional
        Threads that parse; by default as many as processors may be used. Fewer are taken where the memory
        does not allow as many.
    memory : int or str, optional
        Bytes for the whole process, or text as ``"4GiB"``; by default half of what it may use.
    engine : {"local", "dask"}
        Where the text is parsed: in threads of this process, or in the processes of a cluster, which read it
        twice. Each of these may use `memory`. A cluster takes neither standard input nor `shuffle` and
        `group`.
    scheduler : str, optional
        Address of the cluster's scheduler; by default as many processes as `threads` on this machine. All
        machines must see inputs and output under the same path.
    insecure_cluster : bool
        Allow an address other than ``tls://``.
    progress : callable, optional
        ``progress(bytes_done, bytes_total or None, rows)`` is called again and again. With `shuffle` or
        `group`, and on a cluster, the bytes count twice: read, and written.

    Returns
    -------
    ConvertReport

    Raises
    ------
    UsageError
        Options that contradict each other, or the output exists and may not be replaced.
    InputError
        Bad text, damaged compressed data, columns beyond `features`, no rows.
    StorageError
        Reading or writing failed, or another run is writing the same output, or the cluster cannot be used or
        is lost.
    MemoryBudgetError
        The memory is too small for any conversion, or for a line of the text.
    """
    names = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    request = Request(Path(output), index_base, features, dtype, overwrite, shuffle, group)
    if bad_lines == "skip":
        check_rejected(request.rejected, names)
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r:.80} is not known; choose from: {', '.join(ENGINES)}")
    if engine != "dask" and (scheduler is not None or insecure_cluster):
        raise UsageError("a scheduler is for the engine 'dask'; choose it as well")
    if engine == "dask":
        from ooc_svm.conversion.on_cluster import convert_on_cluster

        return convert_on_cluster(
            names,
            request,
            bad_lines=bad_lines,
            max_bad_lines=max_bad_lines,
            threads=threads,
            memory=memory,
            scheduler=scheduler,
            insecure=insecure_cluster,
            progress=progress,
        )
    plan = request.plan(threads, memory, names)
    scratch = Scratch(request.output)
    reject_file = scratch.path / "rejected" if bad_lines == "skip" else None
    text = TextOptions(
        index_base, dtype, features, bad_lines, max_bad_lines, plan.block_bytes, plan.max_line_bytes
    )
    meter = Meter(progress, request.reorders)
    rows = text.rows(names, threads=plan.threads, reject_file=reject_file, progress=meter.read)
    meter.total = rows.total_bytes
    with request.writing(StoreWriter, scratch, plan.write_threads) as writer:
        if reject_file is not None:
            scratch.make()
        with text.pieces(rows) as pieces:
            weightless = ((labelled, None) for labelled in pieces)
            _transfer(weightless, writer, request, plan, scratch, meter)
        return request.commit_text(writer, rows.counts, rows.sources, reject_file, meter.bytes_in)


def convert_matrix(
    matrix: Any,
    labels: Any,
    output: str | os.PathLike[str],
    *,
    qid: Any = None,
    weight: Any = None,
    index_base: int = 1,
    features: int | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
    shuffle: int | None = None,
    group: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Convert a matrix in memory to a store.

    Parameters
    ----------
    matrix : scipy sparse matrix or array, or 2-d ndarray, shape (n_rows, n_columns)
        Explicit zeros are dropped, duplicates summed.
    labels : array_like, shape (n_rows,)
    output : path
        The store.
    qid : array_like of int, shape (n_rows,), optional
        Groups, not negative.
    weight : array_like of float, shape (n_rows,), optional
        Weights of the rows, not negative.
    index_base : {1, 0}
        What the first column is to be called in text made from the store.
    features : int, optional
        Number of columns; by default those of the matrix.
    memory : int or str, optional
        Bytes for the whole process without the matrix.
    dtype, overwrite, shuffle, group, threads, progress
        As for `convert`; bytes are those of the arrays of the matrix.

    Returns
    -------
    ConvertReport

    Raises
    ------
    UsageError, InputError, StorageError, MemoryBudgetError
        As for `convert`.
    """
    request = Request(Path(output), index_base, features, dtype, overwrite, shuffle, group)
    plan = request.plan(threads, memory)
    source = MatrixSource(matrix, labels)
    if features is not None and features < source.n_features:
        raise InputError(
            f"the matrix has {source.n_features} columns, but features is {features}: "
            "give as many or more, or leave it out"
        )
    rows = MatrixRows(
        source, read_column(qid, "qid", source.n_rows), read_column(weight, "weight", source.n_rows)
    )
    scratch = Scratch(request.output)
    meter = Meter(progress, request.reorders, total=sum(span.nbytes for span in source.blocks))
    with request.writing(StoreWriter, scratch, plan.write_threads) as writer:
        _transfer(rows.pieces(meter.read), writer, request, plan, scratch, meter)
        counts = rows.counts
        facts = {"name": "matrix", "size": meter.total, "mtime_ns": None, "compression": None}
        written = writer.commit(
            n_features=counts.n_features, provenance=request.provenance([facts], asdict(counts))
        )
    return request.report(written, counts, meter.bytes_in)


def _transfer(
    pieces: Iterable[Piece],
    writer: StoreWriter,
    request: Request,
    plan: ConversionPlan,
    scratch: Scratch,
    meter: Meter,
) -> None:
    """Append all rows, in their own order or the one asked for."""
    if not request.reorders:
        for labelled, weights in pieces:
            writer.append(labelled, weights)
            meter.rows += labelled.rows.n_rows
        return
    expected = None if meter.total is None else _USUAL_GROWTH * meter.total
    folder, memory = scratch.make(), plan.reorder_bytes
    order: Shuffler | Grouper
    if request.shuffle is not None:
        order = Shuffler(folder, request.shuffle, memory, expected)
    else:
        order = Grouper(folder, memory, expected)
    for labelled, weights in pieces:
        order.add(labelled, weights)
        meter.rows += labelled.rows.n_rows
    for labelled, weights in order.drain():
        writer.append(labelled, weights)
        meter.written(labelled.rows.stop, meter.rows)
