"""From options to solvers: which problem, which algorithm, which row vectors it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.classes import BinaryProblem
from ooc_svm.data.source import Source
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.request import Pairs
from ooc_svm.passes.base import Extent
from ooc_svm.solvers.cutting_plane.joachims import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.cutting_plane.pair_oracle import PairCutOracle
from ooc_svm.solvers.cutting_plane.row_oracle import RowCutOracle, Targets
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.dual import (
    SQUARED_LOSSES,
    ClassTargets,
    DualProblem,
    RowTargets,
    ValueTargets,
    row_vectors,
)
from ooc_svm.solvers.streamed_smo.solver import Effort, SmoState, StreamedSmo, effort_for
from ooc_svm.solvers.streamed_smo.sweep import cut_rounds
from ooc_svm.solvers.streamed_smo.working_set import Residents
from ooc_svm.training.memory_plan import Parameters

# Row vectors that are filled from the data.
CODES, TARGET, WEIGHT = "codes", "target", "weight"

# A line search by values of the objective goes as near to the minimum as this share of the gap wanted: nearer
# takes more sorts of the rows and saves no reads (measured).
SEARCH_SHARE = 0.01

AnySolver = Ocas | CuttingPlane | StreamedSmo


@dataclass(frozen=True, slots=True)
class Task:
    """One model to be trained: its C, and its classes (None for values and ranks)."""

    C: float
    classes: BinaryProblem | None


def row_bytes(options: TrainOptions, has_weight: bool, n_models: int) -> int:
    """Bytes a row of all row vectors, coefficients of cuts apart."""
    plain = 16 if options.over_pairs else 0
    each = {"ocas": 16, "cutting-plane": plain, "streamed-smo": 32}[options.resolved_solver]
    own = {"svc": 2, "svr": 8, "ordinal": 4, "roc-area": 4, "ranking": 5}[options.problem]
    return own + 8 * has_weight + each * n_models


def coefficient_type(has_weight: bool, n_rows: int) -> np.dtype[Any]:
    """Type of the coefficients of a cut that are kept for each row where losses are of pairs of rows."""
    return np.dtype(np.float64 if has_weight or n_rows > np.iinfo(np.int32).max else np.int32)


def resident_share(parameters: Parameters, source: Source) -> float:
    """The share of the data that the resident set may hold."""
    return min(1.0, parameters.capacity / max(source.n_nonzeros + source.n_rows, 1))


def smo_effort(options: TrainOptions, parameters: Parameters, source: Source) -> Effort:
    """How streamed SMO cuts a read and works on the resident set."""
    return effort_for(source.n_nonzeros, resident_share(parameters, source), options.lanes)


def data_rounds(options: TrainOptions, parameters: Parameters, source: Source) -> list[Extent]:
    """The rounds of one read of the data; none where the solver's passes visit all of it."""
    if options.resolved_solver != "streamed-smo":
        return []
    effort = smo_effort(options, parameters, source)
    return cut_rounds(source.blocks, effort.rounds, effort.lanes)


def make_solvers(
    tasks: Sequence[Task],
    options: TrainOptions,
    parameters: Parameters,
    source: Source,
    value_type: str,
    space: LinearSpace,
    stopping: Stopping,
    pairs: Pairs | None = None,
) -> tuple[list[AnySolver], dict[str, npt.DTypeLike]]:
    """A solver for each task, and the row vectors that they work on, with types.

    ``pairs`` are those of the data where losses are of pairs of rows.
    """
    solvers: list[AnySolver] = []
    vectors: dict[str, npt.DTypeLike] = {}
    rounds = data_rounds(options, parameters, source)
    effort = smo_effort(options, parameters, source)
    for number, task in enumerate(tasks):
        name = f"model{number}"
        if options.resolved_solver == "streamed-smo":
            problem = _dual_problem(task, options, source, space, name)
            vectors |= row_vectors(problem)
            ones = value_type == "ones"
            residents = Residents(parameters.capacity, np.empty(0, np.float32 if ones else value_type), ones)
            state = SmoState.fresh(space.n_features, len(rounds), residents)
            solvers.append(
                StreamedSmo(problem, stopping, state, rounds, source.n_nonzeros, effort, options.seed)
            )
            continue
        loss = _cut_problem(task, options, parameters, source, space, name, pairs)
        if isinstance(loss, PairCutOracle):
            kind = coefficient_type(source.has_weight, source.n_rows)
            vectors |= loss.row_vectors | dict.fromkeys(loss.coefficients, kind)
        elif options.resolved_solver == "ocas":
            vectors |= loss.row_vectors
        if options.resolved_solver == "cutting-plane":
            plain = CuttingPlaneState.fresh(space.dimension, parameters.max_cuts)
            solvers.append(CuttingPlane(loss, stopping, plain))
        else:
            searching = OcasState.fresh(loss, parameters.max_cuts)
            solvers.append(Ocas(loss, stopping, searching, parameters.points))
    return solvers, vectors


def counted_vectors(solver: AnySolver) -> tuple[str, ...]:
    """Names of the row vectors that a solver fills anew from others in every iteration."""
    return solver.problem.coefficients if isinstance(solver.problem, PairCutOracle) else ()


def _dual_problem(
    task: Task, options: TrainOptions, source: Source, space: LinearSpace, name: str
) -> DualProblem:
    return DualProblem(
        _row_targets(task, WEIGHT if source.has_weight else None),
        task.C,
        space,
        two_sided=options.problem == "svr",
        squared=options.resolved_loss in SQUARED_LOSSES,
        epsilon=options.resolved_epsilon,
        free_bias=options.bias == "free",
        name=name,
    )


def _cut_problem(
    task: Task,
    options: TrainOptions,
    parameters: Parameters,
    source: Source,
    space: LinearSpace,
    name: str,
    pairs: Pairs | None,
) -> RowCutOracle | PairCutOracle:
    if options.over_pairs:
        assert pairs is not None
        precision = SEARCH_SHARE * options.tol
        cuts = parameters.points - 1, parameters.bins
        return PairCutOracle(pairs, task.C, space, parameters.groups, name, precision, *cuts)
    assert task.classes is not None
    weight = WEIGHT if source.has_weight else None
    targets = Targets(CODES, task.classes.sign, task.classes.weight, weight)
    return RowCutOracle(targets, task.C, space, parameters.groups, name)


def _row_targets(task: Task, weight: str | None) -> RowTargets:
    if task.classes is None:
        return ValueTargets(TARGET, weight)
    return ClassTargets(Targets(CODES, task.classes.sign, task.classes.weight, weight))
