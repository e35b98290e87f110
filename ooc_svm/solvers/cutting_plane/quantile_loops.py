"""The compiled loop of selection: weights of breakpoints by the range of their keys."""

from __future__ import annotations

import numpy as np

from ooc_svm.losses.functions import breakpoint, piece_sign, pieces
from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.sort_keys import order_key


@compiled
def add_breakpoints(  # type: ignore[no-untyped-def]
    loss, best, previous, step, side, low, high, shift, targets, weights, sums, smallest, largest
):  # fmt: skip
    """Add the weights of the pieces whose bias at the breakpoint has a key from `low` to `high`.

    That is ``t - s - sign kink`` at the scores ``best + step (previous - best)``. Its bin is
    ``(key - low) >> shift``.

    ``side``: only pieces of this sign, all with 0.
    ``low``, ``high``, ``shift``: uint64.
    ``sums`` (float64, shape (bins,)), ``smallest``, ``largest`` (uint64, shape (bins,)): weight of the bins,
        and the range of the keys in each; widened.
    """
    place, kink = np.empty(1), breakpoint(loss)
    bits = place.view(np.uint64)
    for i in range(len(best)):
        t, omega = targets[i], weights[i]
        if omega > 0.0:
            r = t - (best[i] + step * (previous[i] - best[i]))
            for p in range(pieces(loss)):
                sign = piece_sign(loss, p, t)
                if side == 0.0 or sign == side:
                    place[0] = r - sign * kink
                    key = order_key(bits[0])
                    if low <= key <= high:
                        q = (key - low) >> shift
                        sums[q] += omega
                        smallest[q] = min(smallest[q], key)
                        largest[q] = max(largest[q], key)
