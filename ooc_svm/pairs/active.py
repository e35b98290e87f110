"""The active pairs of rows at a score vector, counted from row vectors: serves a `PairPass`.

The rows of one query are sorted and swept by `PairSweep`, or looked up by `TwoRanks`, in memory or in scratch
files. Adjacent queries (rows of equal qid) are counted in slices of whole queries; a query that is longer
than a slice is counted alone. The bounds of the slices follow from the queries, never from the memory, and so
do the bits of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ooc_svm.data.blocks import SLICE_ROWS, Int64Array, row_slices
from ooc_svm.pairs.counts import SliceSums, add_slices, count_in_queries, slice_sums
from ooc_svm.pairs.lookup import TwoRanks, can_look_up
from ooc_svm.pairs.request import SUMMED_ROWS, PairPass, PairRows, PairSlope, SwappedPairs
from ooc_svm.pairs.sweep import ROW_BYTES, PairSweep
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import MemoryVector, RowVector
from ooc_svm.rowvectors.views import ConstantVector, MappedVector, PointVector, RangeVector
from ooc_svm.system.threads import parallel_map

# Difference of scores below which a pair is active.
MARGIN = 1.0

# Fewest rows for each thread; with fewer, threads take longer to start than they save.
_THREAD_ROWS = 1 << 17

_SUMMED_ROWS = SUMMED_ROWS

# Bytes for each row that is counted in memory, and in addition for each slack block.
_SORTED_BYTES, _SLACK_BYTES = 80, 24


@dataclass(frozen=True, slots=True)
class _Counted:
    """Counts of adjacent rows: active pairs as the higher one, and by slack block as the lower one."""

    first_row: int
    plus: RowVector
    minus: Sequence[RowVector]


def count_active_pairs(
    request: PairPass, vectors: RowVectors, sorting_bytes: int, threads: int = 1
) -> PairSlope:
    """Serve a `PairPass` whose row vectors are among `vectors`.

    The result depends neither on `sorting_bytes`, the memory for sorting, nor on the number of threads.
    """
    start, end = vectors[request.start], vectors[request.end]
    points = [PointVector(start, end, request.t), PointVector(start, end)]
    coefficients = [vectors[name] for name in request.coefficients]
    threads = max(min(threads, start.n_rows // _THREAD_ROWS), 1)
    counting = _Counting(vectors, max(len(coefficients), 1), sorting_bytes, threads)
    slices: list[SliceSums] = []
    n_rows = 0
    for counted in counting.run(request.rows, points[0]):
        rows = list(row_slices(counted.plus.n_rows, _SUMMED_ROWS))
        share = -(-len(rows) // threads)
        tasks = [(rows[first : first + share],) for first in range(0, len(rows), share)]
        for sums, active in parallel_map(partial(_add_up, counted, points, coefficients), tasks, threads):
            slices += sums
            n_rows += active
    active_pairs, differences = add_slices(slices)
    loss = MARGIN * active_pairs + differences[:, 0]
    return PairSlope(math.fsum(loss), math.fsum(differences[:, 1]), active_pairs, n_rows)


def swapped_share(request: SwappedPairs, vectors: RowVectors, sorting_bytes: int, threads: int = 1) -> float:
    """Serve a `SwappedPairs` whose row vectors are among `vectors`; exact but for the last division."""
    scores = PointVector(vectors[request.start], vectors[request.end], request.t)
    rows, marked = replace(request.rows, weight=None), _marked(request, vectors)
    threads = max(min(threads, scores.n_rows // _THREAD_ROWS), 1)
    counting = _Counting(vectors, 1, sorting_bytes, threads, margin=0.0)

    def below(entries: RowVector) -> int:
        """Pairs whose higher row has the smaller entry."""
        found = 0
        for counted in counting.run(rows, entries, marked):
            slices = row_slices(counted.plus.n_rows)
            found += sum(int(counted.plus.read(start, stop).sum()) for start, stop in slices)
        return found

    swapped, ordered = below(scores), below(MappedVector(scores, np.float64, lambda entries: 0.0 - entries))
    pairs = int(sum_of_pairs(rows, vectors, sorting_bytes, marked))
    return (pairs - ordered + swapped) / (2 * pairs) if pairs else math.nan


def _marked(request: SwappedPairs, vectors: RowVectors) -> RowVector | None:
    """1.0 for rows that make pairs and 0.0 for others; None where all do."""
    if request.marks is None:
        return None
    return MappedVector(vectors[request.marks], np.float64, lambda entries: entries == request.mark)


def sum_of_pairs(
    rows: PairRows, vectors: RowVectors, sorting_bytes: int, weight: RowVector | None = None
) -> float:
    """Sum of the weights of all pairs: those that are active where all scores are equal.

    ``weight``: in place of that of the rows.
    """
    zeros = ConstantVector(vectors.n_rows, np.float64, 0.0)
    sums: list[float] = []
    for counted in _Counting(vectors, 1, sorting_bytes).run(rows, zeros, weight):
        slices = row_slices(counted.plus.n_rows)
        sums.append(math.fsum(counted.plus.read(start, stop).sum() for start, stop in slices))
    return math.fsum(sums)


def whole_queries(query_starts: RowVector) -> Iterator[Int64Array]:
    """Divide rows into slices of whole queries, by `query_starts` (uint8, 1 at the first row of each query).

    Yields the first rows of the queries of a slice, and the row after the last. A slice has at most
    `SLICE_ROWS` rows; only a single query may have more.
    """
    pending = np.empty(0, np.int64)
    for start, stop in row_slices(query_starts.n_rows, SLICE_ROWS):
        starts = np.flatnonzero(query_starts.read(start, stop)) + start
        for first in (starts, np.array([stop])) if stop == query_starts.n_rows else (starts,):
            pending = np.concatenate([pending, first])
            while len(pending) > 1 and pending[-1] - pending[0] > SLICE_ROWS:
                taken = max(int(np.searchsorted(pending, pending[0] + SLICE_ROWS, side="right")), 2)
                yield pending[:taken]
                pending = pending[taken - 1 :]
    if len(pending) > 1:
        yield pending


@contextmanager
def scratch_vectors(
    n_rows: int, n_slacks: int, vectors: RowVectors, sorting_bytes: int
) -> Iterator[tuple[RowVectors, int]]:
    """Row vectors for sorting, and the number of rows that may be in memory in addition to them."""
    fits = n_rows * sorting_row_bytes(n_slacks) <= sorting_bytes
    most = n_rows if fits else sorting_bytes // 2 // ROW_BYTES
    with RowVectors(n_rows, sorting_bytes if fits else sorting_bytes // 2, vectors.scratch_dir) as scratch:
        yield scratch, max(most, 1)


def sorting_row_bytes(n_slacks: int) -> int:
    """Bytes for each row where counting takes place in memory."""
    return _SORTED_BYTES + _SLACK_BYTES * n_slacks


@dataclass(frozen=True, slots=True)
class _Counting:
    """Counts active pairs, slice by slice."""

    vectors: RowVectors
    n_slacks: int
    sorting_bytes: int
    threads: int = 1
    margin: float = MARGIN

    def run(self, rows: PairRows, scores: RowVector, weight: RowVector | None = None) -> Iterator[_Counted]:
        """Counts of all rows, in slices; each is valid until the next one is taken.

        ``weight``: in place of that of the rows.
        """
        ranks = self.vectors[rows.ranks]
        if weight is None and rows.weight is not None:
            weight = self.vectors[rows.weight]
        if rows.query_starts is None:
            yield from self._one_query(scores, ranks, rows.n_ranks, weight, 0)
            return
        for starts in whole_queries(self.vectors[rows.query_starts]):
            first, last = int(starts[0]), int(starts[-1])
            if last - first <= SLICE_ROWS:
                yield self._short_queries(scores, ranks, weight, starts)
                continue
            own = RangeVector(scores, first, last), RangeVector(ranks, first, last)
            for counted in self._one_query(*own, rows.n_ranks, None, first):
                yield counted if weight is None else _weighted(counted, weight.read(first, first + 1).item())

    def _one_query(
        self, scores: RowVector, ranks: RowVector, n_ranks: int, weight: RowVector | None, first_row: int
    ) -> Iterator[_Counted]:
        """Counts of rows that are one query, the first of which has this number: yields once."""
        n_rows, n_slacks = scores.n_rows, self.n_slacks
        fits = n_rows * sorting_row_bytes(n_slacks) <= self.sorting_bytes
        if fits and can_look_up(n_rows, n_ranks, weight is not None):
            found = TwoRanks(scores, ranks, n_slacks, first_row, self.margin, self.threads)
            yield _Counted(first_row, found.plus, found.minus)
            return
        with scratch_vectors(n_rows, n_slacks, self.vectors, self.sorting_bytes) as (scratch, most):
            sweep = PairSweep(scores, ranks, n_ranks, weight, n_slacks, scratch, most, self.threads)
            counts = np.int64 if weight is None else np.float64
            plus = scratch.create("plus", counts)
            minus = [scratch.create(f"minus {slack}", counts) for slack in range(n_slacks)]
            sweep.count(self.margin, first_row, plus, minus)
            yield _Counted(first_row, plus, minus)

    def _short_queries(
        self, scores: RowVector, ranks: RowVector, weight: RowVector | None, starts: Int64Array
    ) -> _Counted:
        """Counts of adjacent queries that fit a slice."""
        first, last = int(starts[0]), int(starts[-1])
        own = starts - first
        weights = None if weight is None else weight.read(first, last)[own[:-1]]
        counts = np.int64 if weights is None else np.float64
        plus, minus = np.empty(last - first, counts), np.empty((last - first, self.n_slacks), counts)
        inside = scores.read(first, last), ranks.read(first, last), own
        count_in_queries(*inside, plus, minus, weights=weights, first_row=first, margin=self.margin)
        return _Counted(first, MemoryVector.wrap(plus), [MemoryVector.wrap(column) for column in minus.T])


def _weighted(counted: _Counted, omega: float) -> _Counted:
    """Counts of a query whose pairs all have the weight ``omega``."""

    def times(vector: RowVector) -> RowVector:
        return MappedVector(vector, np.float64, lambda entries: omega * entries)

    return _Counted(counted.first_row, times(counted.plus), [times(column) for column in counted.minus])


def _add_up(
    counted: _Counted,
    vectors: Sequence[RowVector],
    coefficients: Sequence[RowVector],
    slices: Sequence[tuple[int, int]],
) -> tuple[list[SliceSums], int]:
    """Sums over each of some slices of these rows, and the number of rows in an active pair.

    Writes the coefficients. All slices share buffers: allocating new ones would double the time.
    """
    sums, n_rows, n_slacks = [], 0, len(counted.minus)
    longest = max(stop - start for start, stop in slices)
    entries = np.empty((len(vectors), longest))
    counts = np.empty((2 + n_slacks, longest), counted.plus.dtype)
    for start, stop in slices:
        first, last = counted.first_row + start, counted.first_row + stop
        plus = counted.plus.read(start, stop, counts[0])
        minus = [column.read(start, stop, own) for column, own in zip(counted.minus, counts[2:], strict=True)]
        work = counts[1, : stop - start]
        for slack, (column, target) in enumerate(zip(minus, coefficients, strict=False)):
            np.negative(column, out=work)
            own_rows = slice((slack - first) % n_slacks, None, n_slacks)
            work[own_rows] += plus[own_rows]
            target.write(first, work)
        work[:] = plus
        for column in minus:
            work += column
        n_rows += int(np.count_nonzero(work))
        found = entries[:, : stop - start]
        for vector, own in zip(vectors, found, strict=True):
            own[:] = vector.read(first, last, own)
        sums.append(slice_sums(found, plus, minus, first))
    return sums, n_rows
