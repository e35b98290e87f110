"""Opens and checks data and options, for training, its plan and its warm-up.

No solver, problem or loss is named here: the catalog says where each has its home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ooc_svm.catalog import PROBLEMS, SOLVERS, load
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import Problem
from ooc_svm.solvers.base import SolverPackage
from ooc_svm.store import Store
from ooc_svm.training.data import Data, open_data, without_rows
from ooc_svm.training.grid import variants_of
from ooc_svm.training.preparation import Preparation

if TYPE_CHECKING:
    from ooc_svm.training.tuning import TuneRequest


def open_prepared(
    data: Any,
    labels: Any,
    sample_weight: Any,
    qid: Any,
    options: TrainOptions,
    feature_names: Any = None,
    conversion_seconds: Callable[[], float] | None = None,
    tuning: TuneRequest | None = None,
) -> Preparation:
    """Open what `train` was given, and prepare it; `conversion_seconds` if it was made from text."""
    if tuning is not None:
        from ooc_svm.training.tuning import check_request

        check_request(tuning, options)
    opened = open_data(data, labels, sample_weight, options, qid, feature_names)
    if isinstance(opened.source, Store) and opened.source.format_version is None:
        # A model is used on the layer that it was trained on, also where the store was open already.
        options = replace(options, layer=opened.source.layer)
    return prepare(replace(opened, conversion_seconds=conversion_seconds), options, tuning)


def prepare(data: Data, options: TrainOptions, tuning: TuneRequest | None = None) -> Preparation:
    """Check data and options against each other, and plan the comparison of values of C if one is asked for.

    InputError, UsageError for labels that the problem cannot have, options that contradict the data.
    """
    problem: Problem = load(PROBLEMS[options.problem].home).of_labels(data.labels)
    held_out = problem.held_out(options)
    if held_out is not None:
        data = without_rows(data, held_out, problem.has_classes)
    variants = list(variants_of({} if tuning is None else tuning.grid, options))
    solver: SolverPackage = load(SOLVERS[options.resolved_solver].home)
    classes = problem.check(data.labels, options)
    prepared = Preparation(data, options, problem, solver, classes, variants)
    if tuning is None and options.calibrate is None:
        return prepared
    from ooc_svm.training.tuning import plan_tuning_and_folds

    compared, folds = plan_tuning_and_folds(tuning, problem, data, options)
    return replace(prepared, tuning=compared, folds=folds)
