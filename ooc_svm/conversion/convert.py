"""Conversion of SVMlight text, or of a matrix in memory, to a store.

Text is read, parsed, compressed and written at the same time, in threads of their own; or on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

from ooc_svm.conversion.formats import format_of, is_anndata
from ooc_svm.conversion.in_process import convert_for_reading_here, convert_here
from ooc_svm.conversion.options import CONVERT_KINDS, INPUTS, ConvertOptions
from ooc_svm.conversion.report import ConvertReport, Progress
from ooc_svm.errors import UsageError, parameter
from ooc_svm.parameters import ARRAY, CALLBACK, MATRIX, TEXT, checks
from ooc_svm.store import Store
from ooc_svm.store.feature_names import given_names
from ooc_svm.system.address import AnyPath, located
from ooc_svm.text.inputs import expanded, require_local

__all__ = ["ConvertReport", "convert", "convert_matrix"]

# What messages call the formats that are no text.
_KINDS = {"npz": "an archive of SciPy (.npz)", "parquet": "Parquet"}


@checks(**CONVERT_KINDS, inputs=INPUTS, progress=CALLBACK)
def convert(
    inputs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    index_base: int = 1,
    features: int | None = None,
    feature_names: Any = None,
    dtype: str = "float32",
    labels: Literal["numbers", "text", "sets"] = "numbers",
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
    layer: str | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Convert SVMlight text, AnnData, a matrix of SciPy in a file or Parquet to a store.

    AnnData (``.h5ad``, or a Zarr store of another program, with a CSR, CSC or dense matrix) becomes an
    AnnData store of CSR rows with the names and the columns of its cells and genes.

    The bytes of the store follow from the text and the options, not from threads or memory. Whatever
    happens, the output is absent, the old store or the new one, complete and on the disk.

    Parameters
    ----------
    inputs : path or sequence of paths
        Files, plain or compressed, read one after another; ``-`` is standard input. Or one AnnData file, for
        which `dtype`, `overwrite`, `threads`, `memory` and `layer` hold; or one file of SciPy (``.npz`` with
        a CSR or CSC matrix), with `labels_file`; or files of Parquet with the columns ``indices`` and
        ``values`` (lists of numbers), ``label``, and ``qid`` and ``weight`` where there are any.
    output : path
        The store.
    index_base : {0, 1}
        Index of the first column in the text.
    features : int, optional
        Number of columns; by default that of `feature_names`, without these up to the last one that the text
        names.
    feature_names : path or sequence of str, optional
        Names of the columns, all different: a file of UTF-8 text with a name on each line, or the names. The
        store keeps them, and models that are trained on it.
    dtype : {"float32", "float64"}
        Type of the values.
    labels : {"numbers", "text", "sets"}
        What stands for the labels in the text: numbers, or names of at most 1000 classes, without blanks and
        colons. The label of a row is then the place of its name among the sorted names. Or sets: a row has
        any of at most 1000 labels, ``1,3`` or ``cat,dog``, and none where its line begins with a blank; there
        may be 500,000 different sets.
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
        twice. Each process may use `memory`. A cluster takes neither standard input nor `shuffle` and
        `group`.
    scheduler : str, optional
        Address of the cluster's scheduler; by default as many processes as `threads` on this machine. All
        machines must see inputs and output under the same path.
    insecure_cluster : bool
        Allow an address other than ``tls://``.
    layer : str, optional
        Of AnnData, the layer that is taken instead of X.
    labels_file : path, optional
        Labels for a file of SciPy: a ``.npy`` file, or text with a number on each line.
    progress : callable, optional
        ``progress(bytes_done, bytes_total or None, rows)`` is called after every block. With `shuffle` or
        `group`, and on a cluster, a byte counts half when it is read, and half when it is written.

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
    names = expanded(cast(list[str | os.PathLike[str]], inputs))  # their kind makes it a list
    options = ConvertOptions(
        located(output),
        index_base=index_base,
        features=features,
        feature_names=given_names(feature_names),
        dtype=dtype,
        labels=labels,
        overwrite=overwrite,
        bad_lines=bad_lines,
        max_bad_lines=max_bad_lines,
        shuffle=shuffle,
        group=group,
        threads=threads,
        memory=memory,
        engine=engine,
        scheduler=scheduler,
        insecure_cluster=insecure_cluster,
        layer=layer,
        labels_file=labels_file,
    )
    if any(map(is_anndata, names)):
        from ooc_svm.conversion.from_anndata import convert_anndata

        return convert_anndata(names, options, progress)
    if layer is not None:
        raise UsageError(f"{parameter('layer')} is for AnnData; leave it out")
    format_name = format_of(names)
    if format_name != "svmlight":
        return _convert_files(format_name, names, options, progress)
    if labels_file is not None:
        raise UsageError(
            f"{parameter('labels_file')} is for a file of SciPy (.npz); text has labels of its own"
        )
    if engine == "dask":
        from ooc_svm.conversion.on_cluster import convert_on_cluster

        return convert_on_cluster(names, options, progress)
    return convert_here("svmlight", names, options, progress)


def convert_for_reading(
    inputs: Sequence[str],
    output: AnyPath,
    progress: Progress,
    *,
    hold: bool,
    write_always: bool,
    feature_names: Any = None,
    **options: Any,
) -> tuple[ConvertReport, Store]:
    """Convert text as `convert` does, for a reader in this process; see `convert_for_reading_here`."""
    wanted = ConvertOptions(output, feature_names=given_names(feature_names), **options)
    return convert_for_reading_here(expanded(inputs), wanted, progress, hold=hold, write_always=write_always)


@checks(
    **CONVERT_KINDS | {"labels": ARRAY},
    matrix=MATRIX,
    qid=ARRAY,
    weight=ARRAY,
    label=TEXT,
    progress=CALLBACK,
)
def convert_matrix(
    matrix: Any,
    labels: Any,
    output: str | os.PathLike[str],
    *,
    qid: Any = None,
    weight: Any = None,
    label: str | None = None,
    layer: str | None = None,
    index_base: int = 1,
    features: int | None = None,
    feature_names: Any = None,
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
    matrix : matrix of shape (n_rows, n_columns)
        A sparse matrix or array of SciPy in any format, or what NumPy makes a 2-d array of real numbers of.
        Explicit zeros are dropped, duplicates summed. Or an AnnData object.
    labels : array_like, shape (n_rows,)
        Numbers, or text for the names of at most 1000 classes, as for `convert`. None for those of an AnnData
        object, or of rows that are only to be predicted: each has the label 0 then.
    output : path
        The store.
    qid : array_like of int, shape (n_rows,), optional
        Groups, not negative.
    weight : array_like of float, shape (n_rows,), optional
        Weights of the rows, not negative.
    label, layer : str, optional
        Of an AnnData object: the column of ``obs`` with the labels, and the layer that is taken instead of X.
    index_base : {0, 1}
        Index of the first column in text made from the store.
    features : int, optional
        Number of columns; by default those of the matrix.
    feature_names : path or sequence of str, optional
        As for `convert`; by default those of an AnnData object or of a data frame.
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
    from ooc_svm.conversion.matrix import LabelledMatrix

    data = LabelledMatrix(matrix, labels, qid, weight).of_anndata(label, layer)
    names = given_names(feature_names)
    if names is None and features is None:
        names = data.feature_names
    options = ConvertOptions(
        located(output),
        index_base=index_base,
        features=features,
        feature_names=names,
        dtype=dtype,
        overwrite=overwrite,
        shuffle=shuffle,
        group=group,
        threads=threads,
        memory=memory,
    )
    return convert_here("matrix", data, options, progress)


def _convert_files(
    format_name: str, names: list[str | os.PathLike[str]], options: ConvertOptions, progress: Progress | None
) -> ConvertReport:
    """Convert files of one of the formats that are no text."""
    for name, default in (("bad_lines", "stop"), ("labels", "numbers"), ("engine", "local")):
        if getattr(options, name) != default:
            raise UsageError(
                f"{parameter(name)} is for text, and {os.fspath(names[0])} is none; leave it out"
            )
    for path in names:
        require_local(path, _KINDS[format_name])
    if format_name == "npz":
        if len(names) > 1:
            raise UsageError(f"{os.fspath(names[0])} and {len(names) - 1} more: give one file of SciPy")
        return convert_here(format_name, Path(names[0]), options, progress)
    if options.labels_file is not None:
        raise UsageError(f"{parameter('labels_file')} is for a file of SciPy (.npz); leave it out")
    return convert_here(format_name, names, options, progress)
