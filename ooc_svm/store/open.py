"""`open_store`: whatever can be found wrong with a store before a row is read is reported then."""

from __future__ import annotations

import os
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array
from ooc_svm.errors import DamageError, InputError, OocSvmError
from ooc_svm.store.anndata import open_foreign
from ooc_svm.store.chunk_files import CHECKSUM_BYTES, ChunkFiles, not_the_chunk
from ooc_svm.store.layout import MANIFEST, MARK
from ooc_svm.store.manifest import Manifest, read_manifest
from ooc_svm.store.metadata import ArrayInfo, chunk_sizes, read_array, read_group
from ooc_svm.store.reader import NumberColumn, Store, StoreParts, Tails
from ooc_svm.store.storage import ADVICE, LocalStorage, Storage, open_storage


def is_ours(folder: Path) -> bool:
    """Whether a folder carries the mark of this package's stores (damaged ones included)."""
    storage = LocalStorage(folder)
    try:
        attributes = read_group(storage, "")
        return attributes is not None and MARK in attributes and MARK in storage.list("uns")
    except OocSvmError:
        return False


def open_store(path: str | os.PathLike[str], *, label: str | None = None) -> Store:
    """Open a store of ours, or any AnnData Zarr store with a CSR matrix ``X``.

    Parameters
    ----------
    path : path-like
    label : str, optional
        Column of ``obs`` that holds the labels; "label" by default. A store of ours has that one only.

    Returns
    -------
    Store
        Opened after every chunk file was found in place: with its size, and its checksum where that costs
        little, as the manifest has them, or at least present where there is no manifest.

    Raises
    ------
    InputError
        There is no store at the path, or it is not one of CSR rows, or has no such column.
    DamageError
        The store is damaged or incomplete.
    StorageError
        Reading failed.
    """
    storage = open_storage(path)
    place = storage.location
    attributes = read_group(storage, "")
    if attributes is None:
        raise InputError(f"{place} is not a Zarr store: it has no metadata of a group; check the path")
    if MARK in attributes:
        if label not in (None, "label"):
            raise InputError(f"{place} has no column obs/{label!s:.80}; its labels are in obs/label")
        return _open_ours(storage, read_manifest(storage, attributes[MARK]))
    if MARK in storage.list("uns"):
        raise DamageError(f"{place} has a manifest but its root does not name it; the store is damaged")
    return open_foreign(storage, label or "label")


def _open_ours(storage: Storage, manifest: Manifest) -> Store:
    infos = check_against_manifest(storage, manifest)
    listed = {array.name: slice(first, last) for array, first, last in manifest.chunks()}

    def elements(name: str) -> ChunkFiles:
        return ChunkFiles(storage, infos[name], manifest.checksums[listed[name]])

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
    parts = StoreParts(
        storage=storage,
        indptr=elements("X/indptr"),
        indices=elements("X/indices"),
        data=None if ones else elements("X/data"),
        block_rows=block_rows,
        block_nonzeros=block_nonzeros,
        tails=Tails(pointers, elements(f"{MANIFEST}/tail_indices"), tail_values),
        label=NumberColumn(elements("obs/label"), np.float64),
        qid=NumberColumn(elements("obs/qid"), np.int64) if manifest.has_qid else None,
        weight=NumberColumn(elements("obs/weight"), np.float64) if manifest.has_weight else None,
        chunk_sizes={name: (infos[name], manifest.sizes[listed[name]]) for name in used},
    )
    return Store(manifest.store_metadata(Path(storage.location)), parts)


def check_against_manifest(storage: Storage, manifest: Manifest) -> dict[str, ArrayInfo]:
    """Check metadata and chunk files against the manifest; return the listed arrays by name.

    The content of chunks is left to their crc32c. DamageError names the first file that is not as listed.
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
        encoding = (info.record["zarr_format"], info.inner_chunk, info.codecs)
        if encoding != (3, info.chunk, ("bytes", "blosc", "crc32c")):
            raise DamageError(f"{name} is not encoded as our stores are; the store is damaged")
        _check_chunk_files(storage, info, manifest.sizes[first:last], manifest.checksums[first:last])
    return infos


def _check_chunk_files(
    storage: Storage, info: ArrayInfo, sizes: Int64Array, checksums: npt.NDArray[np.uint32]
) -> None:
    """Check the size and the last bytes (the crc32c) of every chunk: finds lost, cut and swapped ones."""
    found = chunk_sizes(storage, info)
    for index, (size, expected, checksum) in enumerate(
        zip(found.tolist(), sizes.tolist(), checksums.tolist(), strict=True)
    ):
        key = info.key(index)
        chunk = f"the chunk {storage.location}/{key}"
        if size != expected:
            raise DamageError(f"{chunk} has {size} bytes and should have {expected}; {ADVICE}")
        if storage.is_local:
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
