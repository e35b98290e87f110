"""AnnData stores of other writers, read as they are: a CSR or dense matrix, labels from a column of ``obs``.

The matrix is ``X`` or a layer. They have no manifest: every chunk file must be present when the store is
opened, and stay as it is then. The blocks follow from one stream over the row pointers, and the chunk after a
block is read for the end of its last row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from ooc_svm.data.blocks import Int64Array
from ooc_svm.errors import DamageError, InputError, parameter
from ooc_svm.store.anndata_columns import find_labels, find_numbers
from ooc_svm.store.anndata_opening import Opening
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.chunk_files import Elements
from ooc_svm.store.dense import DenseIds, DensePointers, DenseValues, band_sizes, dense_blocks
from ooc_svm.store.feature_names import names_of_anndata
from ooc_svm.store.label_summary import LabelCollector, LabelSummary, RunCounter
from ooc_svm.store.labelled import LabelledStore
from ooc_svm.store.layout import BLOCK_CHUNKS, BLOCK_ROWS, CHUNK_ELEMENTS, CHUNK_ROWS, X
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.metadata import ArrayInfo, read_group
from ooc_svm.store.reader import Column, Store, StoreParts
from ooc_svm.store.storage import Storage

DEFAULT_LABEL = "label"

_NO_LABELS = LabelSummary({}, np.nan, np.nan, np.nan)


class _Matrix(NamedTuple):
    """The matrix of a store as `StoreParts` has it."""

    indptr: Elements
    indices: Elements
    data: Elements
    block_rows: Int64Array
    block_nonzeros: Int64Array
    value_type: Literal["float32", "float64"]
    chunk_sizes: dict[str, tuple[ArrayInfo, Int64Array]]


class _Found(NamedTuple):
    """The labels, if there are any, their names where they have names, and what a stream over them found."""

    column: Column | None
    names: tuple[str, ...] | None
    summary: LabelSummary
    n_runs: int
    n_unlabelled: int


def open_foreign(storage: Storage, label: str | None, unlabelled: str, layer: str = X) -> Store:
    """Open an AnnData store without a manifest; see `ooc_svm.store.open.open_store`."""
    opening = Opening(storage, layer)
    digest = hashlib.sha256()
    if layer != X:
        digest.update(f"{opening.matrix} ".encode())
    matrix = _dense_matrix(opening, digest) if opening.grid else _csr_matrix(opening, digest)
    columns = obs_columns(storage, opening.location)
    labels = _wanted_labels(opening, columns, label, unlabelled, digest)
    if labels.column is not None and labels.n_unlabelled and unlabelled == "error":
        raise _unlabelled(opening, label or DEFAULT_LABEL, labels.column, labels.n_unlabelled)
    qid, weight = find_numbers(opening, columns, "qid"), find_numbers(opening, columns, "weight")
    shared_id, own_id = opening.add_files(digest)
    metadata = StoreMetadata(
        path=opening.storage.path,
        id=own_id,
        shared_id=shared_id,
        n_rows=opening.n_rows,
        n_features=opening.n_features,
        n_nonzeros=int(matrix.block_nonzeros[-1]),
        value_type=matrix.value_type,
        index_base=0,
        labels=labels.summary,
        label_runs=labels.n_runs,
        label_names=labels.names,
        qid_groups=0 if qid is None else _runs(opening, qid),
        provenance={},
        format_version=None,
        n_chunks=sum(len(versions) for versions in opening.versions.values()),
        n_bytes=sum(int(versions["size"].sum()) for versions in opening.versions.values()),
        remark=opening.remark(),
        unused=tuple(opening.unused),
        n_unlabelled=labels.n_unlabelled,
        label=None if labels.column is None else label or DEFAULT_LABEL,
        layer=None if layer == X else layer,
    )
    parts = StoreParts(
        storage=storage,
        indptr=matrix.indptr,
        indices=matrix.indices,
        data=matrix.data,
        block_rows=matrix.block_rows,
        block_nonzeros=matrix.block_nonzeros,
        tails=None,
        label=labels.column,
        qid=qid,
        weight=weight,
        chunk_sizes=matrix.chunk_sizes,
        feature_names=partial(names_of_anndata, storage, opening.n_features),
        decoding_nbytes=opening.decoding_nbytes,
    )
    return (LabelledStore if labels.n_unlabelled and unlabelled == "skip" else Store)(metadata, parts)


def _csr_matrix(opening: Opening, digest: hashlib._Hash) -> _Matrix:
    names = ("indptr", "indices", "data")
    used = [opening.info(f"{opening.matrix}/{name}") for name in names]
    kinds = (*(info.dtype.kind in "iu" for info in used[:2]), used[2].dtype.kind in "biuf")
    if not all(kinds):
        types = ", ".join(f"{info.name} of {info.dtype}" for info in used)
        raise InputError(f"{opening.location} has {types}: no row pointers, column ids and values")
    if used[0].length != opening.n_rows + 1 or used[2].length != used[1].length:
        raise DamageError(
            f"{opening.matrix} of {opening.location} has {opening.n_rows} rows, {used[0].length} row "
            f"pointers, {used[1].length} column ids and {used[2].length} values, which do not fit; "
            "the store is damaged"
        )
    indptr, indices, data = map(opening.array, used)
    value_type = _value_type(used[2])
    digest.update(f"{opening.n_rows} {opening.n_features} {value_type}".encode())
    blocks = _blocks(opening, indptr, used[1], digest)
    sizes = {
        f"X/{name}": (info, opening.versions[info.name]["size"])
        for name, info in zip(names, used, strict=True)
    }
    return _Matrix(indptr, indices, data, *blocks, value_type, sizes)


def _dense_matrix(opening: Opening, digest: hashlib._Hash) -> _Matrix:
    info = opening.info(opening.matrix, 2)
    if info.dtype.kind not in "biuf":
        raise InputError(f"{opening.matrix} of {opening.location} has values of {info.dtype}, no numbers")
    value_type, width = _value_type(info), opening.n_features
    digest.update(f"dense {opening.n_rows} {width} {value_type}".encode())
    blocks = dense_blocks(info, BLOCK_CHUNKS * CHUNK_ELEMENTS)
    sizes = {"X/data": band_sizes(info, opening.versions[info.name]["size"])}
    values = DenseValues(opening.array(info), info)
    return _Matrix(DensePointers(width), DenseIds(width), values, *blocks, value_type, sizes)


def _value_type(data: ArrayInfo) -> Literal["float32", "float64"]:
    """The type that values are converted to; integers of more than 53 bits are rounded."""
    small = data.dtype.itemsize <= (4 if data.dtype.kind == "f" else 2)
    return "float32" if small else "float64"


def _blocks(
    opening: Opening, indptr: Elements, indices: ArrayInfo, digest: hashlib._Hash
) -> tuple[Int64Array, Int64Array]:
    """Cut the rows into blocks that begin with the first row of a chunk, in one stream over ``indptr``."""
    chunk = indices.inner_chunk
    cutter = BlockCutter(chunk, max(1, BLOCK_CHUNKS * CHUNK_ELEMENTS // chunk), BLOCK_ROWS)
    for start, stop in opening.row_ranges():
        pointers = np.empty(stop - start + 1, np.int64)
        indptr.read_into(start, stop + 1, pointers)
        whole = pointers[0] >= 0 and pointers[-1] <= indices.length and (np.diff(pointers) >= 0).all()
        whole &= (start > 0 or pointers[0] == 0) and (stop < opening.n_rows or pointers[-1] == indices.length)
        if not whole:
            raise DamageError(
                f"the row pointers of rows {start} to {stop} of {opening.location} ({opening.matrix}/indptr) "
                f"decrease or leave {opening.matrix}/indices; the store is damaged"
            )
        digest.update(pointers.tobytes())
        cutter.add(pointers[:-1], int(pointers[-1]))
    return cutter.finish()


def obs_columns(storage: Storage, location: str) -> list[str]:
    """Names of the columns of ``obs``; DamageError if there is no list of them."""
    columns = (read_group(storage, "obs") or {}).get("column-order", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise DamageError(f"obs of {location} has no list of columns; the store is damaged")
    return columns


def _wanted_labels(
    opening: Opening, columns: Sequence[str], label: str | None, unlabelled: str, digest: hashlib._Hash
) -> _Found:
    """The labels; none where they are not needed, and the default column is missing or none of labels."""
    try:
        column, names = find_labels(opening, columns, DEFAULT_LABEL if label is None else label)
        return _Found(column, names, *_summarise(opening, column, digest))
    except InputError:
        if label is None and unlabelled == "keep":
            return _Found(None, None, _NO_LABELS, 0, opening.n_rows)
        raise


def _summarise(opening: Opening, column: Column, digest: hashlib._Hash) -> tuple[LabelSummary, int, int]:
    """Summarise the labels and count their runs in one stream; the last number are rows without one."""
    collector, runs, n_unlabelled = LabelCollector(CHUNK_ROWS), RunCounter(), 0
    for start, stop in opening.row_ranges():
        labels = column.read(start, stop)
        digest.update(labels.tobytes())
        labels = labels[np.isfinite(labels)]
        n_unlabelled += stop - start - len(labels)
        collector.add(labels)
        runs.add(labels)
    return collector.summary(), runs.n_runs, n_unlabelled


def _unlabelled(opening: Opening, label: str, column: Column, n_unlabelled: int) -> InputError:
    """The error for rows without a label."""
    missing = (~np.isfinite(column.read(start, stop)) for start, stop in opening.row_ranges())
    row, found = 0, next(missing)
    while not found.any():
        row, found = row + len(found), next(missing)
    return InputError(
        f"{n_unlabelled} of {opening.n_rows} rows of {opening.location} have no label in obs/{label:.80}, "
        f"the first is row {row + int(found.argmax())}; leave them out ({parameter('unlabelled', 'skip')}), "
        f"or choose another column ({parameter('label')})"
    )


def _runs(opening: Opening, column: Column) -> int:
    """Number of runs of equal entries."""
    runs = RunCounter()
    for start, stop in opening.row_ranges():
        runs.add(column.read(start, stop))
    return runs.n_runs
