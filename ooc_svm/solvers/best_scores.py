"""Sums over the losses at the scores of a model's best point, which a row vector has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ooc_svm.data.blocks import Float64Array
from ooc_svm.losses.row_loops import count_losses, slope_sizes
from ooc_svm.passes.base import RowSlice
from ooc_svm.problems.targets import RowTargets

LOSS = 3  # Place of the losses among the sums of `SlopeSizes`


class ScoredModel(Protocol):
    """A model that keeps the scores of its best point."""

    @property
    def loss(self) -> Any:
        """See `ooc_svm.losses.functions`."""

    @property
    def targets(self) -> RowTargets:
        """Targets and weights of the rows."""

    @property
    def best(self) -> str:
        """Row vector of the scores at the best point."""

    def target_costs(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        """The target and the cost of each row."""


@dataclass(frozen=True, slots=True)
class _AtBest:
    """What the rules have in common."""

    model: ScoredModel
    b: float  # Added to the scores
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.best, *self.model.targets.reads)


@dataclass(frozen=True, slots=True)
class SlopeSizes(_AtBest):
    """Rule on row vectors: the losses at the best scores, and sizes of their slopes, see `slope_sizes`."""

    error: float  # Largest error of a residual
    factor: float = 1.0  # Of the scores
    sums_shape: ClassVar[tuple[int, ...]] = (4,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        best = rows.vectors[self.model.best]
        best = best if self.factor == 1.0 else self.factor * best
        slope_sizes(self.model.loss, best, self.b, self.error, *self.model.target_costs(rows), sums)


@dataclass(frozen=True, slots=True)
class LossCount(_AtBest):
    """Rule on row vectors: number of rows with a loss at the best scores."""

    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        best = rows.vectors[self.model.best]
        sums[0] += count_losses(self.model.loss, best, self.b, *self.model.target_costs(rows))
