"""The counting of active pairs over row vectors: sorted, swept, and back in the order of the rows.

All steps read and write ranges of columns that lie in memory or in scratch files; what is computed, and in
which order weights are added, is the same either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Int64Array
from ooc_svm.ops import sort_keys
from ooc_svm.pairs import sweep_loops
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.sort import partition, sort_by_score
from ooc_svm.rowvectors.vector import SLICE_ROWS, AnyArray, RowVector, row_slices
from ooc_svm.rowvectors.views import RowNumbers
from ooc_svm.system.threads import parallel_map

# The tree of so many ranks stays in a core's cache; where there are more, rows are dealt out to parts. Never
# set by the memory: the order in which weights are added depends on it.
RANK_BITS = 17
# Rows that are sorted or put back in a core's cache.
BEST_ROWS = 1 << 14
# Buffers of a row that is dealt out, sorted or swept.
ROW_BYTES = 96
_FEWEST_ROWS = 64
_COUNTING_BYTES = 1 << 26

UP, DOWN = 1, -1


@dataclass(frozen=True, slots=True)
class _Columns:
    """What is known of each row, in an order of their own."""

    scores: RowVector
    ranks: RowVector
    rows: RowVector
    weights: RowVector | None
    plus: RowVector
    minus: Sequence[RowVector]

    def given(self) -> list[RowVector]:
        """What is there before the sweeps."""
        return [self.scores, self.ranks, self.rows, *([] if self.weights is None else [self.weights])]

    def found(self) -> list[RowVector]:
        """What the sweeps add to."""
        return [self.plus, *self.minus]

    def all(self) -> list[RowVector]:
        """Every column."""
        return self.given() + self.found()


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows ``start .. stop``, scores ascending, with the ranks from `low` to below ``low + n_ranks``."""

    start: int
    stop: int
    low: int
    n_ranks: int


class PairSweep:
    """Counts the active pairs of one group of rows.

    Parameters
    ----------
    scores, ranks : RowVector of float64 and of int32
    n_ranks : int
    weights : RowVector of float64, or None
    groups : int
        Cut groups.
    scratch : RowVectors
        Makes the columns: as long as the vectors.
    most : int
        Rows that may be held in memory at a time besides, at `ROW_BYTES` each (and some megabytes).
    threads : int
        Sweeps that go on at the same time where all columns are in memory; they write columns of their own.
    """

    def __init__(
        self,
        scores: RowVector,
        ranks: RowVector,
        n_ranks: int,
        weights: RowVector | None,
        groups: int,
        scratch: RowVectors,
        most: int,
        threads: int = 1,
    ) -> None:
        self._n_rows, self._n_ranks, self._groups = scores.n_rows, n_ranks, groups
        self._scratch, self._weighted = scratch, weights is not None
        counted = np.uint32 if self._n_rows < 2**32 else np.int64
        self._counts: Any = np.float64 if self._weighted else counted
        self._columns, self._spare = self._new_columns("a", 0), self._new_columns("b", None)
        most = max(most, _FEWEST_ROWS)
        if all(column.in_memory for column in self._columns.all() + self._spare.all()):
            self._window, self._slice, self._best = self._n_rows, SLICE_ROWS, BEST_ROWS
            self._threads = threads
        else:
            self._threads = 1
            self._window = self._slice = self._best = most
        sources = [scores, ranks, RowNumbers(self._n_rows, self._columns.rows.dtype)]
        if weights is not None:
            sources.append(weights)
        sort_by_score(
            sources,
            self._columns.given(),
            best=self._best,
            most=most,
            rows=self._slice,
            memory_bytes=min(most * ROW_BYTES // 2, _COUNTING_BYTES),
        )

    def count(self, margin: float, first_row: int, plus: RowVector, minus: Sequence[RowVector]) -> None:
        """Set `plus` and, for each cut group, `minus` (see `ooc_svm.pairs.counts`).

        Ranks are counted digit by digit: pairs whose ranks differ in the first digit in one sweep, then those
        that differ in the next, inside each part of the rows that agree so far.
        """
        shift = 0
        while max(self._n_ranks - 1, 0) >> shift >> RANK_BITS:
            shift += RANK_BITS
        found = [_Part(0, self._n_rows, 0, self._n_ranks)]
        while True:
            for part in found:
                self._count_part(part, shift, margin, first_row)
            if shift == 0:
                break
            found = [inner for part in found for inner in self._deal_part(part, shift)]
            self._columns, self._spare = self._spare, self._columns
            shift -= RANK_BITS
        self._restore([plus, *minus])

    def _new_columns(self, name: str, fill: float | None) -> _Columns:
        """Columns to be written; the counts hold `fill`."""
        create = self._scratch.create
        return _Columns(
            create(f"scores {name}", np.float64, None),
            create(f"ranks {name}", np.int32, None),
            create(f"rows {name}", np.uint32 if self._n_rows <= 2**32 else np.int64, None),
            create(f"weights {name}", np.float64, None) if self._weighted else None,
            create(f"plus {name}", self._counts, fill),
            [create(f"minus {name} {group}", self._counts, fill) for group in range(self._groups)],
        )

    def _count_part(self, part: _Part, shift: int, margin: float, first_row: int) -> None:
        n_digits = ((part.n_ranks - 1) >> shift) + 1
        if n_digits < 2 or part.stop - part.start < 2:
            return
        digits = part.low, shift, n_digits
        passes = [(part, digits, DOWN, (1, 0), margin, self._columns.plus)]
        for group, column in enumerate(self._columns.minus):
            chosen = self._groups, (group - first_row) % self._groups
            passes.append((part, digits, UP, chosen, margin, column))
        parallel_map(self._pass, passes, self._threads if part.stop - part.start >= BEST_ROWS else 1)

    def _pass(
        self,
        part: _Part,
        digits: tuple[int, int, int],
        direction: int,
        chosen: tuple[int, int],
        margin: float,
        out: RowVector,
    ) -> None:
        """One sweep over the rows of a part."""
        tree = np.zeros(sweep_loops.tree_size(digits[2]), self._counts)
        columns = self._columns
        windows = self._windows(part, direction)
        waiting = list(reversed(windows))
        inserted = [columns.scores, columns.ranks, columns.rows, columns.weights]
        ahead, q = _read(inserted, *waiting.pop()), 0
        for start, stop in windows:
            own = _read([columns.scores, columns.ranks, columns.weights], start, stop)
            counts, k = out.read(start, stop), 0
            while True:
                q, k = sweep_loops.sweep(
                    *ahead, q, not waiting, *own, k, counts, direction, *digits, *chosen, margin, tree
                )
                if k == stop - start:
                    break
                ahead, q = _read(inserted, *waiting.pop()), 0
            out.write(start, counts)

    def _windows(self, part: _Part, direction: int) -> list[tuple[int, int]]:
        windows = [
            (part.start + start, part.start + stop)
            for start, stop in row_slices(part.stop - part.start, self._window)
        ]
        return windows[::direction]

    def _deal_part(self, part: _Part, shift: int) -> list[_Part]:
        """Move the rows of a part to the spare columns, one part for each digit of their ranks."""

        def digits(start: int, stop: int) -> Int64Array:
            return (self._columns.ranks.read(start, stop).astype(np.int64) - part.low) >> shift

        sizes = np.zeros(((part.n_ranks - 1) >> shift) + 1, np.int64)
        for start, stop in self._windows(part, UP):
            sizes += np.bincount(digits(start, stop), minlength=len(sizes))
        sources, targets = self._columns.all(), self._spare.all()
        bounds = partition(sources, targets, part.start, part.stop, sizes, digits, self._slice).tolist()
        inner = []
        for digit in range(len(sizes)):
            above = digit << shift
            n_ranks = min(1 << shift, part.n_ranks - above)
            inner.append(_Part(bounds[digit], bounds[digit + 1], part.low + above, n_ranks))
        return inner

    def _restore(self, targets: Sequence[RowVector]) -> None:
        """Write the counts in the order of the rows, one range of rows after the other."""
        bits = self._best.bit_length() - 1
        ranges = list(row_slices(self._n_rows, 1 << bits))
        columns = self._columns
        if len(ranges) > 1:
            sizes = np.array([stop - start for start, stop in ranges])

            def range_of(start: int, stop: int) -> Int64Array:
                return (columns.rows.read(start, stop) >> bits).astype(np.int64)

            sources, spare = [columns.rows, *columns.found()], [self._spare.rows, *self._spare.found()]
            partition(sources, spare, 0, self._n_rows, sizes, range_of, self._slice)
            columns = self._spare
        for start, stop in ranges:
            rows = columns.rows.read(start, stop)
            for column, target in zip(columns.found(), targets, strict=True):
                values = np.empty(stop - start, target.dtype)
                sort_keys.scatter(rows, start, column.read(start, stop), values)
                target.write(start, values)


def _read(columns: Sequence[RowVector | None], start: int, stop: int) -> list[AnyArray | None]:
    return [None if column is None else column.read(start, stop) for column in columns]
