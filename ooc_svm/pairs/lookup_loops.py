"""Pairs of rows of two ranks counted by look-up: no row is sorted, only the bare scores are.

A score is turned where its row has the higher rank: ``x = s`` for the lower rank, ``x = -s`` for the higher.
A pair is active while ``s_i - s_j < margin``, which is ``x_i + x_j > -margin``, rounding included, and
the same for both rows. So the active pairs of a row are the end of the other rank's sorted x. Where that end
begins is found through a grid: slots of equal width, each knowing how many x are below it. Slots, places and
counts are uint32.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled

# Infinite entries behind the sorted values, which are looked at up to three behind their end.
PADDING = 4

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)
_SEVEN = np.uint64(7)


@compiled
def slot(x, low, high, scale):  # type: ignore[no-untyped-def]
    """Slot of a grid over ``low .. high``: never falls as x grows, whatever is rounded.

    Halves, so that no difference overflows.
    """
    return np.uint64(np.int64((0.5 * min(max(x, low), high) - 0.5 * low) * scale))


@compiled
def find_parts(scores, ranks, first_row, groups, low, high, scale, n_parts, parts, sizes):  # type: ignore[no-untyped-def]
    """The part that each row is dealt out to: by side, then by slot; how many rows each gets.

    The slot is that of the score, of which the turned scores of the higher rank count down.

    Parameters
    ----------
    scores, ranks : ndarrays of float64 and int32, shape (n,)
        Rank 0 or 1; the side of a row is 0, or 1 and the number of the row modulo `groups`.
    first_row, groups : int
    low, high, scale : float
        A grid of `n_parts` slots.
    n_parts : int
        Parts of each side.
    parts : ndarray of uint32, shape (n,)
        Out.
    sizes : ndarray of int64, shape ((1 + groups) * n_parts,)
        Added to.
    """
    slots, last = np.uint64(n_parts), np.uint64(n_parts - 1)
    for i in range(len(scores)):
        part = slot(scores[i], low, high, scale)
        if ranks[i]:
            side = np.uint64(1 if groups == 1 else 1 + (first_row + i) % groups)
            part = side * slots + last - part
        parts[i] = part
        sizes[part] += 1


@compiled
def scatter_turned(places, scores, ranks, out):  # type: ignore[no-untyped-def]
    """``out[places] = x``."""
    for i in range(len(places)):
        out[places[i]] = -scores[i] if ranks[i] else scores[i]


@compiled
def fill_slots(values, low, high, scale, below):  # type: ignore[no-untyped-def]
    """How many sorted values are in slots below each slot, and at last how many there are.

    Parameters
    ----------
    values : ndarray of float64, shape (n,), ascending
    low, high, scale : float
        A grid of `n_slots` slots.
    below : ndarray of uint32, shape (n_slots + 1,)
        Zeros; out.
    """
    for i in range(len(values)):
        below[slot(values[i], low, high, scale) + _ONE] = i + 1
    for k in range(1, len(below)):
        below[k] = max(below[k], below[k - 1])


@compiled
def count_active(own, values, low, high, scale, below, margin, out):  # type: ignore[no-untyped-def]
    """Count the active pairs of rows of one side with those of the other.

    Parameters
    ----------
    own : ndarray of float64, shape (n,)
        Turned scores.
    values : ndarray of float64, shape (m + PADDING,), ascending
        Turned scores of the other side, and infinity.
    low, high, scale, below
        Their grid; see `fill_slots`.
    margin : float
    out : ndarray of uint32, shape (n,)
    """
    total = np.uint64(len(values) - PADDING)
    before = np.nextafter(margin, -np.inf)
    for i in range(len(own)):
        x = own[i]
        # What is below -margin - x is not active, and what is above -before - x is: a sum that rounds to
        # -margin or less is below the one, if there were no rounding.
        found = np.uint64(below[slot(-margin - x, low, high, scale)])
        start = found
        # Bisection of seven values, without a branch.
        found += _FOUR * np.uint64(x + values[found + _THREE] <= -margin)
        found += _TWO * np.uint64(x + values[found + _ONE] <= -margin)
        found += np.uint64(x + values[found] <= -margin)
        if found - start == _SEVEN:
            end = np.uint64(below[slot(-before - x, low, high, scale) + _ONE])
            while found < end:
                middle = (found + end) >> _ONE
                if x + values[middle] <= -margin:
                    found = middle + _ONE
                else:
                    end = middle
        out[i] = total - found


@compiled
def gather(places, counts, ranks, rank, out):  # type: ignore[no-untyped-def]
    """``out = counts[places]`` for the rows of one rank, and 0 for the others."""
    for i in range(len(places)):
        out[i] = np.int64(counts[places[i]]) * np.int64(ranks[i] == rank)
