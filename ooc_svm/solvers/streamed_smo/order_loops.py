"""Random orders of steps, by splitmix64: the same for the same seed anywhere."""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.hashing import GOLDEN, mix

# Steps come in a random order, but in windows that fit a core's own cache: rows anywhere in memory in random
# order take three to five times as long.
WINDOW_ELEMENTS = 1 << 13

PACKET = 16  # Neighbours that stay together


@compiled
def shuffle(order, seed):  # type: ignore[no-untyped-def]
    """Put the entries of an array in a random order: Fisher and Yates, with splitmix64."""
    state = mix(seed)
    for i in range(len(order) - 1, 0, -1):
        state += GOLDEN
        # The upper half of a product with 32 random bits: a division would take longer than a row's step.
        j = np.int64((mix(state) >> np.uint64(32)) * np.uint64(i + 1) >> np.uint64(32))
        order[i], order[j] = order[j], order[i]


@compiled
def packets(rows, seed):  # type: ignore[no-untyped-def]
    """The rows in a random order, PACKET neighbours at a time."""
    starts = np.arange(0, len(rows), PACKET)
    shuffle(starts, seed)
    order = np.empty_like(rows)
    k = 0
    for start in starts:
        for i in range(int(start), min(int(start) + PACKET, len(rows))):
            order[k] = rows[i]
            k += 1
    return order


@compiled
def window_of(n_rows, n_elements):  # type: ignore[no-untyped-def]
    """Rows that fit a core's own cache together."""
    return max(16, min(4096, WINDOW_ELEMENTS * n_rows // max(n_elements, 1)))


@compiled
def random_order(rows, window, seed):  # type: ignore[no-untyped-def]
    """The rows in a random order: neighbours stay near each other, within so many places."""
    order = packets(rows, seed)
    for start in range(0, len(order), window):
        shuffle(order[start : start + window], seed + np.uint64(start))
    return order
