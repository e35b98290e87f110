"""The loops that check rows, and sort those whose ids are in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

Array = npt.NDArray[Any]


@compiled
def _falls(ids: Array) -> int:
    """Number of places where an id is not above the one before it, row ends included."""
    count = 0
    for p in range(1, len(ids)):
        count += ids[p] <= ids[p - 1]
    return count


@compiled
def not_finite(values: Array) -> int:
    """Number of values that are infinite or no number."""
    count = np.uint32(0)  # as wide as the elements of float32: more of them fit a vector register
    for p in range(len(values)):
        count += np.uint32(not (abs(values[p]) < np.inf))
    return int(count)


@compiled
def check_pointers(indptr: Array, n_nonzeros: int) -> int:
    """First row whose pointers break a rule, or -1. They are compared as signed integers."""
    if indptr[0] != 0:
        return 0
    for i in range(len(indptr) - 1):
        if indptr[i + 1] < indptr[i] or indptr[i + 1] > n_nonzeros:
            return i
    return max(len(indptr) - 2, 0) if indptr[-1] != n_nonzeros else -1


@compiled
def check_ids(indptr: Array, ids: Array, n_features: Any) -> bool:
    """Whether the ids of every row rise strictly and stay below ``n_features``.

    The falls between rows are taken from the falls of the whole array: the loop over elements then
    has no branch and is vectorised.
    """
    falls = _falls(ids)
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        if first == last:
            continue
        if ids[last - 1] >= n_features:
            return False
        if first > 0 and ids[first] <= ids[first - 1]:
            falls -= 1
    return bool(falls == 0)


@compiled
def first_offence(indptr: Array, ids: Array, values: Array | None, n_features: Any) -> tuple[int, int, int]:
    """(row, reason, position) of the first element that breaks a rule; (-1, 0, -1) where there is none."""
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            if ids[p] >= n_features:
                return i, 3, p
            if p > indptr[i] and ids[p] <= ids[p - 1]:
                return i, 2, p
            if values is not None and not (abs(values[p]) < np.inf):
                return i, 4, p
    return -1, 0, -1


@compiled
def sort_rows(indptr: Array, indices: Array, values: Array) -> None:
    """Sort the elements of every row by column id, in place: Shell's sort, quick on rows nearly sorted."""
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        gap = 1
        while gap < (last - first) // 3:
            gap = 3 * gap + 1
        while gap > 0:
            for p in range(first + gap, last):
                index, value = indices[p], values[p]
                q = p
                while q >= first + gap and indices[q - gap] > index:
                    indices[q], values[q] = indices[q - gap], values[q - gap]
                    q -= gap
                indices[q], values[q] = index, value
            gap //= 3
