"""What a read of the data, and passes over row vectors, do with the rows of one model.

Rules and passes of the cutting-plane solvers for losses that are sums over rows; see
`ooc_svm.solvers.cutting_plane.row_oracle`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.passes.base import RowSlice, WholeRead
from ooc_svm.passes.rowwise import NoCells, RowCells
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.cutting_plane import row_loops
from ooc_svm.solvers.cutting_plane.cuts import RayScores

BINS = 2048  # Bins that the breakpoints of a segment are counted in first

# The bias without penalty and the shift of the breakpoint, at the start of a segment and at its end
FreeEnds = tuple[tuple[float, float], tuple[float, float]]
NOTHING_FREE: FreeEnds = ((0.0, 0.0), (0.0, 0.0))


@dataclass(frozen=True, slots=True)
class RowLosses(RayScores):
    """The losses of the rows of one model, and where its scores are kept."""

    targets: RowTargets
    loss: Any  # Piecewise linear, see `ooc_svm.losses.functions`
    name: str = "model"  # Prefix of the row vectors

    @property
    def kink(self) -> float:
        """The breakpoint of the loss."""
        return float(row_loops.kink_of(self.loss))

    @property
    def n_pieces(self) -> int:
        """Pieces of the loss of a row."""
        return int(row_loops.count_pieces(self.loss))

    @property
    def reads(self) -> tuple[str, ...]:
        """All row vectors."""
        return (self.best, self.previous, *self.targets.reads)

    def segment(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The scores at the best and at the last point."""
        return rows.vectors[self.best], rows.vectors[self.previous]


@dataclass(frozen=True, slots=True)
class ScoredLosses(RowLosses):
    """Losses of rows whose scores are in one row vector: a segment without length."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.previous, *self.targets.reads)

    def segment(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        return rows.vectors[self.previous], rows.vectors[self.previous]


@dataclass(frozen=True, slots=True)
class RowCut(NoCells):
    """Row rule: loss and cut at the scores. Sums (4, groups): loss, offset, sum of coefficients, rows."""

    losses: RowLosses
    groups: int
    keeps_scores: bool = False  # Whether they are kept as those of the last point
    width: ClassVar[int] = 1

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.targets.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.losses.previous,) if self.keeps_scores else ()

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (4, self.groups)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        targets = self.losses.targets.values(rows.vectors)
        row_loops.cut(self.losses.loss, scores, *targets, rows.start, coefficients, sums)
        if self.keeps_scores:
            rows.vectors[self.losses.previous][:] = scores


@dataclass(frozen=True, slots=True)
class TrialCuts:
    """Row rule: move the best point, cut at trial points, count the segment's breakpoints.

    On a ray a piece of a row's loss is there up to some place, or from some place on. So the row is not added
    to the cuts of all these, but once, to a cell for the place; the cut of a place is the sum of the cells up
    to a place behind it and of those from a place before it (`sum_up`). A read costs little more for many
    cuts than for one, and nothing is taken away again, which could leave only rounding of a small sum.
    """

    losses: RowLosses
    groups: int
    step: float
    thetas: Float64Array  # The places, ascending
    free: FreeEnds = NOTHING_FREE
    width: ClassVar[int] = 0

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.losses.best, self.losses.previous)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (3 * len(self.thetas) * self.groups + 3 + 3 * BINS,)

    @property
    def n_cells(self) -> int:
        return cells_of(len(self.thetas)) * self.groups

    def parts(self, sums: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Cuts (3, places, groups), base (3,) and bins (3, BINS) as views of the sums."""
        end = 3 * len(self.thetas) * self.groups
        cuts = sums[:end].reshape(3, -1, self.groups)
        return cuts, sums[end : end + 3], sums[end + 3 :].reshape(3, BINS)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> RowCells:
        moves = (scores, *self.losses.segment(rows), self.step, self.thetas, np.array(self.free))
        own = np.empty((self.losses.n_pieces * len(self.thetas), len(scores)))
        targets = self.losses.targets.values(rows.vectors)
        row_loops.trial_cuts(self.losses.loss, *moves, *targets, rows.start, own, *self.parts(sums))
        cells, weights = row_loops.ends_of_losses(own, len(self.thetas))
        groups = ((rows.start + np.arange(len(scores))) % self.groups).astype(np.int32)
        return RowCells(cells * self.groups + groups, weights)

    def sum_up(self, table: Float64Array) -> Float64Array:
        """The cuts' sums of rows, shape (places, groups, n_features), in the place of the cells' ones."""
        places = len(self.thetas)
        cells = table.reshape(cells_of(places), self.groups, table.shape[1])
        cuts, behind = cells[:places], cells[places:]
        for k in reversed(range(places - 1)):
            cuts[k] += cuts[k + 1]
        for k in range(1, places):
            if k > 1:
                behind[k - 1] += behind[k - 2]
            cuts[k] += behind[k - 1]
        return cuts


def cells_of(places: int) -> int:
    """Sums of rows that the cuts of so many places are made from, for each group."""
    return 2 * places - 1


@dataclass(frozen=True, slots=True)
class ValueAgain(NoCells):
    """Row rule: the loss at the scores, and the weighted sum of how far those kept are off."""

    losses: RowLosses
    step: float | None  # See `RowCutOracle.value_again`
    free: tuple[float, float] = (0.0, 0.0)  # The bias without penalty and the shift of the breakpoint
    writes: ClassVar[tuple[str, ...]] = ()
    width: ClassVar[int] = 0
    sums_shape: ClassVar[tuple[int, ...]] = (2,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.targets.reads if self.step is None else self.losses.reads

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        targets, weights = self.losses.targets.values(rows.vectors)
        found = np.zeros(4)
        row_loops.losses_at(self.losses.loss, scores, scores, 0.0, *self.free, 0.0, targets, weights, found)
        sums[0] += found[0]
        if self.step is not None:
            best, previous = self.losses.segment(rows)
            sums[1] += float(weights @ np.abs(best + self.step * (previous - best) - scores))


@dataclass(frozen=True, slots=True)
class _OfScores:
    """What the rules on row vectors alone have in common: they change none."""

    losses: RowLosses
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.reads


@dataclass(frozen=True, slots=True)
class LossesAt(_OfScores):
    """Rule on row vectors: losses at the best point, moved by ``step``, with these free parameters.

    Sums (4,): the loss; number of rows beyond a breakpoint, their weight; weight of rows beyond or on one,
    which is at most ``edge`` from it.
    """

    step: float
    free: tuple[float, float] = (0.0, 0.0)
    edge: float = 0.0
    sums_shape: ClassVar[tuple[int, ...]] = (4,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        targets = self.losses.targets.values(rows.vectors)
        where = (*self.losses.segment(rows), self.step, *self.free, self.edge)
        row_loops.losses_at(self.losses.loss, *where, *targets, sums)


@dataclass(slots=True)
class TargetSums:
    """Weights and targets of the rows that count."""

    n_rows: int = 0  # All of them
    weight: float = 0.0
    # Weight of the pieces of losses that a larger bias makes smaller, and of those that it makes larger
    falling: float = 0.0
    rising: float = 0.0
    least: float = math.inf
    most: float = -math.inf


@dataclass(frozen=True, slots=True)
class TargetPass(WholeRead):
    """Pass over row vectors: weights and targets."""

    losses: RowLosses
    writes: ClassVar[tuple[str, ...]] = ()
    needs_data: ClassVar[bool] = False

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.targets.reads

    def empty(self) -> TargetSums:
        return TargetSums()

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: TargetSums) -> None:
        targets, weights = self.losses.targets.values(rows.vectors)
        sums = np.zeros(3)
        row_loops.weigh(self.losses.loss, targets, weights, sums)
        total, falling, rising = sums.tolist()
        partial.n_rows += len(targets)
        partial.weight += total
        partial.falling += falling
        partial.rising += rising
        counted = targets[weights > 0.0]
        partial.least = min(partial.least, float(counted.min(initial=math.inf)))
        partial.most = max(partial.most, float(counted.max(initial=-math.inf)))

    def merge(self, left: TargetSums, right: TargetSums) -> TargetSums:
        left.n_rows += right.n_rows
        left.weight += right.weight
        left.falling += right.falling
        left.rising += right.rising
        left.least, left.most = min(left.least, right.least), max(left.most, right.most)
        return left


@dataclass(frozen=True, slots=True)
class SegmentBins(_OfScores):
    """Rule on row vectors: the breakpoints in finer bins, shape (3, BINS)."""

    free: FreeEnds
    low: float
    per_unit: float
    sums_shape: ClassVar[tuple[int, ...]] = (3, BINS)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        where = (*self.losses.segment(rows), np.array(self.free), self.low, self.per_unit)
        targets = self.losses.targets.values(rows.vectors)
        row_loops.refine_bins(self.losses.loss, *where, *targets, sums)


@dataclass(frozen=True, slots=True)
class SegmentEvents(_OfScores, WholeRead):
    """Pass over row vectors: the breakpoints of one bin, an array of shape (events, 3) for each block."""

    free: FreeEnds
    low: float
    per_unit: float
    bin: int
    joins: bool = False  # Whether equal breakpoints of a block are one
    needs_data: ClassVar[bool] = False

    def empty(self) -> list[Float64Array]:
        return []

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[Float64Array]) -> None:
        place = (self.low, self.per_unit, self.bin)
        targets = self.losses.targets.values(rows.vectors)
        where = (self.losses.loss, *self.losses.segment(rows), np.array(self.free), *place, *targets)
        count = row_loops.collect_events(*where, np.empty((0, 3)))
        events = np.empty((count, 3))
        if count:
            row_loops.collect_events(*where, events)
        if self.joins:
            u, places = np.unique(events[:, 0], return_inverse=True)
            events = np.column_stack([u, *(np.bincount(places, events[:, k], len(u)) for k in (1, 2))])
        partial.append(events)

    def merge(self, left: list[Float64Array], right: list[Float64Array]) -> list[Float64Array]:
        return left + right
