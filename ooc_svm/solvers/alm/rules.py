"""What the passes of the augmented Lagrangian do with the rows of one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.losses.row_loops import losses_along, slope_sizes
from ooc_svm.passes.base import RowSlice
from ooc_svm.passes.rowwise import NoCells
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.alm import trial_loops


@dataclass(frozen=True, slots=True)
class RowModel:
    """The losses of one model, and its row vectors, all of float64."""

    targets: RowTargets
    loss: Any  # See `ooc_svm.losses.functions`
    C: float
    name: str

    @property
    def scores(self) -> str:
        """Row vector of scores, the bias included, at the point before the last step."""
        return f"{self.name}/scores"

    @property
    def direction(self) -> str:
        """Row vector of the products with the direction of the last step."""
        return f"{self.name}/direction"

    @property
    def reference(self) -> str:
        """Row vector of the multipliers of the last update."""
        return f"{self.name}/reference"

    @property
    def best(self) -> str:
        """Row vector of scores at the best point."""
        return f"{self.name}/best"

    @property
    def slopes(self) -> str:
        """Row vector of the slopes of the multipliers, which weight the rows in the curvature."""
        return f"{self.name}/slopes"

    def target_costs(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The target and the cost of each row."""
        t, weight = self.targets.values(rows.vectors)
        return t, self.C * weight


@dataclass(frozen=True, slots=True)
class Pending:
    """What has been decided since the last read, and is done to the row vectors in the next one."""

    step: float  # Along the last direction
    renews: bool  # Whether the multipliers of the new point become the reference
    ratio: float  # Of the penalty to the costs, before it was changed


@dataclass(frozen=True, slots=True)
class Trials(NoCells):
    """Row rule: the scores are products with a new direction; sums at some steps along it.

    Sums: see `trial_loops`. The weighted sums of rows are those of the multipliers above and below 0 at each
    step, and if wanted that of the slopes; the slopes are those of the first.
    """

    model: RowModel
    pending: Pending
    ratio: float
    thetas: Float64Array
    sums_slopes: bool

    @property
    def width(self) -> int:
        return 2 * len(self.thetas) + self.sums_slopes

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (len(self.thetas), trial_loops.N_SUMS)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.model.targets.reads

    @property
    def writes(self) -> tuple[str, ...]:
        model = self.model
        return model.scores, model.direction, model.reference, model.slopes

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        model, vectors = self.model, rows.vectors
        own, direction, reference = (
            vectors[name] for name in (model.scores, model.direction, model.reference)
        )
        targets, costs = model.target_costs(rows)
        own += self.pending.step * direction
        if self.pending.renews:
            trial_loops.update(model.loss, own, targets, costs, self.pending.ratio, reference)
        direction[:] = scores
        trial_loops.trials(
            model.loss, own, direction, reference, targets, costs, self.ratio, self.thetas, sums,
            coefficients, vectors[model.slopes],
        )  # fmt: skip
        if self.sums_slopes:
            coefficients[-1] = vectors[model.slopes]


@dataclass(frozen=True, slots=True)
class SlopeProducts(NoCells):
    """Row rule: each row's product with a vector, times its slope; the product of the curvature with it.

    The slopes are those of the multipliers at the newest point. Sums: of these numbers.
    """

    model: RowModel
    pending: Pending
    ratio: float
    width: ClassVar[int] = 1
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        model = self.model
        return model.scores, model.direction, model.reference, *model.targets.reads

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        model, vectors, pending = self.model, rows.vectors, self.pending
        newest = vectors[model.scores] + pending.step * vectors[model.direction]
        before = pending.ratio if pending.renews else 0.0
        trial_loops.slopes(
            model.loss, newest, vectors[model.reference], *model.target_costs(rows), before, self.ratio,
            coefficients[0],
        )  # fmt: skip
        coefficients[0] *= scores
        sums[0] += coefficients[0].sum()


@dataclass(frozen=True, slots=True)
class LossesAgain(NoCells):
    """Row rule: losses at the scores and the sizes of their slopes, and how far the kept scores are off.

    ``error``: of the scores. Sums (5,): those of `slope_sizes`, and the differences of the scores.
    """

    model: RowModel
    error: float
    width: ClassVar[int] = 0
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (5,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.best, *self.model.targets.reads)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        slope_sizes(self.model.loss, scores, 0.0, self.error, *self.model.target_costs(rows), sums[:4])
        sums[4] += float(np.abs(rows.vectors[self.model.best] - scores).sum())


@dataclass(frozen=True, slots=True)
class LossesToNewest:
    """Rule on row vectors: losses at points (t, b) from the best scores to the newest ones."""

    model: RowModel
    step: float  # Of the newest scores along the last direction
    points: Float64Array  # shape (k, 2)
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        model = self.model
        return model.best, model.scores, model.direction, *model.targets.reads

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (len(self.points),)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        model, vectors = self.model, rows.vectors
        newest = vectors[model.scores] + self.step * vectors[model.direction]
        losses_along(model.loss, vectors[model.best], newest, *model.target_costs(rows), self.points, sums)


@dataclass(frozen=True, slots=True)
class MoveBest:
    """Rule on row vectors: the best scores move towards the newest ones, and by a change of the bias."""

    model: RowModel
    step: float
    t: float
    bias: float
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.scores, self.model.direction)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.best,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        model, vectors = self.model, rows.vectors
        best = vectors[model.best]
        best += self.t * (vectors[model.scores] + self.step * vectors[model.direction] - best) + self.bias
