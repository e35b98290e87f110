"""What the solvers of the augmented Lagrangian need, and the solvers themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.alm.penalty import first_ratio
from ooc_svm.solvers.alm.rules import RowModel
from ooc_svm.solvers.alm.solver import NEWTON_STEPS, QUASI_NEWTON_STEPS, Alm
from ooc_svm.solvers.alm.state import AlmState
from ooc_svm.solvers.alm.values import N_GROUPS
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

# Parameters up to which a Gram matrix is worth its time, and nonzeros of a row: a read takes as many
# operations for each element as a row has of them. Of longer rows, operations of a read that take no time.
MOST_PARAMETERS, MOST_IN_A_ROW, FEW_OPERATIONS = 3000, 300, 2e9
KEPT_PLANES = 60  # Cuts of a model
VECTORS = 40  # Of the dimension, of a model: points, past steps, and the conjugate gradient method
ROW_VECTORS = 5


@dataclass(frozen=True, slots=True)
class AlmParameters:
    """Parameters of the algorithm: whether there is a Gram matrix (1) or not (0)."""

    gram: int


@dataclass(frozen=True, slots=True)
class AlmPackage(SolverPackage):
    """The solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    inexact: bool
    reads: int
    product_reads: int

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        if kept is not None:
            if kept.get("gram") not in ((0,) if self.inexact else (0, 1)):
                raise ValueError(f"no run on these data has {dict(kept)}")
            return self._plan(size, options, room, int(kept["gram"]))
        row = size.n_nonzeros / max(size.n_rows, 1)
        is_quick = row <= MOST_IN_A_ROW or row * size.n_nonzeros <= FEW_OPERATIONS
        if not self.inexact and size.dimension <= MOST_PARAMETERS and is_quick:
            found = self._plan(size, options, room, 1)
            if sum(item.nbytes for item in found.items) <= room.nbytes:
                return found
        return self._plan(size, options, room, 0)

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        return self._plan(size, options, NO_ROOM, int(not self.inexact))

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """The same: the client has the matrix as well."""
        return self._plan(size, options, room, whole.parameters.gram)

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        return asdict(min(own.parameters, worker.parameters, key=lambda found: found.gram))

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        return [self._solver(spec, f"model{k}", plan.parameters, context) for k, spec in enumerate(models)]

    def _solver(self, spec: ModelSpec, name: str, parameters: AlmParameters, context: Context) -> Solver:
        assert spec.targets is not None
        space = replace(context.space, n_free=context.options.n_free)
        by_products = not (self.inexact or parameters.gram)
        state = AlmState.fresh(
            space.dimension, space.n_free, KEPT_PLANES, first_ratio(spec.C), diagonal=not parameters.gram
        )
        model = RowModel(spec.targets, spec.loss, spec.C, name)
        return Alm(model, space, context.stopping, state, self.inexact, by_products)

    def _plan(self, size: DataSize, options: TrainOptions, room: Room, gram: int) -> SolverPlan:
        d = size.dimension + options.n_free
        models, vector = f"{size.n_models} model(s)", 8 * d * size.n_models
        steps = len(QUASI_NEWTON_STEPS if self.inexact else NEWTON_STEPS)
        sums = room.partials * (N_GROUPS * steps + 2) * vector
        items = [
            room.blocks((room.blocks_a_thread + 1) * room.threads),
            MemoryItem("weights", VECTORS * vector, f"{VECTORS} vectors of {d} for {models}"),
            MemoryItem("sums of a pass", sums, f"{room.partials} times {steps} step(s)"),
            MemoryItem("planes", KEPT_PLANES * vector, f"{KEPT_PLANES} of {{each}} a model", 8 * d),
        ]
        if gram:
            # The matrix, its copy in the linear system, and those of the segments.
            count = room.partials + 4
            nbytes = count * 8 * (d + 1) ** 2 * size.n_models
            items.append(MemoryItem("Gram matrix", nbytes, f"{count} times {{each}}", 8 * (d + 1) ** 2))
        elif not self.inexact:
            note = "no Gram matrix: too wide, or no room; a read for each product (inexact-alm takes fewer)"
            items.append(MemoryItem("conjugate gradients", 4 * vector, note))
        return SolverPlan(
            AlmParameters(gram),
            tuple(items),
            row_bytes=8 * ROW_VECTORS * size.n_models,
            expected_reads=self.reads if gram or self.inexact else self.product_reads,
            report={"gram": bool(gram)},
        )


EXACT = AlmPackage(inexact=False, reads=15, product_reads=60)
INEXACT = AlmPackage(inexact=True, reads=30, product_reads=30)
