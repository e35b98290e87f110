"""How well scores rank rows: means over groups and counts of pairs.

The grade of a row is its label (of two classes: 1 or 0), and a row is relevant if its grade is above 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.errors import InputError
from ooc_svm.evaluation.rankings import PairCounts, RankedGroups
from ooc_svm.evaluation.sums import TwoTermSum

NDCG = "ndcg@"
_CUTOFF = re.compile(NDCG + "([1-9][0-9]{0,17})")


class RankingCounts:
    """Sums over groups, for the metrics that are asked for.

    Parameters
    ----------
    names : iterable of str
        Metrics; those of other kinds are passed over.

    Attributes
    ----------
    n_groups : int
    gains : dict of int to TwoTermSum
        For each k asked for, the sum of the normalised discounted gains of the first k ranks.
    lowest_grade : float
    precisions : TwoTermSum
        Sum of the average precisions of the groups that have relevant rows.
    n_with_relevant : int
        Such groups.
    pairs, swapped, tied : int
        Pairs of different grades, those in the wrong order, and those of equal scores.
    correlations : TwoTermSum
        Sum of the rank correlations of the groups that have different grades.
    n_graded : int
        Such groups.
    """

    def __init__(self, names: Iterable[str]) -> None:
        asked = set(names)
        self._wants_precisions = "map" in asked
        self._wants_pairs = bool(asked & {"kendall-tau", "swapped-pairs"})
        self.gains = {k: TwoTermSum() for name in asked if (k := cutoff(name)) is not None}
        self.n_groups = self.n_with_relevant = self.n_graded = 0
        self.lowest_grade = np.inf
        self.precisions, self.correlations = TwoTermSum(), TwoTermSum()
        self.pairs = self.swapped = self.tied = 0

    def add(self, groups: RankedGroups) -> None:
        """Count more groups."""
        self.n_groups += groups.n_groups
        if self.gains:
            self.lowest_grade = min(self.lowest_grade, groups.lowest_grade())
        for k, total in self.gains.items():
            gains, largest = groups.discounted_gains(k)
            _add_all(total, np.minimum(gains / np.where(largest > 0, largest, np.inf), 1))
        if self._wants_precisions:
            has_relevant = groups.relevant() > 0
            self.n_with_relevant += int(np.count_nonzero(has_relevant))
            _add_all(self.precisions, groups.average_precisions()[has_relevant])
        if self._wants_pairs:
            self._add_pairs(groups.pair_counts())

    def _add_pairs(self, counts: PairCounts) -> None:
        self.pairs += int(counts.graded.sum())
        self.swapped += int(counts.swapped.sum())
        self.tied += int(counts.tied.sum())
        is_graded = counts.graded > 0
        self.n_graded += int(np.count_nonzero(is_graded))
        surplus = (counts.graded - counts.tied - 2 * counts.swapped)[is_graded].astype(np.float64)
        graded = counts.graded[is_graded].astype(np.float64)
        scored = np.maximum(counts.scored[is_graded], 1).astype(np.float64)
        _add_all(self.correlations, np.clip(surplus / np.sqrt(graded) / np.sqrt(scored), -1, 1))


def _add_all(total: TwoTermSum, numbers: Float64Array) -> None:
    """Add one after another: the sum does not depend on which groups came together."""
    for number in numbers.tolist():
        total.add(number)


def cutoff(name: str) -> int | None:
    """The k of ``ndcg@k``, from 1 on; None where a name has none."""
    k = _CUTOFF.fullmatch(name)
    return None if k is None else int(k[1])


def ndcg(counts: RankingCounts, k: int) -> float:
    """Normalised discounted cumulative gain of the first k ranks, the mean over all groups.

    The gain of a row is its grade, rank j is divided by ``log2(j + 1)``; a group without relevant rows
    counts 0. Equal to scikit-learn's ``ndcg_score``.

    Raises
    ------
    InputError
        There are no rows, or a grade is below 0.
    """
    if counts.lowest_grade < 0:
        raise InputError(
            f"a row has the grade {counts.lowest_grade:g}, and ndcg is for grades from 0 on; "
            "choose kendall-tau or swapped-pairs, which only compare grades"
        )
    return counts.gains[k].value / counts.n_groups


def mean_average_precision(counts: RankingCounts) -> float:
    """Average precision of the relevant rows, the mean over the groups that have any.

    Equal to scikit-learn's ``average_precision_score`` in each group.

    Raises
    ------
    InputError
        No row is relevant.
    """
    if not counts.n_with_relevant:
        raise InputError("map is for relevant rows, and no grade is above 0; evaluate on rows with some")
    return counts.precisions.value / counts.n_with_relevant


def kendall_tau(counts: RankingCounts) -> float:
    """Kendall's tau-b between scores and grades, the mean over the groups that have different grades.

    A group of equal scores counts 0. Equal to SciPy's ``kendalltau`` in every other group.

    Raises
    ------
    InputError
        No group has different grades.
    """
    _require_pairs(counts)
    return counts.correlations.value / counts.n_graded


def swapped_pairs(counts: RankingCounts) -> float:
    """Share of the pairs of different grades (of one group) in the wrong order, equal scores counting half.

    For two labels and no groups it is ``1 - auc``.

    Raises
    ------
    InputError
        There are no such pairs.
    """
    _require_pairs(counts)
    return (2 * counts.swapped + counts.tied) / (2 * counts.pairs)


def _require_pairs(counts: RankingCounts) -> None:
    if not counts.pairs:
        raise InputError(
            "there are no two rows of different labels (in one group) to compare; evaluate on rows of several"
        )
