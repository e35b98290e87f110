"""Rows whose kernel values tell most of those of others: a randomly pivoted Cholesky decomposition.

With F the part of it that is known, ``K - F F'`` is the kernel of what no function of the rows chosen so far
can tell of the others. Its diagonal is how far each row is from these functions, squared, and the next rows
are drawn in proportion to it: rows far from all others are not forgotten, and no two alike are chosen. (Chen,
Epperly, Tropp and Webber, Randomly pivoted Cholesky, Communications on Pure and Applied Mathematics 2025.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.data.landmarks import kernel_values
from ooc_svm.ops import gram
from ooc_svm.ops.squares import squares_of
from ooc_svm.passes.gather import take_rows

ROUNDS = 16  # In which the rows are drawn, about as many in each: more choose hardly better
# Distances below this share of all at the beginning are rounding: what is left is told by the rows chosen.
LEAST = 1e-10


def choose_pivots(
    kernel: Any,
    rows: RowBlock,
    n_features: int,
    scale2: Float64Array | None,
    count: int,
    random: np.random.Generator,
) -> Int64Array:
    """Places of so many rows, ascending; of all of them if there are no more.

    Where the rows chosen tell all of the others already, the rest are any.

    Parameters
    ----------
    kernel : NamedTuple
        See `ooc_svm.ops.kernels`.
    rows : RowBlock
    n_features : int
        Of the data.
    scale2 : ndarray of shape (n_features,), optional
        Squares of the columns' scales.
    count : int
    random : Generator
    """
    if rows.n_rows <= count:
        return np.arange(rows.n_rows)
    squares, own = squares_of(*rows.arrays, scale2), np.empty(rows.n_rows)
    gram.own_values(kernel, squares, np.empty(rows.n_rows), own)
    F, known = np.empty((rows.n_rows, count)), 0
    left, least = own.copy(), LEAST * own.sum()
    chosen = np.zeros(rows.n_rows, dtype=np.bool_)
    while (missing := count - int(chosen.sum())) > 0:
        weights = np.where(chosen, 0.0, np.maximum(left, 0.0))
        total = weights.sum()
        # Kernel values that overflow, too, are refused where the landmarks are known.
        if not least < total < np.inf:
            weights = np.where(chosen, 0.0, 1.0)
            total = weights.sum()
        shares = weights / total
        size = min(missing, max(count // ROUNDS, 1), int(np.count_nonzero(shares)))
        new = random.choice(rows.n_rows, size, replace=False, p=shares)
        chosen[new] = True
        values = kernel_values(kernel, rows, squares, take_rows(rows, new), squares[new], n_features, scale2)
        with np.errstate(over="ignore", invalid="ignore"):
            values -= F[:, :known] @ F[new, :known].T
            added = values @ _inverse_root(values[new])
            left -= (added * added).sum(axis=1)
        F[:, known : known + added.shape[1]] = added
        known += added.shape[1]
    return np.flatnonzero(chosen)


def _inverse_root(matrix: Float64Array) -> Float64Array:
    """R with ``R R'`` the inverse of a symmetric matrix, as far as that is not made of rounding."""
    if not np.isfinite(matrix).all():
        return np.empty((len(matrix), 0))
    eigenvalues, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    kept = eigenvalues > LEAST * max(float(eigenvalues[-1]), 0.0)
    found: Float64Array = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return found
