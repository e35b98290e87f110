"""How good predictions are: counts and sums over rows in bounded memory, and the table of all metrics.

Counts are Python integers: a metric of classes is one division of exact numbers. Other sums have two terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError, UsageError
from ooc_svm.evaluation.label_metrics import LabelCounts, hamming_loss, jaccard, micro_f1, subset_accuracy
from ooc_svm.evaluation.probability_metrics import ProbabilitySums as ProbabilitySums
from ooc_svm.evaluation.probability_metrics import brier_score, calibration_error, log_loss
from ooc_svm.evaluation.ranking_metrics import (
    RANKING_COUNTS,
    GainSums,
    PairSums,
    PrecisionSums,
    kendall_tau,
    mean_average_precision,
    ndcg,
    swapped_pairs,
)
from ooc_svm.evaluation.value_metrics import ValueSums as ValueSums
from ooc_svm.evaluation.value_metrics import check_finite, mae, mse, r2
from ooc_svm.model.decision import (
    GRADES,
    LABEL_SETS,
    RANKINGS,
    SEVERAL_CLASSES,
    TWO_CLASSES,
    TWO_RANKS,
    VALUES,
)

if TYPE_CHECKING:
    from ooc_svm.rowvectors.score_ranges import TieRuns


class BinaryCounts:
    """True and false positives and negatives; a row is predicted positive if its score is above 0."""

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
        """Rows counted."""
        return self.positives + self.negatives

    @property
    def n_hits(self) -> int:
        """Rows predicted right."""
        return self.true_positives + self.true_negatives

    def add(self, scores: Float64Array, targets: npt.NDArray[Any]) -> None:
        """Count more rows, with targets 1 or -1.

        InputError for a score that is not finite or another target; rows are numbered from 0 in the order
        they came.
        """
        check_finite("score", scores, self.n_rows)
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
    """What the order of the scores says; `positives` and `negatives` are the rows of each class to come.

    `ordered_halves` is twice the pairs (positive, negative) in which the positive has the higher score, ties
    counted half. `positives_below` are the positives among the `negatives` rows of lowest score. Of rows with
    equal scores at that cut, each counts the share of them that lies below: the mean over all orders of equal
    rows.
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


class ClassCounts:
    """Rows of each class, rows predicted as it, and both at once: int64, shape (n_classes,).

    With `confusion`, the rows of each class that are predicted as each other are counted as well.
    """

    def __init__(self, n_classes: int, *, confusion: bool = False) -> None:
        self.actual, self.predicted, self.hits = np.zeros((3, n_classes), np.int64)
        self._pairs = np.zeros(n_classes * n_classes, np.int64) if confusion else None

    @property
    def n_rows(self) -> int:
        """Rows counted."""
        return int(self.actual.sum())

    @property
    def n_hits(self) -> int:
        """Rows predicted right."""
        return int(self.hits.sum())

    def add(self, actual: npt.NDArray[np.integer[Any]], predicted: npt.NDArray[np.integer[Any]]) -> None:
        """Count more rows by the codes of their classes; ValueError for one not in 0 .. n_classes - 1."""
        n_classes = len(self.hits)
        for codes in (actual, predicted):
            if len(codes) and not (codes.min() >= 0 and codes.max() < n_classes):
                raise ValueError(f"codes of classes must be from 0 to {n_classes - 1}")
        self.actual += np.bincount(actual, minlength=n_classes)
        self.predicted += np.bincount(predicted, minlength=n_classes)
        self.hits += np.bincount(actual[actual == predicted], minlength=n_classes)
        if self._pairs is not None:
            pairs, n_rows = np.unique(actual.astype(np.int64) * n_classes + predicted, return_counts=True)
            self._pairs[pairs] += n_rows

    def confusion(self) -> list[tuple[int, int, int]]:
        """Class, predicted class and number of rows, where there are any; only if they were counted."""
        assert self._pairs is not None
        n_classes = len(self.hits)
        found = np.flatnonzero(self._pairs).tolist()
        return [(*divmod(pair, n_classes), int(self._pairs[pair])) for pair in found]


class TopCounts:
    """Rows whose class is among the k of the largest scores; of equal ones the first is the larger."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.n_rows = self.n_hits = 0

    def add(self, actual: npt.NDArray[np.integer[Any]], scores: Float64Array) -> None:
        """Count more rows by the codes of their classes and their scores, shape (n_rows, n_classes)."""
        own = scores[np.arange(len(actual)), actual][:, None]
        before = np.arange(scores.shape[1])[None, :] < np.asarray(actual)[:, None]
        ranks = np.count_nonzero((scores > own) | ((scores == own) & before), axis=1)
        self.n_rows += len(actual)
        self.n_hits += int(np.count_nonzero(ranks < self.k))


def accuracy(counts: BinaryCounts | ClassCounts | TopCounts) -> float:
    """Share of the rows predicted right."""
    return counts.n_hits / counts.n_rows


def error(counts: BinaryCounts | ClassCounts) -> float:
    """Share of the rows predicted wrong."""
    return (counts.n_rows - counts.n_hits) / counts.n_rows


def balanced_accuracy(counts: BinaryCounts | ClassCounts) -> float:
    """Mean over the classes that rows have of the share of their rows predicted right."""
    if isinstance(counts, BinaryCounts):
        sides = (counts.true_positives, counts.positives), (counts.true_negatives, counts.negatives)
        shares = [hits / rows for hits, rows in sides if rows]
        return sum(shares) / len(shares)
    occurs = counts.actual > 0
    return float(np.mean(counts.hits[occurs] / counts.actual[occurs]))


def macro_f1(counts: ClassCounts | LabelCounts) -> float:
    """Mean of the F1 of every class that occurs among the rows or the predictions.

    Of sets of labels that of every label, 0 for one that the model does not know; 0 without labels.
    """
    sizes = counts.actual + counts.predicted
    occurs = sizes > 0
    n_classes = int(np.count_nonzero(occurs))
    if isinstance(counts, LabelCounts):
        n_classes += counts.n_unknown
    return float(np.sum(2 * counts.hits[occurs] / sizes[occurs]) / n_classes) if n_classes else 0.0


def weighted_f1(counts: ClassCounts) -> float:
    """Mean of the F1 of every class, weighted with its rows."""
    sizes = np.maximum(counts.actual + counts.predicted, 1)
    return float(np.sum(counts.actual * (2 * counts.hits / sizes)) / counts.n_rows)


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

    InputError if one of the classes has no rows.
    """
    if not order.positives or not order.negatives:
        missing = "positive" if not order.positives else "negative"
        raise InputError(f"auc compares two classes, and no row is {missing}; evaluate on rows of both")
    return order.ordered_halves / (2 * order.positives * order.negatives)


def prbep(order: OrderCounts) -> float:
    """Precision/recall break-even point: the precision of the P highest scores for P positives.

    Recall is the same there. Where the P-th score occurs in more rows than are wanted, each of them counts in
    part: the value is the mean over all orders of rows with equal scores. InputError if no row is positive.
    """
    if not order.positives:
        raise InputError("prbep needs positives, and no row is positive; evaluate on rows of both classes")
    return float((order.positives - order.positives_below) / order.positives)


class Metric(NamedTuple):
    """A metric, by the name that users write; ``@k`` stands for a number of ranks, as in ``@10``.

    The function takes counts of one of the classes `counts` (those of ``@k`` are made for k ranks) and raises
    InputError where they have no value. `default_for` is what models predict that it measures by default; see
    `ooc_svm.model.decision`. Of most metrics the higher value is the better one.
    """

    name: str
    counts: tuple[type, ...]
    function: Callable[[Any], float]
    default_for: tuple[str, ...]
    lower_is_better: bool = False

    def counts_of(self, predicted: str, probabilities: bool) -> list[type]:
        """Those of `counts` that a model gives which predicts this, and gives probabilities or not."""
        given = [each for each in self.counts if each in COUNTS_OF[predicted]]
        return given if probabilities else [each for each in given if each is not ProbabilitySums]


# All metrics, in the order in which they are listed and reported.
METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", (BinaryCounts, ClassCounts), accuracy, (TWO_CLASSES, SEVERAL_CLASSES)),
        Metric(
            "error", (BinaryCounts, ClassCounts), error, (TWO_CLASSES, SEVERAL_CLASSES), lower_is_better=True
        ),
        Metric("balanced-accuracy", (BinaryCounts, ClassCounts), balanced_accuracy, (SEVERAL_CLASSES,)),
        Metric("micro-f1", (LabelCounts,), micro_f1, (LABEL_SETS,)),
        Metric("macro-f1", (ClassCounts, LabelCounts), macro_f1, (SEVERAL_CLASSES, LABEL_SETS)),
        Metric("jaccard", (LabelCounts,), jaccard, (LABEL_SETS,)),
        Metric("subset-accuracy", (LabelCounts,), subset_accuracy, (LABEL_SETS,)),
        Metric("hamming-loss", (LabelCounts,), hamming_loss, (LABEL_SETS,), lower_is_better=True),
        Metric("weighted-f1", (ClassCounts,), weighted_f1, (SEVERAL_CLASSES,)),
        Metric("accuracy@k", (TopCounts,), accuracy, ()),
        Metric("precision", (BinaryCounts,), precision, (TWO_CLASSES,)),
        Metric("recall", (BinaryCounts,), recall, (TWO_CLASSES,)),
        Metric("f1", (BinaryCounts,), f1, (TWO_CLASSES,)),
        Metric("auc", (OrderCounts,), auc, (TWO_CLASSES, TWO_RANKS)),
        Metric("prbep", (OrderCounts,), prbep, (TWO_CLASSES,)),
        Metric(
            "log-loss", (ProbabilitySums,), log_loss, (TWO_CLASSES, SEVERAL_CLASSES), lower_is_better=True
        ),
        Metric(
            "brier-score",
            (ProbabilitySums,),
            brier_score,
            (TWO_CLASSES, SEVERAL_CLASSES),
            lower_is_better=True,
        ),
        Metric(
            "calibration-error",
            (ProbabilitySums,),
            calibration_error,
            (TWO_CLASSES, SEVERAL_CLASSES),
            lower_is_better=True,
        ),
        Metric("mse", (ValueSums,), mse, (VALUES,), lower_is_better=True),
        Metric("mae", (ValueSums,), mae, (VALUES,), lower_is_better=True),
        Metric("r2", (ValueSums,), r2, (VALUES,)),
        Metric("ndcg@k", (GainSums,), ndcg, (RANKINGS,)),
        Metric("map", (PrecisionSums,), mean_average_precision, (RANKINGS,)),
        Metric(
            "swapped-pairs", (PairSums,), swapped_pairs, (GRADES, TWO_RANKS, RANKINGS), lower_is_better=True
        ),
        Metric("kendall-tau", (PairSums,), kendall_tau, (GRADES,)),
    )
}

# Counts that the predictions of a model and the labels give, by what it predicts. Those of probabilities only
# where the model gives them.
COUNTS_OF: dict[str, tuple[type, ...]] = {
    TWO_CLASSES: (BinaryCounts, OrderCounts, ProbabilitySums, *RANKING_COUNTS),
    SEVERAL_CLASSES: (ClassCounts, TopCounts, ProbabilitySums),
    LABEL_SETS: (LabelCounts,),
    VALUES: (ValueSums, *RANKING_COUNTS),
    GRADES: RANKING_COUNTS,
    TWO_RANKS: (OrderCounts, *RANKING_COUNTS),
    RANKINGS: RANKING_COUNTS,
}

# What to choose in place of a metric that several classes have for each class alone, or under another name.
_OF_CLASSES = {
    "f1": "f1 is of one class: macro-f1 is its mean over the classes, weighted-f1 that over the rows",
    "precision": "precision is of one class, and listed by class in the table that is printed",
    "recall": "recall is of one class: balanced-accuracy is its mean over the classes",
    "micro-f1": "where each row has one class, micro-f1 is the accuracy",
}

# What to choose in place of a metric that sets of labels have under another name.
_OF_SETS = {
    "accuracy": "of sets, jaccard is the accuracy of a row in part, and subset-accuracy that of whole sets",
    "error": "of sets, hamming-loss is the share of labels predicted wrong",
    "f1": "f1 is of one label: micro-f1 is that of all labels together, macro-f1 its mean over the labels",
    "precision": "precision is of one label, and listed by label in the table that is printed",
    "recall": "recall is of one label, and listed by label in the table that is printed",
}

# Ranks of a metric ``@k`` where it is a default.
_DEFAULT_RANKS = 10

_RANKS = re.compile("[1-9][0-9]{0,17}")


class RequestedMetric(NamedTuple):
    """A metric to evaluate: its name, its function, the class of its counts, and their number of ranks."""

    name: str
    function: Callable[[Any], float]
    counts: type
    k: int | None

    @property
    def key(self) -> tuple[type, int | None]:
        """What two metrics of the same counts have in common."""
        return self.counts, self.k

    def new_counts(self) -> Any:
        """Counts of nothing yet."""
        return self.counts() if self.k is None else self.counts(self.k)


def default_metrics(predicted: str, *, probabilities: bool = False) -> list[str]:
    """Names of the metrics that are evaluated by default."""
    fitting = (name for name, each in METRICS.items() if each.counts_of(predicted, probabilities))
    chosen = [name for name in fitting if predicted in METRICS[name].default_for]
    return [name.replace("@k", f"@{_DEFAULT_RANKS}") for name in chosen]


def fitting_metrics(predicted: str, *, probabilities: bool) -> list[str]:
    """Names of the metrics that can be evaluated, the defaults first."""
    fitting = [name for name, each in METRICS.items() if each.counts_of(predicted, probabilities)]
    return list(dict.fromkeys([*default_metrics(predicted, probabilities=probabilities), *fitting]))


def requested_metrics(
    predicted: str, names: str | Sequence[str] | None, *, probabilities: bool
) -> tuple[RequestedMetric, ...]:
    """Metrics by their names, by default those of what is predicted; with those of probabilities, if given.

    UsageError for a name that does not exist, or does not fit what is predicted.
    """
    defaults = default_metrics(predicted, probabilities=probabilities)
    chosen = [names] if isinstance(names, str) else dict.fromkeys(names or defaults)
    return tuple(_requested(name, predicted, probabilities) for name in chosen)


def lower_is_better(name: str) -> bool:
    """Whether the lower value of a metric is the better one, by the name it is requested by."""
    stem, has_ranks, _ = name.partition("@")
    return METRICS[f"{stem}@k" if has_ranks else name].lower_is_better


def compares_queries(metric: RequestedMetric) -> bool:
    """Whether a metric compares rows of equal qid, where the data have qids."""
    return metric.counts in RANKING_COUNTS


def _requested(name: str, predicted: str, probabilities: bool) -> RequestedMetric:
    stem, has_ranks, ranks = name.partition("@")
    metric = METRICS.get(f"{stem}@k" if has_ranks else name)
    fitting = metric.counts_of(predicted, probabilities) if metric else []
    if metric is None or not fitting:
        what = f"{name} is no metric for {predicted}" if metric else f"there is no metric {name!r:.80}"
        other = {SEVERAL_CLASSES: _OF_CLASSES, LABEL_SETS: _OF_SETS}.get(predicted, {}).get(name)
        if metric is not None and ProbabilitySums in metric.counts and not probabilities:
            other = "it is of probabilities, which calibrated models and those with the loss logistic give"
        what = what if other is None else f"{what}: {other}"
        choices = ", ".join(fitting_metrics(predicted, probabilities=probabilities))
        raise UsageError(f"{what}; for this model choose from {choices}")
    if has_ranks and not _RANKS.fullmatch(ranks):
        raise UsageError(f"{name!r:.80} does not say how many ranks count; write for example {stem}@10")
    return RequestedMetric(name, metric.function, fitting[0], int(ranks) if has_ranks else None)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
