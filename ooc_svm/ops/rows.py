"""Products with sparse rows: scores ``X W + b`` and weighted sums of rows ``X^T V``.

Column ids and row pointers come as unsigned integers (`unsigned`): Numba then leaves out its test for
negative indices, a factor of three. ``values`` is None where every stored value is 1: Numba compiles that
case apart and never touches an array of values.

Every sum has one fixed order (four interleaved partial sums a row, rows one after another), so that a
result never depends on how a compiler vectorised a loop or where a block was cut into tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled


def unsigned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """View an array of ids or pointers as unsigned integers of the same width."""
    return array.view(np.uint32 if array.itemsize == 4 else np.uint64)


@compiled
def scores(indptr, indices, values, first, last, W, b, out):  # type: ignore[no-untyped-def]
    """``out[i - first] = X[i] W + b`` for the rows ``first <= i < last``.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, float or None)
    first, last : int
        Row range inside the block.
    W : ndarray of float64, shape (n_features, K)
    b : ndarray of float64, shape (K,)
    out : ndarray of float64, shape (at least last - first, K)
    """
    K = W.shape[1]
    if K == 1:
        for i in range(first, last):
            p, end = indptr[i], indptr[i + 1]
            s0 = s1 = s2 = s3 = 0.0
            while p + np.uint64(4) <= end:
                if values is None:
                    s0 += W[indices[p], 0]
                    s1 += W[indices[p + np.uint64(1)], 0]
                    s2 += W[indices[p + np.uint64(2)], 0]
                    s3 += W[indices[p + np.uint64(3)], 0]
                else:
                    s0 += values[p] * W[indices[p], 0]
                    s1 += values[p + np.uint64(1)] * W[indices[p + np.uint64(1)], 0]
                    s2 += values[p + np.uint64(2)] * W[indices[p + np.uint64(2)], 0]
                    s3 += values[p + np.uint64(3)] * W[indices[p + np.uint64(3)], 0]
                p += np.uint64(4)
            while p < end:
                if values is None:
                    s0 += W[indices[p], 0]
                else:
                    s0 += values[p] * W[indices[p], 0]
                p += np.uint64(1)
            out[i - first, 0] = ((s0 + s1) + (s2 + s3)) + b[0]
        return
    # The same four partial sums for each model as for one alone: company never changes a score's bits.
    two, one, three, four = np.uint64(2), np.uint64(1), np.uint64(3), np.uint64(4)
    sums = np.empty((4, K))
    a0, a1, a2, a3 = sums[0], sums[1], sums[2], sums[3]
    for i in range(first, last):
        sums[:] = 0.0
        p, end = indptr[i], indptr[i + 1]
        while p + four <= end:
            w0, w1 = W[indices[p]], W[indices[p + one]]
            w2, w3 = W[indices[p + two]], W[indices[p + three]]
            if values is None:
                for k in range(K):
                    a0[k] += w0[k]
                    a1[k] += w1[k]
                    a2[k] += w2[k]
                    a3[k] += w3[k]
            else:
                x0, x1 = np.float64(values[p]), np.float64(values[p + one])
                x2, x3 = np.float64(values[p + two]), np.float64(values[p + three])
                for k in range(K):
                    a0[k] += x0 * w0[k]
                    a1[k] += x1 * w1[k]
                    a2[k] += x2 * w2[k]
                    a3[k] += x3 * w3[k]
            p += four
        while p < end:
            w0 = W[indices[p]]
            x = 1.0 if values is None else np.float64(values[p])
            for k in range(K):
                a0[k] += x * w0[k]
            p += one
        for k in range(K):
            out[i - first, k] = ((a0[k] + a1[k]) + (a2[k] + a3[k])) + b[k]


@compiled
def add_rows(indptr, indices, values, first, last, V, row_number, groups, out):  # type: ignore[no-untyped-def]
    """``out[j, k, g] += V[i - first, k] X[i, j]``, g the row's number modulo the number of groups.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, float or None)
    first, last : int
        Row range inside the block.
    V : ndarray of float64, shape (at least last - first, K)
        Coefficients; rows of zeros are skipped.
    row_number : int
        Number of row ``first`` in the whole data.
    groups : int
    out : ndarray of float64, shape (n_features, K, groups)
    """
    K = V.shape[1]
    for i in range(first, last):
        g = (row_number + i - first) % groups
        if K == 1:
            v = V[i - first, 0]
            if v == 0.0:
                continue
            for p in range(indptr[i], indptr[i + 1]):
                if values is None:
                    out[indices[p], 0, g] += v
                else:
                    out[indices[p], 0, g] += v * values[p]
            continue
        idle = True
        for k in range(K):
            if V[i - first, k] != 0.0:
                idle = False
        if idle:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            if values is None:
                for k in range(K):
                    out[indices[p], k, g] += V[i - first, k]
            else:
                for k in range(K):
                    out[indices[p], k, g] += V[i - first, k] * values[p]


@compiled
def add_to_slots(indptr, indices, values, first, last, numbers, weights, out):  # type: ignore[no-untyped-def]
    """Add each row to its slots: ``out[numbers[k, i - first], j] += weights[k, i - first] X[i, j]``.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, float or None)
    first, last : int
        Row range inside the block.
    numbers : ndarray of int32, shape (places, last - first)
    weights : ndarray of float64, shape (places, last - first), or None
        Places of weight 0 are skipped; None: all are 1.
    out : ndarray of float64, shape (slots, n_features)
    """
    for i in range(first, last):
        for k in range(len(numbers)):
            weight = 1.0 if weights is None else weights[k, i - first]
            if weight == 0.0:
                continue
            slot = out[np.uint32(numbers[k, i - first])]
            for p in range(indptr[i], indptr[i + 1]):
                if values is None:
                    slot[indices[p]] += weight
                else:
                    slot[indices[p]] += weight * values[p]


@compiled
def column_statistics(indptr, indices, values, largest, total, squares):  # type: ignore[no-untyped-def]
    """Add a block's stored values to each column's largest magnitude, sum and sum of squares.

    ``largest``, ``total`` and ``squares`` are ndarrays of float64, shape (n_features,).
    """
    for p in range(indptr[0], indptr[len(indptr) - 1]):
        j = indices[p]
        x = 1.0 if values is None else np.float64(values[p])
        largest[j] = max(largest[j], abs(x))
        total[j] += x
        squares[j] += x * x
