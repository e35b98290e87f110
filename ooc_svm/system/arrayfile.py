"""One file with a JSON header and raw arrays, for models and checkpoints; reading checks every byte of it.

Layout: 8 bytes for the kind of file, the length of the header (uint64), the header (JSON in UTF-8), its
CRC-32C (uint32), then the arrays at multiples of 64 bytes, with zeros between them. All numbers are
little-endian. The header is
``{"arrays": [{"name", "dtype", "shape", "offset", "crc32c"}], "content", "format_version"}``; offsets count
from the first multiple of 64 bytes after the header.

The layout is close to that of safetensors, which is not used because it has no checksums: one flipped bit of
an array, or of its name, is read without an error. It also writes to a path and not to the open file of
`ooc_svm.system.files.atomic_write`, and its metadata are strings only.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, BinaryIO, NoReturn

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, StorageError
from ooc_svm.system.files import IrregularFileError, open_size, open_to_read, read_head
from ooc_svm.system.memory import available_memory, format_size, size_available, size_needed

AnyArray = npt.NDArray[Any]

# Maximum length of a header, in bytes.
HEADER_LIMIT = 64 << 20
# Arrays start at multiples of this number of bytes.
_ALIGNMENT = 64
_MAGIC_BYTES = 8
_DIMENSIONS_LIMIT = 4
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
# Bytes of an array that are read, written or checked at a time.
_SLICE_BYTES = 1 << 20
_DTYPES = {"<f8", "<f4", "<i8", "<u8", "<i4", "<u4", "|i1", "|u1"}


@dataclass(frozen=True, slots=True)
class FileKind:
    """What tells one kind of file from another.

    ``magic`` has 8 bytes; ``name`` is for messages, ``"model"`` for example; ``version`` is the newest layout
    of the content that this release reads, and for a file to be written that of its content.
    """

    magic: bytes
    name: str
    version: int


def has_magic(path: str | os.PathLike[str], kind: FileKind) -> bool:
    """Whether `path` is a regular file with the first bytes of this kind; StorageError if reading fails."""
    try:
        return read_head(path, _MAGIC_BYTES) == kind.magic
    except (FileNotFoundError, IrregularFileError):
        return False
    except StorageError:  # of an object
        raise
    except OSError as error:
        raise _unreadable(path, error) from error


def write_arrays(
    file: BinaryIO, kind: FileKind, content: Mapping[str, Any], arrays: Mapping[str, AnyArray]
) -> None:
    """Write a whole file: `content` is JSON without NaN or infinity, `arrays` are numbers of any shape.

    Raises InputError if the header is longer than 64 MiB, and ValueError if `content` has a NaN or infinity,
    or an array has an unsupported data type.
    """
    entries: list[dict[str, Any]] = []
    stored: list[AnyArray] = []
    offset = 0
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype.str not in _DTYPES:
            raise ValueError(f"array {name!r} has the type {array.dtype}")
        data = np.ascontiguousarray(array, dtype)
        entry = {"name": name, "dtype": dtype.str, "shape": list(array.shape), "offset": offset}
        entries.append(entry | {"crc32c": _crc32c(data)})
        stored.append(data)
        offset = _aligned(offset + data.nbytes)
    header = {"format_version": kind.version, "content": content, "arrays": entries}
    text = json.dumps(header, sort_keys=True, allow_nan=False, ensure_ascii=True).encode("utf-8")
    if len(text) > HEADER_LIMIT:
        raise InputError(
            f"the header of the {kind.name} takes {format_size(len(text))}, "
            f"more than {format_size(HEADER_LIMIT)}; shorten the names of the labels"
        )
    file.write(kind.magic + _LENGTH.pack(len(text)) + text + _CHECKSUM.pack(google_crc32c.value(text)))
    position = _MAGIC_BYTES + _LENGTH.size + len(text) + _CHECKSUM.size
    for data in stored:
        file.write(bytes(_aligned(position) - position))
        for chunk in _byte_slices(data):
            file.write(chunk)
        position = _aligned(position) + data.nbytes


def read_arrays(path: str | os.PathLike[str], kind: FileKind) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Read and check a whole file: its content, and its arrays in the byte order of the machine, writable.

    Raises InputError if there is no such file; DamageError if it is another kind of file, of a newer version,
    or differs from the written file in any byte; MemoryBudgetError if its arrays are larger than the memory
    of this process; StorageError if reading fails.
    """
    try:
        with open_to_read(path) as file:
            return _Reader(file, path, kind).read()
    except FileNotFoundError as error:
        raise InputError(f"{os.fspath(path)}: there is no such {kind.name} file; check the name") from error
    except StorageError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | os.PathLike[str], error: OSError) -> StorageError:
    reason = f"{os.fspath(path)}: cannot be read: {error.strerror or error}"
    return StorageError(f"{reason}; check the disk and permissions")


@dataclass(frozen=True, slots=True)
class _Entry:
    """The description of an array in the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    crc32c: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class _Reader:
    """Reads one open file from front to back; every number is checked before it is used."""

    def __init__(self, file: BinaryIO, path: str | os.PathLike[str], kind: FileKind) -> None:
        self._file, self._path, self._kind = file, os.fspath(path), kind
        self._size = open_size(file)
        self._position = 0

    def read(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        header = self._read_header()
        content = header.get("content")
        if not isinstance(content, dict):
            self._damaged("the header has no content")
        entries = self._entries(header.get("arrays"))
        base = _aligned(self._position)
        end = base + entries[-1].offset + entries[-1].nbytes if entries else self._position
        if self._size != end:
            self._damaged(f"it has {self._size} bytes where {end} are needed")
        total = sum(entry.nbytes for entry in entries)
        if total > available_memory():
            raise MemoryBudgetError(
                f"{self._path}: its arrays take {size_needed(total)}, "
                f"this process may use {size_available(available_memory())}; use a machine with more memory"
            )
        return content, {entry.name: self._read_array(entry, base) for entry in entries}

    def _read_header(self) -> dict[str, Any]:
        kind = self._kind
        if self._take(min(_MAGIC_BYTES, self._size)) != kind.magic:
            raise DamageError(f"{self._path}: is not a {kind.name} of ooc-svm; give a file that it wrote")
        if self._size < _MAGIC_BYTES + _LENGTH.size:
            self._damaged("it ends before the header")
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if length > HEADER_LIMIT or length + _CHECKSUM.size > self._size - self._position:
            self._damaged(f"a header of {length} bytes does not fit a file of {self._size} bytes")
        text = self._take(length)
        (checksum,) = _CHECKSUM.unpack(self._take(_CHECKSUM.size))
        if google_crc32c.value(text) != checksum:
            self._damaged("the checksum of the header is wrong")
        try:
            header = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            self._damaged("the header is not JSON")
        if not isinstance(header, dict):
            self._damaged("the header is not a JSON object")
        version = header.get("format_version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            self._damaged(f"the format version is {str(version)[:80]!r}")
        if version > kind.version:
            raise DamageError(
                f"{self._path}: is a {kind.name} of format version {version}, "
                f"this release reads up to {kind.version}; install a newer ooc-svm"
            )
        return header

    def _entries(self, described: object) -> list[_Entry]:
        """The descriptions of the arrays; each array must start where the one before it ends."""
        if not isinstance(described, list):
            self._damaged("the header does not list the arrays")
        entries: dict[str, _Entry] = {}
        offset = 0
        for number, item in enumerate(described):
            fields = item if isinstance(item, dict) else {}
            name, dtype, shape = fields.get("name"), fields.get("dtype"), fields.get("shape")
            valid = (
                isinstance(name, str)
                and isinstance(dtype, str)
                and dtype in _DTYPES
                and isinstance(shape, list)
                and len(shape) <= _DIMENSIONS_LIMIT
                and all(_is_count(length) for length in shape)
                and _is_count(fields.get("crc32c"))
                and fields.get("offset") == offset
                and name not in entries
            )
            if not valid:
                self._damaged(f"the description of array {number} in the header is wrong")
            entry = _Entry(str(name), str(dtype), tuple(shape or ()), offset, fields["crc32c"])
            if offset + entry.nbytes > self._size:
                self._damaged(f"array {entry.name[:80]!r} does not fit a file of {self._size} bytes")
            entries[entry.name] = entry
            offset = _aligned(offset + entry.nbytes)
        return list(entries.values())

    def _read_array(self, entry: _Entry, base: int) -> AnyArray:
        if any(self._take(base + entry.offset - self._position)):
            self._damaged(f"there is something between the arrays, before {entry.name!r}")
        array: AnyArray = np.empty(math.prod(entry.shape), np.dtype(entry.dtype))
        checksum = 0
        buffer = array.view(np.uint8)
        for start in range(0, entry.nbytes, _SLICE_BYTES):
            chunk = self._take(min(_SLICE_BYTES, entry.nbytes - start))
            checksum = google_crc32c.extend(checksum, chunk)
            buffer[start : start + len(chunk)] = np.frombuffer(chunk, np.uint8)
        if checksum != entry.crc32c:
            self._damaged(f"the checksum of array {entry.name!r} is wrong")
        try:
            array = array.reshape(entry.shape)
        except ValueError:  # no entries, and lengths that no array can have
            self._damaged(f"the shape of array {entry.name!r} is wrong")
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def _take(self, n_bytes: int) -> bytes:
        chunk = self._file.read(n_bytes)
        if len(chunk) != n_bytes:
            self._damaged("it became shorter while it was read")
        self._position += n_bytes
        return chunk

    def _damaged(self, reason: str) -> NoReturn:
        advice = "use another copy or make it again"
        raise DamageError(f"{self._path}: damaged {self._kind.name}: {reason}; {advice}")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _byte_slices(data: AnyArray) -> Iterator[bytes]:
    """The bytes of a contiguous array in small copies (the checksum accepts only ``bytes``)."""
    flat = data.reshape(-1).view(np.uint8)
    for start in range(0, len(flat), _SLICE_BYTES):
        yield flat[start : start + _SLICE_BYTES].tobytes()


def _crc32c(data: AnyArray) -> int:
    return int(reduce(google_crc32c.extend, _byte_slices(data), 0))
