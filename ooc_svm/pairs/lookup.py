"""The counting of active pairs of rows of two ranks, in memory: bare scores are sorted, rows are not.

See `ooc_svm.pairs.lookup_loops` for the look-up. Rows are first dealt out roughly by score, so that rows
that are looked up one after the other find their slots and values in a core's cache; how they were dealt
out never shows in a count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.ops import sort_keys
from ooc_svm.pairs import lookup_loops
from ooc_svm.rowvectors.sort import check_finite
from ooc_svm.rowvectors.vector import AnyArray, RowVector, row_slices
from ooc_svm.system.threads import parallel_map

# More rows cannot be numbered by 32 bits.
_MOST_ROWS = 2**32 - 1
# Rows of a part: their slots and values, and those they are looked up in, fit a core's cache.
_PART_ROWS = 1 << 15
# Values of a slot, on average, and scores of which the parts are made.
_SLOT_VALUES, _SAMPLE = 2, 4096
# A grid ends where so small a share of the values is outside; those are looked up in its first and last slot.
_OUTSIDE = 1 / 128

Counts = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Slots of equal width."""

    low: float
    high: float
    scale: float
    n_slots: int

    @classmethod
    def over(cls, ordered: Float64Array, n_slots: int) -> _Grid:
        """A grid over values in ascending order; of one slot where they are too close together or too far."""
        if not len(ordered):
            return cls(0.0, 0.0, 0.0, 1)
        outside = int(len(ordered) * _OUTSIDE)
        low, high = float(ordered[outside]), float(ordered[-1 - outside])
        width = 0.5 * high - 0.5 * low
        scale = (n_slots - 1) / width if width > 0.0 else 0.0
        if n_slots == 1 or not 0.0 < scale < math.inf:
            return cls(low, high, 0.0, 1)
        return cls(low, high, scale, n_slots)


@dataclass(frozen=True, slots=True)
class _Side:
    """The turned scores of some rows of one rank in ascending order, and the grid to look them up by."""

    values: Float64Array
    grid: _Grid
    below: Counts

    @classmethod
    def of(cls, turned: Float64Array, values: Float64Array) -> _Side:
        """A side of those turned scores; `values` is to hold them, with `tworanks.PADDING` more."""
        ordered = values[: len(turned)]
        ordered[:] = turned
        ordered.sort()
        values[len(turned) :] = np.inf
        grid = _Grid.over(ordered, max(len(turned) // _SLOT_VALUES, 1))
        below = np.zeros(grid.n_slots + 1, np.uint32)
        lookup_loops.fill_slots(ordered, grid.low, grid.high, grid.scale, below)
        return cls(values, grid, below)

    def count(self, turned: Float64Array, margin: float, out: Counts) -> None:
        """Count the active pairs of rows of the other rank with those of this side."""
        grid = self.grid
        lookup_loops.count_active(
            turned, self.values, grid.low, grid.high, grid.scale, self.below, margin, out
        )


def can_look_up(n_rows: int, n_ranks: int, weighted: bool) -> bool:
    """Whether `TwoRanks` serves such rows."""
    return n_ranks <= 2 and not weighted and n_rows <= _MOST_ROWS


class TwoRanks:
    """Counts the active pairs of one group of rows that have two ranks and no weights.

    Parameters
    ----------
    scores, ranks : RowVector of float64 and of int32
        Ranks are 0 and 1; see `can_look_up`.
    groups : int
        Cut groups.
    first_row : int
        Number of the first row.
    margin : float
    threads : int
        The counts do not depend on them.

    Attributes
    ----------
    plus : RowVector of int64
        Active pairs in which a row is the higher one; it can be read alone.
    minus : sequence of RowVector of int64
        For each cut group, those in which it is the lower one.

    Raises
    ------
    InputError
        For a score that is not finite.
    """

    def __init__(
        self,
        scores: RowVector,
        ranks: RowVector,
        groups: int,
        first_row: int,
        margin: float,
        threads: int = 1,
    ) -> None:
        self._ranks, self._groups, self._first_row = ranks, groups, first_row
        self._threads = threads
        # Long slices: threads that meet often wait for each other.
        self._slices = list(row_slices(scores.n_rows, self._share(scores.n_rows)))
        # Of each row: where it is dealt out to.
        self._places: Numbers = np.empty(scores.n_rows, np.uint32)
        # Room for the scores, and for the sorted sides when those are dealt out.
        room = np.empty(scores.n_rows + (1 + groups) * lookup_loops.PADDING)
        own = room[: scores.n_rows]
        self._read(scores, own)
        turned, bounds = self._deal(own)
        self._counts: Counts = np.empty((groups, scores.n_rows), np.uint32)
        self._count(turned, bounds, margin, room)
        self.plus: RowVector = _DealtCounts(self._counts[0], self._places, ranks, 1)
        self.minus: Sequence[RowVector] = [
            _DealtCounts(column, self._places, ranks, 0) for column in self._counts
        ]

    def _share(self, n_rows: int) -> int:
        """Rows for one thread."""
        return max(-(-n_rows // self._threads), 1)

    def _read(self, scores: RowVector, out: Float64Array) -> None:
        def read(start: int, stop: int) -> None:
            out[start:stop] = scores.read(start, stop, out[start:stop])
            check_finite(out[start:stop], start)

        parallel_map(read, self._slices, self._threads)

    def _deal(self, scores: Float64Array) -> tuple[Float64Array, list[int]]:
        """Turned scores, dealt out to the sides, and inside each to parts; bounds of the sides."""
        sample = np.sort(scores[:: max(len(scores) // _SAMPLE, 1)])
        grid = _Grid.over(sample, max(len(scores) // _PART_ROWS, 1))
        n_parts = grid.n_slots
        sizes = np.zeros((len(self._slices), (1 + self._groups) * n_parts), np.int64)
        turned = np.empty(len(scores))

        def find(number: int, start: int, stop: int) -> None:
            lookup_loops.find_parts(
                scores[start:stop], self._ranks.read(start, stop), self._first_row + start, self._groups,
                grid.low, grid.high, grid.scale, n_parts, self._places[start:stop], sizes[number],
            )  # fmt: skip

        def move(number: int, start: int, stop: int) -> None:
            places = self._places[start:stop]
            sort_keys.assign_places(places, next_places[number], places)
            lookup_loops.scatter_turned(places, scores[start:stop], self._ranks.read(start, stop), turned)

        tasks = [(number, *rows) for number, rows in enumerate(self._slices)]
        parallel_map(find, tasks, self._threads)
        next_places = _first_places(sizes)
        parallel_map(move, tasks, self._threads)
        of_sides = sizes.sum(axis=0).reshape(1 + self._groups, n_parts).sum(axis=1)
        return turned, [0, *np.cumsum(of_sides).tolist()]

    def _count(self, turned: Float64Array, bounds: Sequence[int], margin: float, room: Float64Array) -> None:
        """Count the pairs of every row, in the order they are dealt out in."""
        areas = [slice(first, end) for first, end in pairwise(bounds)]
        filling = []
        for area in areas:
            values, room = np.split(room, [area.stop - area.start + lookup_loops.PADDING])
            filling.append((turned[area], values))
        lower, *higher = parallel_map(_Side.of, filling, self._threads)

        def count(others: Sequence[_Side], start: int, stop: int) -> None:
            for side, column in zip(others, self._counts, strict=False):
                side.count(turned[start:stop], margin, column[start:stop])

        tasks = []
        for number, area in enumerate(areas):
            others = [lower] if number else higher
            tasks += [
                (others, area.start + start, area.start + stop)
                for start, stop in row_slices(area.stop - area.start, self._share(area.stop - area.start))
            ]
        parallel_map(count, tasks, self._threads)


class _DealtCounts(RowVector):
    """Counts of the rows of one rank, and 0 for the others, picked from where the rows were dealt out to."""

    def __init__(self, counts: Counts, places: Numbers, ranks: RowVector, rank: int) -> None:
        super().__init__(len(places), np.int64)
        self._counts, self._places, self._ranks, self._rank = counts, places, ranks, rank

    @property
    def in_memory(self) -> bool:
        """Always false: reading costs something."""
        return False

    def close(self) -> None:
        """Nothing is held that others do not hold."""

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        found = np.empty(stop - start, np.int64) if out is None else out[: stop - start]
        ranks = self._ranks.read(start, stop)
        lookup_loops.gather(self._places[start:stop], self._counts, ranks, self._rank, found)
        return found

    def _write(self, start: int, array: AnyArray) -> None:
        raise TypeError("counts of pairs cannot be written")


def _first_places(sizes: Int64Array) -> Int64Array:
    """Where the first row of each slice goes in each part, from the sizes of both (slices, parts)."""
    ends = np.cumsum(sizes.T.ravel()).reshape(sizes.T.shape)
    return np.ascontiguousarray((ends - sizes.T).T)
