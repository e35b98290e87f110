"""What cutting planes of a kernel model need, and the solvers themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ooc_svm.errors import UsageError, parameter
from ooc_svm.ops import gram
from ooc_svm.ops.kernels import in_precision
from ooc_svm.options import TrainOptions
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
from ooc_svm.solvers.cutting_plane.free_oracle import FreeCutOracle
from ooc_svm.solvers.definite import is_definite
from ooc_svm.solvers.kernel_cutting_plane.cut_rules import SidedLosses
from ooc_svm.solvers.kernel_cutting_plane.master import CutMatrix
from ooc_svm.solvers.kernel_cutting_plane.solver import CHECKED, KernelCutState, KernelCuttingPlane
from ooc_svm.solvers.space import LinearSpace

MAX_CUTS = 128  # Cuts kept: each takes two row vectors
POINTS = 3  # Row vectors of the best point and of the best bound; those that are checked have their own
MOST_PARTS = 64  # Parts that the rows of a cut come to memory in, each with two reads
SUPPORT_PART, COPIES = 0.8, 2.5  # Part of the memory left for these rows, and copies while they are joined
EXPECTED_READS = 200  # Iterations to a gap of 1e-3


@dataclass(frozen=True, slots=True)
class KernelCutParameters:
    """Parameters of the algorithm."""

    max_cuts: int
    parts: int


@dataclass(frozen=True, slots=True)
class KernelCuttingPlanes(SolverPackage):
    """The solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        """As few parts as memory allows."""
        if kept is not None:
            found = KernelCutParameters(kept.get("max_cuts", 0), kept.get("parts", 0))
            if found.max_cuts != MAX_CUTS or not 1 <= found.parts <= MOST_PARTS:
                raise ValueError(f"no run on these data has {found}")
            return _plan(size, room, found)
        left = SUPPORT_PART * (room.nbytes - sum(item.nbytes for item in _items(size, room)))
        parts = math.ceil(_rows_nbytes(size) / left) if left > 0 else MOST_PARTS
        return _plan(size, room, KernelCutParameters(MAX_CUTS, min(max(parts, 1), MOST_PARTS)))

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        return _plan(size, NO_ROOM, KernelCutParameters(4, 2))

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """A worker has what a pass brings of all rows."""
        return _plan(size, room, whole.parameters)

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        return asdict(max(own.parameters, worker.parameters, key=lambda found: found.parts))

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        options, size, space = context.options, context.size, context.space
        if options.sparse_cuts and options.by_nu:
            raise UsageError(
                f"{parameter('sparse_cuts')} is not for problem {options.problem!r}: nu is the weight of "
                "each of its cuts; leave it out"
            )
        if not all(map(is_definite, context.kernels)):
            raise UsageError(
                f"the kernel {options.kernel!r} with these numbers is not positive semi-definite on all "
                f"data, and then cuts are no bounds; take another one, or {parameter('solver', 'smo')}"
            )

        def solver(spec: ModelSpec, name: str) -> KernelCuttingPlane:
            assert spec.targets is not None
            kernel = in_precision(context.kernels[spec.variant], PRECISION)
            losses, free = SidedLosses(spec.targets, spec.loss, name), LinearSpace(0, n_free=options.n_free)
            oracle = FreeCutOracle(losses, spec.C, free, nu=spec.nu, mean=spec.mean)
            state = KernelCutState(CutMatrix(plan.parameters.max_cuts))
            place = kernel, space.n_features, space.scale2, context.stopping, state, name, size.n_rows
            parts = plan.parameters.parts, _checked_parts(size, plan.parameters.parts)
            return KernelCuttingPlane(oracle, *place, *parts, options.sparse_cuts)

        return [solver(spec, f"model{number}") for number, spec in enumerate(models)]


def _rows_nbytes(size: DataSize, cuts: int = 1) -> float:
    """Bytes of all rows in memory, for so many cuts of each model."""
    one = COPIES * (size.n_nonzeros * (4 + size.value_bytes) + 24.0 * size.n_rows)
    # The entries of a cut are there as they are gathered, joined, and as coefficients.
    return size.n_models * (one + 24.0 * (cuts - 1) * size.n_rows)


def _checked_parts(size: DataSize, parts: int) -> int:
    """Parts of the rows of several cuts that take no more memory than ``parts`` of the rows of one."""
    return math.ceil(parts * _rows_nbytes(size, CHECKED) / _rows_nbytes(size)) if size.n_rows else parts


def _items(size: DataSize, room: Room) -> tuple[MemoryItem, ...]:
    """What is needed apart from the rows of a cut."""
    # The longest row is not known before the first read.
    mean = math.ceil(size.n_nonzeros / max(size.n_rows, 1))
    each = gram.buffer_bytes(2 * mean, size.dimension, 8)
    note = f"{{each}} of {gram.BLOCK} rows for each of {room.threads} thread(s)"
    return (
        room.blocks((room.blocks_a_thread + 1) * room.threads),
        MemoryItem("dense rows", room.threads * each, note, each),
    )


def _plan(size: DataSize, room: Room, parameters: KernelCutParameters) -> SolverPlan:
    rows = int(_rows_nbytes(size) / parameters.parts)
    note = f"1/{parameters.parts} of the data for {size.n_models} model(s)"
    return SolverPlan(
        parameters,
        (*_items(size, room), MemoryItem("rows of a cut", rows, note)),
        row_bytes=(16 * parameters.max_cuts + 8 * (POINTS + CHECKED)) * size.n_models,
        expected_reads=EXPECTED_READS,
        report={"max_cuts": parameters.max_cuts, "parts": parameters.parts},
    )


SOLVER = KernelCuttingPlanes()
