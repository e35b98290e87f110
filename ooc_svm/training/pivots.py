"""Some of the rows of a sample, chosen by their kernel values: the landmarks.

With F the pivoted Cholesky decomposition of the kernel matrix K of the sample, as far as it is known,
``K - F F'`` is the kernel of what no function of the rows chosen so far can tell of the others. Its diagonal
is how far each row is from these functions, squared.

The first rows are drawn in proportion to it: those far from all others are not forgotten, and no two alike
are chosen (Chen, Epperly, Tropp and Webber, Randomly pivoted Cholesky, Communications on Pure and Applied
Mathematics 2025). The others are those that most is gained from, once a model of the first ones is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array, RowBlock
from ooc_svm.data.landmarks import LEAST_EIGENVALUE, Landmarks, kernel_values
from ooc_svm.ops import gram
from ooc_svm.ops.squares import squares_of
from ooc_svm.passes.gather import take_rows

ROUNDS = 32  # In which all rows are chosen, about as many in each: more choose hardly better
# Distances below this share of all at the beginning are rounding: what is left is told by the rows chosen.
LEAST = 1e-10
# Of a row's own kernel value: what is gained from rows nearer to the others is little, and of rounding.
LEAST_DISTANCE = 1e-3


class Pivots:
    """The rows chosen so far, and how far the others are from their functions.

    Parameters
    ----------
    kernel : NamedTuple
        See `ooc_svm.ops.kernels`.
    rows : RowBlock
        The sample.
    n_features : int
        Of the data.
    scale2 : ndarray of shape (n_features,), optional
        Squares of the columns' scales.
    count : int
        How many rows will be chosen; all of them if there are no more.
    """

    def __init__(
        self, kernel: Any, rows: RowBlock, n_features: int, scale2: Float64Array | None, count: int
    ) -> None:
        n = rows.n_rows
        self.kernel, self.rows, self.n_features, self.scale2 = kernel, rows, n_features, scale2
        self.count = min(count, n)
        self.squares = squares_of(*rows.arrays, scale2)
        self._is_chosen: BoolArray = np.full(n, self.count == n)
        self._own = np.empty(n)
        gram.own_values(kernel, self.squares, np.empty(n), self._own)
        self._left, self._least = self._own.copy(), LEAST * max(self._own.sum(), 0.0)
        self._F, self._known = np.empty((n, self.count if self.missing else 0)), 0

    @property
    def chosen(self) -> Int64Array:
        """Places of the rows chosen so far, ascending."""
        return np.flatnonzero(self._is_chosen)

    @property
    def missing(self) -> int:
        """How many are still to be chosen."""
        return self.count - int(np.count_nonzero(self._is_chosen))

    def landmarks(self) -> Landmarks:
        """The rows chosen so far, with their features; when none is missing, the decomposition is let go."""
        rows = take_rows(self.rows, self.chosen)
        if not self.missing:
            self._F = np.empty((0, 0))
        return Landmarks.of(self.kernel, rows, self.n_features, self.scale2)

    def draw(self, most: int, random: np.random.Generator) -> None:
        """Choose up to so many rows more in proportion to their distances.

        Where the rows chosen tell all of the others already, the rest are any.
        """
        end = max(self.missing - most, 0)
        while (missing := self.missing - end) > 0:
            weights = np.where(self._is_chosen, 0.0, np.maximum(self._left, 0.0))
            total = weights.sum()
            # Kernel values that overflow, too, are refused where the landmarks are known.
            if not self._least < total < np.inf:
                weights = np.where(self._is_chosen, 0.0, 1.0)
                total = weights.sum()
            shares = weights / total
            size = min(missing, self._round, int(np.count_nonzero(shares)))
            self._add(random.choice(self.rows.n_rows, size, replace=False, p=shares))

    def take_best(self, scores: Float64Array) -> None:
        """Choose rows that most is gained from, until none is missing or none is worth it.

        A model of the rows chosen so far has multipliers v of all rows; its function is what these rows tell
        of ``g(x) = sum_i v_i k(x_i, x)``. With r the rest of g, minus ``r(x)`` is the derivative of P along
        ``k(x, .)``. What no chosen row tells of that function has the squared norm that is left of x, so P
        may fall by ``r(x)^2 / (2 left(x))``, and by no more at the best v, as losses are convex (after
        Keerthi, Chapelle and DeCoste, Building Support Vector Machines with Reduced Classifier Complexity,
        JMLR 2006).

        Parameters
        ----------
        scores : ndarray of shape (n_models, n_rows)
            g for the rows of the sample and several models, in units in which their gains are alike.
        """
        # What a function is at the rows chosen, through the roots: as much of it as they tell.
        basis = self._F[self.chosen, : self._known]
        told = np.linalg.lstsq(basis, scores[:, self.chosen].T, rcond=LEAST_EIGENVALUE**0.5)[0]
        residuals = scores - (self._F[:, : self._known] @ told).T
        far = self._own * LEAST_DISTANCE
        while self.missing:
            worth = (self._left > far) & ~self._is_chosen
            gains = np.where(worth, (residuals**2).sum(axis=0) / np.where(worth, self._left, 1.0), 0.0)
            best = np.argsort(-gains, kind="stable")[: min(self.missing, self._round)]
            best = best[gains[best] > 0.0]
            if not len(best):
                return
            added, root = self._add(best)
            residuals -= (residuals[:, best] @ root) @ added.T

    @property
    def _round(self) -> int:
        return max(self.count // ROUNDS, 1)

    def _add(self, new: Int64Array) -> tuple[Float64Array, Float64Array]:
        """Choose some rows; returns the new columns of F, and the matrix that made them of kernel values."""
        self._is_chosen[new] = True
        values = kernel_values(
            *(self.kernel, self.rows, self.squares, take_rows(self.rows, new), self.squares[new]),
            *(self.n_features, self.scale2),
        )
        known = self._F[:, : self._known]
        with np.errstate(over="ignore", invalid="ignore"):
            values -= known @ known[new].T
            root = _inverse_root(values[new])
            added = values @ root
            self._left -= (added * added).sum(axis=1)
        self._F[:, self._known : self._known + added.shape[1]] = added
        self._known += added.shape[1]
        return added, root


def _inverse_root(matrix: Float64Array) -> Float64Array:
    """R with ``R R'`` the inverse of a symmetric matrix, as far as that is not made of rounding."""
    if not np.isfinite(matrix).all():
        return np.empty((len(matrix), 0))
    eigenvalues, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    kept = eigenvalues > LEAST * max(float(eigenvalues[-1]), 0.0)
    found: Float64Array = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return found
