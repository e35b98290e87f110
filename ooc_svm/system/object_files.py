"""Objects as files: read from front to back with ranges fetched ahead, and written whole."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

from ooc_svm.errors import InputError, StorageError
from ooc_svm.system.address import Address
from ooc_svm.system.objects import Bucket, MissingObject, ObjectVersion

RANGE_BYTES = 4 << 20
"""Bytes of a range that is fetched."""

RANGES_AHEAD = 4
"""Ranges in the air or waiting, of each object that is read."""

HEAD_BYTES = 1 << 16
"""Bytes of a range where only the first bytes of an object are looked at."""

# Bytes of an object to be that are kept in memory; longer ones go through a file on the local disk.
_KEPT_BYTES = 16 << 20


class ObjectReader(io.RawIOBase):
    """An object as a file that is open for reading; all of it is of one version.

    ``ranges_ahead`` ranges of ``range_bytes`` bytes are in the air or waiting; nothing from the byte ``stop``
    on is fetched. FileNotFoundError where there is no such object.
    """

    def __init__(
        self,
        address: Address,
        stop: int | None = None,
        range_bytes: int = RANGE_BYTES,
        ranges_ahead: int = RANGES_AHEAD,
    ) -> None:
        super().__init__()
        self.address = address
        self._bucket = Bucket(address)
        version = self._bucket.version(address.key)
        if version is None:
            self._bucket.read(address.key, 0, 1)  # whose answer says whether there is the bucket
            raise MissingObject(f"{address}: there is no such object")
        self.version: ObjectVersion = version
        self._stop = version.size if stop is None else min(stop, version.size)
        self._range_bytes, self._ranges_ahead = range_bytes, ranges_ahead
        self._place = 0
        self._ahead: deque[tuple[int, Future[memoryview]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def name(self) -> str:
        """The address, as messages write it."""
        return os.fspath(self.address)

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.version.size}[whence]
        self._place = max(base + offset, 0)
        return self._place

    def readinto(self, target: Any) -> int:
        """See `io.RawIOBase`."""
        view = memoryview(target).cast("B")
        if self._place >= self._stop or not len(view):
            return 0
        start, content = self._range()
        part = content[self._place - start : self._place - start + len(view)]
        if not len(part):
            raise StorageError(f"reading {self.address} failed: it ended at byte {self._place}; run again")
        view[: len(part)] = part
        self._place += len(part)
        return len(part)

    def _range(self) -> tuple[int, memoryview]:
        """The range that the next byte lies in, with the ranges behind it on their way."""
        while self._ahead and not self._ahead[0][0] <= self._place < self._ahead[0][0] + self._range_bytes:
            self._ahead.popleft()[1].cancel()
        if not self._ahead:
            self._fetch(self._place)
        while len(self._ahead) < self._ranges_ahead:
            start = self._ahead[-1][0] + self._range_bytes
            if start >= self._stop:
                break
            self._fetch(start)
        start, coming = self._ahead[0]
        return start, coming.result()

    def _fetch(self, start: int) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._ranges_ahead, thread_name_prefix="object")
        stop = min(start + self._range_bytes, self._stop)
        coming = self._pool.submit(self._bucket.read, self.address.key, start, stop, self.version.tag)
        self._ahead.append((start, coming))

    def close(self) -> None:
        """Release the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._ahead.clear()
        super().close()


def write_object(address: Address, write: Callable[[BinaryIO], object]) -> None:
    """Make or replace an object by what ``write`` writes: it is the old one or the new one at any time.

    Raises StorageError as `Bucket` does, or where the local disk has no room for it.
    """
    bucket = Bucket(address)
    bucket.refuse_read_only(address.key)
    with tempfile.SpooledTemporaryFile(max_size=_KEPT_BYTES) as file:
        write(file)  # type: ignore[arg-type]
        size = file.tell()
        bucket.write(address.key, file, size)


def object_fingerprint(address: Address) -> str:
    """Tells an object or a Zarr store from another one of its address; "a folder" for other places."""
    bucket = Bucket(address)
    for each in (address, address / "zarr.json"):
        if (version := bucket.version(each.key)) is not None:
            return f"{version.size} bytes, version {version.tag}, changed at {version.mtime_ns}"
    return "a folder"


def matching(address: Address) -> list[Address]:
    """The objects that a pattern with ``*``, ``?`` or ``[...]`` names, by their keys; others are themselves.

    ``*`` matches no slash. InputError if a pattern matches nothing, or the server has no lists.
    """
    wild = re.search(r"[*?[]", address.key)
    if wild is None:
        return [address]
    bucket, folder = Bucket(address), address.key[: wild.start()].rpartition("/")[0]
    if bucket.version(address.key) is not None:
        return [address]
    if address.is_read_only:
        raise InputError(f"{address}: a web server cannot be asked for a list; name each file")
    depth = address.key.count("/")
    keys = [key for key in bucket.walk(folder) if key.count("/") == depth and fnmatchcase(key, address.key)]
    if not keys:
        raise InputError(f"{address}: no object matches; check the pattern")
    return [replace(address, key=key) for key in sorted(keys)]
