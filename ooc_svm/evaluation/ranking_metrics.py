"""How well scores rank rows: means over queries and counts of pairs.

The grade of a row is its label (of two classes: 1 or 0), and a row is relevant if its grade is above 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.errors import InputError

if TYPE_CHECKING:
    from ooc_svm.evaluation.rankings import RankedQueries


class TwoTermSum:
    """A sum whose second term keeps what rounding takes from the first (Neumaier)."""

    def __init__(self) -> None:
        self._sum = self._lost = 0.0

    def add(self, number: float) -> None:
        """Add a number."""
        total = self._sum + number
        larger, smaller = (self._sum, number) if abs(self._sum) >= abs(number) else (number, self._sum)
        self._lost += (larger - total) + smaller
        self._sum = total

    def add_all(self, numbers: Float64Array) -> None:
        """Add numbers one by one, so that the sum does not depend on how they are cut into arrays."""
        for number in numbers.tolist():
            self.add(number)

    @property
    def value(self) -> float:
        """The sum of the numbers so far; not a number where they pass the range of float64."""
        return self._sum + self._lost


class GainSums:
    """Sum of the normalised discounted gains of the first k ranks of each query."""

    def __init__(self, k: int) -> None:
        self._k = k
        self.gains, self.n_queries, self.lowest_grade = TwoTermSum(), 0, np.inf

    def add(self, queries: RankedQueries) -> None:
        """Add more queries; InputError if a sum of grades passes the range of float64."""
        self.n_queries += queries.n_queries
        self.lowest_grade = min(self.lowest_grade, queries.lowest_grade())
        with np.errstate(over="ignore", invalid="ignore"):
            gains, largest = queries.discounted_gains(self._k)
        if not (np.isfinite(gains).all() and np.isfinite(largest).all()):
            raise InputError("the sums of the grades of a group pass the range of float64; scale the grades")
        self.gains.add_all(np.minimum(gains / np.where(largest > 0, largest, np.inf), 1))


class PrecisionSums:
    """Sum of the average precisions of the `n_queries` queries that have relevant rows."""

    def __init__(self) -> None:
        self.precisions, self.n_queries = TwoTermSum(), 0

    def add(self, queries: RankedQueries) -> None:
        """Add more queries."""
        has_relevant = queries.relevant() > 0
        self.n_queries += int(np.count_nonzero(has_relevant))
        self.precisions.add_all(queries.average_precisions()[has_relevant])


class PairSums:
    """Pairs of rows of different grades, and the rank correlations of the queries that have such pairs.

    `swapped_halves` is twice the pairs in the wrong order, plus the pairs of equal scores; `n_queries` is the
    number of these queries.
    """

    def __init__(self) -> None:
        self.pairs = self.swapped_halves = self.n_queries = 0
        self.correlations = TwoTermSum()

    def add(self, queries: RankedQueries) -> None:
        """Add more queries."""
        counts = queries.pair_counts()
        halves = counts.tied + 2 * counts.swapped
        self.pairs += int(counts.graded.sum())
        self.swapped_halves += int(halves.sum())
        is_graded = counts.graded > 0
        self.n_queries += int(np.count_nonzero(is_graded))
        surplus = (counts.graded - halves)[is_graded].astype(np.float64)
        graded = counts.graded[is_graded].astype(np.float64)
        scored = np.maximum(counts.scored[is_graded], 1).astype(np.float64)
        self.correlations.add_all(np.clip(surplus / np.sqrt(graded) / np.sqrt(scored), -1, 1))


RANKING_COUNTS = (GainSums, PrecisionSums, PairSums)


def ndcg(sums: GainSums) -> float:
    """Normalised discounted cumulative gain of the first k ranks, the mean over all queries.

    The gain of a row is its grade, and rank j is divided by ``log2(j + 1)``. A query without relevant rows
    counts 0. Equal to scikit-learn's ``ndcg_score``. InputError if a grade is below 0.
    """
    if sums.lowest_grade < 0:
        raise InputError(
            f"a row has the grade {sums.lowest_grade:g}, and ndcg is for grades from 0 on; "
            "choose kendall-tau or swapped-pairs, which only compare grades"
        )
    return sums.gains.value / sums.n_queries


def mean_average_precision(sums: PrecisionSums) -> float:
    """Average precision of the relevant rows, the mean over the queries that have any.

    Equal to scikit-learn's ``average_precision_score`` in each query. InputError if no row is relevant.
    """
    if not sums.n_queries:
        raise InputError("map is for relevant rows, and no grade is above 0; evaluate on rows with some")
    return sums.precisions.value / sums.n_queries


def kendall_tau(sums: PairSums) -> float:
    """Kendall's tau-b between scores and grades, the mean over the queries that have different grades.

    A query of equal scores counts 0. Equal to SciPy's ``kendalltau`` in every other query. InputError if no
    query has different grades.
    """
    _require_pairs(sums)
    return sums.correlations.value / sums.n_queries


def swapped_pairs(sums: PairSums) -> float:
    """Share of the pairs of different grades (of one query) in the wrong order, equal scores counting half.

    For two labels and no queries it is ``1 - auc``. InputError if there are no such pairs.
    """
    _require_pairs(sums)
    return sums.swapped_halves / (2 * sums.pairs)


def _require_pairs(sums: PairSums) -> None:
    if not sums.pairs:
        raise InputError(
            "there are no two rows of different labels (in one group) to compare; evaluate on rows of several"
        )
