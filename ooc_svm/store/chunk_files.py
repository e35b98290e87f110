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

from ooc_svm.data.blocks import Int64Array
from ooc_svm.errors import DamageError
from ooc_svm.store.layout import BLOSC_HEADER_BYTES, CHECKSUM_BYTES
from ooc_svm.store.metadata import ArrayInfo
from ooc_svm.store.storage import ADVICE, READ_ADVICE, Bytes, Storage

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

    ``sizes`` and ``checksums`` are those of all chunk files, from the manifest as it was when the store was
    opened. Every read is checked against them: a file that took a chunk's place has a checksum of its own
    that is right.
    """

    def __init__(
        self, storage: Storage, info: ArrayInfo, sizes: Int64Array, checksums: npt.NDArray[np.uint32]
    ) -> None:
        self._storage, self._info, self._sizes, self._checksums = storage, info, sizes, checksums

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
            if last - first == chunk and part.dtype == self._info.dtype:
                self._decode(index, part)
                continue
            whole = _buffer("decoded", chunk * self._info.dtype.itemsize).view(self._info.dtype)
            self._decode(index, whole)
            part[:] = whole[first - index * chunk : last - index * chunk]

    def _chunks(self, start: int, stop: int) -> range:
        return range(start // self._info.chunk, -(-stop // self._info.chunk))

    def check(self) -> None:
        """Check the bytes of all chunks; raises as `read_into` does."""
        for index in range(len(self._sizes)):
            self._frame(index)

    def _frame(self, index: int) -> Bytes:
        """Read a chunk's file and check it; the frame lasts until the next one of this thread."""
        key, expected = self._info.key(index), self._checksums[index]
        for may_be_copy in (True, False):
            content = self._storage.read(key, 0, int(self._sizes[index]), buffer=partial(_buffer, "stored"))
            frame, stored = content[:-CHECKSUM_BYTES], int.from_bytes(content[-CHECKSUM_BYTES:], "little")
            found = google_crc32c.value(frame)
            if found == stored == expected:
                return frame
            if not (may_be_copy and self._storage.forget(key)):
                break
        if expected not in (found, stored):
            raise not_the_chunk(self._chunk(index))
        raise DamageError(
            f"{self._chunk(index)} cannot be decoded (its checksum is not that of its content); {READ_ADVICE}"
        )

    def _decode(self, index: int, out: npt.NDArray[Any]) -> None:
        """Read and check a chunk, and decompress it into ``out``."""
        frame = self._frame(index)
        header = frame[:BLOSC_HEADER_BYTES]
        if len(header) < BLOSC_HEADER_BYTES or header.view("<u4")[1::2].tolist() != [out.nbytes, len(frame)]:
            raise DamageError(f"{self._chunk(index)} is no blosc frame of {out.nbytes} bytes; {ADVICE}")
        try:
            blosc.decompress(frame, out)
        except (RuntimeError, ValueError) as error:
            reason = f"cannot be decoded ({str(error)[:80]})"
            raise DamageError(f"{self._chunk(index)} {reason}; {ADVICE}") from error

    def _chunk(self, index: int) -> str:
        """A chunk in messages."""
        return f"the chunk {self._storage.location}/{self._info.key(index)}"


def largest_file(n_bytes: int) -> int:
    """Largest file of a chunk of so many bytes: what does not get smaller is stored as it is."""
    return n_bytes + BLOSC_HEADER_BYTES + CHECKSUM_BYTES


def not_the_chunk(chunk: str) -> DamageError:
    """Return the error for a chunk whose checksum is not the manifest's."""
    return DamageError(
        f"{chunk} is not the one written there (its checksum is not the manifest's); {READ_ADVICE}"
    )


def _buffer(name: str, size: int) -> Bytes:
    """Memory of this thread, of at least this size, kept from call to call."""
    found: Bytes | None = getattr(_scratch, name, None)
    if found is None or len(found) < size:
        found = np.empty(size, np.uint8)
        setattr(_scratch, name, found)
    return found[:size]
