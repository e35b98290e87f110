"""Cuts of problems over pairs of rows, taken in the read that finds the scores of their points.

A row's coefficient in the cut of a point is the number of active pairs that it is in, and takes the scores
of all rows. But any choice of pairs makes a valid cut: with ``0 <= y_ij <= 1``,

    m R(v) >= sum_ij y_ij (1 - v.(x_i - x_j))          for every v,

and it is nearly that of the point where nearly the active pairs are chosen. Two choices need no other rows'
scores while the data is read:

* *Bins* (rows that make one group). Rows are summed up by bins of their score, those of each rank apart. All
  pairs of the rows of two bins are chosen, or none, as the mean scores of the bins tell. With bins of the
  width h the cut lies lower than the loss at its point by about a twelfth of h^2 times the density of pairs
  at the margin, and by more where rows are beyond the bins, in the two at the ends.
* *Queries* (groups of rows that follow one another). The pairs of a query are counted where all of it lies in
  one block. Pairs of rows in different blocks are left out.

Either way an exact cut near the best point, one read late, has to come as well: what is left out would else
keep the gap open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.pairs import sweep_loops
from ooc_svm.pairs.request import PairRows
from ooc_svm.passes.base import RowSlice
from ooc_svm.passes.linear import LinearSums
from ooc_svm.passes.rowwise import NoCells, RowCells, RowRule
from ooc_svm.solvers.cutting_plane import bin_loops

# The finest bins, as a share of the margin, and how often the spread of the scores that the bins cover.
FINEST, COVERED = 1 / 16, 8.0

# Rows between these shares tell the spread, as that of a normal distribution: a few may be far out.
MIDDLE, DEVIATIONS = (0.01, 0.99), 4.65

# Queries of more rows are left to the cut that comes late: here they are counted pair by pair.
LONGEST_QUERY = 4096

RowCuts = tuple[Float64Array, Float64Array]
"""Planes, shape (n_features, groups), and offsets, shape (groups,), not divided by m."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known of the next read's scores before it, as the numbers that a solver keeps."""

    spread: float  # Standard deviation of the scores at the last cut, those far out left aside
    # Mean scores at the best point and at the end of its ray
    at_best: float
    at_end: float
    mean_row: Float64Array  # shape (n_features,)

    @classmethod
    def size(cls, n_features: int) -> int:
        """How many numbers these are."""
        return n_features + 3

    @classmethod
    def of(cls, numbers: Float64Array) -> Forecast:
        """From the numbers; all of them are 0 before the first read, and if they are not finite."""
        if not np.isfinite(numbers).all():
            numbers = np.zeros_like(numbers)
        spread, at_best, at_end = numbers[:3].tolist()
        return cls(spread, at_best, at_end, numbers[3:])

    @property
    def numbers(self) -> Float64Array:
        """For the solver to keep."""
        return np.concatenate([[self.spread, self.at_best, self.at_end], self.mean_row])

    def moved(self, step: float, weights: Float64Array) -> Forecast:
        """After the best point has moved by ``step``, with a ray to new weights."""
        at_best = self.at_best + step * (self.at_end - self.at_best)
        return Forecast(self.spread, at_best, float(self.mean_row @ weights), self.mean_row)


@dataclass(frozen=True, slots=True)
class _TrialCuts:
    """What both rules have in common: a rule that they go on from, and places on its ray."""

    known: RowRule
    rows: PairRows
    groups: int
    best: str
    thetas: Float64Array

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.known.reads, *self.rows.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return self.known.writes


@dataclass(frozen=True, slots=True)
class BinnedCuts(_TrialCuts):
    """Row rule: what ``known`` does, and rows in bins of their scores at places on the ray.

    Sums: those of ``known`` (one number), then weights and weighted scores of the slots. The last three are
    those of a `Forecast`.
    """

    n_bins: int
    spread: float
    at_best: float
    at_end: float

    @property
    def width(self) -> int:
        return self.known.width

    @property
    def n_cells(self) -> int:
        return len(self.thetas) * self.rows.n_ranks * self.n_bins * self.groups

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (1 + 2 * self.n_cells,)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> RowCells:
        self.known(rows, scores, coefficients, sums[:1])
        per_unit = 1.0 / min(max(FINEST, COVERED * self.spread / self.n_bins), np.finfo(np.float64).max)
        centers = self.at_best + self.thetas * (self.at_end - self.at_best)
        low = centers - (self.n_bins / 2 - 1) / per_unit
        weights = None if self.rows.weight is None else rows.vectors[self.rows.weight]
        numbers = np.empty((len(self.thetas), len(scores)), np.int32)
        ranks = rows.vectors[self.rows.ranks], self.rows.n_ranks
        points = scores, rows.vectors[self.best], self.thetas
        out = numbers, sums[1:].reshape(-1, 2)
        bin_loops.put(*points, low, per_unit, self.n_bins, *ranks, weights, self.groups, rows.start, *out)
        return RowCells(numbers, None if weights is None else np.tile(weights, (len(numbers), 1)))

    def cuts(self, found: LinearSums) -> list[RowCuts]:
        """The cuts of each place."""
        return [self._cut(*place) for place in self._places(found)]

    def next_forecast(self, found: LinearSums) -> Forecast:
        """What this read tells of the next one: spread at the first place, mean row."""
        sums, table = self._places(found)[0]
        weights, scores = sums[sums[:, :, 0] > 0.0].T
        means = scores / weights
        order = np.argsort(means, kind="stable")
        shares = np.cumsum(weights[order]) / weights.sum()
        least, most = means[order][np.minimum(np.searchsorted(shares, MIDDLE), len(order) - 1)]
        mean_row = table.sum(axis=0) / weights.sum()
        return Forecast(float(most - least) / DEVIATIONS, self.at_best, self.at_end, mean_row)

    def _places(self, found: LinearSums) -> list[tuple[Float64Array, Float64Array]]:
        """For each place the sums, shape (bins, groups, 2), and the rows in each slot."""
        places = len(self.thetas)
        sums = found.sums[0][1:].reshape(places, -1, self.groups, 2)
        return list(zip(sums, found.tables[0].reshape(places, -1, found.tables[0].shape[1]), strict=True))

    def _cut(self, sums: Float64Array, table: Float64Array) -> RowCuts:
        weights, scores = np.ascontiguousarray(sums[:, :, 0]), np.ascontiguousarray(sums[:, :, 1])
        plus, minus = np.zeros((2, *weights.shape))
        bin_loops.count(weights, scores, self.n_bins, plus, minus)
        coefficients = np.repeat(-minus[:, np.newaxis], self.groups, axis=1)
        own = np.arange(self.groups)
        coefficients[:, own, own] += plus
        return table.T @ coefficients.reshape(-1, self.groups), (weights * plus).sum(axis=0)


@dataclass(frozen=True, slots=True)
class QueryCuts(_TrialCuts, NoCells):
    """Row rule: what ``known`` does, and the cuts of the queries in a block at places on the ray.

    Sums: those of ``known`` (one number), then the offsets.
    """

    query_starts: str

    @property
    def width(self) -> int:
        return self.known.width + len(self.thetas) * self.groups

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (1 + len(self.thetas) * self.groups,)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        known, groups = self.known.width, self.groups
        self.known(rows, scores, coefficients[:known], sums[:1])
        best, n_rows = rows.vectors[self.best], len(scores)
        starts = np.flatnonzero(rows.vectors[self.query_starts])
        starts = np.concatenate([[0], starts[starts > 0], [n_rows]])
        weights = None if self.rows.weight is None else rows.vectors[self.rows.weight][starts[:-1]]
        own = (rows.start + np.arange(n_rows)) % groups, np.arange(n_rows)
        for k, theta in enumerate(self.thetas.tolist()):
            plus, minus = np.zeros(n_rows), np.zeros((n_rows, groups))
            point, ranks = best + theta * (scores - best), rows.vectors[self.rows.ranks]
            sweep_loops.count_small(
                point, ranks, starts, weights, LONGEST_QUERY, rows.start, 1.0, plus, minus
            )
            at = coefficients[known + k * groups :][:groups]
            at -= minus.T
            at[own] += plus
            sums[1 + k * groups :][:groups] += np.bincount(own[0], plus, groups)

    def cuts(self, found: LinearSums) -> list[RowCuts]:
        """The cuts of each place."""
        planes = found.vectors[:, self.known.width :, 0].reshape(-1, len(self.thetas), self.groups)
        offsets = found.sums[0][1:].reshape(len(self.thetas), self.groups)
        return [(planes[:, k], offsets[k]) for k in range(len(self.thetas))]
