"""Folders for what a run must put aside; the next run removes what a killed one left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from ooc_svm.errors import StorageError
from ooc_svm.store.commit import remove_folder

_TOKEN_BYTES = 8
_LOCK = "lock"


class Scratch:
    """A private folder ``<target>.scratch-<id>``, made when it is first needed and removed on every exit.

    To be entered while the caller holds the lock of the target: whatever folder of this name is there then
    belongs to a run that is dead.

    Parameters
    ----------
    target : Path

    Attributes
    ----------
    path : Path
        Of the folder, whether it is there or not.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = self._new_name()

    def _new_name(self) -> Path:
        return self._target.with_name(f"{self._target.name}.scratch-{secrets.token_hex(_TOKEN_BYTES)}")

    def make(self) -> Path:
        """Make the folder, mode 0700, if it is not there; its path.

        Raises
        ------
        StorageError
            It cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{self.path}: cannot be made: {error.strerror}; check the folder and its free space"
            ) from error
        return self.path

    def _sweep(self) -> None:
        name = re.compile(re.escape(self._target.name) + rf"\.scratch-[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
        for entry in self._target.parent.iterdir():
            if name.fullmatch(entry.name) and stat.S_ISDIR(os.lstat(entry).st_mode):
                shutil.rmtree(entry, ignore_errors=True)

    def __enter__(self) -> Scratch:
        self._sweep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        remove_folder(self.path, self._new_name())


@contextlib.contextmanager
def shared_folder(parent: Path, name: str) -> Iterator[Path]:
    """A private folder ``<parent>/<name>-<id>`` for files that other processes of this user read and write.

    Its owner holds a lock on a file in it: those of this name that nobody holds are removed first.

    Raises
    ------
    StorageError
        It cannot be made.
    """
    folder = parent / f"{name}-{secrets.token_hex(_TOKEN_BYTES)}"
    with contextlib.ExitStack() as stack:
        try:
            _sweep_unowned(parent, name)
            folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            with contextlib.suppress(OSError):  # some network file systems know no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Another run may have removed it as nobody's before it was locked.
            os.stat(folder / _LOCK)
        except OSError as error:
            raise StorageError(
                f"{folder}: cannot be made: {error.strerror}; it is to hold what all processes of the run "
                "share: name a folder that can be written with --checkpoint"
            ) from error
        yield folder


def _sweep_unowned(parent: Path, name: str) -> None:
    pattern = re.compile(re.escape(name) + rf"-[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
    for entry in parent.iterdir():
        if not pattern.fullmatch(entry.name):
            continue
        with contextlib.suppress(OSError):  # in use, another user's, or gone
            descriptor = os.open(entry / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(os.lstat(entry).st_mode):
                    shutil.rmtree(entry, ignore_errors=True)
            finally:
                os.close(descriptor)
