"""Kernel values of CSR rows with a set of rows, and their weighted sums, without a stored kernel matrix.

`BLOCK` rows of the set at a time are scattered into a dense ``Z[column, row]``, which has the columns that
these rows have and a first one of zeros for all others; ``columns`` says which is which. A product with a CSR
row then adds up rows of Z in registers. What that costs is less than a look into a cache of kernel values.

The type of Z is the precision in which products and values are computed, float32 or float64; weighted sums
are float64 always. Every sum has one fixed order, and `BLOCK` is a number of the algorithm: a result depends
neither on threads nor on how rows are cut into tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.block_products import SUM_ROUNDINGS, WIDTH, row_products, weighted_sum
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.kernel_values import apply
from ooc_svm.ops.rows import dot

BLOCK = WIDTH  # Rows of the set that are scattered together
ROUNDINGS = SUM_ROUNDINGS + 1  # That a value goes through in the weighted sum of a block


def new_buffers(
    set_indptr: npt.NDArray[Any], n_features: int, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]:
    """``columns`` and Z for a set of rows, see `add_values`; ``columns`` is zeros between two uses."""
    ends = np.append(set_indptr[::BLOCK], set_indptr[-1:]).astype(np.int64)
    most = min(int(np.diff(ends).max(initial=0)), n_features)
    return np.zeros(n_features, np.uint32), np.empty((most + 1, BLOCK), dtype)


def buffer_bytes(most_nonzeros: int, n_features: int, itemsize: int) -> int:
    """Bytes of `new_buffers` for rows of at most so many nonzeros."""
    return 4 * n_features + (min(BLOCK * most_nonzeros, n_features) + 1) * BLOCK * itemsize


@compiled
def _scatter(indptr, indices, values, scale2, first, last, columns, Z):  # type: ignore[no-untyped-def]
    """Scatter the rows ``first <= j < last`` into Z, and number their columns from 1."""
    n, one = np.uint32(0), np.uint32(1)
    for p in range(indptr[first], indptr[last]):
        if columns[indices[p]] == 0:
            n += one
            columns[indices[p]] = n
    Z[: n + one] = 0
    for j in range(first, last):
        for p in range(indptr[j], indptr[j + np.uint64(1)]):
            x = 1.0 if values is None else np.float64(values[p])
            if scale2 is not None:
                x *= scale2[indices[p]]
            Z[columns[indices[p]], j - first] = x


@compiled
def _clear(indptr, indices, first, last, columns):  # type: ignore[no-untyped-def]
    """Undo the numbers of the columns."""
    for p in range(indptr[first], indptr[last]):
        columns[indices[p]] = 0


@compiled
def _longest(indptr, rows):  # type: ignore[no-untyped-def]
    """Nonzeros of the longest of some rows."""
    most = np.uint64(0)
    for i in rows:
        most = max(most, indptr[i + np.uint64(1)] - indptr[i])
    return most


@inlined
def _find(indices, values, p, end, columns, places, x):  # type: ignore[no-untyped-def]
    """Places in Z, and values, of the nonzeros of a row whose columns are there; their number."""
    n, one = np.uint64(0), np.uint64(1)
    while p < end:
        k = columns[indices[p]]
        places[n] = k
        if values is not None:
            x[n] = values[p]
        if k != 0:
            n += one
        p += one
    return n


@inlined
def _fill_row(kernel, values, n, square, near, base, places, x, Z, found):  # type: ignore[no-untyped-def]
    """Values of the kernel of a row, with its nonzeros by `_find`, and the rows in Z."""
    if values is None:
        row_products(places, None, n, Z, found)
    else:
        row_products(places, x, n, Z, found)
    apply(kernel, found, square, near, base)


@compiled
def add_values(  # type: ignore[no-untyped-def]
    kernel, indptr, indices, values, rows, squares,
    set_indptr, set_indices, set_values, set_squares, scale2, coefficients, columns, Z, out,
):  # fmt: skip
    """``out[k, t] += sum_j coefficients[k, j] k(x_i, z_j)`` for the rows ``i = rows[t]``.

    ``kernel``: see `ooc_svm.ops.kernels`; its numbers are of the type of Z.
    ``indptr``, ``indices``, ``values``: rows of a block as `ooc_svm.ops.rows` takes them.
    ``rows``: uint64 of shape (n,): numbers of rows of the block.
    ``squares``: ``x_i.x_i`` (with scale2) of these, float64 of shape (n,).
    ``set_indptr``, ``set_indices``, ``set_values``: the rows z of the set, likewise.
    ``set_squares``: float64 of shape (m,).
    ``scale2``: squares of the columns' scales, or None.
    ``coefficients``: float64 of shape (K, m), contiguous.
    ``columns``, ``Z``: `new_buffers` of the set.
    ``out``: float64 of shape (K, n).
    """
    one, width, m, n_models = np.uint64(1), np.uint64(BLOCK), np.uint64(len(set_squares)), len(coefficients)
    longest = _longest(indptr, rows) + one
    places, x = np.empty(longest, np.uint32), np.empty(longest, Z.dtype)
    found, near, base = np.empty(width, Z.dtype), np.empty(width, Z.dtype), np.empty(width, Z.dtype)
    weights = np.empty((n_models, width))
    for begin in range(np.uint64(0), m, width):
        end = min(begin + width, m)
        own = end - begin
        _scatter(set_indptr, set_indices, set_values, scale2, begin, end, columns, Z)
        near[:own] = set_squares[begin:end]
        near[own:] = 0
        weights[:, :own] = coefficients[:, begin:end]
        weights[:, own:] = 0.0
        for t in range(len(rows)):
            i = rows[t]
            n = _find(indices, values, indptr[i], indptr[i + one], columns, places, x)
            _fill_row(kernel, values, n, Z.dtype.type(squares[t]), near, base, places, x, Z, found)
            found[own:] = 0
            for k in range(n_models):
                out[k, t] += weighted_sum(found, weights, np.uint64(k))
        _clear(set_indptr, set_indices, begin, end, columns)


@compiled
def fill_values(  # type: ignore[no-untyped-def]
    kernel, indptr, indices, values, rows, squares,
    set_indptr, set_indices, set_values, set_squares, scale2, columns, Z, out,
):  # fmt: skip
    """``out[t, j] = k(x_i, z_j)`` for the rows ``i = rows[t]``, in the type of Z.

    ``out`` has the shape (n, m); the other arguments are those of `add_values`.
    """
    one, width, m = np.uint64(1), np.uint64(BLOCK), np.uint64(len(set_squares))
    longest = _longest(indptr, rows) + one
    places, x = np.empty(longest, np.uint32), np.empty(longest, Z.dtype)
    found, near, base = np.empty(width, Z.dtype), np.empty(width, Z.dtype), np.empty(width, Z.dtype)
    for begin in range(np.uint64(0), m, width):
        end = min(begin + width, m)
        own = end - begin
        _scatter(set_indptr, set_indices, set_values, scale2, begin, end, columns, Z)
        near[:own] = set_squares[begin:end]
        near[own:] = 0
        for t in range(len(rows)):
            i = rows[t]
            n = _find(indices, values, indptr[i], indptr[i + one], columns, places, x)
            _fill_row(kernel, values, n, Z.dtype.type(squares[t]), near, base, places, x, Z, found)
            out[t, begin:end] = found[:own]
        _clear(set_indptr, set_indices, begin, end, columns)


@compiled
def own_values(kernel, squares, base, out):  # type: ignore[no-untyped-def]
    """``out[i] = k(x_i, x_i)`` from ``squares``; arrays and numbers of the kernel are of one type."""
    for i in range(len(out)):
        out[i] = squares[i]
        apply(kernel, out[i : i + 1], squares[i], squares[i : i + 1], base[i : i + 1])


@compiled
def row_values(kernel, indptr, indices, values, squares, z, square, base, out):  # type: ignore[no-untyped-def]
    """``out[i] = k(x_i, z)`` for all rows of a CSR and one dense z, in float64.

    ``squares``: ``x_i.x_i`` (with scale2).
    ``z``: shape (n_features,), times scale2 if there is one; ``square``: ``z.z`` (with scale2).
    ``base``: working space of the shape of ``out``.
    """
    for i in range(len(out)):
        out[i] = dot(indices, values, z, indptr[i], indptr[i + 1])
    apply(kernel, out, square, squares, base)
