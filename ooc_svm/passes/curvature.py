"""A linear pass, and the products of the columns over rows that its rule has weighted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import Position, RowSlice
from ooc_svm.passes.linear import LinearPass, LinearSums


@dataclass(slots=True)
class CurvatureSums:
    """Sums of a linear pass, and ``sum_i weight_i x_i x_i'``."""

    linear: LinearSums
    # shape (n_features + 1, n_features + 1), the upper triangle, or (n_features + 1,), its diagonal; the
    # last feature is 1 in every row
    products: Float64Array


@dataclass(frozen=True, slots=True)
class CurvaturePass:
    """A linear pass of one model; products of the columns, weighted with a row vector that its rule fills."""

    linear: LinearPass
    weight: str  # Name of the row vector
    diagonal: bool  # Whether the products of a column with itself are enough
    rows: ClassVar[None] = None
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return self.linear.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return self.linear.writes

    @property
    def position(self) -> Position:
        return self.linear.position

    def empty(self) -> CurvatureSums:
        size = len(self.linear.weights) + 1
        return CurvatureSums(self.linear.empty(), np.zeros(size if self.diagonal else (size, size)))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: CurvatureSums) -> None:
        assert block is not None
        self.linear.visit(block, rows, partial.linear)
        add = row_ops.add_squares if self.diagonal else row_ops.add_products
        add(*block.arrays, 0, rows.vectors[self.weight], partial.products)

    def merge(self, left: CurvatureSums, right: CurvatureSums) -> CurvatureSums:
        left.linear = self.linear.merge(left.linear, right.linear)
        left.products += right.products
        return left
