"""Pairs of rows of two ranks counted by look-up: only the bare scores are sorted, not the rows.

The score of a row of the higher rank is negated: ``x = s`` for the lower rank, ``x = -s`` for the higher. A
pair is active while ``s_i - s_j < margin``, which is ``x_i + x_j > -margin``, rounding included, and
the same for both rows. So the active pairs of a row are the end of the other rank's sorted x. Where that end
begins is found through a grid: cells of equal width, and for each the number of x below it. Cells, places and
counts are uint32.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled

# Number of infinite entries after the sorted values: up to three of them are read.
PADDING = 4

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)
_SEVEN = np.uint64(7)


@compiled
def cell(x, low, high, scale):  # type: ignore[no-untyped-def]
    """Cell of a grid over ``low .. high``: never falls as x grows, whatever is rounded.

    Halves, so that no difference overflows.
    """
    return np.uint64(np.int64((0.5 * min(max(x, low), high) - 0.5 * low) * scale))


@compiled
def find_buckets(scores, ranks, first_row, n_slacks, low, high, scale, n_cells, buckets, sizes):  # type: ignore[no-untyped-def]
    """Find the bucket of each row, by side and then by cell, and add the rows of each bucket to `sizes`.

    Rank 0 is side 0; rows of rank 1 are on side 1 plus the number of the row modulo `n_slacks`. The cell is
    that of the score in a grid of `n_cells` cells; cells of the higher rank are in reverse order, as its x
    are. There are (1 + n_slacks) * n_cells buckets, as uint32.
    """
    cells, last = np.uint64(n_cells), np.uint64(n_cells - 1)
    for i in range(len(scores)):
        bucket = cell(scores[i], low, high, scale)
        if ranks[i]:
            side = np.uint64(1 if n_slacks == 1 else 1 + (first_row + i) % n_slacks)
            bucket = side * cells + last - bucket
        buckets[i] = bucket
        sizes[bucket] += 1


@compiled
def scatter_signed(places, scores, ranks, out):  # type: ignore[no-untyped-def]
    """``out[places] = x``."""
    for i in range(len(places)):
        out[places[i]] = -scores[i] if ranks[i] else scores[i]


@compiled
def fill_cells(values, low, high, scale, below):  # type: ignore[no-untyped-def]
    """Set `below` (uint32, zeros) to the number of ascending values in cells below each, and last of all."""
    for i in range(len(values)):
        below[cell(values[i], low, high, scale) + _ONE] = i + 1
    for k in range(1, len(below)):
        below[k] = max(below[k], below[k - 1])


@compiled
def count_active(own, values, low, high, scale, below, margin, out):  # type: ignore[no-untyped-def]
    """Set `out` to the active pairs of the rows of one side, whose x are `own`, with those of another.

    `values` are the ascending x of the other side, then `PADDING` times infinity; low, high, scale and
    `below` are its grid, see `fill_cells`.
    """
    total = np.uint64(len(values) - PADDING)
    before = np.nextafter(margin, -np.inf)
    for i in range(len(own)):
        x = own[i]
        # Values below -margin - x are not active, and values above -before - x are: a sum that rounds to
        # -margin or less would be below the latter without rounding.
        found = np.uint64(below[cell(-margin - x, low, high, scale)])
        start = found
        # Bisection of seven values, without a branch.
        found += _FOUR * np.uint64(x + values[found + _THREE] <= -margin)
        found += _TWO * np.uint64(x + values[found + _ONE] <= -margin)
        found += np.uint64(x + values[found] <= -margin)
        if found - start == _SEVEN:
            end = np.uint64(below[cell(-before - x, low, high, scale) + _ONE])
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
