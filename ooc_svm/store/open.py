"""`open_store`: everything that can be known to be wrong with a store is said before a row is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from zarr.storage import LocalStore

from ooc_svm.data.blocks import Int64Array
from ooc_svm.errors import DamageError, InputError, OocSvmError
from ooc_svm.store.anndata import open_foreign
from ooc_svm.store.chunk_files import ChunkFiles
from ooc_svm.store.layout import FORMAT_VERSION, MANIFEST, MARK
from ooc_svm.store.manifest import Manifest, read_manifest
from ooc_svm.store.metadata import (
    ArrayInfo,
    chunk_files,
    read_array,
    read_group,
    refuse_links,
)
from ooc_svm.store.reader import NumberColumn, Store, StoreFacts, StoreParts, Tails
from ooc_svm.store.zarr_access import StrictStore, open_array, read_into
from ooc_svm.system.files import storage_errors


def is_ours(path: Path) -> bool:
    """Whether a folder carries the mark of this package's stores (damaged ones included)."""
    try:
        attributes = read_group(path, "")
    except OocSvmError:
        return False
    return attributes is not None and MARK in attributes and (path / MANIFEST).is_dir()


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
        Opened after every chunk file was found in place: with its size and checksum as the manifest has
        them, or at least present where there is no manifest.

    Raises
    ------
    InputError
        There is no store at the path, or it is not one of CSR rows, or has no such column.
    DamageError
        The store is damaged or incomplete.
    StorageError
        Reading failed.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = (
            "is a file, not a Zarr store; convert it first"
            if folder.exists()
            else "does not exist; check the path"
        )
        raise InputError(f"{folder} {what}")
    with storage_errors("reading", folder, "check the disk and the permissions"):
        attributes = read_group(folder, "")
        if attributes is None:
            raise InputError(f"{folder} is not a Zarr store: it has no metadata of a group; check the path")
        access = StrictStore(LocalStore(folder, read_only=True))
        if MARK in attributes:
            if label not in (None, "label"):
                raise InputError(f"{folder} has no column obs/{label!s:.80}; its labels are in obs/label")
            return _open_ours(folder, access, read_manifest(folder, access, attributes[MARK]))
        if (folder / MANIFEST).exists():
            raise DamageError(f"{folder} has a manifest but its root does not name it; the store is damaged")
        return open_foreign(folder, access, label or "label")


def _open_ours(folder: Path, access: StrictStore, manifest: Manifest) -> Store:
    infos = check_against_manifest(folder, manifest)

    def table(name: str) -> Int64Array:
        info = infos[f"{MANIFEST}/{name}"]
        out = np.empty(info.length, np.int64)
        read_into(open_array(access, info), 0, info.length, out)
        return out

    ones = manifest.value_type == "ones"
    pointers = table("tail_pointers")
    block_rows, block_nonzeros = table("block_rows"), table("block_nonzeros")
    _check_tables(folder, manifest, infos, block_rows, block_nonzeros, pointers)

    def elements(name: str) -> ChunkFiles:
        return ChunkFiles(folder, infos[name], access.count)

    tail_values = None if ones else elements(f"{MANIFEST}/tail_values")
    sizes = {array.name: manifest.sizes[first:last] for array, first, last in manifest.chunks()}
    used = ["X/indptr", "X/indices"] + ([] if ones else ["X/data"])
    parts = StoreParts(
        access=access,
        indptr=elements("X/indptr"),
        indices=elements("X/indices"),
        data=None if ones else elements("X/data"),
        block_rows=block_rows,
        block_nonzeros=block_nonzeros,
        tails=Tails(pointers, elements(f"{MANIFEST}/tail_indices"), tail_values),
        label=NumberColumn(open_array(access, infos["obs/label"]), np.float64),
        qid=NumberColumn(open_array(access, infos["obs/qid"]), np.int64) if manifest.has_qid else None,
        weight=NumberColumn(open_array(access, infos["obs/weight"]), np.float64)
        if manifest.has_weight
        else None,
        chunk_sizes={name: (infos[name], sizes[name]) for name in used},
    )
    facts = StoreFacts(
        path=folder,
        id=manifest.content_id(),
        n_rows=manifest.n_rows,
        n_features=manifest.n_features,
        n_nonzeros=manifest.n_nonzeros,
        value_type=manifest.value_type,
        index_base=manifest.index_base,
        labels=manifest.labels,
        label_runs=manifest.label_runs,
        label_names=None,
        qid_groups=manifest.qid_groups,
        provenance=manifest.provenance,
        format_version=FORMAT_VERSION,
        n_chunks=len(manifest.sizes),
        n_bytes=int(manifest.sizes.sum()),
    )
    return Store(facts, parts)


def check_against_manifest(folder: Path, manifest: Manifest) -> dict[str, ArrayInfo]:
    """Hold metadata and chunk files against the manifest; the content of chunks is left to their crc32c.

    Returns
    -------
    dict of str to ArrayInfo
        The listed arrays by name.

    Raises
    ------
    DamageError
        Names the first file that is not as the manifest has it.
    """
    for key, checksum in manifest.metadata.items():
        _check_metadata_file(folder, key, checksum)
    infos = {}
    for array, first, last in manifest.chunks():
        info = infos[array.name] = read_array(folder, array.name)
        if (info.dtype.name, info.length, info.chunk) != (array.dtype, array.length, array.chunk):
            raise DamageError(f"{folder / array.name} is not as the manifest has it; the store is damaged")
        if (info.zarr_format, info.inner_chunk, info.codecs) != (3, info.chunk, ("bytes", "blosc", "crc32c")):
            raise DamageError(f"{folder / array.name} is not encoded as our stores are; the store is damaged")
        _check_chunk_files(folder, info, manifest.sizes[first:last], manifest.checksums[first:last])
    return infos


def _check_metadata_file(folder: Path, key: str, checksum: int) -> None:
    refuse_links(folder, key)
    if not (folder / key).is_file():
        raise DamageError(f"{folder / key} is missing; copy the store again or make it anew")
    if google_crc32c.value((folder / key).read_bytes()) != checksum:
        raise DamageError(f"{folder / key} was changed since the store was written; make the store anew")


def _check_chunk_files(folder: Path, info: ArrayInfo, sizes: Int64Array, checksums: Any) -> None:
    """Size and last four bytes (the crc32c) of every chunk file: finds lost, cut and swapped ones."""
    found = chunk_files(folder, info)
    for index, (size, expected, checksum) in enumerate(
        zip(found.tolist(), sizes.tolist(), checksums.tolist(), strict=True)
    ):
        path = folder / info.key(index)
        if size != expected:
            raise DamageError(
                f"the chunk {path} has {size} bytes and should have {expected}; "
                "copy the store again or make it anew"
            )
        if stored_checksum(path, size) != checksum:
            raise DamageError(
                f"the chunk {path} is not the one written there (its checksum is not the manifest's); "
                "copy the store again or make it anew"
            )


def stored_checksum(path: Path, size: int) -> int:
    """The crc32c at the end of a chunk file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return int.from_bytes(os.pread(descriptor, 4, max(size - 4, 0)), "little")
    finally:
        os.close(descriptor)


def _check_tables(
    folder: Path,
    manifest: Manifest,
    infos: dict[str, ArrayInfo],
    block_rows: Int64Array,
    block_nonzeros: Int64Array,
    tail_pointers: Int64Array,
) -> None:
    """The tables of blocks must cover all rows and elements in order, the tails lie inside their blocks."""
    n_tail = infos[f"{MANIFEST}/tail_indices"].length
    for table, end in (
        (block_rows, manifest.n_rows),
        (block_nonzeros, manifest.n_nonzeros),
        (tail_pointers, n_tail),
    ):
        whole = len(table) == len(block_rows) >= 1 and table[0] == 0 and table[-1] == end
        if not whole or (np.diff(table) < 0).any():
            raise DamageError(f"the block tables of {folder} do not cover its rows; the store is damaged")
    if (np.diff(tail_pointers) > np.diff(block_nonzeros)).any():
        raise DamageError(f"a tail in {folder} is longer than its block; the store is damaged")
    if manifest.value_type != "ones" and infos[f"{MANIFEST}/tail_values"].length != n_tail:
        raise DamageError(f"the tails of {folder} have more ids than values or fewer; the store is damaged")
