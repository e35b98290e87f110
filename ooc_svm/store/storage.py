"""Where the files of a store lie: the few operations that reading and marking a store need of a place.

Everything in this package that reads a store does it through a `Storage`. A key is a path in the store with
"/" between its parts, as in ``X/data/c/0``. `LocalStorage` is a folder; `ooc_svm.store.object_storage`
has the same methods for an object store.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, OocSvmError, StorageError
from ooc_svm.store.layout import BUILDING
from ooc_svm.system.address import Address, AnyPath, address_of
from ooc_svm.system.descriptors import close_unwritten
from ooc_svm.system.files import (
    IrregularFileError,
    atomic_write,
    exists,
    is_folder,
    open_regular,
    status_of,
    storage_errors,
)
from ooc_svm.system.recognition import HDF5, known_kind

ADVICE = "copy the store again or make it again from its source"
"""What to do about a damaged store."""

READ_ADVICE = f"run again if the store was replaced meanwhile, else {ADVICE}"
"""What to do about damage that was found after a store was opened."""

WRITE_ADVICE = "free some space or check the disk, then run again"
"""What to do about a store that could not be written."""

Bytes = npt.NDArray[np.uint8]
NewBytes = Callable[[int], Bytes]

# Bytes announced in one call: of a longer range the system may fetch a part only.
_ANNOUNCED_BYTES = 1 << 19

FILL_HINT = (
    " (a writer may leave out chunks of zeros: then save it within "
    "zarr.config.set({'array.write_empty_chunks': True}), or as .h5ad, and convert that)"
)
"""What else a missing chunk may mean, where any program may have written the array."""

VERSION = np.dtype([("size", np.int64), ("inode", np.uint64), ("mtime_ns", np.int64)])
"""Type of an array of `FileVersion`."""


class FileVersion(NamedTuple):
    """What tells a file from another one in its place, as far as can be told without reading it.

    ``mtime_ns`` is the time of the last change, in nanoseconds.
    """

    size: int
    inode: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """Version of a file of the file system."""
        return cls(status.st_size, status.st_ino, status.st_mtime_ns)


def new_bytes(size: int) -> Bytes:
    """Memory of so many bytes."""
    return np.empty(size, np.uint8)


@contextmanager
def damage_in(what: str, advice: str) -> Iterator[None]:
    """Turn whatever a library raises on malformed content into a DamageError that begins with `what`.

    Where memory runs out, a MemoryBudgetError.
    """
    try:
        yield
    except OocSvmError:
        raise
    except MemoryError as error:
        raise MemoryBudgetError(f"{what}: memory ran out; use a machine with more, or {advice}") from error
    except Exception as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DamageError(f"{what} ({reason:.200}); {advice}") from error


class MissingError(DamageError):
    """There is nothing under a key that is to be read."""


class Storage(Protocol):
    """A place that holds the files of one store. All methods may be called from any thread.

    All methods raise StorageError where the place does not answer.

    Attributes
    ----------
    location : str
        Name of the place in messages; ``f"{location}/{key}"`` names a file.
    path : Path or Address
        The place itself.
    is_local : bool
        Whether opening a store may read a few bytes of every chunk. Elsewhere such bytes are checked when the
        chunk is read.
    bytes_read : int
        Bytes returned by `read` so far.
    """

    location: str
    path: AnyPath
    is_local: bool
    bytes_read: int

    def confirm(self) -> None:
        """Raise DamageError if another place has come under the name since this object was made."""

    def list(self, folder: str) -> dict[str, FileVersion | None]:
        """Version of every file directly in a folder by its name, None for a folder in it; empty if missing.

        Raises
        ------
        DamageError
            There is something that is neither a file nor a folder, such as a symbolic link.
        """

    def describe(self, key: str) -> int | None:
        """Size of a file, or None where there is nothing; DamageError where there is no file but a folder.

        Or something that is neither, as for `list`.
        """

    def read(
        self,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        buffer: NewBytes = new_bytes,
        version: FileVersion | None = None,
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
        version : FileVersion, optional
            What the file must be, before and after its bytes are read.

        Raises
        ------
        MissingError
            There is no such file.
        DamageError
            The file ends before `stop`, is another one than `version`, or is none, such as a symbolic link.
        """

    def announce(self, key: str) -> None:
        """Begin to fetch a file that will be read soon. Errors are left to `read`."""

    def limit_ahead(self, n_files: int) -> None:
        """Hold no more announced files in memory than so many: others are fetched when one was read."""

    def forget(self, key: str) -> bool:
        """Forget the copy of a file that was read and is damaged; whether it was one, not the file itself."""

    def read_originals(self) -> None:
        """Read every file itself from now on, where others have copies of several small ones."""


class LocalStorage:
    """A folder of the file system. Symbolic links inside it are refused."""

    is_local = True

    def __init__(self, folder: Path) -> None:
        self.path: AnyPath = folder
        self.location = os.fspath(folder)
        self.bytes_read = 0
        self._lock = threading.Lock()
        self._found = self._identity()

    def confirm(self) -> None:
        """See `Storage.confirm`."""
        if self._identity() != self._found:
            raise DamageError(f"{self.location} was replaced while it was opened; run again")

    def _identity(self) -> tuple[int, int] | None:
        """Device and number of the folder; None if there is none."""
        with self._errors(""):
            status = status_of(self.location)
        return None if status is None else (status.st_dev, status.st_ino)

    def list(self, folder: str) -> dict[str, FileVersion | None]:
        """See `Storage.list`."""
        found: dict[str, FileVersion | None] = {}
        with self._errors(folder):
            status = self._status(folder)
            if status is None or not stat.S_ISDIR(status.st_mode):
                return found
            with os.scandir(f"{self.location}/{folder}") as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        found[entry.name] = None
                    elif entry.is_file(follow_symlinks=False):
                        found[entry.name] = FileVersion.of(entry.stat(follow_symlinks=False))
                    else:
                        raise DamageError(f"{entry.path} is not a regular file; the store is damaged")
        return found

    def describe(self, key: str) -> int | None:
        """See `Storage.describe`."""
        with self._errors(key):
            status = self._status(key)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise IrregularFileError(f"{self.location}/{key}", status.st_mode)
        return status.st_size

    def _status(self, key: str) -> os.stat_result | None:
        """Status of a file or folder under a key; anything else there or on the way is an error."""
        path, status = self.location, None
        for part in key.split("/"):
            path = f"{path}/{part}"
            try:
                status = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte in the key
                return None
            if stat.S_ISLNK(status.st_mode):
                raise _refused_link(path)
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise IrregularFileError(path, status.st_mode)
        return status

    def _errors(self, key: str) -> AbstractContextManager[None]:
        return storage_errors("reading", Path(self.location, key), "check the disk and the permissions")

    def read(
        self,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        buffer: NewBytes = new_bytes,
        version: FileVersion | None = None,
    ) -> Bytes:
        """See `Storage.read`."""
        path = f"{self.location}/{key}"
        try:
            with self._errors(key), _opened(path) as descriptor:
                _require(version, descriptor, path)
                if stop is None:
                    stop = os.fstat(descriptor).st_size
                    start = max(stop + start, 0) if start < 0 else min(start, stop)
                content = buffer(stop - start)
                done = 0
                while done < len(content):
                    count = os.preadv(descriptor, [content[done:].data], start + done)
                    if not count:
                        raise DamageError(f"{path} is shorter than {stop} bytes; {READ_ADVICE}")
                    done += count
                _require(version, descriptor, path)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise MissingError(f"{path} is missing; {READ_ADVICE}") from None
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
        with suppress(OSError, DamageError), _opened(f"{self.location}/{key}") as descriptor:
            for offset in range(0, os.fstat(descriptor).st_size, _ANNOUNCED_BYTES):
                os.posix_fadvise(descriptor, offset, _ANNOUNCED_BYTES, os.POSIX_FADV_WILLNEED)

    def limit_ahead(self, n_files: int) -> None:
        """See `Storage.limit_ahead`: announced files are in the cache of the system."""

    def forget(self, key: str) -> bool:
        """See `Storage.forget`: there are no copies."""
        return False

    def read_originals(self) -> None:
        """See `Storage.read_originals`: there are no copies."""

    def write(self, key: str, content: bytes) -> None:
        """Make or replace a file: it is the old one or the new one at any time, and durable on return."""
        atomic_write(f"{self.location}/{key}", lambda file: file.write(content))


def storage_at(path: str | os.PathLike[str]) -> Storage:
    """The place under a path or an address, whatever is there; StorageError if that cannot be known."""
    if (address := address_of(path)) is not None:
        from ooc_svm.store.object_storage import ObjectStorage

        return ObjectStorage(address)
    return LocalStorage(Path(path))


def open_storage(path: str | os.PathLike[str]) -> Storage:
    """Return the place that a user names; raises InputError or StorageError where there is none."""
    if address_of(path) is not None:
        return storage_at(path)
    folder = Path(path)
    with storage_errors("opening", folder, "check the path"):
        status = status_of(folder)
    if status is not None and stat.S_ISDIR(status.st_mode):
        return LocalStorage(folder)
    raise no_store(folder)


def is_hdf5(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as HDF5 does."""
    try:
        if not os.path.isfile(path):  # to open a pipe would wait for its writer
            return False
        with open(path, "rb") as file:
            return file.read(len(HDF5)) == HDF5
    except OSError:
        return False


def no_store(place: AnyPath) -> InputError:
    """The error for a place without the metadata of a Zarr store."""
    if isinstance(place, Address) and exists(place / BUILDING):
        return InputError(
            f"{place} is not a Zarr store yet: a run is writing it, or was killed; wait for it, or remove "
            f"what it has left: ooc-svm convert --sweep {shlex.quote(str(place))}"
        )
    # A request for a whole bucket is answered as one for an object.
    if is_folder(place) or (isinstance(place, Address) and not place.key):
        return InputError(f"{place} is not a Zarr store: it has no metadata of a group; check the path")
    if (kind := known_kind(place)) is not None:
        return InputError(f"{place} is {kind}, not data; check the path")
    if exists(place):
        return InputError(
            f"{place} is a file, not a Zarr store; convert it first: "
            f"ooc-svm convert {shlex.quote(str(place))} -o NEW.zarr"
        )
    return InputError(f"{place} does not exist; check the path")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Descriptor of a file to read."""
    descriptor = open_regular(path, follow=False)
    try:
        yield descriptor
    finally:
        close_unwritten(descriptor)


def _require(version: FileVersion | None, descriptor: int, path: str) -> None:
    """Raise DamageError if an open file is another one than it must be."""
    if version is None or (found := FileVersion.of(os.fstat(descriptor))) == version:
        return
    changes = [
        f"its {name} was {was} and is {now}"
        for name, was, now in zip(("size", "inode", "time of change in ns"), version, found, strict=True)
        if was != now
    ]
    raise DamageError(
        f"{path} was changed or replaced after the store was opened ({', '.join(changes)}); run again on a "
        "store that nothing writes to"
    )


def _refused_link(path: str) -> DamageError:
    return DamageError(f"{path} is a symbolic link; a store must hold its own files: copy them into it")
