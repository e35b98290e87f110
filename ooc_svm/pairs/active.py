"""The active pairs of rows at a score vector: what a `PairPass` asks for, from row vectors.

Rows that make one group are sorted and swept by `PairSweep`, in memory or in scratch files. Groups of rows
that follow one another (rows of equal qid) are counted in slices of whole groups; a group that is longer than
a slice is swept as if it were alone. Where slices are cut follows from the groups, never from the memory, and
so do the bits of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array
from ooc_svm.pairs.counts import SliceSums, add_slices, count_in_groups, pair_sums, slice_sums
from ooc_svm.pairs.lookup import TwoRanks, can_look_up
from ooc_svm.pairs.request import PairPass, PairRows, PairSlope
from ooc_svm.pairs.sweep import ROW_BYTES, PairSweep
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import SLICE_ROWS, MemoryVector, RowVector, row_slices
from ooc_svm.rowvectors.views import ConstantVector, MappedVector, PartVector, PointVector
from ooc_svm.system.threads import parallel_map

MARGIN = 1.0

# With fewer rows a thread, threads take longer to start than they save.
_THREAD_ROWS = 1 << 17
# Rows that are added up at a time; with their buffers they fit a core's cache.
_SUMMED_ROWS = 1 << 15

# Bytes a row of what is sorted, and more for each cut group.
_SORTED_BYTES, _GROUP_BYTES = 80, 24


@dataclass(frozen=True, slots=True)
class _Counted:
    """Counts of consecutive rows: active pairs as the higher one, and by cut groups as the lower one."""

    first_row: int
    plus: RowVector
    minus: Sequence[RowVector]


def count_active_pairs(
    request: PairPass, vectors: RowVectors, sorting_bytes: int, threads: int = 1
) -> PairSlope:
    """Serve a `PairPass`.

    Parameters
    ----------
    request : PairPass
    vectors : RowVectors
        With those that the request names.
    sorting_bytes, threads : int
        Memory for sorting, and threads for counting; the result does not depend on them.
    """
    start, end = vectors[request.start], vectors[request.end]
    scores, direction = PointVector(start, end, request.t), PointVector(start, end)
    coefficients = [vectors[name] for name in request.coefficients]
    groups = max(len(coefficients), 1)
    threads = max(min(threads, scores.n_rows // _THREAD_ROWS), 1)
    slices: list[SliceSums] = []
    n_rows = 0
    for counted in _counts(request.rows, scores, groups, vectors, sorting_bytes, threads):
        rows = list(row_slices(counted.plus.n_rows, _SUMMED_ROWS))
        share = -(-len(rows) // threads)
        tasks = [(rows[first : first + share],) for first in range(0, len(rows), share)]
        work = partial(_add_up, counted, [scores, direction], coefficients)
        for sums, active in parallel_map(work, tasks, threads):
            slices += sums
            n_rows += active
    found, slope = add_slices(slices, 0, MARGIN), add_slices(slices, 1, 0.0)
    return PairSlope(
        math.fsum(found.active), math.fsum(found.loss), math.fsum(slope.loss), found.active, n_rows
    )


def sum_of_pairs(rows: PairRows, vectors: RowVectors, sorting_bytes: int) -> float:
    """Sum of the weights of all pairs: those that are active where all scores are equal."""
    zeros = ConstantVector(vectors.n_rows, np.float64, 0.0)
    active: list[float] = []
    for counted in _counts(rows, zeros, 1, vectors, sorting_bytes, 1):
        of = counted.first_row, counted.first_row + counted.plus.n_rows
        found = counted.plus, counted.minus, counted.first_row
        active += pair_sums(PartVector(zeros, *of), *found, MARGIN).active.tolist()
    return math.fsum(active)


def whole_groups(heads: RowVector, rows: int) -> Iterator[Int64Array]:
    """Cut rows into slices of whole groups.

    Parameters
    ----------
    heads : RowVector of uint8
        1 at the first row of each group; the first row is one.
    rows : int
        Rows of a slice at most, but for a group that has more.

    Yields
    ------
    ndarray of int64
        First rows of the groups of a slice, and the row after the last.
    """
    pending = np.empty(0, np.int64)
    for start, stop in row_slices(heads.n_rows, rows):
        starts = np.flatnonzero(heads.read(start, stop)) + start
        for first in (starts, np.array([stop])) if stop == heads.n_rows else (starts,):
            pending = np.concatenate([pending, first])
            while len(pending) > 1 and pending[-1] - pending[0] > rows:
                taken = max(int(np.searchsorted(pending, pending[0] + rows, side="right")), 2)
                yield pending[:taken]
                pending = pending[taken - 1 :]
    if len(pending) > 1:
        yield pending


def _counts(
    rows: PairRows,
    scores: RowVector,
    groups: int,
    vectors: RowVectors,
    sorting_bytes: int,
    threads: int,
) -> Iterator[_Counted]:
    """Counts of all rows, in slices; each is valid until the next one is taken."""
    ranks = vectors[rows.ranks]
    weight = None if rows.weight is None else vectors[rows.weight]
    if rows.heads is None:
        fits = scores.n_rows * sorting_row_bytes(groups) <= sorting_bytes
        if fits and can_look_up(scores.n_rows, rows.n_ranks, weight is not None):
            found = TwoRanks(scores, ranks, groups, 0, MARGIN, threads)
            yield _Counted(0, found.plus, found.minus)
            return
        with scratch_vectors(scores.n_rows, groups, vectors, sorting_bytes) as (scratch, most):
            sweep = PairSweep(scores, ranks, rows.n_ranks, weight, groups, scratch, most, threads)
            yield _swept(sweep, scratch, groups, 0, np.int64 if weight is None else np.float64)
        return
    for starts in whole_groups(vectors[rows.heads], SLICE_ROWS):
        first, last = int(starts[0]), int(starts[-1])
        if last - first <= SLICE_ROWS:
            yield _slice_of_groups(scores, ranks, weight, starts, groups)
            continue
        with scratch_vectors(last - first, groups, vectors, sorting_bytes) as (scratch, most):
            part = PartVector(scores, first, last), PartVector(ranks, first, last)
            sweep = PairSweep(*part, rows.n_ranks, None, groups, scratch, most, threads)
            counted = _swept(sweep, scratch, groups, first, np.int64)
            yield counted if weight is None else _weighted(counted, float(weight.read(first, first + 1)[0]))


def _slice_of_groups(
    scores: RowVector, ranks: RowVector, weight: RowVector | None, starts: Int64Array, groups: int
) -> _Counted:
    first, last = int(starts[0]), int(starts[-1])
    own = starts - first
    weights = None if weight is None else weight.read(first, last)[own[:-1]]
    counts = np.int64 if weights is None else np.float64
    plus, minus = np.empty(last - first, counts), np.empty((last - first, groups), counts)
    inside = scores.read(first, last), ranks.read(first, last), own
    count_in_groups(*inside, plus, minus, weights=weights, first_row=first, margin=MARGIN)
    return _Counted(first, MemoryVector.wrap(plus), [MemoryVector.wrap(column) for column in minus.T])


@contextmanager
def scratch_vectors(
    n_rows: int, groups: int, vectors: RowVectors, sorting_bytes: int
) -> Iterator[tuple[RowVectors, int]]:
    """Where the rows are sorted, and how many of them may be held besides."""
    fits = n_rows * sorting_row_bytes(groups) <= sorting_bytes
    held = n_rows if fits else sorting_bytes // 2 // ROW_BYTES
    room = sorting_bytes if fits else sorting_bytes // 2
    with RowVectors(n_rows, room, vectors.scratch_dir) as scratch:
        yield scratch, max(held, 1)


def sorting_row_bytes(groups: int) -> int:
    """Bytes a row that counting takes where all of it is in memory."""
    return _SORTED_BYTES + _GROUP_BYTES * groups


def _swept(
    sweep: PairSweep, scratch: RowVectors, groups: int, first_row: int, counts: npt.DTypeLike
) -> _Counted:
    plus = scratch.create("plus", counts)
    minus = [scratch.create(f"minus {group}", counts) for group in range(groups)]
    sweep.count(MARGIN, first_row, plus, minus)
    return _Counted(first_row, plus, minus)


def _weighted(counted: _Counted, omega: float) -> _Counted:
    """Counts of a group whose pairs all weigh ``omega``."""

    def times(vector: RowVector) -> RowVector:
        return MappedVector(vector, np.float64, lambda entries: omega * entries)

    return _Counted(counted.first_row, times(counted.plus), [times(column) for column in counted.minus])


def _add_up(
    counted: _Counted,
    vectors: Sequence[RowVector],
    coefficients: Sequence[RowVector],
    slices: Sequence[tuple[int, int]],
) -> tuple[list[SliceSums], int]:
    """Sums over each of some slices of these rows, and how many rows are in an active pair.

    Writes the coefficients. All slices share buffers: new memory of the system's would take as long again.
    """
    sums, n_rows, groups = [], 0, len(counted.minus)
    longest = max(stop - start for start, stop in slices)
    entries = np.empty((len(vectors), longest))
    counts = np.empty((2 + groups, longest), counted.plus.dtype)
    for start, stop in slices:
        first, last = counted.first_row + start, counted.first_row + stop
        plus = counted.plus.read(start, stop, counts[0])
        minus = [column.read(start, stop, own) for column, own in zip(counted.minus, counts[2:], strict=True)]
        work = counts[1, : stop - start]
        for group, (column, target) in enumerate(zip(minus, coefficients, strict=False)):
            np.negative(column, out=work)
            own_rows = slice((group - first) % groups, None, groups)
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
