"""Kernel values of CSR rows with a set of rows, and their weighted sums, without a stored kernel matrix.

`BLOCK` rows of the set at a time are scattered into a dense ``Z[column, row]``, which has the columns that
these rows have and a first one of zeros for all others; ``columns`` says which is which. A product with a CSR
row is then a few long loops, four nonzeros at a time. What that costs is less than a look into a cache of
kernel values.

The type of Z is the precision in which products and values are computed, float32 or float64; weighted sums
are float64 always. Every sum has one fixed order, and `BLOCK` is a number of the algorithm: a result depends
neither on threads nor on how rows are cut into tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.kernel_values import apply
from ooc_svm.ops.rows import dot

BLOCK = 128  # Rows of the set that are scattered together
LANES = 16  # Interleaved partial sums of a weighted sum


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
def _products(indices, values, p, end, columns, Z, places, x, out):  # type: ignore[no-untyped-def]
    """``out = x.Z`` of one row; ``places`` and ``x`` are working space for its nonzeros."""
    n, one, two, three, four = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    while p < end:
        k = columns[indices[p]]
        places[n] = k
        if values is not None:
            x[n] = values[p]
        if k != 0:
            n += one
        p += one
    out[:] = 0
    t = np.uint64(0)
    while t + four <= n:
        z0, z1, z2, z3 = places[t], places[t + one], places[t + two], places[t + three]
        if values is None:
            for k in range(len(out)):
                out[k] += (Z[z0, k] + Z[z1, k]) + (Z[z2, k] + Z[z3, k])
        else:
            x0, x1, x2, x3 = x[t], x[t + one], x[t + two], x[t + three]
            for k in range(len(out)):
                out[k] += (x0 * Z[z0, k] + x1 * Z[z1, k]) + (x2 * Z[z2, k] + x3 * Z[z3, k])
        t += four
    while t < n:
        z0 = places[t]
        if values is None:
            for k in range(len(out)):
                out[k] += Z[z0, k]
        else:
            x0 = x[t]
            for k in range(len(out)):
                out[k] += x0 * Z[z0, k]
        t += one


@compiled
def _longest(indptr, first, last):  # type: ignore[no-untyped-def]
    """Nonzeros of the longest of some rows."""
    most = np.uint64(0)
    for i in range(first, last):
        most = max(most, indptr[i + np.uint64(1)] - indptr[i])
    return most


@compiled
def add_values(  # type: ignore[no-untyped-def]
    kernel, indptr, indices, values, first, last, squares,
    set_indptr, set_indices, set_values, set_squares, scale2, coefficients, columns, Z, out,
):  # fmt: skip
    """``out[k, i - first] += sum_j coefficients[k, j] k(x_i, z_j)`` for the rows ``first <= i < last``.

    ``kernel``: see `ooc_svm.ops.kernels`; its numbers are of the type of Z.
    ``indptr``, ``indices``, ``values``: rows of a block as `ooc_svm.ops.rows` takes them.
    ``squares``: ``x_i.x_i`` (with scale2), float64 of shape (last - first,).
    ``set_indptr``, ``set_indices``, ``set_values``: the rows z of the set, likewise.
    ``set_squares``: float64 of shape (m,).
    ``scale2``: squares of the columns' scales, or None.
    ``coefficients``: float64 of shape (K, m), contiguous.
    ``columns``, ``Z``: `new_buffers` of the set.
    ``out``: float64 of shape (K, last - first).
    """
    one, width, m, n_models = np.uint64(1), np.uint64(BLOCK), np.uint64(len(set_squares)), len(coefficients)
    longest = _longest(indptr, first, last) + one
    places, x = np.empty(longest, np.uint32), np.empty(longest, Z.dtype)
    found, near, base = np.empty(width, Z.dtype), np.empty(width, Z.dtype), np.empty(width, Z.dtype)
    weights, sums = np.empty((n_models, width)), np.empty(LANES)
    for begin in range(np.uint64(0), m, width):
        end = min(begin + width, m)
        own = end - begin
        _scatter(set_indptr, set_indices, set_values, scale2, begin, end, columns, Z)
        near[:own] = set_squares[begin:end]
        near[own:] = 0
        weights[:, :own] = coefficients[:, begin:end]
        weights[:, own:] = 0.0
        for i in range(np.uint64(first), np.uint64(last)):
            _products(indices, values, indptr[i], indptr[i + one], columns, Z, places, x, found)
            apply(kernel, found, Z.dtype.type(squares[i - np.uint64(first)]), near, base)
            found[own:] = 0
            for k in range(n_models):
                sums[:] = 0.0
                for part in range(np.uint64(0), width, np.uint64(LANES)):
                    for lane in range(np.uint64(LANES)):
                        sums[lane] += np.float64(found[part + lane]) * weights[k, part + lane]
                out[k, i - np.uint64(first)] += sums.sum()
        _clear(set_indptr, set_indices, begin, end, columns)


@compiled
def fill_values(  # type: ignore[no-untyped-def]
    kernel, indptr, indices, values, first, last, squares,
    set_indptr, set_indices, set_values, set_squares, scale2, columns, Z, out,
):  # fmt: skip
    """``out[i - first, j] = k(x_i, z_j)`` for the rows ``first <= i < last``, in the type of Z.

    ``out`` has the shape (last - first, m); the other arguments are those of `add_values`.
    """
    one, width, m = np.uint64(1), np.uint64(BLOCK), np.uint64(len(set_squares))
    longest = _longest(indptr, first, last) + one
    places, x = np.empty(longest, np.uint32), np.empty(longest, Z.dtype)
    found, near, base = np.empty(width, Z.dtype), np.empty(width, Z.dtype), np.empty(width, Z.dtype)
    for begin in range(np.uint64(0), m, width):
        end = min(begin + width, m)
        own = end - begin
        _scatter(set_indptr, set_indices, set_values, scale2, begin, end, columns, Z)
        near[:own] = set_squares[begin:end]
        near[own:] = 0
        for i in range(np.uint64(first), np.uint64(last)):
            _products(indices, values, indptr[i], indptr[i + one], columns, Z, places, x, found)
            apply(kernel, found, Z.dtype.type(squares[i - np.uint64(first)]), near, base)
            out[i - np.uint64(first), begin:end] = found[:own]
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
