"""Folders that appear whole or not at all, and folders for scratch data; the next run removes leftovers.

A run that builds a folder locks ``<target>.lock``, builds in ``<target>.building-<id>`` next to the target,
forces files and folders to the disk, renames, and forces the parent folder to the disk. The next run on the
same target removes the leftovers of a killed run, as `ooc_svm.system.private_folders` knows them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

from ooc_svm.errors import StorageError, UsageError, parameter
from ooc_svm.system import private_folders
from ooc_svm.system.address import Address, AnyPath
from ooc_svm.system.descriptors import close_unwritten
from ooc_svm.system.files import exchange, put_file, status_of, storage_errors, sync_folder, write_fully
from ooc_svm.system.signals import entered, uninterrupted

Target = TypeVar("Target", Path, Address)


def _remove_renamed(folder: Path, doomed: str) -> None:
    """Rename and remove a marked folder if it exists: threads that still write must not create it again."""
    if status_of(folder) is not None:
        with contextlib.suppress(OSError):
            folder = folder.rename(folder.with_name(doomed))
        private_folders.remove(folder)


def refuse_to_replace(target: Target, overwrite: bool, is_ours: Callable[[Target], bool]) -> None:
    """UsageError for what lies at a target, unless it may be replaced and was written by this program."""
    if not overwrite:
        raise UsageError(
            f"{target} exists; remove it, choose another name, or replace it with "
            f"{parameter('overwrite', True)}"
        )
    is_folder = isinstance(target, Address) or stat.S_ISDIR(os.lstat(target).st_mode)
    if not is_folder or not is_ours(target):
        raise UsageError(
            f"{target} exists and was not written by this program, so it is not overwritten; "
            "remove it or choose another name"
        )


class Building:
    """The folder in which a new version of ``target`` is built.

    Folders that this package did not write, as `is_ours` says, are never replaced, renamed or removed; others
    are replaced with `overwrite` only. Raises UsageError if the target exists and may not be replaced;
    StorageError if another run is writing the target, or its parent folder cannot be written.
    """

    def __init__(self, target: Path, is_ours: Callable[[Path], bool], *, overwrite: bool) -> None:
        # Nothing is resolved: a link in place of the target is never followed, and ".." behind a link is for
        # the system to understand.
        self.target = target.parent.absolute() / target.name
        self._is_ours, self._overwrite = is_ours, overwrite
        self._lock_path = self.target.with_name(f"{self.target.name}.lock")
        self._building, self._replaced = f"{self.target.name}.building-", f"{self.target.name}.replaced-"
        self._advice = "check that the folder exists, can be written and has free space"
        with self._errors(), contextlib.ExitStack() as stack:
            self._lock = self._acquire()
            stack.callback(self._release)
            self._restore()
            self._refuse_existing()
            self._sweep()
            self.folder, descriptor = private_folders.make_new(self.target.parent, self._building)
            stack.callback(close_unwritten, descriptor)
            stack.callback(self._remove)
            self._probe()
            self._resources = stack.pop_all()

    def _probe(self) -> None:
        """Write and remove a file, to fail now rather than after hours."""
        probe = self.folder / "probe"
        with open(probe, "wb", buffering=0) as file:
            write_fully(file.fileno(), b"probe")
            os.fsync(file.fileno())
        probe.unlink()

    def _remove(self) -> None:
        _remove_renamed(self.folder, private_folders.new_name(self._building))

    def _errors(self) -> AbstractContextManager[None]:
        return storage_errors("writing", self.target, self._advice)

    def _old_versions(self) -> list[Path]:
        """What the target was before a run was killed while it replaced it."""
        return list(filter(self._is_ours, private_folders.named_like(self.target.parent, self._replaced)))

    def _acquire(self) -> int:
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._lock_path, flags, 0o600)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size:
                close_unwritten(descriptor)
                raise UsageError(
                    f"{self._lock_path} is not a lock of this program, and is needed as one; rename it or "
                    "choose another name"
                )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                close_unwritten(descriptor)
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
            close_unwritten(descriptor)

    def _release(self) -> None:
        self._lock_path.unlink(missing_ok=True)
        close_unwritten(self._lock)

    def _restore(self) -> None:
        """Restore the old version if a run was killed after renaming it, before publishing the new one."""
        if not self._exists() and (old := self._old_versions()):
            os.rename(old[0], self.target)
            sync_folder(self.target.parent)

    def _refuse_existing(self) -> None:
        if self._exists():
            refuse_to_replace(self.target, self._overwrite, self._is_ours)

    def _sweep(self) -> None:
        for old in self._old_versions():
            self._discard(old)
        # Whole stores are among them: new ones that were not published, and old ones to be removed.
        private_folders.sweep(self.target.parent, self._building, is_ours=self._is_ours)

    def _discard(self, old: Path) -> None:
        """Rename an old version and remove it: a partly removed one must never be restored."""
        private_folders.remove(old.rename(old.with_name(private_folders.new_name(self._building))))

    def confirm(self) -> None:
        """Nothing to check: the lock keeps other runs out."""

    def publish(self) -> None:
        """Replace the target by the folder, which must be on the disk with all files and folders in it."""
        with self._errors():
            self._refuse_existing()
            inner = next(entry for entry in self.folder.iterdir() if entry.is_dir())
            os.chmod(self.folder, stat.S_IMODE(inner.stat().st_mode))
            os.unlink(self.folder / private_folders.MARK)
            sync_folder(self.folder)
            if self._exists() and exchange(self.folder, self.target):
                sync_folder(self.target.parent)
                private_folders.remove(self.folder)  # the old version, by now
                return
            replaced = self.target.with_name(private_folders.new_name(self._replaced))
            if self._exists():
                os.rename(self.target, replaced)
            os.rename(self.folder, self.target)
            sync_folder(self.target.parent)
            if status_of(replaced, follow=False) is not None:
                self._discard(replaced)

    def _exists(self) -> bool:
        return status_of(self.target, follow=False) is not None

    def close(self) -> None:
        """Remove the folder unless it was published, and release the lock."""
        with uninterrupted(), self._errors(), self._resources:
            self._restore()

    def __enter__(self) -> Building:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def default_scratch_folder() -> Path:
    """``TMPDIR`` if set, else ``/var/tmp`` (``/tmp`` is memory on many machines), else Python's default."""
    disk = Path("/var/tmp")
    if "TMPDIR" not in os.environ and os.access(disk, os.W_OK | os.X_OK):
        return disk
    return Path(tempfile.gettempdir())


class Scratch:
    """A private folder ``<target>.scratch-<id>``, created when it is first needed and removed on exit.

    That of an address lies in the folder for temporary files. Enter it while holding the lock of the target.
    """

    def __init__(self, target: AnyPath) -> None:
        local = target if isinstance(target, Path) else default_scratch_folder() / target.name
        self._target, self._prefix = local, f"{target.name}.scratch-"
        self.path = local.with_name(private_folders.new_name(self._prefix))
        self._lock: int | None = None

    def make(self) -> Path:
        """Create the folder with mode 0700 if it does not exist, or raise StorageError; return its path."""
        try:
            if self._lock is None:
                with uninterrupted():
                    self._lock = private_folders.make(self.path)
        except OSError as error:
            raise StorageError(
                f"{self.path}: cannot be created: {error.strerror}; check the folder and its free space"
            ) from error
        return self.path

    def __enter__(self) -> Scratch:
        private_folders.sweep(self._target.parent, self._prefix)
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            _remove_renamed(self.path, private_folders.new_name(self._prefix))
            close_unwritten(self._lock)


@contextlib.contextmanager
def private_folder(parent: Path, name: str, advice: str) -> Iterator[Path]:
    """A private folder ``<parent>/<name>-<id>``, removed at the end.

    Others of this name that are not in use are removed first. Raises StorageError, with the advice, if it
    cannot be created.
    """
    with contextlib.ExitStack() as stack:
        try:
            private_folders.sweep(parent, f"{name}-")
            folder = stack.enter_context(entered(partial(private_folders.made, parent, f"{name}-")))
        except OSError as error:
            raise StorageError(f"{parent / name}: cannot be created: {error.strerror}; {advice}") from error
        yield folder


class ScratchFiles:
    """Files that a process makes in ``local``, and shares with the others of its run in ``target``."""

    def __init__(self, local: Path, target: AnyPath) -> None:
        self.local, self._target = local, target

    def share(self, path: Path) -> AnyPath:
        """Put a file where all processes see it; return its place there."""
        if path.parent == self._target:
            return path
        place = self._target / path.name
        put_file(path, place)
        path.unlink()
        return place


@contextlib.contextmanager
def scratch_files(target: AnyPath) -> Iterator[ScratchFiles]:
    """Files for a folder that processes share; for one in an object store they are made on the local disk."""
    if isinstance(target, Path):
        yield ScratchFiles(target, target)
        return
    advice = "name another folder in TMPDIR, or free space there"
    with private_folder(default_scratch_folder(), "ooc-svm-shared", advice) as folder:
        yield ScratchFiles(folder, target)


@contextlib.contextmanager
def _private_prefix(address: Address) -> Iterator[Address]:
    """A folder of objects that no other run has, removed at the end."""
    from ooc_svm.system.objects import Bucket

    bucket = Bucket(address)
    bucket.check_writable(address.key)
    try:
        yield address
    finally:
        bucket.remove(bucket.walk(address.key))


def shared_folder(parent: AnyPath, name: str) -> AbstractContextManager[AnyPath]:
    """A `private_folder` for files that other processes of this user read and write."""
    if isinstance(parent, Address):
        return _private_prefix(parent / private_folders.new_name(f"{name}-"))
    checkpoint = parameter("checkpoint")
    advice = f"all processes of the run share files in it: give {checkpoint} a folder that can be written"
    return private_folder(parent, name, advice)
