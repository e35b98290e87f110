"""The pairwise hinge loss: ordinal regression, ROC area and ranking.

    R(w) = 1/m sum over pairs max(0, 1 - (s_i - s_j))          P(w) = 1/2 |w|^2 + C R(w)

over the m pairs (i, j) of rows of which i has the higher rank, inside their group where rows have groups
(Joachims 2006, OP4; where pairs have weights, R is their weighted mean). A row's coefficient in the cut,
c+_i - c-_i, counts the active pairs in which it is the higher and the lower one (Algorithm 2), and that takes
the scores of all rows. So a cut cannot be made in the read that finds the scores of its point; in the read
after it, coefficients known, it comes along with the scores of the next point.

With cut groups the pairs are divided by the number of their higher row, and each group has a slack of its
own.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.passes import LinearPass, LinearSums, PairPass, PairRows, PairSlope, Request, RowSlice
from ooc_svm.problems.cuts import Cuts
from ooc_svm.problems.linear import LinearSpace
from ooc_svm.problems.segment import descend
from ooc_svm.rows import Float64Array

# Where cuts are taken: from the best point (0) on towards the end of the ray it lies on (1). The first is
# that of the algorithm; the best point itself besides saves a fifth of the reads, more places nothing.
PLACES = {1: (0.1,), 2: (0.0, 0.1)}


@dataclass(frozen=True, slots=True)
class Pairs:
    """All pairs of the data: the rows they are made of, and the sum of their weights, m."""

    rows: PairRows
    total: float


@dataclass(frozen=True, slots=True)
class CountedCut:
    """Row rule: cuts whose coefficients are known; the best point moves, the scores are kept.

    The first ``at_best`` of the coefficients are those of the best point; the derivative of the loss from
    there towards the new scores is summed up.
    """

    coefficients: tuple[str, ...]
    best: str
    previous: str
    step: float
    at_best: int
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.best, self.previous, *self.coefficients)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.best, self.previous)

    @property
    def width(self) -> int:
        return len(self.coefficients)

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> None:
        for own, name in zip(coefficients, self.coefficients, strict=True):
            own[:] = rows.vectors[name]
        best, previous = rows.vectors[self.best], rows.vectors[self.previous]
        if self.step:
            best += self.step * (previous - best)
        if self.at_best:
            sums[0] -= (coefficients[: self.at_best].sum(axis=0) * (scores - best)).sum()
        previous[:] = scores


@dataclass(frozen=True, slots=True)
class PairProblem:
    """What the cutting-plane solvers need to know of a problem over pairs.

    Parameters
    ----------
    pairs : Pairs
    C : float
    space : LinearSpace
        Without a bias, which would cancel in every pair.
    groups : int
        Cut groups; 1 is the paper's problem.
    name : str
        Prefix of this problem's row vectors.
    precision : float
        Of the line search: how close the objective has to come to its minimum, as a share.
    """

    pairs: Pairs
    C: float
    space: LinearSpace
    groups: int = 1
    name: str = "model"
    precision: float = 1e-9

    @property
    def row_vectors(self) -> dict[str, npt.DTypeLike]:
        """Row vectors that this works on, with types: scores at the best and at the last point."""
        return {f"{self.name}/best": np.float64, f"{self.name}/previous": np.float64}

    def coefficients(self, point: int) -> tuple[str, ...]:
        """Names of the row vectors of coefficients at one of the points, one for each cut group."""
        return tuple(f"{self.name}/cut{point}/group{group}" for group in range(self.groups))

    def all_coefficients(self, points: int) -> tuple[str, ...]:
        """The same of the first so many points."""
        return tuple(name for point in range(points) for name in self.coefficients(point))

    def places(self, t: float, points: int) -> Float64Array:
        """Where the next cuts are taken, from the best point (0) towards the end of its ray (1)."""
        return np.array(PLACES[points])

    def cut(self, w: Float64Array) -> Generator[Request, Any, tuple[float, int, Cuts]]:
        """One read of the data: the loss at w, rows with a loss, and cuts at the point of the last read."""
        read = yield from self.read(w, 0.0, np.ones(1))
        _, previous = self.row_vectors
        found: PairSlope = yield PairPass(self.pairs.rows, previous, previous, 0.0)
        return found.loss / self.pairs.total, found.n_rows, read[0][0]

    def read(
        self, w: Float64Array, step: float, thetas: Float64Array
    ) -> Generator[Request, Any, tuple[list[Cuts], tuple[float, float] | None]]:
        """One read of the data: scores of w, cuts on the ray of the last read, and how the next ray begins.

        The best point moves by ``step`` towards the point of the last read, and the cuts are taken at
        ``best + theta (previous - best)``. Where the first of them is the best point itself, R(0) and its
        derivative on the ray from there to w are given too.
        """
        best, previous = self.row_vectors
        offsets: list[Float64Array] = []
        at_best, loss = thetas[0] == 0.0, 0.0
        for point, theta in enumerate(thetas.tolist()):
            t = step + theta * (1.0 - step)
            request = PairPass(self.pairs.rows, best, previous, t, self.coefficients(point))
            found: PairSlope = yield request
            offsets.append(found.offsets / self.pairs.total)
            if point == 0:
                loss = found.loss / self.pairs.total
        names = self.all_coefficients(len(thetas))
        weights, _ = self.space.to_data(w)
        rule = CountedCut(names, best, previous, step, self.groups if at_best else 0)
        result: LinearSums = yield LinearPass(weights[:, None], np.zeros(1), (rule,))
        sums = result.vectors[:, :, 0] / self.pairs.total
        of_groups = [slice(k * self.groups, (k + 1) * self.groups) for k in range(len(thetas))]
        planes = [self.space.from_data(sums[:, own], np.zeros(self.groups)) for own in of_groups]
        cuts = [Cuts(*cut) for cut in zip(planes, offsets, strict=True)]
        return cuts, (loss, float(result.sums[0][0]) / self.pairs.total) if at_best else None

    def line_search(
        self, start: tuple[float, float] | None, slope: float, curvature: float
    ) -> Generator[Request, Any, tuple[float, float]]:
        """Minimise ``slope t + curvature t^2 / 2 + C R(t)`` over t >= 0; row vectors only, no data read.

        Returns
        -------
        t, R(t) : float
        """
        best, previous = self.row_vectors

        def at(t: float) -> Generator[Request, Any, tuple[float, float]]:
            found: PairSlope = yield PairPass(self.pairs.rows, best, previous, t)
            return found.loss / self.pairs.total, found.slope / self.pairs.total

        if start is None:
            start = yield from at(0.0)
        return (yield from descend(at, start, slope, curvature, self.C, self.precision))

    def count_support(self, step: float) -> Generator[Request, Any, int]:
        """Number of rows with a loss at the best point, moved by ``step``; row vectors only, no data read."""
        best, previous = self.row_vectors
        found: PairSlope = yield PairPass(self.pairs.rows, best, previous, step)
        return found.n_rows
