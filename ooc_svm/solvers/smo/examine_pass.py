"""What a round of a read does: score its rows, and copy those that violate the KKT conditions.

    y_i (u_i - y_i) < -tol with alpha_i < c_i,   or   y_i (u_i - y_i) > tol with alpha_i > 0          (12)

The scores of all rows are those of one point, that of the beginning of the read: P at it is exact then, and
the sums over the multipliers of that moment are what D follows from. Violations are judged by the point that
the solver has reached when the round begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array, RowBlock
from ooc_svm.passes.base import Position, RowSet, RowSlice
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.passes.gather import take_rows
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.cutting_plane.row_rules import ScoredLosses
from ooc_svm.solvers.smo.rows import HeldRows

# Sums over the rows: of alpha, of v = y alpha, of v times the score; numbers of multipliers at no bound, at
# c, and outside their bounds
SIZE, TOTAL, SQUARE, FREE, BOUND, OUTSIDE = range(6)
N_SUMS = 6

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
    def multipliers(self) -> str:
        """Row vector of ``v = y alpha``."""
        return f"{self.name}/multipliers"

    @property
    def coefficients(self) -> str:
        """Row vector of v at the best point."""
        return f"{self.name}/coefficients"

    @property
    def start(self) -> str:
        """Row vector of v at the beginning of the read."""
        return f"{self.name}/start"

    @property
    def scores(self) -> str:
        """Row vector of the scores at the point of the last read, without the threshold."""
        return self.losses.previous

    @property
    def best(self) -> str:
        """Row vector of the scores at the best point."""
        return f"{self.name}/best"

    @property
    def losses(self) -> ScoredLosses:
        """The losses of the rows at the scores of the last read."""
        return ScoredLosses(self.targets, self.loss, self.name)

    def classes_and_bounds(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """``y`` and ``c`` of each row."""
        y, weight = self.targets.values(rows.vectors)
        return y, self.C * weight


class Scorer(Protocol):
    """The points of the beginning of a read and of now, as a pass over the data needs them."""

    @property
    def n_weights(self) -> int:
        """Length of the sum of the rows that is wanted; 0 where none is."""

    def scores(self, block: RowBlock, own: Int64Array) -> tuple[Float64Array, Float64Array]:
        """Scores of some rows of a block, without the threshold: of the beginning of the read, and of now."""

    def add_rows(self, block: RowBlock, coefficients: Float64Array, weights: Float64Array) -> None:
        """Add a block's rows, with a coefficient each, to the sum."""

    def magnitudes(self, block: RowBlock, own: Int64Array, bounds: Float64Array) -> Magnitudes:
        """Sizes of some rows, weighted by their bounds: what multipliers can be."""


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
    scorer : Scorer
    b, tol : float
        Threshold and tolerance; with an infinite one no row is a violator.
    held : ndarray of int64
        Numbers of the rows that are left out, ascending: those in memory.
    measure : bool
        Whether the magnitudes of the rows are wanted, which bounds on rounding follow from.
    """

    model: SmoModel
    scorer: Scorer
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
        return (self.model.multipliers, *self.model.targets.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.scores,)

    def empty(self) -> Examined:
        return Examined(np.zeros(self.scorer.n_weights))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Examined) -> None:
        assert block is not None
        own = rows.places_in(block)
        v, (y, c) = rows.vectors[self.model.multipliers], self.model.classes_and_bounds(rows)
        scores, outputs = self.scorer.scores(block, own)
        rows.vectors[self.model.scores][:] = scores
        coefficients = np.zeros(block.n_rows)
        coefficients[own] = v
        self.scorer.add_rows(block, coefficients, partial.weights)
        alpha = y * v
        outside = ~((alpha >= 0.0) & (alpha <= c * (1.0 + BEYOND)))
        n_bound = int(((alpha >= c) & (c > 0.0)).sum())
        n_free = int((alpha > 0.0).sum()) - n_bound
        partial.sums += [alpha.sum(), v.sum(), v @ scores, n_free, n_bound, outside.sum()]
        if self.measure:
            join_magnitudes(partial.magnitudes, self.scorer.magnitudes(block, own, c))
        r = y * (outputs + self.b) - 1.0
        violates = ((r < -self.tol) & (alpha < c)) | ((r > self.tol) & (alpha > 0.0))
        places = np.flatnonzero(violates)
        places = places[~_among(block.start + own[places], self.held)]
        if len(places):
            known = np.column_stack([y, c, alpha, outputs, alpha, alpha])[places]
            ids = block.start + own[places]
            partial.violators.append(HeldRows.of_block(take_rows(block, own[places]), ids, known))

    def merge(self, left: Examined, right: Examined) -> Examined:
        left.add(right)
        left.violators += right.violators
        return left


def _among(ids: Int64Array, ascending: Int64Array) -> BoolArray:
    """Which of the numbers are among others."""
    if not len(ascending):
        return np.zeros(len(ids), np.bool_)
    places = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    found: BoolArray = ascending[places] == ids
    return found


@dataclass(frozen=True, slots=True)
class ScoresApart:
    """Rule on row vectors: how far the kept scores are from those of the last read, times the bounds."""

    model: SmoModel
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.best, self.model.scores, *self.model.targets.reads)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        _, bounds = self.model.classes_and_bounds(rows)
        sums += bounds @ np.abs(rows.vectors[self.model.best] - rows.vectors[self.model.scores])


@dataclass(frozen=True, slots=True)
class PutMultipliers:
    """Rule on row vectors: some rows have new multipliers."""

    model: SmoModel
    ids: Int64Array  # Row numbers, ascending
    multipliers: Float64Array  # y alpha
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.multipliers,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        first, last = np.searchsorted(self.ids, [rows.start, rows.stop])
        places, own = self.ids[first:last] - rows.start, self.multipliers[first:last]
        if rows.step > 1:
            inside = places % rows.step == 0
            places, own = places[inside] // rows.step, own[inside]
        rows.vectors[self.model.multipliers][places] = own
