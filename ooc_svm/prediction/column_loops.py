"""Columns of data under the numbers that a model gives its features."""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled

_FEW = 16  # Elements of a row that are sorted by insertion


@compiled
def place_columns(  # type: ignore[no-untyped-def]
    indptr, indices, values, places, limit, spare, digit, placed_indptr, placed_indices, placed_values
):
    """Copy the elements whose column has a place below `limit`, each row in the order of the places.

    `places` (uint32) has an entry for each column; columns beyond have no place. The copies may go to the
    arrays of the rows themselves. `spare` has room for the ids, the values (or None) and the counts that
    sorting the longest row by digits of `digit` bits takes. Returns the number of rows that lost an element.
    """
    n = np.int64(0)
    shorter = np.int64(0)
    first = np.int64(indptr[0])
    placed_indptr[0] = 0
    for i in range(len(indptr) - 1):
        last = np.int64(indptr[i + 1])
        begin = n
        ascending = True
        for p in range(first, last):
            column = indices[p]
            if column < len(places) and places[column] < limit:
                placed_indices[n] = places[column]
                if values is not None:
                    placed_values[n] = values[p]
                ascending = ascending and (n == begin or placed_indices[n - 1] < placed_indices[n])
                n += 1
        if not ascending and n - begin <= _FEW:
            insert_elements(placed_indices, placed_values, begin, n)
        elif not ascending:
            ids, spare_values, counts = spare
            shift = 0
            while limit >> shift > 0:
                scatter_by_digit(
                    placed_indices,
                    placed_values,
                    begin,
                    ids,
                    spare_values,
                    0,
                    n - begin,
                    shift,
                    digit,
                    counts,
                )
                shift += digit
                scatter_by_digit(
                    ids,
                    spare_values,
                    0,
                    placed_indices,
                    placed_values,
                    begin,
                    n - begin,
                    shift,
                    digit,
                    counts,
                )
                shift += digit
        shorter += n - begin < last - first
        placed_indptr[i + 1] = n
        first = last
    return shorter


@compiled
def scatter_by_digit(ids, values, start, to_ids, to_values, to_start, length, shift, digit, counts):  # type: ignore[no-untyped-def]
    """Sort elements by a digit of their column ids, stable, into other arrays: a step of a radix sort."""
    mask = (1 << digit) - 1
    counts[: mask + 1] = 0
    for p in range(start, start + length):
        counts[(ids[p] >> shift) & mask] += 1
    total = to_start
    for k in range(mask + 1):
        count = counts[k]
        counts[k] = total
        total += count
    for p in range(start, start + length):
        k = (ids[p] >> shift) & mask
        q = counts[k]
        to_ids[q] = ids[p]
        if values is not None:
            to_values[q] = values[p]
        counts[k] = q + 1


@compiled
def insert_elements(indices, values, first, last):  # type: ignore[no-untyped-def]
    """Sort the elements ``first <= p < last`` by their column ids, in place, by insertion."""
    for p in range(first + 1, last):
        index = indices[p]
        q = p
        if values is None:
            while q > first and indices[q - 1] > index:
                indices[q] = indices[q - 1]
                q -= 1
        else:
            value = values[p]
            while q > first and indices[q - 1] > index:
                indices[q], values[q] = indices[q - 1], values[q - 1]
                q -= 1
            values[q] = value
        indices[q] = index
