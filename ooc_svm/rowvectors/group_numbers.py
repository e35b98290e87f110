"""The numbers of groups of rows (qid), checked to be distinct."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array, row_slices
from ooc_svm.errors import InputError, parameter
from ooc_svm.ops.hashing import GOLDEN
from ooc_svm.rowvectors.growing import GrowingVector

# Bytes of memory for each number while numbers are compared.
_NUMBER_BYTES = 32


class GroupNumbers:
    """The numbers of groups, to check that each group is in one place.

    Numbers that do not fit the memory are in a scratch file.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._numbers = GrowingVector(np.int64, memory_bytes // 2)
        self._ascending, self._last = True, -1

    def add(self, numbers: Int64Array) -> None:
        """Add the numbers of the next groups."""
        if len(numbers):
            rising = bool((numbers[1:] > numbers[:-1]).all()) and int(numbers[0]) > self._last
            self._ascending, self._last = self._ascending and rising, int(numbers[-1])
            self._numbers.append(numbers)

    def check(self, source: str) -> None:
        """Raise InputError if a group is in several places: if a number was added twice."""
        if self._ascending:
            return
        most = max(self._memory_bytes // 2 // _NUMBER_BYTES, 1)
        n_buckets = -(-self._numbers.n_rows // most)
        for bucket in range(n_buckets):
            parts = []
            for own in self._slices():
                part = np.sort(own[_buckets_of(own, n_buckets) == bucket])
                _check_sorted(part, source)  # now: a number that is repeated often would fill the memory
                parts.append(part)
            numbers = np.concatenate(parts)
            del parts
            numbers.sort()
            _check_sorted(numbers, source)

    def close(self) -> None:
        """Release the numbers."""
        self._numbers.close()

    def _slices(self) -> Iterator[Int64Array]:
        for start, stop in row_slices(self._numbers.n_rows):
            yield self._numbers.read(start, stop)


def _check_sorted(numbers: Int64Array, source: str) -> None:
    """Raise InputError if a number is twice among sorted ones."""
    repeated = numbers[1:] == numbers[:-1]
    if repeated.any():
        raise InputError(
            f"{source}: rows of the group qid:{numbers[int(np.argmax(repeated))]} are in several places; "
            "rows of a group must follow one another: sort the rows by qid, or convert with "
            f"{parameter('group', True)}"
        )


def _buckets_of(numbers: Int64Array, n_buckets: int) -> npt.NDArray[np.uint64]:
    return (numbers.view(np.uint64) * GOLDEN >> np.uint64(32)) % np.uint64(n_buckets)
