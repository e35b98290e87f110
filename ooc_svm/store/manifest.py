"""The manifest: what a store must hold, chunk by chunk. It is written last and checked first.

It lies under ``uns/ooc_svm`` as arrays, so that AnnData reads it without a warning:

``header``
    JSON (UTF-8) as uint8: everything but the tables. The root attribute ``ooc_svm`` has its SHA-256.
``chunk_sizes``, ``chunk_checksums``
    Bytes (int64) and crc32c (uint32) of every chunk file, array after array as the header lists them. The
    header has the SHA-256 of both.
``block_rows``, ``block_nonzeros``, ``tail_pointers``
    First row, first element and first tail element of each block, and the end: int64, n_blocks + 1 entries.
``tail_indices``, ``tail_values``
    The tails (`ooc_svm.store.blocks`); no values where all are 1.

All arrays but the first three are in the list of chunks, as the data are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array
from ooc_svm.data.limits import LARGEST_FEATURE_COUNT
from ooc_svm.errors import DamageError
from ooc_svm.store import layout
from ooc_svm.store.chunk_files import largest_file
from ooc_svm.store.codecs import most_text_bytes
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.label_summary import LabelSummary
from ooc_svm.store.layout import (
    CATEGORIES,
    CODES,
    FORMAT_VERSION,
    LABEL,
    MANIFEST,
    MARK,
    METADATA,
    PLAIN_VERSION,
    chunk_count,
)
from ooc_svm.store.metadata import LARGEST_LENGTH, chunk_versions, read_array
from ooc_svm.store.storage import ADVICE, Storage, damage_in
from ooc_svm.system.address import AnyPath

ValueType = Literal["ones", "float32", "float64"]

HEADER, SIZES, CHECKSUMS = (f"{MANIFEST}/{name}" for name in ("header", "chunk_sizes", "chunk_checksums"))

LARGEST_HEADER = 64 * 2**20
"""Limit of the header, in bytes."""


@dataclass(frozen=True)
class StoreMetadata:
    """What is known of a store before a row is read; see `ooc_svm.store.reader.Store`."""

    path: AnyPath
    id: str
    shared_id: str
    n_rows: int
    n_features: int
    n_nonzeros: int
    value_type: ValueType
    index_base: int
    labels: LabelSummary
    label_runs: int
    label_names: tuple[str, ...] | None
    qid_groups: int
    provenance: dict[str, Any]
    format_version: int | None
    n_chunks: int
    n_bytes: int
    remark: str | None = None
    unused: tuple[str, ...] = ()
    n_unlabelled: int = 0
    label_sets: bool = False
    label: str | None = None
    layer: str | None = None


@dataclass(frozen=True)
class ListedArray:
    """An array as the manifest lists it; ``chunk`` is the number of elements in a chunk."""

    name: str
    dtype: str
    length: int
    chunk: int

    @property
    def n_chunks(self) -> int:
        """Number of its chunk files."""
        return chunk_count(self.length, self.chunk)


@dataclass(frozen=True)
class Manifest:
    """The header and the tables.

    ``label_runs`` and ``qid_groups`` count runs of equal labels and qids in row order; ``block_chunks`` and
    ``block_rows`` are the rule that cut the blocks. ``metadata`` has the crc32c of every metadata file but
    the root's and those of the first three manifest arrays. ``provenance`` is what the caller gave,
    ``index_base`` what the source counts its features from. ``has_names`` says whether features have names,
    ``named_labels`` whether labels have, and ``label_sets`` whether these are names of sets of labels
    (`ooc_svm.data.label_sets`).
    """

    n_rows: int
    n_features: int
    n_nonzeros: int
    value_type: ValueType
    index_base: int
    has_qid: bool
    has_weight: bool
    labels: LabelSummary
    label_runs: int
    qid_groups: int
    block_chunks: int
    block_rows: int
    arrays: tuple[ListedArray, ...]
    metadata: dict[str, int]
    provenance: dict[str, Any]
    sizes: Int64Array
    checksums: npt.NDArray[np.uint32]
    has_names: bool = False
    named_labels: bool = False
    label_sets: bool = False
    format_version: int = PLAIN_VERSION

    @property
    def pointer_type(self) -> str:
        """Type of the row pointers: four bytes where they fit, but in stores of version 1."""
        return "int32" if self.format_version > 1 and self.n_nonzeros <= layout.LARGEST_NARROW else "int64"

    def header(self) -> bytes:
        """The header as it is stored."""
        record = {"format_version": self.format_version, **self._record(), "provenance": self.provenance}
        return json.dumps(record, sort_keys=True, allow_nan=True).encode()

    def content_id(self) -> str:
        """Hash of everything but the provenance: the same data make the same id."""
        return _sha256(json.dumps(self._record(), sort_keys=True).encode())

    def store_metadata(self, path: AnyPath, label_names: tuple[str, ...] | None) -> StoreMetadata:
        """What is known of the store with this manifest, and with these sorted names of labels."""
        same = ["n_rows", "n_features", "n_nonzeros", "value_type", "index_base"]
        same += ["labels", "label_runs", "label_sets", "qid_groups", "provenance"]
        content_id = self.content_id()
        return StoreMetadata(
            path=path,
            id=content_id,
            shared_id=content_id,
            label_names=label_names,
            format_version=self.format_version,
            n_chunks=len(self.sizes),
            n_bytes=int(self.sizes.sum()),
            **{name: getattr(self, name) for name in same},
        )

    def _record(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN}
        plain |= {name: True for name in _FLAGS if getattr(self, name)}
        return plain | {
            "labels": self.labels.to_json(),
            "arrays": [asdict(array) for array in self.arrays],
            "tables": self.table_hashes(),
        }

    def table_hashes(self) -> dict[str, str]:
        """SHA-256 of both tables."""
        return {"sizes": _table_hash(self.sizes), "checksums": _table_hash(self.checksums)}

    @property
    def unread(self) -> set[str]:
        """Arrays that no computation reads: numbers of rows and features, and the values where all are 1."""
        unread = {"obs/_index"} if self.has_names else {"obs/_index", "var/_index"}
        return unread | ({"X/data"} if self.value_type == "ones" else set())

    def chunks(self) -> Iterator[tuple[ListedArray, int, int]]:
        """Each listed array with the range of its chunks in the tables."""
        first = 0
        for array in self.arrays:
            yield array, first, first + array.n_chunks
            first += array.n_chunks


_COUNTS = ("n_rows", "n_features", "n_nonzeros", "label_runs", "qid_groups", "block_chunks", "block_rows")
_PLAIN = (*_COUNTS, "value_type", "index_base", "has_qid", "has_weight", "metadata")

_FLAGS = ("has_names", "named_labels", "label_sets")  # False where they are left out

_TABLES = {
    "block_rows": "int64",
    "block_nonzeros": "int64",
    "tail_pointers": "int64",
    "tail_indices": "int32",
}
_GROUPS = ("X", "obs", "var", "uns", MANIFEST)


def _expected_arrays(manifest: Manifest) -> dict[str, tuple[str, int | None]]:
    """Type and length of every array that a store with this header lists; None: the length is free."""
    n, nnz = manifest.n_rows, manifest.n_nonzeros
    ones = manifest.value_type == "ones"
    arrays: dict[str, tuple[str, int | None]] = {
        "X/indices": ("int32", nnz),
        "X/data": ("uint8" if ones else manifest.value_type, nnz),
        "X/indptr": (manifest.pointer_type, n + 1),
        "obs/_index": ("int64", n),
        "var/_index": ("object" if manifest.has_names else "int32", manifest.n_features),
    }
    if manifest.named_labels:
        arrays |= {CODES: (layout.code_type(manifest.label_sets), n), CATEGORIES: ("object", None)}
    else:
        arrays[LABEL] = ("float64", n)
    if manifest.has_qid:
        arrays["obs/qid"] = ("int64", n)
    if manifest.has_weight:
        arrays["obs/weight"] = ("float64", n)
    arrays |= {f"{MANIFEST}/{name}": (dtype, None) for name, dtype in _TABLES.items()}
    if not ones:
        arrays[f"{MANIFEST}/tail_values"] = (manifest.value_type, None)
    return arrays


def _flags(manifest: Manifest) -> list[Any]:
    return [getattr(manifest, name) for name in ("has_qid", "has_weight", *_FLAGS)]


def _is_plain(manifest: Manifest) -> bool:
    """Whether counts are counts, and everything else has its type and one of its values."""
    counts = [getattr(manifest, name) for name in (*_COUNTS, "index_base")]
    counts += [number for array in manifest.arrays for number in (array.length, array.chunk)]
    counts += manifest.metadata.values()
    if not all(type(count) is int and 0 <= count <= LARGEST_LENGTH for count in counts):
        return False
    labels, chunks = manifest.labels, [array.chunk for array in manifest.arrays]
    numbers = (labels.minimum, labels.maximum, labels.mean, *(labels.counts or ()))
    return (
        manifest.value_type in ("ones", "float32", "float64")
        and manifest.index_base <= 1
        and manifest.n_features <= LARGEST_FEATURE_COUNT
        and min(manifest.n_rows, manifest.block_chunks, manifest.block_rows, *chunks) >= 1
        and all(type(flag) is bool for flag in _flags(manifest))
        and manifest.label_sets <= manifest.named_labels
        and all(map(math.isfinite, numbers))
        and isinstance(manifest.provenance, dict)
    )


def _is_consistent(manifest: Manifest) -> bool:
    """Whether exactly the arrays and metadata files that there must be are listed.

    Only names that pass this check are ever opened.
    """
    expected = _expected_arrays(manifest)
    listed = {array.name: array for array in manifest.arrays}
    if len(listed) != len(manifest.arrays) or listed.keys() != expected.keys():
        return False
    groups = (*_GROUPS, LABEL) if manifest.named_labels else _GROUPS
    if set(manifest.metadata) != {f"{name}/{METADATA}" for name in (*groups, *expected)}:
        return False
    return all(
        listed[name].dtype == dtype and length in (None, listed[name].length)
        for name, (dtype, length) in expected.items()
    )


def _has_tables_of_chunks(manifest: Manifest) -> bool:
    """Whether each chunk has a checksum and a size that it can have."""
    n_chunks = sum(array.n_chunks for array in manifest.arrays)
    if not len(manifest.sizes) == len(manifest.checksums) == n_chunks:
        return False
    return all(
        manifest.sizes[first:last].max(initial=0) <= largest_file(_chunk_bytes(array))
        for array, first, last in manifest.chunks()
    )


def _chunk_bytes(array: ListedArray) -> int:
    """Bytes of a chunk, of strings at most, before it is compressed."""
    if array.dtype == "object":
        return most_text_bytes(array.chunk)
    return array.chunk * np.dtype(array.dtype).itemsize


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _table_hash(table: npt.NDArray[Any]) -> str:
    return _sha256(np.ascontiguousarray(table, table.dtype.newbyteorder("<")).tobytes())


def root_mark(format_version: int, header: bytes) -> dict[str, Any]:
    """The root attribute that marks a store of ours and names its manifest by a hash."""
    return {MARK: {"format_version": format_version, "manifest_sha256": _sha256(header)}}


def _read_table(storage: Storage, name: str, dtype: npt.DTypeLike, limit: int) -> npt.NDArray[Any]:
    info = read_array(storage, name)
    if info.dtype != np.dtype(dtype) or info.length > limit or info.chunk > limit:
        raise DamageError(f"{storage.location}/{name} is not the table it must be; the manifest is damaged")
    if storage.is_local:  # elsewhere a missing chunk is found by reading it
        chunk_versions(storage, info)
    table = np.empty(info.length, dtype)
    EncodedChunks(storage, info).read_into(0, info.length, table)
    return table


def read_manifest(storage: Storage, mark: Any) -> Manifest:
    """Read the manifest that the root attribute ``ooc_svm`` marks, and check it against its own checksums.

    Raises DamageError where it is damaged, or its format is newer than this program.
    """
    folder = storage.location
    version = mark.get("format_version") if isinstance(mark, dict) else None
    if type(version) is not int:
        raise DamageError(f"{folder} has the mark {mark!r:.80} that names no format version; it is damaged")
    if version > FORMAT_VERSION:
        raise DamageError(
            f"{folder} has format version {version}, and this program reads up to {FORMAT_VERSION}; "
            "use a newer version of the program"
        )
    header = _read_table(storage, HEADER, np.uint8, LARGEST_HEADER).tobytes()
    if _sha256(header) != mark.get("manifest_sha256"):
        raise DamageError(f"the manifest of {folder} does not match its checksum; {ADVICE}")
    with damage_in(f"the manifest of {folder} is malformed", ADVICE):
        record = json.loads(header)
        manifest = Manifest(
            **{name: record[name] for name in _PLAIN},
            labels=LabelSummary.from_json(record["labels"]),
            arrays=tuple(ListedArray(**array) for array in record["arrays"]),
            provenance=record["provenance"],
            sizes=np.empty(0, np.int64),
            checksums=np.empty(0, np.uint32),
            format_version=version,
            **{name: record.get(name, False) for name in _FLAGS},
        )
        if not _is_plain(manifest) or not _is_consistent(manifest):
            raise ValueError("its header contradicts itself")
        n_chunks = sum(array.n_chunks for array in manifest.arrays)
        sizes = _read_table(storage, SIZES, np.int64, n_chunks)
        checksums = _read_table(storage, CHECKSUMS, np.uint32, n_chunks)
        manifest = replace(manifest, sizes=sizes, checksums=checksums)
        if manifest.table_hashes() != record["tables"] or not _has_tables_of_chunks(manifest):
            raise ValueError("its tables are not those of its header")
    return manifest
