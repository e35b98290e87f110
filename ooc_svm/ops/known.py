"""Rows without the columns that a model has never seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled


@compiled
def keep_known(
    indptr: npt.NDArray[np.uint64],
    indices: npt.NDArray[np.uint32],
    values: npt.NDArray[Any] | None,
    n_features: int,
    kept_indptr: npt.NDArray[np.uint64],
    kept_indices: npt.NDArray[np.uint32],
    kept_values: npt.NDArray[Any] | None,
) -> int:
    """Copy the elements whose column id is below `n_features`.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, floats or None)
    n_features : int
    kept_indptr, kept_indices, kept_values : arrays of the same types and lengths
        What is left; they may be the arrays of the rows themselves.

    Returns
    -------
    int
        Rows that lost an element.
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
                    kept_values[n] = values[p]  # type: ignore[index]
                n += one
        shorter += n - begin < last - first
        kept_indptr[i + 1] = n
        first = last
    return shorter
