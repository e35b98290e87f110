"""AnnData stores of other writers, read as they are: a CSR or dense matrix, labels from a column of ``obs``.

The matrix is ``X`` or a layer. They have no manifest: every chunk file must be present when the store is
opened, and stay as it is then. The blocks follow from one stream over the row pointers, and the chunk after a
block is read for the end of its last row.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import DamageError, InputError, parameter, shown
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.chunk_files import Elements
from ooc_svm.store.codecs import has_checksum
from ooc_svm.store.dense import DenseIds, DensePointers, DenseValues, band_sizes, dense_blocks
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.feature_names import names_of_anndata
from ooc_svm.store.label_summary import MOST_COUNTED, LabelCollector, LabelSummary, RunCounter
from ooc_svm.store.labelled import LabelledStore
from ooc_svm.store.layout import (
    BLOCK_CHUNKS,
    BLOCK_ROWS,
    CHUNK_ELEMENTS,
    CHUNK_ROWS,
    LARGEST_FEATURE_COUNT,
    X,
)
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.metadata import (
    LARGEST_LENGTH,
    ArrayInfo,
    Grid,
    chunk_versions,
    is_array,
    read_array,
    read_group,
)
from ooc_svm.store.reader import Column, NumberColumn, Store, StoreParts
from ooc_svm.store.storage import FILL_HINT, FileVersion, Storage

DEFAULT_LABEL = "label"

LONGEST_NAME = 1000
"""Limit of the length of a label's name, in characters."""


@dataclass(frozen=True)
class TextColumn:
    """A column of strings; ``codes`` has the place of each name among the sorted names, NaN for none."""

    array: EncodedChunks
    codes: dict[str, float]

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        texts = self.array.read_strings(start, stop).tolist()
        try:
            return np.array([self.codes[text] for text in texts], np.float64)
        except KeyError:
            raise DamageError(f"{self.array.location} changed while it was read; run again") from None


@dataclass(frozen=True)
class CodeColumn:
    """A categorical column: a code stands for its value; a missing category (-1) reads as NaN.

    The value of a category that is a number is that number, else the code.
    """

    array: EncodedChunks
    values: Float64Array

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        codes = np.empty(stop - start, np.int64)
        self.array.read_into(start, stop, codes)
        if ((codes < -1) | (codes >= len(self.values))).any():
            raise DamageError(f"{self.array.location} has codes without a category; the store is damaged")
        return np.append(self.values, np.nan)[codes]  # -1 is the last entry


_Labels = tuple[Column, tuple[str, ...] | None]
"""The labels, NaN where a row has none, and their names where they have names."""

_NO_LABELS = LabelSummary({}, np.nan, np.nan, np.nan)


# Chunk files of an array that are sampled for the id, and bytes of all samples of an array.
_SAMPLED_CHUNKS, _SAMPLED_BYTES = 16, 1 << 20


class _Opening:
    """The store that is being opened, and the arrays and versions of their chunk files seen so far."""

    def __init__(self, storage: Storage, layer: str) -> None:
        self.storage = storage
        self.location = storage.location
        self.layer = layer
        self.matrix = X if layer == X else f"layers/{layer}"
        self.infos: dict[str, ArrayInfo] = {}
        self.versions: dict[str, npt.NDArray[np.void]] = {}
        self.grid: Grid | None = None
        self.n_rows, self.n_features = self._shape()

    @property
    def advice(self) -> str:
        """What to type about a matrix that is not read as it is."""
        layer = "" if self.layer == X else f" --layer {shlex.quote(self.layer)}"
        return f"convert it first: ooc-svm convert {shlex.quote(self.location)} -o NEW.zarr{layer}"

    def _shape(self) -> tuple[int, int]:
        """Shape of the matrix; raises InputError where it is neither CSR nor dense."""
        if self.layer != X:
            self._check_layer()
        what = f"{self.matrix} of {self.location}"
        attributes = read_group(self.storage, self.matrix)
        if attributes is None:
            if not is_array(self.storage, self.matrix):
                raise InputError(f"{what} is missing; check the path, or name a layer ({parameter('layer')})")
            grid = self.grid = read_array(self.storage, self.matrix, 2).grid
            assert grid is not None
            shape: Any = [grid.rows, grid.columns]
        else:
            encoding = attributes.get("encoding-type")
            if encoding == "csc_matrix":
                raise InputError(f"{what} is stored by columns (CSC), and rows are read; {self.advice}")
            if encoding != "csr_matrix":
                raise InputError(f"{what} is encoded as {encoding!r:.80}, not as 'csr_matrix'")
            shape = attributes.get("shape")
        if (
            not isinstance(shape, list)
            or len(shape) != 2
            or any(type(length) is not int or length > LARGEST_LENGTH for length in shape)
        ):
            raise DamageError(f"{what} has the shape {shape!r:.80}; the store is damaged")
        n_rows, n_features = shape
        least = 0 if self.grid is None else 1
        if n_rows < 1 or not least <= n_features <= LARGEST_FEATURE_COUNT:
            raise InputError(f"{what} has {n_rows} rows and {n_features} features; there is nothing to read")
        if self.grid is not None and n_rows * n_features > LARGEST_LENGTH:
            raise DamageError(f"{what} has the shape {shape!r:.80}; the store is damaged")
        return n_rows, n_features

    def _check_layer(self) -> None:
        layers = sorted(self.storage.list("layers").items())
        known = [name for name, version in layers if version is None]
        if self.layer not in known:
            listed = ", ".join(f"{name!r:.80}" for name in known[:20]) or "none"
            raise InputError(
                f"{self.location} has no layer {shown(self.layer)}; choose one "
                f"({parameter('layer')}): {listed}"
            )

    def info(self, name: str, dimensions: int = 1) -> ArrayInfo:
        """Checked metadata of an array all of whose chunk files are there."""
        info = self.infos[name] = read_array(self.storage, name, dimensions)
        self.versions[name] = chunk_versions(self.storage, info, hint=FILL_HINT)
        return info

    def column_info(self, name: str) -> ArrayInfo:
        """Like `info`, for an array with one entry a row."""
        info = self.info(name)
        if info.length != self.n_rows:
            entries = f"{info.length} entries for {self.n_rows} rows"
            raise DamageError(f"{self.location}/{name} has {entries}; the store is damaged")
        return info

    def array(self, info: ArrayInfo) -> EncodedChunks:
        return EncodedChunks(self.storage, info, self.versions[info.name])

    def add_files(self, digest: hashlib._Hash) -> tuple[str, str]:
        """Add the versions of all chunk files, and a sample of their bytes.

        Returns the digest without inodes, which machines that share the files may number differently, and the
        whole digest.
        """
        for name, versions in self.versions.items():
            digest.update(versions["size"].tobytes() + versions["mtime_ns"].tobytes())
            count = min(len(versions), _SAMPLED_CHUNKS)
            for index in sorted({i * (len(versions) - 1) // max(count - 1, 1) for i in range(count)}):
                version = FileVersion(*versions[index].item())
                length = min(version.size, _SAMPLED_BYTES // count)
                start = (version.size - length) // 2
                key = self.infos[name].key(index)
                digest.update(self.storage.read(key, start, start + length, version=version).data)
        shared = digest.hexdigest()
        for versions in self.versions.values():
            digest.update(versions["inode"].tobytes())
        return shared, digest.hexdigest()

    def remark(self) -> str | None:
        """Which arrays have no checksums, if any."""
        names = ", ".join(name for name, info in self.infos.items() if not has_checksum(info.codecs))
        what = f"{names} of {self.location} have no checksums"
        return f"{what}: there is nothing to check their bytes against" if names else None

    def row_ranges(self) -> Iterator[tuple[int, int]]:
        """Consecutive ranges that together are all rows."""
        for start in range(0, self.n_rows, CHUNK_ROWS):
            yield start, min(start + CHUNK_ROWS, self.n_rows)


class _Matrix(NamedTuple):
    """The matrix of a store as `StoreParts` has it."""

    indptr: Elements
    indices: Elements
    data: Elements
    block_rows: Int64Array
    block_nonzeros: Int64Array
    value_type: Literal["float32", "float64"]
    chunk_sizes: dict[str, tuple[ArrayInfo, Int64Array]]


def open_foreign(storage: Storage, label: str | None, unlabelled: str, layer: str = X) -> Store:
    """Open an AnnData store without a manifest; see `ooc_svm.store.open.open_store`."""
    opening = _Opening(storage, layer)
    digest = hashlib.sha256()
    if layer != X:
        digest.update(f"{opening.matrix} ".encode())
    matrix = _dense_matrix(opening, digest) if opening.grid else _csr_matrix(opening, digest)
    label_column, label_names = _wanted_labels(opening, label, unlabelled)
    summary, label_runs, n_unlabelled = _NO_LABELS, 0, opening.n_rows
    if label_column is not None:
        summary, label_runs, n_unlabelled = _summarise(opening, label_column, digest)
        if n_unlabelled and unlabelled == "error":
            raise _unlabelled(opening, label or DEFAULT_LABEL, label_column, n_unlabelled)
    qid = _optional(opening, "qid", np.int64)
    weight = _optional(opening, "weight", np.float64)
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
        labels=summary,
        label_runs=label_runs,
        label_names=label_names,
        qid_groups=0 if qid is None else _runs(opening, qid),
        provenance={},
        format_version=None,
        n_chunks=sum(len(versions) for versions in opening.versions.values()),
        n_bytes=sum(int(versions["size"].sum()) for versions in opening.versions.values()),
        remark=opening.remark(),
        n_unlabelled=n_unlabelled,
    )
    parts = StoreParts(
        storage=storage,
        indptr=matrix.indptr,
        indices=matrix.indices,
        data=matrix.data,
        block_rows=matrix.block_rows,
        block_nonzeros=matrix.block_nonzeros,
        tails=None,
        label=label_column,
        qid=qid,
        weight=weight,
        chunk_sizes=matrix.chunk_sizes,
        feature_names=partial(names_of_anndata, storage, opening.n_features),
    )
    return (LabelledStore if n_unlabelled and unlabelled == "skip" else Store)(metadata, parts)


def _csr_matrix(opening: _Opening, digest: hashlib._Hash) -> _Matrix:
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


def _dense_matrix(opening: _Opening, digest: hashlib._Hash) -> _Matrix:
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
    opening: _Opening, indptr: EncodedChunks, indices: ArrayInfo, digest: hashlib._Hash
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


def _wanted_labels(opening: _Opening, label: str | None, unlabelled: str) -> _Labels | tuple[None, None]:
    """The labels; none where they are not needed, and the default column is missing or none of labels."""
    try:
        return _labels(opening, DEFAULT_LABEL if label is None else label)
    except InputError:
        if label is None and unlabelled == "keep":
            return None, None
        raise


def _labels(opening: _Opening, label: str) -> _Labels:
    columns = obs_columns(opening.storage, opening.location)
    if label not in columns or "/" in label or label in (".", ".."):
        known = ", ".join(f"{name!r:.80}" for name in columns[:20]) or "none"
        raise InputError(
            f"{opening.location} has no column obs/{label:.80} to take the labels from; choose one "
            f"({parameter('label')}): {known}"
            + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
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
        return TextColumn(array, {name: code for code, name in enumerate(names)} | {"": np.nan}), names
    return NumberColumn(array, np.float64), None


def _categories(opening: _Opening, name: str) -> _Labels:
    codes, categories = opening.column_info(f"{name}/codes"), opening.info(f"{name}/categories")
    if codes.dtype.kind not in "iu":
        raise DamageError(f"{opening.location}/{name} has codes of type {codes.dtype}; the store is damaged")
    if categories.length > MOST_COUNTED:
        raise _too_many(f"{opening.location}/{name}")
    array, names = opening.array(categories), None
    if categories.dtype.kind == "O":
        names = tuple(array.read_strings(0, categories.length).tolist())
        if max(map(len, names), default=0) > LONGEST_NAME:
            raise _too_many(array.location)
        values = np.array([code if name else np.nan for code, name in enumerate(names)], np.float64)
    else:
        values = np.empty(categories.length, np.float64)
        array.read_into(0, categories.length, values)
    return CodeColumn(opening.array(codes), values), names


def _distinct(opening: _Opening, array: EncodedChunks) -> tuple[str, ...]:
    """The different strings of a column that are not empty, sorted."""
    names: set[str] = set()
    for start, stop in opening.row_ranges():
        names.update(array.read_strings(start, stop).tolist())
        if len(names) > MOST_COUNTED or max(map(len, names)) > LONGEST_NAME:
            raise _too_many(array.location)
    return tuple(sorted(names - {""}))


def _too_many(column: str) -> InputError:
    return InputError(
        f"{column} has more than {MOST_COUNTED} different names, or names of more than {LONGEST_NAME} "
        "characters; choose a column of classes or of numbers"
    )


def _summarise(opening: _Opening, column: Column, digest: hashlib._Hash) -> tuple[LabelSummary, int, int]:
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


def _unlabelled(opening: _Opening, label: str, column: Column, n_unlabelled: int) -> InputError:
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


def _runs(opening: _Opening, column: Column) -> int:
    """Number of runs of equal entries."""
    runs = RunCounter()
    for start, stop in opening.row_ranges():
        runs.add(column.read(start, stop))
    return runs.n_runs


def _optional(opening: _Opening, name: str, dtype: npt.DTypeLike) -> NumberColumn | None:
    """The columns qid and weight are taken where they are plain numbers."""
    columns = obs_columns(opening.storage, opening.location)
    if name not in columns or read_group(opening.storage, f"obs/{name}") is not None:
        return None
    info = opening.column_info(f"obs/{name}")
    if info.dtype.kind not in ("iu" if dtype is np.int64 else "biuf"):
        return None
    return NumberColumn(opening.array(info), dtype)
