"""`open_store`: whatever can be found wrong with a store before a row is read is reported then."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import DamageError, InputError, shown
from ooc_svm.parameters import PATH, TEXT, UNLABELLED, Kind, checks
from ooc_svm.store import layout
from ooc_svm.store.chunk_files import ChunkFiles, not_the_chunk
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.feature_names import NAMES, read_names
from ooc_svm.store.label_summary import label_ranks, most_counted
from ooc_svm.store.layout import CATEGORIES, CHECKSUM_BYTES, CODES, LABEL, MANIFEST, MARK, SOURCE, X
from ooc_svm.store.manifest import Manifest, read_manifest
from ooc_svm.store.metadata import ArrayInfo, chunk_versions, read_array, read_group
from ooc_svm.store.reader import Column, NamedColumn, NumberColumn, Store, StoreParts, Tails
from ooc_svm.store.storage import ADVICE, Storage, no_store, open_storage, storage_at
from ooc_svm.system.files import is_folder


def is_ours(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder was written by this package: a store with a manifest, or AnnData that was converted.

    Damaged ones are included. Raises StorageError if that cannot be read.
    """
    return has_manifest(folder) or SOURCE in (_root(storage_at(folder)) or ())


def has_manifest(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder carries the mark of this package's stores; see `is_ours`."""
    storage = storage_at(folder)
    try:
        return MARK in (_root(storage) or ()) and MARK in storage.list("uns")
    except (DamageError, InputError):
        return False


def _root(storage: Storage) -> dict[str, Any] | None:
    """Attributes of the root, None where there are none that can be read."""
    try:
        return read_group(storage, "")
    except (DamageError, InputError):
        return None


@checks(path=PATH, label=TEXT, layer=TEXT, unlabelled=UNLABELLED)
def open_store(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    layer: str | None = None,
    unlabelled: str = "error",
) -> Store:
    """Open a store of ours, or any AnnData Zarr store with a CSR or dense matrix.

    Parameters
    ----------
    path : path
    label : str, optional
        Column of ``obs`` that holds the labels; "label" by default. A store of ours has that one only.
    layer : str, optional
        Layer of an AnnData store that is read instead of ``X``.
    unlabelled : {"error", "skip", "keep"}
        What becomes of rows of an AnnData store without a label (not a number, empty text, a missing
        category): they are an error, or left out, or kept, with NaN for their label. With "keep" the default
        column may be missing.

    Returns
    -------
    Store
        Opened after every chunk file was found in place: with its size, and its checksum where that costs
        little, as the manifest has them, or at least present where there is no manifest.

    Raises
    ------
    UsageError
        A value that is not possible.
    InputError
        There is no store at the path, or it is not one of CSR rows, or has no such column, or rows have no
        label.
    DamageError
        The store is damaged or incomplete.
    StorageError
        Reading failed.
    """
    storage = open_storage(path)
    return open_listed(storage, find_manifest(storage), label, unlabelled, layer)


def find_manifest(storage: Storage) -> Manifest | None:
    """The manifest, None for an AnnData store of another writer; raises as `open_store` does."""
    place = storage.location
    attributes = read_group(storage, "")
    if attributes is None:
        raise no_store(storage.path)
    if MARK in attributes:
        return read_manifest(storage, attributes[MARK])
    if MARK in storage.list("uns"):
        raise DamageError(f"{place} has a manifest but its root does not name it; the store is damaged")
    return None


def names_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a store: a folder, or a name that ends in ``.zarr``; other paths are text."""
    return is_folder(path) or os.fspath(path).rstrip("/").endswith(".zarr")


def _read_store(store: Any) -> Any:
    return store if isinstance(store, Store) else PATH.convert(store)


STORE = Kind("Store or path", "a Store, or the path of one", _read_store)


def opened(store: Store | str | os.PathLike[str], unlabelled: str = "error") -> Store:
    """A store that was given as such, or by its path."""
    return store if isinstance(store, Store) else open_store(store, unlabelled=unlabelled)


def open_listed(
    storage: Storage, manifest: Manifest | None, label: str | None, unlabelled: str, layer: str | None = None
) -> Store:
    """Open the store that a manifest lists, or one without; see `open_store`."""
    if manifest is None:
        from ooc_svm.store.anndata import open_foreign

        store = open_foreign(storage, label, unlabelled, layer or X)
    else:
        store = _open_ours(storage, manifest, label, layer)
    # What was read first may be of another store: from here on files are known.
    storage.confirm()
    return store


def _open_ours(storage: Storage, manifest: Manifest, label: str | None, layer: str | None) -> Store:
    """Open the store that a manifest lists."""
    if layer not in (None, X):
        raise InputError(f"{storage.location} has no layer {shown(layer)}; its only matrix is X")
    if label not in (None, "label"):
        raise InputError(f"{storage.location} has no column obs/{label!s:.80}; its labels are in obs/label")
    infos = check_against_manifest(storage, manifest)
    listed = {array.name: slice(first, last) for array, first, last in manifest.chunks()}

    def elements(name: str) -> ChunkFiles:
        return ChunkFiles(
            storage, infos[name], manifest.sizes[listed[name]], manifest.checksums[listed[name]]
        )

    def table(name: str) -> Int64Array:
        out = np.empty(infos[name].length, np.int64)
        elements(name).read_into(0, len(out), out)
        return out

    names = ("block_rows", "block_nonzeros", "tail_pointers")
    block_rows, block_nonzeros, pointers = (table(f"{MANIFEST}/{name}") for name in names)
    _check_tables(storage, manifest, infos, block_rows, block_nonzeros, pointers)
    ones = manifest.value_type == "ones"
    tail_values = None if ones else elements(f"{MANIFEST}/tail_values")
    used = ["X/indptr", "X/indices"] + ([] if ones else ["X/data"])
    label_names: list[str] | None = None
    if manifest.named_labels:
        most = most_counted(manifest.label_sets)
        label_names = _label_names(storage, infos[CATEGORIES], elements(CATEGORIES), most)
        codes, code_type = elements(CODES), layout.code_type(manifest.label_sets)
        label_column: Column = NamedColumn(codes, label_ranks(label_names), storage.location, code_type)
    else:
        label_column = NumberColumn(elements(LABEL), np.float64)
    parts = StoreParts(
        storage=storage,
        indptr=elements("X/indptr"),
        indices=elements("X/indices"),
        data=None if ones else elements("X/data"),
        block_rows=block_rows,
        block_nonzeros=block_nonzeros,
        tails=Tails(pointers, elements(f"{MANIFEST}/tail_indices"), tail_values),
        label=label_column,
        qid=NumberColumn(elements("obs/qid"), np.int64) if manifest.has_qid else None,
        weight=NumberColumn(elements("obs/weight"), np.float64) if manifest.has_weight else None,
        feature_names=partial(_names, storage, infos[NAMES], elements(NAMES)) if manifest.has_names else None,
        chunk_sizes={name: (infos[name], manifest.sizes[listed[name]]) for name in used},
    )
    known = None if label_names is None else tuple(sorted(label_names))
    return Store(manifest.store_metadata(storage.path, known), parts)


def _names(storage: Storage, info: ArrayInfo, stored: ChunkFiles) -> FeatureNames:
    """The names of the features, of chunks that are those of the manifest."""
    stored.check()
    return read_names(EncodedChunks(storage, info), info, info.length)


def _label_names(storage: Storage, info: ArrayInfo, stored: ChunkFiles, most: int) -> list[str]:
    """The names of labels, of chunks that are those of the manifest; DamageError if they cannot be such."""
    if not 1 <= info.length <= most:
        raise DamageError(f"{storage.location} has {info.length} names of labels; the store is damaged")
    stored.check()
    names: list[str] = EncodedChunks(storage, info).read_strings(0, info.length).tolist()
    if len(set(names)) != len(names):
        raise DamageError(f"{storage.location} has the same name of a label twice; the store is damaged")
    return names


def check_against_manifest(storage: Storage, manifest: Manifest) -> dict[str, ArrayInfo]:
    """Check metadata and chunk files against the manifest; return the listed arrays by name.

    The content of a chunk is checked when it is read, or here if no run reads it: such chunks are small.
    DamageError names the first file that is not as listed.
    """
    for key, checksum in manifest.metadata.items():
        size = storage.describe(key)
        if size is None:
            raise DamageError(f"{storage.location}/{key} is missing; {ADVICE}")
        if google_crc32c.value(storage.read(key, 0, size)) != checksum:
            raise DamageError(f"{storage.location}/{key} was changed since the store was written; {ADVICE}")
    infos = {}
    for array, first, last in manifest.chunks():
        info = infos[array.name] = read_array(storage, array.name)
        name = f"{storage.location}/{array.name}"
        if (info.dtype.name, info.length, info.chunk) != (array.dtype, array.length, array.chunk):
            raise DamageError(f"{name} is not as the manifest has it; the store is damaged")
        codecs = [codec.name for codec in info.codecs]
        first_codec = "vlen-utf8" if info.dtype.kind == "O" else "bytes"
        if (info.zarr_format, info.inner_chunk, codecs) != (3, info.chunk, [first_codec, "blosc", "crc32c"]):
            raise DamageError(f"{name} is not encoded as our stores are; the store is damaged")
        if not storage.is_local:  # the size and the checksum of a chunk are looked at when it is read
            continue
        _check_chunk_files(storage, info, manifest.sizes[first:last], manifest.checksums[first:last])
        if array.name in manifest.unread:
            ChunkFiles(storage, info, manifest.sizes[first:last], manifest.checksums[first:last]).check()
    return infos


def _check_chunk_files(
    storage: Storage, info: ArrayInfo, sizes: Int64Array, checksums: npt.NDArray[np.uint32]
) -> None:
    """Check the size and the last bytes (the crc32c) of every chunk: finds lost, cut and swapped ones."""
    found = chunk_versions(storage, info)["size"]
    for index, (size, expected, checksum) in enumerate(
        zip(found.tolist(), sizes.tolist(), checksums.tolist(), strict=True)
    ):
        key = info.key(index)
        chunk = f"the chunk {storage.location}/{key}"
        if size != expected:
            raise DamageError(f"{chunk} has {size} bytes and should have {expected}; {ADVICE}")
        stored = storage.read(key, max(size - CHECKSUM_BYTES, 0), size)
        if int.from_bytes(stored, "little") != checksum:
            raise not_the_chunk(chunk)


def _check_tables(
    storage: Storage,
    manifest: Manifest,
    infos: dict[str, ArrayInfo],
    block_rows: Int64Array,
    block_nonzeros: Int64Array,
    tail_pointers: Int64Array,
) -> None:
    """The tables of blocks must cover all rows and elements in order, the tails lie inside their blocks."""
    n_tail = infos[f"{MANIFEST}/tail_indices"].length
    tables, ends = (block_rows, block_nonzeros, tail_pointers), (manifest.n_rows, manifest.n_nonzeros, n_tail)
    for table, end in zip(tables, ends, strict=True):
        whole = len(table) == len(block_rows) >= 1 and table[0] == 0 and table[-1] == end
        if not whole or (np.diff(table) < 0).any():
            message = f"the block tables of {storage.location} do not cover its rows; the store is damaged"
            raise DamageError(message)
    if (np.diff(tail_pointers) > np.diff(block_nonzeros)).any():
        raise DamageError(f"a tail in {storage.location} is longer than its block; the store is damaged")
    if manifest.value_type != "ones" and infos[f"{MANIFEST}/tail_values"].length != n_tail:
        raise DamageError(
            f"the tails of {storage.location} have more ids than values or fewer; the store is damaged"
        )
