"""The JSON metadata of Zarr arrays and groups, checked by our rules before Zarr sees them.

A store may come from anywhere. Let through are arrays of one dimension with plain data types and codecs from
a list, whose chunks have a size that can be decoded.

Zarr's own classes (`ArrayV3Metadata` and `ArrayV2Metadata`) know more of the format than this module: fill
values, attributes and the configuration of every codec. They are no guard, though. They make each codec that
a record names (in version 2 even "pickle", after "vlen-utf8"), bound no size, and raise whatever a codec
raises. So this module decides what is read, and keeps no more than reading needs. Zarr then gets the same
record to parse (`ooc_svm.store.zarr_access`), and never reads the file again, which might have changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Int64Array
from ooc_svm.errors import DamageError
from ooc_svm.store.layout import METADATA
from ooc_svm.store.storage import ADVICE, Storage

LARGEST_METADATA = 64 * 2**20
"""Limit of a metadata file, in bytes."""

LARGEST_CHUNK = 2**31
"""Limit of a decoded chunk, in bytes."""

LARGEST_LENGTH = 2**62
"""Limit of the length of an array, in elements."""

_V3_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string"),
)
_V3_CODECS = (
    *("bytes", "blosc", "zstd", "gzip", "crc32c", "vlen-utf8"),
    *("numcodecs.blosc", "numcodecs.zstd", "numcodecs.gzip", "numcodecs.zlib", "numcodecs.lz4"),
    *("numcodecs.bz2", "numcodecs.shuffle", "numcodecs.delta"),
)
_V2_CODECS = (
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma"),
    *("shuffle", "delta", "vlen-utf8", "crc32", "crc32c"),
)


@dataclass(frozen=True)
class ArrayInfo:
    """What is known of an array from its metadata.

    ``record`` are the metadata themselves, for Zarr; ``dtype`` is ``object`` for strings. A file (a shard
    where the array is sharded) holds ``chunk`` elements, of which ``inner_chunk`` are decoded at once.
    ``key_prefix`` is what stands before the number of a chunk in its file's path in the store.
    """

    name: str
    record: Mapping[str, Any]
    length: int
    dtype: np.dtype[Any]
    chunk: int
    inner_chunk: int
    codecs: tuple[str, ...]
    key_prefix: str

    @property
    def n_chunks(self) -> int:
        """Number of chunk files a complete array has."""
        return -(-self.length // self.chunk)

    def key(self, index: int) -> str:
        """Path of a chunk's file in the store."""
        return f"{self.key_prefix}{index}"


def read_json(storage: Storage, key: str) -> dict[str, Any] | None:
    """Read a JSON object of bounded size; None where there is no such file, DamageError for anything else."""
    size = storage.describe(key)
    if size is None:
        return None
    path = f"{storage.location}/{key}"
    if size > LARGEST_METADATA:
        raise DamageError(f"{path} is larger than 64 MiB: no metadata of Zarr; the store is damaged")
    try:
        record = json.loads(storage.read(key, 0, size).tobytes())
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{path} is not JSON ({str(error)[:80]}); the store is damaged") from None
    if not isinstance(record, dict):
        raise DamageError(f"{path} holds no JSON object; the store is damaged")
    return record


def read_group(storage: Storage, name: str) -> dict[str, Any] | None:
    """Attributes of the group at ``name`` (empty for the root), or None where there is no group."""
    folder = f"{name}/" if name else ""
    record = read_json(storage, folder + METADATA)
    if record is not None:
        if record.get("node_type") != "group":
            return None
        attributes = record.get("attributes", {})
    elif storage.describe(f"{folder}.zgroup") is not None:
        attributes = read_json(storage, f"{folder}.zattrs") or {}
    else:
        return None
    if not isinstance(attributes, dict):
        place = f"{storage.location}/{name}"
        raise DamageError(f"the attributes of {place} are no JSON object; the store is damaged")
    return attributes


def read_array(storage: Storage, name: str) -> ArrayInfo:
    """Metadata of the array at ``name``; DamageError says why there is none, or none that we read."""
    folder = f"{storage.location}/{name}"
    try:
        if (record := read_json(storage, f"{name}/{METADATA}")) is not None:
            info = _version_3(folder, name, record)
        elif (record := read_json(storage, f"{name}/.zarray")) is not None:
            info = _version_2(folder, name, record)
        else:
            raise DamageError(f"{storage.location} has no array {name}; the store is incomplete")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        if isinstance(error, DamageError):
            raise
        raise DamageError(
            f"the metadata of {folder} is malformed ({error!r:.80}); the store is damaged"
        ) from None
    if not 0 <= info.length <= LARGEST_LENGTH or not 1 <= info.inner_chunk <= info.chunk:
        raise DamageError(
            f"the shapes in the metadata of {folder} contradict each other; the store is damaged"
        )
    if info.inner_chunk * info.dtype.itemsize > LARGEST_CHUNK:
        raise DamageError(
            f"the chunks of {folder} have {info.inner_chunk} elements, above the limit of 2 GiB; "
            "write the store again with smaller chunks"
        )
    return info


def _only_known(folder: str, codecs: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for codec in codecs:
        if codec not in known:
            raise DamageError(
                f"{folder} uses the codec {codec!r:.80}, which is not read here; "
                f"write the store again with one of: {', '.join(known)}"
            )
    return tuple(codecs)


def _one_dimension(folder: str, shape: Any) -> int:
    if not isinstance(shape, list) or not all(type(length) is int for length in shape):
        raise DamageError(f"the metadata of {folder} has the shape {shape!r:.80}; the store is damaged")
    if len(shape) != 1:
        raise DamageError(f"{folder} has {len(shape)} dimensions where a store of rows has 1")
    return int(shape[0])


def _version_3(folder: str, name: str, record: dict[str, Any]) -> ArrayInfo:
    if record["node_type"] != "array":
        raise DamageError(f"{folder} is not an array")
    if record["data_type"] not in _V3_TYPES:
        raise DamageError(f"{folder} has the data type {record['data_type']!r:.80}, which is not read here")
    dtype = np.dtype(object if record["data_type"] == "string" else record["data_type"])
    if record["chunk_grid"]["name"] != "regular" or record.get("storage_transformers"):
        raise DamageError(f"{folder} has a chunk grid or a storage transformer that is not read here")
    chunk = inner = _one_dimension(folder, record["chunk_grid"]["configuration"]["chunk_shape"])
    codecs = [codec["name"] for codec in record["codecs"]]
    if codecs == ["sharding_indexed"]:
        shard = record["codecs"][0]["configuration"]
        inner = _one_dimension(folder, shard["chunk_shape"])
        _only_known(folder, [codec["name"] for codec in shard["index_codecs"]], _V3_CODECS)
        codecs = [codec["name"] for codec in shard["codecs"]]
    encoding = record["chunk_key_encoding"]
    default = {"default": "/", "v2": "."}[encoding["name"]]
    separator = encoding.get("configuration", {}).get("separator", default)
    if separator not in ("/", "."):
        raise DamageError(
            f"{folder} separates the parts of a chunk's name by {separator!r:.80}; it is damaged"
        )
    return ArrayInfo(
        name=name,
        record=record | {"zarr_format": 3},
        length=_one_dimension(folder, record["shape"]),
        dtype=dtype,
        chunk=chunk,
        inner_chunk=inner,
        codecs=_only_known(folder, codecs, _V3_CODECS),
        key_prefix=f"{name}/" + (f"c{separator}" if encoding["name"] == "default" else ""),
    )


def _version_2(folder: str, name: str, record: dict[str, Any]) -> ArrayInfo:
    dtype = np.dtype(record["dtype"]) if isinstance(record["dtype"], str) else None
    if dtype is None or dtype.kind not in "biufO":
        raise DamageError(f"{folder} has the data type {record['dtype']!r:.80}, which is not read here")
    chunk = _one_dimension(folder, record["chunks"])
    stages = [*(record.get("filters") or []), *([record["compressor"]] if record["compressor"] else [])]
    codecs = _only_known(folder, [stage["id"] for stage in stages], _V2_CODECS)
    if dtype.kind == "O" and "vlen-utf8" not in codecs:
        raise DamageError(f"{folder} holds objects that are no strings; they are not read here")
    return ArrayInfo(
        name=name,
        record=record | {"zarr_format": 2},
        length=_one_dimension(folder, record["shape"]),
        dtype=dtype,
        chunk=chunk,
        inner_chunk=chunk,
        codecs=codecs,
        key_prefix=f"{name}/",
    )


def chunk_sizes(storage: Storage, info: ArrayInfo, *, hint: str = "") -> Int64Array:
    """Size in bytes of every chunk file of an array, in the order of the chunks.

    Raises DamageError where a chunk's file is missing or no regular file, or a file is no chunk. `hint` says
    what else a missing chunk may mean.
    """
    folder = info.key_prefix.rpartition("/")[0]
    found = storage.list(folder)
    if folder == info.name:
        for name in (METADATA, ".zarray", ".zattrs", "c"):
            found.pop(name, None)
    present = min(info.n_chunks, len(found))
    sizes = np.empty(present, np.int64)
    for index in range(info.n_chunks):
        size = found.pop(info.key(index).rpartition("/")[2], None)
        if size is None:
            more = info.n_chunks - present - 1
            raise DamageError(
                f"the chunk {storage.location}/{info.key(index)} is missing"
                f"{f' (and {more} more)' if more > 0 else ''}: the data are incomplete; {ADVICE}{hint}"
            )
        sizes[index] = size
    for extra in sorted(found)[:1]:
        raise DamageError(
            f"{storage.location}/{folder}/{extra} is no chunk of {info.name}: it does not belong to the store"
        )
    return sizes
