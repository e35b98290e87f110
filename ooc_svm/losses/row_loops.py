"""Losses of rows at scores that are kept: sums along a segment, slopes, counts, and row gaps."""

from __future__ import annotations

from ooc_svm.losses.functions import row_gap, slope, value
from ooc_svm.ops.compiled import compiled, inlined

OWN_ERROR = 2.0**-50  # Of what a residual and its loss are made from, after a few operations


@compiled
def losses_along(loss, best, newest, targets, costs, points, sums):  # type: ignore[no-untyped-def]
    """Add the losses at ``best + t (newest - best) + b`` for each point (t, b) to ``sums``.

    ``loss``: see `ooc_svm.losses.functions`.
    ``best``, ``newest`` (float64, shape (rows,)): scores at the ends of the segment.
    ``targets``, ``costs``: float64, shape (rows,).
    ``points``: float64, shape (k, 2).
    ``sums``: float64, shape (k,).
    """
    # Numba takes half a second to compile the minimum of a column.
    first = last = points[0, 0]
    least = most = points[0, 1]
    for k in range(1, len(points)):
        first, last = min(first, points[k, 0]), max(last, points[k, 0])
        least, most = min(least, points[k, 1]), max(most, points[k, 1])
    for i in range(len(best)):
        s, change, t, c = best[i], newest[i] - best[i], targets[i], costs[i]
        begin, end = change * first, change * last
        lowest, highest = t - s - max(begin, end) - most, t - s - min(begin, end) - least
        # Most rows have no loss at either end, and so none at any of the points.
        if value(loss, lowest, t, c) == 0.0 and value(loss, highest, t, c) == 0.0:
            continue
        for k in range(len(points)):
            sums[k] += value(loss, t - (s + points[k, 0] * change) - points[k, 1], t, c)


@inlined
def steepest_slope(loss, r, near, t, c):  # type: ignore[no-untyped-def]
    """The magnitude of a loss's steepest slope where the residual is off by ``near`` at most."""
    return max(abs(slope(loss, r - near, t, c)), abs(slope(loss, r + near, t, c)))


@compiled
def slope_sizes(loss, scores, b, error, targets, costs, sums):  # type: ignore[no-untyped-def]
    """Add the losses at the scores plus b, and their steepest slopes g near by.

    ``error``: of the residuals, beside the rounding of their own arithmetic. A row on the edge of its loss
        has the slope of either side.
    ``sums`` (float64, shape (4,)): of ``g^2 / c``, ``g (|t| + |s| + |b|)``, ``g``, and of the losses.
    """
    for i in range(len(scores)):
        s, t, c = scores[i], targets[i], costs[i]
        if c > 0.0:
            r, size = t - s - b, abs(t) + abs(s) + abs(b)
            g = steepest_slope(loss, r, error + OWN_ERROR * size, t, c)
            sums[0] += g * g / c
            sums[1] += g * size
            sums[2] += g
            sums[3] += value(loss, r, t, c)


@compiled
def count_losses(loss, scores, b, targets, costs):  # type: ignore[no-untyped-def]
    """Number of rows with a loss at the scores plus b; a row of weight 0 has none."""
    n = 0
    for i in range(len(scores)):
        if slope(loss, targets[i] - scores[i] - b, targets[i], costs[i]) != 0.0:
            n += 1
    return n


@compiled
def row_gaps(loss, dual, scores, b, targets, left_out):  # type: ignore[no-untyped-def]
    """Sum of the row gaps at multipliers, and at scores plus b; some rows are left out.

    ``dual``, ``scores``: float64, shape (rows,). ``targets`` (float64, shape (rows, 2)): targets and costs.
    ``left_out``: bool, shape (rows,).
    """
    total = 0.0
    for i in range(len(dual)):
        if not left_out[i]:
            t, c = targets[i, 0], targets[i, 1]
            total += row_gap(loss, dual[i], t - scores[i] - b, t, c)
    return total
