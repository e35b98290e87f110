"""Files forced to the disk behind the caller's back: a disk takes several at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

from ooc_svm.system.files import sync_folder, write_fully

_AT_ONCE = 4
_MOST_WAITING = 16


class BackgroundSync:
    """Writes files at once and forces them to the disk in threads of its own; any thread may use it.

    Only open files wait, at most 16 and those of the callers: their content is the system's by then. A file
    that could not be forced is raised by a later call, at the latest by `wait`.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ooc-svm-sync")
        self._pending: deque[Future[None]] = deque()
        self._lock = Lock()

    def write(self, root: Path, key: str, *parts: bytes | memoryview) -> None:
        """Write a file in a folder; folders between the two are made where they are missing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        path = root / key
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:
            for folder in reversed(Path(key).parents[:-1]):
                (root / folder).mkdir(exist_ok=True)
            descriptor = os.open(path, flags, 0o666)
        try:
            for part in parts:
                write_fully(descriptor, part)
        except BaseException:
            os.close(descriptor)
            raise
        self._put(_sync_and_close, descriptor)

    def sync_folders(self, root: Path) -> None:
        """Force the entries of a folder and of all folders in it to the disk; returns when they are."""
        for folder, _, _ in os.walk(root):
            self._put(sync_folder, Path(folder))
        self.wait()

    def _put(self, function: Callable[..., None], *arguments: Any) -> None:
        oldest = None
        with self._lock:
            self._pending.append(self._pool.submit(function, *arguments))
            if len(self._pending) > _MOST_WAITING:
                oldest = self._pending.popleft()
        if oldest is not None:
            oldest.result()

    def wait(self) -> None:
        """Return when everything written so far is on the disk."""
        while True:
            with self._lock:
                if not self._pending:
                    return
                oldest = self._pending.popleft()
            oldest.result()

    def __enter__(self) -> BackgroundSync:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
