"""Dual coordinate steps over sparse rows: one multiplier at a time, exactly, inside its box.

Row i contributes ``v_i x_i`` to w, and the dual to be maximised is

    D(v) = sum_i (t_i v_i - eps |v_i| - damping_i v_i^2 / 2) - 1/2 |w|^2,      low_i <= v_i <= high_i

which is every loss of the linear problems here (`ooc_svm.solvers.streamed_smo.dual`). With the residual
``r_i = t_i - x_i.w - b`` the row's loss is ``max_v r_i v - eps |v| - damping_i v^2 / 2`` over its box, and
the row's gap is that maximum less the value at v_i: the gaps of all rows sum up to P - D.

Platt (1998), equation 23, is the step for the hinge loss. A bias enters as a feature of value sqrt(rho) with
the weight kept apart: ``b`` moves by ``rho`` times the change of v.

``box`` holds (t, low, high, damping) of each row side by side. Where columns are scaled by ``c_j``, w is
kept in units of the data and ``metric`` is ``c_j^2``; it is None without scaling, which Numba compiles apart,
as it does data without values.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.hashing import mix
from ooc_svm.ops.intrinsics import prefetch

# Sums of a sweep.
GAP, LINEAR, QUADRATIC, MOVED, ROWS, ELEMENTS = range(6)
N_SUMS = 6

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# Steps come in a random order, but in windows that fit a core's own cache: rows anywhere in memory in random
# order take three to five times as long.
WINDOW_ELEMENTS = 1 << 13

# Rows are asked for so many steps ahead. Their weights one step ahead, where there are more than a core's own
# cache holds: a step that nobody can guess, taken or not, keeps a processor from looking further by itself.
# Of a long row the first elements are enough.
AHEAD = 4
NEAR_WEIGHTS = 1 << 17
MOST_AHEAD = np.uint64(1024)

PACKET = 16

# Bits of a row's mark.
HELD, HELD_AT_START = np.uint8(1), np.uint8(2)


@compiled
def shuffle(order, seed):  # type: ignore[no-untyped-def]
    """Put the entries of an array in a random order: Fisher and Yates, with splitmix64."""
    state = mix(seed)
    for i in range(len(order) - 1, 0, -1):
        state += _GOLDEN
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
def _window(n_rows, n_elements):  # type: ignore[no-untyped-def]
    """Rows that fit a core's own cache together."""
    return max(16, min(4096, WINDOW_ELEMENTS * n_rows // max(n_elements, 1)))


@compiled
def _random_order(rows, window, seed):  # type: ignore[no-untyped-def]
    """The rows in a random order: neighbours stay near each other, within so many places."""
    order = packets(rows, seed)
    for start in range(0, len(order), window):
        shuffle(order[start : start + window], seed + np.uint64(start))
    return order


@inlined
def _prefetch_row(indptr, indices, values, row):  # type: ignore[no-untyped-def]
    """Ask for the elements of a row: its first ones, and the last."""
    p, end = indptr[row], indptr[row + np.uint64(1)]
    last, end = end - np.uint64(1), min(end, p + MOST_AHEAD)
    prefetch(indices, last)
    if values is not None:
        prefetch(values, last)
    while p < end:
        prefetch(indices, p)
        if values is not None:
            prefetch(values, p)
            if values.itemsize == 8:
                prefetch(values, p + np.uint64(8))
        p += np.uint64(16)


@inlined
def _prefetch_weights(indptr, indices, w, row):  # type: ignore[no-untyped-def]
    """Ask for the first weights of a row."""
    p = indptr[row]
    end = min(indptr[row + np.uint64(1)], p + MOST_AHEAD)
    while p < end:
        prefetch(w, indices[p])
        p += np.uint64(1)


@compiled
def row_loss(r, low, high, eps, damping):  # type: ignore[no-untyped-def]
    """``max_v r v - eps |v| - damping v^2 / 2`` over ``low <= v <= high``."""
    if r > eps:
        excess, bound = r - eps, high
    elif r < -eps:
        excess, bound = r + eps, low
    else:
        return 0.0
    if damping > 0.0:
        v = excess / damping if bound != 0.0 else 0.0
        return v * excess - 0.5 * damping * v * v
    return bound * excess


@compiled
def violation(v, d, low, high, eps):  # type: ignore[no-untyped-def]
    """How far a multiplier is from being stationary, ``d`` being ``r - damping v``.

    Positive: the size of the projected gradient. Not positive: the multiplier is consistent at a bound or at
    zero, and its residual would have to change by so much before it moved.
    """
    if v > 0.0 or (v == 0.0 and d > eps):
        g = d - eps
        return -g if v >= high and g >= 0.0 else abs(g)
    if v < 0.0 or (v == 0.0 and d < -eps):
        g = d + eps
        return g if v <= low and g <= 0.0 else abs(g)
    return abs(d) - eps


@compiled
def new_multiplier(v, d, curvature, low, high, eps):  # type: ignore[no-untyped-def]
    """The multiplier that maximises D with all others fixed; NaN if the row's norm overflows."""
    if curvature == np.inf:
        return np.nan
    if curvature > 0.0:
        u, threshold = v + d / curvature, eps / curvature
        if u > threshold:
            u -= threshold
        elif u < -threshold:
            u += threshold
        else:
            u = 0.0
        return min(max(u, low), high)
    if d > eps:
        return high
    if d < -eps:
        return low
    return v if abs(d) == eps and v * d >= 0.0 else 0.0


@compiled
def priority(v, stationarity, low, high, eps):  # type: ignore[no-untyped-def]
    """How much a row is worth keeping: non-bound first, then by violation, then the nearest the margin."""
    if stationarity > 0.0:
        size = 1.0 + stationarity / (1.0 + stationarity)
    else:
        size = 1.0 / (1.0 - stationarity)
    if low < v < high and (eps == 0.0 or v != 0.0):
        size += 2.0
    return size


@inlined
def _dot(indices, values, w, p, end):  # type: ignore[no-untyped-def]
    """``x.w`` of one row."""
    s0 = s1 = s2 = s3 = 0.0
    two, one, three, four = np.uint64(2), np.uint64(1), np.uint64(3), np.uint64(4)
    while p + four <= end:
        j0, j1, j2, j3 = indices[p], indices[p + one], indices[p + two], indices[p + three]
        if values is None:
            s0 += w[j0]
            s1 += w[j1]
            s2 += w[j2]
            s3 += w[j3]
        else:
            s0 += np.float64(values[p]) * w[j0]
            s1 += np.float64(values[p + one]) * w[j1]
            s2 += np.float64(values[p + two]) * w[j2]
            s3 += np.float64(values[p + three]) * w[j3]
        p += four
    while p < end:
        s0 += w[indices[p]] if values is None else np.float64(values[p]) * w[indices[p]]
        p += one
    return (s0 + s1) + (s2 + s3)


@inlined
def _term(indices, values, metric, p):  # type: ignore[no-untyped-def]
    """What one element adds to ``x.x``."""
    if metric is None:
        square = 1.0
    else:
        square = metric[indices[p]]
    if values is not None:
        x = np.float64(values[p])
        square *= x * x
    return square


@inlined
def _square(indices, values, metric, p, end):  # type: ignore[no-untyped-def]
    """``x.x`` (with the metric) of one row."""
    if values is None and metric is None:
        return np.float64(end - p)
    q0 = q1 = q2 = q3 = 0.0
    two, one, three, four = np.uint64(2), np.uint64(1), np.uint64(3), np.uint64(4)
    while p + four <= end:
        q0 += _term(indices, values, metric, p)
        q1 += _term(indices, values, metric, p + one)
        q2 += _term(indices, values, metric, p + two)
        q3 += _term(indices, values, metric, p + three)
        p += four
    while p < end:
        q0 += _term(indices, values, metric, p)
        p += one
    return (q0 + q1) + (q2 + q3)


@inlined
def _add_row(indices, values, metric, w, p, end, v):  # type: ignore[no-untyped-def]
    """``w += v x``, in units of the data."""
    while p < end:
        j = indices[p]
        x = v if values is None else v * np.float64(values[p])
        w[j] += x if metric is None else x * metric[j]
        p += np.uint64(1)


@compiled
def sweep(  # type: ignore[no-untyped-def]
    indptr, indices, values, first, every, seed, metric, w, rebuilt, bias, box, eps, marks,
    dual, step, keys, sums
):  # fmt: skip
    """Move the multipliers of a piece's rows once, one after another; rows that are held stay as they are.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, float or None)
    first, every : uint64
        The piece's first row in the block, and the distance to the next.
    seed : uint64
        Of the order of the steps.
    metric : ndarray of float64, shape (n_features,), or None
    w : ndarray of float64, shape (n_features,)
        Changed.
    rebuilt : ndarray of float64, shape (n_features,) or (0,)
        The sum of ``v_i x_i`` before the steps; not wanted where it is empty.
    bias : ndarray of float64, shape (2,)
        b (changed) and rho.
    box : ndarray of float64, shape (m, 4)
    eps : float
    marks : ndarray of uint8, shape (m,)
        HELD and HELD_AT_START.
    dual, step : ndarrays of float64, shape (m,)
        Multipliers, unchanged, and what the steps add to them (out).
    keys : ndarray of float64, shape (m,)
        Out: what a row is worth keeping (-1 where it is held).
    sums : ndarray of float64, shape (N_SUMS,)
    """
    b, rho = bias[0], bias[1]
    gap = linear = quadratic = moved = 0.0
    rows = elements = 0
    building = len(rebuilt) > 0
    m = len(dual)
    last = indptr[first + every * np.uint64(m - 1) + np.uint64(1)]
    window = _window(m, np.int64((last - indptr[first]) // every))
    order, far_weights = _random_order(np.arange(m), window, seed), len(w) > NEAR_WEIGHTS
    for k in range(m):
        i, following, later = order[k], order[min(k + 1, m - 1)], order[min(k + AHEAD, m - 1)]
        prefetch(box, 4 * later)
        prefetch(dual, later)
        prefetch(keys, later)
        _prefetch_row(indptr, indices, values, first + every * np.uint64(later))
        if far_weights:
            _prefetch_weights(indptr, indices, w, first + every * np.uint64(following))
        row = first + every * np.uint64(i)
        p, end = indptr[row], indptr[row + np.uint64(1)]
        if building and dual[i] != 0.0 and not marks[i] & HELD_AT_START:
            _add_row(indices, values, metric, rebuilt, p, end, dual[i])
        step[i] = 0.0
        if marks[i] & HELD:
            keys[i] = -1.0
            continue
        t, low, high, damping = box[i, 0], box[i, 1], box[i, 2], box[i, 3]
        v, r = dual[i], t - _dot(indices, values, w, p, end) - b
        gap += row_loss(r, low, high, eps, damping) - (r * v - eps * abs(v) - 0.5 * damping * v * v)
        d = r - damping * v
        rows += 1
        elements += int(end - p)
        new, far = v, violation(v, d, low, high, eps)
        # What rounding has put out of its box goes back, and NaN has to reach w.
        if not (far <= 0.0 and low <= v <= high):
            curvature = _square(indices, values, metric, p, end) + rho + damping
            new = new_multiplier(v, d, curvature, low, high, eps)
            # With |v| in the dual a step ends at 0, so that D is a parabola along it.
            if eps > 0.0 and new * v < 0.0:
                new = 0.0
            change = new - v
            if change != 0.0:
                _add_row(indices, values, metric, w, p, end, change)
                b += rho * change
                moved += change
                linear += t * change - eps * (abs(new) - abs(v)) - damping * v * change
                quadratic += damping * change * change
                step[i] = change
                far = max(far, violation(new, d - curvature * change, low, high, eps))
        keys[i] = priority(new, far, low, high, eps)
    bias[0] = b
    sums[GAP] += gap
    sums[LINEAR] += linear
    sums[QUADRATIC] += quadratic
    sums[MOVED] += moved
    sums[ROWS] += rows
    sums[ELEMENTS] += elements


@compiled
def solve(  # type: ignore[no-untyped-def]
    indptr, indices, values, squares, metric, w, bias, box, eps, dual, stationarity, seed, wanted,
    most_elements, sums
):  # fmt: skip
    """Sweep resident rows, those that stay at a bound set aside, until their gaps sum up to ``wanted``.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, float or None)
    squares : ndarray of float64, shape (m,)
        See `row_squares`.
    metric, w, bias, box, eps : see `sweep`
    dual, stationarity : ndarrays of float64, shape (m,)
        Multipliers (changed), and how far each row was from being stationary when last looked at.
    seed : uint64
    wanted : float
        Sum of the row gaps, as seen in one sweep of all rows, at which the work ends.
    most_elements : int
        Nonzeros and rows after which it ends anyway, at the end of a sweep.
    sums : ndarray of float64, shape (N_SUMS,)
        Added to: LINEAR (D without its norm), MOVED, ROWS, ELEMENTS; GAP is set.
    """
    m = len(dual)
    b, rho = bias[0], bias[1]
    gain = moved = gap = 0.0
    elements = rows = 0
    active, farthest = np.arange(m), np.inf
    aside = np.zeros(m, dtype=np.bool_)
    window, far_weights = _window(m, np.int64(indptr[m])), len(w) > NEAR_WEIGHTS
    while True:
        order = _random_order(active, window, seed)
        gap = largest = 0.0
        last = len(order) - 1
        for k in range(len(order)):
            i, following, later = order[k], order[min(k + 1, last)], order[min(k + AHEAD, last)]
            prefetch(box, 4 * later)
            prefetch(dual, later)
            prefetch(stationarity, later)
            prefetch(squares, later)
            _prefetch_row(indptr, indices, values, np.uint64(later))
            if far_weights:
                _prefetch_weights(indptr, indices, w, np.uint64(following))
            p, end = indptr[i], indptr[i + 1]
            t, low, high, damping = box[i, 0], box[i, 1], box[i, 2], box[i, 3]
            v, r = dual[i], t - _dot(indices, values, w, p, end) - b
            d = r - damping * v
            gap += row_loss(r, low, high, eps, damping) - (r * v - eps * abs(v) - 0.5 * damping * v * v)
            rows += 1
            elements += int(end - p)
            far = violation(v, d, low, high, eps)
            stationarity[i] = far
            if far > 0.0:
                new = new_multiplier(v, d, squares[i] + rho + damping, low, high, eps)
                change = new - v
                # A step that rounding swallows would be tried for ever.
                if change != 0.0:
                    largest = max(largest, far)
                    _add_row(indices, values, metric, w, p, end, change)
                    b += rho * change
                    moved += change
                    gain += t * change - eps * (abs(new) - abs(v)) - 0.5 * damping * (new * new - v * v)
                    dual[i] = new
            elif -far > farthest:
                aside[i] = True
        seed += _GOLDEN
        whole = len(active) == m
        if elements + rows >= most_elements or (whole and (gap <= wanted or largest == 0.0)):
            break
        if gap <= wanted or largest == 0.0:
            active, farthest = np.arange(m), np.inf
            aside[:] = False
        else:
            active, farthest = active[~aside[active]], largest
    bias[0] = b
    sums[GAP] = gap
    sums[LINEAR] += gain
    sums[MOVED] += moved
    sums[ROWS] += rows
    sums[ELEMENTS] += elements


@compiled
def scores(indptr, indices, values, first, every, w, out):  # type: ignore[no-untyped-def]
    """``out[i] = x.w`` of the rows of a piece, see `sweep`."""
    for i in range(len(out)):
        row = first + every * np.uint64(i)
        out[i] = _dot(indices, values, w, indptr[row], indptr[row + np.uint64(1)])


@compiled
def lane_products(w, before, after, metric):  # type: ignore[no-untyped-def]
    """``w.change`` and ``change.change``, lanes having changed weights from ``before`` to ``after``."""
    first = second = 0.0
    for j in range(len(w)):
        change = after[j] - before[j]
        scaled = change if metric is None else change / metric[j]
        first += w[j] * scaled
        second += change * scaled
    return first, second


@compiled
def add_change(w, theta, before, after):  # type: ignore[no-untyped-def]
    """``w += theta change``; see `lane_products`."""
    for j in range(len(w)):
        w[j] += theta * (after[j] - before[j])


@compiled
def row_squares(indptr, indices, values, metric, rows, out):  # type: ignore[no-untyped-def]
    """``out[k] = x.x`` (with the metric) of row ``rows[k]``."""
    for k in range(len(rows)):
        out[k] = _square(indices, values, metric, indptr[rows[k]], indptr[rows[k] + 1])


@compiled
def add_rows(indptr, indices, values, metric, coefficients, w):  # type: ignore[no-untyped-def]
    """``w += sum_i coefficients_i x_i``, in units of the data."""
    for i in range(len(coefficients)):
        if coefficients[i] != 0.0:
            _add_row(indices, values, metric, w, indptr[i], indptr[i + 1], coefficients[i])
