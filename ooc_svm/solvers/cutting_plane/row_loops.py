"""Losses that are sums over rows, on scores: cuts, and the loss along a segment of a piecewise linear one.

A row with the target t, the weight omega and the score s loses ``omega max(0, sign (t - s - b) - kink - k)``
in each piece of its loss (`ooc_svm.losses.functions`), ``kink`` being the loss's breakpoint. b is a bias
without penalty and k what shifts the breakpoint, where the problem has these free parameters; both are 0
where it has not. Along a segment of points a piece is ``omega max(0, c - tau d)``, c what is above at its
start and d what that falls by to its end, tau >= 0. It is active (the row loses something) from 0 to
``tau = c / d`` if c and d are positive, from there on if both are negative. Breakpoints are counted in bins
of ``u = tau / (1 + tau) = c / (c + d)``, which lies between 0 and 1.

``free`` (float64, shape (2, 2)) has b and k at the start of a segment and at its end.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.losses.functions import breakpoint, piece_sign, pieces
from ooc_svm.ops.compiled import compiled, inlined


@compiled
def cut(loss, scores, targets, weights, row_number, coefficients, sums):  # type: ignore[no-untyped-def]
    """Subgradient of the loss at the scores (Joachims 2006, Algorithm 1, line 6).

    ``scores``, ``targets``, ``weights``: float64, shape (rows,).
    ``row_number``: number of the first row in the whole data.
    ``coefficients`` (float64, shape (1, rows)): gets the slope of the loss, 0 where there is no loss.
    ``sums`` (float64, shape (4, groups)): the loss, the cut's offset, the sum of the coefficients and the
        number of rows with a loss are added, in the row's group.
    """
    groups, kink = sums.shape[1], breakpoint(loss)
    for i in range(len(scores)):
        t, weight = targets[i], weights[i]
        group = (row_number + i) % groups
        coefficients[0, i] = 0.0
        for p in range(pieces(loss)):
            sign = piece_sign(loss, p, t)
            slack = sign * (t - scores[i]) - kink
            if slack > 0.0:
                coefficients[0, i] = sign * weight
                sums[0, group] += weight * slack
                sums[1, group] += weight * (sign * t - kink)
                sums[2, group] += sign * weight
                if weight > 0.0:
                    sums[3, group] += 1.0


@compiled
def add_event(c, d, omega, low, per_unit, bins):  # type: ignore[no-untyped-def]
    """Count a piece's breakpoint, if it has one in the bins, with what it changes in the active sums."""
    if (c > 0.0 and d > 0.0) or (c < 0.0 and d < 0.0):
        place = (c / (c + d) - low) * per_unit
        if 0.0 <= place < bins.shape[1]:
            q = np.int64(place)
            direction = -omega if d > 0.0 else omega
            bins[0, q] += 1.0
            bins[1, q] += direction * c
            bins[2, q] += direction * d


@inlined
def _fall(sign, t, start, end, b_0, b_change, kink_0, kink_change):  # type: ignore[no-untyped-def]
    """A piece of a row along a segment: c and d, of the scores at its ends."""
    return sign * (t - start - b_0) - kink_0, sign * (end - start + b_change) + kink_change


@compiled
def trial_cuts(  # type: ignore[no-untyped-def]
    loss, scores, best, previous, step, thetas, free, targets, weights, row_number, coefficients, cuts, base,
    bins
):  # fmt: skip
    """Move the best point, cut at trial points of the next segment, and prepare its line search.

    ``best`` becomes ``best + step (previous - best)`` and ``previous`` becomes ``scores``; the cuts are taken
    at ``best + theta (scores - best)``.

    ``scores``, ``best``, ``previous``, ``targets``, ``weights``: float64, shape (rows,).
    ``thetas``: float64, shape (width,).
    ``coefficients`` (float64, shape (pieces * width, rows)): gets the slope of each piece at each place.
    ``cuts`` (float64, shape (3, width, groups)): each cut's offset, the sum of its coefficients and that of
        their magnitudes are added.
    ``base`` (float64, shape (3,)): the loss at the best point and the sums of c and d over the pieces active
        right behind it are added.
    ``bins`` (float64, shape (3, n_bins)): number of breakpoints, and changes of the active sums of c and d,
        by bins of u.
    """
    width, groups, n_bins, kink = cuts.shape[1], cuts.shape[2], bins.shape[1], breakpoint(loss)
    b_0, b_change = free[0, 0], free[1, 0] - free[0, 0]
    kink_0, kink_change = kink + free[0, 1], free[1, 1] - free[0, 1]
    for i in range(len(scores)):
        start = best[i] + step * (previous[i] - best[i])
        s = scores[i]
        best[i] = start
        previous[i] = s
        t, omega = targets[i], weights[i]
        group = (row_number + i) % groups
        for p in range(pieces(loss)):
            sign = piece_sign(loss, p, t)
            before, turned = False, False
            for k in range(width):
                theta = thetas[k]
                r = t - (start + theta * (s - start)) - (b_0 + theta * b_change)
                own, loses = 0.0, sign * r > kink_0 + theta * kink_change
                if k > 0 and loses != before:
                    # On a breakpoint rounding lets a loss come and go; the cells of a row have one end of it.
                    loses, turned = before if turned else loses, True
                before = loses
                if loses:
                    own = sign * omega
                    cuts[0, k, group] += omega * (sign * t - kink)
                    cuts[1, k, group] += own
                    cuts[2, k, group] += omega
                coefficients[p * width + k, i] = own
            c, d = _fall(sign, t, start, s, b_0, b_change, kink_0, kink_change)
            if c > 0.0:
                base[0] += omega * c
            if c > 0.0 or (c == 0.0 and d < 0.0):
                base[1] += omega * c
                base[2] += omega * d
            add_event(c, d, omega, 0.0, n_bins, bins)


@compiled
def ends_of_losses(coefficients, places):  # type: ignore[no-untyped-def]
    """Where on a ray the pieces of rows have a loss: up to a place, or from a place on.

    ``coefficients`` (float64, shape (pieces * places, rows)): of each piece in the cut of each place: 0, or
        its own.
    Returns cells (int32, shape (pieces, rows)): k of a piece with a loss up to place k; ``places + k`` of one
        with a loss behind place k.
    Returns weights (float64, shape (pieces, rows)): its coefficient; 0 where it has no loss.
    """
    n_rows, n_pieces = coefficients.shape[1], coefficients.shape[0] // places
    cells, weights = np.zeros((n_pieces, n_rows), np.int32), np.zeros((n_pieces, n_rows))
    for p in range(n_pieces):
        own = coefficients[p * places : (p + 1) * places]
        for i in range(n_rows):
            if own[0, i] != 0.0:
                k = 0
                while k + 1 < places and own[k + 1, i] != 0.0:
                    k += 1
                cells[p, i], weights[p, i] = k, own[0, i]
            elif own[places - 1, i] != 0.0:
                k = 0
                while own[k + 1, i] == 0.0:
                    k += 1
                cells[p, i], weights[p, i] = places + k, own[places - 1, i]
    return cells, weights


@compiled
def refine_bins(loss, best, end, free, low, per_unit, targets, weights, bins):  # type: ignore[no-untyped-def]
    """Count the breakpoints in finer bins that begin at ``u = low``, ``per_unit`` of them to a unit of u."""
    b_0, b_change = free[0, 0], free[1, 0] - free[0, 0]
    kink_0, kink_change = breakpoint(loss) + free[0, 1], free[1, 1] - free[0, 1]
    for i in range(len(best)):
        t = targets[i]
        for p in range(pieces(loss)):
            sign = piece_sign(loss, p, t)
            c, d = _fall(sign, t, best[i], end[i], b_0, b_change, kink_0, kink_change)
            add_event(c, d, weights[i], low, per_unit, bins)


@compiled
def collect_events(  # type: ignore[no-untyped-def]
    loss, best, end, free, low, per_unit, q, targets, weights, events
):  # fmt: skip
    """Fill ``events`` (rows of: u, change of c, change of d) with those of bin q; return their number."""
    b_0, b_change = free[0, 0], free[1, 0] - free[0, 0]
    kink_0, kink_change = breakpoint(loss) + free[0, 1], free[1, 1] - free[0, 1]
    found = 0
    for i in range(len(best)):
        t = targets[i]
        for p in range(pieces(loss)):
            sign = piece_sign(loss, p, t)
            c, d = _fall(sign, t, best[i], end[i], b_0, b_change, kink_0, kink_change)
            if (c > 0.0 and d > 0.0) or (c < 0.0 and d < 0.0):
                u = c / (c + d)
                place = (u - low) * per_unit
                if place >= 0.0 and np.int64(place) == q:
                    direction = -weights[i] if d > 0.0 else weights[i]
                    if found < len(events):
                        events[found, 0] = u
                        events[found, 1] = direction * c
                        events[found, 2] = direction * d
                    found += 1
    return found


@compiled
def losses_at(loss, best, previous, step, b, shift, edge, targets, weights, sums):  # type: ignore[no-untyped-def]
    """Losses at ``best + step (previous - best) + b``, the breakpoint shifted by ``shift``.

    ``edge``: what counts as being on a breakpoint, a distance.
    ``sums`` (float64, shape (4,)): the loss, the number of rows that are beyond a breakpoint, their weight,
        and the weight of the rows beyond or on one are added. A row of weight 0 is not counted.
    """
    kink = breakpoint(loss) + shift
    for i in range(len(best)):
        t, omega = targets[i], weights[i]
        if omega > 0.0:
            r = t - (best[i] + step * (previous[i] - best[i])) - b
            slack = -np.inf
            for p in range(pieces(loss)):
                own = piece_sign(loss, p, t) * r - kink
                if own > 0.0:
                    sums[0] += omega * own
                slack = max(slack, own)
            if slack > edge:
                sums[1] += 1.0
                sums[2] += omega
            if slack >= -edge:
                sums[3] += omega


@compiled
def count_pieces(loss):  # type: ignore[no-untyped-def]
    """Pieces of the loss of a row."""
    return pieces(loss)


@compiled
def kink_of(loss):  # type: ignore[no-untyped-def]
    """Its breakpoint."""
    return breakpoint(loss)


@compiled
def weigh(loss, targets, weights, sums):  # type: ignore[no-untyped-def]
    """Add up the weight of the rows, of the pieces of sign 1 and of those of sign -1, in this order."""
    for i in range(len(targets)):
        sums[0] += weights[i]
        for p in range(pieces(loss)):
            if piece_sign(loss, p, targets[i]) > 0.0:
                sums[1] += weights[i]
            else:
                sums[2] += weights[i]
