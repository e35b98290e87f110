"""Weighted order statistics of the breakpoints of losses, by selection in bounded memory.

With the scores fixed, a row loses something in a piece of its loss up to some bias or from some bias on; as
the bias grows through that breakpoint, the derivative of the loss grows by the row's weight. So the loss is
smallest where the breakpoints in order have as much weight as the pieces that fall have in all: a weighted
order statistic of the breakpoints.

Rows are not sorted. A breakpoint is taken for an unsigned integer of the same order, its key
(`ooc_svm.ops.sort_keys`). A pass over the row vectors adds up weights by ranges of the keys; the next one
divides the range that holds the wanted place. Once few keys are left there, a last pass collects them: two
passes mostly, for all statistics together. What is added up has the same bits on any number of threads and on
any engine, and equal breakpoints are one value: ties change nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.ops.sort_keys import scores_of_keys
from ooc_svm.passes.base import Request, RowSlice, WholeRead
from ooc_svm.solvers.cutting_plane import quantile_loops

KEY_BITS = 15  # Of a key, that one pass tells apart
FEW_KEYS = 1 << 19  # Keys of a statistic that are collected, 16 bytes each
INFINITE_KEY = 0xFFF << 52  # Of what is no breakpoint: larger than that of any number

Keys = npt.NDArray[np.uint64]


@dataclass(slots=True)
class KeyBins:
    """Weight and number of the breakpoints in each range of keys; the smallest and largest of all keys."""

    sums: Float64Array = field(default_factory=lambda: np.zeros((1 << KEY_BITS, 2)))
    ends: Keys = field(default_factory=lambda: np.array([INFINITE_KEY, 0], np.uint64))

    def add(self, other: KeyBins) -> None:
        """Add those of other rows."""
        self.sums += other.sums
        self.ends[0] = min(self.ends[0], other.ends[0])
        self.ends[1] = max(self.ends[1], other.ends[1])


@dataclass(slots=True)
class KeysInRange:
    """The keys of a range with their weights, and the next larger key."""

    keys: list[Keys] = field(default_factory=list)
    weights: list[Float64Array] = field(default_factory=list)
    beyond: int = INFINITE_KEY

    def add(self, other: KeysInRange) -> None:
        """Add those of other rows."""
        self.keys += other.keys
        self.weights += other.weights
        self.beyond = min(self.beyond, other.beyond)


@dataclass(slots=True)
class _Statistic:
    """A wanted order statistic, and what is known of its key."""

    side: float
    level: float
    low: int = 0
    high: int = INFINITE_KEY - 1
    below: float = 0.0  # What the keys below ``low`` weigh
    few: bool = False  # Whether few keys are left, or one value

    @property
    def range(self) -> tuple[float, int, int]:
        """The pieces that count, and the range of the key."""
        return self.side, self.low, self.high

    def narrow(self, bins: KeyBins) -> None:
        """Take the range of the bin that holds the wanted place."""
        filled = np.flatnonzero(bins.sums[:, 1])
        if not len(filled):
            self.few = True
            return
        through = self.below + np.cumsum(bins.sums[filled, 0])
        k = min(int(np.searchsorted(through, self.level)), len(filled) - 1)
        self.below = float(through[k - 1]) if k else self.below
        first, shift = self.low, shift_of(self.low, self.high)
        self.low = max(first + (int(filled[k]) << shift), int(bins.ends[0]))
        self.high = min(first + (int(filled[k] + 1) << shift) - 1, int(bins.ends[1]))
        self.few = self.low == self.high or bool(bins.sums[filled[k], 1] <= FEW_KEYS)

    def among(self, found: KeysInRange) -> tuple[float, float]:
        """The statistic and the next larger one, if they weigh ``level`` up to it; else itself twice."""
        keys, weights = np.concatenate(found.keys), np.concatenate(found.weights)
        if not len(keys):
            return 0.0, 0.0
        order = np.argsort(keys, kind="stable")
        keys, through = keys[order], self.below + np.cumsum(weights[order])
        k = min(int(np.searchsorted(through, self.level)), len(keys) - 1)
        k = int(np.searchsorted(keys, keys[k], side="right")) - 1
        above = int(keys[k])
        if through[k] == self.level:
            following = int(keys[k + 1]) if k + 1 < len(keys) else found.beyond
            above = following if following < INFINITE_KEY else above
        first, last = scores_of_keys(np.array([keys[k], above], np.uint64)).tolist()
        return first, last


@dataclass(frozen=True, slots=True)
class _OfKeys(WholeRead):
    """What the passes over keys have in common."""

    losses: Any  # See `ooc_svm.solvers.cutting_plane.row_rules.RowLosses`
    step: float
    ranges: tuple[tuple[float, int, int], ...]  # Of each statistic: see `_Statistic.range`
    writes: ClassVar[tuple[str, ...]] = ()
    needs_data: ClassVar[bool] = False

    @property
    def reads(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self.losses.reads
        return names

    def keys(self, rows: RowSlice) -> Iterator[tuple[int, Keys, Float64Array]]:
        """Keys and weights of the rows for each statistic, by its number, and each piece of the losses."""
        targets = self.losses.targets.values(rows.vectors)
        of_rows = self.losses.loss, *self.losses.segment(rows), self.step, *targets
        points = np.empty(len(targets[0]))
        keys = points.view(np.uint64)
        for number, (side, _, _) in enumerate(self.ranges):
            for p in range(self.losses.n_pieces):
                quantile_loops.find_breakpoints(*of_rows, side, p, points)
                quantile_loops.make_keys(keys)
                yield number, keys, targets[1]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        for own, other in zip(left, right, strict=True):
            own.add(other)
        return left


@dataclass(frozen=True, slots=True)
class KeyPass(_OfKeys):
    """Pass over row vectors: breakpoints by ranges of their keys."""

    def empty(self) -> list[KeyBins]:
        return [KeyBins() for _ in self.ranges]

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[KeyBins]) -> None:
        for number, keys, weights in self.keys(rows):
            _, low, high = self.ranges[number]
            where = np.uint64(low), np.uint64(high), np.uint64(shift_of(low, high))
            quantile_loops.add_keys(keys, weights, *where, partial[number].sums, partial[number].ends)


@dataclass(frozen=True, slots=True)
class CollectPass(_OfKeys):
    """Pass over row vectors: the breakpoints in a range of keys."""

    def empty(self) -> list[KeysInRange]:
        return [KeysInRange() for _ in self.ranges]

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[KeysInRange]) -> None:
        for number, keys, weights in self.keys(rows):
            (_, low, high), found = self.ranges[number], partial[number]
            own_keys, own_weights = np.empty_like(keys), np.empty_like(weights)
            where = np.uint64(low), np.uint64(high), np.uint64(found.beyond)
            n, beyond = quantile_loops.collect_keys(keys, weights, *where, own_keys, own_weights)
            found.beyond = int(beyond)
            if low == high and n:
                # They may be many.
                own_weights[0], n = own_weights[:n].sum(), 1
            found.keys.append(own_keys[:n].copy())
            found.weights.append(own_weights[:n].copy())


def weighted_quantiles(
    losses: Any, step: float, wanted: Sequence[tuple[float, float]]
) -> Generator[Request, Any, list[tuple[float, float]]]:
    """For each side and level the first breakpoint up to which they weigh the level or more.

    If they weigh just that, the next breakpoint as well: these are the ends of an interval of minima. If
    there is none, or they weigh more, the first one twice. The last one if all of them weigh less; (0, 0) if
    there are none.

    The scores are those of `losses` at the best point, moved by ``step``; only pieces of the sign of the side
    count, with 0 all.
    """
    statistics = [_Statistic(side, level) for side, level in wanted]
    while not all(each.few for each in statistics):
        bins: list[KeyBins] = yield KeyPass(losses, step, tuple(each.range for each in statistics))
        for statistic, own in zip(statistics, bins, strict=True):
            statistic.narrow(own)
    found: list[KeysInRange] = yield CollectPass(losses, step, tuple(each.range for each in statistics))
    return [statistic.among(keys) for statistic, keys in zip(statistics, found, strict=True)]


def shift_of(low: int, high: int) -> int:
    """Bits of the keys in a range that one bin does not tell apart."""
    return max((high - low).bit_length() - KEY_BITS, 0)
