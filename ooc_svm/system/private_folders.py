"""Private folders next to a target; the next run removes those that a killed one left, and nothing else.

A folder is one of ours if its name ends in an id of 16 random hexadecimal digits and a file in it has our
mark, which is written before anything else and removed after everything else. The run that uses it holds a
lock on that file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ooc_svm.system.descriptors import close_unwritten

MARK = ".ooc-svm"
"""Name of the file with the mark."""

_TEXT = b"A folder of a running ooc-svm; the next run removes it if that one was killed.\n"

_ID_BYTES = 8

_ATTEMPTS = 100
"""Number of new names that are tried before a folder is known to take none."""


def new_name(prefix: str, suffix: str = "") -> str:
    """A name for a folder that nothing has yet."""
    return f"{prefix}{os.urandom(_ID_BYTES).hex()}{suffix}"


def named_like(parent: Path, prefix: str, suffix: str = "") -> list[Path]:
    """The folders of this user in `parent` whose names `new_name` may have made, in order.

    Those of others are left alone, even by root: in a folder that all may write to, their owners could put
    links to something else in their places meanwhile.
    """
    pattern = re.compile(f"{re.escape(prefix)}[0-9a-f]{{{2 * _ID_BYTES}}}{re.escape(suffix)}")
    found = [parent / name for name in os.listdir(parent) if pattern.fullmatch(name)]
    return sorted(filter(_is_own_folder, found))


def _is_own_folder(path: Path) -> bool:
    try:
        status = os.lstat(path)
    except FileNotFoundError:  # its run has just removed it
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def make(path: Path) -> int:
    """Make a folder with the mark; return the descriptor that holds its lock until it is closed.

    Raises FileNotFoundError if another run has removed it before it was marked and locked, and OSError.
    """
    path.mkdir(mode=0o700)
    try:
        return _mark(path)
    except BaseException:
        remove(path)
        raise


def make_new(parent: Path, prefix: str, suffix: str = "") -> tuple[Path, int]:
    """Make a folder of a new name with the mark; return its path and the descriptor of its lock."""
    for _ in range(_ATTEMPTS):
        path = parent / new_name(prefix, suffix)
        try:
            return path, make(path)
        except FileNotFoundError:
            os.stat(parent)  # either that is missing, or another run was quicker
    raise FileNotFoundError(errno.ENOENT, "no folder can be created in it", str(parent))  # as in /proc


@contextlib.contextmanager
def made(parent: Path, prefix: str, suffix: str = "") -> Iterator[Path]:
    """A folder that `make_new` makes, removed at the end."""
    folder, lock = make_new(parent, prefix, suffix)
    try:
        yield folder
    finally:
        remove(folder)
        close_unwritten(lock)


def _mark(path: Path) -> int:
    """Give a new folder the mark; return as `make` does."""
    descriptor = _open_mark(path, os.O_CREAT)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, _TEXT)
        os.stat(path / MARK)  # it may have been taken for a leftover before it was locked
    except BaseException:
        close_unwritten(descriptor)
        raise
    return descriptor


def remove(path: Path) -> None:
    """Remove a folder of ours, the mark last; errors are left to the next run."""
    with contextlib.suppress(OSError):  # an old store has no mark, and is not private
        os.chmod(path, 0o700)
        close_unwritten(_open_mark(path, os.O_CREAT))
    for _ in range(2):  # `rmtree` ends where closing a folder fails
        with contextlib.suppress(OSError):
            _empty(path)
            os.rmdir(path)
            return


def _empty(path: Path) -> None:
    for name in os.listdir(path):
        if name != MARK:
            _remove_entry(path / name)
    if os.listdir(path) == [MARK]:
        os.unlink(path / MARK)


def _remove_entry(path: Path) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


def sweep(
    parent: Path, prefix: str, suffix: str = "", *, is_ours: Callable[[Path], bool] = lambda path: False
) -> None:
    """Remove the folders of these names that have the mark and are not in use.

    So are folders that are ours by what `is_ours` says, and those that were only just made: they are empty
    and private.
    """
    for path in named_like(parent, prefix, suffix):
        with contextlib.suppress(OSError):  # in use, another user's, or gone
            if _has_mark(path) or is_ours(path):
                _remove_unlocked(path)
            elif stat.S_IMODE(os.lstat(path).st_mode) == 0o700:
                os.rmdir(path)


def _open_mark(path: Path, flags: int = 0) -> int:
    return os.open(path / MARK, flags | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def _has_mark(path: Path) -> bool:
    """Whether a file in a folder has the mark, or as much of it as was written before a kill."""
    try:
        descriptor = _open_mark(path)
    except FileNotFoundError:
        return False
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return is_file and _TEXT.startswith(os.read(descriptor, len(_TEXT) + 1))
    finally:
        close_unwritten(descriptor)


def _remove_unlocked(path: Path) -> None:
    """Remove a folder of ours; OSError if it is in use."""
    descriptor = _open_mark(path, os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(path)
    finally:
        close_unwritten(descriptor)
