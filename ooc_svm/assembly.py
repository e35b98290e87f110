"""From options to solvers: which problem, which algorithm, which row vectors it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.budget import Parameters
from ooc_svm.classes import BinaryProblem
from ooc_svm.options import TrainOptions
from ooc_svm.passes import Extent
from ooc_svm.problems.dual import (
    SQUARED_LOSSES,
    ClassTargets,
    DualProblem,
    RowTargets,
    ValueTargets,
    row_vectors,
)
from ooc_svm.problems.hinge import HingeProblem, Targets
from ooc_svm.problems.linear import LinearSpace
from ooc_svm.solvers.cutting_plane import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.ocas import Ocas, OcasState
from ooc_svm.solvers.resident import Residents
from ooc_svm.solvers.streamed_smo import SmoState, StreamedSmo, effort_for
from ooc_svm.source import Source
from ooc_svm.stopping import Stopping
from ooc_svm.sweeps import cut_rounds

# Row vectors that are filled from the data.
CODES, TARGET, WEIGHT = "codes", "target", "weight"

AnySolver = Ocas | CuttingPlane | StreamedSmo


@dataclass(frozen=True, slots=True)
class Task:
    """One model to be trained: its C, and its classes (None for values)."""

    C: float
    classes: BinaryProblem | None


def row_bytes(options: TrainOptions, has_weight: bool, n_models: int) -> int:
    """Bytes a row of all row vectors."""
    each = {"ocas": 16, "cutting-plane": 0, "streamed-smo": 32}[options.resolved_solver]
    return (2 if options.problem == "svc" else 8) + 8 * has_weight + each * n_models


def data_rounds(options: TrainOptions, source: Source) -> list[Extent]:
    """The rounds of one read of the data; none where the solver's passes visit all of it."""
    if options.resolved_solver != "streamed-smo":
        return []
    effort = effort_for(source.n_nonzeros, options.lanes)
    return cut_rounds(source.blocks, effort.rounds, effort.lanes)


def make_solvers(
    tasks: Sequence[Task],
    options: TrainOptions,
    parameters: Parameters,
    source: Source,
    value_type: str,
    space: LinearSpace,
    stopping: Stopping,
) -> tuple[list[AnySolver], dict[str, npt.DTypeLike]]:
    """A solver for each task, and the row vectors that they work on, with types."""
    weight = WEIGHT if source.has_weight else None
    solvers: list[AnySolver] = []
    vectors: dict[str, npt.DTypeLike] = {}
    rounds = data_rounds(options, source)
    for number, task in enumerate(tasks):
        name = f"model{number}"
        if options.resolved_solver == "streamed-smo":
            problem = DualProblem(
                _row_targets(task, weight),
                task.C,
                space,
                two_sided=options.problem == "svr",
                squared=options.resolved_loss in SQUARED_LOSSES,
                epsilon=options.resolved_epsilon,
                free_bias=options.bias == "free",
                name=name,
            )
            vectors |= row_vectors(problem)
            ones = value_type == "ones"
            residents = Residents(parameters.capacity, np.empty(0, np.float32 if ones else value_type), ones)
            state = SmoState.fresh(space.n_features, len(rounds), residents)
            effort = effort_for(source.n_nonzeros, options.lanes)
            solvers.append(
                StreamedSmo(problem, stopping, state, rounds, source.n_nonzeros, effort, options.seed)
            )
            continue
        assert task.classes is not None
        targets = Targets(CODES, task.classes.sign, task.classes.weight, weight)
        hinge = HingeProblem(targets, task.C, space, parameters.groups, name)
        if options.resolved_solver == "cutting-plane":
            plain = CuttingPlaneState.fresh(space.dimension, parameters.max_cuts)
            solvers.append(CuttingPlane(hinge, stopping, plain))
            continue
        vectors |= hinge.row_vectors
        searching = OcasState.fresh(space.dimension, parameters.max_cuts)
        solvers.append(Ocas(hinge, stopping, searching, parameters.points))
    return solvers, vectors


def _row_targets(task: Task, weight: str | None) -> RowTargets:
    if task.classes is None:
        return ValueTargets(TARGET, weight)
    return ClassTargets(Targets(CODES, task.classes.sign, task.classes.weight, weight))
