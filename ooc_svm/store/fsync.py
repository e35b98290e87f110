"""Background work of a writer: chunks are compressed, and files forced to the disk, several at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from ooc_svm.system.files import sync_folder, write_fully

# Files forced to the disk at once, and open files that wait for it.
_AT_ONCE = 4
_MOST_WAITING = 16


class BackgroundCalls:
    """Calls functions in threads of its own; a context manager. Any thread may use it.

    What a function raises is raised by a later call of `put`, at the latest by `wait`. `waiting` calls may be
    left when `put` returns; with `drop`, those that have not begun are left out at the end of the context.
    """

    def __init__(self, threads: int, waiting: int, *, drop: bool) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ooc-svm-write")
        self._waiting, self._drop = waiting, drop
        self._pending: deque[Future[None]] = deque()
        self._lock = Lock()

    def put(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function soon."""
        with self._lock:
            self._pending.append(self._pool.submit(function, *arguments))
        self._wait_for(self._waiting)

    def wait(self) -> None:
        """Return when all calls put so far are done."""
        self._wait_for(0)

    def _wait_for(self, most: int) -> None:
        """Return when no more than so many calls are not done."""
        while True:
            with self._lock:
                if len(self._pending) <= most:
                    return
                oldest = self._pending.popleft()
            oldest.result()

    def __enter__(self) -> BackgroundCalls:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=self._drop)


class BackgroundSync:
    """Writes files at once and, if they are ``durable``, forces them to the disk in the background.

    A context manager, for any thread. Only open files wait, at most 16 and those of the callers: the system
    has their content by then. A file that could not be forced is raised by a later call, at the latest by
    `wait`.
    """

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable
        self._calls = BackgroundCalls(_AT_ONCE, _MOST_WAITING, drop=False)
        self.wait = self._calls.wait

    def write(self, root: Path, key: str, *parts: bytes | memoryview) -> None:
        """Write a file in a folder; missing folders between the two are made."""
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
        if self._durable:
            self._calls.put(_sync_and_close, descriptor)
        else:
            os.close(descriptor)

    def sync_folders(self, root: Path) -> None:
        """Force the entries of a folder and of all folders in it to the disk, if files are durable."""
        for folder, _, _ in os.walk(root) if self._durable else ():
            self._calls.put(sync_folder, Path(folder))
        self.wait()

    def __enter__(self) -> BackgroundSync:
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.__exit__(*error)


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
