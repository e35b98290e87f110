"""Losses that are sums over rows, on scores: cuts, and the loss along a segment of a piecewise linear one.

With the target t and the weight omega of a row as its cost (`ooc_svm.losses.functions`), its loss at the
scores has the tangent ``g (t - s) - l*(g)``, g its slope there. Along the segment from scores b to scores s a
piecewise linear loss is ``omega max(0, c - tau d)``, c the slack at b above the loss's breakpoint and
``d = t (s - b)``, tau >= 0. It is active (the row loses something) from 0 to ``tau = c / d`` if c and d are
positive, from there on if both are negative. Breakpoints are counted in bins of
``u = tau / (1 + tau) = c / (c + d)``, which lies between 0 and 1.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.losses.functions import breakpoint, conjugate, slope, value
from ooc_svm.ops.compiled import compiled


@compiled
def cut(loss, scores, targets, weights, row_number, coefficients, sums):  # type: ignore[no-untyped-def]
    """Subgradient of the loss at the scores (Joachims 2006, Algorithm 1, line 6).

    ``scores``, ``targets``, ``weights``: float64, shape (rows,).
    ``row_number``: number of the first row in the whole data.
    ``coefficients`` (float64, shape (1, rows)): gets the slope of the loss, 0 where there is no loss.
    ``sums`` (float64, shape (4, groups)): the loss, the cut's offset, the sum of the coefficients and the
        number of rows with a loss are added, in the row's group.
    """
    groups, kink = sums.shape[1], breakpoint(loss)
    for i in range(len(scores)):
        t, weight = targets[i], weights[i]
        r = t - scores[i]
        coefficients[0, i] = 0.0
        if t * r > kink:
            g = slope(loss, r, t, weight)
            coefficients[0, i] = g
            group = (row_number + i) % groups
            sums[0, group] += value(loss, r, t, weight)
            sums[1, group] += g * t - conjugate(loss, g, t, weight)
            sums[2, group] += g
            if weight > 0.0:
                sums[3, group] += 1.0


@compiled
def add_event(c, d, omega, low, per_unit, bins):  # type: ignore[no-untyped-def]
    """Count a row's breakpoint, if it has one in the bins, with what it changes in the active sums."""
    if (c > 0.0 and d > 0.0) or (c < 0.0 and d < 0.0):
        place = (c / (c + d) - low) * per_unit
        if 0.0 <= place < bins.shape[1]:
            q = np.int64(place)
            direction = -omega if d > 0.0 else omega
            bins[0, q] += 1.0
            bins[1, q] += direction * c
            bins[2, q] += direction * d


@compiled
def trial_cuts(  # type: ignore[no-untyped-def]
    loss, scores, best, previous, step, thetas, targets, weights, row_number, coefficients, cuts, base, bins
):  # fmt: skip
    """Move the best point, cut at trial points of the next segment, and prepare its line search.

    ``best`` becomes ``best + step (previous - best)`` and ``previous`` becomes ``scores``; the cuts are taken
    at ``best + theta (scores - best)``.

    ``scores``, ``best``, ``previous``, ``targets``, ``weights``: float64, shape (rows,).
    ``thetas``: float64, shape (width,).
    ``coefficients``: float64, shape (width, rows).
    ``cuts`` (float64, shape (2, width, groups)): each cut's offset and the sum of its coefficients are added.
    ``base`` (float64, shape (3,)): the loss at the best point and the sums of c and d over the rows active
        right behind it are added.
    ``bins`` (float64, shape (3, n_bins)): number of breakpoints, and changes of the active sums of c and d,
        by bins of u.
    """
    groups, n_bins, kink = cuts.shape[2], bins.shape[1], breakpoint(loss)
    for i in range(len(scores)):
        b = best[i] + step * (previous[i] - best[i])
        s = scores[i]
        best[i] = b
        previous[i] = s
        t, omega = targets[i], weights[i]
        group = (row_number + i) % groups
        for k in range(len(thetas)):
            coefficients[k, i] = 0.0
            r = t - (b + thetas[k] * (s - b))
            if t * r > kink:
                g = slope(loss, r, t, omega)
                coefficients[k, i] = g
                cuts[0, k, group] += g * t - conjugate(loss, g, t, omega)
                cuts[1, k, group] += g
        c, d = t * (t - b) - kink, t * (s - b)
        if c > 0.0:
            base[0] += omega * c
        if c > 0.0 or (c == 0.0 and d < 0.0):
            base[1] += omega * c
            base[2] += omega * d
        add_event(c, d, omega, 0.0, n_bins, bins)


@compiled
def ends_of_losses(coefficients):  # type: ignore[no-untyped-def]
    """Where on a ray rows have a loss: up to a place, or from a place on.

    ``coefficients`` (float64, shape (places, rows)): of each row in the cut of each place: 0, or its own.
    Returns cells (int32, shape (1, rows)): k of a row with a loss up to place k; ``places + k`` of one with a
        loss behind place k.
    Returns weights (float64, shape (1, rows)): its coefficient; 0 where it has no loss.
    """
    places, n_rows = coefficients.shape
    cells, weights = np.zeros((1, n_rows), np.int32), np.zeros((1, n_rows))
    for i in range(n_rows):
        if coefficients[0, i] != 0.0:
            k = 0
            while k + 1 < places and coefficients[k + 1, i] != 0.0:
                k += 1
            cells[0, i], weights[0, i] = k, coefficients[0, i]
        elif coefficients[places - 1, i] != 0.0:
            k = 0
            while coefficients[k + 1, i] == 0.0:
                k += 1
            cells[0, i], weights[0, i] = places + k, coefficients[places - 1, i]
    return cells, weights


@compiled
def refine_bins(loss, best, end, low, per_unit, targets, weights, bins):  # type: ignore[no-untyped-def]
    """Count the breakpoints in finer bins that begin at ``u = low``, ``per_unit`` of them to a unit of u."""
    for i in range(len(best)):
        t = targets[i]
        c, d = t * (t - best[i]) - breakpoint(loss), t * (end[i] - best[i])
        add_event(c, d, weights[i], low, per_unit, bins)


@compiled
def collect_events(loss, best, end, low, per_unit, q, targets, weights, events):  # type: ignore[no-untyped-def]
    """Fill ``events`` (rows of: u, change of c, change of d) with those of bin q; return their number."""
    found = 0
    for i in range(len(best)):
        t = targets[i]
        c, d = t * (t - best[i]) - breakpoint(loss), t * (end[i] - best[i])
        if (c > 0.0 and d > 0.0) or (c < 0.0 and d < 0.0):
            u = c / (c + d)
            place = (u - low) * per_unit
            if place >= 0.0 and np.int64(place) == q:
                direction = -weights[i] if d > 0.0 else weights[i]
                if found < len(events):
                    events[found, 0] = u
                    events[found, 1] = direction * c
                    events[found, 2] = direction * d
                found += 1
    return found


@compiled
def count_losses(loss, best, previous, step, targets, weights, sums):  # type: ignore[no-untyped-def]
    """Add to ``sums[0]`` the number of rows with a loss, at ``best + step (previous - best)``.

    Rows of weight 0 have none.
    """
    for i in range(len(best)):
        t = targets[i]
        if weights[i] > 0.0 and t * (t - (best[i] + step * (previous[i] - best[i]))) > breakpoint(loss):
            sums[0] += 1.0
