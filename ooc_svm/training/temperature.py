"""The temperature of the probabilities of several classes, fitted to the scores that solvers have kept.

The maps of the functions give each class its own probability p_k; those of a row become

    p_k^(1/T) / sum_j p_j^(1/T)

With T = 1 that is one-vs-rest divided by the sum, which is too unsure where classes exclude each other. The
loss ``log sum_k exp(x L_k) - x sum_k t_k L_k``, with ``L_k = log p_k``, is convex in ``x = 1 / T``: a softmax
whose temperature is fitted (C. Guo, G. Pleiss, Y. Sun and K. Weinberger, "On calibration of modern neural
networks", 2017). The targets t_k are, like Platt's, those of a rule of succession: of n rows in all,
``(n + 1) / (n + 2)`` for the class of the row, the rest for the other classes alike. So there is an optimum
where the scores tell all classes apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.model.calibration import ScoreMap
from ooc_svm.model.probabilities import log_of_sets
from ooc_svm.passes.base import RowSlice, union
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.targets import CODES
from ooc_svm.training.score_bins import FunctionScores

MOST = 256.0  # The temperature is no more than this, and no less than its inverse
# Newton's method ends with a step of this share of its point, or with a bracket as narrow as that.
SMALL_STEP, NARROW = 1e-9, 1.0 + 1e-9
_SCORES = 1 << 16  # Scores that are looked at together, of all classes
_LEAST_ROWS = 1 << 8  # Rows that are looked at together at least

# Sums of the weights of the rows, of their log-losses, and of the derivatives of what is minimised.
WEIGHT, LOSS, SLOPE, CURVATURE = range(4)
N_SUMS = 4


class Temperature(NamedTuple):
    """T, and the log-loss of the rows that it was fitted to."""

    value: float
    log_loss: float


@dataclass(frozen=True, slots=True, eq=False)
class ClassLosses:
    """Rule on row vectors: sums of the rows with a mark, see `N_SUMS`, shape (4,)."""

    functions: tuple[FunctionScores, ...]  # Of each class, in the order of their numbers
    maps: tuple[ScoreMap, ...]
    target: float  # Of a row for its own class
    mark: int
    inverse: float  # Of the temperature
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (N_SUMS,)

    @property
    def reads(self) -> tuple[str, ...]:
        own = self.functions[0]
        names = CODES, own.marks, *(() if own.row_weight is None else (own.row_weight,))
        return union([names, *(each.kept[self.mark].reads for each in self.functions)])

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        at_once = max(_SCORES // len(self.functions), _LEAST_ROWS)
        n_rows = len(rows.vectors[CODES])
        for first in range(0, n_rows, at_once):
            self._add(rows.part(first, min(first + at_once, n_rows)), sums)

    def _add(self, rows: RowSlice, sums: Float64Array) -> None:
        own, vectors = self.functions[0], rows.vectors
        marked = vectors[own.marks] == self.mark
        weights = np.ones(len(marked)) if own.row_weight is None else vectors[own.row_weight]
        marked &= weights > 0.0
        if not marked.any():
            return
        weights, codes = weights[marked], vectors[CODES][marked].astype(np.int64)
        pairs = zip(self.functions, self.maps, strict=True)
        log = log_of_sets(
            np.column_stack([own.log_odds(each.kept[self.mark].of(vectors)[marked]) for each, own in pairs])
        )
        hit = log[np.arange(len(codes)), codes]
        wanted = self.target * hit + (1.0 - self.target) / (log.shape[1] - 1) * (log.sum(axis=1) - hit)
        scaled = self.inverse * log
        most = scaled.max(axis=1)
        shares = np.exp(scaled - most[:, None])
        totals = shares.sum(axis=1)
        shares /= totals[:, None]
        means = (shares * log).sum(axis=1)
        sums[WEIGHT] += weights.sum()
        sums[LOSS] += weights @ (most + np.log(totals) - self.inverse * hit)
        sums[SLOPE] += weights @ (means - wanted)
        sums[CURVATURE] += weights @ (shares * (log - means[:, None]) ** 2).sum(axis=1)


def fitted_temperature(
    engine: Engine, functions: Sequence[FunctionScores], maps: Sequence[ScoreMap], n_rows: int
) -> Temperature:
    """The temperature of the largest likelihood, by Newton's method with a bracket: no read of the data.

    ``functions``, ``maps``: of each class, in the order of their numbers.
    ``n_rows``: that have such scores.
    """
    low, high, inverse = 1.0 / MOST, MOST, 1.0
    target = (n_rows + 1.0) / (n_rows + 2.0)
    while True:
        sums = np.zeros(N_SUMS)
        for mark in functions[0].kept:
            rule = ClassLosses(tuple(functions), tuple(maps), target, mark, inverse)
            sums += engine.stream([RowPass(rule, functions[0].kept[mark].rows)])[0]
        weight, loss, slope, curvature = sums.tolist()
        low, high = (low, inverse) if slope > 0.0 else (inverse, high)
        following = inverse - slope / curvature if curvature > 0.0 else 0.0
        if slope == 0.0 or abs(following - inverse) <= SMALL_STEP * inverse or high <= low * NARROW:
            return Temperature(1.0 / inverse, loss / weight)
        inverse = following if low < following < high else math.sqrt(low * high)
