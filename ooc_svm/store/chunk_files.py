"""Arrays of our own stores, decoded chunk by chunk straight from their files.

Zarr's own way takes the interpreter longer than the decompression, and allocates what it decodes to anew for
each chunk. Here a chunk goes from the file through one buffer of the thread into the caller's array.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt
from numcodecs import blosc

from ooc_svm.errors import DamageError, StorageError
from ooc_svm.store.metadata import ArrayInfo
from ooc_svm.store.zarr_access import ADVICE, ZarrArray, read_into

# Of a blosc frame: its size is in the last four.
_HEADER_BYTES = 16
_CHECKSUM_BYTES = 4

# Of a longer range the system may begin with a part only.
_ANNOUNCED_BYTES = 1 << 19

_scratch = threading.local()


class Elements(Protocol):
    """An array on disk."""

    def announce(self, start: int, stop: int) -> None:
        """Say that these elements will be read next, so that the disk can begin with all of them at once."""

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Decode the elements ``start <= i < stop`` into ``out``; any thread may do it.

        Raises
        ------
        DamageError
            A chunk is missing or cannot be decoded; the message names it.
        StorageError
            Reading failed.
        """


class ZarrElements:
    """An array that is read through Zarr, whatever its codecs.

    Parameters
    ----------
    array : zarr.Array
    """

    def __init__(self, array: ZarrArray) -> None:
        self._array = array

    def announce(self, start: int, stop: int) -> None:
        """See `Elements`: nothing is done here, Zarr reads several chunks at a time."""

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """See `Elements`."""
        read_into(self._array, start, stop, out)


class ChunkFiles:
    """An array whose chunk files are blosc frames, each with its crc32c behind it.

    Parameters
    ----------
    root : Path
        The store.
    info : ArrayInfo
        Checked before: encoded as our stores are.
    on_read : callable
        Called with the size of each file that was read.
    """

    def __init__(self, root: Path, info: ArrayInfo, on_read: Callable[[int], None]) -> None:
        self._root, self._info, self._on_read = root, info, on_read

    def announce(self, start: int, stop: int) -> None:
        """See `Elements`."""
        if not hasattr(os, "posix_fadvise"):
            return
        for index in self._chunks(start, stop):
            # What is wrong with a file is said when it is read.
            with suppress(OSError), _opened(self._root / self._info.key(index)) as (descriptor, size):
                for offset in range(0, size, _ANNOUNCED_BYTES):
                    os.posix_fadvise(descriptor, offset, _ANNOUNCED_BYTES, os.POSIX_FADV_WILLNEED)

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
        path = self._root / self._info.key(index)
        content = _read_file(path)
        self._on_read(len(content))
        frame, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        if len(frame) < _HEADER_BYTES or google_crc32c.value(frame) != int.from_bytes(checksum, "little"):
            raise DamageError(
                f"the chunk {path} cannot be decoded (its checksum is not that of its content); {ADVICE}"
            )
        sizes = np.frombuffer(frame[:_HEADER_BYTES], "<u4")
        if (int(sizes[1]), int(sizes[3])) != (out.nbytes, len(frame)):
            raise DamageError(f"the chunk {path} is no blosc frame of {out.nbytes} bytes; {ADVICE}")
        try:
            blosc.decompress(frame, out)
        except (RuntimeError, ValueError) as error:
            raise DamageError(f"the chunk {path} cannot be decoded ({str(error)[:80]}); {ADVICE}") from error


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """A file to be read: its descriptor and its size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _read_file(path: Path) -> npt.NDArray[np.uint8]:
    """Content of a chunk's file, in a buffer that the thread's next call uses again."""
    try:
        with _opened(path) as (descriptor, size):
            content = _buffer("stored", size)
            done = 0
            while done < size:
                count = os.preadv(descriptor, [content[done:].data], done)
                if count == 0:
                    raise DamageError(f"the chunk {path} has become shorter; {ADVICE}")
                done += count
    except FileNotFoundError:
        raise DamageError(f"the chunk {path} is missing; {ADVICE}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"reading {path} failed: {reason}; check the disk and run again") from error
    return content


def _buffer(name: str, size: int) -> npt.NDArray[np.uint8]:
    """Memory of this thread, of at least this size, kept from call to call."""
    found: npt.NDArray[np.uint8] | None = getattr(_scratch, name, None)
    if found is None or len(found) < size:
        found = np.empty(size, np.uint8)
        setattr(_scratch, name, found)
    return found[:size]
