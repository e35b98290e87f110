"""Weighted order statistics of the breakpoints of losses, by selection in bounded memory.

With the scores fixed, a row loses something in a piece of its loss up to some bias or from some bias on; as
the bias grows through that breakpoint, the derivative of the loss grows by the row's weight. So the loss is
smallest where the breakpoints in order have as much weight as the pieces that fall have in all: a weighted
order statistic of the breakpoints.

Nothing is sorted. A breakpoint is taken for an unsigned integer of the same order, its key
(`ooc_svm.ops.sort_keys`). One pass over the row vectors adds up weights by ranges of the keys; the next one
divides the range that holds the wanted place, until that is one value: three or four passes. What is added up
has the same bits on any number of threads and on any engine, and equal breakpoints are one value: ties change
nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.ops.sort_keys import scores_of_keys
from ooc_svm.passes.base import Request, RowSlice, WholeRead
from ooc_svm.solvers.cutting_plane import quantile_loops

KEY_BITS = 12  # Of a key, that one pass tells apart
LARGEST_KEY = 2**64 - 1


@dataclass(slots=True)
class KeyBins:
    """Weight of the breakpoints in each range of keys, and the smallest and largest of these."""

    weights: Float64Array
    smallest: npt.NDArray[np.uint64]
    largest: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeyPass(WholeRead):
    """Pass over row vectors: breakpoints by ranges of their keys."""

    losses: Any  # See `ooc_svm.solvers.cutting_plane.row_rules.RowLosses`
    step: float
    side: float
    low: int
    high: int
    writes: ClassVar[tuple[str, ...]] = ()
    needs_data: ClassVar[bool] = False

    @property
    def reads(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self.losses.reads
        return names

    @property
    def shift(self) -> int:
        """Bits of a key that one bin does not tell apart."""
        return max((self.high - self.low).bit_length() - KEY_BITS, 0)

    def empty(self) -> KeyBins:
        n = 1 << KEY_BITS
        return KeyBins(np.zeros(n), np.full(n, LARGEST_KEY, np.uint64), np.zeros(n, np.uint64))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: KeyBins) -> None:
        where = np.uint64(self.low), np.uint64(self.high), np.uint64(self.shift)
        targets = self.losses.targets.values(rows.vectors)
        quantile_loops.add_breakpoints(
            *(self.losses.loss, *self.losses.segment(rows), self.step, self.side, *where, *targets),
            *(partial.weights, partial.smallest, partial.largest),
        )

    def merge(self, left: KeyBins, right: KeyBins) -> KeyBins:
        left.weights += right.weights
        np.minimum(left.smallest, right.smallest, out=left.smallest)
        np.maximum(left.largest, right.largest, out=left.largest)
        return left


def weighted_quantile(
    losses: Any, step: float, side: float, level: float
) -> Generator[Request, Any, tuple[float, float]]:
    """The first breakpoint up to which they weigh ``level`` or more; if just that, the next one as well.

    Without a next one, or if it is more, the first one twice. These are the ends of an interval of minima.

    The scores are those of `losses` at the best point, moved by ``step``; only pieces of the sign ``side``
    count, with 0 all. The last breakpoint if all of them weigh less; (0, 0) if there are none.
    """
    low, high, below, above = 0, LARGEST_KEY, 0.0, None
    while True:
        bins: KeyBins = yield KeyPass(losses, step, side, low, high)
        filled = np.flatnonzero(bins.weights)
        if not len(filled):
            return 0.0, 0.0
        through = below + np.cumsum(bins.weights[filled])
        k = min(int(np.searchsorted(through, level)), len(filled) - 1)
        if k + 1 < len(filled):
            above = int(bins.smallest[filled[k + 1]])
        low, high = int(bins.smallest[filled[k]]), int(bins.largest[filled[k]])
        if low == high:
            break
        below = float(through[k - 1]) if k else below
    if above is None or through[k] != level:
        above = low
    first, last = scores_of_keys(np.array([low, above], np.uint64)).tolist()
    return first, last
