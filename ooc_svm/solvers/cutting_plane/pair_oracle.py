"""The pairwise hinge loss: ordinal regression, ROC area and ranking.

    R(w) = 1/m sum over pairs max(0, 1 - (s_i - s_j))          P(w) = 1/2 |w|^2 + C R(w)

over the m pairs (i, j) of rows of which i has the higher rank, inside their group where rows have groups
(Joachims 2006, OP4; where pairs have weights, R is their weighted mean). A row's coefficient in the cut,
c+_i - c-_i, counts the active pairs in which it is the higher and the lower one (Algorithm 2), and that takes
the scores of all rows. So the exact cut cannot be made in the read that finds the scores of its point; in the
read after it, coefficients known, it comes along with the scores of the next point. Cuts that are nearly
exact can be made in the same read (`ooc_svm.solvers.cutting_plane.pair_cuts`), and halve the reads.

With cut groups the pairs are divided by the number of their higher row, and each group has a slack of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.pairs.request import SUMMED_ROWS, PairPass, Pairs, PairSlope
from ooc_svm.passes.base import UNCOUNTED, WHOLE, Position, Request, RowSlice
from ooc_svm.passes.columns import LargestMagnitudes, Magnitudes
from ooc_svm.passes.linear import LinearPass, LinearSums
from ooc_svm.passes.rowwise import NoCells
from ooc_svm.solvers.cutting_plane.cuts import Cuts, NoFreeParameters, RayScores
from ooc_svm.solvers.cutting_plane.pair_cuts import BinnedCuts, Forecast, QueryCuts, RowCuts
from ooc_svm.solvers.cutting_plane.pair_ray import can_search, evaluate_by_bins
from ooc_svm.solvers.cutting_plane.ray import descend
from ooc_svm.solvers.rounding import Rounding
from ooc_svm.solvers.space import LinearSpace

# Where cuts are taken in the read itself, as (slope, offset) of theta over the t of the last line search, by
# their number; the best of those tried.
TRIALS: dict[int, tuple[tuple[float, float], ...]] = {
    0: (),
    1: ((0.9, 0.1),),
    3: ((0.9, 0.1), (0.5, 0.0), (0.0, 1.0)),
}

# Where the cut is taken that comes one read late: at the best point, or so close to it where that has moved
# by less, since its cut may then be that of the read before, and nothing moves.
CLOSE = 0.03

LARGEST_EXPONENT = 1080  # Above the binary exponents of all numbers

EXPECTED_EVALUATIONS = 3  # Counts of the pairs of rows in one line search that is not by bins


@dataclass(frozen=True, slots=True)
class CountedCut(NoCells):
    """Row rule: a cut whose coefficients are known; the best point moves, the scores are kept.

    If asked for, the derivative of the loss at the best point, whose coefficients they are, towards the new
    scores is summed up.
    """

    coefficients: tuple[str, ...]
    best: str
    previous: str
    step: float
    starts: bool
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.best, self.previous, *self.coefficients)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.best, self.previous)

    @property
    def width(self) -> int:
        return len(self.coefficients)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        for own, name in zip(coefficients, self.coefficients, strict=True):
            own[:] = rows.vectors[name]
        best, previous = rows.vectors[self.best], rows.vectors[self.previous]
        if self.step:
            best += self.step * (previous - best)
        if self.starts:
            sums[0] -= (coefficients.sum(axis=0) * (scores - best)).sum()
        previous[:] = scores


@dataclass(frozen=True, slots=True)
class ScoresAgain(NoCells):
    """Row rule: the scores are kept, or those kept are compared with them.

    Sums: rows by the binary exponent of the difference, so that the largest one is known but for a factor of
    two.
    """

    best: str
    previous: str
    step: float | None  # See `PairCutOracle.value_again`
    width: ClassVar[int] = 0
    sums_shape: ClassVar[tuple[int, ...]] = (2 * LARGEST_EXPONENT,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.best, self.previous)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.best,) if self.step is None else ()

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        best, previous = rows.vectors[self.best], rows.vectors[self.previous]
        if self.step is None:
            best[:] = scores
            return
        difference = np.abs(best + self.step * (previous - best) - scores)
        exponents = np.where(np.isfinite(difference), np.frexp(difference)[1], LARGEST_EXPONENT - 1)
        sums += np.bincount(exponents[difference != 0.0] + LARGEST_EXPONENT, minlength=len(sums))

    @staticmethod
    def largest(sums: Float64Array) -> float:
        """At least the largest difference, and less than twice it."""
        found = np.flatnonzero(sums)
        return math.ldexp(1.0, min(int(found[-1]) - LARGEST_EXPONENT, 1023)) if len(found) else 0.0


@dataclass(frozen=True, slots=True)
class PairCutOracle(RayScores, NoFreeParameters):
    """What the cutting-plane solvers need to know of a problem over pairs."""

    pairs: Pairs
    C: float
    space: LinearSpace  # Without a bias, which would cancel in every pair
    groups: int = 1  # Cut groups; 1 is the paper's problem
    name: str = "model"  # Prefix of this problem's row vectors
    # Of the line search: how close the objective has to come to its minimum, as a share
    precision: float = 1e-9
    # Cuts taken in the read that finds the scores of their points, in addition to one that comes a read late
    trials: int = 0
    n_bins: int = 0  # Bins of the scores that they are made from, where all rows are one group
    coefficient_type: npt.DTypeLike = np.float64  # Of the coefficients of a cut that are kept for each row

    @property
    def forecast_size(self) -> int:
        """How many numbers a solver keeps for this from one read to the next."""
        has_bins = self.trials > 0 and self.pairs.rows.query_starts is None
        return Forecast.size(self.space.n_features) if has_bins else 0

    def magnitudes(self, position: Position = WHOLE) -> LargestMagnitudes:
        """What `rounding` follows from."""
        return LargestMagnitudes(self.space.n_features, position, self.space.scale2)

    def rounding(self, found: Magnitudes) -> Rounding:
        """What rounding can change in means over the pairs."""
        return Rounding.of_pairs(found, self.space)

    def cut_operations(self, rounding: Rounding) -> float:
        """Operations that a term of a cut goes through: counts of pairs, sums over rows, slots of bins."""
        slots = self.pairs.rows.n_ranks * self.n_bins * self.groups
        return self._counting(rounding) + 2 * rounding.chain + 2 * slots + 16

    def loss_operations(self, rounding: Rounding, t: float = 0.0) -> float:
        """The same of the loss, a sum of scores times the weight of the active pairs that rows are in."""
        return self._counting(rounding) + min(rounding.rows, SUMMED_ROWS) + 16

    def _counting(self, rounding: Rounding) -> int:
        """Operations in the weight of a row's active pairs; without weights it is a number."""
        return 0 if self.pairs.rows.weight is None else 2 * rounding.rows

    def value_again(
        self, w: Float64Array, step: float | None
    ) -> Generator[Request, Any, tuple[float, float]]:
        """One read of the data that is not counted: the loss at w, and how far the scores kept are off.

        ``step``: the scores at the best point, moved by this much, are to be those of w; with None, those of
        w are kept there. The second number is twice the largest difference of a row, at least.
        """
        weights, _ = self.space.to_data(w)
        rule = ScoresAgain(self.best, self.previous, step)
        result: LinearSums = yield LinearPass(weights[:, None], np.zeros(1), (rule,), position=UNCOUNTED)
        found: PairSlope = yield PairPass(self.pairs.rows, self.best, self.previous, step or 0.0)
        return found.loss / self.pairs.total, 2.0 * rule.largest(result.sums[0])

    @property
    def searches_by_bins(self) -> bool:
        """Whether the evaluations of a line search sum up bins; if not, each of them counts pairs."""
        return can_search(self.pairs.rows, self.precision)

    @property
    def n_counts(self) -> int:
        """Counts of the pairs for one read: one, and one for each evaluation in a search without bins."""
        return 1 if self.searches_by_bins else 1 + EXPECTED_EVALUATIONS

    @property
    def no_count(self) -> PairSlope:
        """A count of no pairs."""
        return PairSlope(0.0, 0.0, np.zeros(self.groups), 0)

    @property
    def vectors(self) -> dict[str, npt.DTypeLike]:
        """Row vectors that `read` and `cut` go on from, with types."""
        return {self.best: np.float64, self.previous: np.float64}

    cut_vectors = vectors

    @property
    def scratch_vectors(self) -> dict[str, npt.DTypeLike]:
        """Row vectors of the coefficients, which are counted in every iteration."""
        return dict.fromkeys(self.coefficients, self.coefficient_type)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the row vectors of coefficients, one for each cut group."""
        return tuple(f"{self.name}/cut/group{group}" for group in range(self.groups))

    def places(self, t: float, points: int) -> Float64Array:
        """Where trial cuts are taken on the next ray, 0 the best point and 1 the master problem's."""
        return np.array([slope * t + offset for slope, offset in TRIALS[points - 1]])

    def open(self) -> Generator[Request, Any, None]:
        """What comes before the first read: nothing."""
        yield from ()

    def cut(
        self, w: Float64Array, counted: PairSlope | None = None
    ) -> Generator[Request, Any, tuple[float, int, list[Cuts], Float64Array, PairSlope]]:
        """One read of the data: the loss at w, rows with a loss, cuts at the point of the last read; w.

        ``counted``: what the last read came back with as the last of these, for the coefficients of its
        point; None if they are to be counted first.
        """
        previous = self.previous
        weights, _ = self.space.to_data(w)
        count = PairPass(self.pairs.rows, previous, previous, 0.0, self.coefficients)
        if counted is None:
            counted = yield count
        rule = CountedCut(self.coefficients, self.best, previous, 0.0, False)
        result: LinearSums = yield LinearPass(weights[:, None], np.zeros(1), (rule,))
        cuts = self._cut((result.vectors[:, :, 0], counted.offsets))
        found: PairSlope = yield count
        return found.loss / self.pairs.total, found.n_rows, [cuts], w, found

    def read(
        self,
        w: Float64Array,
        step: float,
        thetas: Float64Array,
        forecast: Float64Array,
        counted: PairSlope | None,
        best: Float64Array,
    ) -> Generator[Request, Any, tuple[list[Cuts], tuple[float, float] | None, Float64Array]]:
        """One read of the data: scores of w, cuts, how the next ray begins, and a forecast of the next read.

        The best point moves by ``step`` towards the point of the last read. There or close to it an exact cut
        is taken; ``counted`` is what the line search has counted for that, if it has. Trial cuts are taken at
        ``best + theta (w - best)``. Where the exact one is that of the best point and the line search has use
        for it, R(0) and its derivative on the ray from there to w are given too.
        """
        counted, known = yield from self._delayed_cut(step, 0.0 if step >= CLOSE else CLOSE, counted)
        weights, _ = self.space.to_data(w)
        rule: CountedCut | BinnedCuts | QueryCuts = known
        rows = self.pairs.rows
        if self.trials and rows.query_starts is None:
            next_one = Forecast.of(forecast).moved(step, weights)
            foreseen = next_one.spread, next_one.at_best, next_one.at_end
            rule = BinnedCuts(known, rows, self.groups, known.best, thetas, self.n_bins, *foreseen)
        elif self.trials and rows.query_starts is not None:
            rule = QueryCuts(known, rows, self.groups, known.best, thetas, rows.query_starts)
        result: LinearSums = yield LinearPass(
            weights[:, None], np.zeros(1), (rule,), query_starts=rows.query_starts
        )
        cuts = [self._cut((result.vectors[:, : self.groups, 0], counted.offsets))]
        if not isinstance(rule, CountedCut):
            cuts += [self._cut(cut) for cut in rule.cuts(result)]
        if isinstance(rule, BinnedCuts):
            forecast = rule.next_forecast(result).numbers
        start = counted.loss / self.pairs.total, float(result.sums[0][0]) / self.pairs.total
        return cuts, start if known.starts else None, forecast

    def _delayed_cut(
        self, step: float, theta: float, counted: PairSlope | None
    ) -> Generator[Request, Any, tuple[PairSlope, CountedCut]]:
        """Coefficients of the cut at ``best + theta (previous - best)``, once the best point has moved."""
        best, previous = self.best, self.previous
        if counted is None:
            t = step + theta * (1.0 - step)
            counted = yield PairPass(self.pairs.rows, best, previous, t, self.coefficients)
        starts = theta == 0.0 and not self.searches_by_bins
        return counted, CountedCut(self.coefficients, best, previous, step, starts)

    def _cut(self, cut: RowCuts) -> Cuts:
        """A cut in the solver's coordinates, divided by m."""
        planes, offsets = cut
        own = self.space.from_data(planes / self.pairs.total, np.zeros(self.groups))
        return Cuts(own, offsets / self.pairs.total)

    def line_search(
        self, start: tuple[float, float] | None, slope: float, curvature: float
    ) -> Generator[Request, Any, tuple[float, float, PairSlope | None]]:
        """Minimise ``slope t + curvature t^2 / 2 + C R(t)`` over t >= 0; row vectors only, no data read.

        A search by bins minimises a loss that is nowhere above R: it ends as far above the minimum of P as
        that is below R where it ends. Where this is too much, pairs are counted at each point.

        Returns t, R(t), and the count of the cut that the next read takes delayed, where that is at t.
        """
        best, previous = self.best, self.previous
        rows, total = self.pairs.rows, self.pairs.total
        ray = slope, curvature, self.C, self.precision

        def count(
            t: float, names: tuple[str, ...] = ()
        ) -> Generator[Request, Any, tuple[float, float, PairSlope]]:
            found: PairSlope = yield PairPass(rows, best, previous, t, names)
            return found.loss / total, found.slope / total, found

        def evaluate(t: float) -> Generator[Request, Any, tuple[float, float]]:
            loss, derivative, _ = yield from count(t)
            return loss, derivative

        if self.searches_by_bins:
            by_bins = yield from evaluate_by_bins(rows, best, previous, total)
            at_start = yield from by_bins(0.0)
            t, nearly = yield from descend(by_bins, at_start, *ray)
            names = self._names(t)
            loss, _, counted = yield from count(t, names)
            if loss - nearly <= self.precision * at_start[0]:
                return t, loss, counted if names else None
        if start is None:
            start = yield from evaluate(0.0)
        t, loss = yield from descend(evaluate, start, *ray)
        names = self._names(t)
        if not names:
            return t, loss, None
        loss, _, counted = yield from count(t, names)
        return t, loss, counted

    def _names(self, t: float) -> tuple[str, ...]:
        """Row vectors for the coefficients at t, if the next delayed cut is taken there."""
        return self.coefficients if t >= CLOSE else ()

    def loss_at(self, t: float, w: Float64Array) -> Generator[Request, Any, float]:
        """The loss at t on the ray, whose end is w; row vectors only, no data read."""
        found: PairSlope = yield PairPass(self.pairs.rows, self.best, self.previous, t)
        return found.loss / self.pairs.total

    def count_support(
        self, step: float, best: Float64Array
    ) -> Generator[Request, Any, tuple[int, dict[str, float]]]:
        """Number of rows with a loss at the best point, moved by ``step``; row vectors only, no data read."""
        found: PairSlope = yield PairPass(self.pairs.rows, self.best, self.previous, step)
        return found.n_rows, {}
