"""The memory of an evaluation."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import SLICE_ROWS
from ooc_svm.rowvectors.group_numbers import GroupNumbers
from ooc_svm.rowvectors.growing import GrowingVector

# Bytes of a query number.
NUMBER_BYTES = 8


class Workspace:
    """Hands out memory to the parts of an evaluation. A context manager, which closes them.

    A part may hold a share in proportion to the bytes of one of its entries, out of `entry_bytes`: those of
    one entry of each part, or more to leave memory free for work. What the parts do not hold is free for
    work.
    """

    def __init__(self, n_bytes: int, entry_bytes: int) -> None:
        self._n_bytes, self._entry_bytes = n_bytes, max(entry_bytes, 1)
        self._reserved = 0
        self._vectors: list[GrowingVector] = []
        self._numbers: list[GroupNumbers] = []

    @property
    def free(self) -> int:
        """Bytes that no part holds."""
        held = sum(vector.bytes_in_memory for vector in self._vectors)
        return max(self._n_bytes - self._reserved - held, 0)

    def grow(self, n_bytes: int) -> None:
        """Add memory."""
        self._n_bytes += n_bytes

    def vector(self, dtype: npt.DTypeLike, first_rows: int | None = None) -> GrowingVector:
        """A row vector; entries that do not fit its share go to scratch files."""
        share = self._share(np.dtype(dtype).itemsize)
        self._vectors.append(GrowingVector(dtype, share, first_rows=first_rows or SLICE_ROWS))
        return self._vectors[-1]

    def release(self, *vectors: GrowingVector) -> None:
        """Close row vectors; their memory is free again."""
        for vector in vectors:
            vector.close()
            self._vectors.remove(vector)

    def group_numbers(self) -> GroupNumbers:
        """Numbers of queries, in a share that stays reserved."""
        share = self._share(NUMBER_BYTES)
        self._reserved += share
        self._numbers.append(GroupNumbers(share))
        return self._numbers[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for vector in self._vectors:
            vector.close()
        for numbers in self._numbers:
            numbers.close()

    def _share(self, entry_bytes: int) -> int:
        return self._n_bytes * entry_bytes // self._entry_bytes
