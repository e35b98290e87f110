"""AnnData stores of other writers, read as they are: any CSR ``X``, labels from a column of ``obs``.

They have no manifest: every chunk file must be present when the store is opened, the blocks follow from one
stream over the row pointers, and the chunk after a block is read for the end of its last row.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import DamageError, InputError
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.chunk_files import ZarrElements
from ooc_svm.store.label_summary import MOST_COUNTED, LabelGatherer
from ooc_svm.store.layout import (
    BLOCK_CHUNKS,
    BLOCK_ROWS,
    CHUNK_ELEMENTS,
    CHUNK_ROWS,
    LARGEST_FEATURE_COUNT,
)
from ooc_svm.store.metadata import ArrayInfo, chunk_files, read_array, read_group
from ooc_svm.store.reader import Column, NumberColumn, Store, StoreFacts, StoreParts
from ooc_svm.store.zarr_access import StrictStore, ZarrArray, location, open_array, read_into, read_strings

_ADVICE = "write it as a CSR matrix (scipy.sparse.csr_matrix(adata.X)) and save it again"

_FILL_HINT = " (a writer may leave out chunks of zeros: then save it with write_empty_chunks set)"


@dataclass(frozen=True)
class TextColumn:
    """A column of strings; an entry is the place of its name in the sorted names.

    Attributes
    ----------
    array : zarr.Array
    names : ndarray of str
    """

    array: ZarrArray
    names: npt.NDArray[np.str_]

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Entries of the rows ``start <= i < stop``."""
        texts = read_strings(self.array, start, stop).astype(str)
        codes = np.searchsorted(self.names, texts)
        if (self.names[np.minimum(codes, len(self.names) - 1)] != texts).any():
            raise DamageError(f"{location(self.array)} changed while it was read; run again")
        return codes.astype(np.float64)


@dataclass(frozen=True)
class CodeColumn:
    """A categorical column: codes stand for numbers; a missing category (-1) reads as NaN.

    Attributes
    ----------
    array : zarr.Array
    values : ndarray of float64, shape (n_categories,)
        The number each code stands for: of a category that is a number itself, else the code.
    """

    array: ZarrArray
    values: Float64Array

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Entries of the rows ``start <= i < stop``."""
        codes = np.empty(stop - start, np.int64)
        read_into(self.array, start, stop, codes)
        if ((codes < -1) | (codes >= len(self.values))).any():
            raise DamageError(f"{location(self.array)} has codes without a category; the store is damaged")
        return np.append(self.values, np.nan)[codes]  # -1 is the last entry


@dataclass(frozen=True)
class _Labels:
    column: Column
    names: tuple[str, ...] | None


class _Folder:
    """The store being opened: its place, its face for Zarr, the sizes of the chunk files seen so far."""

    def __init__(self, path: Path, access: StrictStore) -> None:
        self.path = path
        self.access = access
        self.sizes: dict[str, Int64Array] = {}

    def info(self, name: str) -> ArrayInfo:
        """Checked metadata of an array all of whose chunk files are there."""
        info = read_array(self.path, name)
        self.sizes[name] = chunk_files(self.path, info, hint=_FILL_HINT)
        return info

    def open(self, info: ArrayInfo) -> ZarrArray:
        return open_array(self.access, info)


def open_foreign(path: Path, access: StrictStore, label: str) -> Store:
    """Open an AnnData store without a manifest; see `ooc_svm.store.open.open_store`."""
    folder = _Folder(path, access)
    n_rows, n_features = _csr_shape(path)
    indptr, indices, data = (folder.info(f"X/{name}") for name in ("indptr", "indices", "data"))
    value_type = _value_type(path, indptr, indices, data, n_rows, n_features)
    labels = _labels(folder, label, n_rows)
    digest = hashlib.sha256(f"{n_rows} {n_features} {value_type}".encode())
    pointers = folder.open(indptr)
    block_rows, block_nonzeros = _blocks(folder, pointers, indices, n_rows, digest)
    gatherer = _gather(path, label, labels.column, n_rows, digest)
    columns = _columns(path)
    qid = _optional(folder, "qid", columns, n_rows, np.int64)
    weight = _optional(folder, "weight", columns, n_rows, np.float64)
    for sizes in folder.sizes.values():
        digest.update(sizes.tobytes())
    used = (indptr, indices, data)
    facts = StoreFacts(
        path=path,
        id=digest.hexdigest(),
        n_rows=n_rows,
        n_features=n_features,
        n_nonzeros=indices.length,
        value_type=value_type,
        index_base=0,
        labels=gatherer.summary(),
        label_runs=gatherer.n_runs,
        label_names=labels.names,
        qid_groups=0 if qid is None else _runs(qid, n_rows),
        provenance={},
        format_version=None,
        n_chunks=sum(len(sizes) for sizes in folder.sizes.values()),
        n_bytes=sum(int(sizes.sum()) for sizes in folder.sizes.values()),
    )
    parts = StoreParts(
        access=access,
        indptr=ZarrElements(pointers),
        indices=ZarrElements(folder.open(indices)),
        data=ZarrElements(folder.open(data)),
        block_rows=block_rows,
        block_nonzeros=block_nonzeros,
        tails=None,
        label=labels.column,
        qid=qid,
        weight=weight,
        chunk_sizes={info.name: (info, folder.sizes[info.name]) for info in used},
    )
    return Store(facts, parts)


def _csr_shape(path: Path) -> tuple[int, int]:
    """Shape of ``X``; raises InputError where it is no CSR matrix."""
    attributes = read_group(path, "X")
    if attributes is None:
        what = "is a dense matrix" if (path / "X").is_dir() else "is missing"
        raise InputError(f"X of {path} {what}, and rows are read from a CSR matrix only; {_ADVICE}")
    encoding = attributes.get("encoding-type")
    if encoding != "csr_matrix":
        raise InputError(f"X of {path} is encoded as {encoding!r:.80}, not as 'csr_matrix'; {_ADVICE}")
    shape = attributes.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or any(type(length) is not int for length in shape):
        raise DamageError(f"X of {path} has the shape {shape!r:.80}; the store is damaged")
    n_rows, n_features = shape
    if n_rows < 1 or not 0 <= n_features <= LARGEST_FEATURE_COUNT:
        raise InputError(f"X of {path} has {n_rows} rows and {n_features} features; there is nothing to read")
    return n_rows, n_features


def _value_type(
    path: Path, indptr: ArrayInfo, indices: ArrayInfo, data: ArrayInfo, n_rows: int, n_features: int
) -> Literal["float32", "float64"]:
    """The type values are converted to; integers of more than 53 bits are rounded."""
    kinds = (indptr.dtype.kind in "iu", indices.dtype.kind in "iu", data.dtype.kind in "biuf")
    if not all(kinds):
        types = ", ".join(f"{info.name} of {info.dtype}" for info in (indptr, indices, data))
        raise InputError(f"{path} has {types}: no row pointers, column ids and values; {_ADVICE}")
    if indptr.length != n_rows + 1 or data.length != indices.length:
        raise DamageError(
            f"X of {path} has {n_rows} rows, {indptr.length} row pointers, {indices.length} column ids and "
            f"{data.length} values, which do not fit; the store is damaged"
        )
    small = data.dtype.itemsize <= (4 if data.dtype.kind == "f" else 2)
    return "float32" if small else "float64"


def _blocks(
    folder: _Folder, indptr: ZarrArray, indices: ArrayInfo, n_rows: int, digest: hashlib._Hash
) -> tuple[Int64Array, Int64Array]:
    """Cut the rows into blocks that begin with the first row of a chunk, in one stream over ``indptr``."""
    chunk = indices.inner_chunk
    cutter = BlockCutter(chunk, max(1, BLOCK_CHUNKS * CHUNK_ELEMENTS // chunk), BLOCK_ROWS)
    for start in range(0, n_rows, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, n_rows)
        pointers = np.empty(stop - start + 1, np.int64)
        read_into(indptr, start, stop + 1, pointers)
        whole = pointers[0] >= 0 and pointers[-1] <= indices.length and (np.diff(pointers) >= 0).all()
        whole &= (start > 0 or pointers[0] == 0) and (stop < n_rows or pointers[-1] == indices.length)
        if not whole:
            raise DamageError(
                f"the row pointers of rows {start} to {stop} of {folder.path} (X/indptr) decrease or leave "
                "X/indices; the store is damaged"
            )
        digest.update(pointers.tobytes())
        cutter.add(pointers[:-1], int(pointers[-1]))
    return cutter.finish()


def _columns(path: Path) -> list[str]:
    """Names of the columns of ``obs``."""
    attributes = read_group(path, "obs") or {}
    columns = attributes.get("column-order", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise DamageError(f"obs of {path} has no list of columns; the store is damaged")
    return columns


def _labels(folder: _Folder, label: str, n_rows: int) -> _Labels:
    columns = _columns(folder.path)
    if label not in columns or "/" in label or label in (".", ".."):
        known = ", ".join(f"{name!r:.80}" for name in columns[:20]) or "none"
        raise InputError(
            f"{folder.path} has no column obs/{label:.80} to take the labels from; choose one (--label): "
            f"{known}" + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
        )
    name = f"obs/{label}"
    group = read_group(folder.path, name)
    if group is not None:
        if group.get("encoding-type") != "categorical":
            raise InputError(
                f"{folder.path / name} is encoded as {group.get('encoding-type')!r:.80}; "
                "labels are numbers, strings or categories"
            )
        return _categories(folder, name, n_rows)
    info = _column_info(folder, name, n_rows)
    if info.dtype.kind == "O":
        names = _distinct(folder, info)
        return _Labels(TextColumn(folder.open(info), names), tuple(names.tolist()))
    return _Labels(NumberColumn(folder.open(info), np.float64), None)


def _column_info(folder: _Folder, name: str, n_rows: int) -> ArrayInfo:
    info = folder.info(name)
    if info.length != n_rows:
        raise DamageError(
            f"{folder.path / name} has {info.length} entries for {n_rows} rows; the store is damaged"
        )
    return info


def _categories(folder: _Folder, name: str, n_rows: int) -> _Labels:
    codes, categories = _column_info(folder, f"{name}/codes", n_rows), folder.info(f"{name}/categories")
    if codes.dtype.kind not in "iu":
        raise DamageError(f"{folder.path / name} has codes of type {codes.dtype}; the store is damaged")
    if categories.length > MOST_COUNTED:
        raise InputError(_too_many(folder.path / name))
    if categories.dtype.kind == "O":
        names = read_strings(folder.open(categories), 0, categories.length).tolist()
        values = np.arange(categories.length, dtype=np.float64)
        return _Labels(CodeColumn(folder.open(codes), values), tuple(map(str, names)))
    values = np.empty(categories.length, np.float64)
    read_into(folder.open(categories), 0, categories.length, values)
    return _Labels(CodeColumn(folder.open(codes), values), None)


def _distinct(folder: _Folder, info: ArrayInfo) -> npt.NDArray[np.str_]:
    """The different strings of a column, sorted."""
    array = folder.open(info)
    names: set[str] = set()
    for start in range(0, info.length, CHUNK_ROWS):
        names.update(map(str, read_strings(array, start, min(start + CHUNK_ROWS, info.length)).tolist()))
        if len(names) > MOST_COUNTED:
            raise InputError(_too_many(folder.path / info.name))
    return np.array(sorted(names), str)


def _too_many(column: Path) -> str:
    return f"{column} has more than {MOST_COUNTED} different names; choose a column of classes or of numbers"


def _gather(path: Path, label: str, column: Column, n_rows: int, digest: hashlib._Hash) -> LabelGatherer:
    """Summarise the labels in one stream; a row without one is an error."""
    gatherer = LabelGatherer()
    for start in range(0, n_rows, CHUNK_ROWS):
        labels = column.read(start, min(start + CHUNK_ROWS, n_rows))
        finite = np.isfinite(labels)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise InputError(f"row {row} of {path} has no label in obs/{label:.80}; remove such rows first")
        digest.update(labels.tobytes())
        gatherer.add(labels)
    return gatherer


def _runs(column: Column, n_rows: int) -> int:
    """Number of runs of equal entries."""
    runs, last = 0, None
    for start in range(0, n_rows, CHUNK_ROWS):
        entries = column.read(start, min(start + CHUNK_ROWS, n_rows))
        runs += int(np.count_nonzero(entries[1:] != entries[:-1])) + bool(entries[0] != last)
        last = entries[-1]
    return runs


def _optional(
    folder: _Folder, name: str, columns: list[str], n_rows: int, dtype: npt.DTypeLike
) -> NumberColumn | None:
    """The columns qid and weight are taken where they are plain numbers."""
    if name not in columns or read_group(folder.path, f"obs/{name}") is not None:
        return None
    info = _column_info(folder, f"obs/{name}", n_rows)
    if info.dtype.kind not in ("iu" if dtype is np.int64 else "biuf"):
        return None
    return NumberColumn(folder.open(info), dtype)
