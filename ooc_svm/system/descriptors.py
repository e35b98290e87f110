"""Descriptors that nothing is written through: folders, locks, and files that are read."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any


def close_unwritten(descriptor: int) -> None:
    """Close a descriptor that nothing which matters was written through.

    It is closed even if the system reports an error, and the error says nothing about what was read.
    """
    with contextlib.suppress(OSError):
        os.close(descriptor)


class NamedFile(io.FileIO):
    """A file that is read through a descriptor; errors of reading it name its path."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "rb")
        self._path = path

    def readinto(self, buffer: Any) -> int:
        with self._named_errors():
            return super().readinto(buffer)

    def read(self, size: int | None = -1) -> bytes:
        with self._named_errors():
            return super().read(-1 if size is None else size)

    def readall(self) -> bytes:
        with self._named_errors():
            return super().readall()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = self._path
            raise

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()
