"""Linear problems as the dual solvers see them: one box and one conjugate a row.

    P(w, b) = 1/2 |w|^2 + sum_i loss_i(t_i - w.x_i - b)
    D(v)    = sum_i (t_i v_i - eps |v_i| - damping_i v_i^2 / 2) - 1/2 |sum_i v_i x_i|^2
    low_i <= v_i <= high_i

with C_i = C times the weight of the row and of its class, y_i a class's sign and z_i a value:

| problem, loss | t | eps | low, high | damping |
|---|---|---|---|---|
| svc, hinge: C_i max(0, 1 - y s) | y | 0 | 0, C_i for y = 1; -C_i, 0 for y = -1 | 0 |
| svc, squared hinge: C_i max(0, 1 - y s)^2 | y | 0 | as above, without the end C_i | 1 / (2 C_i) |
| svr, epsilon-insensitive: C_i max(0, abs(z - s) - eps) | z | eps | -C_i, C_i | 0 |
| svr, its square | z | eps | none | 1 / (2 C_i) |

v_i is ``y_i alpha_i`` of the usual notation, or the difference of the two multipliers of a regression's row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.losses import loops
from ooc_svm.passes.base import Extent, RowSlice
from ooc_svm.passes.rowwise import NoSlots, RowPass
from ooc_svm.solvers.cutting_plane.row_oracle import Targets
from ooc_svm.solvers.space import LinearSpace

SQUARED_LOSSES = ("squared-hinge", "squared-epsilon-insensitive")


class RowTargets(Protocol):
    """What the rows are to be mapped to, and what their losses weigh."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors."""

    def values(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The target and the weight of each row."""


@dataclass(frozen=True, slots=True)
class ClassTargets:
    """+1 or -1 by the class of a row."""

    targets: Targets

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors."""
        return self.targets.reads

    def values(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The sign and the weight of each row."""
        codes, sign, class_weight, row_weight = self.targets.of(rows)
        weight = class_weight[codes]
        return sign[codes], weight if row_weight is None else weight * row_weight


@dataclass(frozen=True, slots=True)
class ValueTargets:
    """The row's own value.

    Parameters
    ----------
    name : str
        Row vector of the values (float64).
    row_weight : str or None
        Row vector of row weights (float64).
    """

    name: str
    row_weight: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors."""
        return (self.name,) if self.row_weight is None else (self.name, self.row_weight)

    def values(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The value and the weight of each row."""
        t = rows.vectors[self.name]
        return t, np.ones(len(t)) if self.row_weight is None else rows.vectors[self.row_weight]


@dataclass(frozen=True, slots=True)
class DualProblem:
    """One problem for a dual solver.

    Parameters
    ----------
    targets : RowTargets
    C : float
    space : LinearSpace
    two_sided : bool
        Whether a row's loss grows on both sides of its target (regression).
    squared : bool
    epsilon : float
        Half width of the tube that costs nothing.
    free_bias : bool
        Whether b is free of penalty; ``space.penalized_bias`` says whether there is one with a penalty.
    name : str
        Prefix of this problem's row vectors.
    """

    targets: RowTargets
    C: float
    space: LinearSpace
    two_sided: bool = False
    squared: bool = False
    epsilon: float = 0.0
    free_bias: bool = False
    name: str = "model"

    @property
    def metric(self) -> Float64Array | None:
        """Squares of the columns' scales; None without scaling."""
        return self.space.metric

    def boxes(self, rows: RowSlice) -> Float64Array:
        """Target, low, high and damping of each row, shape (rows, 4)."""
        t, weight = self.targets.values(rows)
        cost = self.C * weight
        box = np.empty((len(t), 4))
        loops.boxes(t, cost, self.two_sided, self.squared, box)
        return box

    def values_along(
        self, best: str, newest: str, points: Float64Array, rows: Extent | None = None
    ) -> RowPass:
        """Sums of losses at points of the segment between two score vectors; no data is read.

        ``points`` has shape (k, 2): t and b, the scores being ``best + t (newest - best) + b``.
        """
        return RowPass(LossAlong(self, best, newest, points), rows)

    def move(self, best: str, newest: str, t: float, rows: Extent | None = None) -> RowPass:
        """Set the best scores to ``best + t (newest - best)``; no data is read."""
        return RowPass(MoveScores(best, newest, t), rows)

    def count_losses(self, best: str, b: float, rows: Extent | None = None) -> RowPass:
        """Number of rows with a loss; no data is read."""
        return RowPass(LossRows(self, best, b), rows)


@dataclass(frozen=True, slots=True)
class LossAlong(NoSlots):
    """Row rule: sums of losses at the points (t, b) of a segment of scores."""

    problem: DualProblem
    best: str
    newest: str
    points: Float64Array
    writes: ClassVar[tuple[str, ...]] = ()
    width: ClassVar[int] = 0

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.best, self.newest, *self.problem.targets.reads)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (len(self.points),)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        best, newest = rows.vectors[self.best], rows.vectors[self.newest]
        loops.along(best, newest, self.problem.boxes(rows), self.problem.epsilon, self.points, sums)


@dataclass(frozen=True, slots=True)
class MoveScores(NoSlots):
    """Row rule: the best scores move towards the newest ones."""

    best: str
    newest: str
    t: float
    width: ClassVar[int] = 0
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.best, self.newest)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.best,)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        best, newest = rows.vectors[self.best], rows.vectors[self.newest]
        best += self.t * (newest - best)


@dataclass(frozen=True, slots=True)
class LossRows(NoSlots):
    """Row rule: number of rows with a loss at the best scores."""

    problem: DualProblem
    best: str
    b: float
    writes: ClassVar[tuple[str, ...]] = ()
    width: ClassVar[int] = 0
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.best, *self.problem.targets.reads)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        box = self.problem.boxes(rows)
        sums[0] += loops.count(rows.vectors[self.best], self.b, box, self.problem.epsilon)


def row_vectors(problem: DualProblem) -> dict[str, npt.DTypeLike]:
    """Row vectors that the streamed solver works on, with types."""
    kinds = ("dual", "step", "newest", "best")
    return {f"{problem.name}/{kind}": np.float64 for kind in kinds}


def names(problem: DualProblem) -> Any:
    """The names of those row vectors, in the order above."""
    return tuple(row_vectors(problem))
