"""What sequential minimal optimization needs: rounds of a read, rows kept in memory, and the solvers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ooc_svm.options import TrainOptions
from ooc_svm.passes.base import RowSet
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import (
    NO_ROOM,
    Context,
    DataSize,
    MemoryItem,
    Room,
    Solver,
    SolverPackage,
    SolverPlan,
)
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.smo.examine_pass import SmoModel
from ooc_svm.solvers.smo.rows import HeldRows
from ooc_svm.solvers.smo.solver import Smo, SmoState
from ooc_svm.solvers.streamed_smo.rounds import Round, cut_rounds, opening

# Rounds of a read, and nonzeros and rows together of a round at most: all of them may come back from the
# first read. Lanes of a round, whose rows are scored side by side.
ROUNDS, ROUND_ELEMENTS, LANES = 16, 1 << 22, 4

# Part of the memory left that rows at no bound may take, and bytes of such a row besides its nonzeros: itself
# and its copies while rows are put together.
HELD_PART, HELD_ROW_BYTES, COPIES = 0.9, 160, 3
LEAST_HELD = 1024  # Rows of mean length that are held at least, if the data have as many

EXPECTED_READS = 12  # Reads to a gap of 1e-3, as measured


@dataclass(frozen=True, slots=True)
class SmoParameters:
    """Parameters of the algorithm."""

    resident_elements: int  # Nonzeros and rows together that a model keeps in memory between two rounds
    rounds: int  # Rounds of a read


@dataclass(frozen=True, slots=True)
class SmoPackage(SolverPackage):
    """The solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        """As many rows at no bound as fit."""
        rounds = max(ROUNDS, math.ceil(size.elements / ROUND_ELEMENTS))
        if kept is not None:
            found = SmoParameters(kept.get("resident_elements", 0), kept.get("rounds", 0))
            if found.rounds != rounds or not 0 < found.resident_elements <= size.elements:
                raise ValueError(f"no run on these data has {found}")
            return _plan(size, room, found)
        least = math.ceil(min(LEAST_HELD * size.elements / max(size.n_rows, 1), size.elements))
        left = room.nbytes - sum(item.nbytes for item in _items(size, room, rounds))
        fitting = int(HELD_PART * max(left, 0) / (size.n_models * _element_bytes(size)))
        return _plan(size, room, SmoParameters(max(min(fitting, size.elements), least), rounds))

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        return _plan(size, NO_ROOM, SmoParameters(size.elements, 1))

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """The client keeps the rows."""
        plan = _plan(size, room, whole.parameters)
        return replace(plan, items=_items(size, room, whole.parameters.rounds))

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        return asdict(own.parameters)

    def rounds(self, plan: SolverPlan, context: Context) -> Sequence[RowSet]:
        return [each.rows for each in _rounds(plan, context)]

    def opening(self, plan: SolverPlan, context: Context) -> tuple[int, ...]:
        return opening(_rounds(plan, context))

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        rounds, size, options = _rounds(plan, context), context.size, context.options
        space = replace(context.space, n_free=options.n_free)
        ones = context.value_type == "ones"
        values = np.empty(0) if ones else np.empty(0, context.value_type)

        def solver(number: int, spec: ModelSpec) -> Smo:
            assert spec.targets is not None
            model = SmoModel(spec.targets, spec.loss, spec.C, f"model{number}")
            w, best = np.zeros((2, space.n_features))
            state = SmoState(w, best, HeldRows(values, ones), Certificate())
            run = rounds, plan.parameters.resident_elements, size.n_nonzeros, options.seed
            return Smo(model, space, context.stopping, state, *run)

        return [solver(number, spec) for number, spec in enumerate(models)]


def _rounds(plan: SolverPlan, context: Context) -> list[Round]:
    return cut_rounds(context.blocks, plan.parameters.rounds, LANES)


def _element_bytes(size: DataSize) -> float:
    """Bytes of a nonzero or a row that is held."""
    return COPIES * (4 + size.value_bytes) + HELD_ROW_BYTES * size.n_rows / size.elements


def _items(size: DataSize, room: Room, rounds: int) -> tuple[MemoryItem, ...]:
    """What is needed besides the rows held."""
    vector = 8 * size.dimension
    of_models = vector * size.n_models
    chunk = int(size.n_models * _element_bytes(size) * size.elements / rounds)
    return (
        room.blocks((room.blocks_a_thread + 1) * room.threads),
        MemoryItem("weights", 8 * of_models, f"8 vectors of {size.dimension} for {size.n_models} model(s)"),
        MemoryItem(
            "sums of a pass", 2 * room.partials * of_models, f"{room.partials} times 2 vectors for each model"
        ),
        MemoryItem("rows of a round", chunk, f"1/{rounds} of the data for {size.n_models} model(s)"),
    )


def _plan(size: DataSize, room: Room, parameters: SmoParameters) -> SolverPlan:
    held = int(size.n_models * parameters.resident_elements * _element_bytes(size))
    share = parameters.resident_elements / size.elements
    note = f"up to {100 * share:.3g} % of the data for each of {size.n_models} model(s)"
    return SolverPlan(
        parameters,
        (*_items(size, room, parameters.rounds), MemoryItem("rows at no bound", held, note)),
        row_bytes=24 * size.n_models,
        expected_reads=EXPECTED_READS,
        report={"rounds": parameters.rounds},
    )


SOLVER = SmoPackage()
