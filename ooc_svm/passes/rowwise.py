"""Rules on rows, and passes over row vectors alone: no block of the matrix is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.passes.base import WHOLE, Position, RowSet, RowSlice


@dataclass(frozen=True, slots=True)
class RowCells:
    """Sums that rows are added to, some cells for each row."""

    numbers: npt.NDArray[np.int32]  # shape (places, rows): one of the rule's cells for each place
    # shape (places, rows): what the rows are added with, not at all where it is 0; None: 1
    weights: Float64Array | None


class NoCells:
    """What most rules have in common: rows are summed with coefficients alone."""

    n_cells: ClassVar[int] = 0


class Rule(Protocol):
    """What all rules have: row vectors that they read and change, and sums of some shape."""

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...

    @property
    def sums_shape(self) -> tuple[int, ...]: ...


class RowRule(Rule, Protocol):
    """What a pass does with the scores of some rows: mathematics of one loss, rows alone."""

    @property
    def width(self) -> int:
        """Number of weighted sums of rows that are wanted."""

    @property
    def n_cells(self) -> int:
        """Number of sums of the rows that are put there."""

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> RowCells | None:
        """Fill ``coefficients`` (width, rows) from ``scores`` (rows,) and add to ``sums``."""


class VectorRule(Rule, Protocol):
    """What a pass does with row vectors alone."""

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        """Change row vectors in place, and add to ``sums``."""


@dataclass(frozen=True, slots=True)
class CopyScores:
    """Rule on row vectors: one becomes a copy of another."""

    source: str
    target: str
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        rows.vectors[self.target][:] = rows.vectors[self.source]


@dataclass(frozen=True, slots=True)
class RowPass:
    """A rule on row vectors alone, by default of all rows; no block of the matrix is read."""

    rule: VectorRule
    rows: RowSet | None = None
    needs_data: ClassVar[bool] = False
    position: ClassVar[Position] = WHOLE
    prefetch: ClassVar[tuple[int, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return self.rule.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return self.rule.writes

    def empty(self) -> Float64Array:
        return np.zeros(self.rule.sums_shape)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        self.rule(rows, partial)

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        left += right
        return left
