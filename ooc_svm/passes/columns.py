"""Statistics of the columns, and what bounds on rounding follow from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import ANY_NUMBER, WHOLE, Fused, Position, RowSlice, WholeRead

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


@dataclass(slots=True)
class Magnitudes:
    """How large the values of the data are, and how many of them are added one after another."""

    columns: Float64Array  # shape (n_features,): weighted sums of ``|x_ij|`` over the rows, or the largest
    weight: float = 0.0  # Sum of the rows' weights
    square: float = 0.0  # Largest squared norm of a row, where the largest values are asked for
    nonzeros: int = 0  # Of the row that has most
    rows: int = 0
    # Largest number of additions that a row's part in a sum over all rows goes through
    chain: int = 0


@dataclass(frozen=True, slots=True)
class _MagnitudePass:
    """What both passes have in common."""

    n_features: int
    position: Position = WHOLE
    rows: ClassVar[None] = None
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ()

    def empty(self) -> Magnitudes:
        return Magnitudes(np.zeros(self.n_features))

    def _count(self, block: RowBlock, partial: Magnitudes) -> None:
        lengths = np.diff(block.indptr)
        partial.nonzeros = max(partial.nonzeros, int(lengths.max(initial=0)))
        partial.rows += len(lengths)
        partial.chain += len(lengths)

    def merge(self, left: Magnitudes, right: Magnitudes) -> Magnitudes:
        self._join(left.columns, right.columns)
        left.weight += right.weight
        left.square = max(left.square, right.square)
        left.nonzeros = max(left.nonzeros, right.nonzeros)
        left.rows += right.rows
        left.chain = max(left.chain, right.chain) + 1
        return left

    def _join(self, left: Float64Array, right: Float64Array) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class MagnitudeSums(_MagnitudePass):
    """Sums of ``|x_ij|`` over the rows, with their weights; equal requests are answered once."""

    weight: str | None = None  # Name of the row vector of weights
    fewest: ClassVar[int] = 2
    most: ClassVar[int] = ANY_NUMBER

    @property
    def kind(self) -> Hashable:
        """Equal requests."""
        return self

    @staticmethod
    def fuse(parts: Sequence[MagnitudeSums]) -> Fused:
        """One of them, whose result is that of all."""
        return Fused(parts[0], lambda result: [result] * len(parts))

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self.weight is None else (self.weight,)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Magnitudes) -> None:
        assert block is not None
        weights = np.ones(rows.stop - rows.start) if self.weight is None else rows.vectors[self.weight]
        row_ops.add_magnitudes(*block.arrays, weights, partial.columns)
        partial.weight += float(weights.sum())
        self._count(block, partial)

    def _join(self, left: Float64Array, right: Float64Array) -> None:
        left += right


@dataclass(frozen=True, slots=True, eq=False)
class NormedMagnitudes(MagnitudeSums):
    """The same, and the largest norm of a row."""

    scale2: Float64Array | None = None  # Squares of the columns' scales, for the norms

    @property
    def kind(self) -> Hashable:
        """Equal requests, of the same scales."""
        return self.n_features, self.position, self.weight, id(self.scale2)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Magnitudes) -> None:
        assert block is not None
        MagnitudeSums.visit(self, block, rows, partial)
        most = row_ops.largest_magnitudes(*block.arrays, self.scale2, np.zeros(self.n_features))
        partial.square = max(partial.square, most)


@dataclass(frozen=True, slots=True, eq=False)
class LargestMagnitudes(_MagnitudePass):
    """The largest ``|x_ij|`` of each column, and the largest norm of a row."""

    scale2: Float64Array | None = None  # Squares of the columns' scales, for the norms
    reads: ClassVar[tuple[str, ...]] = ()

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Magnitudes) -> None:
        assert block is not None
        most = row_ops.largest_magnitudes(*block.arrays, self.scale2, partial.columns)
        partial.square = max(partial.square, most)
        self._count(block, partial)

    def _join(self, left: Float64Array, right: Float64Array) -> None:
        np.maximum(left, right, out=left)
