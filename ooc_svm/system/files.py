"""Files that are read without waiting, and files that appear whole or not at all.

The latter are written next to the target, forced to the disk and renamed, and then the folder is forced too.
An address of an object store may stand for a path wherever a function says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ooc_svm.errors import DamageError, OocSvmError, StorageError
from ooc_svm.system import private_folders
from ooc_svm.system.address import Address, AnyPath, address_of, located
from ooc_svm.system.descriptors import NamedFile, close_unwritten
from ooc_svm.system.signals import entered, uninterrupted

if TYPE_CHECKING:
    from ooc_svm.system.objects import Bucket

_BUFFER_BYTES = 1 << 20
_SUFFIX = ".partial"
# Of renameat2, as Linux numbers them.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def _bucket(address: Address) -> Bucket:
    """The bucket of an address; its client is imported when the first one is asked for."""
    from ooc_svm.system.objects import Bucket

    return Bucket(address)


class IrregularFileError(DamageError):
    """Something other than a regular file lies where one is to be read.

    Attributes
    ----------
    kind : str
        What it is, as in "a folder".
    """

    def __init__(self, path: str, mode: int) -> None:
        kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
        self.kind = next((kind for test, kind in kinds if test(mode)), "a device")
        super().__init__(f"{path} is {self.kind}, not a regular file; put a copy of the file in its place")


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> int:
    """Open a regular file to read, and return its descriptor: a pipe or a device is never waited for.

    Raises IrregularFileError if it is none, and OSError as `os.open` does: without `follow` also for a
    symbolic link.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise IrregularFileError(os.fspath(path), os.stat(path).st_mode) from None
        raise
    try:
        mode = file_status(descriptor, path).st_mode
        if not stat.S_ISREG(mode):
            raise IrregularFileError(os.fspath(path), mode)
    except BaseException:
        close_unwritten(descriptor)
        raise
    return descriptor


def open_to_read(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file by `open_regular`, or the object of an address; errors of reading it name the path."""
    if (address := address_of(path)) is not None:
        from ooc_svm.system.object_files import ObjectReader

        return BufferedReader(ObjectReader(address), _BUFFER_BYTES)
    return BufferedReader(NamedFile(open_regular(path), os.fspath(path)))


def read_head(path: str | os.PathLike[str], n_bytes: int) -> bytes:
    """The first bytes of a file, or by one request of an object; errors are those of `open_to_read`."""
    if (address := address_of(path)) is not None:
        return bytes(_bucket(address).read(address.key, 0, n_bytes))
    with open_to_read(path) as file:
        return file.read(n_bytes)


def file_status(descriptor: int, path: str | os.PathLike[str]) -> os.stat_result:
    """The status of an open file; an error names its path."""
    try:
        return os.fstat(descriptor)
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def status_of(path: str | os.PathLike[str], *, follow: bool = True) -> os.stat_result | None:
    """The status of what lies under a path, or None if nothing does; OSError if that cannot be known.

    `os.path.exists` and its like take what cannot be known for what is not there.
    """
    try:
        return os.stat(path, follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte in the name
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


def exists(path: str | os.PathLike[str], *, follow: bool = True) -> bool:
    """Whether anything lies under a path, or an object under an address; OSError if that cannot be known."""
    if (address := address_of(path)) is not None:
        return _bucket(address).version(address.key) is not None
    return status_of(path, follow=follow) is not None


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder lies under a path, or objects in one of an address; OSError if that cannot be known.

    Of a server that cannot be asked for a list, whether a Zarr store lies there.
    """
    if (address := address_of(path)) is not None:
        bucket = _bucket(address)
        if address.is_read_only:
            names = (address / name for name in ("zarr.json", ".zgroup"))
            return any(bucket.version(each.key) is not None for each in names)
        return any(bucket.list(address.key))
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_same_file(path: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths lead to the same file, which is there; of addresses whether they are equal."""
    addresses = address_of(path), address_of(other)
    if addresses != (None, None):
        return addresses[0] == addresses[1]
    one, two = status_of(path), status_of(other)
    return one is not None and two is not None and os.path.samestat(one, two)


def is_within(path: str | os.PathLike[str], folder: AnyPath) -> bool:
    """Whether a path leads into a folder, of addresses by their keys alone."""
    place = located(path)
    if isinstance(place, Path) and isinstance(folder, Path):
        return place.resolve().is_relative_to(folder.resolve())
    return isinstance(place, Address) and place.is_relative_to(folder)


@contextmanager
def storage_errors(action: str, path: AnyPath, advice: str) -> Iterator[None]:
    """Turn errors of the operating system into a StorageError that names the path."""
    try:
        yield
    except OocSvmError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{action} {path} failed: {reason}; {advice}") from error


def open_size(file: BinaryIO) -> int:
    """Bytes of a file that is open for reading; its place stays."""
    place = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(place)
    return size


def file_size(path: str | os.PathLike[str]) -> int:
    """Bytes of a file, or of the object of an address; FileNotFoundError if there is none."""
    with open_to_read(path) as file:
        return open_size(file)


def changed_at(path: str | os.PathLike[str]) -> float | None:
    """Time of the last change of a file or object, in seconds; None if there is none."""
    if (address := address_of(path)) is not None:
        version = _bucket(address).version(address.key)
        return None if version is None else version.mtime_ns / 1e9
    status = status_of(path)
    return None if status is None else status.st_mtime


def folders_in(path: AnyPath) -> list[str]:
    """Names of the folders in a folder; empty if there is none."""
    if isinstance(path, Path):
        return [entry.name for entry in path.iterdir() if entry.is_dir()] if is_folder(path) else []
    return _bucket(path).list(path.key)[1]


def make_folder(path: AnyPath) -> None:
    """Make a folder and those that it lies in, unless they are there; object stores need none."""
    if isinstance(path, Path):
        path.mkdir(parents=True, exist_ok=True)


def remove_file(path: str | os.PathLike[str]) -> None:
    """Remove a file, or the object of an address, that need not be there; OSError if that fails."""
    if (address := address_of(path)) is not None:
        _bucket(address).remove([address.key])
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def sync_folder(folder: Path) -> None:
    """Force the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        close_unwritten(descriptor)


def exchange(path: Path, other: Path) -> bool:
    """Let two files or folders change names, in one step; False where the system cannot do that."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    names = os.fsencode(path), os.fsencode(other)
    if library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), os.fspath(path), None, os.fspath(other))


def write_fully(descriptor: int, content: bytes | memoryview) -> None:
    """Write all of the content, with as many calls as needed."""
    rest = memoryview(content)
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


def atomic_write(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object], *, durable: bool = True
) -> None:
    """Create or replace the file `path`.

    At any time, `path` is absent, the old file or the new file, whole and on the disk. Leftovers of killed
    runs are removed first. A symbolic link is followed; a file that is replaced keeps its mode.

    An object appears whole as well, under its address. If `write`, which is given the open temporary file,
    raises, `path` stays as it was. With `durable` False the file is not needed after a failure of the machine
    and not forced to the disk. StorageError says that the target is not a regular file, or the disk is full,
    read-only or broken.
    """
    atomic_writes([(path, write)], durable=durable)


def atomic_writes(
    writes: Sequence[tuple[str | os.PathLike[str], Callable[[BinaryIO], object]]], *, durable: bool = True
) -> None:
    """Create or replace several files as `atomic_write` does one: none, unless all of them could be written.

    Objects appear one after another, and so do files where the process is killed meanwhile.
    """
    with ExitStack() as stack:
        whole: list[tuple[str | os.PathLike[str], Path, Path]] = []
        for path, write in writes:
            with _write_errors(path):
                if (address := address_of(path)) is not None:
                    from ooc_svm.system.object_files import write_object

                    write_object(address, write)
                    continue
                target = Path(os.path.realpath(path))
                mode = _final_mode(target)
                sweep_leftovers(target)
                descriptor, temporary = stack.enter_context(_temporary_file(target))
                _fill(descriptor, mode, write, durable)
                whole.append((path, temporary, target))
        with uninterrupted():
            for path, temporary, target in whole:
                with _write_errors(path):
                    os.rename(temporary, target)
    if durable:
        for path, _, target in whole:
            with _write_errors(path):
                sync_folder(target.parent)


def put_file(file: Path, target: str | os.PathLike[str]) -> None:
    """Create or replace ``target`` by a copy of a file of the local disk; see `atomic_write`."""
    with open(file, "rb") as content:
        atomic_write(target, partial(shutil.copyfileobj, content))


def check_writable(path: str | os.PathLike[str]) -> None:
    """Fail now rather than after hours: create and remove a temporary file next to `path`.

    Leftovers of killed runs are removed. Raises StorageError if `atomic_write` could not create its temporary
    file there, or what is there is no file: under an address, a Zarr store.
    """
    if (address := address_of(path)) is not None:
        if exists(address / "zarr.json") or exists(address / ".zgroup"):
            raise StorageError(f"{address}: is a Zarr store; give the name of a file to write")
        _bucket(address).check_writable(address.key)
        return
    target = Path(os.path.realpath(path))
    with _write_errors(path):
        _final_mode(target)
        sweep_leftovers(target)
        with _temporary_file(target):
            pass


def sweep_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporary folders of `path` that no running process has locked; objects have none."""
    if address_of(path) is not None:
        return
    target = Path(path)
    private_folders.sweep(target.parent, f".{target.name}.", _SUFFIX)


@contextmanager
def _temporary_file(target: Path) -> Iterator[tuple[int, Path]]:
    """A new file in a private folder next to the target; both are gone afterwards."""
    with entered(partial(private_folders.made, target.parent, f".{target.name}.", _SUFFIX)) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder / "file", flags, 0o600)
        try:
            yield descriptor, folder / "file"
        finally:
            os.close(descriptor)


def _final_mode(target: Path) -> int:
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return 0o666 & ~_umask()
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{target}: is not a regular file; give the name of a file to write")
    return stat.S_IMODE(status.st_mode)


def _umask() -> int:
    """The file mode creation mask, read without changing it (which would affect other threads)."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o077


def _fill(descriptor: int, mode: int, write: Callable[[BinaryIO], object], durable: bool) -> None:
    file = os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES, closefd=False)
    try:
        write(file)
        file.flush()
        os.fchmod(descriptor, mode)
        if durable:
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # closing flushes again
            file.close()
        raise
    file.close()


@contextmanager
def _write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        folder = os.path.dirname(os.path.abspath(path))
        if error.errno == errno.ENOENT and not os.path.isdir(folder):
            reason, advice = f"there is no folder {folder}", "make it, or name another one"
        else:
            reason = error.strerror or str(error)
            advice = "free space or choose a folder that can be written, and run again"
        raise StorageError(f"{os.fspath(path)}: cannot be written: {reason}; {advice}") from error
