"""The JSON metadata of Zarr arrays and groups, checked by our rules.

A store may come from anywhere. Let through are arrays of one dimension, and matrices, with plain data types
and codecs from a list, whose chunks have a size that can be decoded. All values that are used are checked,
and names that are not known are refused where they might change what the bytes mean.

Zarr's own classes (`ArrayV3Metadata` and `ArrayV2Metadata`) know the same format, but are no guard. They make
each codec that a record names (in version 2 even "pickle", after "vlen-utf8"), bound no size, and raise
whatever a codec raises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError
from ooc_svm.store.codecs import Codec, check_order, make_codec
from ooc_svm.store.layout import METADATA
from ooc_svm.store.storage import ADVICE, VERSION, Storage, damage_in

LARGEST_METADATA = 16 * 2**20
"""Limit of a metadata file, in bytes."""

LARGEST_CHUNK = 2**31
"""Limit of a decoded chunk, in bytes."""

LARGEST_LENGTH = 2**62
"""Limit of the length of an array, in elements."""

MOST_INNER_CHUNKS = 2**22
"""Limit of the number of chunks in a shard."""

NO_CHUNK = 2**64 - 1
"""Offset and length, in the index of a shard, of a chunk that is not there."""

_DAMAGED = "the store is damaged"

_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
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
_V3_NAMES = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value"),
    *("codecs", "attributes", "storage_transformers", "dimension_names"),
}
_V2_NAMES = {
    *("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters"),
    "dimension_separator",
}
_SHARD_NAMES = {"chunk_shape", "codecs", "index_codecs", "index_location"}


@dataclass(frozen=True)
class ShardIndex:
    """Where the chunks of a shard are listed in its file: offset and length (uint64) of each."""

    n_chunks: int
    at_start: bool
    dtype: np.dtype[Any]
    checksum: bool

    @property
    def n_bytes(self) -> int:
        """Bytes of the index, its checksum among them."""
        return 16 * self.n_chunks + (4 if self.checksum else 0)

    def entries(self, content: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
        """Offsets and lengths, shape (n_chunks, 2), from the bytes of the index; raises ValueError."""
        table, checksum = content[: 16 * self.n_chunks], content[16 * self.n_chunks :].tobytes()
        if len(content) != self.n_bytes:
            raise ValueError("the file is too short")
        if self.checksum and google_crc32c.value(table) != int.from_bytes(checksum, "little"):
            raise ValueError("its checksum is not that of its content")
        entries: npt.NDArray[np.uint64] = table.view(self.dtype).reshape(-1, 2)
        if ((entries >= LARGEST_LENGTH) & (entries != NO_CHUNK)).any() or (
            (entries[:, 0] == NO_CHUNK) != (entries[:, 1] == NO_CHUNK)
        ).any():
            raise ValueError("a chunk lies outside the file")
        return entries


@dataclass(frozen=True)
class Grid:
    """The rows and columns of a matrix and of its chunks; ``across`` chunks side by side have all columns.

    ``separator`` stands between the numbers in the name of a chunk, ``order`` is that of its elements.
    """

    rows: int
    columns: int
    chunk_rows: int
    chunk_columns: int
    separator: str
    order: Literal["C", "F"]

    @property
    def across(self) -> int:
        """Number of chunks side by side."""
        return -(-self.columns // self.chunk_columns)


@dataclass(frozen=True)
class ArrayInfo:
    """What is known of an array from its metadata.

    ``dtype`` has the byte order of the stored elements, and is ``object`` for strings. A file (a shard where
    there is a ``shard_index``) holds ``chunk`` elements, of which ``inner_chunk`` are decoded at once.
    ``key_prefix`` is what stands before the number of a chunk in its file's path in the store. A matrix has a
    ``grid``; its ``length`` is that of all chunks, one after another, row by row.
    """

    name: str
    zarr_format: int
    length: int
    dtype: np.dtype[Any]
    chunk: int
    inner_chunk: int
    codecs: tuple[Codec, ...]
    key_prefix: str
    shard_index: ShardIndex | None = None
    grid: Grid | None = None

    @property
    def n_chunks(self) -> int:
        """Number of chunk files a complete array has."""
        return -(-self.length // self.chunk)

    def key(self, index: int) -> str:
        """Path of a chunk's file in the store."""
        if self.grid is None:
            return f"{self.key_prefix}{index}"
        row, column = divmod(index, self.grid.across)
        return f"{self.key_prefix}{row}{self.grid.separator}{column}"


def read_json(storage: Storage, key: str) -> dict[str, Any] | None:
    """Read a JSON object of bounded size; None where there is no such file, DamageError for anything else."""
    size = storage.describe(key)
    if size is None:
        return None
    path = f"{storage.location}/{key}"
    if size > LARGEST_METADATA:
        limit = f"{LARGEST_METADATA // 2**20} MiB"
        raise DamageError(f"{path} is larger than {limit}: no metadata of Zarr; {_DAMAGED}")
    content = storage.read(key, 0, size).tobytes()
    with damage_in(f"{path} is not JSON", _DAMAGED):
        record = json.loads(content, object_pairs_hook=_object)
    if not isinstance(record, dict):
        raise DamageError(f"{path} holds no JSON object; {_DAMAGED}")
    return record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, in which a name stands once: readers differ in which of two they take."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return record


def read_group(storage: Storage, name: str) -> dict[str, Any] | None:
    """Attributes of the group at ``name`` (empty for the root), or None where there is no group."""
    folder = f"{name}/" if name else ""
    place = f"{storage.location}/{name}" if name else storage.location
    if (record := read_json(storage, folder + METADATA)) is not None:
        if record.get("node_type") == "array":
            return None
        _require(place, record, "node_type", "group")
        _require(place, record, "zarr_format", 3)
        attributes = record.get("attributes", {})
    elif (record := read_json(storage, f"{folder}.zgroup")) is not None:
        _require(place, record, "zarr_format", 2)
        attributes = read_json(storage, f"{folder}.zattrs") or {}
    else:
        return None
    if not isinstance(attributes, dict):
        raise DamageError(f"the attributes of {place} are no JSON object; {_DAMAGED}")
    return attributes


def _require(place: str, record: dict[str, Any], name: str, value: Any) -> None:
    found = record.get(name)
    if type(found) is not type(value) or found != value:
        raise DamageError(f"the metadata of {place} have the {name} {found!r:.80}, not {value!r}; {_DAMAGED}")


def is_array(storage: Storage, name: str) -> bool:
    """Whether there is an array at ``name``."""
    record = read_json(storage, f"{name}/{METADATA}")
    if record is not None:
        return record.get("node_type") == "array"
    return storage.describe(f"{name}/.zarray") is not None


def read_array(storage: Storage, name: str, dimensions: int = 1) -> ArrayInfo:
    """Metadata of the array at ``name``, a matrix if there are two dimensions.

    DamageError says why there is none, or none that we read.
    """
    folder = f"{storage.location}/{name}"
    if (record := read_json(storage, f"{name}/{METADATA}")) is not None:
        parse = _version_3
    elif (record := read_json(storage, f"{name}/.zarray")) is not None:
        parse = _version_2
    else:
        raise DamageError(f"{storage.location} has no array {name}; the store is incomplete")
    with damage_in(f"the metadata of {folder} are malformed", _DAMAGED):
        info = parse(folder, name, record, dimensions)
        _check_lengths(folder, info)
        check_order(info.codecs, info.dtype)
    return info


def _check_lengths(folder: str, info: ArrayInfo) -> None:
    whole = 0 <= info.length <= LARGEST_LENGTH and 1 <= info.inner_chunk <= info.chunk <= LARGEST_LENGTH
    if not whole or info.chunk % info.inner_chunk:
        raise DamageError(f"the shapes in the metadata of {folder} contradict each other; {_DAMAGED}")
    if info.inner_chunk * info.dtype.itemsize > LARGEST_CHUNK:
        raise DamageError(
            f"the chunks of {folder} have {info.inner_chunk} elements, above the limit of 2 GiB; "
            "write the store again with smaller chunks"
        )
    if info.chunk // info.inner_chunk > MOST_INNER_CHUNKS:
        raise DamageError(
            f"the shards of {folder} have more than {MOST_INNER_CHUNKS} chunks; "
            "write the store again with smaller shards or larger chunks"
        )


def _only_known(what: str, names: object, known: set[str]) -> None:
    """Raise ValueError where an object of the metadata is none, or has other names."""
    if not isinstance(names, dict):
        raise ValueError(f"{what} {names!r:.80} is no object")
    if unknown := sorted(names.keys() - known):
        raise ValueError(f"{what} has the unknown name {unknown[0]!r:.80}")


def _codecs(folder: str, stages: Sequence[tuple[Any, Any]], known: Sequence[str]) -> tuple[Codec, ...]:
    """Codecs of these names and settings, all of which must be known."""
    for name, _ in stages:
        if name not in known:
            raise DamageError(
                f"{folder} uses the codec {name!r:.80}, which is not read here; "
                f"write the store again with one of: {', '.join(known)}"
            )
    return tuple(make_codec(name.removeprefix("numcodecs."), settings) for name, settings in stages)


def _version_3_codecs(folder: str, stages: Any) -> tuple[Codec, ...]:
    if not isinstance(stages, list):
        raise ValueError(f"the codecs {stages!r:.80} are no list")
    for stage in stages:
        _only_known("a codec", stage, {"name", "configuration"})
    return _codecs(folder, [(stage["name"], stage.get("configuration", {})) for stage in stages], _V3_CODECS)


def _lengths(folder: str, shape: Any, dimensions: int) -> list[int]:
    if not isinstance(shape, list) or not all(type(length) is int for length in shape):
        raise DamageError(f"the metadata of {folder} have the shape {shape!r:.80}; {_DAMAGED}")
    if len(shape) != dimensions:
        raise DamageError(f"{folder} has {len(shape)} dimensions where a store of rows has {dimensions}")
    return shape


def _one_dimension(folder: str, shape: Any) -> int:
    return _lengths(folder, shape, 1)[0]


def _grid(
    folder: str, shape: Any, chunk_shape: Any, separator: str, order: Any = "C"
) -> tuple[int, int, Grid | None]:
    """Length and chunk of an array, and the grid of one of two dimensions."""
    dimensions = len(shape) if isinstance(shape, list) else 1
    lengths, chunks = (_lengths(folder, each, dimensions) for each in (shape, chunk_shape))
    if dimensions == 1:
        return lengths[0], chunks[0], None
    if min(lengths) < 0 or max(lengths) > LARGEST_LENGTH or min(chunks) < 1 or order not in ("C", "F"):
        raise ValueError(f"the shapes {lengths} and {chunks} or the order {order!r:.80} cannot be")
    grid = Grid(lengths[0], lengths[1], chunks[0], chunks[1], separator, order)
    size = chunks[0] * chunks[1]
    return -(-lengths[0] // chunks[0]) * grid.across * size, size, grid


def _version_3(folder: str, name: str, record: dict[str, Any], dimensions: int) -> ArrayInfo:
    if record.get("node_type") != "array":
        raise DamageError(f"{folder} is not an array")
    _require(folder, record, "zarr_format", 3)
    _only_known("the array", record, _V3_NAMES)
    if record["data_type"] not in (*_TYPES, "string"):
        raise DamageError(f"{folder} has the data type {record['data_type']!r:.80}, which is not read here")
    dtype = np.dtype(object if record["data_type"] == "string" else record["data_type"])
    if record["chunk_grid"]["name"] != "regular" or record.get("storage_transformers"):
        raise DamageError(f"{folder} has a chunk grid or a storage transformer that is not read here")
    _lengths(folder, record["shape"], dimensions)
    prefix, separator = _chunk_names(record["chunk_key_encoding"])
    chunk_shape = record["chunk_grid"]["configuration"]["chunk_shape"]
    length, chunk, grid = _grid(folder, record["shape"], chunk_shape, separator)
    inner = chunk
    stages, index = record["codecs"], None
    if isinstance(stages, list) and [stage["name"] for stage in stages] == ["sharding_indexed"]:
        if grid is not None:
            raise DamageError(f"{folder} has shards, which are not read here; write it again without shards")
        shard = stages[0]["configuration"]
        _only_known("the codec of shards", shard, _SHARD_NAMES)
        stages, inner = shard["codecs"], _one_dimension(folder, shard["chunk_shape"])
        index = _shard_index(folder, shard, chunk // max(inner, 1))
    codecs = _version_3_codecs(folder, stages)
    return ArrayInfo(
        name=name,
        zarr_format=3,
        length=length,
        dtype=_stored_type(codecs, dtype),
        chunk=chunk,
        inner_chunk=inner,
        codecs=codecs,
        key_prefix=f"{name}/{prefix}",
        shard_index=index,
        grid=grid,
    )


def _stored_type(codecs: Sequence[Codec], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of elements, in the byte order that the codec "bytes" names where it matters."""
    if dtype.kind == "O":
        return dtype
    endian = next(codec for codec in codecs if codec.name == "bytes").settings.get("endian")
    if endian is None and dtype.itemsize > 1:
        raise ValueError("the order of bytes is missing")
    return dtype.newbyteorder(">" if endian == "big" else "<")


def _shard_index(folder: str, shard: dict[str, Any], n_chunks: int) -> ShardIndex:
    codecs = _version_3_codecs(folder, shard["index_codecs"])
    names = [codec.name for codec in codecs]
    location = shard.get("index_location", "end")
    if names not in (["bytes"], ["bytes", "crc32c"]) or location not in ("start", "end"):
        raise ValueError(f"the index of shards is encoded by {names} at the {location!r:.80}")
    dtype = _stored_type(codecs, np.dtype(np.uint64))
    return ShardIndex(n_chunks, location == "start", dtype, checksum="crc32c" in names)


def _chunk_names(encoding: dict[str, Any]) -> tuple[str, str]:
    """What stands before the numbers of a chunk in its name, and between them."""
    _only_known("the names of chunks", encoding, {"name", "configuration"})
    separator = {"default": "/", "v2": "."}[encoding["name"]]
    settings = encoding.get("configuration", {})
    _only_known("the names of chunks", settings, {"separator"})
    separator = settings.get("separator", separator)
    if separator not in ("/", "."):
        raise ValueError(f"the parts of a chunk's name are separated by {separator!r:.80}")
    return f"c{separator}" if encoding["name"] == "default" else "", separator


def _version_2(folder: str, name: str, record: dict[str, Any], dimensions: int) -> ArrayInfo:
    _require(folder, record, "zarr_format", 2)
    _only_known("the array", record, _V2_NAMES)
    text = record["dtype"]  # of a long one or a list NumPy would make a structure
    dtype = np.dtype(text) if isinstance(text, str) and len(text) <= 16 else None
    if dtype is None or dtype.name not in (*_TYPES, "object"):
        raise DamageError(f"{folder} has the data type {text!r:.80}, which is not read here")
    _lengths(folder, record["shape"], dimensions)
    separator = record.get("dimension_separator", ".")
    if separator not in ("/", "."):
        raise ValueError(f"the parts of a chunk's name are separated by {separator!r:.80}")
    length, chunk, grid = _grid(folder, record["shape"], record["chunks"], separator, record["order"])
    filters, compressor = record["filters"] or [], record["compressor"]
    stages = [*filters, *([] if compressor is None else [compressor])]
    named = [(stage["id"], {key: stage[key] for key in stage if key != "id"}) for stage in stages]
    codecs = _codecs(folder, named, _V2_CODECS)
    if dtype.kind == "O" and not any(codec.name == "vlen-utf8" for codec in codecs):
        raise DamageError(f"{folder} holds objects that are no strings; they are not read here")
    return ArrayInfo(
        name=name,
        zarr_format=2,
        length=length,
        dtype=dtype,
        chunk=chunk,
        inner_chunk=chunk,
        codecs=codecs,
        key_prefix=f"{name}/",
        grid=grid,
    )


def chunk_versions(storage: Storage, info: ArrayInfo, *, hint: str = "") -> npt.NDArray[np.void]:
    """The `VERSION` of every chunk file of an array, its size among it, in the order of the chunks.

    Raises DamageError where a chunk's file is missing or no regular file, or a file is no chunk. `hint` says
    what else a missing chunk may mean.
    """
    if info.grid is None or info.grid.separator != "/":
        return _versions_of(storage, info, 0, info.n_chunks, hint)
    across = max(info.grid.across, 1)
    bands = [
        _versions_of(storage, info, first, first + across, hint) for first in range(0, info.n_chunks, across)
    ]
    return np.concatenate(bands) if bands else np.empty(0, VERSION)


def _versions_of(storage: Storage, info: ArrayInfo, start: int, stop: int, hint: str) -> npt.NDArray[np.void]:
    """The versions of chunks whose files lie in one folder, with no other files in it."""
    folder = info.key(start).rpartition("/")[0]
    found = storage.list(folder)
    if folder == info.name:
        for name in (METADATA, ".zarray", ".zattrs", "c"):
            found.pop(name, None)
    present = min(stop - start, len(found))
    versions = np.empty(present, VERSION)
    for index in range(start, stop):
        version = found.pop(info.key(index).rpartition("/")[2], None)
        if version is None:
            more = stop - start - present - 1
            raise DamageError(
                f"the chunk {storage.location}/{info.key(index)} is missing"
                f"{f' (and {more} more)' if more > 0 else ''}: the data are incomplete; {ADVICE}{hint}"
            )
        versions[index - start] = version
    for extra in sorted(found)[:1]:
        raise DamageError(
            f"{storage.location}/{folder}/{extra} is no chunk of {info.name}: it does not belong to the store"
        )
    return versions
