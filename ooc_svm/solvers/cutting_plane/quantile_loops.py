"""The compiled loops of selection: breakpoints as keys."""

from __future__ import annotations

import numpy as np

from ooc_svm.losses.functions import breakpoint, piece_sign, pieces
from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.sort_keys import order_key


@compiled
def add_breakpoints(  # type: ignore[no-untyped-def]
    loss, best, previous, step, targets, weights, side, low, high, shift, sums, ends
):
    """Add the weights of the pieces whose bias at the breakpoint has a key from `low` to `high`.

    That is ``t - s - sign kink`` at the scores ``best + step (previous - best)``. Its bin is
    ``(key - low) >> shift``.

    ``side``: only pieces of this sign, all with 0.
    ``low``, ``high``, ``shift``: uint64.
    ``sums`` (float64, shape (bins, 2)): weight and number of the pieces of each bin.
    ``ends`` (uint64, shape (2,)): the smallest and the largest key, widened.
    """
    place, kink = np.empty(1), breakpoint(loss)
    bits = place.view(np.uint64)
    smallest, largest, none = ends[0], ends[1], np.uint64(0)
    for i in range(len(best)):
        t, omega = targets[i], weights[i]
        r = t - (best[i] + step * (previous[i] - best[i]))
        for p in range(pieces(loss)):
            sign = piece_sign(loss, p, t)
            place[0] = r - sign * kink
            key = order_key(bits[0])
            # No branch: which rows count is as good as random.
            counts = (omega > 0.0) & ((side == 0.0) | (sign == side)) & (low <= key) & (key <= high)
            q = (key - low) >> shift if counts else none
            sums[q, 0] += omega if counts else 0.0
            sums[q, 1] += 1.0 if counts else 0.0
            smallest = min(smallest, key if counts else smallest)
            largest = max(largest, key if counts else largest)
    ends[0], ends[1] = smallest, largest


@compiled
def collect_breakpoints(  # type: ignore[no-untyped-def]
    loss, best, previous, step, targets, weights, side, low, high, beyond, keys, own_weights
):
    """Copy the keys that `add_breakpoints` counts, with their weights.

    Returns their number, and the smallest key above `high` or `beyond` if that is less.
    """
    place, kink = np.empty(1), breakpoint(loss)
    bits = place.view(np.uint64)
    count = 0
    for i in range(len(best)):
        t, omega = targets[i], weights[i]
        r = t - (best[i] + step * (previous[i] - best[i]))
        for p in range(pieces(loss)):
            sign = piece_sign(loss, p, t)
            place[0] = r - sign * kink
            key = order_key(bits[0])
            counts = (omega > 0.0) & ((side == 0.0) | (sign == side)) & (low <= key)
            beyond = min(beyond, key if counts & (key > high) else beyond)
            if counts & (key <= high):
                keys[count], own_weights[count] = key, omega
                count += 1
    return count, beyond
