"""A proximal step of the resident rows: all multipliers at once, by Newton's method.

The proximal point method goes from the multipliers v to those that maximise

    D(v') - 1/2 sum_i mu_i (v'_i - v_i)^2,        mu_i = mu / c_i

and is the method of multipliers of the primal problem (Rockafellar 1976). With u for the change of w, each
v'_i is the dual step of its row alone, at the residual ``r_i - x_i.u`` and with the curvature mu_i. So u is
where the gradient of a convex function is 0,

    F(u) = u - sum_i (v'_i(u) - v_i) x_i,         F'(u) = I + sum_i s_i x_i x_i'

with the slopes s_i of v'_i in its residual. F is piecewise linear or smooth: Newton's steps, each to the
lowest point along its line, are few and end exactly. With few columns their directions come from F' itself,
else from the conjugate gradient method. Rows at a bound have no slope, so that both look at free ones alone.

A bias and a mean row are those of `ooc_svm.solvers.streamed_smo.dual_loops`: rows are ``x_i - m`` with a
feature of value ``sqrt(rho - |m|^2)`` more. Vectors are in units of the data; the weight of that feature is
kept apart, as ``.._b``.
"""

from __future__ import annotations

import math

import numpy as np

from ooc_svm.losses.functions import bounds, dual_step, parabola, step_slope
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.rows import add_product, add_row, dot
from ooc_svm.solvers.streamed_smo.dual_loops import (
    AHEAD,
    CHANGES,
    ELEMENTS,
    RHO,
    ROWS,
    TOTAL,
    B,
    count_changes,
    prefetch_row,
)

# Columns up to which F' is put together: a row of 14 nonzeros takes the time of five products with it. And up
# to which there are proximal steps: with many columns rows are less alike, and sweeps come to an end soon.
MOST_DIRECT, MOST_COLUMNS = 256, 4096
# Of Newton's method: steps at most; what is left of F when it ends; what is left of the gradient when the
# search along a line ends, and points that it tries at most.
MOST_STEPS, LEFT = 25, 1e-4
LEFT_ALONG, MOST_TRIED = 0.2, 20
# Of the conjugate gradients: what is left of the right hand side, and products at most.
LEFT_OF_SIDE, MOST_PRODUCTS = 0.1, 300
# A slope of D that is less than this share of its terms may be rounding.
ROUNDING = 1e-9


@compiled
def _inner(first, second, scale2):  # type: ignore[no-untyped-def]
    """Inner product of two vectors in units of the data."""
    total = 0.0
    for j in range(len(first)):
        product = first[j] * second[j]
        total += product if scale2 is None else product / scale2[j]
    return total


@inlined
def _moved(loss, v, r, t, c, mu):  # type: ignore[no-untyped-def]
    """The multiplier that v goes to, at a residual."""
    return dual_step(loss, v, r, t, c, mu / c) if c > 0.0 else v


@compiled
def _gradient(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, places, scale2, mean, root, targets, dual, mu, residual, u, u_b,
    free, slopes, gradient, diagonal
):  # fmt: skip
    """F and the diagonal of F' at u, unless that is empty, and the free rows with their slopes.

    Returns the bias' parts of both, the number of free rows, and those of rows and elements looked at.
    """
    n = rows = elements = 0
    changes = weights = 0.0
    with_diagonal = len(diagonal) > 0
    for j in range(len(u)):
        gradient[j] = u[j]
        if with_diagonal:
            diagonal[j] = 1.0
    for i in range(len(dual)):
        t, c = targets[i, 0], targets[i, 1]
        new = _moved(loss, dual[i], residual[i], t, c, mu)
        slope = step_slope(loss, new, t, c, mu / c) if c > 0.0 else 0.0
        change = new - dual[i]
        if change == 0.0 and slope == 0.0:
            continue
        p, end = indptr[places[i]], indptr[places[i] + np.uint64(1)]
        rows += 1
        elements += int(end - p)
        add_row(indices, values, scale2, gradient, p, end, -change)
        changes += change
        if slope > 0.0:
            free[n], slopes[n] = i, slope
            n += 1
            weights += slope
            while with_diagonal and p < end:
                j = indices[p]
                x = 1.0 if values is None else np.float64(values[p])
                square = x * x * (1.0 if scale2 is None else scale2[j])
                diagonal[j] += slope * (square if mean is None else square - 2.0 * x * mean[j])
                p += np.uint64(1)
    if mean is not None:
        for j in range(len(gradient)):
            gradient[j] += changes * mean[j]
            if with_diagonal:
                square = mean[j] * mean[j] / (1.0 if scale2 is None else scale2[j])
                diagonal[j] = max(diagonal[j] + weights * square, 1.0)
    return u_b - root * changes, 1.0 + root * root * weights, n, rows, elements


@compiled
def _curved(  # type: ignore[no-untyped-def]
    indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, along, along_b, out
):  # fmt: skip
    """``F' along``; returns the bias' part of it."""
    shift, last = root * along_b, n_free - 1
    if mean is not None:
        shift -= _inner(mean, along, scale2)
    for j in range(len(out)):
        out[j] = along[j]
    total = 0.0
    for k in range(n_free):
        prefetch_row(indptr, indices, values, places[free[min(k + AHEAD, last)]])
        row = places[free[k]]
        p, end = indptr[row], indptr[row + np.uint64(1)]
        weight = slopes[k] * (dot(indices, values, along, p, end) + shift)
        add_row(indices, values, scale2, out, p, end, weight)
        total += weight
    if mean is not None:
        for j in range(len(out)):
            out[j] -= total * mean[j]
    return along_b + root * total


@compiled
def _by_system(  # type: ignore[no-untyped-def]
    indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, gradient, gradient_b, direction
):  # fmt: skip
    """Newton's direction by Cholesky's method, in units in which all columns are scaled; its bias' part."""
    d = len(gradient)
    A = np.empty((d + 1, d + 1))
    for j in range(d + 1):
        for k in range(d + 1):
            A[j, k] = 0.0
    for k in range(n_free):
        row = places[free[k]]
        add_product(indices, values, indptr[row], indptr[row + np.uint64(1)], slopes[k], A)
    scale, center, sums = np.empty(d + 1), np.empty(d + 1), np.empty(d + 1)
    for j in range(d + 1):
        scale[j], center[j], sums[j] = 1.0, 1.0 - root if j == d else 0.0, A[j, d]
        if j < d and scale2 is not None:
            scale[j] = math.sqrt(scale2[j])
        if j < d and mean is not None:
            center[j] = mean[j] if scale2 is None else mean[j] / scale2[j]
    # The products of the rows less their center follow from those of the rows, whose last feature is 1.
    weight, x = A[d, d], np.empty(d + 1)
    for j in range(d + 1):
        x[j] = -(gradient[j] / scale[j] if j < d else gradient_b)
        for k in range(j + 1):
            about = A[k, j] - center[j] * sums[k] - center[k] * sums[j] + weight * center[j] * center[k]
            A[j, k] = scale[j] * scale[k] * about
        A[j, j] += 1.0
    for j in range(d + 1):
        for k in range(j + 1):
            rest = A[j, k]
            for i in range(k):
                rest -= A[j, i] * A[k, i]
            if k == j and not rest > 0.0:
                # Rounding has made it indefinite: C or the values are huge.
                for i in range(d):
                    direction[i] = 0.0
                return 0.0
            A[j, k] = rest / A[k, k] if k < j else math.sqrt(rest)
        for k in range(j):
            x[j] -= A[j, k] * x[k]
        x[j] /= A[j, j]
    for j in range(d, -1, -1):
        x[j] /= A[j, j]
        for k in range(j):
            x[k] -= A[j, k] * x[j]
    for j in range(d):
        direction[j] = scale[j] * x[j]
    return x[d]


@compiled
def _by_products(  # type: ignore[no-untyped-def]
    indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, gradient, gradient_b, diagonal,
    diagonal_b, most_products, stop, direction,
):  # fmt: skip
    """Newton's direction by preconditioned conjugate gradients; its bias' part, and how many products."""
    d = len(gradient)
    left, along, curved = np.empty(d), np.empty(d), np.empty(d)
    for j in range(d):
        direction[j], left[j], along[j] = 0.0, -gradient[j], -gradient[j] / diagonal[j]
    direction_b, left_b, along_b = 0.0, -gradient_b, -gradient_b / diagonal_b
    square = _inner(left, along, scale2) + left_b * along_b
    goal = LEFT_OF_SIDE**2 * (_inner(left, left, scale2) + left_b * left_b)
    n_products = 0
    while n_products < most_products and not stop[0]:
        n_products += 1
        curved_b = _curved(
            indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, along, along_b, curved
        )
        bend = _inner(along, curved, scale2) + along_b * curved_b
        if not (bend > 0.0 and square > 0.0):
            break
        length = square / bend
        for j in range(d):
            direction[j] += length * along[j]
            left[j] -= length * curved[j]
        direction_b += length * along_b
        left_b -= length * curved_b
        if not _inner(left, left, scale2) + left_b * left_b > goal:
            break
        for j in range(d):
            curved[j] = left[j] / diagonal[j]
        rest = _inner(left, curved, scale2) + left_b * left_b / diagonal_b
        for j in range(d):
            along[j] = curved[j] + rest / square * along[j]
        along_b = left_b / diagonal_b + rest / square * along_b
        square = rest
    return direction_b, n_products


@compiled
def _slope_along(loss, targets, dual, mu, residual, product, theta):  # type: ignore[no-untyped-def]
    """What the rows add to the derivative of the convex function along a line, at a point of it."""
    total = 0.0
    for i in range(len(dual)):
        t, c = targets[i, 0], targets[i, 1]
        total -= product[i] * (_moved(loss, dual[i], residual[i] - theta * product[i], t, c, mu) - dual[i])
    return total


@compiled
def _lowest(loss, targets, dual, mu, residual, product, began, first, second):  # type: ignore[no-untyped-def]
    """Where in [0, 1] the function is lowest along a line.

    Its derivative is ``began`` at 0; what u itself adds to it is ``first + theta second``.
    """
    if not began < 0.0:
        return 0.0
    near, far, at_near = 0.0, 1.0, began
    at_far = first + second + _slope_along(loss, targets, dual, mu, residual, product, far)
    theta, here, side = far, at_far, 0
    for _ in range(MOST_TRIED):
        if not (here > -LEFT_ALONG * began or (theta < 1.0 and here < LEFT_ALONG * began)):
            break
        # Regula falsi; an end that stays counts half (the Illinois method).
        theta = near + (far - near) * min(max(at_near / (at_near - at_far), 0.05), 0.95)
        here = first + theta * second + _slope_along(loss, targets, dual, mu, residual, product, theta)
        if here > 0.0:
            far, at_far = theta, here
            at_near, side = 0.5 * at_near if side > 0 else at_near, 1
        else:
            near, at_near = theta, here
            at_far, side = 0.5 * at_far if side < 0 else at_far, -1
    return theta


@compiled
def proximal_step(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, places, squares, moments, mean, scale2, w, bias, targets, dual, mu,
    most_elements, stop, sums
):  # fmt: skip
    """Move all multipliers towards those of the proximal step, as far along as D grows; w and b follow.

    Returns the sum of the norms of what rows add to w, which it may have been longer by on the way.

    ``mean`` (float64, shape (n_features,)): the mean row, ``moments`` its products with the rows; or None.
    ``mu``: how firmly the multipliers are held where they are, as a multiple of 1 / c.
    ``most_elements``: nonzeros and rows after which no direction is looked for.
    The other arguments are those of `ooc_svm.solvers.streamed_smo.dual_loops.solve`.
    """
    m, d = len(dual), len(w)
    b, rho, total = bias[B], bias[RHO], bias[TOTAL]
    root = math.sqrt(max(rho if mean is None else rho - _inner(mean, mean, scale2), 0.0))
    residual, product, slopes = np.empty(m), np.empty(m), np.empty(m)
    free, before, began = np.empty(m, np.int64), dual.copy(), np.empty(m)
    rows = elements = 0
    for i in range(m):
        p, end = indptr[places[i]], indptr[places[i] + np.uint64(1)]
        residual[i] = targets[i, 0] - dot(indices, values, w, p, end) - b
        if moments is not None:
            residual[i] += total * moments[i]
        began[i] = residual[i]
        rows += 1
        elements += int(end - p)
    all_rows, all_elements = rows, elements
    u, gradient, direction = np.empty(d), np.empty(d), np.empty(d)
    for j in range(d):
        u[j] = 0.0
    diagonal = np.empty(d if d > MOST_DIRECT else 0)
    u_b, goal = 0.0, -1.0
    for step in range(MOST_STEPS + 1):
        gradient_b, diagonal_b, n_free, own_rows, own_elements = _gradient(
            loss, indptr, indices, values, places, scale2, mean, root, targets, dual, mu, residual, u, u_b,
            free, slopes, gradient, diagonal,
        )  # fmt: skip
        rows, elements = rows + own_rows, elements + own_elements
        size = math.sqrt(_inner(gradient, gradient, scale2) + gradient_b * gradient_b)
        if goal < 0.0:
            goal = LEFT * size
        if not size > goal or step == MOST_STEPS or elements + rows >= most_elements:
            break
        free_elements = pairs = 0
        for k in range(n_free):
            size_of_row = int(indptr[places[free[k]] + np.uint64(1)] - indptr[places[free[k]]])
            free_elements += size_of_row
            pairs += size_of_row * size_of_row // 4  # Four pairs take the time of one element.
        if d <= MOST_DIRECT:
            direction_b = _by_system(
                indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, gradient,
                gradient_b, direction,
            )  # fmt: skip
            rows, elements = rows + n_free, elements + pairs
        else:
            left = (most_elements - elements - rows) // (free_elements + n_free + 1) + 1
            direction_b, n_products = _by_products(
                indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, gradient,
                gradient_b, diagonal, diagonal_b, min(left, MOST_PRODUCTS), stop, direction,
            )  # fmt: skip
            rows, elements = rows + n_products * n_free, elements + n_products * free_elements
        if stop[0]:
            return 0.0
        shift = root * direction_b
        if mean is not None:
            shift -= _inner(mean, direction, scale2)
        for i in range(m):
            p, end = indptr[places[i]], indptr[places[i] + np.uint64(1)]
            product[i] = dot(indices, values, direction, p, end) + shift
        rows, elements = rows + all_rows, elements + all_elements
        first = _inner(u, direction, scale2) + u_b * direction_b
        second = _inner(direction, direction, scale2) + direction_b * direction_b
        at_0 = _inner(gradient, direction, scale2) + gradient_b * direction_b
        theta = _lowest(loss, targets, dual, mu, residual, product, at_0, first, second)
        if theta == 0.0:
            break
        for j in range(d):
            u[j] += theta * direction[j]
        u_b += theta * direction_b
        for i in range(m):
            residual[i] -= theta * product[i]
    # D along the change of the multipliers, from the residuals where it began.
    for j in range(d):
        gradient[j] = u[j] - gradient[j]
    change_b = u_b - gradient_b
    slope, terms, bend = 0.0, 0.0, _inner(gradient, gradient, scale2) + change_b * change_b
    for i in range(m):
        t, c = targets[i, 0], targets[i, 1]
        product[i] = _moved(loss, dual[i], residual[i], t, c, mu)
        if product[i] != dual[i]:
            linear, quadratic = parabola(loss, dual[i], product[i], t, c)
            along = (began[i] - t) * (product[i] - dual[i])
            slope += linear + along
            terms += abs(linear) + abs(along)
            bend += quadratic
    theta = min(slope / bend, 1.0) if bend > 0.0 else (1.0 if bend == 0.0 else 0.0)
    sums[ROWS] += rows
    sums[ELEMENTS] += elements
    if not (theta > 0.0 and slope > ROUNDING * terms):
        return 0.0
    longer = 0.0
    for i in range(m):
        low, high = bounds(loss, targets[i, 0], targets[i, 1])
        new = min(max(dual[i] + theta * (product[i] - dual[i]), low), high)
        change = new - dual[i]
        if change != 0.0:
            p, end = indptr[places[i]], indptr[places[i] + np.uint64(1)]
            add_row(indices, values, scale2, w, p, end, change)
            longer += abs(change) * math.sqrt(squares[places[i]])
            b += (rho - (0.0 if moments is None else moments[i])) * change
            total += change
            dual[i] = new
            sums[CHANGES] += 1
    bias[B], bias[TOTAL] = b, total
    count_changes(loss, before, dual, targets, sums)
    return longer
