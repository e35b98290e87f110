"""Copies of rows that a solver works on, as a checkpoint holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array, RowBlock, Values


@dataclass(slots=True)
class CopiedRows:
    """Some rows of the data."""

    values: Values  # shape (nonzeros,); empty where every value is 1
    numbers: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    ends: Int64Array = field(default_factory=lambda: np.zeros(1, np.int64))
    indices: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    ones: bool = field(default=False, metadata={"saved": False})

    @property
    def rows(self) -> RowBlock:
        """The rows."""
        return RowBlock(0, self.ends, self.indices, None if self.ones else self.values)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    def emptied(self) -> Self:
        """What has no rows, of the same kind."""
        return type(self)(self.values[:0], ones=self.ones)

    def _take(self, numbers: Int64Array, rows: RowBlock) -> None:
        """Have other rows in place of these."""
        self.numbers, self.ends, self.indices = numbers, rows.indptr, rows.indices
        if rows.values is not None:
            self.values = rows.values

    def _are_rows(self, n_features: int) -> bool:
        """Whether they are so many rows that compiled functions can take; saved ones come from anywhere."""
        ends, indices = self.ends, self.indices
        if len(ends) != self.n_rows + 1 or ends[0] != 0 or ends[-1] != len(indices):
            return False
        if (np.diff(ends) < 0).any() or not (self.ones or len(self.values) == len(indices)):
            return False
        return not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < n_features)
