"""Kernel values of CSR rows with a set of rows, and their weighted sums, without a stored kernel matrix.

`BLOCK` rows of the set at a time are scattered into a dense ``Z[column, row]``, which has the columns that
these rows have and a first one of zeros for all others; ``columns`` says which is which. A product with a CSR
row, or a distance from it, then adds up rows of Z in registers. What that costs is less than a look into a
cache of kernel values.

The type of Z is the precision in which products and values are computed, float32 or float64; weighted sums
are float64 always. Where all values are 1, Z is bytes: products are counted, and values are looked up, which
are float64 then. Every sum has one fixed order, and `BLOCK` is a number of the algorithm: a result depends
neither on threads nor on how rows are cut into tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from ooc_svm.ops.block_products import (
    SUM_ROUNDINGS,
    WIDTH,
    row_counts,
    row_distances,
    row_products,
    weighted_sum,
)
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.kernel_values import apply, apply_to_distances
from ooc_svm.ops.kernels import Gaussian, GaussianOfFullRows, OfWholeNumbers, in_precision
from ooc_svm.ops.rows import dot

BLOCK = WIDTH  # Rows of the set that are scattered together
ROUNDINGS = SUM_ROUNDINGS + 1  # That a value goes through in the weighted sum of a block
MOST_COUNTED = 255  # In a byte
LONGEST_TABLE = 1 << 14  # Entries of a table at most: beyond, values are cheaper computed


@compiled
def _apply_to_products(kernel, zeros, base, out):  # type: ignore[no-untyped-def]
    apply(kernel, out, zeros[0], zeros, base)


def table_of(kernel: Any, most: float) -> OfWholeNumbers | None:
    """A kernel of rows whose values are all 1; ``most``: nonzeros of the two longest rows together.

    None where the table would be too long.
    """
    if most >= LONGEST_TABLE:
        return None
    numbers, (zeros, base) = np.arange(int(most) + 1, dtype=np.float64), np.zeros((2, int(most) + 1))
    of_distances = isinstance(kernel, Gaussian)
    if of_distances:
        # The distance of two rows is what their norms, 0 here, exceed their product by, twice.
        numbers *= -0.5
    _apply_to_products(in_precision(kernel, np.float64), zeros, base, numbers)
    return OfWholeNumbers(numbers, 1, -2) if of_distances else OfWholeNumbers(numbers, 0, 1)


def new_buffers(
    set_indptr: npt.NDArray[Any], n_features: int, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]:
    """``columns`` and Z for a set of rows, see `add_values`; ``columns`` is zeros between two uses.

    ``dtype``: of Z; uint8 for the table of `table_of`.
    """
    ends = np.append(set_indptr[::BLOCK], set_indptr[-1:]).astype(np.int64)
    most = min(int(np.diff(ends).max(initial=0)), n_features)
    return np.zeros(n_features, np.uint32), np.empty((most + 1, BLOCK), dtype)


def buffer_bytes(most_nonzeros: int, n_features: int, itemsize: int) -> int:
    """Bytes of `new_buffers` for rows of at most so many nonzeros."""
    return 4 * n_features + (min(BLOCK * most_nonzeros, n_features) + 1) * BLOCK * itemsize


@compiled
def _scatter(indptr, indices, values, scale2, first, last, columns, Z):  # type: ignore[no-untyped-def]
    """Scatter the rows ``first <= j < last`` into Z, and number their columns from 1; returns how many."""
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
    return np.uint64(n)


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
def _fill(values, begin, end, out):  # type: ignore[no-untyped-def]
    """``out = values[begin:end]``, and zeros where a last block has no rows; whether any is not 0.

    Numba takes seconds to compile what assigns slices: arrays of other shapes would be refused with a text.
    """
    some = False
    for k in range(np.uint64(len(out))):
        x = values[begin + k] if begin + k < end else 0.0
        out[k] = out.dtype.type(x)
        some |= x != 0.0
    return some


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


def _fill_row(  # type: ignore[no-untyped-def]
    kernel, indices, values, p, end, columns, n_columns, square, near, base, places, x, Z, found
):
    """Values of the kernel of a row, whose nonzeros are ``p <= q < end``, and the rows in Z."""
    raise NotImplementedError


@overload(_fill_row, strict=False, jit_options={"forceinline": True})
def _choose_fill_row(
    kernel: Any, indices: Any, values: Any, p: Any, end: Any, columns: Any, n_columns: Any,
    square: Any, near: Any, base: Any, places: Any, x: Any, Z: Any, found: Any,
) -> Any:  # fmt: skip
    def by_products(  # type: ignore[no-untyped-def]
        kernel, indices, values, p, end, columns, n_columns, square, near, base, places, x, Z, found
    ):
        n = _find(indices, values, p, end, columns, places, x)
        if values is None:
            row_products(places, None, n, Z, found)
        else:
            row_products(places, x, n, Z, found)
        apply(kernel, found, square, near, base)

    def by_distances(  # type: ignore[no-untyped-def]
        kernel, indices, values, p, end, columns, n_columns, square, near, base, places, x, Z, found
    ):
        one, others = np.uint64(1), Z.dtype.type(0.0)
        x[:n_columns] = 0
        while p < end:
            k = columns[indices[p]]
            if k != 0:
                x[k - np.uint32(1)] = values[p]
            else:
                others += Z.dtype.type(values[p]) * Z.dtype.type(values[p])
            p += one
        row_distances(x, n_columns, Z, found)
        apply_to_distances(kernel.gamma, found, others)

    def by_counts(  # type: ignore[no-untyped-def]
        kernel, indices, values, p, end, columns, n_columns, square, near, base, places, x, Z, found
    ):
        # Numbers modulo 2^16, which entries of the table are below. Rows with other values, as of a forged
        # state, find a wrong entry, but none outside of it.
        n, table = _find(indices, None, p, end, columns, places, x), kernel.table
        norm, products, own = np.uint16(kernel.norms), np.uint16(kernel.products), np.uint16(square)
        for k in range(BLOCK):
            base[k] = norm * (own + near[k])
        for first in range(np.uint64(0), n, np.uint64(MOST_COUNTED)):
            row_counts(places, first, min(n, first + np.uint64(MOST_COUNTED)), Z, x)
            for k in range(BLOCK):
                base[k] += products * x[k]
        last = np.uint16(len(table) - 1)
        for k in range(BLOCK):
            base[k] = min(base[k], last)
        for k in range(BLOCK):
            found[k] = table[base[k]]

    ways = {GaussianOfFullRows: by_distances, OfWholeNumbers: by_counts}
    return ways.get(kernel.instance_class, by_products)


def _work(kernel, longest, Z):  # type: ignore[no-untyped-def]
    """Values of a row, squared norms of a block, and working space of `_fill_row`: its base, its factors."""
    raise NotImplementedError


@overload(_work, strict=False, jit_options={"forceinline": True})
def _choose_work(kernel: Any, longest: Any, Z: Any) -> Any:
    def of_numbers(kernel, longest, Z):  # type: ignore[no-untyped-def]
        return (
            np.empty(BLOCK, Z.dtype),
            np.empty(BLOCK, Z.dtype),
            np.empty(BLOCK, Z.dtype),
            np.empty(longest, Z.dtype),
        )

    def of_counts(kernel, longest, Z):  # type: ignore[no-untyped-def]
        near, base = np.empty(BLOCK, np.uint16), np.empty(BLOCK, np.uint16)
        return np.empty(BLOCK), near, base, np.empty(BLOCK, np.uint8)

    return of_counts if kernel.instance_class is OfWholeNumbers else of_numbers


@compiled
def add_values(  # type: ignore[no-untyped-def]
    kernel, indptr, indices, values, rows, squares,
    set_indptr, set_indices, set_values, set_squares, scale2, coefficients, columns, Z, out,
):  # fmt: skip
    """``out[k, t] += sum_j coefficients[k, j] k(x_i, z_j)`` for the rows ``i = rows[t]``.

    ``kernel``: see `ooc_svm.ops.kernels`; its numbers are of the type of Z, or it is a table.
    ``indptr``, ``indices``, ``values``: rows of a block as `ooc_svm.ops.rows` takes them.
    ``rows``: uint64 of shape (n,): numbers of rows of the block.
    ``squares``: ``x_i.x_i`` (with scale2) of these, float64 of shape (n,).
    ``set_indptr``, ``set_indices``, ``set_values``: the rows z of the set, likewise.
    ``set_squares``: float64 of shape (m,).
    ``scale2``: squares of the columns' scales, or None.
    ``coefficients``: float64 of shape (K, m), contiguous. What is 0 for all of a block costs nothing.
    ``columns``, ``Z``: `new_buffers` of the set.
    ``out``: float64 of shape (K, n).
    """
    one, width, m, n_models = np.uint64(1), np.uint64(BLOCK), np.uint64(len(set_squares)), len(coefficients)
    longest = max(_longest(indptr, rows) + one, np.uint64(len(Z)))
    places = np.empty(longest, np.uint32)
    found, near, base, x = _work(kernel, longest, Z)
    weights, used = np.empty((n_models, width)), np.empty(n_models, np.bool_)
    for begin in range(np.uint64(0), m, width):
        end = min(begin + width, m)
        own = end - begin
        n_columns = _scatter(set_indptr, set_indices, set_values, scale2, begin, end, columns, Z)
        _fill(set_squares, begin, end, near)
        for k in range(n_models):
            used[k] = _fill(coefficients[k], begin, end, weights[k])
        for t in range(len(rows)):
            i = rows[t]
            _fill_row(
                kernel, indices, values, indptr[i], indptr[i + one], columns, n_columns,
                found.dtype.type(squares[t]), near, base, places, x, Z, found,
            )  # fmt: skip
            found[own:] = 0
            for k in range(n_models):
                if used[k]:
                    out[k, t] += weighted_sum(found, weights, np.uint64(k))
        _clear(set_indptr, set_indices, begin, end, columns)


@compiled
def add_symmetric_values(  # type: ignore[no-untyped-def]
    kernel, indptr, indices, values, squares, scale2, coefficients, rows, first, last,
    columns, Z, out, mirrored,
):  # fmt: skip
    """Weighted sums of the kernel values of a set with itself, of which each serves two rows.

    With the rows in blocks of `BLOCK`, and those of the set ``first <= j < last``, which begin with a block:

        out[t] += sum_j coefficients[j] k(x_i, x_j)         over j in the block of ``i = rows[t]`` or before
        mirrored[j - first] += sum_i coefficients[i] k(x_i, x_j)     over rows i in blocks after that of j

    ``rows``: uint64, numbers in the set. The other arguments are those of `add_values`.
    """
    one, width = np.uint64(1), np.uint64(BLOCK)
    longest = max(_longest(indptr, rows) + one, np.uint64(len(Z)))
    places = np.empty(longest, np.uint32)
    found, near, base, x = _work(kernel, longest, Z)
    weights, added = np.empty((1, width)), np.empty(width)
    for begin in range(np.uint64(first), np.uint64(last), width):
        end = min(begin + width, np.uint64(last))
        own = end - begin
        n_columns = _scatter(indptr, indices, values, scale2, begin, end, columns, Z)
        _fill(squares, begin, end, near)
        _fill(coefficients, begin, end, weights[0])
        added[:] = 0.0
        for t in range(len(rows)):
            i = rows[t]
            if i < begin:
                continue
            _fill_row(
                kernel, indices, values, indptr[i], indptr[i + one], columns, n_columns,
                found.dtype.type(squares[i]), near, base, places, x, Z, found,
            )  # fmt: skip
            found[own:] = 0
            out[t] += weighted_sum(found, weights, np.uint64(0))
            if i >= end:
                for k in range(width):
                    added[k] += coefficients[i] * np.float64(found[k])
        for k in range(own):
            mirrored[begin - np.uint64(first) + k] += added[k]
        _clear(indptr, indices, begin, end, columns)


@compiled
def fill_values(  # type: ignore[no-untyped-def]
    kernel, indptr, indices, values, rows, squares,
    set_indptr, set_indices, set_values, set_squares, scale2, columns, Z, out,
):  # fmt: skip
    """``out[t, j] = k(x_i, z_j)`` for the rows ``i = rows[t]``.

    ``out`` has the shape (n, m); the other arguments are those of `add_values`.
    """
    one, width, m = np.uint64(1), np.uint64(BLOCK), np.uint64(len(set_squares))
    longest = max(_longest(indptr, rows) + one, np.uint64(len(Z)))
    places = np.empty(longest, np.uint32)
    found, near, base, x = _work(kernel, longest, Z)
    for begin in range(np.uint64(0), m, width):
        end = min(begin + width, m)
        own = end - begin
        n_columns = _scatter(set_indptr, set_indices, set_values, scale2, begin, end, columns, Z)
        _fill(set_squares, begin, end, near)
        for t in range(len(rows)):
            i = rows[t]
            _fill_row(
                kernel, indices, values, indptr[i], indptr[i + one], columns, n_columns,
                found.dtype.type(squares[t]), near, base, places, x, Z, found,
            )  # fmt: skip
            for k in range(own):
                out[t, begin + k] = found[k]
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
