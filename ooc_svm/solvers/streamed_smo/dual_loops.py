"""Dual coordinate steps over sparse rows: one multiplier at a time, exactly, inside its bounds.

Row i contributes ``v_i x_i`` to w, and the dual to be maximised is

    D(v) = sum_i (t_i v_i - l*_i(v_i)) - 1/2 |w|^2

(`ooc_svm.losses.functions`). With the residual ``r_i = t_i - x_i.w - b`` the row's gap is
``l_i(r_i) + l*_i(v_i) - r_i v_i``: the gaps of all rows sum up to P - D. Platt (1998), equation 23, is the
step for the hinge loss. A bias enters as a feature of value sqrt(rho) with the weight kept apart: ``b`` moves
by ``rho`` times the change of v.

With a free bias, ``mean`` may hold a row m that is taken from every row: the problem stays the same, and rows
far from the origin cost no more steps than others. No row becomes dense: with ``V = sum_i v_i`` the products
are those of ``w - V m``, so that ``b`` moves by ``rho + |m|^2 - m.x_i`` times the change of v_i, and a row's
own share of it, ``V m.x_i``, is added when the row is looked at. ``rho`` is then given with ``|m|^2`` in it.

``targets`` holds (t, c) of each row side by side: its target, and its cost, C times its weights. Where
columns are scaled, w is kept in units of the data and ``scale2`` holds the squares of the scales; it is None
without scaling, which Numba compiles apart, as it does data without values.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.losses.functions import (
    bounds,
    conjugate,
    dual_step,
    gain,
    is_free,
    magnitude,
    parabola,
    parabola_end,
    priority,
    row_gap,
    slope,
    violation,
)
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.hashing import GOLDEN
from ooc_svm.ops.intrinsics import prefetch
from ooc_svm.ops.rows import add_row, dot, square
from ooc_svm.solvers.streamed_smo.order_loops import random_order, window_of
from ooc_svm.solvers.streamed_smo.team_loops import add_rest, prefetch_elements, product

# Sums of a sweep: row gaps; the parabola of D without its norm; changes of multipliers, and those times m.x;
# rows and elements looked at, and rows that are free; number of changes, their magnitudes, and those of what
# they add to D without its norm; of the multipliers before the steps: D without its norm, its magnitudes, v,
# |v|, v^2 / c.
GAP, LINEAR, QUADRATIC, MOVED, MOMENT, ROWS, ELEMENTS, FREE, CHANGES, DISTANCE, SIZE = range(11)
WAS_LINEAR, WAS_SIZE, WAS_TOTAL, WAS_DISTANCE, WAS_SQUARE = range(11, 16)
N_SUMS = 16

B, RHO, TOTAL = range(3)  # Entries of ``bias``: b, rho, and V

# A row's curvature is at least this share of its squared norm: that of a row near the mean is a difference.
LEAST_CURVATURE = 1e-12

# Rows are prefetched so many steps ahead, their pointers twice as many and their places three times: a short
# row would wait for these longer than its step takes. Their weights one step ahead, where there are more than
# a core's own cache holds: a step that cannot be predicted, taken or not, keeps a processor from looking
# further by itself. Of a long row the first elements are enough.
AHEAD = 4
NEAR_WEIGHTS = 1 << 17
MOST_AHEAD = np.uint64(1024)

HELD, HELD_AT_START = np.uint8(1), np.uint8(2)  # Bits of a row's mark


@inlined
def prefetch_row(indptr, indices, values, row):  # type: ignore[no-untyped-def]
    """Ask for the elements of a row: its first ones, and the last."""
    p, end = indptr[row], indptr[row + np.uint64(1)]
    last, end = end - np.uint64(1), min(end, p + MOST_AHEAD)
    prefetch(indices, last)
    if values is not None:
        prefetch(values, last)
    prefetch_elements(indices, values, p, end)


@inlined
def _prefetch_weights(indptr, indices, w, row):  # type: ignore[no-untyped-def]
    """Ask for the first weights of a row."""
    p = indptr[row]
    end = min(indptr[row + np.uint64(1)], p + MOST_AHEAD)
    while p < end:
        prefetch(w, indices[p])
        p += np.uint64(1)


@inlined
def _moment(indices, values, mean, p, end):  # type: ignore[no-untyped-def]
    """``m.x`` of one row; 0 without a mean."""
    if mean is None:
        return 0.0
    return dot(indices, values, mean, p, end)


@inlined
def _curvature(norm, mean, moment, rho):  # type: ignore[no-untyped-def]
    """``|x - m|^2`` plus what the bias adds, from ``|x|^2`` and ``m.x``."""
    if mean is None:
        return norm + rho
    return max(norm - 2.0 * moment + rho, LEAST_CURVATURE * norm)


@compiled
def count_before(loss, dual, targets, marks, sums):  # type: ignore[no-untyped-def]
    """Add the sums of multipliers as they are, of the rows that were not held at the read's start."""
    linear = size = total = absolute = squares = 0.0
    for i in range(len(dual)):
        v = dual[i]
        if v != 0.0 and not marks[i] & HELD_AT_START:
            t, c = targets[i, 0], targets[i, 1]
            cost = conjugate(loss, v, t, c)
            linear += t * v - cost
            size += abs(t * v) + magnitude(loss, v, t, c)
            total += v
            absolute += abs(v)
            # A multiplier of a row that costs nothing is 0 but for rounding.
            squares += v * v / c if c > 0.0 else 0.0
    sums[WAS_LINEAR] += linear
    sums[WAS_SIZE] += size
    sums[WAS_TOTAL] += total
    sums[WAS_DISTANCE] += absolute
    sums[WAS_SQUARE] += squares


@compiled
def sweep(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, first, every, visits, seed, scale2, mean, w, rebuilt, bias, unit,
    targets, marks, dual, step, worth, sums
):  # fmt: skip
    """Move the multipliers of a piece's rows, one after another; rows that are held stay as they are.

    ``loss``: see `ooc_svm.losses.functions`.
    ``first``, ``every``: the piece's first row in the block, and the distance to the next.
    ``visits``: times that each row is moved.
    ``seed``: of the order of the steps.
    ``scale2``, ``w``: float64, shape (n_features,); w is changed.
    ``mean`` (float64, shape (n_features,)): see above, in units of the data; or None.
    ``rebuilt`` (float64, shape (n_features,) or (0,)): the sum of ``v_i x_i`` before the steps; not wanted
        where it is empty.
    ``bias`` (float64, shape (3,)): B and TOTAL (changed), and RHO.
    ``unit``: of residuals, see `priority`.
    ``targets``: float64, shape (m, 2).
    ``marks`` (uint8, shape (m,)): HELD and HELD_AT_START.
    ``dual``, ``step`` (float64, shape (m,)): multipliers, unchanged, and what the steps add to them (out).
    ``worth`` (float64, shape (m,)): out: what a row is worth keeping (-1 where it is held).
    ``sums``: float64, shape (N_SUMS,).
    """
    # A division in each row costs a sweep of short rows a twentieth of its time.
    b, rho, total, per_unit = bias[B], bias[RHO], bias[TOTAL], 1.0 / unit
    gap = linear = quadratic = moved = moments = distance = size = 0.0
    rows = elements = free = changes = 0
    building = len(rebuilt) > 0
    step[:] = 0.0
    m = len(dual)
    last = indptr[first + every * np.uint64(m - 1) + np.uint64(1)]
    window = window_of(m, np.int64((last - indptr[first]) // every))
    far_weights = len(w) > NEAR_WEIGHTS
    before = True
    for _ in range(visits):
        order = random_order(np.arange(m), window, seed)
        free = 0
        for k in range(m):
            i, following, later = order[k], order[min(k + 1, m - 1)], order[min(k + AHEAD, m - 1)]
            prefetch(indptr, first + every * np.uint64(order[min(k + 2 * AHEAD, m - 1)]))
            prefetch(marks, later)
            prefetch(targets, 2 * later)
            prefetch(dual, later)
            prefetch(step, later)
            prefetch(worth, later)
            prefetch_row(indptr, indices, values, first + every * np.uint64(later))
            if far_weights:
                _prefetch_weights(indptr, indices, w, first + every * np.uint64(following))
            row = first + every * np.uint64(i)
            p, end = indptr[row], indptr[row + np.uint64(1)]
            if building and dual[i] != 0.0 and not marks[i] & HELD_AT_START:
                add_row(indices, values, scale2, rebuilt, p, end, dual[i])
            if marks[i] & HELD:
                worth[i] = -1.0
                continue
            t, c = targets[i, 0], targets[i, 1]
            was, taken = dual[i], step[i]
            v, r = was + taken, t - dot(indices, values, w, p, end) - b
            moment = _moment(indices, values, mean, p, end)
            if mean is not None:
                r += total * moment
            own_gap = row_gap(loss, v, r, t, c)
            if before:
                gap += own_gap
            rows += 1
            elements += int(end - p)
            new, far = v, violation(loss, v, r, t, c, own_gap)
            low, high = bounds(loss, t, c)
            # What rounding has put out of its bounds goes back, and NaN has to reach w.
            if not (far <= 0.0 and low <= v <= high):
                curvature = _curvature(square(indices, values, scale2, p, end), mean, moment, rho)
                new = parabola_end(loss, was, dual_step(loss, v, r, t, c, curvature))
                change = new - v
                if change != 0.0:
                    add_row(indices, values, scale2, w, p, end, change)
                    b += (rho - moment) * change
                    total += change
                    moved += change
                    moments += moment * change
                    distance += abs(change)
                    along, bend = parabola(loss, was, new, t, c)
                    linear += along
                    quadratic += bend
                    if taken != 0.0:
                        along, bend = parabola(loss, was, v, t, c)
                        linear -= along
                        quadratic -= bend
                    changes += 1
                    size += abs(t * change) + magnitude(loss, v, t, c) + magnitude(loss, new, t, c)
                    step[i] = new - was
            free += is_free(loss, new, t, c)
            worth[i] = priority(loss, new, far * per_unit, t, c)
        building = before = False
        seed += GOLDEN
    bias[B], bias[TOTAL] = b, total
    sums[GAP] += gap
    sums[LINEAR] += linear
    sums[QUADRATIC] += quadratic
    sums[MOVED] += moved
    sums[MOMENT] += moments
    sums[ROWS] += rows
    sums[ELEMENTS] += elements
    sums[FREE] += free
    sums[CHANGES] += changes
    sums[DISTANCE] += distance
    sums[SIZE] += size


@compiled
def count_changes(loss, before, dual, targets, sums):  # type: ignore[no-untyped-def]
    """Add what multipliers have changed by: LINEAR (D without its norm), MOVED, DISTANCE and SIZE.

    They follow from where the multipliers began and ended: rounding has few terms then, however many steps
    there were.
    """
    gained = moved = distance = size = 0.0
    for i in range(len(dual)):
        v, new, t, c = before[i], dual[i], targets[i, 0], targets[i, 1]
        if new != v:
            moved += new - v
            distance += abs(new - v)
            size += abs(t * (new - v)) + magnitude(loss, v, t, c) + magnitude(loss, new, t, c)
            gained += gain(loss, v, new, t, c)
    sums[LINEAR] += gained
    sums[MOVED] += moved
    sums[DISTANCE] += distance
    sums[SIZE] += size


@compiled
def solve(  # type: ignore[no-untyped-def]
    loss, indptr, indices, values, parts, places, squares, moments, scale2, w, bias, follow, targets, dual,
    stationarity, seed, wanted, most_elements, stop, sums
):  # fmt: skip
    """Sweep resident rows, those that stay at a bound set aside, until their gaps sum up to ``wanted``.

    ``parts``: None, or of long rows the cuts, and the words of a team as integers and as numbers; see
        `ooc_svm.solvers.streamed_smo.team_loops`.
    ``follow``: the share of its way to the sum of the multipliers that a penalized bias goes after a sweep at
        first; half of the square of that way is added to the row gaps. 0: it moves with the steps alone.
    ``places`` (uint64, shape (m,)): of the rows of this model among those of the matrix.
    ``squares`` (float64): see `ooc_svm.ops.rows.row_squares`; of each row of the matrix.
    ``moments`` (float64, shape (m,)): ``m.x`` of each row; None without a mean.
    ``dual``, ``stationarity`` (float64, shape (m,)): multipliers (changed), and how far each row was from
        being stationary when last looked at.
    ``wanted``: sum of the row gaps, as seen in one sweep of all rows, at which the work ends.
    ``most_elements``: nonzeros and rows after which it ends anyway, at the end of a sweep.
    ``stop`` (uint8, shape (1,)): not 0 when another thread wants it to end at once, wherever it is.
    ``sums`` (float64, shape (N_SUMS,)): added to: LINEAR (D without its norm), MOVED, ROWS,
        ELEMENTS, CHANGES, DISTANCE, SIZE; GAP is set. What multipliers add to D and to their sum follows
        from where they began and ended: rounding has few terms then, however many steps there were.
    """
    m, before = len(dual), dual.copy()
    b, rho, total = bias[B], bias[RHO], bias[TOTAL]
    gap = apart = 0.0
    low, high = -np.inf, np.inf  # Where a bias that follows comes to its end, as far as is known
    elements = rows = changes = 0
    active, farthest = np.arange(m), np.inf
    aside = np.zeros(m, dtype=np.bool_)
    n_rows, far_weights = len(indptr) - 1, len(w) > NEAR_WEIGHTS
    window = window_of(n_rows, np.int64(indptr[n_rows]))
    moving, left = np.uint64(0), 0.0  # The row that moved last, and its change if that is not in w yet
    while True:
        order = random_order(active, window, seed)
        gap = largest = 0.0
        last = len(order) - 1
        for k in range(len(order)):
            if stop[0]:
                break
            i, following, later = order[k], order[min(k + 1, last)], order[min(k + AHEAD, last)]
            prefetch(places, order[min(k + 3 * AHEAD, last)])
            row_distant = places[order[min(k + 2 * AHEAD, last)]]
            prefetch(indptr, row_distant)
            prefetch(targets, 2 * later)
            prefetch(dual, later)
            prefetch(stationarity, later)
            row, row_later = places[i], places[later]
            prefetch(squares, row_later)
            p, end = indptr[row], indptr[row + np.uint64(1)]
            if parts is None:
                prefetch_row(indptr, indices, values, row_later)
                if far_weights:
                    _prefetch_weights(indptr, indices, w, places[following])
                score = dot(indices, values, w, p, end)
            else:
                cuts, words, numbers = parts
                score = product(
                    indptr, indices, values, cuts, scale2, w, words, numbers, moving, left, row, row_later,
                    row_distant,
                )  # fmt: skip
                left = 0.0
            t, c = targets[i, 0], targets[i, 1]
            v, r = dual[i], t - score - b
            moment = 0.0 if moments is None else moments[i]
            if moments is not None:
                r += total * moment
            own_gap = row_gap(loss, v, r, t, c)
            gap += own_gap
            rows += 1
            elements += int(end - p)
            far = violation(loss, v, r, t, c, own_gap)
            stationarity[i] = far
            if far > 0.0:
                new = dual_step(loss, v, r, t, c, _curvature(squares[row], moments, moment, rho))
                change = new - v
                # A step that rounding swallows would be tried for ever.
                if change != 0.0:
                    largest = max(largest, far)
                    if parts is None:
                        add_row(indices, values, scale2, w, p, end, change)
                    else:
                        moving, left = row, change
                    b += (rho - moment) * change
                    total += change
                    changes += 1
                    dual[i] = new
            elif -far > farthest:
                aside[i] = True
        seed += GOLDEN
        was_apart, apart = apart, total - b if follow > 0.0 else 0.0
        gap += 0.5 * apart * apart
        # Long ways go back and forth where rows answer slowly, short ones lead nowhere where few do.
        if abs(apart) > 0.5 * abs(was_apart):
            follow = 0.5 * follow if was_apart * apart < 0.0 else min(2.0 * follow, 1.0)
        whole, new_b = len(active) == m, b + follow * apart
        if whole and largest == 0.0 and apart != 0.0:
            # All rows are at their best with b, which goes on, but not back and forth.
            low, high = (b, high) if apart > 0.0 else (low, b)
            new_b = total if low < total < high else 0.5 * (low + high)
        done = gap <= wanted or (largest == 0.0 and new_b == b)
        if stop[0] or elements + rows >= most_elements or (whole and done):
            break
        b = new_b
        if gap <= wanted or largest == 0.0:
            active, farthest = np.arange(m), np.inf
            aside[:] = False
        else:
            active, farthest = active[~aside[active]], largest
    if parts is not None:
        cuts, words, numbers = parts
        add_rest(indptr, indices, values, cuts, scale2, w, words, numbers, moving, left)
    count_changes(loss, before, dual, targets, sums)
    bias[B], bias[TOTAL] = b, total
    sums[GAP] = gap
    sums[ROWS] += rows
    sums[ELEMENTS] += elements
    sums[CHANGES] += changes
    return whole and done


@compiled
def lane_products(w, before, after, scale2):  # type: ignore[no-untyped-def]
    """``w.change`` and ``change.change``, lanes having changed weights from ``before`` to ``after``."""
    first = second = 0.0
    for j in range(len(w)):
        change = after[j] - before[j]
        scaled = change if scale2 is None else change / scale2[j]
        first += w[j] * scaled
        second += change * scaled
    return first, second


@compiled
def put_inside(loss, dual, targets):  # type: ignore[no-untyped-def]
    """Put multipliers that rounding has moved out of their bounds back, in place."""
    for i in range(len(dual)):
        low, high = bounds(loss, targets[i, 0], targets[i, 1])
        dual[i] = min(max(dual[i], low), high)


@compiled
def add_change(w, theta, before, after):  # type: ignore[no-untyped-def]
    """``w += theta change``; see `lane_products`."""
    for j in range(len(w)):
        w[j] += theta * (after[j] - before[j])


@compiled
def priorities(loss, dual, stationarity, unit, targets, out):  # type: ignore[no-untyped-def]
    """What each row is worth keeping, see `priority`."""
    per_unit = 1.0 / unit
    for i in range(len(dual)):
        out[i] = priority(loss, dual[i], stationarity[i] * per_unit, targets[i, 0], targets[i, 1])


@compiled
def residuals(indptr, indices, values, places, moments, w, bias, targets, out):  # type: ignore[no-untyped-def]
    """``t - f(x)`` of the resident rows at some places."""
    b, total = bias[B], bias[TOTAL]
    for i in range(len(out)):
        row = places[i]
        r = targets[i, 0] - dot(indices, values, w, indptr[row], indptr[row + np.uint64(1)]) - b
        out[i] = r if moments is None else r + total * moments[i]


@compiled
def row_gaps(loss, dual, residual, targets, stationarity):  # type: ignore[no-untyped-def]
    """The sum of the row gaps at some residuals; how far each row is from being stationary (out)."""
    gap = 0.0
    for i in range(len(dual)):
        v, r, t, c = dual[i], residual[i], targets[i, 0], targets[i, 1]
        own_gap = row_gap(loss, v, r, t, c)
        gap += own_gap
        stationarity[i] = violation(loss, v, r, t, c, own_gap)
    return gap


@compiled
def count_outside(loss, dual, targets, share):  # type: ignore[no-untyped-def]
    """Number of multipliers that are outside their bounds by more than a share of these, or no numbers."""
    outside = 0
    for i in range(len(dual)):
        low, high = bounds(loss, targets[i, 0], targets[i, 1])
        v = dual[i]
        outside += not (low - share * abs(low) <= v <= high + share * abs(high) and abs(v) < np.inf)
    return outside


@compiled
def count_free(loss, dual, targets):  # type: ignore[no-untyped-def]
    """Number of rows that are free."""
    free = 0
    for i in range(len(dual)):
        free += is_free(loss, dual[i], targets[i, 0], targets[i, 1])
    return free


@compiled
def slope_sum(loss, residual, shift, targets):  # type: ignore[no-untyped-def]
    """Sum of the losses' slopes at residuals less a shift."""
    total = 0.0
    for i in range(len(residual)):
        total += slope(loss, residual[i] - shift, targets[i, 0], targets[i, 1])
    return total


@compiled
def rooms(loss, dual, targets, away, room, inside):  # type: ignore[no-untyped-def]
    """How far each multiplier may move in a direction without a change of its sign.

    ``away`` is 1 or -1. ``room`` and ``inside``, whether a multiplier is off its bounds, are filled.
    """
    for i in range(len(dual)):
        v = dual[i]
        low, high = bounds(loss, targets[i, 0], targets[i, 1])
        room[i] = max(min(high - v if away > 0.0 else v - low, abs(v)), 0.0)
        inside[i] = low < v < high


@compiled
def gains(loss, dual, change, targets, out):  # type: ignore[no-untyped-def]
    """What D without its norm gains with each change of a multiplier."""
    for i in range(len(dual)):
        v, t, c = dual[i], targets[i, 0], targets[i, 1]
        out[i] = gain(loss, v, v + change[i], t, c)
