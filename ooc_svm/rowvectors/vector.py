"""Vectors with one entry a row (scores, multipliers, targets), in memory or in a scratch file.

An algorithm asks :class:`RowVectors` for a vector by name and reads and writes ranges of it; where the
entries live is decided once, by the memory allowed, and never shows. Scratch files are read and written with
positioned calls, not mapped: mapped pages would count as memory of this process.
"""

from __future__ import annotations

import errno
import os
import tempfile
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, StorageError
from ooc_svm.system.memory import format_size

AnyArray = npt.NDArray[Any]

# Rows handled at a time where a whole vector is streamed: half a megabyte of float64.
SLICE_ROWS = 1 << 16


def row_slices(n_rows: int, size: int = SLICE_ROWS) -> Iterator[tuple[int, int]]:
    """Ranges ``(start, stop)`` of at most `size` rows that cover ``0 .. n_rows`` in order."""
    for start in range(0, n_rows, size):
        yield start, min(start + size, n_rows)


class RowVector(ABC):
    """One entry a row. Ranges that do not overlap may be read and written from several threads at once.

    Attributes
    ----------
    n_rows : int
    dtype : numpy.dtype
    nbytes : int
        Bytes of all entries, wherever they are.
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
        """Whether the entries are in memory (and :meth:`read` costs nothing)."""

    def read(self, start: int, stop: int, out: AnyArray | None = None) -> AnyArray:
        """Entries of the rows ``start .. stop``.

        Parameters
        ----------
        start, stop : int
        out : ndarray of this dtype, at least ``stop - start`` long, contiguous, optional
            Where a vector on disk puts the entries (without it: a new array). A vector in memory leaves it
            alone.

        Returns
        -------
        ndarray, shape (stop - start,)
            A view of the vector itself or of `out`: only :meth:`write` changes the vector for certain.

        Raises
        ------
        IndexError
            For rows that do not exist.
        StorageError
            If the scratch file cannot be read.
        """
        self._check_range(start, stop)
        return self._read(start, stop, out)

    def write(self, start: int, array: AnyArray) -> None:
        """Set the entries of the rows from `start` on.

        Raises
        ------
        IndexError
            For rows that do not exist.
        TypeError
            If the conversion to the dtype of the vector would change the kind of number.
        StorageError
            If the scratch file cannot be written.
        """
        self._check_range(start, start + len(array))
        self._write(start, np.ascontiguousarray(array.astype(self.dtype, casting="same_kind", copy=False)))

    @abstractmethod
    def close(self) -> None:
        """Give the entries up; closing twice does no harm."""

    @abstractmethod
    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray: ...

    @abstractmethod
    def _write(self, start: int, array: AnyArray) -> None: ...

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of a vector of {self.n_rows} rows")


class MemoryVector(RowVector):
    """A row vector that is an array.

    Parameters
    ----------
    n_rows : int
    dtype : data type
    fill : number or None
        The value of every entry at first; None: any.
    """

    def __init__(self, n_rows: int, dtype: npt.DTypeLike, fill: float | None = 0) -> None:
        super().__init__(n_rows, dtype)
        # np.zeros takes pages from the system as they are touched, np.full touches all.
        if fill is None:
            self._array = np.empty(n_rows, self.dtype)
        else:
            self._array = np.zeros(n_rows, self.dtype) if fill == 0 else np.full(n_rows, fill, self.dtype)

    @classmethod
    def wrap(cls, array: AnyArray) -> MemoryVector:
        """A row vector over the entries of `array`, which it shares."""
        vector = cls(0, array.dtype)
        vector._array = array
        vector.n_rows, vector.nbytes = len(array), array.nbytes
        return vector

    @property
    def in_memory(self) -> bool:
        """Always true."""
        return True

    def close(self) -> None:
        """Let go of the array."""
        self._array = np.empty(0, self.dtype)

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return self._array[start:stop]

    def _write(self, start: int, array: AnyArray) -> None:
        self._array[start : start + len(array)] = array


class DiskVector(RowVector):
    """A row vector in a temporary file without a name: it is gone when the process is.

    Parameters
    ----------
    n_rows : int
    dtype : data type
    folder : path
        Where the file is made, readable by its owner alone.
    fill : number or None
        The value of every entry at first; None: any.

    Raises
    ------
    StorageError
        If the folder cannot be written or has too little space: all of it is taken at once, not as passes
        need it.
    """

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

    @property
    def in_memory(self) -> bool:
        """Always false."""
        return False

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
            "free space there, name another folder in TMPDIR, or allow more --memory"
        )


def default_scratch_folder() -> Path:
    """``TMPDIR`` if set, else ``/var/tmp`` (``/tmp`` is memory on many machines), else what Python finds."""
    disk = Path("/var/tmp")
    if "TMPDIR" not in os.environ and os.access(disk, os.W_OK | os.X_OK):
        return disk
    return Path(tempfile.gettempdir())


class RowVectors:
    """Row vectors by name: in memory while what is allowed lasts, on disk from then on.

    Parameters
    ----------
    n_rows : int
        Of the data.
    memory_bytes : int
        What the vectors in memory may use together.
    scratch_dir : path, optional
        Folder for the others; see :func:`default_scratch_folder`.
    held : sequence of (int, int), optional
        The ranges ``(start, stop)`` of rows that have entries here, ascending; by default all rows.

    Attributes
    ----------
    n_rows : int
        Length of every vector: the rows held.
    """

    def __init__(
        self,
        n_rows: int,
        memory_bytes: int,
        scratch_dir: str | os.PathLike[str] | None = None,
        held: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.held = [(0, n_rows)] if held is None else list(held)
        self._starts = [start for start, _ in self.held]
        self._places = [0, *accumulate(stop - start for start, stop in self.held)]
        self.n_rows = self._places[-1]
        self.memory_bytes = memory_bytes
        self.scratch_dir = default_scratch_folder() if scratch_dir is None else Path(scratch_dir)
        self._vectors: dict[str, RowVector] = {}

    def place(self, row: int) -> int:
        """Where the vectors have a row of the data; those behind it in its held range follow.

        Raises
        ------
        IndexError
            If it is in none of the held ranges.
        """
        number = bisect_right(self._starts, row) - 1
        if number < 0 or row >= self.held[number][1]:
            raise IndexError(f"row {row} is not held here")
        return self._places[number] + row - self._starts[number]

    def held_within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of the held ranges that lie in ``start .. stop``."""
        for first, last in self.held[max(bisect_right(self._starts, start) - 1, 0) :]:
            if first >= stop:
                return
            if last > start:
                yield max(first, start), min(last, stop)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of the vectors that are in memory."""
        return sum(vector.nbytes for vector in self._vectors.values() if vector.in_memory)

    def create(self, name: str, dtype: npt.DTypeLike, fill: float | None = 0) -> RowVector:
        """Make the vector `name`, every entry `fill` (None: any).

        Raises
        ------
        ValueError
            If the name is taken.
        StorageError
            If it has to go to disk and cannot.
        """
        if name in self._vectors:
            raise ValueError(f"there is a row vector {name!r} already")
        vector = self._vectors[name] = self._make(name, dtype, fill)
        return vector

    def _make(self, name: str, dtype: npt.DTypeLike, fill: float | None) -> RowVector:
        needed = self.n_rows * np.dtype(dtype).itemsize
        if self.bytes_in_memory + needed <= self.memory_bytes:
            return MemoryVector(self.n_rows, dtype, fill)
        return DiskVector(self.n_rows, dtype, self.scratch_dir, fill)

    def __getitem__(self, name: str) -> RowVector:
        return self._vectors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._vectors

    def names(self) -> list[str]:
        """The names in use, in the order they were made."""
        return list(self._vectors)

    def drop(self, name: str) -> None:
        """Give up the vector `name` and what it used."""
        self._vectors.pop(name).close()

    def save(self, name: str, fileobj: BinaryIO) -> None:
        """Write the entries of `name` to `fileobj`, raw and little-endian, a slice at a time."""
        vector = self[name]
        for start, stop in row_slices(self.n_rows):
            part = vector.read(start, stop)
            fileobj.write(part.astype(vector.dtype.newbyteorder("<"), copy=False).data)

    def load(self, name: str, fileobj: BinaryIO) -> None:
        """Set the entries of the vector `name` from what :meth:`save` wrote.

        Raises
        ------
        DamageError
            If `fileobj` ends too early.
        """
        vector = self[name]
        stored = vector.dtype.newbyteorder("<")
        for start, stop in row_slices(self.n_rows):
            part = _read_exactly(fileobj, (stop - start) * stored.itemsize, name)
            vector.write(start, np.frombuffer(part, stored).astype(vector.dtype, copy=False))

    def close(self) -> None:
        """Give up every vector."""
        for name in self.names():
            self.drop(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_exactly(fileobj: BinaryIO, n_bytes: int, name: str) -> bytes:
    parts: list[bytes] = []
    missing = n_bytes
    while missing:
        part = fileobj.read(missing)
        if not part:
            source = getattr(fileobj, "name", "the file")
            raise DamageError(
                f"{source}: ends inside the row vector {name!r}; it was cut short: use another copy"
            )
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
