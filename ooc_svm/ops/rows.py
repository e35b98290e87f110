"""CSR rows: products with vectors, weighted sums of rows, copies of rows. The one home of dot, axpy and norm.

Column ids and row pointers come as unsigned integers (`unsigned`): Numba then leaves out its test for
negative indices, a factor of three. ``values`` is None where every stored value is 1: Numba compiles that
case apart and never touches an array of values. ``scale2`` holds the squares of the columns' scales, for
weights in units of the data; None without scaling is compiled apart as well.

Every sum has one fixed order (four interleaved partial sums a row, rows one after another), so that a
result never depends on how a compiler vectorised a loop, where a block was cut into tiles, or how many models
are computed together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled, inlined


def unsigned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """View an array of ids or pointers as unsigned integers of the same width."""
    return array.view(np.uint32 if array.itemsize == 4 else np.uint64)


@inlined
def dot(indices, values, w, p, end):  # type: ignore[no-untyped-def]
    """``x.w`` of one row."""
    s0 = s1 = s2 = s3 = 0.0
    two, one, three, four = np.uint64(2), np.uint64(1), np.uint64(3), np.uint64(4)
    while p + four <= end:
        j0, j1, j2, j3 = indices[p], indices[p + one], indices[p + two], indices[p + three]
        if values is None:
            s0 += w[j0]
            s1 += w[j1]
            s2 += w[j2]
            s3 += w[j3]
        else:
            s0 += np.float64(values[p]) * w[j0]
            s1 += np.float64(values[p + one]) * w[j1]
            s2 += np.float64(values[p + two]) * w[j2]
            s3 += np.float64(values[p + three]) * w[j3]
        p += four
    while p < end:
        s0 += w[indices[p]] if values is None else np.float64(values[p]) * w[indices[p]]
        p += one
    return (s0 + s1) + (s2 + s3)


@inlined
def products(indices, values, W, p, end, sums):  # type: ignore[no-untyped-def]
    """``x.W`` of one row with the weights (n_features, K) of K models: the partial sums, shape (4, K).

    They are the four that `dot` has for one alone: company never changes a product's bits.
    """
    K = W.shape[1]
    sums[:] = 0.0
    two, one, three, four = np.uint64(2), np.uint64(1), np.uint64(3), np.uint64(4)
    a0, a1, a2, a3 = sums[0], sums[1], sums[2], sums[3]
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


@inlined
def product_of(sums, k):  # type: ignore[no-untyped-def]
    """The product of one of the models, from its partial sums."""
    return (sums[0, k] + sums[1, k]) + (sums[2, k] + sums[3, k])


@inlined
def _term(indices, values, scale2, p):  # type: ignore[no-untyped-def]
    """What one element adds to ``x.x``."""
    if scale2 is None:
        square = 1.0
    else:
        square = scale2[indices[p]]
    if values is not None:
        x = np.float64(values[p])
        square *= x * x
    return square


@inlined
def square(indices, values, scale2, p, end):  # type: ignore[no-untyped-def]
    """``x.x`` (with the scale2) of one row."""
    if values is None and scale2 is None:
        return np.float64(end - p)
    q0 = q1 = q2 = q3 = 0.0
    two, one, three, four = np.uint64(2), np.uint64(1), np.uint64(3), np.uint64(4)
    while p + four <= end:
        q0 += _term(indices, values, scale2, p)
        q1 += _term(indices, values, scale2, p + one)
        q2 += _term(indices, values, scale2, p + two)
        q3 += _term(indices, values, scale2, p + three)
        p += four
    while p < end:
        q0 += _term(indices, values, scale2, p)
        p += one
    return (q0 + q1) + (q2 + q3)


@inlined
def add_row(indices, values, scale2, w, p, end, v):  # type: ignore[no-untyped-def]
    """``w += v x``, in units of the data."""
    while p < end:
        j = indices[p]
        x = v if values is None else v * np.float64(values[p])
        w[j] += x if scale2 is None else x * scale2[j]
        p += np.uint64(1)


@compiled
def scores(indptr, indices, values, first, every, w, out):  # type: ignore[no-untyped-def]
    """``out[i] = x.w`` of the rows of a piece.

    ``first``, ``every``: the piece's first row in the block, and the distance to the next.
    """
    for i in range(len(out)):
        row = first + every * np.uint64(i)
        out[i] = dot(indices, values, w, indptr[row], indptr[row + np.uint64(1)])


@compiled
def scores_of_models(indptr, indices, values, first, last, W, b, out):  # type: ignore[no-untyped-def]
    """``out[i - first] = X[i] W + b`` for the rows ``first <= i < last`` of a block.

    W is (n_features, K), b (K,) and out (at least last - first, K), all float64.
    """
    K = W.shape[1]
    if K == 1:
        w = W.reshape(len(W))
        for i in range(first, last):
            out[i - first, 0] = dot(indices, values, w, indptr[i], indptr[i + 1]) + b[0]
        return
    sums = np.empty((4, K))
    for i in range(first, last):
        products(indices, values, W, indptr[i], indptr[i + 1], sums)
        for k in range(K):
            out[i - first, k] = product_of(sums, k) + b[k]


@compiled
def row_squares(indptr, indices, values, scale2, rows, out):  # type: ignore[no-untyped-def]
    """``out[k] = x.x`` (with the scale2) of row ``rows[k]``."""
    for k in range(len(rows)):
        out[k] = square(indices, values, scale2, indptr[rows[k]], indptr[rows[k] + 1])


@compiled
def row_scores(indptr, indices, values, rows, w, out):  # type: ignore[no-untyped-def]
    """``out[k] = x.w`` of row ``rows[k]``; the rows come as unsigned integers."""
    for k in range(len(rows)):
        out[k] = dot(indices, values, w, indptr[rows[k]], indptr[rows[k] + np.uint64(1)])


@compiled
def add_rows(indptr, indices, values, scale2, coefficients, w):  # type: ignore[no-untyped-def]
    """``w += sum_i coefficients_i x_i``, in units of the data."""
    for i in range(len(coefficients)):
        if coefficients[i] != 0.0:
            add_row(indices, values, scale2, w, indptr[i], indptr[i + 1], coefficients[i])


@compiled
def spread_rows(indices, values, begin, ends, first, last, out):  # type: ignore[no-untyped-def]
    """Put the elements of some columns of rows into ``out[i, column - first]``, up to ``last``.

    ``begin``, ``ends`` (uint64, shape (m,)): the elements of each row, whose columns ascend from ``first``;
        ``begin`` is moved to those that are left.
    """
    for i in range(len(begin)):
        p, end = begin[i], ends[i]
        while p < end and indices[p] < last:
            out[i, indices[p] - first] = 1.0 if values is None else values[p]
            p += np.uint64(1)
        begin[i] = p


@compiled
def add_rows_by_group(indptr, indices, values, first, last, V, row_number, groups, out):  # type: ignore[no-untyped-def]
    """``out[j, k, g] += V[i - first, k] X[i, j]``, g the row's number modulo the number of groups.

    V are coefficients of the rows ``first <= i < last`` of a block, shape (at least last - first, K); rows of
    zeros are skipped. `row_number` is that of row ``first`` in the whole data, and out is (n_features, K,
    groups).
    """
    K = V.shape[1]
    for i in range(first, last):
        g = (row_number + i - first) % groups
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


@inlined
def add_product(indices, values, begin, end, weight, out):  # type: ignore[no-untyped-def]
    """What one row adds to the products of `add_products`."""
    last = len(out) - 1
    for p in range(begin, end):
        j = indices[p]
        x = weight if values is None else weight * np.float64(values[p])
        for q in range(p, end):
            k = indices[q]
            # Rows of other programs need not be sorted.
            out[min(j, k), max(j, k)] += x if values is None else x * np.float64(values[q])
        out[j, last] += x
    out[last, last] += weight


@compiled
def add_products(indptr, indices, values, first, weights, out):  # type: ignore[no-untyped-def]
    """``out += sum_i weights[i] x_i x_i'`` over rows from ``first`` on, the upper triangle.

    The last row and column of out, shape (n_features + 1, n_features + 1), are those of a feature that is 1.
    """
    for i in range(len(weights)):
        if weights[i] != 0.0:
            add_product(indices, values, indptr[first + i], indptr[first + i + 1], weights[i], out)


@compiled
def add_squares(indptr, indices, values, first, weights, out):  # type: ignore[no-untyped-def]
    """The diagonal of the same, shape (n_features + 1,)."""
    last = len(out) - 1
    for i in range(len(weights)):
        weight = weights[i]
        if weight == 0.0:
            continue
        for p in range(indptr[first + i], indptr[first + i + 1]):
            x = 1.0 if values is None else np.float64(values[p])
            out[indices[p]] += weight * x * x
        out[last] += weight


@compiled
def add_to_cells(indptr, indices, values, first, last, numbers, weights, out):  # type: ignore[no-untyped-def]
    """Add each row to its cells: ``out[numbers[k, i - first], j] += weights[k, i - first] X[i, j]``.

    It takes the rows ``first <= i < last`` of a block. `numbers` (int32) and `weights` have the shape
    (places, last - first), and out is (cells, n_features). Places of weight 0 are skipped; without weights
    all are 1.
    """
    for i in range(first, last):
        for k in range(len(numbers)):
            weight = 1.0 if weights is None else weights[k, i - first]
            if weight == 0.0:
                continue
            cell = out[np.uint32(numbers[k, i - first])]
            add_row(indices, values, None, cell, indptr[i], indptr[i + 1], weight)


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


@compiled
def add_magnitudes(indptr, indices, values, weights, columns):  # type: ignore[no-untyped-def]
    """``columns_j += sum_i weights_i |x_ij|`` over the rows of a block."""
    for i in range(len(weights)):
        for p in range(indptr[i], indptr[i + 1]):
            x = 1.0 if values is None else abs(np.float64(values[p]))
            columns[indices[p]] += weights[i] * x


@compiled
def largest_magnitudes(indptr, indices, values, scale2, columns):  # type: ignore[no-untyped-def]
    """Raise ``columns_j`` to the largest ``|x_ij|`` of a block; returns the largest ``x.x`` (with scale2)."""
    most = 0.0
    for i in range(len(indptr) - 1):
        most = max(most, square(indices, values, scale2, indptr[i], indptr[i + 1]))
        for p in range(indptr[i], indptr[i + 1]):
            x = 1.0 if values is None else abs(np.float64(values[p]))
            columns[indices[p]] = max(columns[indices[p]], x)
    return most


@compiled
def compact_rows(indptr, indices, values, kept):  # type: ignore[no-untyped-def]
    """Move the rows that are `kept` (bool) to the front, in place; returns the number of nonzeros kept."""
    to = np.uint64(0)
    for i in range(len(kept)):
        if kept[i]:
            p, end = indptr[i], indptr[i + 1]
            if p == to:
                to = end
                continue
            while p < end:
                indices[to] = indices[p]
                if values is not None:
                    values[to] = values[p]
                p += np.uint64(1)
                to += np.uint64(1)
    return np.int64(to)


@compiled
def count_columns(indices, counts, found):  # type: ignore[no-untyped-def]
    """Count the elements of each column.

    ``counts`` (int32, shape (n_features,)): of each column, 0 before.
    ``found`` (int32): ids of the columns that have any, as they come first (out).

    Returns how many they are.
    """
    n_found = 0
    for p in range(len(indices)):
        j = indices[p]
        if counts[j] == 0:
            found[n_found] = j
            n_found += 1
        counts[j] += 1
    return n_found


@compiled
def order_by_size(sizes, columns, out):  # type: ignore[no-untyped-def]
    """Put columns in order: those whose sizes have more bits first, others as they are.

    ``sizes`` (int32, shape (n_features,)): of each column.
    ``columns``, ``out``: int32, shape (k,).
    """
    places = np.zeros(33, np.int64)
    for k in range(len(columns)):
        places[_bits(sizes[columns[k]])] += 1
    before = len(columns)
    for bits in range(33):
        before -= places[bits]
        places[bits] = before
    for k in range(len(columns)):
        bits = _bits(sizes[columns[k]])
        out[places[bits]] = columns[k]
        places[bits] += 1


@inlined
def _bits(number):  # type: ignore[no-untyped-def]
    """How many binary digits a number has."""
    bits = 0
    while number > 0:
        number >>= 1
        bits += 1
    return bits


@compiled
def number_columns(indices, numbers, known, new):  # type: ignore[no-untyped-def]
    """Put the numbers of columns in place of their ids; those that come first get the next numbers.

    ``numbers`` (int32, shape (n_features,)): of each column, -1 where it has none yet; changed.
    ``known``: how many have one.
    ``new`` (int32): ids of those that get one (out).

    Returns how many got one.
    """
    count = 0
    for p in range(len(indices)):
        j = indices[p]
        if numbers[j] < 0:
            numbers[j] = known + count
            new[count] = j
            count += 1
        indices[p] = numbers[j]
    return count


@compiled
def gather_rows(indptr, indices, values, order, out_indptr, out_indices, out_values):  # type: ignore[no-untyped-def]
    """Copy the rows ``order[0]``, ``order[1]``, ...; `out_indptr` says where each begins."""
    for k in range(len(order)):
        p, end = indptr[order[k]], indptr[order[k] + 1]
        q = out_indptr[k]
        while p < end:
            out_indices[q] = indices[p]
            if values is not None:
                out_values[q] = values[p]
            p += np.uint64(1)
            q += np.uint64(1)


@compiled
def keep_known(indptr, indices, values, n_features, kept_indptr, kept_indices, kept_values):  # type: ignore[no-untyped-def]
    """Copy the elements whose column id is below `n_features`; returns the number of rows that lost one.

    The copies may go to the arrays of the rows themselves.
    """
    limit = np.uint64(n_features)
    one = np.uint64(1)
    n = np.uint64(0)
    first = indptr[0]
    kept_indptr[0] = n
    shorter = 0
    for i in range(len(indptr) - 1):
        last = indptr[i + 1]
        begin = n
        for p in range(first, last):
            if np.uint64(indices[p]) < limit:
                kept_indices[n] = indices[p]
                if values is not None:
                    kept_values[n] = values[p]
                n += one
        shorter += n - begin < last - first
        kept_indptr[i + 1] = n
        first = last
    return shorter
