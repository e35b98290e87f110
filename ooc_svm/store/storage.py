"""Where the files of a store lie: the few operations that reading and marking a store need of a place.

Everything in this package that reads a store does it through a `Storage`. A key is a path in the store with
"/" between its parts, as in ``X/data/c/0``. `LocalStorage` is a folder; an object store can have the same
methods.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, InputError, StorageError
from ooc_svm.system.files import atomic_write, storage_errors

ADVICE = "copy the store again or make it again from its source"
"""What to do about a damaged store."""

Bytes = npt.NDArray[np.uint8]
NewBytes = Callable[[int], Bytes]

# Bytes announced in one call: of a longer range the system may fetch a part only.
_ANNOUNCED_BYTES = 1 << 19


def _new_bytes(size: int) -> Bytes:
    return np.empty(size, np.uint8)


class MissingError(DamageError):
    """There is nothing under a key that is to be read."""


class Storage(Protocol):
    """A place that holds the files of one store. All methods may be called from any thread.

    All methods raise StorageError where the place does not answer.

    Attributes
    ----------
    location : str
        Name of the place in messages; ``f"{location}/{key}"`` names a file.
    is_local : bool
        Whether opening a store may read a few bytes of every chunk. Elsewhere such bytes are checked when the
        chunk is read.
    bytes_read : int
        Bytes returned by `read` so far.
    """

    location: str
    is_local: bool
    bytes_read: int

    def list(self, folder: str) -> dict[str, int | None]:
        """Size of every file directly in a folder by its name, None for a folder in it; empty if missing.

        Raises
        ------
        DamageError
            There is something that is neither a file nor a folder, such as a symbolic link.
        """

    def describe(self, key: str) -> int | None:
        """Size of a file, or None where there is no file; raises DamageError as `list` does."""

    def read(
        self, key: str, start: int = 0, stop: int | None = None, *, buffer: NewBytes = _new_bytes
    ) -> Bytes:
        """Read the bytes ``start <= i < stop`` of a file.

        Parameters
        ----------
        key : str
        start : int
            A negative number counts from the end, and needs `stop` to be None.
        stop : int, optional
            By default the end of the file.
        buffer : callable, optional
            Takes the number of bytes and returns the array to read into; by default a new one.

        Raises
        ------
        MissingError
            There is no such file.
        DamageError
            The file ends before `stop`, or it is a symbolic link.
        """

    def announce(self, key: str) -> None:
        """Begin to fetch a file that will be read next. Errors are left to `read`."""

    def write(self, key: str, content: bytes) -> None:
        """Make or replace a file: it is the old one or the new one at any time, and durable on return."""


class LocalStorage:
    """A folder of the file system. Symbolic links inside it are refused."""

    is_local = True

    def __init__(self, folder: Path) -> None:
        self.location = os.fspath(folder)
        self.bytes_read = 0
        self._lock = threading.Lock()

    def list(self, folder: str) -> dict[str, int | None]:
        """See `Storage.list`."""
        found: dict[str, int | None] = {}
        with self._errors(folder):
            status = self._status(folder)
            if status is None or not stat.S_ISDIR(status.st_mode):
                return found
            with os.scandir(f"{self.location}/{folder}") as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        found[entry.name] = None
                    elif entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
                    else:
                        raise DamageError(f"{entry.path} is not a regular file; the store is damaged")
        return found

    def describe(self, key: str) -> int | None:
        """See `Storage.describe`."""
        with self._errors(key):
            status = self._status(key)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def _status(self, key: str) -> os.stat_result | None:
        """Status of what lies under a key; a symbolic link on the way is an error."""
        path, status = self.location, None
        for part in key.split("/"):
            path = f"{path}/{part}"
            try:
                status = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte in the key
                return None
            if stat.S_ISLNK(status.st_mode):
                raise _refused_link(path)
        return status

    def _errors(self, key: str) -> AbstractContextManager[None]:
        return storage_errors("reading", Path(self.location, key), "check the disk and the permissions")

    def read(
        self, key: str, start: int = 0, stop: int | None = None, *, buffer: NewBytes = _new_bytes
    ) -> Bytes:
        """See `Storage.read`."""
        path = f"{self.location}/{key}"
        try:
            with self._errors(key), _opened(path) as descriptor:
                if stop is None:
                    stop = os.fstat(descriptor).st_size
                    start = max(stop + start, 0) if start < 0 else min(start, stop)
                content = buffer(stop - start)
                done = 0
                while done < len(content):
                    count = os.preadv(descriptor, [content[done:].data], start + done)
                    if not count:
                        raise DamageError(f"{path} is shorter than {stop} bytes; {ADVICE}")
                    done += count
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise MissingError(f"{path} is missing; {ADVICE}") from None
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ELOOP:
                raise _refused_link(path) from None
            raise
        with self._lock:
            self.bytes_read += len(content)
        return content

    def announce(self, key: str) -> None:
        """See `Storage.announce`."""
        if not hasattr(os, "posix_fadvise"):
            return
        with suppress(OSError), _opened(f"{self.location}/{key}") as descriptor:
            for offset in range(0, os.fstat(descriptor).st_size, _ANNOUNCED_BYTES):
                os.posix_fadvise(descriptor, offset, _ANNOUNCED_BYTES, os.POSIX_FADV_WILLNEED)

    def write(self, key: str, content: bytes) -> None:
        """See `Storage.write`."""
        atomic_write(f"{self.location}/{key}", lambda file: file.write(content))


def open_storage(path: str | os.PathLike[str]) -> Storage:
    """Return the place that a user names; raises InputError where there is none."""
    folder = Path(path)
    if folder.is_dir():
        return LocalStorage(folder)
    if folder.exists():
        raise InputError(f"{folder} is a file, not a Zarr store; convert it first")
    raise InputError(f"{folder} does not exist; check the path")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Descriptor of a file to read. A named pipe in its place must not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _refused_link(path: str) -> DamageError:
    return DamageError(f"{path} is a symbolic link; a store must hold its own files: copy them into it")
