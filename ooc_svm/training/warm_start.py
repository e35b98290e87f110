"""Begin a run where another one ended: with a saved state for another C, or at a model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ooc_svm.data.source import Span
from ooc_svm.errors import DamageError, InputError, UsageError
from ooc_svm.model.file import load_model
from ooc_svm.model.model import Model
from ooc_svm.problems.base import ModelSpec
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.base import Solver, WarmStarting
from ooc_svm.training.checkpoint import Saved, newest_saved, saved_item


def warm_start(
    path: str | os.PathLike[str],
    package: WarmStarting,
    solvers: Sequence[Solver],
    models: Sequence[ModelSpec],
    vectors: RowVectors,
    families: Sequence[str],
    blocks: Sequence[Span],
) -> str:
    """Put the start that is found at ``path`` into fresh solvers; returns what was found, for people.

    ``path``: a model file, or a folder of checkpoints.
    ``vectors``: with the solvers' row vectors.
    ``families``: keys that runs share whose states differ by C alone.
    ``blocks``: of the data.
    UsageError if the saved run was on other data or with other options than C, or the model is for another
        problem.
    InputError if there is nothing at the path, or the model has another number of features.
    DamageError if the checkpoint or the model is damaged.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place} does not exist; give a model file or a folder of checkpoints")
    if not place.is_dir():
        return _from_model(load_model(place), place, package, solvers, models)
    saved = newest_saved(place)
    if saved is None:
        raise InputError(f"{place} holds no checkpoint; give a model file or a folder of checkpoints")
    if saved.metadata.get("family") not in families or not isinstance(saved.metadata.get("C"), list):
        raise UsageError(
            f"{place} holds the state of a run on other data, or with other options besides C; "
            "give the options of that run or another folder"
        )
    _from_state(saved, place, package, solvers, models, vectors, blocks)
    return f"the state in {place}"


def _from_model(
    model: Model, place: Path, package: WarmStarting, solvers: Sequence[Solver], models: Sequence[ModelSpec]
) -> str:
    n_features = len(solvers[0].solution()[0])
    if model.n_features != n_features:
        raise InputError(
            f"{place} is a model of {model.n_features} features, the data has {n_features}; give another one"
        )
    positive = [None if spec.classes is None else spec.classes.positive for spec in models]
    known: list[float | None] = [*model.positive] or [None] * model.n_models
    if not set(positive) <= set(known) or model.is_regressor != (positive[0] is None):
        raise UsageError(f"{place} is a model of another problem or of other classes; give another one")
    costs = model.C or (1.0,) * model.n_models
    for solver, spec, label in zip(solvers, models, positive, strict=True):
        k = _nearest(spec.C, [(C, k) for k, C in enumerate(costs) if known[k] == label])
        package.begin_at(solver, model.weights[k], float(model.bias[k]))
    return f"the model {place}"


def _from_state(
    saved: Saved,
    place: Path,
    package: WarmStarting,
    solvers: Sequence[Solver],
    models: Sequence[ModelSpec],
    vectors: RowVectors,
    blocks: Sequence[Span],
) -> None:
    costs, cut = saved.metadata["C"], saved_item(saved.metadata, "cut", list)
    # Models come by C, and for each C by class.
    n_classes = len(models) // len({spec.C for spec in models})
    for number, (solver, spec) in enumerate(zip(solvers, models, strict=True)):
        same_class = range(number % n_classes, len(costs), n_classes)
        old = _nearest(spec.C, [(costs[k], k) for k in same_class])
        for name in solver.vectors:
            saved.load(name.replace(f"model{number}", f"model{old}", 1), name, vectors)
        fill: Any = partial(saved.fill, old)
        if not package.take_over(solver, spec.C / costs[old], cut, blocks, vectors, fill):
            raise DamageError(f"the checkpoint in {place} does not fit the data; give another folder")


def _nearest(C: float, candidates: Sequence[tuple[float, int]]) -> int:
    """The model whose C is the nearest by its ratio."""
    return min(candidates, key=lambda found: abs(math.log(found[0] / C)))[1]
