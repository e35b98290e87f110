"""Row vectors that are computed when they are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ooc_svm.rowvectors.vector import AnyArray, RowVector


class ComputedVector(RowVector):
    """A read-only row vector without entries of its own: `_read` computes them."""

    in_memory = False  # reading takes time

    def close(self) -> None:
        """Do nothing."""

    def _write(self, start: int, array: AnyArray) -> None:
        raise TypeError(f"a {type(self).__name__} cannot be written")


class MappedVector(ComputedVector):
    """A function of the entries of a row vector; closing the view does not close the vector.

    The function takes an array of entries and returns one of the same length.
    """

    def __init__(
        self, vector: RowVector, dtype: npt.DTypeLike, function: Callable[[AnyArray], AnyArray]
    ) -> None:
        super().__init__(vector.n_rows, dtype)
        self._vector, self._function = vector, function

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        made = self._function(self._vector.read(start, stop)).astype(self.dtype, copy=False)
        if out is None:
            return made
        out[: len(made)] = made
        return out[: len(made)]


def signs(vector: RowVector) -> MappedVector:
    """1 for entries above 0 and -1 for others, int8."""
    return MappedVector(vector, np.int8, lambda entries: np.where(entries > 0, 1, -1))


class PointVector(ComputedVector):
    """The point ``start + t (end - start)`` of the line through two row vectors of float64.

    Without t the vector is the direction, ``end - start``.
    """

    def __init__(self, start: RowVector, end: RowVector, t: float | None = None) -> None:
        super().__init__(start.n_rows, np.float64)
        self._start, self._end, self._t = start, end, t

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        made = np.empty(stop - start) if out is None else out[: stop - start]
        origin = self._start.read(start, stop)
        np.subtract(self._end.read(start, stop), origin, out=made)
        if self._t is not None:
            made *= self._t
            made += origin
        return made


class RangeVector(RowVector):
    """The rows ``first .. last`` of a row vector, counted from 0; closing it leaves the vector open."""

    def __init__(self, vector: RowVector, first: int, last: int) -> None:
        super().__init__(last - first, vector.dtype)
        self._vector, self._first = vector, first

    @property
    def in_memory(self) -> bool:
        """Whether the whole vector is in memory."""
        return self._vector.in_memory

    def close(self) -> None:
        """Do nothing."""

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return self._vector.read(self._first + start, self._first + stop, out)

    def _write(self, start: int, array: AnyArray) -> None:
        self._vector.write(self._first + start, array)


class ConstantVector(ComputedVector):
    """A row vector whose entries are all equal."""

    def __init__(self, n_rows: int, dtype: npt.DTypeLike, value: float) -> None:
        super().__init__(n_rows, dtype)
        self._value = value

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return np.full(stop - start, self._value, self.dtype)


class RowNumbers(ComputedVector):
    """The row vector 0, 1, 2, ...."""

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return np.arange(start, stop, dtype=self.dtype)
