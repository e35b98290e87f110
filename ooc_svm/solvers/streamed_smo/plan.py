"""What streamed SMO needs: the share of the data that its working set holds, and the solvers themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ooc_svm.options import TrainOptions
from ooc_svm.passes.base import RowSet
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import NO_ROOM, Context, DataSize, MemoryItem, Room, Solver, SolverPlan
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.effort import Effort, effort_for
from ooc_svm.solvers.streamed_smo.rounds import Round, cut_rounds, opening
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.warm_start import SmoWarmStarting
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

# Shares of the data that may be held in memory; larger ones take more time than they save, and of little data
# the first ones do too.
SHARES = (
    *(0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.015, 0.01),
    *(0.007, 0.005, 0.003, 0.002, 0.001, 1e-4, 1e-5, 1e-6),
)
LITTLE_DATA, MOST_OF_LITTLE = 20_000_000, 0.1
# Nonzeros and rows together that are all held, if there are no more: that saves reads. But they may take no
# more than this part of what resident rows could.
FEW_ELEMENTS, FEW_PART = 1 << 16, 0.25

# Rows of mean length that are held at least, even by a smaller share: with one or none the bound of a free
# bias would stay at 0, and with fewer than there are free rows each read undoes a part of what the one before
# it has gained. But no more than `FEW_ELEMENTS` for the second.
LEAST_ROWS, USEFUL_ROWS = 8, 1024

# Part of the memory left that resident rows may take: they save more than row vectors and blocks in memory.
RESIDENT_PART = 0.95

# Bytes of a resident row besides its nonzeros: of the row as a candidate, of the copy while the two are put
# together, and of the row when it has left.
RESIDENT_ROW_BYTES = 352

EXPECTED_READS = 5  # Reads to a gap of 1e-3


@dataclass(frozen=True, slots=True)
class SmoParameters:
    """Parameters of the algorithm."""

    capacity: int  # Nonzeros and rows together that a model holds in memory


@dataclass(frozen=True, slots=True)
class StreamedSmoPackage(SmoWarmStarting):
    """The solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        """As many resident rows as are worth it and fit, before row vectors and blocks in memory."""
        # The share is a parameter of the algorithm: where memory lets it, it does not follow from threads.
        lanes = effort_for(size.n_nonzeros, 1.0, options.lanes).lanes
        left = min(_left(size, options, room, threads) for threads in (lanes, room.threads))
        if kept is not None:
            capacity = kept.get("capacity", 0)
            if capacity < 1:
                raise ValueError(f"no run on these data has a working set of {capacity}")
        elif options.resident is not None:
            row = size.elements / max(size.n_rows, 1)
            least = math.ceil(max(LEAST_ROWS * row, min(USEFUL_ROWS * row, FEW_ELEMENTS)))
            capacity = min(max(math.ceil(options.resident * size.elements), least), size.elements)
        else:
            capacity = _best_capacity(size, RESIDENT_PART * max(left, 0))
        return _plan(size, options, room, capacity)

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        """So few rows are resident that some come and some leave."""
        return _plan(size, options, NO_ROOM, size.n_nonzeros // 4)

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """The lanes are those of all the data; candidates are in the worker before they are sent."""
        options = replace(options, lanes=whole.report["lanes"])
        return _plan(size, options, room, whole.parameters.capacity, whole.report["resident"])

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        """No more rows are resident than the smallest worker can offer."""
        return asdict(min(own.parameters, worker.parameters, key=lambda found: found.capacity))

    def rounds(self, plan: SolverPlan, context: Context) -> Sequence[RowSet]:
        return [each.rows for each in _rounds(plan, context)]

    def opening(self, plan: SolverPlan, context: Context) -> tuple[int, ...]:
        """The first blocks of each lane."""
        return opening(_rounds(plan, context))

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        """A solver with a working set of its own for each model."""
        rounds, size, options = _rounds(plan, context), context.size, context.options
        ones = context.value_type == "ones"
        values = np.empty(0, np.float32 if ones else context.value_type)
        effort = _effort(size, options, plan.parameters.capacity)
        solvers: list[Solver] = []
        for number, spec in enumerate(models):
            assert spec.targets is not None
            free = options.resolved_bias == "free"
            model = DualModel(spec.targets, spec.loss, spec.C, context.space, free, f"model{number}")
            working_set = WorkingSet(plan.parameters.capacity, values, ones)
            state = SmoState.fresh(context.space.n_features, len(rounds), working_set)
            solvers.append(
                StreamedSmo(model, context.stopping, state, rounds, size.n_nonzeros, effort, options.seed)
            )
        return solvers


def _effort(size: DataSize, options: TrainOptions, capacity: int) -> Effort:
    return effort_for(size.n_nonzeros, min(1.0, capacity / size.elements), options.lanes)


def _rounds(plan: SolverPlan, context: Context) -> list[Round]:
    effort = _effort(context.size, context.options, plan.parameters.capacity)
    return cut_rounds(context.blocks, effort.rounds, effort.lanes)


def _plan(
    size: DataSize, options: TrainOptions, room: Room, capacity: int, resident: float | None = None
) -> SolverPlan:
    """The plan for so many resident nonzeros and rows; ``resident``: their share of all rows, if more."""
    share = capacity / size.elements
    note = f"{100 * share:.3g} % of the data for each of {size.n_models} model(s)"
    rows = MemoryItem("resident rows", _rows_nbytes(size, capacity, resident), note)
    effort = _effort(size, options, capacity)
    return SolverPlan(
        SmoParameters(capacity),
        (*_items(size, options, room, room.threads), rows),
        row_bytes=32 * size.n_models,
        expected_reads=EXPECTED_READS,
        report={"resident": min(1.0, share), "rounds": effort.rounds, "lanes": effort.lanes},
        cut=(effort.rounds, effort.lanes),
    )


def _best_capacity(size: DataSize, nbytes: float) -> int:
    """The largest of the shares worth holding that fits."""
    most = MOST_OF_LITTLE if size.n_nonzeros < LITTLE_DATA else 1.0
    capacities = [math.ceil(share * size.elements) for share in SHARES if share <= most]
    fitting = (capacity for capacity in capacities if _rows_nbytes(size, capacity) <= nbytes)
    capacity = next(fitting, capacities[-1])
    few = min(size.elements, FEW_ELEMENTS)
    return max(capacity, few) if _rows_nbytes(size, few) <= FEW_PART * nbytes else capacity


def _rows_nbytes(size: DataSize, capacity: int, resident: float | None = None) -> int:
    """Bytes of the resident rows, and of the candidates that a round brings on top of them."""
    share = min(1.0, capacity / size.elements)
    # Of several models, those of two rounds wait for their turn.
    rounds = 1 if size.n_models == 1 else 2
    offered = rounds * effort_for(size.n_nonzeros, share if resident is None else resident).offered
    element = (1 + offered) * (4 + size.value_bytes)
    row = RESIDENT_ROW_BYTES * size.n_rows / size.elements
    return int(share * size.elements * size.n_models * (element + row))


def _items(size: DataSize, options: TrainOptions, room: Room, threads: int) -> tuple[MemoryItem, ...]:
    """What is needed besides the resident rows."""
    lanes = effort_for(size.n_nonzeros, 1.0, options.lanes).lanes
    # No more threads have blocks than there are lanes, but where columns are measured first.
    blocks = (room.blocks_a_thread + 1) * min(threads, lanes)
    if options.scale != "none":
        blocks = max(blocks, room.blocks_a_thread * threads)
    # Lanes being swept, and those that wait for a neighbour to be merged with.
    alive = min(lanes, threads + 3)
    vector = 8 * size.dimension * size.n_models
    # With a free bias there is a mean row.
    n_vectors = 10 if options.resolved_bias == "free" else 9
    note = f"{n_vectors} vectors of {size.dimension} for {size.n_models} model(s)"
    return (
        room.blocks(blocks),
        MemoryItem("weights", n_vectors * vector, note),
        MemoryItem("lanes", 2 * alive * vector, f"2 vectors for each of {alive}"),
    )


def _left(size: DataSize, options: TrainOptions, room: Room, threads: int) -> int:
    return room.nbytes - sum(item.nbytes for item in _items(size, options, room, threads))


SOLVER = StreamedSmoPackage()
