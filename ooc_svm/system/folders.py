"""Folders that appear whole or not at all, and folders for scratch data; the next run removes leftovers.

A run that builds a folder locks ``<target>.lock``, builds in ``<target>.building-<id>`` next to the target,
forces files and folders to the disk, renames, and forces the parent folder to the disk. The next run on the
same target removes the leftovers of a killed run: while it holds the lock, no other run uses them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from ooc_svm.errors import StorageError, UsageError
from ooc_svm.system.files import storage_errors, sync_folder, write_fully

_TOKEN_BYTES = 8
_LOCK = "lock"


def remove_folder(folder: Path, doomed: Path) -> None:
    """Rename and remove a folder if it exists: threads that still write must not create it again."""
    if not folder.exists():
        return
    with contextlib.suppress(OSError):
        os.rename(folder, doomed)
        folder = doomed
    shutil.rmtree(folder, ignore_errors=True)


class Building:
    """The folder in which a new version of ``target`` is built.

    Folders that this package did not write, as `is_ours` says, are never replaced; others only with
    `overwrite`. Raises UsageError if the target exists and may not be replaced; StorageError if another run
    is writing the target, or its parent folder cannot be written.
    """

    def __init__(self, target: Path, is_ours: Callable[[Path], bool], *, overwrite: bool) -> None:
        # Only the parent is resolved: a link in place of the target is never followed.
        self.target = Path(os.path.abspath(target.parent)) / target.name
        self._is_ours, self._overwrite = is_ours, overwrite
        self._lock_path = self._sibling("lock")
        self.folder = self._doomed()
        self._advice = "check that the folder exists, can be written and has free space"
        with self._errors():
            self._lock = self._acquire()
            try:
                self._restore()
                self._refuse_existing()
                self._sweep()
                self.folder.mkdir(mode=0o700)
                probe = self.folder / "probe"
                with open(probe, "wb", buffering=0) as file:
                    write_fully(file.fileno(), b"probe")
                    os.fsync(file.fileno())
                probe.unlink()
            except BaseException:
                shutil.rmtree(self.folder, ignore_errors=True)
                self._release()
                raise

    def _errors(self) -> AbstractContextManager[None]:
        return storage_errors("writing", self.target, self._advice)

    def _sibling(self, suffix: str) -> Path:
        return self.target.with_name(f"{self.target.name}.{suffix}")

    def _leftovers(self, kind: str) -> list[Path]:
        prefix = f"{self.target.name}.{kind}-"
        return sorted(entry for entry in self.target.parent.iterdir() if entry.name.startswith(prefix))

    def _acquire(self) -> int:
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._lock_path, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise StorageError(
                    f"another run is writing {self.target} (it holds {self._lock_path}); "
                    "wait for it or choose another name"
                ) from None
            # The run before may have removed the file after it was opened and before it was locked.
            try:
                if os.path.samestat(os.fstat(descriptor), os.stat(self._lock_path)):
                    return descriptor
            except FileNotFoundError:
                pass
            os.close(descriptor)

    def _release(self) -> None:
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)

    def _restore(self) -> None:
        """Restore the old version if a run was killed after renaming it, before publishing the new one."""
        replaced = self._leftovers("replaced")
        if replaced and not os.path.lexists(self.target):
            os.rename(replaced[0], self.target)
            sync_folder(self.target.parent)

    def _refuse_existing(self) -> None:
        if not os.path.lexists(self.target):
            return
        if not self._overwrite:
            raise UsageError(f"{self.target} exists; remove it, choose another name, or ask to overwrite it")
        if not stat.S_ISDIR(os.lstat(self.target).st_mode) or not self._is_ours(self.target):
            raise UsageError(
                f"{self.target} exists and was not written by this program, so it is not overwritten; "
                "remove it or choose another name"
            )

    def _sweep(self) -> None:
        for replaced in self._leftovers("replaced"):
            self._discard(replaced)
        for building in self._leftovers("building"):
            shutil.rmtree(building)

    def _discard(self, replaced: Path) -> None:
        """Rename an old version and remove it: a partly removed one must never be restored."""
        doomed = self._doomed()
        os.rename(replaced, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _doomed(self) -> Path:
        """A new name of a folder that the next run removes."""
        return self._sibling(f"building-{secrets.token_hex(8)}")

    def publish(self) -> None:
        """Replace the target by the folder, which must be on the disk with all files and folders in it."""
        with self._errors():
            self._refuse_existing()
            inner = next(entry for entry in self.folder.iterdir() if entry.is_dir())
            os.chmod(self.folder, stat.S_IMODE(inner.stat().st_mode))
            replaced = self._sibling(f"replaced-{secrets.token_hex(8)}")
            if os.path.lexists(self.target):
                os.rename(self.target, replaced)
            os.rename(self.folder, self.target)
            sync_folder(self.target.parent)
            if os.path.lexists(replaced):
                self._discard(replaced)

    def close(self) -> None:
        """Remove the folder unless it was published, and release the lock."""
        try:
            remove_folder(self.folder, self._doomed())
            with self._errors():
                self._restore()
        finally:
            self._release()

    def __enter__(self) -> Building:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Scratch:
    """A private folder ``<target>.scratch-<id>``, created when it is first needed and removed on exit.

    Enter it while holding the lock of the target: other folders with such names are then leftovers of killed
    runs.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = self._new_name()

    def _new_name(self) -> Path:
        return self._target.with_name(f"{self._target.name}.scratch-{secrets.token_hex(_TOKEN_BYTES)}")

    def make(self) -> Path:
        """Create the folder with mode 0700 if it does not exist, or raise StorageError; return its path."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{self.path}: cannot be created: {error.strerror}; check the folder and its free space"
            ) from error
        return self.path

    def __enter__(self) -> Scratch:
        name = re.compile(re.escape(self._target.name) + rf"\.scratch-[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
        for entry in self._target.parent.iterdir():
            if name.fullmatch(entry.name) and stat.S_ISDIR(os.lstat(entry).st_mode):
                shutil.rmtree(entry, ignore_errors=True)
        return self

    def __exit__(self, *error: object) -> None:
        remove_folder(self.path, self._new_name())


@contextlib.contextmanager
def shared_folder(parent: Path, name: str) -> Iterator[Path]:
    """A private folder ``<parent>/<name>-<id>`` for files that other processes of this user read and write.

    This process locks a file in it; other folders of this name that are not locked are removed first. Raises
    StorageError if it cannot be created.
    """
    folder = parent / f"{name}-{secrets.token_hex(_TOKEN_BYTES)}"
    with contextlib.ExitStack() as stack:
        try:
            _sweep_unowned(parent, name)
            folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Another run may have removed it as a leftover before it was locked.
            os.stat(folder / _LOCK)
        except OSError as error:
            raise StorageError(
                f"{folder}: cannot be created: {error.strerror}; all processes of the run share files in it: "
                "name a folder that can be written with --checkpoint"
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
