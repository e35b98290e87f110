"""The compiled loops of selection: breakpoints of losses, their weights below a range, those inside it."""

from __future__ import annotations

import math

import numpy as np

from ooc_svm.losses.functions import breakpoint, piece_sign, pieces
from ooc_svm.ops.compiled import compiled

# Rows at a time, which the nearest cache holds, and sums that are added up side by side: so their order is
# the same however many a processor adds at once.
TILE, LANES = 2048, 64


@compiled
def find_breakpoints(loss, best, previous, step, targets, weights, side, p, points):  # type: ignore[no-untyped-def]
    """The bias at the breakpoint of piece ``p`` of each row; not a number where it does not count.

    That is ``t - s - sign kink`` at the scores ``best + step (previous - best)``. Pieces count that weigh
    something and have the sign ``side``, any with 0.
    """
    kink = breakpoint(loss)
    for i in range(len(best)):
        t = targets[i]
        sign = piece_sign(loss, p, t)
        counts = (weights[i] > 0.0) & ((side == 0.0) | (sign == side))
        place = t - (best[i] + step * (previous[i] - best[i])) - sign * kink
        points[i] = place if counts else math.nan


@compiled
def weigh_range(  # type: ignore[no-untyped-def]
    loss, best, previous, step, targets, weights, side, low, high, lanes, sums, own_points, own_weights
):  # fmt: skip
    """Weigh the breakpoints below `low`, at it, between it and `high` and there, and list those between.

    ``lanes`` (float64, shape (LANES,)): the weight below is added.
    ``sums`` (float64, shape (5,)): the weights at `low`, between and at `high` are added, and the number of
        those between; the last one becomes the smallest of them, if that is less.
    ``own_points``, ``own_weights`` (float64): those between, as many as there is room for.

    Returns the number of those that are listed.
    """
    count, points, marks = 0, np.empty(TILE), np.empty(TILE, np.uint8)
    for p in range(pieces(loss)):
        for start in range(0, len(best), TILE):
            part = slice(start, min(start + TILE, len(best)))
            own, n = weights[part], len(weights[part])
            find_breakpoints(loss, best[part], previous[part], step, targets[part], own, side, p, points[:n])
            points[n:] = math.nan
            _add_below(points, own, low, lanes)
            count = _list_inside(points, own, low, high, marks, sums, own_points, own_weights, count)
    return count


@compiled
def _add_below(points, weights, low, lanes):  # type: ignore[no-untyped-def]
    """Add the weights of the points below `low` to ``lanes``, one to each in turn."""
    whole = len(weights) // LANES * LANES
    for k in range(whole // LANES):
        first, last = np.uint64(k * LANES), np.uint64((k + 1) * LANES)
        own_points, own_weights = points[first:last], weights[first:last]
        for lane in range(LANES):
            lanes[lane] += own_weights[lane] if own_points[lane] < low else 0.0
    for i in range(whole, len(weights)):
        lanes[i - whole] += weights[i] if points[i] < low else 0.0


@compiled
def _list_inside(points, weights, low, high, marks, sums, own_points, own_weights, count):  # type: ignore[no-untyped-def]
    """Sum up and list the points from `low` to `high`, see `weigh_range`; ``marks`` is overwritten."""
    for i in range(len(points)):
        marks[i] = (points[i] >= low) & (points[i] <= high)
    words = marks.view(np.uint64)
    for k in range(len(words)):
        if words[k] != 0:
            for i in range(8 * k, 8 * k + 8):
                if marks[i] == 0:
                    continue
                point, weight = points[i], weights[i]
                if point == low:
                    sums[0] += weight
                elif point == high:
                    sums[2] += weight
                else:
                    sums[1] += weight
                    sums[3] += 1.0
                    sums[4] = min(sums[4], point)
                    if count < len(own_points):
                        own_points[count], own_weights[count] = point, weight
                        count += 1
    return count
