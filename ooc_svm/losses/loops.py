"""Boxes and losses of rows, from their targets and scores."""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled
from ooc_svm.solvers.streamed_smo.dual_loops import row_loss


@compiled
def boxes(t, cost, two_sided, squared, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` (n, 4) with target, low, high and damping; a row that costs nothing cannot move.

    Parameters
    ----------
    t, cost : ndarrays of float64, shape (n,)
        Targets, and C times the weights.
    two_sided, squared : bool
    out : ndarray of float64, shape (n, 4)
    """
    for i in range(len(t)):
        c = cost[i]
        low = high = damping = 0.0
        if c > 0.0:
            end = np.inf if squared else c
            if two_sided or t[i] > 0.0:
                high = end
            if two_sided or t[i] < 0.0:
                low = -end
            if squared:
                damping = 0.5 / c
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = t[i], low, high, damping


@compiled
def along(best, newest, box, eps, points, sums):  # type: ignore[no-untyped-def]
    """Add the losses at ``best + t (newest - best) + b`` for each point (t, b) to ``sums`` (points,)."""
    first, last = points[:, 0].min(), points[:, 0].max()
    least, most = points[:, 1].min(), points[:, 1].max()
    for i in range(len(best)):
        s, change = best[i], newest[i] - best[i]
        t, low, high, damping = box[i, 0], box[i, 1], box[i, 2], box[i, 3]
        begin, end = change * first, change * last
        lowest, highest = t - s - max(begin, end) - most, t - s - min(begin, end) - least
        # Most rows have no loss at any of the points.
        if (highest < eps or high == 0.0) and (lowest > -eps or low == 0.0):
            continue
        for k in range(len(points)):
            r = t - (s + points[k, 0] * change) - points[k, 1]
            sums[k] += row_loss(r, low, high, eps, damping)


@compiled
def count(scores, b, box, eps):  # type: ignore[no-untyped-def]
    """Number of rows with a loss."""
    n = 0
    for i in range(len(scores)):
        r = box[i, 0] - scores[i] - b
        if (r > eps and box[i, 2] > 0.0) or (r < -eps and box[i, 1] < 0.0):
            n += 1
    return n
