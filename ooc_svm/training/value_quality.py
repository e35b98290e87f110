"""How well a model of values predicts rows, from scores that its solver has kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.passes.base import Request, RowSet, RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.targets import TARGET
from ooc_svm.solvers.base import KeptScores
from ooc_svm.training.counted_rows import ROWS_HELD_OUT, RowChoice


@dataclass(frozen=True, slots=True)
class TargetSum:
    """Rule on row vectors: sum of the values less an origin, number of rows."""

    origin: float
    rows: RowChoice
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (2,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.rows.reads(TARGET)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        values = self.rows.of(rows.vectors)[TARGET]
        sums += (values - self.origin).sum(), len(values)


@dataclass(frozen=True, slots=True)
class ValueErrors:
    """Rule on row vectors: sums of squared errors, of errors, of squared deviations from the mean value."""

    scores: KeptScores
    mean: float
    rows: RowChoice
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (3,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.rows.reads(TARGET, [self.scores])

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        vectors = self.rows.of(rows.vectors)
        values = vectors[TARGET]
        errors, deviations = np.abs(values - self.scores.of(vectors)), values - self.mean
        sums += (errors * errors).sum(), errors.sum(), (deviations * deviations).sum()


class Values(NamedTuple):
    """The values of rows that count."""

    rows: RowChoice
    mean: float
    n_rows: float

    @classmethod
    def of(cls, engine: Engine, row_set: RowSet | None, rows: RowChoice) -> Values:
        """Those of the chosen rows.

        A second sum takes the rounding of the first from the mean: equal values then deviate by nothing.
        """
        mean = n_rows = 0.0
        for _ in range(2):
            total, n_rows = engine.stream([RowPass(TargetSum(mean, rows), row_set)])[0].tolist()
            mean += total / n_rows
        return cls(rows, mean, n_rows)

    def errors(self, scores: KeptScores) -> RowPass:
        """The pass that compares them with scores."""
        return RowPass(ValueErrors(scores, self.mean, self.rows), scores.rows)

    def measures(self, sums: Float64Array) -> dict[str, float]:
        """The metrics, from the sums of `ValueErrors`; r2 of equal values is 0 unless they are all met."""
        squares, errors, deviations = sums.tolist()
        share = (1.0 if squares else 0.0) if deviations == 0.0 else squares / deviations
        return {"r2": 1.0 - share, "mae": errors / self.n_rows, "mse": squares / self.n_rows}

    def deviation(self, sums: Float64Array) -> float:
        """Their standard deviation, from the sums of `ValueErrors`."""
        return math.sqrt(float(sums[2]) / self.n_rows)


@dataclass(frozen=True, slots=True)
class ValueMetrics:
    """Coefficient of determination and mean squared error of the rows held out."""

    values_held_out: Values

    @classmethod
    def of(cls, engine: Engine, row_set: RowSet | None) -> ValueMetrics:
        """Those of the rows held out."""
        return cls(Values.of(engine, row_set, ROWS_HELD_OUT))

    def requests(self, scores: Sequence[KeptScores]) -> list[Request]:
        """What is asked of the row vectors."""
        return [self.values_held_out.errors(scores[0])]

    def values(self, answers: Sequence[Any]) -> dict[str, float]:
        """The metrics from the answers."""
        found = self.values_held_out.measures(answers[0])
        return {"r2": found["r2"], "mse": found["mse"]}
