"""What sequential minimal optimization needs: rounds of a read, rows kept in memory, and the solvers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ooc_svm.ops import gram
from ooc_svm.ops.kernels import in_precision
from ooc_svm.options import TrainOptions
from ooc_svm.passes.base import RowSet
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import (
    NO_ROOM,
    PRECISION,
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
from ooc_svm.solvers.smo.kernel import KernelSmo
from ooc_svm.solvers.smo.linear import LinearSmo, LinearState
from ooc_svm.solvers.smo.rows import N_KNOWN, HeldRows
from ooc_svm.solvers.smo.solver import Smo, SmoState
from ooc_svm.solvers.streamed_smo.rounds import Round, cut_rounds, opening

# Rounds of a read, and nonzeros and rows together of a round at most: all of them may come back from the
# first read. Lanes of a round, whose rows are scored side by side.
ROUNDS, ROUND_ELEMENTS, LANES = 16, 1 << 22, 4

# Part of the memory left that rows in memory may take, and copies of such a row while rows are put together;
# bytes of a row besides its nonzeros.
HELD_PART, COPIES, HELD_ROW_BYTES = 0.9, 3, 8 * (N_KNOWN + 4)
LEAST_HELD = 1024  # Rows of mean length that are held at least, if the data have as many

EXPECTED_READS = 12  # Reads to a gap of 1e-3, as measured


@dataclass(frozen=True, slots=True)
class SmoParameters:
    """Parameters of the algorithm."""

    resident_elements: int  # Nonzeros and rows together that a model keeps in memory
    rounds: int  # Rounds of a read


@dataclass(frozen=True, slots=True)
class SmoPackage(SolverPackage):
    """The solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        """As many rows in memory as fit."""
        rounds = max(ROUNDS, math.ceil(size.elements / ROUND_ELEMENTS))
        if kept is not None:
            found = SmoParameters(kept.get("resident_elements", 0), kept.get("rounds", 0))
            if found.rounds != rounds or not 0 < found.resident_elements <= size.elements:
                raise ValueError(f"no run on these data has {found}")
            return _plan(size, options, room, found)
        least = math.ceil(min(LEAST_HELD * size.elements / max(size.n_rows, 1), size.elements))
        left = room.nbytes - sum(item.nbytes for item in _items(size, options, room, rounds))
        fitting = int(HELD_PART * max(left, 0) / (size.n_models * _element_bytes(size)))
        return _plan(size, options, room, SmoParameters(max(min(fitting, size.elements), least), rounds))

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        return _plan(size, options, NO_ROOM, SmoParameters(size.elements, 1))

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """The client keeps the rows."""
        plan = _plan(size, options, room, whole.parameters)
        return replace(plan, items=_items(size, options, room, whole.parameters.rounds))

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        return asdict(own.parameters)

    def rounds(self, plan: SolverPlan, context: Context) -> Sequence[RowSet]:
        return [each.rows for each in _rounds(plan, context)]

    def opening(self, plan: SolverPlan, context: Context) -> tuple[int, ...]:
        return opening(_rounds(plan, context))

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        rounds, size, options = _rounds(plan, context), context.size, context.options
        space = replace(context.space, n_free=options.n_free)
        ones, d = context.value_type == "ones", space.n_features
        values = np.empty(0) if ones else np.empty(0, context.value_type)
        sizes = plan.parameters.resident_elements, size.n_nonzeros, options.seed

        def solver(number: int, spec: ModelSpec) -> Smo:
            assert spec.targets is not None
            model = SmoModel(spec.targets, spec.loss, spec.C, f"model{number}")
            own = model, space, context.stopping
            if options.is_linear:
                state = LinearState(HeldRows(values, ones), Certificate(), w=np.zeros(d), best=np.zeros(d))
                return LinearSmo(*own, state, rounds, *sizes)
            kernel = in_precision(context.kernels[spec.variant], PRECISION)
            return KernelSmo(
                *own, SmoState(HeldRows(values, ones), Certificate()), rounds, *sizes, kernel=kernel
            )

        return [solver(number, spec) for number, spec in enumerate(models)]


def _rounds(plan: SolverPlan, context: Context) -> list[Round]:
    return cut_rounds(context.blocks, plan.parameters.rounds, LANES)


def _element_bytes(size: DataSize) -> float:
    """Bytes of a nonzero or a row that is held."""
    return COPIES * (4 + size.value_bytes + HELD_ROW_BYTES * size.n_rows / size.elements)


def _items(size: DataSize, options: TrainOptions, room: Room, rounds: int) -> tuple[MemoryItem, ...]:
    """What is needed besides the rows held."""
    vector = 8 * size.dimension
    of_models = vector * size.n_models
    chunk = int(size.n_models * _element_bytes(size) * size.elements / rounds)
    blocks = room.blocks((room.blocks_a_thread + 1) * room.threads)
    rows = MemoryItem("rows of a round", chunk, f"1/{rounds} of the data for {size.n_models} model(s)")
    if not options.is_linear:
        # The longest row is not known before the first read.
        mean = math.ceil(size.n_nonzeros / max(size.n_rows, 1))
        each = gram.buffer_bytes(2 * mean, size.dimension, 8)
        note = f"{{each}} of {gram.BLOCK} rows for each of {room.threads} thread(s)"
        return blocks, rows, MemoryItem("dense rows", room.threads * each, note, each)
    return (
        blocks,
        rows,
        MemoryItem("weights", 8 * of_models, f"8 vectors of {size.dimension} for {size.n_models} model(s)"),
        MemoryItem(
            "sums of a pass", 2 * room.partials * of_models, f"{room.partials} times 2 vectors for each model"
        ),
    )


def _plan(size: DataSize, options: TrainOptions, room: Room, parameters: SmoParameters) -> SolverPlan:
    held = int(size.n_models * parameters.resident_elements * _element_bytes(size))
    share = parameters.resident_elements / size.elements
    note = f"up to {100 * share:.3g} % of the data for each of {size.n_models} model(s)"
    return SolverPlan(
        parameters,
        (*_items(size, options, room, parameters.rounds), MemoryItem("rows in memory", held, note)),
        # Multipliers, scores, those of the best point; with a kernel multipliers of two more points
        row_bytes=(24 if options.is_linear else 40) * size.n_models,
        expected_reads=EXPECTED_READS,
        report={"rounds": parameters.rounds},
    )


SOLVER = SmoPackage()
