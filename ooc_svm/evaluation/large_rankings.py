"""A query that is larger than memory, ranked by the scores of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import SLICE_ROWS, Float64Array, Int64Array, row_slices
from ooc_svm.errors import InputError, MemoryBudgetError, parameter
from ooc_svm.evaluation.ranking_loops import add_precisions, discounted_gain, tie_runs
from ooc_svm.evaluation.rankings import PairCounts, cumulated_discounts
from ooc_svm.pairs.sweep import ROW_BYTES, PairSweep
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.score_ranges import sorted_ties
from ooc_svm.rowvectors.sort import sort_by_score
from ooc_svm.rowvectors.vector import RowVector
from ooc_svm.rowvectors.views import ConstantVector, signs
from ooc_svm.system.memory import format_size

# Bytes of a row that may be among the first ranks, in addition to those of reading it.
_TOP_ROW_BYTES = 64
# Rows that are read at a time, at least.
_FEWEST_ROWS = 64
# Smallest difference of two scores.
_SMALLEST_MARGIN = 5e-324
# Number of ranks that fit an int32.
_MOST_RANKS = 2**31 - 1


class TopRows:
    """The first k ranks of rows that come in pieces.

    Of rows whose score is that of rank k, the **cut**, only a sum is kept: there may be any number of them.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._scores, self._gains = np.empty(0), np.empty(0)  # above the cut, as they came
        self._cut, self._cut_rows, self._cut_gains = -np.inf, 0, 0.0

    def add(self, scores: Float64Array, gains: Float64Array) -> None:
        """Take finite scores and their gains."""
        self._add_at_cut(gains[scores == self._cut])
        above = scores > self._cut
        self._scores = np.concatenate([self._scores, scores[above]])
        self._gains = np.concatenate([self._gains, gains[above]])
        lower = len(self._scores) - self._k
        if lower < 0:
            return
        self._cut = float(np.partition(self._scores, lower)[lower])
        self._cut_rows, self._cut_gains = 0, 0.0
        self._add_at_cut(self._gains[self._scores == self._cut])
        above = self._scores > self._cut
        self._scores, self._gains = self._scores[above], self._gains[above]

    def _add_at_cut(self, gains: Float64Array) -> None:
        self._cut_rows += len(gains)
        self._cut_gains = float(np.cumsum(np.concatenate([[self._cut_gains], gains]))[-1])  # one by one

    def runs(self) -> tuple[Int64Array, Float64Array]:
        """Rows of equal scores and the sum of their gains, ascending from the cut."""
        order = np.argsort(self._scores, kind="stable")
        rows, sums, starts = np.empty(len(order), np.int64), np.empty(len(order)), np.empty(2, np.int64)
        whole = np.array([0, len(order)])
        n_runs = tie_runs(self._scores[order], self._gains[order], whole, rows, sums, starts)
        rows, sums = rows[:n_runs], sums[:n_runs]
        if self._cut_rows:
            rows, sums = np.concatenate([[self._cut_rows], rows]), np.concatenate([[self._cut_gains], sums])
        return rows, sums


class LargeRanking:
    """One query whose rows are read from row vectors, with the interface of `RankedQueries`.

    Scores and grades are finite float64; some megabytes more than `memory_bytes` are used to count pairs.
    """

    n_queries = 1

    def __init__(self, scores: RowVector, grades: RowVector, memory_bytes: int) -> None:
        self._scores, self._grades = scores, grades
        self._memory_bytes = memory_bytes

    def lowest_grade(self) -> float:
        """See `RankedQueries`."""
        return min(float(grades.min()) for _, grades in self._slices())

    def discounted_gains(self, k: int) -> tuple[Float64Array, Float64Array]:
        """See `RankedQueries`; one read of the vectors. MemoryBudgetError if k rows do not fit the memory."""
        k = min(k, self._scores.n_rows)
        if k * _TOP_ROW_BYTES > self._memory_bytes:
            raise MemoryBudgetError(
                f"ndcg@{k} holds the first {k} rows of a group, {format_size(k * _TOP_ROW_BYTES)}, and "
                f"{format_size(self._memory_bytes)} are free; allow more ({parameter('memory')}), "
                "or take a smaller k"
            )
        by_score, by_grade = TopRows(k), TopRows(k)
        for scores, grades in self._slices():
            by_score.add(scores, grades)
            by_grade.add(grades, grades)
        discounts = cumulated_discounts(k)
        gains = [discounted_gain(*top.runs(), discounts) for top in (by_score, by_grade)]
        return np.array(gains[:1]), np.array(gains[1:])

    def average_precisions(self) -> Float64Array:
        """See `RankedQueries`."""
        n_relevant = int(self.relevant()[0])
        rows_left, relevant_left, total = self._scores.n_rows, float(n_relevant), 0.0
        for ties in sorted_ties(self._scores, signs(self._grades), self._memory_bytes):
            rows, hits = ties.positives + ties.negatives, ties.positives.astype(np.float64)
            total = add_precisions(rows, hits, rows_left, relevant_left, total)
            rows_left -= int(rows.sum())
            relevant_left -= float(hits.sum())
        return np.array([total / max(n_relevant, 1)])

    def relevant(self) -> Int64Array:
        """See `RankedQueries`."""
        return np.array([sum(int(np.count_nonzero(grades > 0)) for _, grades in self._slices())])

    def pair_counts(self) -> PairCounts:
        """See `RankedQueries`; Python integers. InputError for more grades than 31 bits tell apart."""
        n_rows = self._scores.n_rows
        pairs = n_rows * (n_rows - 1) // 2
        swapped, swapped_or_tied = self._swapped()
        found = (
            pairs - self._pairs_of_equal(self._grades),
            pairs - self._pairs_of_equal(self._scores),
            swapped,
            swapped_or_tied - swapped,
        )
        return PairCounts(*(np.array([number], object) for number in found))

    def _swapped(self) -> tuple[int, int]:
        """Pairs of different grades in the wrong order, and these with the pairs of equal scores.

        A pair is active at margin 0 if it is in the wrong order; equal scores differ by less than the
        smallest positive margin.
        """
        n_rows, half = self._scores.n_rows, self._memory_bytes // 2
        most = max(half // ROW_BYTES, _FEWEST_ROWS)
        sizes = {"best": min(most, SLICE_ROWS), "most": most, "rows": min(most, SLICE_ROWS)}
        counts = []
        with RowVectors(n_rows, half // 2) as ordered:
            grades, scores = ordered.create("grades", np.float64), ordered.create("scores", np.float64)
            sort_by_score([self._grades, self._scores], [grades, scores], **sizes, memory_bytes=half // 2)
            ranks = ordered.create("ranks", np.int32)
            n_ranks = _fill_ranks(grades, ranks, sizes["rows"])
            ordered.drop("grades")
            for margin in (0.0, _SMALLEST_MARGIN):
                with RowVectors(n_rows, half // 2) as scratch:
                    plus = scratch.create("active", np.int64)
                    PairSweep(scores, ranks, n_ranks, None, 0, scratch, most).count(margin, 0, plus, [])
                    slices = row_slices(n_rows, sizes["rows"])
                    counts.append(sum(sum(plus.read(*rows).tolist()) for rows in slices))
        return counts[0], counts[1]

    def _slices(self) -> Iterator[tuple[Float64Array, Float64Array]]:
        size = min(max(self._memory_bytes // (4 * _TOP_ROW_BYTES), _FEWEST_ROWS), SLICE_ROWS)
        for start, stop in row_slices(self._scores.n_rows, size):
            yield self._scores.read(start, stop), self._grades.read(start, stop)

    def _pairs_of_equal(self, keys: RowVector) -> int:
        """Pairs of rows with equal keys."""
        # Products of two numbers of rows may pass 64 bits: then Python integers do it.
        exact: type = np.int64 if keys.n_rows <= 2**31 else object
        pairs, one_class = 0, ConstantVector(keys.n_rows, np.int8, 1)
        for ties in sorted_ties(keys, one_class, self._memory_bytes):
            rows: npt.NDArray[Any] = ties.positives.astype(exact)
            pairs += int((rows * (rows - 1) // 2).sum())
        return pairs


def _fill_ranks(grades: RowVector, ranks: RowVector, size: int) -> int:
    """Write the dense ranks of grades in ascending order; their number."""
    rank, last = -1, -np.inf
    for start, stop in row_slices(grades.n_rows, size):
        own = grades.read(start, stop)
        found = rank + np.cumsum(own != np.concatenate([[last], own[:-1]]))
        rank, last = int(found[-1]), float(own[-1])
        if rank >= _MOST_RANKS:
            raise InputError(
                f"a group has more than {_MOST_RANKS} different grades, too many to compare; round them"
            )
        ranks.write(start, found)
    return rank + 1
