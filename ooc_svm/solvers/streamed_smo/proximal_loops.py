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

v'_i is monotone along a line: where it is the same at both ends, it is in between. So F, F' and the search
follow from one step to the next with the other rows alone, which soon are few.

A bias and a mean row are those of `ooc_svm.solvers.streamed_smo.dual_loops`: rows are ``x_i - m`` with a
feature of value ``sqrt(rho - |m|^2)`` more. Vectors are in units of the data; the weight of that feature is
kept apart, as ``.._b``.
"""

from __future__ import annotations

import math

import numpy as np

from ooc_svm.losses.functions import bounds, dual_step, parabola, step_slope
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.rows import add_product, add_row, row_scores
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
    residuals,
)
from ooc_svm.solvers.streamed_smo.newton_loops import MOST_PRODUCTS, by_products, by_system, inner

# Columns up to which F' is put together: a row of 14 nonzeros takes the time of five products with it. And up
# to which there are proximal steps: with many columns rows are less alike, and sweeps come to an end soon.
MOST_DIRECT, MOST_COLUMNS = 256, 4096
# Of Newton's method: steps at most; what is left of F when it ends; what is left of the gradient when the
# search along a line ends, and points that it tries at most.
MOST_STEPS, LEFT = 25, 1e-4
LEFT_ALONG, MOST_TRIED = 0.1, 20
# A slope of D that is less than this share of its terms may be rounding.
ROUNDING = 1e-9


@inlined
def _moved(loss, v, r, t, c, mu):  # type: ignore[no-untyped-def]
    """The multiplier that v goes to, at a residual."""
    return dual_step(loss, v, r, t, c, mu / c) if c > 0.0 else v


@compiled
def _follow(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, places, scale2, mean, targets, dual, mu, residual, n_moving, moving,
    moved, slopes, added, products, diagonal
):  # fmt: skip
    """Move some rows to where they are at their residuals, with what follows from them.

    ``moving`` (int64, shape (m,)): their numbers, of which the first ``n_moving`` count.
    ``moved``, ``slopes`` (float64, shape (m,)): v' and s.
    ``added`` (float64, shape (d,)): ``sum_i (v'_i - v_i) x_i``.
    ``products``: of `newton_loops.by_system`, or ``diagonal``, shape (d,): those of F' without the identity
        and the mean; the other is empty.

    Returns the sums of their changes of v' and s, and how many rows and elements were looked at.
    """
    changes = weights = 0.0
    rows = elements = 0
    last = n_moving - 1
    for k in range(n_moving):
        prefetch_row(indptr, indices, values, places[moving[min(k + AHEAD, last)]])
        i = moving[k]
        t, c = targets[i, 0], targets[i, 1]
        new = _moved(loss, dual[i], residual[i], t, c, mu)
        slope = step_slope(loss, new, t, c, mu / c) if c > 0.0 else 0.0
        change, bend = new - moved[i], slope - slopes[i]
        moved[i], slopes[i] = new, slope
        p, end = indptr[places[i]], indptr[places[i] + np.uint64(1)]
        # Counted whether or not it moves here, which may be a matter of rounding; the work is not.
        rows, elements = rows + 1, elements + int(end - p)
        if change != 0.0:
            add_row(indices, values, scale2, added, p, end, change)
            changes += change
        if bend != 0.0:
            weights += bend
            if len(products) > 0:
                add_product(indices, values, p, end, bend, products)
                elements += int(end - p) ** 2 // 4  # Four pairs take the time of one element.
            else:
                _add_diagonal(indices, values, scale2, mean, p, end, bend, diagonal)
    return changes, weights, rows, elements


@inlined
def _add_diagonal(indices, values, scale2, mean, p, end, weight, out):  # type: ignore[no-untyped-def]
    """Add a row's part of the diagonal of F', but for the square of the mean."""
    while p < end:
        j = indices[p]
        x = 1.0 if values is None else np.float64(values[p])
        square = x * x if scale2 is None else x * x * scale2[j]
        out[j] += weight * (square if mean is None else square - 2.0 * x * mean[j])
        p += np.uint64(1)


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
def _find_moving(loss, targets, dual, mu, residual, product, moved, moving):  # type: ignore[no-untyped-def]
    """The rows whose v' changes on the way to the end of a line; fills their numbers in.

    Returns how many they are, and what the other rows and all of them add to the slope at the end.
    """
    n, others, total = 0, 0.0, 0.0
    for i in range(len(dual)):
        t, c = targets[i, 0], targets[i, 1]
        new = _moved(loss, dual[i], residual[i] - product[i], t, c, mu)
        moves, added = new != moved[i], product[i] * (new - dual[i])
        # Without a branch, which would often be guessed wrong.
        moving[n] = i
        n += moves
        total -= added
        others -= 0.0 if moves else added
    return n, others, total


@compiled
def _slope_along(loss, targets, dual, mu, residual, product, n_moving, moving, theta):  # type: ignore[no-untyped-def]
    """What some rows add to the derivative of the convex function along a line, at a point of it."""
    total = 0.0
    for k in range(n_moving):
        i = moving[k]
        t, c = targets[i, 0], targets[i, 1]
        total -= product[i] * (_moved(loss, dual[i], residual[i] - theta * product[i], t, c, mu) - dual[i])
    return total


@compiled
def _lowest(  # type: ignore[no-untyped-def]
    loss, targets, dual, mu, residual, product, moved, moving, began, first, second
):  # fmt: skip
    """Where in [0, 1] the function is lowest along a line, and the rows that move on it.

    Its derivative is ``began`` at 0; what u itself adds to it is ``first + theta second``.
    """
    n, others, total = _find_moving(loss, targets, dual, mu, residual, product, moved, moving)
    if not began < 0.0:
        return 0.0, n
    near, far, at_near, at_far = 0.0, 1.0, began, first + second + total
    theta, here, side = far, at_far, 0
    for _ in range(MOST_TRIED):
        if not (here > -LEFT_ALONG * began or (theta < 1.0 and here < LEFT_ALONG * began)):
            break
        # Regula falsi; an end that stays counts half (the Illinois method).
        theta = near + (far - near) * min(max(at_near / (at_near - at_far), 0.05), 0.95)
        own = _slope_along(loss, targets, dual, mu, residual, product, n, moving, theta)
        here = first + theta * second + others + own
        if here > 0.0:
            far, at_far = theta, here
            at_near, side = 0.5 * at_near if side > 0 else at_near, 1
        else:
            near, at_near = theta, here
            at_far, side = 0.5 * at_far if side < 0 else at_far, -1
    return theta, n


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
    rho, direct = bias[RHO], d <= MOST_DIRECT
    root = math.sqrt(max(rho if mean is None else rho - inner(mean, mean, scale2), 0.0))
    residual, product, slopes = np.empty(m), np.empty(m), np.zeros(m)
    moved, moving = dual.copy(), np.arange(m)
    residuals(indptr, indices, values, places, moments, w, bias, targets, residual)
    began, all_elements = residual.copy(), 0
    for i in range(m):
        all_elements += int(indptr[places[i] + np.uint64(1)] - indptr[places[i]])
    rows, elements = m, all_elements
    u, added, gradient, direction = np.zeros(d), np.zeros(d), np.empty(d), np.empty(d)
    n_system, n_diagonal = (d + 1, 0) if direct else (0, d)
    products, system = np.zeros((n_system, n_system)), np.empty((n_system, n_system))
    diagonal, conditioner = np.zeros(n_diagonal), np.empty(n_diagonal)
    free = np.empty(0 if direct else m, np.int64)
    u_b, changes, weights, goal, n_moving = 0.0, 0.0, 0.0, -1.0, m
    for step in range(MOST_STEPS + 1):
        own_changes, own_weights, own_rows, own_elements = _follow(
            loss, indptr, indices, values, places, scale2, mean, targets, dual, mu, residual, n_moving,
            moving, moved, slopes, added, products, diagonal,
        )  # fmt: skip
        changes, weights = changes + own_changes, weights + own_weights
        rows, elements = rows + own_rows, elements + own_elements
        for j in range(d):
            gradient[j] = u[j] - added[j] + (0.0 if mean is None else changes * mean[j])
        gradient_b = u_b - root * changes
        size = math.sqrt(inner(gradient, gradient, scale2) + gradient_b * gradient_b)
        if goal < 0.0:
            goal = LEFT * size
        if not size > goal or step == MOST_STEPS or elements + rows >= most_elements:
            break
        if direct:
            direction_b = by_system(products, system, scale2, mean, root, gradient, gradient_b, direction)
        else:
            n_free, free_elements = _find_free(indptr, places, slopes, free)
            for j in range(d):
                square = 0.0 if mean is None else mean[j] * mean[j] / (1.0 if scale2 is None else scale2[j])
                conditioner[j] = max(1.0 + diagonal[j] + weights * square, 1.0)
            left = (most_elements - elements - rows) // (free_elements + n_free + 1) + 1
            direction_b, n_products = by_products(
                indptr, indices, values, places, scale2, mean, root, n_free, free, slopes, gradient,
                gradient_b, conditioner, 1.0 + root * root * weights, min(left, MOST_PRODUCTS), stop,
                direction,
            )  # fmt: skip
            rows, elements = rows + n_products * n_free, elements + n_products * free_elements
        if stop[0]:
            return 0.0
        shift = root * direction_b
        if mean is not None:
            shift -= inner(mean, direction, scale2)
        row_scores(indptr, indices, values, places, direction, product)
        for i in range(m):
            product[i] += shift
        rows, elements = rows + m, elements + all_elements
        first = inner(u, direction, scale2) + u_b * direction_b
        second = inner(direction, direction, scale2) + direction_b * direction_b
        at_0 = inner(gradient, direction, scale2) + gradient_b * direction_b
        theta, n_moving = _lowest(
            loss, targets, dual, mu, residual, product, moved, moving, at_0, first, second
        )  # fmt: skip
        if theta == 0.0:
            break
        for j in range(d):
            u[j] += theta * direction[j]
        u_b += theta * direction_b
        for i in range(m):
            residual[i] -= theta * product[i]
    # D along the change of the multipliers, from the residuals where it began.
    for j in range(d):
        direction[j] = added[j] - (0.0 if mean is None else changes * mean[j])
    slope, terms, bend = 0.0, 0.0, inner(direction, direction, scale2) + (root * changes) ** 2
    for i in range(m):
        if moved[i] != dual[i]:
            t, c = targets[i, 0], targets[i, 1]
            linear, quadratic = parabola(loss, dual[i], moved[i], t, c)
            along = (began[i] - t) * (moved[i] - dual[i])
            slope += linear + along
            terms += abs(linear) + abs(along)
            bend += quadratic
    theta = min(slope / bend, 1.0) if bend > 0.0 else (1.0 if bend == 0.0 else 0.0)
    sums[ROWS] += rows
    sums[ELEMENTS] += elements
    if not (theta > 0.0 and slope > ROUNDING * terms):
        return 0.0
    b, total, longer, before = bias[B], bias[TOTAL], 0.0, product
    for i in range(m):
        before[i] = dual[i]
        low, high = bounds(loss, targets[i, 0], targets[i, 1])
        new = min(max(dual[i] + theta * (moved[i] - dual[i]), low), high)
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
