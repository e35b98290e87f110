"""Begin a run where another one ended: with a saved state for another C, or at a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ooc_svm.data.classes import label_name, label_text
from ooc_svm.errors import DamageError, InputError, UsageError, parameter
from ooc_svm.model.file import load_model
from ooc_svm.model.model import Model
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.base import Solver, WarmStarting
from ooc_svm.system.address import AnyPath, located
from ooc_svm.system.files import exists, is_folder
from ooc_svm.training.checkpoint import (
    Saved,
    check_feature_names,
    newest_saved,
    saved_batches,
    saved_item,
)
from ooc_svm.training.keys import family_key

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


def warm_start(run: Run) -> str:
    """Put the start that the options name into fresh solvers; returns what was found, for people.

    It is a model file, or a folder of checkpoints.

    UsageError if the model is for another problem, or the features of the saved run have other names.
    InputError if there is nothing at the path, or the model has another number of features.
    DamageError if the checkpoint or the model is damaged, or the saved run was on other data or with other
        options than C.
    """
    options = run.prepared.options
    assert options.warm_start is not None
    place = located(options.warm_start)
    if not is_folder(place):
        if not exists(place):
            raise InputError(f"{place} does not exist; give a model file or a folder of checkpoints")
        return _from_model(load_model(place), place, run)
    if run.prepared.tuning is not None or run.prepared.n_folds:
        raise UsageError(
            f"{place} is a folder of checkpoints, and models that are compared, or trained without a fold, "
            f"begin at the weights of a model; give {parameter('warm_start')} a model file, or leave it out"
        )
    saved = newest_saved(place)
    if saved is None:
        batches = "; it has those of a run in batches, of which only the model can be gone on from"
        why = "" if saved_batches(place) is None else batches
        raise InputError(f"{place} holds no checkpoint{why}; give a model file or a folder of checkpoints")
    key = family_key(run.prepared.data.id(), run.prepared.data.known_by, options)
    if saved.metadata.get("family") not in key.texts or not isinstance(saved.metadata.get("C"), list):
        raise DamageError(
            f"{place} holds the state of a run {key.difference(saved.content, ' apart from C and nu')}; "
            "give data and options of that run, or another folder"
        )
    check_feature_names(saved.metadata, run.prepared.data.feature_names, place)
    _from_state(saved, place, run)
    return f"the state in {place}"


def _from_model(model: Model, place: AnyPath, run: Run) -> str:
    solvers, models, package = run.solvers, run.models, cast(WarmStarting, run.prepared.solver)
    if model.kernel != run.prepared.options.kernel:
        raise UsageError(
            f"{place} is a model with the kernel {model.kernel}; give one with the kernel "
            f"{run.prepared.options.kernel}"
        )
    n_features = run.prepared.data.source.n_features
    if model.n_features != n_features:
        raise InputError(
            f"{place} is a model of {model.n_features} features, the data has {n_features}; give another one"
        )
    names = run.prepared.data.feature_names
    if names is not None and model.feature_names is not None and names != model.feature_names:
        raise InputError(
            f"{place} is a model whose features have other names than the data's, or these in another "
            "order; give another one"
        )
    labels = run.prepared.data.labels.names
    positive = [spec.classes and label_name(spec.classes.positive, labels) for spec in models]
    known: list[str | None] = [*_positive_names(model)] or [None] * model.n_models
    if not set(positive) <= set(known) or model.is_regressor != (positive[0] is None):
        raise UsageError(f"{place} is a model of another problem or of other classes; give another one")
    costs = model.C or (1.0,) * model.n_models
    for solver, spec, label in zip(solvers, models, positive, strict=True):
        k = _nearest(spec.C, [(C, k) for k, C in enumerate(costs) if known[k] == label])
        package.begin_at(solver, model.weights[k], float(model.bias[k]))
    return f"the model {place}"


def _positive_names(model: Model) -> list[str]:
    """What the positive labels are called: numbers of names follow from all labels, and others may differ."""
    names = dict(zip(model.classes, model.label_names or (), strict=False))
    return [names.get(label, label_text(label)) for label in model.positive]


def _from_state(saved: Saved, place: AnyPath, run: Run) -> None:
    models, package = run.models, cast(WarmStarting, run.prepared.solver)
    vectors, blocks = run.engine.vectors, run.engine.source.blocks
    costs, cut = saved.metadata["C"], saved_item(saved.metadata, "cut", list)
    # Models come by C, and for each C by class.
    n_classes = len(models) // len({spec.C for spec in models})
    for number, (solver, spec) in enumerate(zip(run.solvers, models, strict=True)):
        same_class = range(number % n_classes, len(costs), n_classes)
        old = _nearest(spec.C, [(costs[k], k) for k in same_class])
        fill: Any = partial(_fill, saved, old, number, solver, vectors)
        if not package.take_over(solver, spec.C / costs[old], cut, blocks, vectors, fill):
            raise DamageError(f"the checkpoint in {place} does not fit the data; give another folder")


def _fill(saved: Saved, old: int, number: int, solver: Solver, vectors: RowVectors, state: Any) -> None:
    """Put the state of the saved model ``old`` into that of a solver, and its row vectors into place."""
    saved.fill(old, state)
    for name in solver.vectors:
        saved.load(name.replace(f"model{number}", f"model{old}", 1), name, vectors)


def _nearest(C: float, candidates: Sequence[tuple[float, int]]) -> int:
    """The model whose C is the nearest by its ratio."""
    return min(candidates, key=lambda found: abs(math.log(found[0] / C)))[1]
