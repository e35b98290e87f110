"""Newton's directions of proximal steps from a dense system, where products would take longer.

With a large C the conjugate gradient method takes hundreds of products, see
`ooc_svm.solvers.streamed_smo.newton_loops`. Where rows are long, it is cheaper to put
``F' = I + sum_i s_i x_i x_i'`` together from dense copies of the free rows, some at a time, and to solve the
system: the linear algebra library takes much less time for an element of it than a product for a nonzero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Values

MOST_SYSTEM = 1024  # Columns up to which there is a system; more take too much memory

ROWS = 256  # Rows that are dense at a time

# What is worth the time of a nonzero in a product, measured with one thread, which is what runs allow the
# library: a pair of columns, for each row; three columns, once; and a nonzero that is copied.
SQUARE, CUBE, COPY = 1.0 / 64.0, 1.0 / 36.0, 10.0


def system_cost(n_columns: int) -> tuple[float, float, float]:
    """What a system is worth in nonzeros of a product: once, for each free row, for each nonzero of these."""
    if n_columns > MOST_SYSTEM:
        return np.inf, 0.0, 0.0
    return CUBE * n_columns**3, SQUARE * n_columns**2, COPY


def system_bytes(dimension: int) -> int:
    """Bytes that a direction takes; ``dimension``: columns, of which one may be the bias."""
    n = dimension + 1
    return 8 * (2 * n + ROWS) * n if dimension <= MOST_SYSTEM + 1 else 0


def dense_direction(
    matrix: tuple[Values, Values, Values | None],
    places: Values,
    scale2: Float64Array | None,
    mean: Float64Array | None,
    root: float,
    slopes: Float64Array,
    gradient: Float64Array,
    gradient_b: float,
    stop: npt.NDArray[np.uint8],
    direction: Float64Array,
) -> float:
    """The direction; returns the bias' part of it.

    Parameters
    ----------
    matrix, places, scale2, mean
        See `ooc_svm.solvers.streamed_smo.proximal.Solve`; ``places`` of the free rows alone.
    root : float
        The value of the bias' feature.
    slopes : ndarray of float64, shape (len(places),)
    gradient, gradient_b : ndarray of float64, shape (d,), and float
        F, and the bias' part of it.
    stop : ndarray of uint8, shape (1,)
        Not 0 when another thread wants the search to end: the direction is of no use then.
    direction : ndarray of float64, shape (d,)
        Out; 0 where rounding has made the system singular.
    """
    d = len(gradient)
    scale = np.ones(d) if scale2 is None else np.sqrt(scale2)
    system, added, dense = np.zeros((d + 1, d + 1)), np.empty((d + 1, d + 1)), np.empty((ROWS, d + 1))
    for begin in range(0, len(places), ROWS):
        if stop[0]:
            break
        own = slice(begin, begin + ROWS)
        rows = dense[: len(places[own])]
        _copy(*matrix, places[own], rows[:, :d])
        # In units in which all columns are scaled
        rows[:, :d] *= scale
        if mean is not None:
            rows[:, :d] -= mean / scale
        rows[:, d] = root
        rows *= np.sqrt(slopes[own])[:, None]
        system += np.matmul(rows.T, rows, out=added)
    system.flat[:: d + 2] += 1.0
    try:
        solution = np.linalg.solve(system, -np.append(gradient / scale, gradient_b))
    except np.linalg.LinAlgError:
        solution = np.zeros(d + 1)
    direction[:] = scale * solution[:d]
    return float(solution[d])


def _copy(indptr: Values, indices: Values, values: Values | None, places: Values, out: Float64Array) -> None:
    """Dense copies of some rows."""
    starts = indptr[places].astype(np.int64)
    lengths = indptr[places + np.uint64(1)].astype(np.int64) - starts
    rows, ends = np.repeat(np.arange(len(places)), lengths), np.cumsum(lengths)
    elements = np.arange(len(rows)) + (starts - ends + lengths)[rows]
    out[:] = 0.0
    out[rows, indices[elements]] = 1.0 if values is None else values[elements]
