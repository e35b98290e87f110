"""One model as the dual solver sees it: targets, costs, a loss, and its row vectors.

    P(w, b) = 1/2 |w|^2 + sum_i l_i(t_i - w.x_i - b)
    D(v)    = sum_i (t_i v_i - l*_i(v_i)) - 1/2 |sum_i v_i x_i|^2

`ooc_svm.losses.functions` has the terms. v_i is ``y_i alpha_i`` of the usual notation, or the difference of
the two multipliers of a regression's row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.losses.quadratic import QUADRATIC
from ooc_svm.losses.row_loops import count_losses, losses_along
from ooc_svm.passes.base import RowSlice
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.streamed_smo.dual_loops import ELEMENTS, ROWS, put_inside


@dataclass(frozen=True, slots=True)
class DualModel:
    """One model for a dual solver."""

    targets: RowTargets
    loss: Any  # See `ooc_svm.losses.functions`
    C: float
    space: LinearSpace
    # Whether b is free of penalty; ``space.penalized_bias`` says whether there is one with a penalty
    free_bias: bool = False
    name: str = "model"  # Prefix of this model's row vectors
    center: float = 0.0  # Taken from every target: the bias of a regression without features

    @property
    def has_end(self) -> bool:
        """Whether a row beyond its target has no loss; rows with values always have such scores."""
        beyond, one = np.full(1, 2.0), np.ones(1)
        return not self.targets.in_margins or int(count_losses(self.loss, beyond, 0.0, one, one)) == 0

    @property
    def unbounded(self) -> bool:
        """Whether the multiplier of a row with a class may have any size; never of one with a value."""
        return self.targets.in_margins and not self.has_limits

    @property
    def has_limits(self) -> bool:
        """Whether a multiplier has a largest size."""
        largest = np.full(1, np.inf)
        put_inside(self.loss, largest, np.ones((1, 2)))
        return bool(np.isfinite(largest[0]))

    @property
    def is_parabola(self) -> bool:
        """Whether D is a parabola along the steps of a lane, so that it is known for each share of them."""
        return type(self.loss) in QUADRATIC

    @property
    def dual(self) -> str:
        """Row vector of multipliers as they were before the last round of the row."""
        return f"{self.name}/dual"

    @property
    def step(self) -> str:
        """Row vector of what that round wanted to add."""
        return f"{self.name}/step"

    @property
    def newest(self) -> str:
        """Row vector of the scores at the reference of the last read."""
        return f"{self.name}/newest"

    @property
    def best(self) -> str:
        """Row vector of the scores at the best point."""
        return f"{self.name}/best"

    @property
    def row_vectors(self) -> tuple[str, ...]:
        """Names of the row vectors that the solver works on, all of float64."""
        return self.dual, self.step, self.newest, self.best

    def target_costs(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The target, its center taken off, and the cost of each row."""
        t, weight = self.targets.values(rows.vectors)
        return (t - self.center if self.center else t), self.C * weight

    def targets_and_costs(self, rows: RowSlice) -> Float64Array:
        """Target and cost of each row as compiled loops take them, shape (m, 2)."""
        return np.column_stack(self.target_costs(rows))


@dataclass(frozen=True, slots=True)
class LossesAlong:
    """Rule on row vectors: sums of losses at points (t, b), at scores ``best + t (end - best) + b``."""

    model: DualModel
    end: str
    points: Float64Array  # shape (k, 2)
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.best, self.end, *self.model.targets.reads)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (len(self.points),)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        best, end = rows.vectors[self.model.best], rows.vectors[self.end]
        losses_along(self.model.loss, best, end, *self.model.target_costs(rows), self.points, sums)


@dataclass(frozen=True, slots=True)
class MoveBest:
    """Rule on row vectors: the best scores move towards the newest ones."""

    model: DualModel
    t: float
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.best, self.model.newest)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.best,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        best = rows.vectors[self.model.best]
        best += self.t * (rows.vectors[self.model.newest] - best)


@dataclass(frozen=True, slots=True)
class StretchBest:
    """Rule on row vectors: the best scores are multiplied."""

    model: DualModel
    factor: float
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.best,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.best,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        best = rows.vectors[self.model.best]
        best *= self.factor


@dataclass(frozen=True, slots=True)
class TargetSums:
    """Rule on row vectors: sums of the costs c, of ``c t`` and ``c |t|``, and how many c are not 0."""

    model: DualModel
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (4,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.model.targets.reads

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        t, c = self.model.target_costs(rows)
        with np.errstate(over="ignore"):  # the certificate reports it
            sums += [c.sum(), c @ t, c @ np.abs(t), np.count_nonzero(c)]


@dataclass(frozen=True, slots=True)
class ClassCosts:
    """Rule on row vectors: sums of the costs of the positive class, and of the negative one."""

    model: DualModel
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (2,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.model.targets.reads

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        t, c = self.model.target_costs(rows)
        sums += [c[t > 0.0].sum(), c[t < 0.0].sum()]


def looked_at(sums: Float64Array) -> int:
    """Nonzeros and rows that were looked at, by the sums of `dual_loops`."""
    return int(sums[ELEMENTS] + sums[ROWS])
