"""Active pairs counted over row vectors: the rows are sorted, swept, and put back in their own order.

All steps read and write ranges of columns in memory or in scratch files; the computation, and the order in
which weights are added, are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ooc_svm.data.blocks import SLICE_ROWS, Int64Array, row_slices
from ooc_svm.ops import sort_keys
from ooc_svm.pairs import sweep_loops
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.sort import partition, sort_by_score
from ooc_svm.rowvectors.vector import AnyArray, RowVector
from ooc_svm.rowvectors.views import RowNumbers
from ooc_svm.system.threads import parallel_map

# Bits of a rank that are counted by one sweep: the tree of so many ranks stays in a core's cache. It must not
# depend on the memory: the order in which weights are added depends on it.
RANK_BITS = 17
# Number of rows that are sorted or put back within a core's cache.
BEST_ROWS = 1 << 14
# Bytes of buffers for each row that is partitioned, sorted or swept.
ROW_BYTES = 96
# Smallest number of rows that are sorted together.
_FEWEST_ROWS = 64
# Maximum number of bytes for counting scores while sorting.
_COUNTING_BYTES = 1 << 26

UP, DOWN = 1, -1


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of one order of the rows: inputs, and counts."""

    scores: RowVector
    ranks: RowVector
    rows: RowVector
    weights: RowVector | None
    plus: RowVector
    minus: Sequence[RowVector]

    def inputs(self) -> list[RowVector]:
        """Columns that the sweeps read."""
        return [self.scores, self.ranks, self.rows, *([] if self.weights is None else [self.weights])]

    def counts(self) -> list[RowVector]:
        """Columns that the sweeps add to."""
        return [self.plus, *self.minus]

    def all(self) -> list[RowVector]:
        """Every column."""
        return self.inputs() + self.counts()


@dataclass(frozen=True, slots=True)
class _RankRange:
    """Rows ``start .. stop``, scores ascending, with the ranks from `low` to below ``low + n_ranks``."""

    start: int
    stop: int
    low: int
    n_ranks: int


class PairSweep:
    """Counts the active pairs of one query, in columns of as many rows that `scratch` creates.

    With 0 slack blocks, pairs are counted for their higher row alone. At most `most` rows are in memory in
    addition to the columns, with `ROW_BYTES` for each (and some megabytes). Where all columns are in memory,
    there are as many sweeps at a time as threads; each sweep writes its own column.
    """

    def __init__(
        self,
        scores: RowVector,
        ranks: RowVector,
        n_ranks: int,
        weights: RowVector | None,
        n_slacks: int,
        scratch: RowVectors,
        most: int,
        threads: int = 1,
    ) -> None:
        self._n_rows, self._n_ranks, self._n_slacks = scores.n_rows, n_ranks, n_slacks
        self._scratch, self._weighted = scratch, weights is not None
        counted = np.uint32 if self._n_rows < 2**32 else np.int64
        self._counts: Any = np.float64 if self._weighted else counted
        self._columns, self._spare = self._new_columns("a", 0), self._new_columns("b", None)
        most = max(most, _FEWEST_ROWS)
        if all(column.in_memory for column in self._columns.all() + self._spare.all()):
            self._window, self._slice, self._best, self._threads = (
                self._n_rows,
                SLICE_ROWS,
                BEST_ROWS,
                threads,
            )
        else:
            self._window = self._slice = self._best = most
            self._threads = 1
        sources = [scores, ranks, RowNumbers(self._n_rows, self._columns.rows.dtype)]
        if weights is not None:
            sources.append(weights)
        counting = min(most * ROW_BYTES // 2, _COUNTING_BYTES)
        sizes = {"best": self._best, "most": most, "rows": self._slice, "memory_bytes": counting}
        sort_by_score(sources, self._columns.inputs(), **sizes)

    def count(self, margin: float, first_row: int, plus: RowVector, minus: Sequence[RowVector]) -> None:
        """Set `plus` and, for each slack block, `minus` (see `ooc_svm.pairs.counts`).

        Ranks are counted digit by digit: one sweep counts the pairs whose ranks differ in the first digit;
        the next sweeps, one for each first digit, those that differ in the second; and so on.
        """
        shift = 0
        while max(self._n_ranks - 1, 0) >> shift >> RANK_BITS:
            shift += RANK_BITS
        ranges = [_RankRange(0, self._n_rows, 0, self._n_ranks)]
        while True:
            for rows in ranges:
                self._count_digit(rows, shift, margin, first_row)
            if shift == 0:
                break
            ranges = [inner for rows in ranges for inner in self._partition(rows, shift)]
            self._columns, self._spare = self._spare, self._columns
            shift -= RANK_BITS
        self._restore([plus, *minus])

    def _new_columns(self, name: str, fill: float | None) -> _Columns:
        """New columns; the counts are `fill`."""
        create = self._scratch.create
        return _Columns(
            create(f"scores {name}", np.float64, None),
            create(f"ranks {name}", np.int32, None),
            create(f"rows {name}", np.uint32 if self._n_rows <= 2**32 else np.int64, None),
            create(f"weights {name}", np.float64, None) if self._weighted else None,
            create(f"plus {name}", self._counts, fill),
            [create(f"minus {name} {slack}", self._counts, fill) for slack in range(self._n_slacks)],
        )

    def _count_digit(self, rows: _RankRange, shift: int, margin: float, first_row: int) -> None:
        """Count the pairs inside a range whose ranks differ in the digit at `shift`."""
        n_digits = ((rows.n_ranks - 1) >> shift) + 1
        if n_digits < 2 or rows.stop - rows.start < 2:
            return
        digits = rows.low, shift, n_digits
        sweeps = [(rows, digits, DOWN, (1, 0), margin, self._columns.plus)]
        for slack, column in enumerate(self._columns.minus):
            chosen = self._n_slacks, (slack - first_row) % self._n_slacks
            sweeps.append((rows, digits, UP, chosen, margin, column))
        parallel_map(self._sweep, sweeps, self._threads if rows.stop - rows.start >= BEST_ROWS else 1)

    def _sweep(
        self,
        rows: _RankRange,
        digits: tuple[int, int, int],
        direction: int,
        chosen: tuple[int, int],
        margin: float,
        out: RowVector,
    ) -> None:
        """One sweep over the rows of a range."""
        tree = np.zeros(sweep_loops.tree_size(digits[2]), self._counts)
        columns = self._columns
        windows = self._windows(rows, direction)
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

    def _windows(self, rows: _RankRange, direction: int) -> list[tuple[int, int]]:
        """Row ranges that cover a range, in the order of a sweep."""
        windows = row_slices(rows.stop - rows.start, self._window)
        return [(rows.start + start, rows.start + stop) for start, stop in windows][::direction]

    def _partition(self, rows: _RankRange, shift: int) -> list[_RankRange]:
        """Copy the rows of a range to the spare columns, partitioned by the digit of their ranks."""

        def digits(start: int, stop: int) -> Int64Array:
            return (self._columns.ranks.read(start, stop).astype(np.int64) - rows.low) >> shift

        sizes = np.zeros(((rows.n_ranks - 1) >> shift) + 1, np.int64)
        for start, stop in self._windows(rows, UP):
            sizes += np.bincount(digits(start, stop), minlength=len(sizes))
        sources, targets = self._columns.all(), self._spare.all()
        bounds = partition(sources, targets, rows.start, rows.stop, sizes, digits, self._slice).tolist()
        inner = []
        for digit, (start, stop) in enumerate(pairwise(bounds)):
            above = digit << shift
            n_ranks = min(1 << shift, rows.n_ranks - above)
            inner.append(_RankRange(start, stop, rows.low + above, n_ranks))
        return inner

    def _restore(self, targets: Sequence[RowVector]) -> None:
        """Write the counts in the order of the rows, one row range after another."""
        bits = self._best.bit_length() - 1
        ranges = list(row_slices(self._n_rows, 1 << bits))
        columns = self._columns
        if len(ranges) > 1:
            sizes = np.array([stop - start for start, stop in ranges])

            def ranges_of(start: int, stop: int) -> Int64Array:
                return (columns.rows.read(start, stop) >> bits).astype(np.int64)

            sources, spare = [columns.rows, *columns.counts()], [self._spare.rows, *self._spare.counts()]
            partition(sources, spare, 0, self._n_rows, sizes, ranges_of, self._slice)
            columns = self._spare
        for start, stop in ranges:
            rows = columns.rows.read(start, stop)
            for column, target in zip(columns.counts(), targets, strict=True):
                values = np.empty(stop - start, target.dtype)
                sort_keys.scatter(rows, start, column.read(start, stop), values)
                target.write(start, values)


def _read(columns: Sequence[RowVector | None], start: int, stop: int) -> list[AnyArray | None]:
    return [None if column is None else column.read(start, stop) for column in columns]
