"""Begin a run of streamed SMO where another one ended: a saved state for another C, or a model.

From a saved state every multiplier is taken over, times the ratio of the two values of C: that is feasible,
and keeps w as their sum. Steps that were still to be taken, by the theta of their round, are taken: this run
may cut its rounds in another way. A model has no multipliers; its weights are the first point that P is taken
at.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ooc_svm.data.source import Span
from ooc_svm.errors import DamageError, InputError, UsageError
from ooc_svm.model.model import Model, load_model
from ooc_svm.options import TrainOptions, family_fields
from ooc_svm.passes.base import Extent
from ooc_svm.rowvectors.vector import RowVector, RowVectors, row_slices
from ooc_svm.solvers.streamed_smo.dual import names
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.sweep import cut_rounds
from ooc_svm.training.assembly import Task
from ooc_svm.training.checkpoint import Saved, newest_saved, run_keys


def families(data_id: str, options: TrainOptions) -> list[str]:
    """Texts that runs share whose states differ by C alone; see `ooc_svm.training.checkpoint.run_keys`."""
    return run_keys(data_id, options, family_fields())


def warm_start(
    path: str | os.PathLike[str],
    solvers: Sequence[StreamedSmo],
    tasks: Sequence[Task],
    vectors: RowVectors,
    own_families: Sequence[str],
    blocks: Sequence[Span],
) -> str:
    """Put the start that is found at ``path`` into fresh solvers.

    Parameters
    ----------
    path : path
        A model file, or a folder of checkpoints.
    solvers, tasks : sequences of the same length
    vectors : RowVectors
        With the solvers' row vectors.
    own_families : sequence of str
        See `families`.
    blocks : sequence of Span
        Of the data.

    Returns
    -------
    str
        What was found, for people.

    Raises
    ------
    UsageError
        The saved run was on other data or with other options than C, or the model is for another problem.
    InputError
        There is nothing at the path, or the model has another number of features.
    DamageError
        The checkpoint or the model is damaged.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place} does not exist; give a model file or a folder of checkpoints")
    if not place.is_dir():
        return _from_model(load_model(place), place, solvers, tasks)
    saved = newest_saved(place)
    if saved is None:
        raise InputError(f"{place} holds no checkpoint; give a model file or a folder of checkpoints")
    return _from_state(saved, place, solvers, tasks, vectors, own_families, blocks)


def _from_model(model: Model, place: Path, solvers: Sequence[StreamedSmo], tasks: Sequence[Task]) -> str:
    n_features = solvers[0].problem.space.n_features
    if model.n_features != n_features:
        raise InputError(
            f"{place} is a model of {model.n_features} features, the data has {n_features}; give another one"
        )
    positive = [None if task.classes is None else task.classes.positive for task in tasks]
    known: list[float | None] = [*model.positive] or [None] * model.n_models
    if not set(positive) <= set(known) or model.is_regressor != (positive[0] is None):
        raise UsageError(f"{place} is a model of another problem or of other classes; give another one")
    costs = model.C or (1.0,) * model.n_models
    for solver, task, label in zip(solvers, tasks, positive, strict=True):
        k = _nearest(task.C, [(C, k) for k, C in enumerate(costs) if known[k] == label])
        solver.state.start = model.weights[k].copy()
        solver.state.start_b = float(model.bias[k])
    return f"the model {place}"


def _from_state(
    saved: Saved,
    place: Path,
    solvers: Sequence[StreamedSmo],
    tasks: Sequence[Task],
    vectors: RowVectors,
    own_families: Sequence[str],
    blocks: Sequence[Span],
) -> str:
    costs, cut = saved.facts.get("C"), saved.facts.get("cut")
    if saved.facts.get("family") not in own_families or not isinstance(costs, list):
        raise UsageError(
            f"{place} holds the state of a run on other data, or with other options beside C; "
            "give the options of that run or another folder"
        )
    misfit = DamageError(f"the checkpoint in {place} does not fit the data; give another folder")
    if not (isinstance(cut, list) and [type(number) for number in cut] == [int, int] and min(cut) > 0):
        raise misfit
    rounds = cut_rounds(blocks, *cut)
    # Models come by C, and for each C by class.
    n_classes = len(tasks) // len({task.C for task in tasks})
    for number, (solver, task) in enumerate(zip(solvers, tasks, strict=True)):
        same_class = range(number % n_classes, len(costs), n_classes)
        old = _nearest(task.C, [(costs[k], k) for k in same_class])
        ratio = task.C / costs[old]
        state, residents = solver.state, solver.state.residents
        capacity, residents.capacity = residents.capacity, sys.maxsize  # the first round makes them fit
        saved.fill(old, state)
        thetas, gap = state.thetas, float(state.gaps.sum())
        n_rounds = len(solver.rounds)
        state.thetas, state.gaps = np.zeros(n_rounds), np.full(n_rounds, gap / n_rounds)
        if thetas.shape != (len(rounds),) or not solver.is_sound():
            raise misfit
        residents.capacity, residents.least = capacity, 0.0
        solver.rescale(ratio)
        for name in names(solver.problem):
            saved.load(name.replace(solver.problem.name, f"model{old}", 1), name, vectors)
        dual, step, *_ = names(solver.problem)
        for extent, theta in zip(rounds, thetas.tolist(), strict=True):
            _take_steps(extent, theta, vectors[dual], vectors[step])
        for name, factor in ((dual, ratio), (step, 0.0)):
            _multiply(name, factor, vectors)
    return f"the state in {place}"


def _take_steps(extent: Extent, theta: float, dual: RowVector, step: RowVector) -> None:
    """Take the share of the steps of a round that the round decided on."""
    for piece in (piece for segment in extent.segments for piece in segment):
        multipliers = dual.read(piece.start, piece.stop).copy()
        multipliers[:: piece.step] += theta * step.read(piece.start, piece.stop)[:: piece.step]
        dual.write(piece.start, multipliers)


def _nearest(C: float, candidates: Sequence[tuple[float, int]]) -> int:
    """The model whose C is the nearest by its ratio."""
    return min(candidates, key=lambda found: abs(math.log(found[0] / C)))[1]


def _multiply(name: str, ratio: float, vectors: RowVectors) -> None:
    for start, stop in row_slices(vectors.n_rows):
        vectors[name].write(start, vectors[name].read(start, stop) * ratio)
