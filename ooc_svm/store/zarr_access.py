"""Arrays of any codec on our list, decoded by Zarr, which by itself reads a missing chunk as fill values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer.cpu import NDBuffer
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath

from ooc_svm.errors import DamageError, OocSvmError, StorageError
from ooc_svm.store.metadata import ArrayInfo
from ooc_svm.store.storage import ADVICE, Bytes, Storage

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)

# Bytes at the beginning of a frame that are enough to find the size of its content.
_FRAME_START = 18


class ZarrElements:
    """An array that Zarr decodes. Zarr sees the metadata that were checked and reads none by itself.

    Raises DamageError where Zarr does not accept them.
    """

    def __init__(self, storage: Storage, info: ArrayInfo) -> None:
        self._info = info
        self.location = f"{storage.location}/{info.name}"
        place = StorePath(_ChunkStore(storage, info), info.name)
        try:
            self._array = zarr.Array.from_dict(place, dict(info.record))
        except Exception as error:  # what Zarr raises on malformed metadata is up to each of its codecs
            raise DamageError(
                f"the metadata of {self.location} is malformed ({str(error)[:80]}); the store is damaged"
            ) from error

    def announce(self, start: int, stop: int) -> None:
        """See `Elements`. Nothing is done: Zarr reads several chunks at a time."""

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """See `Elements`."""
        if start == stop:
            return
        if out.dtype == np.int32 and self._info.dtype.itemsize == 8:
            self._narrow_into(start, stop, out)
            return
        try:
            self._array.get_basic_selection(slice(start, stop), out=NDBuffer.from_numpy_array(out))
        except (OocSvmError, MemoryError):
            raise
        except OSError as error:
            reason = f"reading {self.location} failed: {error.strerror or error}"
            raise StorageError(f"{reason}; check the disk and run again") from error
        except Exception as error:  # what a codec raises on damaged bytes is up to the codec
            chunk = self._undecodable_chunk(start, stop)
            raise DamageError(f"the chunk {chunk} cannot be decoded ({str(error)[:80]}); {ADVICE}") from error

    def _undecodable_chunk(self, start: int, stop: int) -> str:
        """Name of the first chunk file of a range that cannot be decoded."""
        length = self._info.chunk
        last = (stop - 1) // length
        for index in range(start // length, last):
            try:
                self._array.get_basic_selection(slice(index * length, (index + 1) * length))
            except Exception:
                last = index
                break
        return f"{self.location}{self._info.key(last).removeprefix(self._info.name)}"

    def _narrow_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Convert column ids of 64 bits: one that does not fit must not wrap around to another valid id."""
        wide = np.empty(stop - start, self._info.dtype)
        self.read_into(start, stop, wide)
        if wide.min() < 0 or wide.max() > np.iinfo(np.int32).max:
            raise DamageError(
                f"{self.location} holds a column id outside 0 .. 2^31 - 1 between elements {start} and "
                f"{stop}; the store is damaged"
            )
        out[:] = wide

    def read_strings(self, start: int, stop: int) -> npt.NDArray[np.object_]:
        """Decode elements of an array of strings; raises as `read_into` does."""
        out = np.empty(stop - start, object)
        self.read_into(start, stop, out)
        return out


class _ChunkStore(Store):
    """The chunk files of one array for Zarr, read only. A missing file is an error.

    The size that a compressed chunk gives for its content is checked before a decompressor allocates it.
    """

    supports_writes = supports_deletes = supports_listing = False

    def __init__(self, storage: Storage, info: ArrayInfo) -> None:
        super().__init__(read_only=True)
        self._storage = storage
        self._codec = _frame_codec(info)
        self._content_bytes = info.chunk * info.dtype.itemsize

    def __eq__(self, value: object) -> bool:
        return self is value

    __hash__ = None  # type: ignore[assignment]

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        content = await asyncio.to_thread(self._read, key, byte_range)
        return prototype.buffer.from_array_like(content)

    def _read(self, key: str, byte_range: ByteRequest | None) -> Bytes:
        match byte_range:
            case RangeByteRequest(start, stop):
                content = self._storage.read(key, start, stop)
            case OffsetByteRequest(start):
                content = self._storage.read(key, start)
            case SuffixByteRequest(length):
                content = self._storage.read(key, -length)
            case None:
                content = self._storage.read(key)
        codec, head = self._codec, content[:_FRAME_START].tobytes()
        if codec and _content_size(codec, head) != self._content_bytes:
            raise DamageError(
                f"the chunk {self._storage.location}/{key} is no {self._codec} frame of "
                f"{self._content_bytes} bytes; {ADVICE}"
            )
        return content

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._storage.describe(key) is not None

    async def set(self, key: str, value: Buffer) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    def list(self) -> AsyncIterator[str]:
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError


def _frame_codec(info: ArrayInfo) -> str | None:
    """Name of the codec, "blosc" or "zstd", where a chunk file is one such frame; else None."""
    if info.inner_chunk != info.chunk or info.dtype.kind == "O":
        return None
    codecs = [codec.removeprefix("numcodecs.") for codec in info.codecs]
    if codecs and codecs[-1] == "crc32c":
        codecs.pop()  # four bytes after the frame
    if codecs and codecs[-1] in ("blosc", "zstd") and set(codecs[:-1]) <= {"bytes", "shuffle"}:
        return codecs[-1]
    return None


def _content_size(codec: str, frame: bytes) -> int | None:
    """Bytes that a frame will decompress to; None where its beginning does not say it or is damaged."""
    if codec == "blosc":
        return int.from_bytes(frame[4:8], "little") if len(frame) >= 16 else None
    if len(frame) < 6 or frame[:4] != _ZSTD_MAGIC:
        return None
    descriptor = frame[4]
    single_segment = bool(descriptor & 0x20)
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    if not width or len(frame) < start + width:
        return None
    size = int.from_bytes(frame[start : start + width], "little")
    return size + 256 if width == 2 else size
