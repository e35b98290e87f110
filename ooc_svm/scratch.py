"""A folder beside a target for what a run must put aside; the next run removes what a killed one left."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from types import TracebackType

from ooc_svm.errors import StorageError

_TOKEN_BYTES = 8


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
        self.path = target.with_name(f"{target.name}.scratch-{secrets.token_hex(_TOKEN_BYTES)}")

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
        shutil.rmtree(self.path, ignore_errors=True)
