"""How values of C are compared: by folds of the rows or on another store, by which metric and rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ooc_svm.catalog import PROBLEMS
from ooc_svm.data.classes import label_text
from ooc_svm.data.folds import Folds, count_queries
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.evaluation.metrics import compares_queries, default_metrics, requested_metrics
from ooc_svm.model.decision import predicted_of
from ooc_svm.model.probabilities import gives_probabilities
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import Problem
from ooc_svm.training.data import Data

DEFAULT_FOLDS = 5


class TuneRequest(NamedTuple):
    """What `ooc_svm.tune` was asked for; None stands for the default."""

    folds: int | None = None
    metric: str | None = None
    rule: str = "best"


@dataclass(frozen=True, slots=True)
class Tuning:
    """How values of C are compared."""

    folds: Folds | None  # None: on the store that ``validation`` names
    metric: str
    rule: str  # {"best", "one-standard-error"}

    @property
    def n_folds(self) -> int:
        """How many folds there are; 0 where rows of another store are compared on."""
        return 0 if self.folds is None else self.folds.n_folds


def check_request(request: TuneRequest, options: TrainOptions) -> None:
    """UsageError where options contradict each other; the data are not needed for that."""
    validation = parameter("validation")
    if options.held_out_share is not None:
        raise UsageError(
            f"{validation} names a store here, not a share of the rows; give the path of one, or "
            f"{parameter('folds')}"
        )
    if options.validation is None:
        return
    if request.folds is not None:
        raise UsageError(f"{parameter('folds')} and {validation} are two ways to compare; give one of them")
    if request.rule != "best":
        raise UsageError(
            f"{parameter('rule', request.rule)} needs the standard error over folds, and {validation} has "
            f"none; give {parameter('folds')} instead, or leave it out"
        )


def plan_tuning(request: TuneRequest, problem: Problem, data: Data, options: TrainOptions) -> Tuning:
    """The comparison on these data.

    UsageError for a metric that does not exist or does not fit, or an option that does not.
    InputError for more folds than rows of a class, rows or queries.
    """
    n_classes = problem.n_models(data.labels, options) // len(options.C)
    sets = data.labels.sets is not None
    predicted = predicted_of(options.problem, one_vs_rest=n_classes > 1, multilabel=sets)
    metric = request.metric or (default_metrics(predicted)[0] if sets else PROBLEMS[options.problem].score)
    probabilities = gives_probabilities(options.problem, options.resolved_loss)
    [requested] = requested_metrics(predicted, metric, probabilities=probabilities)
    if options.validation is not None:
        return Tuning(None, metric, request.rule)
    of_queries = problem.in_queries or (data.labels.has_qid and compares_queries(requested))
    n_folds = DEFAULT_FOLDS if request.folds is None else request.folds
    return Tuning(_folds(problem, data, options, n_folds, of_queries, metric), metric, request.rule)


def _folds(
    problem: Problem, data: Data, options: TrainOptions, n_folds: int, of_queries: bool, metric: str
) -> Folds:
    """The folds of the rows: by query, by label, or of all rows alike."""
    classes, counts = problem.fold_classes(data.labels, options), data.labels.counts
    if of_queries:
        if classes:
            raise UsageError(
                f"{parameter('metric', metric)} compares rows of a query, and folds of problem "
                f"{options.problem!r} are drawn by class, not by query; choose a metric of classes"
            )
        n_queries = count_queries(data.source)
        _check_enough(n_queries, n_folds, "queries")
        return Folds.of_queries(n_queries, n_folds, options.seed)
    if data.labels.sets is not None and counts is not None:
        return _folds_of_sets(problem, data, options, Folds.of_labels(counts, classes, n_folds, options.seed))
    if classes and counts is not None:
        for labels in classes:
            n_rows = sum(counts[label] for label in labels)
            what = f"rows of the class {_class_text(labels, data)}"
            _check_enough(n_rows, n_folds, what, ", or leave the class out")
        return Folds.of_labels(counts, classes, n_folds, options.seed)
    _check_enough(data.source.n_rows, n_folds, "rows")
    if problem.n_ranks(data.labels) and counts is not None:
        return Folds.of_labels(counts, [[label] for label in sorted(counts)], n_folds, options.seed)
    return Folds.of_rows(data.source.n_rows, n_folds, options.seed)


def _folds_of_sets(problem: Problem, data: Data, options: TrainOptions, folds: Folds) -> Folds:
    """The folds, if outside of each there are rows with every label that is trained, and without it."""
    sets, counts = data.labels.sets, data.labels.counts
    assert sets is not None
    assert counts is not None
    rows, left = sets.rows(counts), [sets.rows(folds.rows_without(k)) for k in range(folds.n_folds)]
    n_left = [sum(folds.rows_without(k).values()) for k in range(folds.n_folds)]
    named = data.labels.positive(options) or range(len(sets.labels))
    for k in map(int, named):
        _check_enough(int(rows[k]), folds.n_folds, f"rows with the label {sets.labels[k]:.80}")
        if any(not 0 < own[k] < n_rows for own, n_rows in zip(left, n_left, strict=True)):
            raise InputError(
                f"outside of a fold all rows have the label {sets.labels[k]:.80}, or none; give another "
                f"{parameter('seed')}, or name the labels to train as {parameter('positive')}"
            )
    return folds


def _check_enough(found: int, n_folds: int, what: str, advice: str = "") -> None:
    if found < n_folds:
        raise InputError(
            f"{parameter('folds', n_folds)} needs as many {what}, one for each fold, and there "
            f"{'is' if found == 1 else 'are'} {found}; give fewer folds{advice}"
        )


def _class_text(labels: Sequence[float], data: Data) -> str:
    """The labels of a class as the data name them."""
    names = data.labels.names
    texts = [label_text(label) if names is None else names[int(label)] for label in labels[:3]]
    return f"{', '.join(text[:80] for text in texts)}{', ...' if len(labels) > 3 else ''}"
