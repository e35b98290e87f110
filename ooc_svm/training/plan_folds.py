"""The folds of a run: how many there are, and which rows they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ooc_svm.data.classes import label_name
from ooc_svm.data.folds import Folds, count_queries
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import Problem
from ooc_svm.training.data import Data

DEFAULT_FOLDS = 5


class _Wanted(NamedTuple):
    """How many folds are wanted, and what wants them, for messages."""

    n_folds: int
    asked: str  # "folds=5 needs"
    advice: str  # What to do where there are too few rows for them


def comparison_folds(
    problem: Problem, data: Data, options: TrainOptions, n_folds: int | None, query_metric: str | None
) -> Folds:
    """The folds that values of C are compared by; `query_metric`: a metric that compares rows of a query.

    UsageError for such a metric where folds are drawn by class.
    InputError for more folds than rows of a class, rows or queries.
    """
    n_folds = DEFAULT_FOLDS if n_folds is None else n_folds
    wanted = _Wanted(n_folds, f"{parameter('folds', n_folds)} needs", "give fewer folds")
    if not problem.in_queries and query_metric is None:
        return _folds_of_rows(problem, data, options, wanted)
    if problem.fold_classes(data.labels, options):
        raise UsageError(
            f"{parameter('metric', query_metric)} compares rows of a query, and folds of problem "
            f"{options.problem!r} are drawn by class, not by query; choose a metric of classes"
        )
    n_queries = count_queries(data.source)
    _check_enough(n_queries, wanted, "queries")
    return Folds.of_queries(n_queries, n_folds, options.seed)


def calibration_folds(problem: Problem, data: Data, options: TrainOptions) -> Folds | None:
    """The folds that a calibration needs, where it has no others; None without one.

    UsageError for weights that it could not count.
    InputError for more folds than rows of a class.
    """
    if options.calibrate is None:
        return None
    calibrate, validation = parameter("calibrate", options.calibrate), parameter("validation")
    if options.held_out_share is not None:  # whose rows are all that a calibration needs
        if data.source.has_weight:
            raise UsageError(
                f"rows have weights, and {calibrate} does not know those of the rows that {validation} holds "
                f"out; leave {validation} out"
            )
        return None
    asked = f"{calibrate} takes {DEFAULT_FOLDS} folds, and needs"
    advice = f"leave {parameter('calibrate')} out, take tune with fewer folds ({parameter('folds')})"
    return _folds_of_rows(problem, data, options, _Wanted(DEFAULT_FOLDS, asked, advice))


def _folds_of_rows(problem: Problem, data: Data, options: TrainOptions, wanted: _Wanted) -> Folds:
    """By label, or of all rows alike."""
    classes, counts = problem.fold_classes(data.labels, options), data.labels.counts
    if data.labels.sets is not None and counts is not None:
        folds = Folds.of_labels(counts, classes, wanted.n_folds, options.seed)
        return _folds_of_sets(data, options, folds, wanted)
    if classes and counts is not None:
        for labels in classes:
            n_rows = sum(counts[label] for label in labels)
            what = f"rows of the class {_class_text(labels, data)}"
            _check_enough(n_rows, wanted, what, ", or leave the class out")
        return Folds.of_labels(counts, classes, wanted.n_folds, options.seed)
    _check_enough(data.source.n_rows, wanted, "rows")
    if problem.n_ranks(data.labels) and counts is not None:
        return Folds.of_labels(counts, [[label] for label in sorted(counts)], wanted.n_folds, options.seed)
    return Folds.of_rows(data.source.n_rows, wanted.n_folds, options.seed)


def _folds_of_sets(data: Data, options: TrainOptions, folds: Folds, wanted: _Wanted) -> Folds:
    """The folds, if outside of each there are rows with every label that is trained, and without it."""
    sets, counts = data.labels.sets, data.labels.counts
    assert sets is not None
    assert counts is not None
    rows, left = sets.rows(counts), [sets.rows(folds.rows_without(k)) for k in range(folds.n_folds)]
    n_left = [sum(folds.rows_without(k).values()) for k in range(folds.n_folds)]
    named = data.labels.positive(options) or range(len(sets.labels))
    for k in map(int, named):
        _check_enough(int(rows[k]), wanted, f"rows with the label {sets.labels[k]:.80}")
        if any(not 0 < own[k] < n_rows for own, n_rows in zip(left, n_left, strict=True)):
            raise InputError(
                f"outside of a fold all rows have the label {sets.labels[k]:.80}, or none; give another "
                f"{parameter('seed')}, or name the labels to train as {parameter('positive')}"
            )
    return folds


def _check_enough(found: int, wanted: _Wanted, what: str, other: str = "") -> None:
    if found < wanted.n_folds:
        raise InputError(
            f"{wanted.asked} as many {what}, one for each fold, and there "
            f"{'is' if found == 1 else 'are'} {found}; {wanted.advice}{other}"
        )


def _class_text(labels: Sequence[float], data: Data) -> str:
    """The labels of a class as the data name them."""
    names = data.labels.names
    texts = [label_name(label, names) for label in labels[:3]]
    return f"{', '.join(text[:80] for text in texts)}{', ...' if len(labels) > 3 else ''}"
