"""Rows that are fewer than their columns, with as many columns as there are rows.

What a solve needs of rows is their products with each other alone. With the Cholesky factor L of their Gram
matrix,

    K = X S^2 X' = L L',

the rows of L have the same products as those of X. So they are solved in place of these: of 1,000 dense rows
with 20,000 columns each has 1,000 columns, and on average half of them. Where they begin follows from the
scores ``X w``, where w ends from what the multipliers have moved by.

Rounding may leave K less than positive definite: L is that of ``K + ridge diag(K)``, as little as will do.
Where rows have so much in common that it hides what most of them have of their own, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, Values
from ooc_svm.ops.rows import spread_rows, unsigned
from ooc_svm.solvers.streamed_smo.newton_loops import forward_substitution

# Shares of their squares that rows have more: at first times the number of rows, then by a factor. A row of
# zeros has no square.
EPS, FIRMER, TINY = 2.0**-52, 100.0, 1e-300
# What most rows have of their own, itself included, is at least so many times the ridge.
LEAST_OWN = 3.0

# Elements that are dense at a time while products are found
PIECE_ELEMENTS = 1 << 19


def factor_bytes(n_rows: int) -> int:
    """Bytes of a factor, with what finds it."""
    # Products and pieces of rows that these are found from; then two squares, and half of one whose elements
    # have 12 bytes and are found by their rows and columns. A system of a step has three more.
    square = 8 * n_rows * n_rows
    return square + max(8 * PIECE_ELEMENTS, 3 * square)


@dataclass(frozen=True, slots=True)
class GramFactor:
    """The rows of L, a triangular CSR matrix."""

    indptr: Int64Array
    indices: Values
    values: Float64Array
    products: Float64Array  # Of the rows with each other, shape (m, m)

    @property
    def matrix(self) -> tuple[Values, Values, Float64Array]:
        """The CSR arrays as compiled functions take them."""
        return unsigned(self.indptr), self.indices, self.values

    def vector(self, scores: Float64Array) -> Float64Array:
        """The vector that all rows have these products with."""
        vector = np.empty(len(scores))
        forward_substitution(*self.matrix, scores, vector)
        return vector


def factor_rows(
    matrix: tuple[Values, Values, Values | None], n_columns: int, scale2: Float64Array | None
) -> GramFactor | None:
    """The factor of some rows, columns being scaled; None where rounding hides what they are.

    Columns ascend in each row.
    """
    gram = _products(matrix, n_columns, scale2)
    m, squares, ridge = len(gram), np.diagonal(gram).copy(), EPS * len(gram)
    while ridge < 1.0 and np.isfinite(gram).all():
        gram.flat[:: m + 1] = np.maximum(squares * (1.0 + ridge), TINY)
        try:
            lower = np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            ridge *= FIRMER
            continue
        own = np.diagonal(lower) ** 2  # What rows have beside those before them
        if np.median(own - LEAST_OWN * ridge * squares) < 0.0:
            return None
        rows, columns = np.tril_indices(m)
        indptr = np.arange(m + 1) * np.arange(1, m + 2) // 2
        values: Float64Array = np.asarray(lower[rows, columns], np.float64)
        return GramFactor(indptr, columns.astype(np.uint32), values, gram)
    return None


def _products(
    matrix: tuple[Values, Values, Values | None], n_columns: int, scale2: Float64Array | None
) -> Float64Array:
    """Products of all rows with each other, shape (m, m).

    Columns are dense some at a time.
    """
    indptr, indices, values = matrix
    begin, m = indptr[:-1].copy(), len(indptr) - 1
    products, width = np.zeros((m, m)), max(PIECE_ELEMENTS // max(m, 1), 1)
    for first in range(0, n_columns, width):
        last = min(first + width, n_columns)
        dense = np.zeros((m, last - first))
        spread_rows(indices, values, begin, indptr[1:], first, last, dense)
        if scale2 is not None:
            dense *= np.sqrt(scale2[first:last])
        products += dense @ dense.T
    return products
