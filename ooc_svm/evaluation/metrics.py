"""How good predictions are: sums over rows and counts over the order of the scores, in bounded memory.

Counts are Python integers: a metric of classes is one division of exact numbers at the end. Sums over values
are floating sums in two terms.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError
from ooc_svm.evaluation.ranking_metrics import (
    RankingCounts,
    cutoff,
    kendall_tau,
    mean_average_precision,
    ndcg,
    swapped_pairs,
)
from ooc_svm.evaluation.sums import TwoTermSum
from ooc_svm.rowvectors.score_ranges import TieRuns


class BinaryCounts:
    """True and false positives and negatives; a row is predicted positive if its score is above 0.

    Attributes
    ----------
    true_positives, false_positives, true_negatives, false_negatives : int
    """

    def __init__(self) -> None:
        self.true_positives = self.false_positives = 0
        self.true_negatives = self.false_negatives = 0

    @property
    def positives(self) -> int:
        """Rows of the positive class."""
        return self.true_positives + self.false_negatives

    @property
    def negatives(self) -> int:
        """Rows of the negative class."""
        return self.true_negatives + self.false_positives

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return self.positives + self.negatives

    def add(self, scores: Float64Array, targets: npt.NDArray[Any]) -> None:
        """Count more rows.

        Parameters
        ----------
        scores : ndarray of float64, shape (n,)
        targets : ndarray, shape (n,)
            1 or -1.

        Raises
        ------
        InputError
            For a score that is not finite or another target; rows are numbered from 0 in the order they came.
        """
        _check_finite("score", scores, self.n_rows)
        positive = targets == 1
        valid = positive | (targets == -1)
        if not valid.all():
            row = int(np.argmin(valid))
            raise InputError(
                f"row {self.n_rows + row} has the target {targets[row].item()!r}; this metric is for two "
                "classes, 1 and -1: choose mse, mae or r2 for values"
            )
        predicted = scores > 0
        hits = int(np.count_nonzero(predicted & positive))
        n_positive, n_predicted = int(np.count_nonzero(positive)), int(np.count_nonzero(predicted))
        self.true_positives += hits
        self.false_positives += n_predicted - hits
        self.false_negatives += n_positive - hits
        self.true_negatives += len(scores) - n_positive - n_predicted + hits


class OrderCounts:
    """What the order of the scores says: pairs in the right order, and positives above a cut.

    Parameters
    ----------
    positives, negatives : int
        Rows of each class that will come.

    Attributes
    ----------
    ordered_halves : int
        Twice the pairs (positive, negative) in which the positive has the higher score, ties counted half.
    positives_below : Fraction
        Positives among the `negatives` rows of lowest score. Of rows with equal scores at that cut, each
        counts the share of them that lies below: the mean over all orders of equal rows.
    """

    def __init__(self, positives: int, negatives: int) -> None:
        self.positives, self.negatives = positives, negatives
        self.ordered_halves = 0
        self.positives_below = Fraction(0)
        self._positives_seen = self._negatives_seen = 0

    def add(self, groups: TieRuns) -> None:
        """Count the next groups, in ascending order of their scores."""
        positives, negatives = groups.positives, groups.negatives
        n_positive, n_negative = int(positives.sum()), int(negatives.sum())
        self._add_cut(positives, negatives, n_positive)
        # Sums of products may pass 64 bits: then, rarely, Python integers do it.
        exact: type = np.int64 if 2 * n_positive * n_negative < 2**63 else object
        counts: npt.NDArray[Any] = negatives.astype(exact)
        below = counts.cumsum() - counts
        self.ordered_halves += int(((2 * below + counts) * positives.astype(exact)).sum())
        self.ordered_halves += 2 * self._negatives_seen * n_positive
        self._positives_seen += n_positive
        self._negatives_seen += n_negative

    def _add_cut(self, positives: Int64Array, negatives: Int64Array, n_positive: int) -> None:
        room = self.negatives - self._positives_seen - self._negatives_seen
        if room <= 0:
            return
        ends = (positives + negatives).cumsum()
        whole = int(np.searchsorted(ends, room, side="right"))  # groups that lie below the cut
        if whole == len(ends):
            self.positives_below += n_positive
            return
        rest = room - (int(ends[whole - 1]) if whole else 0)
        size = int(positives[whole] + negatives[whole])
        self.positives_below += int(positives[:whole].sum()) + Fraction(rest * int(positives[whole]), size)


class ValueSums:
    """Sums over predicted values and targets.

    How the rows are cut into pieces shows in the last digits.

    Attributes
    ----------
    n_rows : int
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._squares, self._magnitudes, self._deviations = TwoTermSum(), TwoTermSum(), TwoTermSum()
        # Targets are counted from the first one: equal ones then deviate by nothing, and where they are
        # large beside their spread, no digits of the spread are lost.
        self._origin = self._mean = 0.0

    @property
    def squared_errors(self) -> float:
        """Sum of the squared errors."""
        return self._squares.value

    @property
    def absolute_errors(self) -> float:
        """Sum of the magnitudes of the errors."""
        return self._magnitudes.value

    @property
    def squared_deviations(self) -> float:
        """Sum of the squared deviations of the targets from their mean."""
        return self._deviations.value

    def add(self, values: Float64Array, targets: Float64Array) -> None:
        """Add more rows.

        Parameters
        ----------
        values, targets : ndarray of float64, shape (n,)

        Raises
        ------
        InputError
            For a number that is not finite, or whose square is not; rows are numbered from 0 in the order
            they came.
        """
        if len(values) == 0:
            return
        _check_finite("value", values, self.n_rows)
        _check_finite("target", targets, self.n_rows)
        if self.n_rows == 0:
            self._origin = float(targets[0])
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.abs(values - targets)
            self._magnitudes.add(float(errors.sum()))
            self._squares.add(float((errors * errors).sum()))
            self._add_deviations(targets - self._origin)
        self.n_rows += len(values)
        if not np.isfinite([self.squared_errors, self.squared_deviations]).all():
            raise InputError(
                "the squares of the errors or targets pass the range of float64; scale the targets"
            )

    def _add_deviations(self, targets: Float64Array) -> None:
        """Deviations of a piece from its own mean, and of the two means (Chan, Golub and LeVeque)."""
        n_new, n_rows = len(targets), self.n_rows + len(targets)
        mean = float(targets.mean())
        deviations = targets - mean
        difference = mean - self._mean
        self._deviations.add(float((deviations * deviations).sum()))
        self._deviations.add(difference * difference * (self.n_rows / n_rows) * n_new)
        self._mean += difference * (n_new / n_rows)


class ClassCounts:
    """Rows of each class, rows predicted as it, and rows for which both is true.

    Parameters
    ----------
    n_classes : int

    Attributes
    ----------
    actual, predicted, hits : ndarray of int64, shape (n_classes,)
    """

    def __init__(self, n_classes: int) -> None:
        self.actual = np.zeros(n_classes, np.int64)
        self.predicted = np.zeros(n_classes, np.int64)
        self.hits = np.zeros(n_classes, np.int64)

    def add(self, actual: npt.NDArray[np.integer[Any]], predicted: npt.NDArray[np.integer[Any]]) -> None:
        """Count more rows by the codes of their classes, ``0 .. n_classes - 1``.

        Raises
        ------
        ValueError
            For a code outside that range.
        """
        n_classes = len(self.hits)
        for codes in (actual, predicted):
            if len(codes) and not (codes.min() >= 0 and codes.max() < n_classes):
                raise ValueError(f"codes of classes must be from 0 to {n_classes - 1}")
        self.actual += np.bincount(actual, minlength=n_classes)
        self.predicted += np.bincount(predicted, minlength=n_classes)
        self.hits += np.bincount(actual[actual == predicted], minlength=n_classes)


def accuracy(counts: BinaryCounts) -> float:
    """Share of the rows predicted right."""
    return (counts.true_positives + counts.true_negatives) / counts.n_rows


def error(counts: BinaryCounts) -> float:
    """Share of the rows predicted wrong."""
    return (counts.false_positives + counts.false_negatives) / counts.n_rows


def precision(counts: BinaryCounts) -> float:
    """Share of the predicted positives that are positive; 0 if none is predicted."""
    return _share(counts.true_positives, counts.true_positives + counts.false_positives)


def recall(counts: BinaryCounts) -> float:
    """Share of the positives that are predicted positive; 0 if there are none."""
    return _share(counts.true_positives, counts.positives)


def f1(counts: BinaryCounts) -> float:
    """Harmonic mean of precision and recall; 0 if no positive is predicted or there."""
    wrong = counts.false_positives + counts.false_negatives
    return _share(2 * counts.true_positives, 2 * counts.true_positives + wrong)


def auc(order: OrderCounts) -> float:
    """Area under the ROC curve: share of the pairs (positive, negative) in the right order, ties half.

    Raises
    ------
    InputError
        If one of the classes has no rows.
    """
    if not order.positives or not order.negatives:
        missing = "positive" if not order.positives else "negative"
        raise InputError(f"auc compares two classes, and no row is {missing}; evaluate on rows of both")
    return order.ordered_halves / (2 * order.positives * order.negatives)


def prbep(order: OrderCounts) -> float:
    """Precision/recall break-even point: the precision of the P highest scores for P positives.

    Recall is the same there. Where the P-th score occurs in more rows than are wanted, each of them counts in
    part: the value is the mean over all orders of rows with equal scores.

    Raises
    ------
    InputError
        If no row is positive.
    """
    if not order.positives:
        raise InputError("prbep needs positives, and no row is positive; evaluate on rows of both classes")
    return float((order.positives - order.positives_below) / order.positives)


def mse(sums: ValueSums) -> float:
    """Mean squared error."""
    return sums.squared_errors / sums.n_rows


def mae(sums: ValueSums) -> float:
    """Mean absolute error."""
    return sums.absolute_errors / sums.n_rows


def r2(sums: ValueSums) -> float:
    """Coefficient of determination; where all targets are equal, 1 for no error at all and 0 otherwise."""
    if sums.squared_deviations == 0:
        return 1.0 if sums.squared_errors == 0 else 0.0
    return 1 - sums.squared_errors / sums.squared_deviations


class Metric(NamedTuple):
    """A function of `BinaryCounts`, `OrderCounts`, `ValueSums` or `RankingCounts`."""

    function: Callable[[Any], float]
    counts: type


METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, BinaryCounts),
    "error": Metric(error, BinaryCounts),
    "f1": Metric(f1, BinaryCounts),
    "precision": Metric(precision, BinaryCounts),
    "recall": Metric(recall, BinaryCounts),
    "auc": Metric(auc, OrderCounts),
    "prbep": Metric(prbep, OrderCounts),
    "mse": Metric(mse, ValueSums),
    "mae": Metric(mae, ValueSums),
    "r2": Metric(r2, ValueSums),
    "map": Metric(mean_average_precision, RankingCounts),
    "kendall-tau": Metric(kendall_tau, RankingCounts),
    "swapped-pairs": Metric(swapped_pairs, RankingCounts),
}


def metric(name: str) -> Metric:
    """A metric by its name: one of `METRICS`, or ``ndcg@k`` with a number for k; KeyError for others."""
    k = cutoff(name)
    return METRICS[name] if k is None else Metric(partial(ndcg, k=k), RankingCounts)


def multiclass_metrics(counts: ClassCounts) -> dict[str, float]:
    """``accuracy``, ``error`` and ``macro-f1`` of predicted classes.

    The last is the mean of the F1 of every class that occurs among the rows or the predictions.

    Raises
    ------
    InputError
        If there are no rows.
    """
    n_rows, n_hits = int(counts.actual.sum()), int(counts.hits.sum())
    if n_rows == 0:
        raise InputError("there are no rows to evaluate; give data with rows")
    sizes = counts.actual + counts.predicted
    occurs = sizes > 0
    return {
        "accuracy": n_hits / n_rows,
        "error": (n_rows - n_hits) / n_rows,
        "macro-f1": float(np.mean(2 * counts.hits[occurs] / sizes[occurs])),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _check_finite(what: str, numbers: Float64Array, first_row: int) -> None:
    finite = np.isfinite(numbers)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"row {first_row + row} has the {what} {float(numbers[row])!r}; metrics are for finite numbers: "
            "check the data and the model"
        )
