"""Loops of a proximal step over some of its rows, see `ooc_svm.solvers.streamed_smo.proximal`.

Each row's multiplier v' is monotone along a line: where it is the same at both ends, it is in between. So F,
F' and the search follow from one step to the next with the other rows alone, which soon are few.
"""

from __future__ import annotations

import math

import numpy as np

from ooc_svm.losses.functions import bounds, dual_step, parabola, step_slope
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.rows import add_product, add_row, row_scores
from ooc_svm.solvers.streamed_smo.dual_loops import AHEAD, CHANGES, count_changes, prefetch_row


@inlined
def _moved(loss, v, r, t, c, mu):  # type: ignore[no-untyped-def]
    """The multiplier that v goes to, at a residual."""
    return dual_step(loss, v, r, t, c, mu / c) if c > 0.0 else v


@compiled
def follow(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, places, scale2, mean, targets, dual, mu, residual, product, theta,
    n_moving, moving, moved, slopes, added, products, diagonal
):  # fmt: skip
    """Go to a point of a line, and move some rows to where they are there, with what follows from them.

    ``residual`` (float64, shape (m,)): less ``theta`` times ``product`` from here on.
    ``moving`` (int64, shape (m,)): numbers of those rows, of which the first ``n_moving`` count.
    ``moved``, ``slopes`` (float64, shape (m,)): v' and s.
    ``added`` (float64, shape (d,)): ``sum_i (v'_i - v_i) x_i``.
    ``products``: of `newton_loops.by_system`, or ``diagonal``, shape (d,): those of F' without the identity
        and the mean; the other is empty.

    Returns the sums of their changes of v' and s, and how many rows and elements were looked at.
    """
    for i in range(len(residual)):
        residual[i] -= theta * product[i]
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
def slope_along(loss, targets, dual, mu, residual, product, n_moving, moving, theta):  # type: ignore[no-untyped-def]
    """What some rows add to the derivative of the convex function along a line, at a point of it."""
    total = 0.0
    for k in range(n_moving):
        i = moving[k]
        t, c = targets[i, 0], targets[i, 1]
        total -= product[i] * (_moved(loss, dual[i], residual[i] - theta * product[i], t, c, mu) - dual[i])
    return total


@compiled
def scores_along(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, places, direction, shift, targets, dual, mu, residual, product, moved,
    moving
):  # fmt: skip
    """The rows' products with a direction (out), and what `_find_moving` finds."""
    row_scores(indptr, indices, values, places, direction, product)
    for i in range(len(product)):
        product[i] += shift
    return _find_moving(loss, targets, dual, mu, residual, product, moved, moving)


@compiled
def gain_along(loss, targets, dual, moved, began):  # type: ignore[no-untyped-def]
    """What rows add to D along the change of their multipliers: its slope, the terms of that, its curvature.

    ``began`` (float64, shape (m,)): residuals where it begins.
    """
    slope = terms = bend = 0.0
    for i in range(len(dual)):
        if moved[i] != dual[i]:
            t, c = targets[i, 0], targets[i, 1]
            linear, quadratic = parabola(loss, dual[i], moved[i], t, c)
            along = (began[i] - t) * (moved[i] - dual[i])
            slope += linear + along
            terms += abs(linear) + abs(along)
            bend += quadratic
    return slope, terms, bend


@compiled
def go(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, places, squares, moments, scale2, rho, theta, targets, dual, moved, before,
    added, sums
):  # fmt: skip
    """Move the multipliers by a share of the way, inside their bounds.

    ``before`` (float64, shape (m,)): where they were (out).
    ``added`` (float64, shape (d,)): what they add to the weights (added to).
    ``sums``: as in `ooc_svm.solvers.streamed_smo.dual_loops.solve`.

    Returns what they add to b and to the sum of the multipliers, and the sum of the norms in ``added``.
    """
    b = total = longer = 0.0
    for i in range(len(dual)):
        before[i] = dual[i]
        low, high = bounds(loss, targets[i, 0], targets[i, 1])
        new = min(max(dual[i] + theta * (moved[i] - dual[i]), low), high)
        change = new - dual[i]
        if change != 0.0:
            p, end = indptr[places[i]], indptr[places[i] + np.uint64(1)]
            add_row(indices, values, scale2, added, p, end, change)
            longer += abs(change) * math.sqrt(squares[places[i]])
            b += (rho - (0.0 if moments is None else moments[i])) * change
            total += change
            dual[i] = new
            sums[CHANGES] += 1
    count_changes(loss, before, dual, targets, sums)
    return b, total, longer
