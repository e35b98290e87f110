"""Cuts and line searches of losses that are sums over rows.

    R(w) = sum_i omega_i l(s_i)        P(w) = 1/2 |w|^2 + C R(w)

omega_i is the weight of the row times that of its class. With groups, ``R = sum_g R_g`` over the rows of the
same number modulo the number of groups, and each group gets a cut and a slack of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.passes.base import UNCOUNTED, WHOLE, Position, Request, RowSlice, WholeRead
from ooc_svm.passes.columns import Magnitudes, MagnitudeSums
from ooc_svm.passes.linear import LinearPass, LinearSums
from ooc_svm.passes.rowwise import NoCells, RowCells, RowPass
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.cutting_plane import row_loops
from ooc_svm.solvers.cutting_plane.cuts import Cuts, RayScores
from ooc_svm.solvers.cutting_plane.ray import EVENTS_A_SUM, MAX_EVENTS, RayLoss, minimise
from ooc_svm.solvers.rounding import Rounding
from ooc_svm.solvers.space import LinearSpace

BINS = 2048  # Bins that the breakpoints of a segment are counted in first

# Where cuts are taken, as (slope, offset) of theta over the t of the last line search; best of those tried.
TRIALS = {
    1: ((0.9, 0.1),),
    5: ((0.3, 0.02), (0.5, 0.0), (0.5, 0.05), (1.0, 0.4), (2.0, 0.0)),
    13: (
        *((0.0, 0.0), (0.25, 0.0), (0.3, 0.02), (0.5, 0.0), (0.5, 0.05), (0.75, 0.01), (1.0, 0.0)),
        *((1.0, 0.02), (1.5, 0.1), (1.0, 0.4), (2.0, 0.0), (3.0, 0.1), (0.0, 1.0)),
    ),
}


@dataclass(frozen=True, slots=True)
class RowLosses(RayScores):
    """The losses of the rows of one model, and where its scores are kept."""

    targets: RowTargets
    loss: Any  # Piecewise linear, see `ooc_svm.losses.functions`
    name: str = "model"  # Prefix of the row vectors

    @property
    def reads(self) -> tuple[str, ...]:
        """All row vectors."""
        return (self.best, self.previous, *self.targets.reads)

    def segment(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The scores at the best and at the last point."""
        return rows.vectors[self.best], rows.vectors[self.previous]


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

    On a ray a row has a loss up to some place, or from some place on. So it is not added to the cuts of all
    these, but once, to a cell for the place; the cut of a place is the sum of the cells up to a place behind
    it and of those from a place before it (`sum_up`). A read costs little more for many cuts than for one,
    and nothing is taken away again, which could leave only rounding of a small sum.
    """

    losses: RowLosses
    groups: int
    step: float
    thetas: Float64Array  # The places, ascending
    width: ClassVar[int] = 0

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.losses.best, self.losses.previous)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (2 * len(self.thetas) * self.groups + 3 + 3 * BINS,)

    @property
    def n_cells(self) -> int:
        return cells_of(len(self.thetas)) * self.groups

    def parts(self, sums: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Cuts (2, places, groups), base (3,) and bins (3, BINS) as views of the sums."""
        end = 2 * len(self.thetas) * self.groups
        cuts = sums[:end].reshape(2, -1, self.groups)
        return cuts, sums[end : end + 3], sums[end + 3 :].reshape(3, BINS)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> RowCells:
        moves = (scores, *self.losses.segment(rows), self.step, self.thetas)
        own, targets = np.empty((len(self.thetas), len(scores))), self.losses.targets.values(rows.vectors)
        row_loops.trial_cuts(self.losses.loss, *moves, *targets, rows.start, own, *self.parts(sums))
        cells, weights = row_loops.ends_of_losses(own)
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
        found = np.zeros((4, 1))
        row_loops.cut(self.losses.loss, scores, targets, weights, 0, np.empty((1, len(scores))), found)
        sums[0] += found[0, 0]
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
class LossCount(_OfScores):
    """Rule on row vectors: number of rows with a loss at the best point, moved by ``step``."""

    step: float
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        targets = self.losses.targets.values(rows.vectors)
        row_loops.count_losses(self.losses.loss, *self.losses.segment(rows), self.step, *targets, sums)


@dataclass(frozen=True, slots=True)
class SegmentBins(_OfScores):
    """Rule on row vectors: the breakpoints in finer bins, shape (3, BINS)."""

    low: float
    per_unit: float
    sums_shape: ClassVar[tuple[int, ...]] = (3, BINS)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        where = (*self.losses.segment(rows), self.low, self.per_unit)
        targets = self.losses.targets.values(rows.vectors)
        row_loops.refine_bins(self.losses.loss, *where, *targets, sums)


@dataclass(frozen=True, slots=True)
class SegmentEvents(_OfScores, WholeRead):
    """Pass over row vectors: the breakpoints of one bin, an array of shape (events, 3) for each block."""

    low: float
    per_unit: float
    bin: int
    needs_data: ClassVar[bool] = False

    def empty(self) -> list[Float64Array]:
        return []

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[Float64Array]) -> None:
        place = (self.low, self.per_unit, self.bin)
        targets = self.losses.targets.values(rows.vectors)
        where = (self.losses.loss, *self.losses.segment(rows), *place, *targets)
        count = row_loops.collect_events(*where, np.empty((0, 3)))
        events = np.empty((count, 3))
        if count:
            row_loops.collect_events(*where, events)
        partial.append(events)

    def merge(self, left: list[Float64Array], right: list[Float64Array]) -> list[Float64Array]:
        return left + right


@dataclass(frozen=True, slots=True)
class RowCutOracle:
    """What the cutting-plane solvers need to know of a loss that is a sum over rows."""

    losses: RowLosses
    C: float
    space: LinearSpace
    groups: int = 1  # Groups of rows with a slack each; 1 is the paper's problem
    keeps_scores: bool = False  # Whether `cut` keeps the scores of its point
    forecast_size: ClassVar[int] = 0
    n_counts: ClassVar[int] = 0
    no_count: ClassVar[None] = None

    def magnitudes(self, position: Position = WHOLE) -> MagnitudeSums:
        """What `rounding` follows from."""
        return MagnitudeSums(self.space.n_features, position, self.losses.targets.row_weight)

    def rounding(self, found: Magnitudes) -> Rounding:
        """What rounding can change in sums over the rows."""
        return Rounding.of_rows(found, self.space, self.losses.targets.largest_weight)

    def cut_operations(self, rounding: Rounding) -> float:
        """Operations that a term of a cut goes through: over the rows, over the cells of trial places."""
        return rounding.chain + 2 * max(TRIALS) + 8

    def loss_operations(self, rounding: Rounding, t: float = 0.0) -> float:
        """The same of the loss at t on a ray.

        What was active at its start, less what is not any more: two sums over the rows, some of bins (NumPy
        adds pairwise), one of breakpoints. A breakpoint ``u = c / (c + d)`` in the wrong order changes the
        loss by ``|c| (1 + t)`` roundings at most, since ``t = u / (1 - u)``.
        """
        events = min(rounding.rows, EVENTS_A_SUM) + MAX_EVENTS // EVENTS_A_SUM
        return 2 * rounding.chain + self.groups + events + 128 + 8 * (1.0 + t)

    def value_again(
        self, w: Float64Array, step: float | None
    ) -> Generator[Request, Any, tuple[float, float]]:
        """One read of the data that is not counted: the loss at w, and how far the scores kept are off.

        ``step``: the scores at the best point, moved by this much, are to be those of w; None if none are
        kept. The second number is ``sum_i omega_i |score kept - score|``.
        """
        weights, intercept = self.space.to_data(w)
        rule = ValueAgain(self.losses, step)
        result: LinearSums = yield LinearPass(
            weights[:, None], np.array([intercept]), (rule,), position=UNCOUNTED
        )
        loss, difference = result.sums[0].tolist()
        return loss, difference

    @property
    def vectors(self) -> dict[str, npt.DTypeLike]:
        """Row vectors that `read` works on, with types: scores at the best and at the last point."""
        return {self.losses.best: np.float64, self.losses.previous: np.float64}

    @property
    def cut_vectors(self) -> dict[str, npt.DTypeLike]:
        """Row vectors that `cut` works on."""
        return {self.losses.previous: np.float64} if self.keeps_scores else {}

    @property
    def scratch_vectors(self) -> dict[str, npt.DTypeLike]:
        """Row vectors made in every iteration: none."""
        return {}

    @property
    def previous(self) -> str:
        """Row vector of the scores at the last point."""
        return self.losses.previous

    def places(self, t: float, points: int) -> Float64Array:
        """Where the next cuts are taken on the ray, 0 the best point and 1 the master problem's.

        The best place is known after the read only, and estimated from the t of the last line search.
        """
        return np.array([min(slope * t + offset, max(t, 1.0)) for slope, offset in TRIALS[points]])

    def cut(self, w: Float64Array) -> Generator[Request, Any, tuple[float, int, Cuts]]:
        """One read of the data: the loss R(w), the number of rows with a loss, and cuts at w."""
        result: LinearSums = yield self._pass(w, RowCut(self.losses, self.groups, self.keeps_scores))
        losses, offsets, coefficients, rows = result.sums[0]
        planes = self.space.from_data(result.vectors[:, 0], coefficients)
        return float(losses.sum()), int(rows.sum()), Cuts(planes, offsets.copy())

    def read(
        self, w: Float64Array, step: float, thetas: Float64Array, forecast: Float64Array, counted: None
    ) -> Generator[Request, Any, tuple[list[Cuts], RayLoss, Float64Array]]:
        """One read of the data: scores of w, cuts at trial points, and the loss along the segment.

        The best point moves by ``step`` towards the point of the read before; the cuts are taken at
        ``best + theta (w - best)``, theta ascending.
        """
        rule = TrialCuts(self.losses, self.groups, step, np.sort(thetas))
        result: LinearSums = yield self._pass(w, rule)
        (offsets, coefficients), base, bins = rule.parts(result.sums[0])
        cuts = [
            Cuts(self.space.from_data(rows.T, coefficients[k]), offsets[k].copy())
            for k, rows in enumerate(rule.sum_up(result.tables[0]))
        ]
        return cuts, RayLoss(base[1], base[2], bins), forecast

    def line_search(
        self, loss: RayLoss, slope: float, curvature: float
    ) -> Generator[Request, Any, tuple[float, float, None]]:
        """Minimise ``slope t + curvature t^2 / 2 + C R(t)`` over t >= 0; row vectors only, no data read."""

        def refine(low: float, per_unit: float) -> Generator[Request, Any, Float64Array]:
            bins: Float64Array = yield RowPass(SegmentBins(self.losses, low, per_unit))
            return bins

        def collect(low: float, per_unit: float, q: int) -> Generator[Request, Any, Float64Array]:
            events = yield SegmentEvents(self.losses, low=low, per_unit=per_unit, bin=q)
            return np.concatenate([np.empty((0, 3)), *events])

        t, found = yield from minimise(loss, slope, curvature, self.C, refine, collect)
        return t, found, None

    def count_support(self, step: float) -> Generator[Request, Any, int]:
        """Number of rows with a loss at the best point, moved by ``step``; row vectors only, no data read."""
        found: Float64Array = yield RowPass(LossCount(self.losses, step))
        return int(found[0])

    def _pass(self, w: Float64Array, rule: RowCut | TrialCuts) -> LinearPass:
        weights, intercept = self.space.to_data(w)
        return LinearPass(weights[:, None], np.array([intercept]), (rule,), self.groups)
