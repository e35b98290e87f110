"""The row vectors of a run, by name."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import row_slices
from ooc_svm.errors import DamageError
from ooc_svm.rowvectors.vector import DiskVector, MemoryVector, RowVector
from ooc_svm.system.folders import default_scratch_folder


class RowVectors:
    """Row vectors by name: in memory until the memory of all together is used up, then on disk.

    `scratch_dir` is the folder of those that do not fit, by default that of `default_scratch_folder`. `held`
    are ranges ``(start, stop)`` of the rows of the data that have entries here, ascending; by default all.
    The length of every vector, `n_rows`, is the number of these rows.
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
        """Index in the vectors of a row of the data; the next rows of its held range follow it.

        IndexError if the row is in none of the held ranges.
        """
        number = bisect_right(self._starts, row) - 1
        if number < 0 or row >= self.held[number][1]:
            raise IndexError(f"row {row} is not held here")
        return self._places[number] + row - self._starts[number]

    def held_within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Intersections of the held ranges with ``start .. stop``."""
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
        """Create the vector `name`, with the value `fill` in every entry (None: any value).

        ValueError if there is one already, StorageError if it does not fit the memory and cannot be created
        on disk.
        """
        if name in self._vectors:
            raise ValueError(f"there is a row vector {name!r} already")
        vector = self._vectors[name] = self._make(name, dtype, fill)
        return vector

    def _make(self, name: str, dtype: npt.DTypeLike, fill: float | None) -> RowVector:
        """The new vector; a subclass may make one of its own kind."""
        needed = self.n_rows * np.dtype(dtype).itemsize
        if self.bytes_in_memory + needed <= self.memory_bytes:
            return MemoryVector(self.n_rows, dtype, fill)
        return DiskVector(self.n_rows, dtype, self.scratch_dir, fill)

    def __getitem__(self, name: str) -> RowVector:
        return self._vectors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._vectors

    def names(self) -> list[str]:
        """The names in the order of creation."""
        return list(self._vectors)

    def drop(self, name: str) -> None:
        """Close and remove the vector `name`."""
        self._vectors.pop(name).close()

    def save(self, name: str, fileobj: BinaryIO) -> None:
        """Write the entries of `name` to `fileobj`, raw and little-endian, a slice at a time."""
        vector = self[name]
        for start, stop in row_slices(self.n_rows):
            chunk = vector.read(start, stop)
            fileobj.write(chunk.astype(vector.dtype.newbyteorder("<"), copy=False).data)

    def load(self, name: str, fileobj: BinaryIO) -> None:
        """Set the entries of `name` from the output of `save`; DamageError if it ends too early."""
        vector = self[name]
        stored = vector.dtype.newbyteorder("<")
        for start, stop in self._set_at_once():
            chunk = _read_exactly(fileobj, (stop - start) * stored.itemsize, name)
            vector.write(start, np.frombuffer(chunk, stored).astype(vector.dtype, copy=False))

    def _set_at_once(self) -> Iterable[tuple[int, int]]:
        """Ranges of rows that `load` sets one after another: all rows, in order."""
        return row_slices(self.n_rows)

    def close(self) -> None:
        """Close and remove every vector."""
        for name in self.names():
            self.drop(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _read_exactly(fileobj: BinaryIO, n_bytes: int, name: str) -> bytes:
    chunks: list[bytes] = []
    missing = n_bytes
    while missing:
        chunk = fileobj.read(missing)
        if not chunk:
            source = getattr(fileobj, "name", "the file")
            raise DamageError(
                f"{source}: ends inside the row vector {name!r}; it was cut short: use another copy"
            )
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)
