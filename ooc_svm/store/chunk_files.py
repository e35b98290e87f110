"""Arrays of our own stores, decoded chunk by chunk straight from their files.

Zarr's own way takes the interpreter longer than the decompression, and allocates what it decodes to for each
chunk. Here a chunk goes from the file through one buffer of the thread into the caller's array.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt
from numcodecs import blosc

from ooc_svm.errors import DamageError
from ooc_svm.store.metadata import ArrayInfo
from ooc_svm.store.storage import ADVICE, Bytes, Storage

# Bytes of the header of a blosc frame; the size of the frame is in the last four.
_HEADER_BYTES = 16
CHECKSUM_BYTES = 4

_scratch = threading.local()


class Elements(Protocol):
    """An array on disk."""

    def announce(self, start: int, stop: int) -> None:
        """Say that these elements will be read next, so that the disk can begin with all of them at once."""

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Decode the elements ``start <= i < stop`` into ``out``. Any thread may call it.

        Raises DamageError with the name of a chunk that is missing or cannot be decoded, and StorageError.
        """


class ChunkFiles:
    """An array encoded as our stores are: its chunk files are blosc frames, each followed by its crc32c.

    ``checksums`` are those of all chunks, from the manifest.
    """

    def __init__(self, storage: Storage, info: ArrayInfo, checksums: npt.NDArray[np.uint32]) -> None:
        self._storage, self._info, self._checksums = storage, info, checksums

    def announce(self, start: int, stop: int) -> None:
        """See `Elements`."""
        for index in self._chunks(start, stop):
            self._storage.announce(self._info.key(index))

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """See `Elements`."""
        chunk = self._info.chunk
        for index in self._chunks(start, stop):
            first, last = max(start, index * chunk), min(stop, (index + 1) * chunk)
            part = out[first - start : last - start]
            if last - first == chunk:
                self._decode(index, part)
                continue
            whole = _buffer("decoded", chunk * self._info.dtype.itemsize).view(self._info.dtype)
            self._decode(index, whole)
            part[:] = whole[first - index * chunk : last - index * chunk]

    def _chunks(self, start: int, stop: int) -> range:
        return range(start // self._info.chunk, -(-stop // self._info.chunk))

    def _decode(self, index: int, out: npt.NDArray[Any]) -> None:
        """Read a chunk's file, check it, and decompress it into ``out``."""
        key = self._info.key(index)
        content = self._storage.read(key, buffer=partial(_buffer, "stored"))
        frame, checksum = content[:-CHECKSUM_BYTES], int.from_bytes(content[-CHECKSUM_BYTES:], "little")
        chunk = f"the chunk {self._storage.location}/{key}"
        if len(frame) < _HEADER_BYTES or google_crc32c.value(frame) != checksum:
            raise DamageError(
                f"{chunk} cannot be decoded (its checksum is not that of its content); {ADVICE}"
            )
        if checksum != self._checksums[index]:
            raise not_the_chunk(chunk)
        sizes = np.frombuffer(frame[:_HEADER_BYTES], "<u4")
        if (int(sizes[1]), int(sizes[3])) != (out.nbytes, len(frame)):
            raise DamageError(f"{chunk} is no blosc frame of {out.nbytes} bytes; {ADVICE}")
        try:
            blosc.decompress(frame, out)
        except (RuntimeError, ValueError) as error:
            raise DamageError(f"{chunk} cannot be decoded ({str(error)[:80]}); {ADVICE}") from error


def not_the_chunk(chunk: str) -> DamageError:
    """Return the error for a chunk whose checksum is not the manifest's."""
    return DamageError(f"{chunk} is not the one written there (its checksum is not the manifest's); {ADVICE}")


def _buffer(name: str, size: int) -> Bytes:
    """Memory of this thread, of at least this size, kept from call to call."""
    found: Bytes | None = getattr(_scratch, name, None)
    if found is None or len(found) < size:
        found = np.empty(size, np.uint8)
        setattr(_scratch, name, found)
    return found[:size]
