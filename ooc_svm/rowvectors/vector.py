"""Vectors with one entry for each row (scores, multipliers, targets), in memory or in a scratch file.

Callers read and write ranges of rows; both kinds behave alike. Scratch files are read and written with
positioned calls, not mapped: mapped pages would count as memory of this process.
"""

from __future__ import annotations

import errno
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import SLICE_ROWS, row_slices
from ooc_svm.errors import StorageError, parameter
from ooc_svm.system.memory import format_size

AnyArray = npt.NDArray[Any]


class RowVector(ABC):
    """One entry for each row. Disjoint ranges may be read and written from several threads at once.

    `nbytes` are the bytes of all entries, in memory or on disk.
    """

    def __init__(self, n_rows: int, dtype: npt.DTypeLike) -> None:
        self.n_rows = n_rows
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype.kind not in "biuf":
            raise TypeError(f"a row vector holds numbers, not {self.dtype}")
        self.nbytes = n_rows * self.dtype.itemsize

    @property
    @abstractmethod
    def in_memory(self) -> bool:
        """Whether the entries are in memory, so that `read` costs nothing."""

    def read(self, start: int, stop: int, out: AnyArray | None = None) -> AnyArray:
        """Entries of the rows ``start .. stop``, as a view: use `write` to change the vector.

        It is a view of the vector itself or of `out`, which is a buffer for the entries of a vector on disk,
        of this dtype, contiguous and at least ``stop - start`` long; by default a new array. IndexError if
        the rows do not exist, StorageError if the scratch file cannot be read.
        """
        self._check_range(start, stop)
        return self._read(start, stop, out)

    def write(self, start: int, array: AnyArray) -> None:
        """Set the entries of the rows from `start` on.

        IndexError if the rows do not exist, TypeError if conversion to the dtype of the vector would change
        the kind of number, StorageError if the scratch file cannot be written.
        """
        self._check_range(start, start + len(array))
        self._write(start, np.ascontiguousarray(array.astype(self.dtype, casting="same_kind", copy=False)))

    @abstractmethod
    def close(self) -> None:
        """Release the entries; closing again has no effect."""

    @abstractmethod
    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray: ...

    @abstractmethod
    def _write(self, start: int, array: AnyArray) -> None: ...

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of a vector of {self.n_rows} rows")


class MemoryVector(RowVector):
    """A row vector that is an array, with `fill` in every entry; None: any value."""

    in_memory = True

    def __init__(self, n_rows: int, dtype: npt.DTypeLike, fill: float | None = 0) -> None:
        super().__init__(n_rows, dtype)
        # np.zeros takes pages from the system when they are first used, np.full uses all of them.
        if fill is None:
            self._array = np.empty(n_rows, self.dtype)
        else:
            self._array = np.zeros(n_rows, self.dtype) if fill == 0 else np.full(n_rows, fill, self.dtype)

    @classmethod
    def wrap(cls, array: AnyArray) -> MemoryVector:
        """A row vector that shares the entries of `array`."""
        vector = cls(0, array.dtype)
        vector._array = array
        vector.n_rows, vector.nbytes = len(array), array.nbytes
        return vector

    def close(self) -> None:
        """Release the array."""
        self._array = np.empty(0, self.dtype)

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return self._array[start:stop]

    def _write(self, start: int, array: AnyArray) -> None:
        self._array[start : start + len(array)] = array


class DiskVector(RowVector):
    """A row vector in a temporary file without a name, which does not outlive the process.

    Only its owner can read it. `fill` is the initial value of every entry; None: any value. StorageError if
    the folder cannot be written or has too little space: all space is reserved at once.
    """

    in_memory = False

    def __init__(self, n_rows: int, dtype: npt.DTypeLike, folder: Path, fill: float | None = 0) -> None:
        super().__init__(n_rows, dtype)
        self._folder = folder
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  (closed by close)
        except OSError as error:
            raise self._failure(error) from error
        try:
            self._reserve()
            if fill:
                constant = np.full(min(n_rows, SLICE_ROWS), fill, self.dtype)
                for start, stop in row_slices(n_rows):
                    self._write(start, constant[: stop - start])
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file, which frees its space."""
        self._file.close()

    def _reserve(self) -> None:
        if self.nbytes == 0:
            return
        try:
            os.posix_fallocate(self._file.fileno(), 0, self.nbytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise self._failure(error) from error
            os.truncate(self._file.fileno(), self.nbytes)

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        entries = np.empty(stop - start, self.dtype) if out is None else out[: stop - start]
        if entries.dtype != self.dtype or len(entries) != stop - start:
            raise TypeError(f"the buffer must hold {stop - start} entries of {self.dtype}")
        rest = entries.view(np.uint8).data
        offset = start * self.dtype.itemsize
        while len(rest):
            try:
                done = os.preadv(self._file.fileno(), [rest], offset)
            except OSError as error:
                raise self._failure(error) from error
            if done == 0:
                raise StorageError(f"a scratch file in {self._folder} has become shorter; run again")
            rest, offset = rest[done:], offset + done
        return entries

    def _write(self, start: int, array: AnyArray) -> None:
        rest = array.view(np.uint8).data
        offset = start * self.dtype.itemsize
        while len(rest):
            try:
                done = os.pwrite(self._file.fileno(), rest, offset)
            except OSError as error:
                raise self._failure(error) from error
            rest, offset = rest[done:], offset + done

    def _failure(self, error: OSError) -> StorageError:
        return StorageError(
            f"scratch data ({format_size(self.nbytes)}) in {self._folder}: {error.strerror}; "
            f"free space there, name another folder in TMPDIR, or allow more {parameter('memory')}"
        )
