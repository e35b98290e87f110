"""Rows in bins of their scores, and the pairs of rows that are counted bin by bin.

A slot holds the rows of one rank in one bin that have one cut group: number
``(rank * n_bins + bin) * groups + group``.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled


@compiled
def put(  # type: ignore[no-untyped-def]
    scores, best, thetas, low, per_unit, n_bins, ranks, n_ranks, weights, groups, first_row, numbers, sums
):  # fmt: skip
    """Find the slots of some rows at several places on a ray.

    ``scores``, ``best`` (float64, shape (rows,)): at the end of the ray (1) and at its beginning (0).
    ``thetas``, ``low`` (float64, shape (places,)): the places, and where the second bin begins at each; the
        first and the last one have no end.
    ``per_unit``: bins to a unit of the score.
    ``ranks``: int32, shape (rows,).
    ``weights``: float64, shape (rows,), or None.
    ``numbers`` (int32, shape (places, rows)): out: the slots, place after place.
    ``sums`` (float64, shape (places * slots, 2)): added to: weight of the rows, and weighted sum of their
        scores.
    """
    last = np.float64(n_bins - 2)
    for k in range(len(thetas)):
        theta, start = thetas[k], low[k]
        for i in range(len(scores)):
            score = best[i] + theta * (scores[i] - best[i])
            place = (score - start) * per_unit
            # What is not a number is put into the first one.
            inside = np.int64(min(place, last)) + 1 if place >= 0.0 else 0
            slot = ((k * n_ranks + ranks[i]) * n_bins + inside) * groups + (first_row + i) % groups
            weight = 1.0 if weights is None else weights[i]
            numbers[k, i] = slot
            sums[slot, 0] += weight
            sums[slot, 1] += weight * score


@compiled
def count(weights, scores, n_bins, plus, minus):  # type: ignore[no-untyped-def]
    """Weigh the pairs of bins of which the mean scores differ by less than 1.

    ``weights``, ``scores`` (float64, shape (n_ranks * n_bins, groups)): weight of the rows in each slot of
        one place, and weighted sum of their scores.
    ``plus`` (float64, shape (n_ranks * n_bins, groups)): zeros; gets the weight of the rows below each slot.
    ``minus`` (float64, shape (n_ranks * n_bins, groups)): zeros; gets the weight of the rows above each bin
        (all of its groups), by their group.
    """
    n, groups = weights.shape
    totals, means = np.empty(n), np.empty(n)
    for q in range(n):
        totals[q] = weights[q].sum()
        means[q] = scores[q].sum() / totals[q] if totals[q] > 0.0 else np.inf
    for p in range(n_bins, n):
        below = p // n_bins * n_bins
        for group in range(groups):
            weight = weights[p, group]
            if weight > 0.0:
                reach = scores[p, group] / weight - 1.0
                total = 0.0
                for q in range(below):
                    if means[q] > reach and totals[q] > 0.0:
                        total += totals[q]
                        minus[q, group] += weight
                plus[p, group] = total


@compiled
def moments(best, end, weights, sums):  # type: ignore[no-untyped-def]
    """Add up the rows' weight, and weighted s, d, s^2, s d, d^2 of the scores ``s + t d`` on a ray.

    ``best``, ``end`` (float64, shape (rows,)): scores at t = 0 and at t = 1.
    ``weights``: float64, shape (rows,), or None.
    ``sums`` (float64, shape (6,)): added to.
    """
    for i in range(len(best)):
        weight = 1.0 if weights is None else weights[i]
        s, d = best[i], end[i] - best[i]
        sums[0] += weight
        sums[1] += weight * s
        sums[2] += weight * d
        sums[3] += weight * s * s
        sums[4] += weight * s * d
        sums[5] += weight * d * d


@compiled
def put_on_ray(best, end, t, low, per_unit, n_bins, ranks, weights, sums):  # type: ignore[no-untyped-def]
    """Sum up rows by bins of their scores at one point of a ray.

    ``best``, ``end`` (float64, shape (rows,)): scores at t = 0 and at t = 1.
    ``t``, ``low``, ``per_unit``: the point, where the second bin begins, and bins to a unit of the score; the
        first and the last bin have no end.
    ``ranks``: int32, shape (rows,).
    ``weights``: float64, shape (rows,), or None.
    ``sums`` (float64, shape (n_ranks * n_bins, 3)): added to: weight of the rows, and weighted sums of scores
        and of their derivatives.
    """
    last = np.float64(n_bins - 2)
    for i in range(len(best)):
        d = end[i] - best[i]
        score = best[i] + t * d
        place = (score - low) * per_unit
        inside = np.int64(min(place, last)) + 1 if place >= 0.0 else 0
        weight = 1.0 if weights is None else weights[i]
        own = sums[np.uint64(ranks[i] * n_bins + inside)]
        own[0] += weight
        own[1] += weight * score
        own[2] += weight * d


@compiled
def loss(sums, n_bins):  # type: ignore[no-untyped-def]
    """Loss of the active pairs of bins, and its derivative; those of the rows are nearly the same.

    ``sums`` (float64, shape (n_ranks * n_bins, 3)): see `put_on_ray`. Mean scores ascend from bin to bin.
    """
    value = slope = 0.0
    for first in range(n_bins, len(sums), n_bins):
        for below in range(0, first, n_bins):
            # Sums of the bins of the lower rank, from the last one down to q.
            weight = score = move = 0.0
            q = below + n_bins
            for p in range(first + n_bins - 1, first - 1, -1):
                own = sums[p]
                if own[0] <= 0.0:
                    continue
                reach = own[1] / own[0] - 1.0
                while q > below and (sums[q - 1, 0] <= 0.0 or sums[q - 1, 1] > reach * sums[q - 1, 0]):
                    q -= 1
                    weight += sums[q, 0]
                    score += sums[q, 1]
                    move += sums[q, 2]
                value += own[0] * weight - own[1] * weight + own[0] * score
                slope += own[0] * move - own[2] * weight
    return value, slope
