"""What block SMO needs: how many rows a working set has, and the solvers themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ooc_svm.ops import gram
from ooc_svm.ops.kernels import for_rows
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import (
    NO_ROOM,
    Context,
    DataSize,
    MemoryItem,
    PointStarting,
    Room,
    Solver,
    SolverPlan,
    Start,
)
from ooc_svm.solvers.block_smo.backlog import Backlog
from ooc_svm.solvers.block_smo.solver import BACKLOG, PARTS, BlockSmo
from ooc_svm.solvers.block_smo.start import set_start
from ooc_svm.solvers.block_smo.state import BlockSmoState
from ooc_svm.solvers.block_smo.update import KernelModel
from ooc_svm.solvers.block_smo.working_set import WorkingSet

SIZES = (2048, 1024, 512, 256, 128)  # Rows of a working set: the most that fit
TINY_SIZE = 16
SET_PART = 0.5  # Of the room, what working sets may take at most
SUPPORT_PART = 0.5  # Of what is left, what support vectors may take
LEAST_SUPPORT = 1 << 22  # Bytes that the sum of a refusal has for them, if there may be as many
ROW_BYTES = 72  # Of a row of a working set or of candidates, besides its values
# Of a row and model: multipliers, scores and their errors, of the moment and of the best point; whether it is
# set aside
VECTOR_BYTES = 7 * 8
EXPECTED_READS = 30


@dataclass(frozen=True, slots=True)
class BlockSmoParameters:
    """Parameters of the algorithm."""

    rows: int  # Of a working set


@dataclass(frozen=True, slots=True)
class BlockSmoPackage(PointStarting):
    """The solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        if kept is not None:
            rows = kept.get("rows", 0)
            if rows < 1:
                raise ValueError(f"no run has a working set of {rows} rows")
            return _plan(size, room, rows)
        sizes = [min(rows, max(size.n_rows, 2)) for rows in SIZES]
        fitting = (rows for rows in sizes if _set_bytes(size, room, rows) <= SET_PART * room.nbytes)
        return _plan(size, room, next(fitting, sizes[-1]))

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        """So few rows that some come and some leave."""
        return _plan(size, NO_ROOM, TINY_SIZE)

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """A worker has the rows of a set that moved, and offers others."""
        return _plan(size, room, whole.parameters.rows)

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        """The rows of a set fit the client and the smallest worker."""
        return asdict(min(own.parameters, worker.parameters, key=lambda found: found.rows))

    def begin_with(self, solver: Any, vectors: Any, start: Start) -> None:
        set_start(solver, vectors, start)

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        size, ones = context.size, context.value_type == "ones"
        values = np.empty(0, np.float32 if ones else context.value_type)
        support = next(item.nbytes for item in plan.items if item.name == SUPPORT)

        def solver(spec: ModelSpec, name: str) -> BlockSmo:
            assert spec.targets is not None
            space = context.space
            kernel = for_rows(
                context.kernels[spec.variant],
                size.n_nonzeros,
                size.n_rows * space.n_features,
                context.value_type,
                space.scale2 is not None,
            )
            model = KernelModel(
                *(spec.targets, spec.loss, spec.C, kernel, space.n_features, space.scale2, name),
                ones=ones and space.scale2 is None,
            )
            return BlockSmo(
                model,
                context.options.resolved_bias,
                context.stopping,
                BlockSmoState(WorkingSet(values, ones=ones), Backlog(values, ones=ones)),
                size=plan.parameters.rows,
                n_rows=size.n_rows,
                support_bytes=support,
                row_bytes=_row_bytes(size),
                nonzeros_a_row=size.n_nonzeros // max(size.n_rows, 1),
                seed=context.options.seed % 2**16,
                only_begins=context.options.landmarks is not None and not context.options.polish,
            )

        return [solver(spec, f"model{number}") for number, spec in enumerate(models)]


SUPPORT = "support vectors"


def _row_bytes(size: DataSize) -> float:
    """Bytes of a row in memory, on the average."""
    return 8.0 + (4 + size.value_bytes) * size.n_nonzeros / max(size.n_rows, 1)


def _set_bytes(size: DataSize, room: Room, rows: int) -> int:
    """Bytes of the working sets, their kernel values, and the candidates of all passes."""
    row = ROW_BYTES + _row_bytes(size)
    # The rows that moved, now and earlier, and those that a model's passes offer.
    copies = 3 + 2 * BACKLOG + room.partials * PARTS
    return int(size.n_models * rows * row * copies) + 8 * rows * rows


def _plan(size: DataSize, room: Room, rows: int) -> SolverPlan:
    # The longest row is not known before the first read.
    mean = -(-size.n_nonzeros // max(size.n_rows, 1))
    buffer = gram.buffer_bytes(4 * mean, size.dimension, 8)
    sets = MemoryItem(
        "working sets", _set_bytes(size, room, rows), f"{rows} rows for {size.n_models} model(s)"
    )
    buffers = MemoryItem("scattered rows", room.threads * buffer, f"{room.threads} of {{each}}", buffer)
    blocks = room.blocks(room.blocks_a_thread * room.threads)
    left = room.nbytes - sets.nbytes - buffers.nbytes - blocks.nbytes
    wanted = int(2 * size.n_rows * _row_bytes(size))
    # As far as there is room: sets and checkpoints that fit without it do.
    least = min(LEAST_SUPPORT, left) if left > 0 else LEAST_SUPPORT
    nbytes = min(wanted, max(int(SUPPORT_PART * left), least))
    support = MemoryItem(SUPPORT, nbytes, "the most that there may be")
    return SolverPlan(
        BlockSmoParameters(rows),
        (blocks, sets, buffers, support),
        row_bytes=VECTOR_BYTES * size.n_models,
        expected_reads=EXPECTED_READS,
        report={"working_set": rows},
    )


SOLVER = BlockSmoPackage()
