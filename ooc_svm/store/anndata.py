"""AnnData stores of other writers, read as they are: any CSR matrix ``X``, labels from a column of ``obs``.

They have no manifest: every chunk file must be present when the store is opened, the blocks follow from one
stream over the row pointers, and the chunk after a block is read for the end of its last row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import DamageError, InputError
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.label_summary import MOST_COUNTED, LabelCollector, LabelSummary, RunCounter
from ooc_svm.store.layout import BLOCK_CHUNKS, BLOCK_ROWS, CHUNK_ELEMENTS, CHUNK_ROWS, LARGEST_FEATURE_COUNT
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.metadata import ArrayInfo, chunk_sizes, read_array, read_group
from ooc_svm.store.reader import Column, NumberColumn, Store, StoreParts
from ooc_svm.store.storage import Storage
from ooc_svm.store.zarr_access import ZarrElements

_ADVICE = "write it as a CSR matrix (scipy.sparse.csr_matrix(adata.X)) and save it again"

_FILL_HINT = " (a writer may leave out chunks of zeros: then save it with write_empty_chunks set)"


@dataclass(frozen=True)
class TextColumn:
    """A column of strings; an entry is the place of its name in the sorted names."""

    array: ZarrElements
    names: npt.NDArray[np.str_]

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        texts = self.array.read_strings(start, stop).astype(str)
        codes = np.searchsorted(self.names, texts)
        if (self.names[np.minimum(codes, len(self.names) - 1)] != texts).any():
            raise DamageError(f"{self.array.location} changed while it was read; run again")
        return codes.astype(np.float64)


@dataclass(frozen=True)
class CodeColumn:
    """A categorical column: a code stands for its value; a missing category (-1) reads as NaN.

    The value of a category that is a number is that number, else the code.
    """

    array: ZarrElements
    values: Float64Array

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        codes = np.empty(stop - start, np.int64)
        self.array.read_into(start, stop, codes)
        if ((codes < -1) | (codes >= len(self.values))).any():
            raise DamageError(f"{self.array.location} has codes without a category; the store is damaged")
        return np.append(self.values, np.nan)[codes]  # -1 is the last entry


_Labels = tuple[Column, tuple[str, ...] | None]
"""The labels, and their names where they have names."""


class _Opening:
    """The store that is being opened, and the sizes of the chunk files seen so far."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.location = storage.location
        self.sizes: dict[str, Int64Array] = {}
        self.n_rows, self.n_features = self._csr_shape()

    def _csr_shape(self) -> tuple[int, int]:
        """Shape of ``X``; raises InputError where it is no CSR matrix."""
        x = f"X of {self.location}"
        attributes = read_group(self.storage, "X")
        if attributes is None:
            what = "is a dense matrix" if self.storage.list("X") else "is missing"
            raise InputError(f"{x} {what}, and rows are read from a CSR matrix only; {_ADVICE}")
        encoding = attributes.get("encoding-type")
        if encoding != "csr_matrix":
            raise InputError(f"{x} is encoded as {encoding!r:.80}, not as 'csr_matrix'; {_ADVICE}")
        shape = attributes.get("shape")
        if not isinstance(shape, list) or len(shape) != 2 or any(type(length) is not int for length in shape):
            raise DamageError(f"{x} has the shape {shape!r:.80}; the store is damaged")
        n_rows, n_features = shape
        if n_rows < 1 or not 0 <= n_features <= LARGEST_FEATURE_COUNT:
            raise InputError(f"{x} has {n_rows} rows and {n_features} features; there is nothing to read")
        return n_rows, n_features

    def info(self, name: str) -> ArrayInfo:
        """Checked metadata of an array all of whose chunk files are there."""
        info = read_array(self.storage, name)
        self.sizes[name] = chunk_sizes(self.storage, info, hint=_FILL_HINT)
        return info

    def column_info(self, name: str) -> ArrayInfo:
        """Like `info`, for an array with one entry a row."""
        info = self.info(name)
        if info.length != self.n_rows:
            entries = f"{info.length} entries for {self.n_rows} rows"
            raise DamageError(f"{self.location}/{name} has {entries}; the store is damaged")
        return info

    def array(self, info: ArrayInfo) -> ZarrElements:
        return ZarrElements(self.storage, info)

    def row_ranges(self) -> Iterator[tuple[int, int]]:
        """Consecutive ranges that together are all rows."""
        for start in range(0, self.n_rows, CHUNK_ROWS):
            yield start, min(start + CHUNK_ROWS, self.n_rows)


def open_foreign(storage: Storage, label: str) -> Store:
    """Open an AnnData store without a manifest; see `ooc_svm.store.open.open_store`."""
    opening = _Opening(storage)
    used = [opening.info(f"X/{name}") for name in ("indptr", "indices", "data")]
    indptr, indices, data = map(opening.array, used)
    value_type = _value_type(opening, *used)
    label_column, label_names = _labels(opening, label)
    digest = hashlib.sha256(f"{opening.n_rows} {opening.n_features} {value_type}".encode())
    block_rows, block_nonzeros = _blocks(opening, indptr, used[1], digest)
    summary, label_runs = _summarise(opening, label, label_column, digest)
    qid = _optional(opening, "qid", np.int64)
    weight = _optional(opening, "weight", np.float64)
    for sizes in opening.sizes.values():
        digest.update(sizes.tobytes())
    metadata = StoreMetadata(
        path=Path(opening.location),
        id=digest.hexdigest(),
        n_rows=opening.n_rows,
        n_features=opening.n_features,
        n_nonzeros=used[1].length,
        value_type=value_type,
        index_base=0,
        labels=summary,
        label_runs=label_runs,
        label_names=label_names,
        qid_groups=0 if qid is None else _runs(opening, qid),
        provenance={},
        format_version=None,
        n_chunks=sum(len(sizes) for sizes in opening.sizes.values()),
        n_bytes=sum(int(sizes.sum()) for sizes in opening.sizes.values()),
    )
    parts = StoreParts(
        storage=storage,
        indptr=indptr,
        indices=indices,
        data=data,
        block_rows=block_rows,
        block_nonzeros=block_nonzeros,
        tails=None,
        label=label_column,
        qid=qid,
        weight=weight,
        chunk_sizes={info.name: (info, opening.sizes[info.name]) for info in used},
    )
    return Store(metadata, parts)


def _value_type(
    opening: _Opening, indptr: ArrayInfo, indices: ArrayInfo, data: ArrayInfo
) -> Literal["float32", "float64"]:
    """The type that values are converted to; integers of more than 53 bits are rounded."""
    kinds = (indptr.dtype.kind in "iu", indices.dtype.kind in "iu", data.dtype.kind in "biuf")
    if not all(kinds):
        types = ", ".join(f"{info.name} of {info.dtype}" for info in (indptr, indices, data))
        raise InputError(f"{opening.location} has {types}: no row pointers, column ids and values; {_ADVICE}")
    if indptr.length != opening.n_rows + 1 or data.length != indices.length:
        raise DamageError(
            f"X of {opening.location} has {opening.n_rows} rows, {indptr.length} row pointers, "
            f"{indices.length} column ids and {data.length} values, which do not fit; the store is damaged"
        )
    small = data.dtype.itemsize <= (4 if data.dtype.kind == "f" else 2)
    return "float32" if small else "float64"


def _blocks(
    opening: _Opening, indptr: ZarrElements, indices: ArrayInfo, digest: hashlib._Hash
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
                f"the row pointers of rows {start} to {stop} of {opening.location} (X/indptr) decrease or "
                "leave X/indices; the store is damaged"
            )
        digest.update(pointers.tobytes())
        cutter.add(pointers[:-1], int(pointers[-1]))
    return cutter.finish()


def _columns(opening: _Opening) -> list[str]:
    """Names of the columns of ``obs``."""
    columns = (read_group(opening.storage, "obs") or {}).get("column-order", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise DamageError(f"obs of {opening.location} has no list of columns; the store is damaged")
    return columns


def _labels(opening: _Opening, label: str) -> _Labels:
    columns = _columns(opening)
    if label not in columns or "/" in label or label in (".", ".."):
        known = ", ".join(f"{name!r:.80}" for name in columns[:20]) or "none"
        raise InputError(
            f"{opening.location} has no column obs/{label:.80} to take the labels from; choose one "
            f"(--label): {known}" + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
        )
    name = f"obs/{label}"
    group = read_group(opening.storage, name)
    if group is not None:
        if group.get("encoding-type") != "categorical":
            raise InputError(
                f"{opening.location}/{name} is encoded as {group.get('encoding-type')!r:.80}; "
                "labels are numbers, strings or categories"
            )
        return _categories(opening, name)
    info = opening.column_info(name)
    array = opening.array(info)
    if info.dtype.kind == "O":
        names = _distinct(opening, array)
        return TextColumn(array, names), tuple(names.tolist())
    return NumberColumn(array, np.float64), None


def _categories(opening: _Opening, name: str) -> _Labels:
    codes, categories = opening.column_info(f"{name}/codes"), opening.info(f"{name}/categories")
    if codes.dtype.kind not in "iu":
        raise DamageError(f"{opening.location}/{name} has codes of type {codes.dtype}; the store is damaged")
    if categories.length > MOST_COUNTED:
        raise _too_many(f"{opening.location}/{name}")
    array, names = opening.array(categories), None
    if categories.dtype.kind == "O":
        names = tuple(map(str, array.read_strings(0, categories.length).tolist()))
        values = np.arange(categories.length, dtype=np.float64)
    else:
        values = np.empty(categories.length, np.float64)
        array.read_into(0, categories.length, values)
    return CodeColumn(opening.array(codes), values), names


def _distinct(opening: _Opening, array: ZarrElements) -> npt.NDArray[np.str_]:
    """The different strings of a column, sorted."""
    names: set[str] = set()
    for start, stop in opening.row_ranges():
        names.update(map(str, array.read_strings(start, stop).tolist()))
        if len(names) > MOST_COUNTED:
            raise _too_many(array.location)
    return np.array(sorted(names), str)


def _too_many(column: str) -> InputError:
    return InputError(
        f"{column} has more than {MOST_COUNTED} different names; choose a column of classes or of numbers"
    )


def _summarise(
    opening: _Opening, label: str, column: Column, digest: hashlib._Hash
) -> tuple[LabelSummary, int]:
    """Summarise the labels and count their runs in one stream; a row without a label is an error."""
    collector, runs = LabelCollector(CHUNK_ROWS), RunCounter()
    for start, stop in opening.row_ranges():
        labels = column.read(start, stop)
        finite = np.isfinite(labels)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise InputError(
                f"row {row} of {opening.location} has no label in obs/{label:.80}; remove such rows first"
            )
        digest.update(labels.tobytes())
        collector.add(labels)
        runs.add(labels)
    return collector.summary(), runs.n_runs


def _runs(opening: _Opening, column: Column) -> int:
    """Number of runs of equal entries."""
    runs = RunCounter()
    for start, stop in opening.row_ranges():
        runs.add(column.read(start, stop))
    return runs.n_runs


def _optional(opening: _Opening, name: str, dtype: npt.DTypeLike) -> NumberColumn | None:
    """The columns qid and weight are taken where they are plain numbers."""
    if name not in _columns(opening) or read_group(opening.storage, f"obs/{name}") is not None:
        return None
    info = opening.column_info(f"obs/{name}")
    if info.dtype.kind not in ("iu" if dtype is np.int64 else "biuf"):
        return None
    return NumberColumn(opening.array(info), dtype)
