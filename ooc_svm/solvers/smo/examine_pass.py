"""What a round of a read does: score its rows, and copy those that violate the KKT conditions.

    y_i (u_i - y_i) < -tol with alpha_i < c_i,   or   y_i (u_i - y_i) > tol with alpha_i > 0          (12)

The scores of all rows are those of one point, that of the beginning of the read: P at it is exact then, and
the sums over the multipliers of that moment are what D follows from. Violations are judged by the point that
the solver has reached when the round begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import Position, RowSet, RowSlice
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.cutting_plane.row_rules import RowLosses
from ooc_svm.solvers.smo.rows import HeldRows

# Sums over the rows: of alpha, of y alpha; numbers of multipliers at no bound, at c, and outside their bounds
ALPHA, TOTAL, FREE, BOUND, OUTSIDE = range(5)
N_SUMS = 5

# By as much of its bound may rounding have put a multiplier outside.
BEYOND = 2.0**-49


@dataclass(frozen=True, slots=True)
class SmoModel:
    """One model as the passes see it."""

    targets: RowTargets
    loss: Any  # The hinge loss
    C: float
    name: str  # Prefix of the row vectors

    @property
    def alpha(self) -> str:
        """Row vector of the multipliers."""
        return f"{self.name}/alpha"

    @property
    def scores(self) -> str:
        """Row vector of the scores at the point of the last read, without the threshold."""
        return f"{self.name}/scores"

    @property
    def best(self) -> str:
        """Row vector of the scores at the best point."""
        return f"{self.name}/best"

    @property
    def losses(self) -> RowLosses:
        """The losses of the rows at the scores of the last read."""
        return LossesOfScores(self.targets, self.loss, self.name)

    def classes_and_bounds(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """``y`` and ``c`` of each row."""
        y, weight = self.targets.values(rows.vectors)
        return y, self.C * weight


@dataclass(frozen=True, slots=True)
class LossesOfScores(RowLosses):
    """Losses of rows whose scores are in one row vector: a segment without length."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.scores, *self.targets.reads)

    @property
    def scores(self) -> str:
        """Row vector of the scores."""
        return f"{self.name}/scores"

    def segment(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        return rows.vectors[self.scores], rows.vectors[self.scores]


@dataclass(slots=True)
class Examined:
    """What some rows have come to."""

    weights: Float64Array  # shape (n_features,): ``sum_i alpha_i y_i x_i``
    sums: Float64Array = field(default_factory=lambda: np.zeros(N_SUMS))
    violators: list[HeldRows] = field(default_factory=list)
    magnitudes: Magnitudes = field(default_factory=lambda: Magnitudes(np.empty(0)))

    def add(self, other: Examined) -> None:
        """Add what other rows have come to, but the violators."""
        self.weights += other.weights
        self.sums += other.sums
        join_magnitudes(self.magnitudes, other.magnitudes)


def join_magnitudes(left: Magnitudes, right: Magnitudes) -> None:
    """Add the magnitudes of other rows; sums go through as many additions as there are rows, at most."""
    if not right.rows:
        return
    left.columns = left.columns + right.columns if left.rows else right.columns
    left.weight += right.weight
    left.square = max(left.square, right.square)
    left.nonzeros = max(left.nonzeros, right.nonzeros)
    left.rows += right.rows
    left.chain = left.rows


@dataclass(frozen=True, slots=True)
class ExaminePass:
    """The rows of a round.

    Attributes
    ----------
    model : SmoModel
    scale2 : ndarray of float64 or None
        Squares of the columns' scales.
    start : ndarray of float64, shape (n_features,)
        Weights that the read began with: all rows are scored by them.
    now : ndarray of float64, shape (n_features,), or None
        Weights of the moment, by which rows are examined; None: no rows are examined.
    b, tol : float
        Threshold and tolerance.
    held : ndarray of int64
        Numbers of the rows that are in memory, ascending.
    measure : bool
        Whether the magnitudes of the rows are wanted, which bounds on rounding follow from.
    """

    model: SmoModel
    scale2: Float64Array | None
    start: Float64Array
    now: Float64Array | None
    b: float
    tol: float
    held: Int64Array
    measure: bool
    rows: RowSet
    position: Position
    prefetch: tuple[int, ...] = ()
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.alpha, *self.model.targets.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.scores,)

    def empty(self) -> Examined:
        return Examined(np.zeros(len(self.start)))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Examined) -> None:
        assert block is not None
        own = np.arange(rows.start - block.start, rows.stop - block.start, rows.step)
        alpha, (y, c) = rows.vectors[self.model.alpha], self.model.classes_and_bounds(rows)
        scores = _scores(block, own, self.start)
        rows.vectors[self.model.scores][:] = scores
        coefficients = np.zeros(block.n_rows)
        coefficients[own] = y * alpha
        row_ops.add_rows(*block.arrays, self.scale2, coefficients, partial.weights)
        outside = (alpha < 0.0) | (alpha > c * (1.0 + BEYOND)) | ~np.isfinite(alpha)
        n_bound = int(((alpha >= c) & (c > 0.0)).sum())
        n_free = int((alpha > 0.0).sum()) - n_bound
        partial.sums += [alpha.sum(), (y * alpha).sum(), n_free, n_bound, outside.sum()]
        if self.measure:
            join_magnitudes(partial.magnitudes, self._magnitudes(block, own, c))
        if self.now is not None:
            outputs = scores if self.now is self.start else _scores(block, own, self.now)
            self._collect(block, own, np.column_stack([y, c, alpha, outputs]), partial)

    def _collect(self, block: RowBlock, own: Int64Array, known: Float64Array, partial: Examined) -> None:
        """Copy the rows that violate the conditions and are not in memory."""
        y, c, alpha, outputs = known.T
        r = y * (outputs + self.b) - 1.0
        violates = ((r < -self.tol) & (alpha < c)) | ((r > self.tol) & (alpha > 0.0))
        candidates = np.flatnonzero(violates)
        ids = block.start + own[candidates]
        candidates = candidates[~_among(ids, self.held)]
        if len(candidates):
            partial.violators.append(HeldRows.of_block(block, own[candidates], known[candidates]))

    def _magnitudes(self, block: RowBlock, own: Int64Array, c: Float64Array) -> Magnitudes:
        """Sizes of the rows, weighted by their bounds: what a multiplier can be."""
        weights, lengths = np.zeros(block.n_rows), np.diff(block.indptr)[own]
        weights[own] = c
        columns, squares = np.zeros(len(self.start)), np.empty(len(own))
        row_ops.add_magnitudes(*block.arrays, weights, columns)
        row_ops.row_squares(*block.arrays, self.scale2, own, squares)
        largest = float(squares.max(initial=0.0))
        n = len(own)
        return Magnitudes(columns, float(c.sum()), largest, int(lengths.max(initial=0)), n, n)

    def merge(self, left: Examined, right: Examined) -> Examined:
        left.add(right)
        left.violators += right.violators
        return left


def _scores(block: RowBlock, own: Int64Array, w: Float64Array) -> Float64Array:
    scores = np.empty(len(own))
    row_ops.row_scores(*block.arrays, own.view(np.uint64), w, scores)
    return scores


def _among(ids: Int64Array, ascending: Int64Array) -> Any:
    """Which of the numbers are among others."""
    if not len(ascending):
        return np.zeros(len(ids), np.bool_)
    places = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    return ascending[places] == ids


@dataclass(frozen=True, slots=True)
class PutMultipliers:
    """Rule on row vectors: some rows have new multipliers."""

    model: SmoModel
    ids: Int64Array  # Row numbers, ascending
    multipliers: Float64Array
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.alpha,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        first, last = np.searchsorted(self.ids, [rows.start, rows.stop])
        places, own = self.ids[first:last] - rows.start, self.multipliers[first:last]
        if rows.step > 1:
            inside = places % rows.step == 0
            places, own = places[inside] // rows.step, own[inside]
        rows.vectors[self.model.alpha][places] = own
