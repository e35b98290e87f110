"""The loss over pairs of rows along a ray, nearly: rows are summed up by fine bins of their scores.

All rows of a bin count as if they had its mean score: that is never more than the loss, and less by about a
twelfth of the square of a bin's width times the density of pairs at the margin. An evaluation costs a
few operations a row, without a sort.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.pairs.request import PairRows
from ooc_svm.passes.base import Request, RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.cutting_plane import bin_loops
from ooc_svm.solvers.cutting_plane.ray import Evaluate

# Bins of each rank, and the standard deviations of the scores on either side that they cover at first.
N_BINS, REACH = 8192, 16.0

# The rows between these shares are to be in so many bins at least, or in bins as fine as this (a unit is the
# margin). If not, as where a few rows are far out, bins are cut again around them, so many times at most.
MIDDLE, FEWEST, FINE, MOST_ZOOMS = (0.01, 0.99), N_BINS // 32, 1024.0, 12

ROUNDING = 1e-14  # What is left of a variance after rounding, as a share of the mean square

# More ranks take too long, two by two; a search that has to come closer counts the pairs of rows.
MOST_RANKS, FINEST_SEARCH = 16, 1e-6


@dataclass(frozen=True, slots=True)
class _OnRay:
    """What both rules have in common: the row vectors of a ray, of which they change none."""

    rows: PairRows
    best: str
    end: str
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.best, self.end, *self.rows.reads)

    def scores(self, rows: RowSlice) -> tuple[Float64Array, Float64Array]:
        return rows.vectors[self.best], rows.vectors[self.end]

    def weights(self, rows: RowSlice) -> Float64Array | None:
        return None if self.rows.weight is None else rows.vectors[self.rows.weight]


@dataclass(frozen=True, slots=True)
class RayMoments(_OnRay):
    """Rule on row vectors: first and second moments of the scores on a ray."""

    sums_shape: ClassVar[tuple[int, ...]] = (6,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        bin_loops.moments(*self.scores(rows), self.weights(rows), sums)


@dataclass(frozen=True, slots=True)
class RayBins(_OnRay):
    """Rule on row vectors: rows in bins of their scores at one point of a ray."""

    t: float
    low: float
    per_unit: float

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (self.rows.n_ranks * N_BINS, 3)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        ranks = rows.vectors[self.rows.ranks]
        place = self.t, self.low, self.per_unit
        bin_loops.put_on_ray(*self.scores(rows), *place, N_BINS, ranks, self.weights(rows), sums)


def can_search(rows: PairRows, precision: float) -> bool:
    """Whether bins will do for such rows and a search so precise."""
    return rows.query_starts is None and rows.n_ranks <= MOST_RANKS and precision >= FINEST_SEARCH


def evaluate_by_bins(rows: PairRows, best: str, end: str, total: float) -> Generator[Request, Any, Evaluate]:
    """How to evaluate the loss along one ray, after one pass over its scores.

    ``best``, ``end``: row vectors of the scores at t = 0 and at t = 1.
    ``total``: sum of the pairs' weights, by which the loss is divided.
    """
    moments: Float64Array = yield RowPass(RayMoments(rows, best, end))
    s, d, ss, sd, dd = (moments[1:] / moments[0]).tolist()

    def evaluate(t: float) -> Generator[Request, Any, tuple[float, float]]:
        mean = s + t * d
        variance = ss - s * s + t * (2.0 * (sd - s * d) + t * (dd - d * d))
        spread = math.sqrt(max(variance, ROUNDING * (ss + t * (2.0 * sd + t * dd)), 0.0))
        low, high = mean - REACH * spread, mean + REACH * spread
        for _ in range(MOST_ZOOMS):
            per_unit = (N_BINS - 2) / (high - low) if high > low else FINE
            sums: Float64Array = yield RowPass(RayBins(rows, best, end, t, low, per_unit))
            weights = sums[:, 0].reshape(-1, N_BINS).sum(axis=0)
            first, last = np.searchsorted(np.cumsum(weights), np.multiply(MIDDLE, weights.sum())).tolist()
            if per_unit >= FINE or last - first >= FEWEST:
                break
            # The first bin ends at `low`.
            ends = low + (first - 1) / per_unit, low + last / per_unit
            low, high = 2.0 * ends[0] - ends[1], 2.0 * ends[1] - ends[0]
        loss, slope = bin_loops.loss(sums, N_BINS)
        return loss / total, slope / total

    return evaluate
