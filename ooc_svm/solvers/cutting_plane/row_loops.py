"""The hinge loss on scores: cuts, and the loss along a segment.

Along the segment from scores b to scores s the row i loses ``omega max(0, c - t d)``, ``c = 1 - y b``,
``d = y (s - b)``, t >= 0. It is active (loses something) from 0 to its breakpoint ``t = c / d`` if c and d
are positive, from the breakpoint on if both are negative. Breakpoints are counted in bins of
``u = t / (1 + t) = c / (c + d)``, which lies between 0 and 1.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled


@compiled
def weight_of(i, codes, class_weight, row_weight):  # type: ignore[no-untyped-def]
    """Weight of a row's loss: that of its class times its own (None: 1)."""
    omega = class_weight[codes[i]]
    if row_weight is not None:
        omega *= row_weight[i]
    return omega


@compiled
def cut(scores, codes, sign, class_weight, row_weight, row_number, coefficients, sums):  # type: ignore[no-untyped-def]
    """Subgradient of the loss at the scores (Joachims 2006, Algorithm 1, line 6).

    Parameters
    ----------
    scores : ndarray of float64, shape (rows,)
    codes : ndarray of uint16, shape (rows,)
        Class of each row.
    sign, class_weight : ndarray of float64, shape (classes,)
    row_weight : ndarray of float64, shape (rows,), or None
    row_number : int
        Number of the first row in the whole data.
    coefficients : ndarray of float64, shape (1, rows)
        Gets ``omega y`` where ``y s < 1``, else 0.
    sums : ndarray of float64, shape (4, groups)
        The loss, the cut's offset, the sum of the coefficients and the number of rows with a loss are added,
        in the row's group.
    """
    groups = sums.shape[1]
    for i in range(len(scores)):
        y = sign[codes[i]]
        slack = 1.0 - y * scores[i]
        coefficients[0, i] = 0.0
        if slack > 0.0:
            omega = weight_of(i, codes, class_weight, row_weight)
            g = (row_number + i) % groups
            coefficients[0, i] = omega * y
            sums[0, g] += omega * slack
            sums[1, g] += omega
            sums[2, g] += omega * y
            sums[3, g] += 1.0


@compiled
def add_event(c, d, omega, low, per_unit, bins):  # type: ignore[no-untyped-def]
    """Count a row's breakpoint, if it has one in the bins, with what it changes in the active sums."""
    if (c > 0.0 and d > 0.0) or (c < 0.0 and d < 0.0):
        place = (c / (c + d) - low) * per_unit
        if 0.0 <= place < bins.shape[1]:
            q = np.int64(place)
            direction = -omega if d > 0.0 else omega
            bins[0, q] += 1.0
            bins[1, q] += direction * c
            bins[2, q] += direction * d


@compiled
def guessed_cut(  # type: ignore[no-untyped-def]
    scores,
    best,
    previous,
    step,
    thetas,
    codes,
    sign,
    class_weight,
    row_weight,
    row_number,
    coefficients,
    cuts,
    base,
    bins,
):
    """Move the best point, cut at guessed points of the next segment, and prepare its line search.

    ``best`` becomes ``best + step (previous - best)`` and ``previous`` becomes ``scores``; the cuts are taken
    at ``best + theta (scores - best)``.

    Parameters
    ----------
    scores, best, previous : ndarray of float64, shape (rows,)
    step : float
    thetas : ndarray of float64, shape (width,)
    coefficients : ndarray of float64, shape (width, rows)
    cuts : ndarray of float64, shape (2, width, groups)
        Each cut's offset and the sum of its coefficients are added.
    base : ndarray of float64, shape (3,)
        The loss at the best point and the sums of c and d over the rows active right behind it are added.
    bins : ndarray of float64, shape (3, n_bins)
        Number of breakpoints, and changes of the active sums of c and d, by bins of u.
    """
    groups, n_bins = cuts.shape[2], bins.shape[1]
    for i in range(len(scores)):
        b = best[i] + step * (previous[i] - best[i])
        s = scores[i]
        best[i] = b
        previous[i] = s
        y = sign[codes[i]]
        omega = weight_of(i, codes, class_weight, row_weight)
        g = (row_number + i) % groups
        for k in range(len(thetas)):
            coefficients[k, i] = 0.0
            if y * (b + thetas[k] * (s - b)) < 1.0:
                coefficients[k, i] = omega * y
                cuts[0, k, g] += omega
                cuts[1, k, g] += omega * y
        c, d = 1.0 - y * b, y * (s - b)
        if c > 0.0:
            base[0] += omega * c
        if c > 0.0 or (c == 0.0 and d < 0.0):
            base[1] += omega * c
            base[2] += omega * d
        add_event(c, d, omega, 0.0, n_bins, bins)


@compiled
def ends_of_losses(coefficients):  # type: ignore[no-untyped-def]
    """Where on a ray rows have a loss: up to a place, or from a place on.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (places, rows)
        Of each row in the cut of each place: 0, or its own.

    Returns
    -------
    slots : ndarray of int32, shape (1, rows)
        k of a row with a loss up to place k; ``places + k`` of one with a loss behind place k.
    weights : ndarray of float64, shape (1, rows)
        Its coefficient; 0 where it has no loss.
    """
    places, n_rows = coefficients.shape
    slots, weights = np.zeros((1, n_rows), np.int32), np.zeros((1, n_rows))
    for i in range(n_rows):
        if coefficients[0, i] != 0.0:
            k = 0
            while k + 1 < places and coefficients[k + 1, i] != 0.0:
                k += 1
            slots[0, i], weights[0, i] = k, coefficients[0, i]
        elif coefficients[places - 1, i] != 0.0:
            k = 0
            while coefficients[k + 1, i] == 0.0:
                k += 1
            slots[0, i], weights[0, i] = places + k, coefficients[places - 1, i]
    return slots, weights


@compiled
def refine_bins(best, end, low, per_unit, codes, sign, class_weight, row_weight, bins):  # type: ignore[no-untyped-def]
    """Count the breakpoints in finer bins that begin at ``u = low``, ``per_unit`` of them to a unit of u."""
    for i in range(len(best)):
        y = sign[codes[i]]
        omega = weight_of(i, codes, class_weight, row_weight)
        add_event(1.0 - y * best[i], y * (end[i] - best[i]), omega, low, per_unit, bins)


@compiled
def collect_events(best, end, low, per_unit, q, codes, sign, class_weight, row_weight, events):  # type: ignore[no-untyped-def]
    """Fill ``events`` (rows of: u, change of c, change of d) with those of bin q; return their number."""
    found = 0
    for i in range(len(best)):
        y = sign[codes[i]]
        c, d = 1.0 - y * best[i], y * (end[i] - best[i])
        if (c > 0.0 and d > 0.0) or (c < 0.0 and d < 0.0):
            u = c / (c + d)
            place = (u - low) * per_unit
            if place >= 0.0 and np.int64(place) == q:
                omega = weight_of(i, codes, class_weight, row_weight)
                direction = -omega if d > 0.0 else omega
                if found < len(events):
                    events[found, 0] = u
                    events[found, 1] = direction * c
                    events[found, 2] = direction * d
                found += 1
    return found


@compiled
def count_losses(best, previous, step, codes, sign, sums):  # type: ignore[no-untyped-def]
    """Add to ``sums[0]`` the number of rows with ``y s < 1``, s = best + step (previous - best)."""
    for i in range(len(best)):
        if sign[codes[i]] * (best[i] + step * (previous[i] - best[i])) < 1.0:
            sums[0] += 1.0
