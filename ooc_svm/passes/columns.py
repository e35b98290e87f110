"""Statistics of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import RowSlice, WholeRead

LEAST_VARIANCE = 1e-10  # Variance of a column, as a share of its mean square, that counts as none


@dataclass(slots=True)
class ColumnSums:
    """Largest magnitude, sum and sum of squares of each column, ndarrays of shape (n_features,)."""

    largest: Float64Array
    total: Float64Array
    squares: Float64Array

    def deviation(self, n_rows: int) -> Float64Array:
        """Standard deviation of each column over all rows, those without a stored value included.

        0 where it is lost in the rounding of the sums: below a hundred thousandth of the column's magnitude.
        """
        mean_square = self.squares / n_rows
        variance = mean_square - (self.total / n_rows) ** 2
        return np.sqrt(np.where(variance <= LEAST_VARIANCE * mean_square, 0.0, variance))


@dataclass(frozen=True, slots=True)
class ColumnPass(WholeRead):
    """Statistics of the columns, for scaling."""

    n_features: int
    needs_data: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()

    def empty(self) -> ColumnSums:
        return ColumnSums(*np.zeros((3, self.n_features)))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: ColumnSums) -> None:
        assert block is not None
        row_ops.column_statistics(*block.arrays, partial.largest, partial.total, partial.squares)

    def merge(self, left: ColumnSums, right: ColumnSums) -> ColumnSums:
        np.maximum(left.largest, right.largest, out=left.largest)
        left.total += right.total
        left.squares += right.squares
        return left
