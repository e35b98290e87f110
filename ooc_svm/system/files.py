"""Files that appear whole or not at all: temporary file next to the target, fsync, rename, fsync."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ooc_svm.errors import OocSvmError, StorageError

_BUFFER_BYTES = 1 << 20
_SUFFIX = ".partial"


@contextmanager
def storage_errors(action: str, path: Path, advice: str) -> Iterator[None]:
    """Turn errors of the operating system into a StorageError that names the path."""
    try:
        yield
    except OocSvmError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{action} {path} failed: {reason}; {advice}") from error


def sync_folder(folder: Path) -> None:
    """Force the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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

    If `write`, which is given the open temporary file, raises, `path` stays as it was. With `durable` False
    the file is not needed after a failure of the machine and not forced to the disk. StorageError says that
    the target is not a regular file, or the disk is full, read-only or broken.
    """
    target = Path(os.path.realpath(path))
    with _write_errors(path):
        mode = _final_mode(target)
        sweep_leftovers(target)
        descriptor, temporary = _open_temporary(target)
        try:
            _fill(descriptor, mode, write, durable)
            os.rename(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)  # which releases the lock that protects the file until the rename
        if durable:
            sync_folder(target.parent)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Fail now rather than after hours: create and remove a temporary file next to `path`.

    Raises StorageError if `atomic_write` could not create its temporary file there.
    """
    target = Path(os.path.realpath(path))
    with _write_errors(path):
        _final_mode(target)
        descriptor, temporary = _open_temporary(target)
        try:
            os.unlink(temporary)
        finally:
            os.close(descriptor)


def sweep_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files of `path` that no running process has locked."""
    target = Path(path)
    for entry in target.parent.iterdir():
        token = entry.name.removeprefix(f".{target.name}.").removesuffix(_SUFFIX)
        if entry.name != _temporary_name(target, token) or len(token) != 16:
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(entry, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry)
            finally:
                os.close(descriptor)


def _temporary_name(target: Path, token: str) -> str:
    return f".{target.name}.{token}{_SUFFIX}"


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


def _open_temporary(target: Path) -> tuple[int, Path]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        temporary = target.parent / _temporary_name(target, secrets.token_hex(8))
        descriptor = os.open(temporary, flags, 0o600)
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink == 1:
            return descriptor, temporary
        os.close(descriptor)  # removed as a leftover before it was locked


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
        reason = f"{os.fspath(path)}: cannot be written: {error.strerror or error}"
        advice = "free space or choose a folder that can be written, and run again"
        raise StorageError(f"{reason}; {advice}") from error
