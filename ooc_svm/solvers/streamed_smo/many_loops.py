"""A sweep and scores of several models: each row's products with all of their weights, then the steps.

Weights are (n_features, K), so that an element of a row meets those of all models in one place. Each model's
sums have the order that they have alone (`ooc_svm.ops.rows`), and so the same bits.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.losses.functions import (
    bounds,
    dual_step,
    is_free,
    magnitude,
    parabola,
    parabola_end,
    priority,
    row_gap,
    violation,
)
from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.hashing import GOLDEN
from ooc_svm.ops.intrinsics import prefetch
from ooc_svm.ops.rows import add_row, product_of, products, square
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual_loops import AHEAD, HELD, HELD_AT_START
from ooc_svm.solvers.streamed_smo.order_loops import random_order, window_of

TILE = 16  # Rows and columns that are transposed together


@compiled
def transpose(of, out):  # type: ignore[no-untyped-def]
    """``out = of.T``, in tiles that fit the cache."""
    n, m = of.shape
    for i in range(0, n, TILE):
        for j in range(0, m, TILE):
            for a in range(i, min(i + TILE, n)):
                for b in range(j, min(j + TILE, m)):
                    out[b, a] = of[a, b]


@compiled
def scores(indptr, indices, values, first, every, W, out):  # type: ignore[no-untyped-def]
    """``out[:, i] = x.W`` of the rows of a piece; out is (K, m).

    ``first``, ``every``: the piece's first row in the block, and the distance to the next.
    """
    K = W.shape[1]
    sums = np.empty((4, K))
    for i in range(out.shape[1]):
        row = first + every * np.uint64(i)
        products(indices, values, W, indptr[row], indptr[row + np.uint64(1)], sums)
        for k in range(K):
            out[k, i] = product_of(sums, k)


@compiled
def sweep(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, first, every, visits, seed, scale2, W, rebuilt, bias, units,
    targets, marks, dual, step, worth, sums
):  # fmt: skip
    """`dual_loops.sweep` of K models without a mean row, whose steps are in the same order.

    ``W``, ``rebuilt``: float64, shape (n_features, K) or (0, K).
    ``bias`` (K, 3), ``units`` (K,), ``sums`` (K, N_SUMS): float64.
    ``targets`` (K, m, 2), ``marks`` (uint8), ``dual``, ``step`` and ``worth`` (float64), shape (K, m).
    """
    K, m = dual.shape
    building, per_unit = len(rebuilt) > 0, 1.0 / units
    step[:] = 0.0
    last = indptr[first + every * np.uint64(m - 1) + np.uint64(1)]
    window = window_of(m, np.int64((last - indptr[first]) // every))
    # As alone, sums begin at 0 in each piece.
    own, of_row = np.zeros_like(sums), np.empty((4, K))
    before = True
    for _ in range(visits):
        order = random_order(np.arange(m), window, seed)
        own[:, dual_loops.FREE] = 0.0
        for place in range(m):
            i, later = order[place], order[min(place + AHEAD, m - 1)]
            prefetch(indptr, first + every * np.uint64(order[min(place + 2 * AHEAD, m - 1)]))
            dual_loops.prefetch_row(indptr, indices, values, first + every * np.uint64(later))
            for k in range(K):
                own_later = k * m + later
                prefetch(targets, 2 * own_later)
                prefetch(marks, own_later)
                prefetch(dual, own_later)
                prefetch(step, own_later)
                prefetch(worth, own_later)
            row = first + every * np.uint64(i)
            p, end = indptr[row], indptr[row + np.uint64(1)]
            products(indices, values, W, p, end, of_row)
            norm = -1.0
            for k in range(K):
                if building and dual[k, i] != 0.0 and not marks[k, i] & HELD_AT_START:
                    add_row(indices, values, scale2, rebuilt[:, k], p, end, dual[k, i])
                if marks[k, i] & HELD:
                    worth[k, i] = -1.0
                    continue
                t, c = targets[k, i, 0], targets[k, i, 1]
                was, taken = dual[k, i], step[k, i]
                v, r = was + taken, t - product_of(of_row, k) - bias[k, dual_loops.B]
                gap = row_gap(loss, v, r, t, c)
                if before:
                    own[k, dual_loops.GAP] += gap
                own[k, dual_loops.ROWS] += 1
                own[k, dual_loops.ELEMENTS] += np.int64(end - p)
                new, far = v, violation(loss, v, r, t, c, gap)
                low, high = bounds(loss, t, c)
                # What rounding has put out of its bounds goes back, and NaN has to reach w.
                if not (far <= 0.0 and low <= v <= high):
                    if norm < 0.0:
                        norm = square(indices, values, scale2, p, end)
                    rho = bias[k, dual_loops.RHO]
                    new = parabola_end(loss, was, dual_step(loss, v, r, t, c, norm + rho))
                    change = new - v
                    if change != 0.0:
                        add_row(indices, values, scale2, W[:, k], p, end, change)
                        bias[k, dual_loops.B] += rho * change
                        bias[k, dual_loops.TOTAL] += change
                        own[k, dual_loops.MOVED] += change
                        own[k, dual_loops.DISTANCE] += abs(change)
                        along, bend = parabola(loss, was, new, t, c)
                        own[k, dual_loops.LINEAR] += along
                        own[k, dual_loops.QUADRATIC] += bend
                        if taken != 0.0:
                            along, bend = parabola(loss, was, v, t, c)
                            own[k, dual_loops.LINEAR] -= along
                            own[k, dual_loops.QUADRATIC] -= bend
                        own[k, dual_loops.CHANGES] += 1
                        size = abs(t * change) + magnitude(loss, v, t, c) + magnitude(loss, new, t, c)
                        own[k, dual_loops.SIZE] += size
                        step[k, i] = new - was
                own[k, dual_loops.FREE] += is_free(loss, new, t, c)
                worth[k, i] = priority(loss, new, far * per_unit[k], t, c)
        building = before = False
        seed += GOLDEN
    sums += own
