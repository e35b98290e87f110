"""Rows that moved since the scores of all rows were brought up to date."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock, Values
from ooc_svm.passes.gather import join_rows, take_rows


@dataclass(slots=True)
class Backlog:
    """Rows in the order of their numbers, and by how much their multipliers have changed.

    The rows that are set aside have not followed these changes yet, so that a checkpoint holds them.
    """

    values: Values  # shape (nonzeros,); empty where every value is 1
    numbers: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    ends: Int64Array = field(default_factory=lambda: np.zeros(1, np.int64))
    indices: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    change: Float64Array = field(default_factory=lambda: np.empty(0))
    ones: bool = field(default=False, metadata={"saved": False})

    @property
    def rows(self) -> RowBlock:
        """The rows."""
        return RowBlock(0, self.ends, self.indices, None if self.ones else self.values)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    def add(self, numbers: Int64Array, rows: RowBlock, change: Float64Array) -> None:
        """Add changes of rows; those of one row are added up."""
        own = [self.rows] if self.n_rows else []
        numbers, first, places = np.unique(
            np.concatenate([self.numbers, numbers]), return_index=True, return_inverse=True
        )
        total = np.bincount(places, np.concatenate([self.change, change]), len(numbers)).astype(np.float64)
        self._set(numbers, take_rows(join_rows([*own, rows]), first), total)

    def clear(self) -> None:
        """All rows have followed."""
        rows = RowBlock(0, np.zeros(1, np.int64), self.indices[:0], self.values[:0])
        self._set(np.empty(0, np.int64), rows, np.empty(0))

    def _set(self, numbers: Int64Array, rows: RowBlock, change: Float64Array) -> None:
        self.numbers, self.ends, self.indices, self.change = numbers, rows.indptr, rows.indices, change
        if rows.values is not None:
            self.values = rows.values

    def is_sound(self, n_features: int, n_rows: int) -> bool:
        """Whether its parts fit each other; a saved one may come from anywhere."""
        numbers = self.numbers
        inside = not len(numbers) or (numbers[0] >= 0 and numbers[-1] < n_rows)
        fits = len(self.change) == len(numbers) and bool(np.isfinite(self.change).all())
        rising = bool((numbers[1:] > numbers[:-1]).all())
        return bool(inside and fits and rising) and are_rows(
            self.ends, self.indices, None if self.ones else self.values, len(numbers), n_features
        )


def are_rows(
    ends: Int64Array, indices: npt.NDArray[np.int32], values: Values | None, n_rows: int, n_features: int
) -> bool:
    """Whether arrays are so many rows that compiled functions can take."""
    if len(ends) != n_rows + 1 or ends[0] != 0 or ends[-1] != len(indices) or (np.diff(ends) < 0).any():
        return False
    if values is not None and len(values) != len(indices):
        return False
    return not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < n_features)
