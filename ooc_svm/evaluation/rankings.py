"""Queries, ranked by the scores of their rows: what the metrics of rankings are computed from.

A query is a set of rows with scores and grades, the row with the highest score ranked first. The
order of rows with equal scores does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.evaluation.ranking_loops import discounted_gains, precision_sums, tie_runs
from ooc_svm.pairs.counts import count_in_queries, rank_labels

# Bytes for a row of `Rankings`, including sorting and counting.
ROW_BYTES = 192


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows of equal scores, ascending in each query; see `ooc_svm.evaluation.ranking_loops`.

    Run r has ``rows[r]`` rows, over which ``sums[r]`` is the sum of a quantity. The runs of query g are
    ``starts[g] <= r < starts[g + 1]``.
    """

    rows: Int64Array
    sums: Float64Array
    starts: Int64Array

    def pairs(self) -> Int64Array:
        """Pairs of rows inside the runs, for each query."""
        return _sums_between(self.rows * (self.rows - 1) // 2, self.starts)


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Pairs of rows of one query, for each query: int64 or Python integers, shape (n_queries,).

    `graded` are those of different grades, `scored` those of different scores. Of different grades, in
    `swapped` the lower grade has the higher score, and `tied` have equal scores.
    """

    graded: npt.NDArray[Any]
    scored: npt.NDArray[Any]
    swapped: npt.NDArray[Any]
    tied: npt.NDArray[Any]


class RankedQueries(Protocol):
    """Queries with scores and grades, in memory or not."""

    @property
    def n_queries(self) -> int: ...

    def lowest_grade(self) -> float:
        """The lowest grade of all rows."""

    def discounted_gains(self, k: int) -> tuple[Float64Array, Float64Array]:
        """Discounted cumulative gain of the first k ranks, the grades being the gains, and its largest value.

        Rank j = 1, 2, ... is divided by ``log2(j + 1)`` (Jarvelin and Kekalainen 2002). Both have the shape
        (n_queries,).
        """

    def average_precisions(self) -> Float64Array:
        """Mean of the precision at the ranks of the relevant rows (grade above 0); 0 without any.

        The shape is (n_queries,).
        """

    def relevant(self) -> Int64Array:
        """Relevant rows of each query, shape (n_queries,)."""

    def pair_counts(self) -> PairCounts:
        """Pairs of rows, by how scores and grades order them."""


def cumulated_discounts(k: int) -> Float64Array:
    """Sums of the discounts of the first 0, 1, ..., k ranks, shape (k + 1,)."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])


class Rankings:
    """Queries in memory, of rows with finite scores and grades.

    Query g is the rows ``starts[g] <= i < starts[g + 1]``; the first start is 0, the last the number of rows.
    """

    def __init__(self, scores: Float64Array, grades: Float64Array, starts: Int64Array) -> None:
        self._scores, self._grades, self._starts = scores, grades, starts
        self._query_of_row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self._starts) - 1

    def lowest_grade(self) -> float:
        """See `RankedQueries`."""
        return float(self._grades.min(initial=np.inf))

    def discounted_gains(self, k: int) -> tuple[Float64Array, Float64Array]:
        """See `RankedQueries`."""
        longest_query = int(np.diff(self._starts).max(initial=0))
        discounts = cumulated_discounts(min(k, longest_query))
        return (
            self._of_queries(discounted_gains, self._runs(self._by_score, self._grades), discounts),
            self._of_queries(discounted_gains, self._by_grade, discounts),
        )

    def average_precisions(self) -> Float64Array:
        """See `RankedQueries`."""
        runs = self._runs(self._by_score, (self._grades > 0).astype(np.float64))
        return self._of_queries(precision_sums, runs) / np.maximum(self.relevant(), 1)

    def relevant(self) -> Int64Array:
        """See `RankedQueries`."""
        return np.bincount(self._query_of_row[self._grades > 0], minlength=self.n_queries)

    def pair_counts(self) -> PairCounts:
        """See `RankedQueries`."""
        sizes = np.diff(self._starts)
        pairs = sizes * (sizes - 1) // 2
        equal_scores = self._runs(self._by_score, self._grades).pairs()
        return PairCounts(
            graded=pairs - self._by_grade.pairs(),
            scored=pairs - equal_scores,
            swapped=self._swapped(),
            tied=equal_scores - self._by_both().pairs(),
        )

    @cached_property
    def _by_score(self) -> tuple[Int64Array, Float64Array]:
        """Rows in the order of their scores inside each query, equal ones in their old order."""
        order = np.lexsort((self._scores, self._query_of_row))
        return order, self._scores[order]

    @cached_property
    def _by_grade(self) -> Runs:
        """Runs of equal grades."""
        order = np.lexsort((self._grades, self._query_of_row))
        return self._runs((order, self._grades[order]), self._grades)

    def _by_both(self) -> Runs:
        """Runs of equal scores and grades."""
        order = np.lexsort((self._grades, self._scores, self._query_of_row))
        scores, grades = self._scores[order], self._grades[order]
        keys = np.zeros(len(order))
        np.cumsum((scores[1:] != scores[:-1]) | (grades[1:] != grades[:-1]), out=keys[1:])
        return self._runs((order, keys), self._grades)

    def _runs(self, ordered: tuple[Int64Array, Float64Array], gains: Float64Array) -> Runs:
        order, keys = ordered
        rows, sums = np.empty(len(keys), np.int64), np.empty(len(keys))
        run_starts = np.empty(self.n_queries + 1, np.int64)
        n_runs = tie_runs(keys, gains[order], self._starts, rows, sums, run_starts)
        return Runs(rows[:n_runs], sums[:n_runs], run_starts)

    def _of_queries(self, function: Callable[..., None], runs: Runs, *arguments: Any) -> Float64Array:
        out = np.empty(self.n_queries)
        function(runs.rows, runs.sums, runs.starts, *arguments, out)
        return out

    def _swapped(self) -> Int64Array:
        """Pairs of each query in the wrong order."""
        order, keys = self._by_score
        places, ascending = np.empty(len(keys)), np.zeros(len(keys))
        np.cumsum(keys[1:] != keys[:-1], out=ascending[1:])
        places[order] = ascending  # ordered as the scores; their differences do not overflow
        plus, minus = np.empty(len(keys), np.int64), np.empty((len(keys), 1), np.int64)
        ranks, _ = rank_labels(self._grades)
        count_in_queries(places, ranks, self._starts, plus, minus, margin=0.0)
        return _sums_between(plus, self._starts)


def _sums_between(numbers: Int64Array, starts: Int64Array) -> Int64Array:
    """Sums of the numbers from each start to the next one."""
    before: Int64Array = np.concatenate([[0], np.cumsum(numbers)])
    return before[starts[1:]] - before[starts[:-1]]
