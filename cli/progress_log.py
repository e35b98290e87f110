"""A line of JSON for each pass, appended to a file while a training runs."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ooc_svm.cli.exit_codes import complain
from ooc_svm.errors import StorageError, UsageError

if TYPE_CHECKING:
    from ooc_svm.training.progress import Progress

_MODE = 0o666  # Of a new file, less the umask of the process


class PassLog:
    """The open file; `write` appends the line of an event.

    A line is written by one call of the operating system, so that no reader sees a part of it. Where that
    fails the run goes on: a warning is given once, and no more is written.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor, self._path = descriptor, path
        self._failed = False

    def write(self, event: Progress) -> None:
        """Append the line of a pass; other events have none."""
        if event.kind != "pass" or self._failed:
            return
        from ooc_svm.model.file import json_ready

        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps(json_ready({"time": now, **event.history_row()}), allow_nan=False) + "\n"
        try:
            self._append(line.encode())
        except OSError as error:
            self._failed = True
            complain(
                "warning",
                f"{self._path}: cannot be written: {error.strerror}; the run goes on, and its log ends here",
            )

    def _append(self, line: bytes) -> None:
        """Append a whole line, or nothing where the disk has no room for all of it."""
        size = os.fstat(self._descriptor).st_size
        if os.write(self._descriptor, line) < len(line):
            os.ftruncate(self._descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def pass_log(path: str | None) -> Iterator[PassLog | None]:
    """Open the log, to be appended to; None without a path.

    UsageError if something else than a log is there, StorageError if it cannot be opened.
    """
    if path is None:
        yield None
        return
    descriptor = _open(path)
    try:
        yield PassLog(descriptor, path)
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, _MODE)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}; give --log another file") from error
    try:
        status = os.fstat(descriptor)
        start = os.pread(descriptor, 1, 0) if stat.S_ISREG(status.st_mode) else b"?"
        if start not in (b"", b"{"):
            raise UsageError(
                f"{path}: is no log of a training, so nothing is added to it; choose another name"
            )
        if status.st_size and os.pread(descriptor, 1, status.st_size - 1) != b"\n":
            # A run was killed by a failing machine: its last line stays one of its own.
            os.write(descriptor, b"\n")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
