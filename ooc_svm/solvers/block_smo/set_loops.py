"""The compiled loops of block SMO: slopes of D, steps inside of the working set, sums over all rows.

D is maximised over the multipliers v of the rows, each between its bounds, see `ooc_svm.losses.quadratic`:

    D(v) = sum_i (t_i v_i - eps_i |v_i| - damping_i v_i^2 / 2) - v.K.v / 2,     h = K v

Its slope where v_i grows is ``up``, and the one that is lost where v_i shrinks ``down``; they differ where
v_i is 0 and eps is not. All losses of rows are one case: a regression needs no second set of multipliers.
"""

from __future__ import annotations

import math

import numpy as np

from ooc_svm.losses.functions import conjugate, magnitude, value
from ooc_svm.losses.quadratic import dual_box
from ooc_svm.losses.row_loops import OWN_ERROR, steepest_slope
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.largest import LANES, first_largest

TINY = 1e-12  # Curvature that stands for none: such a step ends at a bound
# Of a curvature, the share that is left at least where another multiplier has followed: less is rounding.
FLAT = 1e-6


@inlined
def _up(v, d, low, high, eps, damping):  # type: ignore[no-untyped-def]
    """The slope of D where v grows; minus infinity at its bound."""
    if v >= high:
        return -math.inf
    return d - damping * v - (eps if v >= 0.0 else -eps)


@inlined
def _down(v, d, low, high, eps, damping):  # type: ignore[no-untyped-def]
    """The slope of D up to v, which is lost where v shrinks; infinite at its bound."""
    if v <= low:
        return math.inf
    return d - damping * v - (eps if v > 0.0 else -eps)


@compiled
def fill_boxes(loss, targets, costs, boxes):  # type: ignore[no-untyped-def]
    """Bounds, eps and damping of each row, in ``boxes`` of shape (4, rows)."""
    for i in range(len(targets)):
        boxes[0, i], boxes[1, i], boxes[2, i], boxes[3, i] = dual_box(loss, targets[i], costs[i])


@compiled
def slopes(loss, v, h, targets, costs, up, down):  # type: ignore[no-untyped-def]
    """Both slopes of each row; all arrays are float64 of shape (rows,)."""
    for i in range(len(v)):
        low, high, eps, damping = dual_box(loss, targets[i], costs[i])
        d = targets[i] - h[i]
        up[i] = _up(v[i], d, low, high, eps, damping)
        down[i] = _down(v[i], d, low, high, eps, damping)


@inlined
def _slope_near(loss, h, bias, error, t, c):  # type: ignore[no-untyped-def]
    """The steepest slope of a row whose score is off by ``error`` at most, and the size of its terms."""
    size = abs(t) + abs(h) + abs(bias)
    return steepest_slope(loss, t - h - bias, error + OWN_ERROR * size, t, c), size


@compiled
def mark_losses(loss, v, h, bias, errors, reach, targets, costs, marks):  # type: ignore[no-untyped-def]
    """Mark rows without a multiplier that have a slope where their score is off by ``reach`` errors."""
    for i in range(len(v)):
        marks[i] = False
        if v[i] == 0.0 and costs[i] > 0.0:
            marks[i] = _slope_near(loss, h[i], bias, reach * errors[i], targets[i], costs[i])[0] != 0.0


@inlined
def _reach(v, bound, eps):  # type: ignore[no-untyped-def]
    """Where a step towards a bound has to end: there, or at a kink on the way."""
    kink = eps > 0.0 and ((v < 0.0 and bound > 0.0) or (v > 0.0 and bound < 0.0))
    return 0.0 if kink else bound


@inlined
def padded(m):  # type: ignore[no-untyped-def]
    """Length of an array that `first_largest` can take."""
    return max((m + LANES - 1) // LANES, 1) * LANES


@inlined(error_model="numpy")
def _gain(slope, curvature):  # type: ignore[no-untyped-def]
    """What a step gains: without a test of the divisor, which would keep loops from being vectorised."""
    return slope * (slope / curvature)


@inlined
def _offsets(k, v, boxes, upward, downward):  # type: ignore[no-untyped-def]
    """What d exceeds the slopes of a row by: they are ``d - upward`` and ``d - downward``."""
    upward[k] = -_up(v[k], 0.0, boxes[0, k], boxes[1, k], boxes[2, k], boxes[3, k])
    downward[k] = -_down(v[k], 0.0, boxes[0, k], boxes[1, k], boxes[2, k], boxes[3, k])


@compiled
def solve_pairs(K, boxes, v, d, share, most):  # type: ignore[no-untyped-def]
    """Steps of two multipliers, whose sum is kept: Platt's, the second chosen as by Fan, Chen and Lin (2005).

    ``K``: kernel values of the set, shape (m, m).
    ``boxes``: see `fill_boxes`.
    ``v``, ``d``: multipliers, and ``t - h``; both are changed.
    ``share``: of the violation at the start, at which it ends.
    ``most``: steps at most.

    Returns the number of steps and the smallest curvature that was met.
    """
    m, least, target = len(v), math.inf, -1.0
    low, high, eps, damping = boxes[0], boxes[1], boxes[2], boxes[3]
    diagonal, upward, downward = np.empty(m), np.empty(m), np.empty(m)
    for k in range(m):
        diagonal[k] = np.float64(K[k, k]) + damping[k]
        _offsets(k, v, boxes, upward, downward)
    # Slopes, those downwards with the other sign, and the gain of a second multiplier.
    up, lost = np.full(padded(m), -math.inf), np.full(padded(m), -math.inf)
    gain = np.full(padded(m), -np.float32(math.inf), np.float32)
    for step in range(most):
        for k in range(m):
            up[k] = d[k] - upward[k]
            lost[k] = downward[k] - d[k]
        i = first_largest(up)
        best, violation = up[i], up[i] + lost[first_largest(lost)]
        if target < 0.0:
            target = share * violation
        if not violation > target:
            return step, least
        row, own = K[i], diagonal[i]
        for k in range(m):
            # What is chosen follows from these alone: float32 will do.
            difference = np.float32(max(best + lost[k], 0.0))
            curvature = np.float32(max(own + diagonal[k] - 2.0 * np.float64(row[k]), TINY))
            gain[k] = _gain(difference, curvature)
        j = first_largest(gain)
        curvature = own + diagonal[j] - 2.0 * np.float64(row[j])
        least = min(least, curvature)
        end_i, end_j = _reach(v[i], high[i], eps[i]), _reach(v[j], low[j], eps[j])
        room_i, room_j = end_i - v[i], v[j] - end_j
        change = min((best + lost[j]) / max(curvature, TINY), room_i, room_j)
        # At a bound it is exactly there.
        v[i] = end_i if change == room_i else v[i] + change
        v[j] = end_j if change == room_j else v[j] - change
        _offsets(i, v, boxes, upward, downward)
        _offsets(j, v, boxes, upward, downward)
        other = K[j]
        for k in range(m):
            d[k] -= change * (np.float64(row[k]) - np.float64(other[k]))
    return most, least


@inlined
def _piece(v, d, low, high, eps, damping):  # type: ignore[no-untyped-def]
    """The slope of D on the side of a kink that v moves to, and the ends of that side."""
    kink = eps > 0.0
    if v > 0.0 or (v == 0.0 and d > 0.0):
        return d - damping * v - eps, max(low, 0.0) if kink else low, high
    return d - damping * v + eps, low, min(high, 0.0) if kink else high


@inlined
def _within(step, v, low, high):  # type: ignore[no-untyped-def]
    """A step of a multiplier, no further than to its ends."""
    return min(max(step, low - v), high - v)


@inlined
def _of_two(first, second, product, gains):  # type: ignore[no-untyped-def]
    """What steps of two multipliers gain; ``gains``: slopes and curvatures of both."""
    slope, curvature, other_slope, other_curvature = gains
    own = first * (slope - 0.5 * curvature * first)
    return own + second * (other_slope - 0.5 * other_curvature * second - product * first)


@inlined
def _best_two(product, gains, ends):  # type: ignore[no-untyped-def]
    """The steps of two multipliers that gain most between their ends.

    ``product``: kernel value of the two rows. ``gains``: see `_of_two`.
    ``ends``: of both, each as multiplier, lower and upper end.

    Where the top of the parabola is outside of the rectangle, the best point lies on an edge that it is
    beyond of.
    """
    slope, curvature, other_slope, other_curvature = gains
    v, low, high, other_v, other_low, other_high = ends
    determinant = curvature * other_curvature - product * product
    first = (other_curvature * slope - product * other_slope) / determinant
    second = (curvature * other_slope - product * slope) / determinant
    at_first, at_second = _within(first, v, low, high), _within(second, other_v, other_low, other_high)
    if at_first == first and at_second == second:
        return first, second
    best_first, best_second, best = 0.0, 0.0, 0.0
    if at_first != first:
        step = (other_slope - product * at_first) / other_curvature
        across = _within(step, other_v, other_low, other_high)
        best_first, best_second = at_first, across
        best = _of_two(at_first, across, product, gains)
    if at_second != second:
        across = _within((slope - product * at_second) / curvature, v, low, high)
        gain = _of_two(across, at_second, product, gains)
        if gain > best:
            best_first, best_second = across, at_second
    return best_first, best_second


@inlined
def _moved(v, change, low, high):  # type: ignore[no-untyped-def]
    """A multiplier after its step: at a bound it is exactly there."""
    if change == high - v:
        return high
    return low if change == low - v else v + change


@compiled
def solve_free_sum(K, boxes, v, d, share, most):  # type: ignore[no-untyped-def]
    """Steps of two multipliers whose sum is free, as by Steinwart, Hush and Scovel (2011).

    The first is that whose own step gains most, the second that which gains most after this step.
    The arguments are those of `solve_pairs`; with a penalized bias K has it, and d too.
    """
    m, least, target = len(v), math.inf, -1.0
    low, high, eps, damping = boxes[0], boxes[1], boxes[2], boxes[3]
    diagonal, upward, downward = np.empty(m), np.empty(m), np.empty(m)
    for k in range(m):
        diagonal[k] = max(np.float64(K[k, k]) + damping[k], TINY)
        least = min(least, np.float64(K[k, k]))
        _offsets(k, v, boxes, upward, downward)
    sizes, gain = np.full(padded(m), -math.inf), np.full(padded(m), -np.float32(math.inf), np.float32)
    for step in range(most):
        for k in range(m):
            # At most one of them is above 0.
            size = max(d[k] - upward[k], downward[k] - d[k], 0.0)
            sizes[k] = size
            gain[k] = np.float32(_gain(size, diagonal[k]))
        worst = sizes[first_largest(sizes)]
        if target < 0.0:
            target = share * worst
        if not worst > target:
            return step, least
        i = first_largest(gain)
        row, own = K[i], diagonal[i]
        slope, low_i, high_i = _piece(v[i], d[i], low[i], high[i], eps[i], damping[i])
        alone = _within(slope / own, v[i], low_i, high_i)
        for k in range(m):
            value = np.float64(row[k])
            after = d[k] - alone * value
            size = max(after - upward[k], downward[k] - after, 0.0)
            gain[k] = np.float32(_gain(size, max(diagonal[k] - value * (value / own), FLAT * diagonal[k])))
        gain[i] = -np.float32(1.0)
        j = first_largest(gain)
        change, other_change = alone, 0.0
        if gain[j] > 0.0:
            value = np.float64(row[j])
            shared = value * (value / own)
            least = min(least, diagonal[j] - shared)
            curvature = max(diagonal[j], shared + FLAT * diagonal[j])
            slope_j, low_j, high_j = _piece(v[j], d[j] - alone * value, low[j], high[j], eps[j], damping[j])
            change, other_change = _best_two(
                value,
                (slope, own, slope_j + alone * value, curvature),
                (v[i], low_i, high_i, v[j], low_j, high_j),
            )
            v[j] = _moved(v[j], other_change, low_j, high_j)
            _offsets(j, v, boxes, upward, downward)
        v[i] = _moved(v[i], change, low_i, high_i)
        _offsets(i, v, boxes, upward, downward)
        other = K[j]
        for k in range(m):
            d[k] -= change * np.float64(row[k]) + other_change * np.float64(other[k])
    return most, least


# Places of the sums of `add_sums`.
VH, V, ABS_V, ABS_VH, TV, ABS_TV, CONJUGATE, MAGNITUDE = range(8)
POSITIVE, PULL_UP, PULL_DOWN, SUPPORT = range(8, 12)
ABS_V_ERROR, LOSSES, SLOPES, SLOPE_SIZES, SLOPE_ERRORS, AT_ZERO, N_SUMS = range(12, 19)


@compiled
def add_sums(loss, v, h, errors, bias, targets, costs, sums):  # type: ignore[no-untyped-def]
    """Add what P at a bias, D and their rounding are made of to ``sums``, float64 of shape (N_SUMS,).

    ``errors``: what each score is off by at most. The pulls are ``|v| (|t| + |h|)`` of the positive and of
    the negative multipliers. Of the losses there are the sums of their values, of their steepest slopes g
    near by, of ``g (|t| + |h| + |b|)`` and g times the errors, and of their values where all scores are 0,
    no less than their costs.
    """
    for i in range(len(v)):
        own, t, size = v[i], targets[i], abs(v[i])
        if costs[i] > 0.0:
            g, terms = _slope_near(loss, h[i], bias, errors[i], t, costs[i])
            sums[LOSSES] += value(loss, t - h[i] - bias, t, costs[i])
            sums[SLOPES] += g
            sums[SLOPE_SIZES] += g * terms
            sums[SLOPE_ERRORS] += g * errors[i]
            sums[AT_ZERO] += max(value(loss, t, t, costs[i]), costs[i])
        if own == 0.0:
            continue
        sums[VH] += own * h[i]
        sums[V] += own
        sums[ABS_V] += size
        sums[ABS_VH] += size * abs(h[i])
        sums[ABS_V_ERROR] += size * errors[i]
        sums[TV] += t * own
        sums[ABS_TV] += size * abs(t)
        sums[CONJUGATE] += conjugate(loss, own, t, costs[i])
        sums[MAGNITUDE] += magnitude(loss, own, t, costs[i])
        pull = size * (abs(t) + abs(h[i]))
        if own > 0.0:
            sums[POSITIVE] += own
            sums[PULL_UP] += pull
        else:
            sums[PULL_DOWN] += pull
        sums[SUPPORT] += 1.0
