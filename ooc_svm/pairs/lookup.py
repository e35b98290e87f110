"""Active pairs of rows of two ranks, counted in memory: bare scores are sorted, rows are not.

See `ooc_svm.pairs.lookup_loops` for the look-up. Rows are first partitioned roughly by score, so that rows
that are looked up one after another find their cells and values in a core's cache; the partition does not
change the counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, row_slices
from ooc_svm.ops import sort_keys
from ooc_svm.pairs import lookup_loops
from ooc_svm.rowvectors.sort import check_finite
from ooc_svm.rowvectors.vector import AnyArray, RowVector
from ooc_svm.rowvectors.views import ComputedVector
from ooc_svm.system.threads import parallel_map

# Largest number of rows that 32 bits can number.
_MOST_ROWS = 2**32 - 1
# Rows of a bucket: their cells and values, and those of the other side, fit a core's cache.
_BUCKET_ROWS = 1 << 15
# Average number of values of a cell.
_CELL_VALUES = 2
# Number of scores from which the bounds of the buckets are derived.
_SAMPLE = 4096
# Share of the values outside each end of a grid; they are looked up in its first and last cell.
_OUTSIDE = 1 / 128

UInt32Array = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells of equal width."""

    low: float
    high: float
    scale: float
    n_cells: int

    @classmethod
    def over(cls, ordered: Float64Array, n_cells: int) -> _Grid:
        """A grid over ascending values; of one cell where they are too close together or too far apart."""
        if not len(ordered):
            return cls(0.0, 0.0, 0.0, 1)
        outside = int(len(ordered) * _OUTSIDE)
        low, high = float(ordered[outside]), float(ordered[-1 - outside])
        width = 0.5 * high - 0.5 * low
        scale = (n_cells - 1) / width if width > 0.0 else 0.0
        if n_cells == 1 or not 0.0 < scale < math.inf:
            return cls(low, high, 0.0, 1)
        return cls(low, high, scale, n_cells)


@dataclass(frozen=True, slots=True)
class _Side:
    """The x of some rows of one rank in ascending order, and the grid to look them up by."""

    values: Float64Array
    grid: _Grid
    below: UInt32Array

    @classmethod
    def of(cls, signed: Float64Array, values: Float64Array) -> _Side:
        """A side with these x; `values` is filled with them and `lookup_loops.PADDING` infinite entries."""
        ordered = values[: len(signed)]
        ordered[:] = signed
        ordered.sort()
        values[len(signed) :] = np.inf
        grid = _Grid.over(ordered, max(len(signed) // _CELL_VALUES, 1))
        below = np.zeros(grid.n_cells + 1, np.uint32)
        lookup_loops.fill_cells(ordered, grid.low, grid.high, grid.scale, below)
        return cls(values, grid, below)

    def count(self, signed: Float64Array, margin: float, out: UInt32Array) -> None:
        """Count the active pairs of rows of the other rank with those of this side."""
        grid = self.grid
        lookup_loops.count_active(
            signed, self.values, grid.low, grid.high, grid.scale, self.below, margin, out
        )


def can_look_up(n_rows: int, n_ranks: int, weighted: bool) -> bool:
    """Whether `TwoRanks` can count the pairs of such rows."""
    return n_ranks <= 2 and not weighted and n_rows <= _MOST_ROWS


class TwoRanks:
    """Counts the active pairs of one query whose rows have the ranks 0 and 1 and no weights.

    `plus` and `minus` are read-only row vectors of int64: the active pairs in which a row is the higher one,
    and for each slack block those in which it is the lower one. They do not depend on the number of threads.
    InputError if a score is not finite.
    """

    def __init__(
        self,
        scores: RowVector,
        ranks: RowVector,
        n_slacks: int,
        first_row: int,
        margin: float,
        threads: int = 1,
    ) -> None:
        self._ranks, self._n_slacks, self._first_row = ranks, n_slacks, first_row
        self._threads = threads
        # One long slice for each thread: threads that synchronise often wait for each other.
        self._slices = list(row_slices(scores.n_rows, self._share(scores.n_rows)))
        # The place of each row in the partition.
        self._places: UInt32Array = np.empty(scores.n_rows, np.uint32)
        # Contains the scores, and after the partition the sorted sides.
        space = np.empty(scores.n_rows + (1 + n_slacks) * lookup_loops.PADDING)
        own = space[: scores.n_rows]
        self._read(scores, own)
        signed, bounds = self._partition(own)
        self._counts: UInt32Array = np.empty((n_slacks, scores.n_rows), np.uint32)
        self._count(signed, bounds, margin, space)
        self.plus: RowVector = _GatheredCounts(self._counts[0], self._places, ranks, 1)
        self.minus: Sequence[RowVector] = [
            _GatheredCounts(column, self._places, ranks, 0) for column in self._counts
        ]

    def _share(self, n_rows: int) -> int:
        """Rows for each thread."""
        return max(-(-n_rows // self._threads), 1)

    def _read(self, scores: RowVector, out: Float64Array) -> None:
        def read(start: int, stop: int) -> None:
            out[start:stop] = scores.read(start, stop, out[start:stop])
            check_finite(out[start:stop], start)

        parallel_map(read, self._slices, self._threads)

    def _partition(self, scores: Float64Array) -> tuple[Float64Array, list[int]]:
        """The x, partitioned by side and roughly by score; bounds of the sides."""
        sample = np.sort(scores[:: max(len(scores) // _SAMPLE, 1)])
        grid = _Grid.over(sample, max(len(scores) // _BUCKET_ROWS, 1))
        sizes = np.zeros((len(self._slices), (1 + self._n_slacks) * grid.n_cells), np.int64)
        signed = np.empty(len(scores))

        def find(number: int, start: int, stop: int) -> None:
            lookup_loops.find_buckets(
                scores[start:stop], self._ranks.read(start, stop), self._first_row + start, self._n_slacks,
                grid.low, grid.high, grid.scale, grid.n_cells, self._places[start:stop], sizes[number],
            )  # fmt: skip

        def move(number: int, start: int, stop: int) -> None:
            places = self._places[start:stop]
            sort_keys.assign_places(places, next_places[number], places)
            lookup_loops.scatter_signed(places, scores[start:stop], self._ranks.read(start, stop), signed)

        tasks = [(number, *rows) for number, rows in enumerate(self._slices)]
        parallel_map(find, tasks, self._threads)
        # The place of the first row of each slice in each bucket.
        ends = np.cumsum(sizes.T.ravel()).reshape(sizes.T.shape)
        next_places = np.ascontiguousarray((ends - sizes.T).T)
        parallel_map(move, tasks, self._threads)
        of_sides = sizes.sum(axis=0).reshape(1 + self._n_slacks, grid.n_cells).sum(axis=1)
        return signed, [0, *np.cumsum(of_sides).tolist()]

    def _count(self, signed: Float64Array, bounds: Sequence[int], margin: float, space: Float64Array) -> None:
        """Count the pairs of every row, in the order of the partition."""
        sides = [slice(first, end) for first, end in pairwise(bounds)]
        filling = []
        for side in sides:
            values, space = np.split(space, [side.stop - side.start + lookup_loops.PADDING])
            filling.append((signed[side], values))
        lower, *higher = parallel_map(_Side.of, filling, self._threads)

        def count(others: Sequence[_Side], start: int, stop: int) -> None:
            for other, column in zip(others, self._counts, strict=False):
                other.count(signed[start:stop], margin, column[start:stop])

        tasks = []
        for number, side in enumerate(sides):
            others = [lower] if number else higher
            tasks += [
                (others, side.start + start, side.start + stop)
                for start, stop in row_slices(side.stop - side.start, self._share(side.stop - side.start))
            ]
        parallel_map(count, tasks, self._threads)


class _GatheredCounts(ComputedVector):
    """Counts of the rows of one rank, gathered from their places in the partition; 0 for other rows."""

    def __init__(self, counts: UInt32Array, places: UInt32Array, ranks: RowVector, rank: int) -> None:
        super().__init__(len(places), np.int64)
        self._counts, self._places, self._ranks, self._rank = counts, places, ranks, rank

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        found = np.empty(stop - start, np.int64) if out is None else out[: stop - start]
        ranks = self._ranks.read(start, stop)
        lookup_loops.gather(self._places[start:stop], self._counts, ranks, self._rank, found)
        return found
