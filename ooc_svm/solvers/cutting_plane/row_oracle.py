"""Cuts and line searches of losses that are sums over rows.

    R(w) = sum_i omega_i l(s_i)        P(w) = 1/2 |w|^2 + C R(w)

omega_i is the weight of the row times that of its class. With groups, ``R = sum_g R_g`` over the rows of the
same number modulo the number of groups, and each group gets a cut and a slack of its own. Where parameters
have no penalty, see `ooc_svm.solvers.cutting_plane.free_oracle`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import UNCOUNTED, WHOLE, Position, Request
from ooc_svm.passes.columns import Magnitudes, MagnitudeSums
from ooc_svm.passes.linear import LinearPass, LinearSums
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.cutting_plane.cuts import Cuts, NoFreeParameters
from ooc_svm.solvers.cutting_plane.ray import EVENTS_A_SUM, MAX_EVENTS, RayLoss, minimise
from ooc_svm.solvers.cutting_plane.row_rules import (
    NOTHING_FREE,
    FreeEnds,
    LossesAt,
    RowCut,
    RowLosses,
    SegmentBins,
    SegmentEvents,
    TargetPass,
    TargetSums,
    TrialCuts,
    ValueAgain,
)
from ooc_svm.solvers.rounding import Rounding
from ooc_svm.solvers.space import LinearSpace

# Where cuts are taken, as (slope, offset) of theta over the t of the last line search; best of those tried.
TRIALS = {
    1: ((0.9, 0.1),),
    7: ((0.25, 0.0), (0.7, 0.1), (1.0, 0.0), (1.0, 0.02), (1.5, 0.1), (2.0, 0.0), (6.0, 0.0)),
    13: (
        *((0.0, 0.0), (0.25, 0.0), (0.3, 0.02), (0.5, 0.0), (0.5, 0.05), (0.75, 0.01), (1.0, 0.0)),
        *((1.0, 0.02), (1.5, 0.1), (1.0, 0.4), (2.0, 0.0), (3.0, 0.1), (0.0, 1.0)),
    ),
}


@dataclass(frozen=True, slots=True)
class RowSegment:
    """The loss along a segment, and the free parameters at its ends."""

    loss: RayLoss
    free: FreeEnds


@dataclass(slots=True)
class RowCutOracle(NoFreeParameters):
    """What the cutting-plane solvers need to know of a loss that is a sum over rows."""

    losses: RowLosses
    C: float
    space: LinearSpace
    groups: int = 1  # Groups of rows with a slack each; 1 is the paper's problem
    keeps_scores: bool = False  # Whether `cut` keeps the scores of its point
    # Weights and targets of the rows, where they are asked for
    targets: TargetSums = field(default_factory=TargetSums)
    forecast_size: ClassVar[int] = 0
    n_counts: ClassVar[int] = 0
    no_count: ClassVar[None] = None

    def open(self) -> Generator[Request, Any, None]:
        """What comes before the first read: the sizes of the targets, where those are values."""
        if not self.losses.targets.in_margins:
            self.targets = yield TargetPass(self.losses)

    def magnitudes(self, position: Position = WHOLE) -> MagnitudeSums:
        """What `rounding` follows from."""
        return MagnitudeSums(self.space.n_features, position, self.losses.targets.row_weight)

    def rounding(self, found: Magnitudes) -> Rounding:
        """What rounding can change in sums over the rows."""
        reach = None if self.losses.targets.in_margins else self.reach
        return Rounding.of_rows(found, self.space, self.losses.targets.largest_weight, reach)

    @property
    def reach(self) -> float:
        """The largest slack of a row at a score of 0, or more."""
        if self.losses.targets.in_margins:
            return 1.0
        found = self.targets
        largest = max(abs(found.least), abs(found.most)) if found.weight > 0.0 else 0.0
        return largest + self.losses.kink

    def cut_operations(self, rounding: Rounding) -> float:
        """Operations that a term of a cut goes through: over the rows, over the cells of trial places."""
        return rounding.chain + 2 * max(TRIALS) + 8

    def loss_operations(self, rounding: Rounding, t: float = 0.0) -> float:
        """The same of the loss at t on a ray.

        What was active at its start, less what is not any more: two sums over the rows, some of bins (NumPy
        adds pairwise), one of breakpoints. Where equal ones of a block are joined, that is part of a sum over
        the rows, and they are in none of a bin. A breakpoint ``u = c / (c + d)`` in the wrong order changes
        the loss by ``|c| (1 + t)`` roundings at most, since ``t = u / (1 - u)``.
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
        result: LinearSums = yield self._pass(w, self._value_rule(w, step), UNCOUNTED)
        loss, difference = result.sums[0].tolist()
        return loss, difference

    def _value_rule(self, w: Float64Array, step: float | None) -> ValueAgain:
        return ValueAgain(self.losses, step)

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

    def cut(
        self, w: Float64Array, counted: None = None
    ) -> Generator[Request, Any, tuple[float, int, list[Cuts], Float64Array, None]]:
        """One read of the data: the loss R(w), the number of rows with a loss, cuts at w, and w."""
        result: LinearSums = yield self._pass(w, RowCut(self.losses, self.groups, self.keeps_scores))
        losses, offsets, coefficients, rows = result.sums[0]
        planes = self.space.from_data(result.vectors[:, 0], coefficients)
        return float(losses.sum()), int(rows.sum()), [Cuts(planes, offsets.copy())], w, None

    def read(
        self,
        w: Float64Array,
        step: float,
        thetas: Float64Array,
        forecast: Float64Array,
        counted: None,
        best: Float64Array,
    ) -> Generator[Request, Any, tuple[list[Cuts], RowSegment, Float64Array]]:
        """One read of the data: scores of w, cuts at trial points, and the loss along the segment.

        The best point moves by ``step`` towards the point of the read before, to ``best``; the cuts are taken
        at ``best + theta (w - best)``, theta ascending.
        """
        free = self._ends(best, w)
        rule = TrialCuts(self.losses, self.groups, step, np.sort(thetas), free)
        result: LinearSums = yield self._pass(w, rule)
        sums, base, bins = rule.parts(result.sums[0])
        cuts = [self._cut(rows.T, *sums[:, k].copy()) for k, rows in enumerate(rule.sum_up(result.tables[0]))]
        return cuts, RowSegment(RayLoss(base[1], base[2], bins), free), forecast

    def _ends(self, best: Float64Array, w: Float64Array) -> FreeEnds:
        """The free parameters at the ends of the segment."""
        return NOTHING_FREE

    def _cut(
        self, rows: Float64Array, offsets: Float64Array, coefficients: Float64Array, sizes: Float64Array
    ) -> Cuts:
        """Cuts from sums: of rows, of offsets, of coefficients and of their magnitudes."""
        return Cuts(self.space.from_data(rows, coefficients), offsets)

    def line_search(
        self, segment: RowSegment, slope: float, curvature: float
    ) -> Generator[Request, Any, tuple[float, float, None]]:
        """Minimise ``slope t + curvature t^2 / 2 + C R(t)`` over t >= 0; row vectors only, no data read."""
        losses, free = self.losses, segment.free

        def refine(low: float, per_unit: float) -> Generator[Request, Any, Float64Array]:
            bins: Float64Array = yield RowPass(SegmentBins(losses, free, low, per_unit))
            return bins

        def collect(
            low: float, per_unit: float, q: int, joins: bool
        ) -> Generator[Request, Any, Float64Array]:
            events = yield SegmentEvents(losses, free=free, low=low, per_unit=per_unit, bin=q, joins=joins)
            return np.concatenate([np.empty((0, 3)), *events])

        t, found = yield from minimise(segment.loss, slope, curvature, self.C, refine, collect)
        return t, found, None

    def loss_at(self, t: float, w: Float64Array) -> Generator[Request, Any, float]:
        """The loss at t on the ray, at the free parameters of w; row vectors only, no data read."""
        found: Float64Array = yield RowPass(LossesAt(self.losses, t))
        return float(found[0])

    def count_support(
        self, step: float, best: Float64Array
    ) -> Generator[Request, Any, tuple[int, dict[str, float]]]:
        """Number of rows with a loss at the best point, moved by ``step``; row vectors only, no data read.

        And what the report says of the free parameters.
        """
        found: Float64Array = yield RowPass(LossesAt(self.losses, step))
        return int(found[1]), {}

    def _pass(self, w: Float64Array, rule: Any, position: Position = WHOLE) -> LinearPass:
        weights, intercept = self.space.to_data(w)
        if self.space.n_free:
            intercept = 0.0
        return LinearPass(weights[:, None], np.array([intercept]), (rule,), self.groups, position=position)
