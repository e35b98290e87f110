"""Moving the rows of the resident set together, and what each is worth keeping."""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled
from ooc_svm.solvers.streamed_smo.dual_loops import priority


@compiled
def compact(indptr, indices, values, kept):  # type: ignore[no-untyped-def]
    """Move the kept rows to the front, in place; returns the number of nonzeros kept.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, float or None)
        ``indices`` and ``values`` are changed.
    kept : ndarray of bool, shape (m,)
    """
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
def priorities(dual, stationarity, box, eps, out):  # type: ignore[no-untyped-def]
    """What each row is worth keeping (`ooc_svm.solvers.streamed_smo.dual_loops.priority`).

    ``box`` has the shape (m, 4), all other arrays (m,).
    """
    for i in range(len(dual)):
        out[i] = priority(dual[i], stationarity[i], box[i, 1], box[i, 2], eps)
