"""The compiled loops of selection: breakpoints as keys, their weights by range, those of one range."""

from __future__ import annotations

import math

from ooc_svm.losses.functions import breakpoint, piece_sign
from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.sort_keys import order_key


@compiled
def find_breakpoints(loss, best, previous, step, targets, weights, side, p, points):  # type: ignore[no-untyped-def]
    """The bias at the breakpoint of piece ``p`` of each row; infinite where it does not count.

    That is ``t - s - sign kink`` at the scores ``best + step (previous - best)``. Pieces count that weigh
    something and have the sign ``side``, any with 0.
    """
    kink = breakpoint(loss)
    for i in range(len(best)):
        t = targets[i]
        sign = piece_sign(loss, p, t)
        counts = (weights[i] > 0.0) & ((side == 0.0) | (sign == side))
        place = t - (best[i] + step * (previous[i] - best[i])) - sign * kink
        points[i] = place if counts else math.inf


@compiled
def make_keys(bits):  # type: ignore[no-untyped-def]
    """Turn the bits of scores into their keys, in place."""
    for i in range(len(bits)):
        bits[i] = order_key(bits[i])


@compiled
def add_keys(keys, weights, low, high, shift, sums, ends):  # type: ignore[no-untyped-def]
    """Add up what keys from `low` to `high` weigh, in bins ``(key - low) >> shift``.

    ``low``, ``high``, ``shift``: uint64.
    ``sums`` (float64, shape (bins, 2)): weight and number of the keys of each bin.
    ``ends`` (uint64, shape (2,)): the smallest and the largest key, widened.
    """
    smallest, largest = ends[0], ends[1]
    for i in range(len(keys)):
        key = keys[i]
        if low <= key <= high:
            q = (key - low) >> shift
            sums[q, 0] += weights[i]
            sums[q, 1] += 1.0
            smallest, largest = min(smallest, key), max(largest, key)
    ends[0], ends[1] = smallest, largest


@compiled
def collect_keys(keys, weights, low, high, beyond, own_keys, own_weights):  # type: ignore[no-untyped-def]
    """Copy the keys from `low` to `high` with their weights.

    Returns their number, and the smallest key above `high` or `beyond` if that is less.
    """
    count = 0
    for i in range(len(keys)):
        key = keys[i]
        beyond = min(beyond, key if key > high else beyond)
        if low <= key <= high:
            own_keys[count], own_weights[count] = key, weights[i]
            count += 1
    return count, beyond
