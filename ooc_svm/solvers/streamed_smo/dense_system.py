"""Newton's directions of proximal steps from a dense system, where products would take longer.

With a large C, or rows that have a large part in common, the conjugate gradient method takes hundreds of
products, see `ooc_svm.solvers.streamed_smo.newton_loops`. Where rows are long, it is cheaper to put
``F' = I + sum_i s_i x_i x_i'`` together from dense copies of the free rows, some at a time, and to solve the
system: the linear algebra library takes much less time for an element of it than a product for a nonzero.

Where the products of the rows with each other are known, the system is one of the free rows X. With S for
their slopes (Woodbury),

    F'^-1 = I - X' S^1/2 (I + S^1/2 X X' S^1/2)^-1 S^1/2 X .
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Values
from ooc_svm.ops.rows import add_rows, spread_rows
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.newton_loops import inner

MOST_SYSTEM = 1024  # Columns up to which there is a system; more take too much memory

ROWS = 256  # Rows that are dense at a time

# What is worth the time of a nonzero in a product, measured with one thread, which is what runs allow the
# library: a pair of columns, for each row; three columns, once; and a nonzero that is copied.
SQUARE, CUBE, COPY = 1.0 / 64.0, 1.0 / 36.0, 10.0

# What a system of the free rows is worth, see `system_cost`
ROW_SYSTEM_COST = 0.0, 0.0, 2.0, CUBE


def system_cost(n_columns: int) -> tuple[float, float, float, float]:
    """What a system is worth in nonzeros of a product.

    Once, for each free row, for each nonzero of these, and for three of the free rows.
    """
    if n_columns > MOST_SYSTEM:
        return np.inf, 0.0, 0.0, 0.0
    return CUBE * n_columns**3, SQUARE * n_columns**2, COPY, 0.0


def system_bytes(dimension: int) -> int:
    """Bytes that a direction takes.

    ``dimension``: columns, of which one may be the bias.
    """
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
    (indptr, indices, values), d = matrix, len(gradient)
    scale = np.ones(d) if scale2 is None else np.sqrt(scale2)
    system, added, dense = np.zeros((d + 1, d + 1)), np.empty((d + 1, d + 1)), np.empty((ROWS, d + 1))
    for begin in range(0, len(places), ROWS):
        if stop[0]:
            break
        own = slice(begin, begin + ROWS)
        rows = dense[: len(places[own])]
        rows[:, :d] = 0.0
        spread_rows(indices, values, indptr[places[own]], indptr[places[own] + np.uint64(1)], 0, d, rows)
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


def row_direction(
    matrix: tuple[Values, Values, Values | None],
    places: Values,
    scale2: Float64Array | None,
    mean: Float64Array | None,
    moments: Float64Array | None,
    root: float,
    slopes: Float64Array,
    gradient: Float64Array,
    gradient_b: float,
    products: Float64Array,
    direction: Float64Array,
) -> float:
    """The direction by a system of the free rows; see `dense_direction`.

    ``moments``: products of the free rows with the mean. ``products``: those of all rows.
    """
    side, system = np.sqrt(slopes), products[np.ix_(places, places)]
    about, square = 0.0, root * root
    if mean is not None:
        assert moments is not None
        about, of_mean = inner(mean, gradient, scale2), inner(mean, mean, scale2)
        square += of_mean
        system -= moments
        system -= moments[:, None]
    # The bias' feature; and the square of the mean that the two products with it leave out.
    system += square
    system *= side
    system *= side[:, None]
    system.flat[:: len(places) + 1] += 1.0
    along, bias = np.empty(len(places)), np.array([root * gradient_b - about, 0.0, 0.0])
    no_targets = np.zeros((len(places), 2))
    dual_loops.residuals(*matrix, places, moments, gradient, bias, no_targets, along)
    try:
        solution = -side * np.linalg.solve(system, side * along)
    except np.linalg.LinAlgError:
        direction[:] = 0.0
        return 0.0
    coefficients, total = np.zeros(len(products)), float(solution.sum())
    coefficients[places] = solution
    direction[:] = -gradient
    add_rows(*matrix, scale2, coefficients, direction)
    if mean is not None:
        direction -= total * mean
    return root * total - gradient_b
