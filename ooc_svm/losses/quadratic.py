"""Losses whose conjugate is a parabola between two bounds, with a kink at zero at most.

    l*(v) = eps |v| + damping v^2 / 2,      low <= v <= high

`dual_box` gives the four numbers of a row; all functions of such a loss follow from them (`quadratic`).
"""

from __future__ import annotations

import numpy as np

from ooc_svm.losses import functions
from ooc_svm.losses.functions import FREE_PRIORITY, FUNCTIONS, implements
from ooc_svm.ops.compiled import inlined


def dual_box(loss, t, c):  # type: ignore[no-untyped-def]
    """``low``, ``high``, ``eps`` and ``damping`` of a row; a row that costs nothing cannot move."""
    raise NotImplementedError


FUNCTIONS["dual_box"] = dual_box

QUADRATIC: set[type] = set()  # The losses of this kind


def quadratic(*losses: type) -> None:
    """Implement all functions of these losses, which have a `dual_box`, but `breakpoint`."""
    QUADRATIC.update(losses)
    for function in (
        value, slope, bounds, conjugate, magnitude, row_gap, dual_step, step_slope, violation, priority,
        is_free, gain, parabola, parabola_end
    ):  # fmt: skip
        implements(*losses)(function)


@inlined
def _beyond(x, eps):  # type: ignore[no-untyped-def]
    """How far x is beyond eps or -eps; without a branch, as no processor foresees the signs of residuals."""
    return max(x - eps, 0.0) + min(x + eps, 0.0)


def value(loss, r, t, c):  # type: ignore[no-untyped-def]
    """``max_v r v - l*(v)``."""
    low, high, eps, damping = dual_box(loss, t, c)
    excess, v = _beyond(r, eps), high if r > 0.0 else low
    if damping > 0.0:
        v = min(max(excess / damping, low), high)
        return v * excess - 0.5 * damping * v * v
    return v * excess


def slope(loss, r, t, c):  # type: ignore[no-untyped-def]
    """The v of that maximum."""
    low, high, eps, damping = dual_box(loss, t, c)
    if r > eps:
        excess, v = r - eps, high
    elif r < -eps:
        excess, v = r + eps, low
    else:
        return 0.0
    return min(max(excess / damping, low), high) if damping > 0.0 else v


def bounds(loss, t, c):  # type: ignore[no-untyped-def]
    """``low`` and ``high``."""
    low, high, _, _ = dual_box(loss, t, c)
    return low, high


def conjugate(loss, v, t, c):  # type: ignore[no-untyped-def]
    """``eps |v| + damping v^2 / 2``."""
    _, _, eps, damping = dual_box(loss, t, c)
    return eps * abs(v) + 0.5 * damping * v * v


def magnitude(loss, v, t, c):  # type: ignore[no-untyped-def]
    """The conjugate itself: no term of it is negative, and none is steep."""
    return functions.conjugate(loss, v, t, c)


def row_gap(loss, v, r, t, c):  # type: ignore[no-untyped-def]
    """By its definition."""
    return functions.value(loss, r, t, c) + functions.conjugate(loss, v, t, c) - r * v


def dual_step(loss, v, r, t, c, curvature):  # type: ignore[no-untyped-def]
    """Platt (1998), equation 23, with a soft threshold of eps."""
    low, high, eps, damping = dual_box(loss, t, c)
    d = r - damping * v
    curvature += damping
    if curvature == np.inf:
        return np.nan
    if curvature > 0.0:
        up, down = v + (d - eps) / curvature, v + (d + eps) / curvature
        return min(max(max(up, 0.0) + min(down, 0.0), low), high)
    if d > eps:
        return high
    if d < -eps:
        return low
    return v if abs(d) == eps and v * d >= 0.0 else 0.0


def step_slope(loss, v, t, c, curvature):  # type: ignore[no-untyped-def]
    """That of a line between the bounds and the kink."""
    _, _, _, damping = dual_box(loss, t, c)
    return 1.0 / (curvature + damping) if functions.is_free(loss, v, t, c) else 0.0


def violation(loss, v, r, t, c, gap):  # type: ignore[no-untyped-def]
    """The size of the projected gradient, or less than 0."""
    low, high, eps, damping = dual_box(loss, t, c)
    d = r - damping * v
    if v > 0.0 or (v == 0.0 and d > eps):
        g = d - eps
        return -g if v >= high and g >= 0.0 else abs(g)
    if v < 0.0 or (v == 0.0 and d < -eps):
        g = d + eps
        return g if v <= low and g <= 0.0 else abs(g)
    return abs(d) - eps


def priority(loss, v, stationarity, t, c):  # type: ignore[no-untyped-def]
    """Non-bound first, then by violation, then the nearest the margin."""
    if stationarity > 0.0:
        size = 1.0 + stationarity / (1.0 + stationarity)
    else:
        size = 1.0 / (1.0 - stationarity)
    if functions.is_free(loss, v, t, c):
        size += FREE_PRIORITY
    return size


def is_free(loss, v, t, c):  # type: ignore[no-untyped-def]
    """Neither at a bound nor at the kink."""
    low, high, eps, _ = dual_box(loss, t, c)
    return low < v < high and (eps == 0.0 or v != 0.0)


def gain(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """By differences, not by the difference of two conjugates, which may be far larger."""
    _, _, eps, damping = dual_box(loss, t, c)
    return t * (new - v) - eps * (abs(new) - abs(v)) - 0.5 * damping * (new * new - v * v)


def parabola(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """Of the change of v, on one side of the kink."""
    _, _, eps, damping = dual_box(loss, t, c)
    change = new - v
    return t * change - eps * (abs(new) - abs(v)) - damping * v * change, damping * change * change


def parabola_end(loss, v, new):  # type: ignore[no-untyped-def]
    """Zero, if there is a kink on the way."""
    _, _, eps, _ = dual_box(loss, 1.0, 1.0)
    return 0.0 if eps > 0.0 and new * v < 0.0 else new
