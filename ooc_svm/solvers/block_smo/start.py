"""How block SMO begins where a linear solver ended that had features of some rows, the landmarks.

That solver has found two points of the true kernel's problem: a function of the kernel values with the
landmarks, whose P is an upper bound, and multipliers of all rows, whose D is a lower one. Neither follows
from the other, as they do for a point of block SMO: coefficients of landmarks have no bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, row_slices
from ooc_svm.passes.base import RowSlice
from ooc_svm.solvers.base import Start, write_entries
from ooc_svm.solvers.block_smo import set_loops
from ooc_svm.solvers.block_smo.update import UNKNOWN, KernelModel, OfModel


@dataclass(frozen=True, slots=True)
class BestPoint(KernelModel):
    """The best point in place of the one of the moment."""

    @classmethod
    def of(cls, model: KernelModel) -> Self:
        """That of a model."""
        return cls(**{name: getattr(model, name) for name in KernelModel.__dataclass_fields__})

    @property
    def v(self) -> str:
        return self.best_v

    @property
    def h(self) -> str:
        return self.best_h

    @property
    def error(self) -> str:
        return self.best_error


@dataclass(frozen=True, slots=True)
class IntoBounds(OfModel):
    """Rule on row vectors: multipliers beyond their bounds, as rounding leaves them, are put there.

    ``shares``: what is left of the positive ones and of the negative ones.
    """

    shares: tuple[float, float] = (1.0, 1.0)
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.model.v,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        v, _, t, costs = self.model.rows(rows)
        boxes = np.empty((4, len(v)))
        set_loops.fill_boxes(self.model.loss, t, costs, boxes)
        v *= np.where(v > 0.0, *self.shares)
        np.clip(v, boxes[0], boxes[1], out=v)


@dataclass(frozen=True, slots=True)
class Shrink:
    """Rule on row vectors: multipliers and scores, and their errors, become a share of what they are."""

    model: KernelModel
    share: float
    error: float  # What that adds to the errors
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.model.v, self.model.h, self.model.error

    @property
    def writes(self) -> tuple[str, ...]:
        return self.reads

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        for name in self.writes:
            rows.vectors[name][:] *= self.share
        rows.vectors[self.model.error][:] += self.error


@dataclass(frozen=True, slots=True, eq=False)
class SupportScores(OfModel):
    """Rule on row vectors: the scores of rows with a multiplier are known, after `SupportPass`."""

    numbers: Int64Array  # Of the rows with a multiplier
    mirrored: Float64Array  # What their scores still lack
    errors: Float64Array  # What they are off by then
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.model.h, self.model.error

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        here = slice(*np.searchsorted(self.numbers, (rows.start, rows.stop)))
        own = self.numbers[here] - rows.start
        rows.vectors[self.model.h][own] += self.mirrored[here]
        rows.vectors[self.model.error][own] = self.errors[here]


@dataclass(frozen=True, slots=True)
class UnknownScores(OfModel):
    """Rule on row vectors: the scores of rows without a multiplier are off by anything."""

    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.model.error,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        rows.vectors[self.model.error][rows.vectors[self.model.v] == 0.0] = UNKNOWN


def balanced(model: KernelModel, sums: Float64Array) -> IntoBounds:
    """The rule that makes multipliers sum up to 0, by a smaller share of the heavier side."""
    positive = float(sums[set_loops.POSITIVE])
    negative = float(sums[set_loops.ABS_V]) - positive
    lighter = min(positive, negative)
    shares = [lighter / side if side > 0.0 else 1.0 for side in (positive, negative)]
    return IntoBounds(model, (shares[0], shares[1]))


def set_start(solver: Any, vectors: Any, start: Start) -> None:
    """Give a fresh solver the points to begin with; ``vectors``: the row vectors of its engine."""
    model = solver.model
    for first, last in row_slices(solver.n_rows):
        vectors[model.v].write(first, start.multipliers.read(first, last))
    write_entries(vectors[model.best_v], start.numbers, start.coefficients)
    solver.state.best_bias, solver.state.begins = start.bias, len(start.numbers)
