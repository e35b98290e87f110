"""How values of C are compared: by folds of the rows or on another store, by which metric and rule."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ooc_svm.catalog import PROBLEMS
from ooc_svm.data.folds import Folds
from ooc_svm.errors import UsageError, parameter, shown
from ooc_svm.evaluation.metrics import compares_queries, default_metrics, requested_metrics
from ooc_svm.model.decision import predicted_of
from ooc_svm.model.probabilities import gives_probabilities
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import Problem
from ooc_svm.training.data import Data
from ooc_svm.training.grid import Grid, check_grid
from ooc_svm.training.plan_folds import calibration_folds, comparison_folds

NO_GRID: Grid = MappingProxyType({})


class TuneRequest(NamedTuple):
    """What `ooc_svm.tune` was asked for; None stands for the default."""

    folds: int | None = None
    metric: str | None = None
    rule: str = "best"
    grid: Grid = NO_GRID


@dataclass(frozen=True, slots=True)
class Tuning:
    """How values of C are compared."""

    metric: str
    rule: str  # {"best", "one-standard-error"}
    on_store: bool  # On the store that ``validation`` names; else on folds


def check_request(request: TuneRequest, options: TrainOptions) -> None:
    """UsageError where options contradict each other; the data are not needed for that."""
    check_grid(request.grid, options)
    if request.metric is not None and "," in request.metric:
        first = request.metric.partition(",")[0].strip()
        raise UsageError(
            f"{parameter('metric')} is {shown(request.metric)}, and values are compared by one metric; give "
            f"one of them, for example {parameter('metric', first)}"
        )
    validation = parameter("validation")
    if options.held_out_share is not None:
        raise UsageError(
            f"{validation} names a store here, not a share of the rows; give the path of one, or "
            f"{parameter('folds')}"
        )
    if options.landmarks is not None:
        raise UsageError(
            f"models of landmarks are not compared; leave {parameter('landmarks')} out, or choose C on a "
            "sample of the rows"
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


def plan_tuning_and_folds(
    request: TuneRequest | None, problem: Problem, data: Data, options: TrainOptions
) -> tuple[Tuning | None, Folds | None]:
    """The comparison on these data, if one is asked for; and the folds that it or a calibration needs.

    UsageError for a metric that does not exist or does not fit, or an option that does not.
    InputError for more folds than rows of a class, rows or queries.
    """
    if request is None:
        return None, calibration_folds(problem, data, options)
    n_classes = problem.n_models(data.labels, options) // len(options.C)
    sets = data.labels.sets is not None
    predicted = predicted_of(options.problem, one_vs_rest=n_classes > 1, multilabel=sets)
    metric = request.metric or (default_metrics(predicted)[0] if sets else PROBLEMS[options.problem].score)
    calibrated = options.calibrate is not None
    probabilities = gives_probabilities(options.problem, options.resolved_loss, calibrated=calibrated)
    [requested] = requested_metrics(predicted, metric, probabilities=probabilities)
    on_store = options.validation is not None
    tuning = Tuning(metric, request.rule, on_store)
    if on_store:
        return tuning, calibration_folds(problem, data, options)
    of_queries = metric if data.labels.has_qid and compares_queries(requested) else None
    return tuning, comparison_folds(problem, data, options, request.folds, of_queries)
