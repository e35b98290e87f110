"""Weighted order statistics of the breakpoints of losses, by selection in bounded memory.

With the scores fixed, a row loses something in a piece of its loss up to some bias or from some bias on; as
the bias grows through that breakpoint, the derivative of the loss grows by the row's weight. So the loss is
smallest where the breakpoints in order have as much weight as the pieces that fall have in all: a weighted
order statistic of the breakpoints.

Rows are not sorted. A pass over the row vectors weighs what is below a range and lists the few breakpoints
inside it. If the statistic is among them, they are all that is sorted. The range follows from a sample of the
rows (Floyd and Rivest, *Expected time bounds for selection*), which another pass takes: two passes mostly,
for all statistics together, and one where the rows are few. A range that does not hold the statistic, or
holds too many breakpoints, leaves a smaller one to take a sample of. What is added up has the same bits on
any number of threads and on any engine, and equal breakpoints are one value: ties change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.ops.hashing import GOLDEN
from ooc_svm.passes.base import Request, RowSlice, WholeRead
from ooc_svm.solvers.cutting_plane import quantile_loops

FEW = 1 << 18  # Breakpoints of a statistic that are listed, 16 bytes each
SAMPLED = 1 << 16  # Rows of a sample, out of those that are left
MARGIN = 2.0  # Standard deviations of the place of a statistic in a sample
MOST_MISSES = 2  # Ranges without the statistic, after which weights are too uneven to be judged by a sample
ROUNDING = 2.0**-40  # More than sums of weights are off by, as a share

Range = tuple[float, float]


@dataclass(slots=True)
class Breakpoints:
    """Some breakpoints with their weights."""

    points: list[Float64Array] = field(default_factory=list)
    weights: list[Float64Array] = field(default_factory=list)

    def add(self, other: Breakpoints) -> None:
        """Add those of other rows."""
        self.points += other.points
        self.weights += other.weights

    def sorted(self) -> tuple[Float64Array, Float64Array]:
        """All of them, ascending."""
        points, weights = (np.concatenate([np.empty(0), *part]) for part in (self.points, self.weights))
        order = np.argsort(points)
        return points[order], weights[order]


@dataclass(slots=True)
class RangeSums:
    """What the breakpoints below a range weigh, at its ends and inside, and those inside, if they are few.

    See `quantile_loops.weigh_range`.
    """

    lanes: Float64Array = field(default_factory=lambda: np.zeros(quantile_loops.LANES))
    sums: Float64Array = field(default_factory=lambda: np.array([0.0, 0.0, 0.0, 0.0, math.inf]))
    inside: Breakpoints = field(default_factory=Breakpoints)

    @property
    def n_inside(self) -> int:
        """The number of breakpoints inside."""
        return int(self.sums[3])

    def at_high(self, high: float) -> float | None:
        """The end of the range, if it is a breakpoint or there is none beyond; None: not known."""
        return high if self.sums[2] > 0.0 or high == math.inf else None

    def next_to_low(self, high: float) -> float | None:
        """The smallest breakpoint above the beginning of the range; infinite: there is none."""
        return float(self.sums[4]) if self.n_inside else self.at_high(high)

    def add(self, other: RangeSums) -> None:
        """Add those of other rows."""
        self.lanes += other.lanes
        self.sums[:4] += other.sums[:4]
        self.sums[4] = min(self.sums[4], other.sums[4])
        self.keep(other.inside)

    def keep(self, inside: Breakpoints) -> None:
        """Add what is listed, or nothing at all if all of them are too many."""
        self.inside.add(inside)
        if self.n_inside > FEW:
            self.inside = Breakpoints()


@dataclass(slots=True)
class _Statistic:
    """A wanted order statistic, and what is known of it."""

    side: float
    level: float
    n_all: int  # Breakpoints, at most
    # It is between the two, where there are ``n_left`` at most; those up to `low` weigh ``below``.
    low: float = -math.inf
    high: float = math.inf
    below: float = 0.0
    n_left: int = 0
    misses: int = -1  # Ranges that did not hold it
    range: Range | None = None  # What the next pass is to weigh; None: a sample says
    found: Range | None = None

    def __post_init__(self) -> None:
        self._miss(self.low, self.high, self.below)

    @property
    def stride(self) -> int:
        """Of so many rows one is sampled."""
        return max(1, self.n_left // SAMPLED)

    def expect(self, sample: Breakpoints) -> None:
        """Take for the range what holds the statistic by a sample, or its middle half; all if that is few."""
        points, weights = sample.sorted()
        m = len(points)
        if 2 * m * self.stride <= FEW:
            first, last = -1, m
        elif self.misses >= MOST_MISSES:
            first, last = m // 4, 3 * m // 4
        else:
            through, squares = np.cumsum(weights), np.cumsum(weights * weights)
            place = (self.level - self.below) / self.stride
            k = int(np.searchsorted(through, place))
            margin = MARGIN * math.sqrt(float(squares[min(k, m - 1)]))
            first = max(int(np.searchsorted(through, place - margin, side="right")), k - m // 4) - 1
            last = min(int(np.searchsorted(through, place + margin)), k + m // 4)
        self.range = (
            float(points[first]) if first >= 0 else self.low,
            float(points[last]) if last < m else self.high,
        )

    def narrow(self, weighed: RangeSums) -> None:
        """Find the statistic, or where it is."""
        assert self.range is not None
        low, high = self.range
        below, (at_low, inside, at_high) = float(weighed.lanes.sum()), weighed.sums[:3].tolist()
        through = below + at_low
        total, ends = through + inside + at_high, high == math.inf  # Whether nothing is beyond the range
        is_before = below >= self.level and below > self.below
        is_at_low = at_low > 0.0 and (through >= self.level or (total == through and ends))
        is_inside = inside > 0.0 and (through + inside >= self.level or ends)
        is_at_high = at_high > 0.0 and total >= self.level
        if is_before:
            self._miss(self.low, low, self.below)
        elif is_at_low:
            self._find(low, through, weighed.next_to_low(high))
        elif is_inside and weighed.n_inside > FEW:
            self._keep(low, high, through, weighed.n_inside)
        elif is_inside:
            self._find_inside(weighed, through)
        elif is_at_high:
            self._find(high, total, None)
        else:
            self._look_beyond(high, total)

    def _look_beyond(self, high: float, total: float) -> None:
        """Go on above a range without the statistic, up to which breakpoints weigh ``total``."""
        if high < math.inf:
            self._miss(high, self.high if high < self.high else math.inf, total)
        elif total > 0.0:
            # All are below, and weigh less than the level: the last one of them is wanted.
            self.level = total * (1.0 - ROUNDING)
            self._miss(-math.inf, math.inf, 0.0)
        else:
            self.found = 0.0, 0.0

    def _miss(self, low: float, high: float, below: float) -> None:
        """Go on between these two; how many there are is not known."""
        self.misses += 1
        self._keep(low, high, below, self.n_all)

    def _keep(self, low: float, high: float, below: float, n_left: int) -> None:
        """Go on between these two; sample first if there are many."""
        self.low, self.high, self.below, self.n_left = low, high, below, n_left
        self.range = (low, high) if n_left <= FEW else None

    def _find(self, point: float, through: float, following: float | None) -> None:
        """It is this one; the next one is another pass to find, if it is wanted and not known."""
        if through != self.level:
            self.found = point, point
        elif following is None:
            self.range = point, math.inf
        else:
            self.found = point, following if following < math.inf else point

    def _find_inside(self, weighed: RangeSums, through: float) -> None:
        """Find it among the breakpoints that are listed."""
        assert self.range is not None
        points, weights = weighed.inside.sorted()
        sums = through + np.cumsum(weights)
        k = min(int(np.searchsorted(sums, self.level)), len(points) - 1)
        point = float(points[k])
        last = int(np.searchsorted(points, point, side="right")) - 1
        following = float(points[last + 1]) if last + 1 < len(points) else weighed.at_high(self.range[1])
        self._find(point, float(sums[last]), following)


@dataclass(frozen=True, slots=True)
class _OfBreakpoints(WholeRead):
    """What the passes over breakpoints have in common."""

    losses: Any  # See `ooc_svm.solvers.cutting_plane.row_rules.RowLosses`
    step: float
    writes: ClassVar[tuple[str, ...]] = ()
    needs_data: ClassVar[bool] = False

    @property
    def reads(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self.losses.reads
        return names

    def moves(self, rows: RowSlice) -> tuple[Any, ...]:
        """Arguments of the compiled loops for these rows."""
        targets = self.losses.targets.values(rows.vectors)
        return self.losses.loss, *self.losses.segment(rows), self.step, *targets

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        for own, other in zip(left, right, strict=True):
            own.add(other)
        return left


@dataclass(frozen=True, slots=True)
class SamplePass(_OfBreakpoints):
    """Pass over row vectors: a sample of the breakpoints of each statistic (side, low, high, stride)."""

    samples: tuple[tuple[float, float, float, int], ...]
    seed: int

    def empty(self) -> list[Breakpoints]:
        return [Breakpoints() for _ in self.samples]

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[Breakpoints]) -> None:
        for (side, low, high, stride), found in zip(self.samples, partial, strict=True):
            places = _sampled(rows, stride, self.seed)
            vectors = {name: rows.vectors[name][places] for name in self.reads}
            moves = self.moves(RowSlice(rows.start, rows.stop, vectors))
            points = np.empty(len(places))
            for p in range(self.losses.n_pieces):
                quantile_loops.find_breakpoints(*moves, side, p, points)
                inside = (points > low) & (points < high)
                found.points.append(points[inside])
                found.weights.append(moves[-1][inside])


def _sampled(rows: RowSlice, stride: int, seed: int) -> Int64Array:
    """The places of one row of every ``stride`` rows of the data, spread by the golden ratio."""
    strides = np.arange(rows.start // stride, -(-rows.stop // stride), dtype=np.uint64)
    spread = ((strides + np.uint64(seed)) * GOLDEN) >> np.uint64(32)
    places = (strides * np.uint64(stride) + spread % np.uint64(stride)).astype(np.int64) - rows.start
    inside: Int64Array = places[(places >= 0) & (places < rows.stop - rows.start)]
    return inside


@dataclass(frozen=True, slots=True)
class WeighPass(_OfBreakpoints):
    """Pass over row vectors: the breakpoints of each statistic (side, low, high) below a range and in it."""

    ranges: tuple[tuple[float, float, float], ...]

    def empty(self) -> list[RangeSums]:
        return [RangeSums() for _ in self.ranges]

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[RangeSums]) -> None:
        moves = self.moves(rows)
        room = min(FEW, self.losses.n_pieces * (rows.stop - rows.start))
        points, weights = np.empty((2, room))
        for wanted, found in zip(self.ranges, partial, strict=True):
            n = quantile_loops.weigh_range(*moves, *wanted, found.lanes, found.sums, points, weights)
            found.keep(Breakpoints([points[:n].copy()], [weights[:n].copy()]))


def weighted_quantiles(
    losses: Any,
    step: float,
    wanted: Sequence[tuple[float, float]],
    n_rows: int,
) -> Generator[Request, Any, list[Range]]:
    """For each side and level the first breakpoint up to which they weigh the level or more.

    If they weigh just that, the next breakpoint as well: these are the ends of an interval of minima. If
    there is none, or they weigh more, the first one twice. The last one if all of them weigh less; (0, 0) if
    there are none.

    The scores are those of `losses` at the best point, moved by ``step``; only pieces of the sign of the side
    count, with 0 all. ``n_rows`` are all rows of the data.
    """
    n_all = n_rows * losses.n_pieces
    statistics = [_Statistic(*each, n_all) for each in wanted]
    seed = 0
    while left := [each for each in statistics if each.found is None]:
        if sampled := [each for each in left if each.range is None]:
            ways = tuple((each.side, each.low, each.high, each.stride) for each in sampled)
            seed += 1
            samples: list[Breakpoints] = yield SamplePass(losses, step, ways, seed)
            for statistic, sample in zip(sampled, samples, strict=True):
                statistic.expect(sample)
        known = tuple((each.side, *each.range) for each in left if each.range is not None)
        sums: list[RangeSums] = yield WeighPass(losses, step, known)
        for statistic, weighed in zip(left, sums, strict=True):
            statistic.narrow(weighed)
    return [each.found for each in statistics if each.found is not None]
