"""Newton's directions of proximal steps: solutions of ``F' direction = -F``.

``F' = I + sum_i s_i x_i x_i'`` over the rows that are free, those with a slope s_i, see
`ooc_svm.solvers.streamed_smo.proximal`. Vectors are in units of the data.
"""

from __future__ import annotations

import math

import numpy as np

from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.rows import add_row, dot
from ooc_svm.solvers.streamed_smo.dual_loops import AHEAD, prefetch_row

# Of the conjugate gradients: what is left of the right hand side, and products at most.
LEFT_OF_SIDE, MOST_PRODUCTS = 0.1, 300


@compiled
def inner(first, second, scale2):  # type: ignore[no-untyped-def]
    """Inner product of two vectors in units of the data."""
    total = 0.0
    for j in range(len(first)):
        product = first[j] * second[j]
        total += product if scale2 is None else product / scale2[j]
    return total


@compiled
def _solve_symmetric(system, x):  # type: ignore[no-untyped-def]
    """Solve a symmetric system by Cholesky's method; returns whether it is positive definite.

    ``system`` (float64, shape (n, n + 1)): its upper triangle, and the right hand side; overwritten.
    ``x`` (float64, shape (n,)): the solution (out).
    """
    n = len(system)
    for i in range(n):
        row, k = system[i], 0
        # Four rows at a time: so an element is loaded and stored a fourth as often.
        while k + 4 <= i:
            first, second, third, fourth = system[k], system[k + 1], system[k + 2], system[k + 3]
            a, b, c, e = first[i], second[i], third[i], fourth[i]
            for j in range(i, n + 1):
                row[j] = row[j] - a * first[j] - b * second[j] - c * third[j] - e * fourth[j]
            k += 4
        while k < i:
            factor = system[k, i]
            for j in range(i, n + 1):
                row[j] -= factor * system[k, j]
            k += 1
        if not row[i] > 0.0:
            return False
        pivot = math.sqrt(row[i])
        for j in range(i, n + 1):
            row[j] /= pivot
    for k in range(n - 1, -1, -1):
        x[k] = system[k, n]
        for j in range(k + 1, n):
            x[k] -= system[k, j] * x[j]
        x[k] /= system[k, k]
    return True


@compiled
def forward_substitution(indptr, indices, values, side, x):  # type: ignore[no-untyped-def]
    """Solve ``L x = side`` for rows of a lower triangle L, the last element of each being on the diagonal."""
    for i in range(len(x)):
        last = indptr[i + 1] - np.uint64(1)
        x[i] = (side[i] - dot(indices, values, x, indptr[i], last)) / values[last]


@compiled
def by_system(products, scale2, mean, root, gradient, gradient_b, direction):  # type: ignore[no-untyped-def]
    """The direction by Cholesky's method, in units in which all columns are scaled; its bias' part.

    ``products`` (float64, shape (d + 1, d + 1)): see `ooc_svm.ops.rows.add_product`; of the free rows, times
        their slopes.
    """
    d = len(gradient)
    scale, center, system = np.empty(d + 1), np.empty(d + 1), np.empty((d + 1, d + 2))
    for j in range(d + 1):
        scale[j], center[j] = 1.0, 1.0 - root if j == d else 0.0
        if j < d and scale2 is not None:
            scale[j] = math.sqrt(scale2[j])
        if j < d and mean is not None:
            center[j] = mean[j] if scale2 is None else mean[j] / scale2[j]
        system[j, d + 1] = -(gradient[j] / scale[j] if j < d else gradient_b)
    # The products of the rows less their center follow from those of the rows, whose last feature is 1.
    weight, total = products[d, d], products[:, d].copy()
    for k in range(d + 1):
        for j in range(k, d + 1):
            shift = center[j] * total[k] + center[k] * total[j]
            about = products[k, j] - shift + weight * center[j] * center[k]
            system[k, j] = scale[j] * scale[k] * about
        system[k, k] += 1.0
    x = np.empty(d + 1)
    if not _solve_symmetric(system, x):
        # Rounding has made it indefinite: C or the values are huge.
        x[:] = 0.0
    for j in range(d):
        direction[j] = scale[j] * x[j]
    return x[d]


@compiled
def _curved(  # type: ignore[no-untyped-def]
    indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, along, along_b, out
):  # fmt: skip
    """``F' along``; returns the bias' part of it."""
    shift, last = root * along_b, n_free - 1
    if mean is not None:
        shift -= inner(mean, along, scale2)
    for j in range(len(out)):
        out[j] = along[j]
    total = 0.0
    for k in range(n_free):
        prefetch_row(indptr, indices, values, places[free[min(k + AHEAD, last)]])
        row = places[free[k]]
        p, end = indptr[row], indptr[row + np.uint64(1)]
        weight = slopes[free[k]] * (dot(indices, values, along, p, end) + shift)
        add_row(indices, values, scale2, out, p, end, weight)
        total += weight
    if mean is not None:
        for j in range(len(out)):
            out[j] -= total * mean[j]
    return along_b + root * total


@compiled
def by_products(  # type: ignore[no-untyped-def]
    indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, gradient, gradient_b, diagonal,
    diagonal_b, most_products, stop, direction,
):  # fmt: skip
    """Newton's direction by preconditioned conjugate gradients; its bias' part, and how many products."""
    d = len(gradient)
    residual, along, curved = np.empty(d), np.empty(d), np.empty(d)
    for j in range(d):
        direction[j], residual[j], along[j] = 0.0, -gradient[j], -gradient[j] / diagonal[j]
    direction_b, residual_b, along_b = 0.0, -gradient_b, -gradient_b / diagonal_b
    square = inner(residual, along, scale2) + residual_b * along_b
    goal = LEFT_OF_SIDE**2 * (inner(residual, residual, scale2) + residual_b * residual_b)
    n_products = 0
    while n_products < most_products and not stop[0]:
        n_products += 1
        curved_b = _curved(
            indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, along, along_b, curved
        )
        bend = inner(along, curved, scale2) + along_b * curved_b
        if not (bend > 0.0 and square > 0.0):
            break
        length = square / bend
        for j in range(d):
            direction[j] += length * along[j]
            residual[j] -= length * curved[j]
        direction_b += length * along_b
        residual_b -= length * curved_b
        if not inner(residual, residual, scale2) + residual_b * residual_b > goal:
            break
        for j in range(d):
            curved[j] = residual[j] / diagonal[j]
        rest = inner(residual, curved, scale2) + residual_b * residual_b / diagonal_b
        for j in range(d):
            along[j] = curved[j] + rest / square * along[j]
        along_b = residual_b / diagonal_b + rest / square * along_b
        square = rest
    return direction_b, n_products


@compiled
def _find_free(indptr, places, slopes, free):  # type: ignore[no-untyped-def]
    """The rows that have a slope; fills their numbers in. Returns how many they are, and their elements."""
    n = elements = 0
    for i in range(len(slopes)):
        if slopes[i] > 0.0:
            free[n] = i
            n += 1
            elements += int(indptr[places[i] + np.uint64(1)] - indptr[places[i]])
    return n, elements


@compiled
def newton_direction(  # type: ignore[no-untyped-def]
    indptr, indices, values, places, scale2, mean, root, slopes, free, gradient, gradient_b, products,
    diagonal, weights, budget, system_cost, stop, direction
):  # fmt: skip
    """Newton's direction; its bias' part, and how many rows and elements were looked at for it.

    Then how many rows are free, and the elements that a dense system is worth, if products have taken as long
    as that would and found no direction; else 0.

    ``slopes`` (float64), ``free`` (int64), of shape (m,): s, and room for the numbers of the free rows.
    ``products``: those of the free rows, see `by_system`; or else ``diagonal``, shape (d,): that of F'
        without the identity and the mean, ``weights`` being the sum of the slopes. The other is empty.
    ``budget``: nonzeros and rows after which no further product is begun.
    ``system_cost``: see `ooc_svm.solvers.streamed_smo.dense_system.system_cost`.
    """
    if len(products) > 0:
        return by_system(products, scale2, mean, root, gradient, gradient_b, direction), 0, 0, 0, 0.0
    n_free, elements = _find_free(indptr, places, slopes, free)
    conditioner = np.empty(len(diagonal))
    for j in range(len(diagonal)):
        square = 0.0 if mean is None else mean[j] * mean[j] / (1.0 if scale2 is None else scale2[j])
        conditioner[j] = max(1.0 + diagonal[j] + weights * square, 1.0)
    each = elements + n_free + 1
    most = min(budget // each + 1, MOST_PRODUCTS)
    once, each_row, each_element, each_three = system_cost
    worth = once + each_row * n_free + each_element * elements + each_three * np.float64(n_free) ** 3
    allowed = int(min(worth / each, np.float64(most)))
    own_b, n_products = by_products(
        indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, gradient, gradient_b,
        conditioner, 1.0 + root * root * weights, allowed, stop, direction,
    )  # fmt: skip
    worth = worth if n_products == allowed < most else 0.0
    return own_b, n_products * n_free, n_products * elements, n_free, worth
