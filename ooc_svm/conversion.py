"""Conversion of SVMlight text, or of a matrix in memory, to a store: the only place that knows both sides.

Text is read, parsed, compressed and written at the same time, in threads of their own.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from ooc_svm.allocation import return_freed_memory
from ooc_svm.convertplan import ConversionPlan, plan_conversion
from ooc_svm.convertreport import ConvertReport, find_warnings
from ooc_svm.errors import InputError, MemoryBudgetError, UsageError
from ooc_svm.matrixrows import MatrixRows, read_column
from ooc_svm.memory import format_size, memory_budget
from ooc_svm.rows import Float64Array, LabelledRows, RowBlock
from ooc_svm.scratch import Scratch
from ooc_svm.shuffle import Shuffler
from ooc_svm.source import MatrixSource
from ooc_svm.sources import MAX_LINE_BYTES, LineTooLongError
from ooc_svm.store.commit import storage_errors
from ooc_svm.store.outline import WrittenStore
from ooc_svm.store.writer import StoreWriter
from ooc_svm.textrows import Input, TextCounts, TextRows, read_rows
from ooc_svm.windows import window_bytes

__all__ = ["ConvertReport", "convert", "convert_matrix"]

Progress = Callable[[int, int | None, int], None]
Piece = tuple[LabelledRows, Float64Array | None]

# Rows in memory against the input on disk: 0.7 for plain text, 3 for compressed text; between them.
_USUAL_GROWTH = 2
_ADVICE = "free some space or check the disk, then run again"


@dataclass
class _Meter:
    """Counts what was read, and tells who wants to know."""

    progress: Progress | None
    shuffles: bool
    total: int | None = None
    bytes_in: int = 0
    rows: int = 0

    def read(self, n_bytes: int) -> None:
        """So many bytes of the source were read."""
        self.bytes_in = n_bytes
        if self.progress is not None:
            total = self.total if self.total is None or not self.shuffles else 2 * self.total
            self.progress(n_bytes, total, self.rows)

    def gathered(self, n_rows: int) -> None:
        """So many rows were written in their new order."""
        if self.progress is not None:
            done = self.bytes_in * n_rows // max(self.rows, 1)
            self.progress(self.bytes_in + done, 2 * self.bytes_in, self.rows)


@dataclass(frozen=True)
class _Request:
    """The options that text and matrices have in common."""

    output: Path
    index_base: int
    features: int | None
    dtype: str
    overwrite: bool
    shuffle: int | None
    plan: ConversionPlan
    started: float

    @classmethod
    def of(
        cls,
        output: str | os.PathLike[str],
        *,
        index_base: int,
        features: int | None,
        dtype: str,
        overwrite: bool,
        shuffle: int | None,
        threads: int | None,
        memory: str | int | None,
        inputs: Sequence[Input] = (),
    ) -> _Request:
        """Check the options and divide the memory."""
        if threads is not None and threads < 1:
            raise UsageError(f"threads is {threads}: at least 1")
        if shuffle is not None and not 0 <= shuffle < 2**64:
            raise UsageError(f"the seed of the shuffle is {shuffle}: from 0 to 2^64 - 1")
        if dtype not in ("float32", "float64"):
            raise UsageError(f"dtype is {dtype!r:.80}: float32 or float64")
        count = len(os.sched_getaffinity(0)) if threads is None else threads
        value_bytes = np.dtype(dtype).itemsize
        window = max(map(window_bytes, inputs), default=0)
        budget = memory_budget(memory)
        plan = plan_conversion(budget, count, value_bytes, shuffle=shuffle is not None, window=window)
        return_freed_memory()
        started = time.monotonic()
        return cls(Path(output), index_base, features, dtype, overwrite, shuffle, plan, started)

    @property
    def rejected(self) -> Path:
        """Where bad lines go that are skipped."""
        return self.output.with_name(f"{self.output.name}.rejected")

    @contextmanager
    def writing(self, scratch: Scratch) -> Iterator[StoreWriter]:
        """Hold the output and the scratch folder; what is not committed is removed."""
        writer = StoreWriter(
            self.output,
            dtype=self.dtype,
            index_base=self.index_base,
            n_features=self.features,
            overwrite=self.overwrite,
            threads=self.plan.write_threads,
        )
        with writer, storage_errors("writing", self.output, _ADVICE), scratch:
            yield writer

    def provenance(self, sources: list[dict[str, Any]], counts: dict[str, int]) -> dict[str, Any]:
        """Where the rows came from, as the manifest keeps it; only `created` differs between two runs."""
        options = {name: getattr(self, name) for name in ("index_base", "features", "dtype", "shuffle")}
        return {
            "sources": sources,
            "options": options,
            "counts": counts,
            "version": version("ooc-svm"),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }


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
    threads: int | None = None,
    memory: str | int | None = None,
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
    threads : int, optional
        Threads that parse; by default as many as processors may be used. Fewer are taken where the memory
        does not allow as many.
    memory : int or str, optional
        Bytes for the whole process, or text as ``"4GiB"``; by default half of what it may use.
    progress : callable, optional
        ``progress(bytes_done, bytes_total or None, rows)`` is called again and again. With `shuffle` the
        bytes count twice: read, and written in the new order.

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
        Reading or writing failed, or another run is writing the same output.
    MemoryBudgetError
        The memory is too small for any conversion, or for a line of the text.
    """
    names = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    request = _Request.of(
        output,
        index_base=index_base,
        features=features,
        dtype=dtype,
        overwrite=overwrite,
        shuffle=shuffle,
        threads=threads,
        memory=memory,
        inputs=names,
    )
    scratch = Scratch(request.output)
    reject_file = None
    if bad_lines == "skip":
        reject_file = scratch.path / "rejected"
        _check_rejected(request.rejected, names)
    meter = _Meter(progress, shuffle is not None)
    rows = read_rows(
        names,
        index_base=index_base,
        dtype=dtype,
        threads=request.plan.threads,
        bad_lines=bad_lines,
        max_bad_lines=max_bad_lines,
        reject_file=reject_file,
        block_bytes=request.plan.block_bytes,
        max_line_bytes=request.plan.max_line_bytes,
        progress=meter.read,
    )
    return _convert_text(rows, request, scratch, meter, reject_file)


def _convert_text(
    rows: TextRows, request: _Request, scratch: Scratch, meter: _Meter, reject_file: Path | None
) -> ConvertReport:
    meter.total = rows.total_bytes
    rejected: Path | None = None
    with request.writing(scratch) as writer:
        if reject_file is not None:
            scratch.make()
        with _line_limit(request.plan), closing(_text_pieces(rows, request)) as pieces:
            _transfer(pieces, writer, request, scratch, meter)
        counts = rows.counts
        if reject_file is not None:
            rejected = _publish_rejected(reject_file, request.rejected, counts.bad_lines)
        sources = [asdict(source) for source in rows.sources]
        try:
            written = writer.commit(
                n_features=counts.n_features, provenance=request.provenance(sources, asdict(counts))
            )
        except BaseException:
            if rejected is not None:
                rejected.unlink(missing_ok=True)
            raise
    return _report(request, written, counts, meter.bytes_in, rejected)


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
    dtype, overwrite, shuffle, threads, progress
        As for `convert`; bytes are those of the arrays of the matrix.

    Returns
    -------
    ConvertReport

    Raises
    ------
    UsageError, InputError, StorageError, MemoryBudgetError
        As for `convert`.
    """
    request = _Request.of(
        output,
        index_base=index_base,
        features=features,
        dtype=dtype,
        overwrite=overwrite,
        shuffle=shuffle,
        threads=threads,
        memory=memory,
    )
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
    meter = _Meter(progress, shuffle is not None, total=sum(span.nbytes for span in source.blocks))
    with request.writing(scratch) as writer:
        _transfer(rows.pieces(meter.read), writer, request, scratch, meter)
        counts = rows.counts
        facts = {"name": "matrix", "size": meter.total, "mtime_ns": None, "compression": None}
        written = writer.commit(
            n_features=counts.n_features, provenance=request.provenance([facts], asdict(counts))
        )
    return _report(request, written, counts, meter.bytes_in, None)


def _text_pieces(rows: TextRows, request: _Request) -> Generator[Piece, None, None]:
    """Rows of text, held against the number of columns asked for."""
    n_sources = first_row = 0
    with closing(cast("Generator[LabelledRows, None, None]", iter(rows))) as blocks:
        for block in blocks:
            if len(rows.sources) > n_sources:
                n_sources, first_row = len(rows.sources), block.rows.start
            if request.features is not None and rows.counts.n_features > request.features:
                raise _too_wide(rows, block.rows, first_row, request.features, request.index_base)
            yield block, None


def _too_wide(rows: TextRows, block: RowBlock, first_row: int, features: int, index_base: int) -> InputError:
    largest = rows.counts.n_features - 1 + index_base
    where = f"{rows.sources[-1].name}: an explicit zero has the index {largest}"
    beyond = np.flatnonzero(block.indices >= features)
    if len(beyond):
        row = int(np.searchsorted(block.indptr, beyond[0], side="right")) - 1
        index = int(block.indices[beyond[0]]) + index_base
        where = f"{rows.sources[-1].name}: row {block.start - first_row + row + 1} has the index {index}"
    return InputError(
        f"{where}, but features is {features} (indices up to {features - 1 + index_base}): "
        f"give {rows.counts.n_features} or more, or leave it out"
    )


@contextmanager
def _line_limit(plan: ConversionPlan) -> Iterator[None]:
    """Blame the memory for a line that is too long only for the memory."""
    try:
        yield
    except InputError as error:
        if isinstance(error.__cause__, LineTooLongError) and plan.max_line_bytes < MAX_LINE_BYTES:
            raise MemoryBudgetError(
                f"{error}; with more memory or fewer threads, lines of up to "
                f"{format_size(MAX_LINE_BYTES)} are read"
            ) from error
        raise


def _transfer(
    pieces: Iterable[Piece], writer: StoreWriter, request: _Request, scratch: Scratch, meter: _Meter
) -> None:
    """Append all rows, in their own order or shuffled."""
    if request.shuffle is None:
        for labelled, weights in pieces:
            writer.append(labelled, weights)
            meter.rows += labelled.rows.n_rows
        return
    expected = None if meter.total is None else _USUAL_GROWTH * meter.total
    shuffler = Shuffler(scratch.make(), request.shuffle, request.plan.shuffle_bytes, expected)
    for labelled, weights in pieces:
        shuffler.add(labelled, weights)
        meter.rows += labelled.rows.n_rows
    for labelled, weights in shuffler.drain():
        writer.append(labelled, weights)
        meter.gathered(labelled.rows.stop)


def _check_rejected(target: Path, names: Sequence[Input]) -> None:
    """Fail before anything is read where the bad lines cannot go to their place."""
    if not os.path.lexists(target):
        return
    if not stat.S_ISREG(os.lstat(target).st_mode):
        raise UsageError(f"{target} is no regular file, but the bad lines go there: move it away")
    if any(os.path.exists(name) and os.path.samefile(name, target) for name in names):
        raise UsageError(f"{target} is an input, but the bad lines go there: rename it")


def _publish_rejected(reject_file: Path, target: Path, n_lines: int) -> Path | None:
    """Put the bad lines beside the store that is about to be committed; None if there are none."""
    if n_lines == 0:
        target.unlink(missing_ok=True)
        return None
    with open(reject_file, "rb") as file:
        os.fsync(file.fileno())
    os.replace(reject_file, target)
    return target


def _report(
    request: _Request,
    written: WrittenStore,
    counts: TextCounts,
    bytes_in: int,
    rejected: Path | None,
) -> ConvertReport:
    report = ConvertReport(
        path=written.path,
        id=written.id,
        rows=written.n_rows,
        features=written.n_features,
        nonzeros=written.n_nonzeros,
        value_type=written.value_type,
        labels=written.labels,
        label_runs=written.label_runs,
        lines=counts.lines,
        blank_lines=counts.blank_lines,
        comment_lines=counts.comment_lines,
        bad_lines=counts.bad_lines,
        explicit_zeros=counts.explicit_zeros,
        bytes_in=bytes_in,
        bytes_out=written.n_bytes,
        seconds=time.monotonic() - request.started,
        rejected=rejected,
    )
    report.warnings.extend(find_warnings(report))
    return report
