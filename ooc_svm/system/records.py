"""Records of arrays in files of a scratch folder, each with a checksum.

Records are appended to files of unknown length, so a format with one header for all arrays (safetensors,
`ooc_svm.system.arrayfile`) does not fit; a sequence of ``.npy`` arrays would, but has no checksums.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import StorageError
from ooc_svm.system.address import AnyPath
from ooc_svm.system.files import open_to_read

_ADVICE = "check the disk and its free space, then run again"


def append_record(path: Path, arrays: Sequence[npt.NDArray[Any]]) -> None:
    """Append arrays and their checksum to a file, which is created if it does not exist.

    Raises StorageError if writing fails.
    """
    checksum = 0
    try:
        with open(path, "ab", opener=_open_private) as file:
            for array in arrays:
                file.write(array.data)
                checksum = zlib.crc32(array.data, checksum)
            file.write(np.array([checksum], np.int64).data)
    except OSError as error:
        raise StorageError(f"{path}: writing failed: {error.strerror}; {_ADVICE}") from error


class RecordFile:
    """Reads the records that `append_record` has written; a context manager.

    All methods raise StorageError: reading failed, or the content differs from what was written.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path, self._checksum = path, 0
        try:
            self._file = open_to_read(path)
        except StorageError:  # of an object
            raise
        except OSError as error:
            raise self._failure(error) from error

    def read(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The next array of a record."""
        array = np.empty(length, dtype)
        try:
            self.require(self._file.readinto(array.data) == array.nbytes)
        except StorageError:
            raise
        except OSError as error:
            raise self._failure(error) from error
        self._checksum = zlib.crc32(array.data, self._checksum)
        return array

    def require(self, condition: bool) -> None:
        """Raise StorageError if a property of all written records does not hold."""
        if not condition:
            raise StorageError(f"{self._path}: what was read is not what was written; {_ADVICE}")

    def end_record(self) -> None:
        """Check the arrays read since the last call against their checksum."""
        expected = self._checksum
        self.require(int(self.read(1, np.int64)[0]) == expected)
        self._checksum = 0

    def _failure(self, error: OSError) -> StorageError:
        return StorageError(f"{self._path}: reading failed: {error.strerror}; {_ADVICE}")

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
