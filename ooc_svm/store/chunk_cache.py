"""Chunks of a store in a bucket, kept on a local disk and shared by runs.

A stream over the data is a cyclic scan, of which a cache that drops the oldest keeps nothing. So a fixed part
of the chunks, spread over the store, is kept as long as runs want it: the same part for every run with the
same size of the cache. Each store has a folder named after its content. Those of other stores make room, the
one that was used longest ago first, unless a run uses them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import warnings
import weakref
import zlib
from contextlib import suppress
from pathlib import Path

import google_crc32c
import numpy as np

from ooc_svm.errors import DamageError, StorageError
from ooc_svm.store.layout import CHECKSUM_BYTES
from ooc_svm.store.storage import Bytes, LocalStorage, MissingError, NewBytes
from ooc_svm.system.files import storage_errors
from ooc_svm.system.memory import parse_size

_ATTEMPTS = 100  # To make and lock a folder that other runs remove
_PREFIX = "ooc-svm-chunks-"
_LOCK = "lock"
_RANGE = 2**32


def size_of(folder: Path, wanted: int | str | None) -> int:
    """Bytes that a cache may have; by default half of what is free on its disk, and what it has.

    The folder need not be there yet.
    """
    if wanted is not None:
        return parse_size(wanted)
    with storage_errors("looking at", folder, "check the path of the cache"):
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        own = sum(_size(each) for each in _folders(folder))
        return shutil.disk_usage(there).free // 2 + own


class ChunkCache:
    """The chunks of one store in a cache that may have ``most_bytes``, of ``n_bytes`` in all.

    Any thread may use it. StorageError where the folder cannot be used; a disk that becomes full later ends
    writing to the cache alone.
    """

    def __init__(self, parent: Path, store_id: str, n_bytes: int, most_bytes: int) -> None:
        self._lock = threading.Lock()
        self._is_full = False
        self._folder = parent / f"{_PREFIX}{store_id[:32]}"
        with storage_errors("making", self._folder, "give the cache a folder that can be written"):
            weakref.finalize(self, os.close, _lock(self._folder))  # for as long as the store is open
            os.utime(self._folder)
        self._files = LocalStorage(self._folder)
        own = min(n_bytes, most_bytes)
        self._room = max(min(own, most_bytes - _make_room(parent, self._folder, most_bytes - own)), 0)
        self._share = int(_RANGE * min(self._room / max(n_bytes, 1), 1.0))
        self._room -= _size(self._folder)

    def _place(self, key: str) -> Path:
        return self._folder / key.replace("/", ".")

    def keeps(self, key: str) -> bool:
        """Whether a chunk is one of those that are kept."""
        return zlib.crc32(key.encode()) < self._share

    def announce(self, key: str) -> bool:
        """Whether a chunk is here; the disk begins with it then."""
        place = self._place(key)
        if not self.keeps(key) or not place.exists():
            return False
        self._files.announce(place.name)
        return True

    def read(self, key: str, size: int, buffer: NewBytes) -> Bytes | None:
        """A chunk that is here, as `ooc_svm.store.storage.Storage.read` returns it, else None.

        It is checked where chunks of any place are.
        """
        if not self.keeps(key):
            return None
        try:
            return self._files.read(self._place(key).name, 0, size, buffer=buffer)
        except MissingError:
            return None
        except (DamageError, StorageError):
            self.forget(key)
            return None

    def forget(self, key: str) -> bool:
        """Remove a chunk that is damaged; whether it was here."""
        place = self._place(key)
        try:
            with self._lock:
                size = place.stat().st_size
                place.unlink()
                self._room += size
        except OSError:
            return False
        return True

    def write(self, key: str, content: memoryview) -> None:
        """Keep a chunk, if it is one of those that are kept and there is room."""
        if not self.keeps(key) or not _is_whole(content):
            return
        with self._lock:
            if self._is_full or self._room < len(content):
                return
            self._room -= len(content)
        place = self._place(key)
        temporary = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            temporary.write_bytes(content)
            temporary.rename(place)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._is_full = True
            warnings.warn(
                f"{self._folder}: the cache cannot be written ({error.strerror}), so that more is fetched; "
                "free space there",
                stacklevel=2,
            )


def _is_whole(content: memoryview) -> bool:
    body, expected = np.frombuffer(content, np.uint8)[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    return len(body) > 0 and google_crc32c.value(body) == int.from_bytes(expected, "little")


def _lock(folder: Path) -> int:
    """Make a folder and lock it, so that no run removes it; the descriptor of the lock."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileExistsError, FileNotFoundError):
            # Another run may remove the folder before each of these steps; a link that leads nowhere stays.
            if not left:
                raise
            continue
        try:
            _sweep_unused(folder, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(descriptor), os.stat(folder / _LOCK)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise StorageError(f"{folder}: other runs remove it again and again; give the cache another folder")


def _sweep_unused(folder: Path, lock: int) -> None:
    """Remove the chunks that killed runs were writing, unless a run uses the folder."""
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(folder / _LOCK)):
            for each in folder.glob(".*"):
                each.unlink(missing_ok=True)


def _folders(parent: Path) -> list[Path]:
    """The folders of a cache that this user made, the one that was used longest ago first."""
    if not parent.is_dir():
        return []
    found = []
    for each in parent.iterdir():
        if each.name.startswith(_PREFIX):
            with suppress(FileNotFoundError):
                status = each.stat()
                if status.st_uid == os.geteuid() and (each / _LOCK).exists():
                    found.append((status.st_mtime, each))
    return [each for _, each in sorted(found)]


def _size(folder: Path) -> int:
    """Bytes of what is in a folder; other runs may rename and remove files of it, and remove it."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                total += entry.stat().st_size
    return total


def _make_room(parent: Path, own: Path, allowed: int) -> int:
    """Remove folders of other stores until they have no more bytes than allowed; return their bytes."""
    others = [each for each in _folders(parent) if each != own]
    sizes = {each: _size(each) for each in others}
    for each in others:
        if sum(sizes.values()) <= allowed:
            break
        with suppress(FileNotFoundError), open(each / _LOCK) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove(each)
        sizes[each] = _size(each)
    return sum(sizes.values())


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        # Another run has removed it, or begun to use it again.
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise StorageError(f"{folder}: cannot be removed: {error.strerror}; remove it") from error
