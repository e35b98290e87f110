"""Exact minimum of a convex, piecewise quadratic objective along a ray.

    phi(t) = slope t + curvature t^2 / 2 + C R(t),     R(t) = c(t) - t d(t),   t >= 0

R is piecewise linear; c(t) and d(t) are sums over the rows active at t and change at the rows' breakpoints.
The breakpoints are known by bins first; only those of the bin that holds the minimum are listed one by one.
Where these are many in the finest bin as well, rows are equal but for rounding: then equal breakpoints of
a block are listed as one. So memory stays bounded whatever the number of rows. Where there are too many even
for bins (there is one for each pair of rows), the minimum is searched for by values and derivatives of R.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Request

MAX_EVENTS = 1 << 18  # Breakpoints that are listed one by one; more of them are split into finer bins first
EVENTS_A_SUM = 1 << 12  # Breakpoints that are added one after another, which is where rounding adds up
# Most bins to a unit of u: finer ones are of the size of rounding errors. With 2048 bins that are split into
# 2048 each, the finest are 2^44 to a unit.
FINEST = 2.0**50

# The t of the first evaluation along a ray, and how much further the next one is while phi falls (measured).
FIRST_T, GROWTH = 0.2, 4.0

MOST_EVALUATIONS = 60  # A search ends after so many evaluations, which none has needed

Evaluate = Callable[[float], Generator[Request, Any, tuple[float, float]]]
Refine = Callable[[float, float], Generator[Request, Any, Float64Array]]
Collect = Callable[[float, float, int, bool], Generator[Request, Any, Float64Array]]


@dataclass(frozen=True, slots=True)
class RayLoss:
    """The loss along a segment."""

    # Sums over the rows active right behind the segment's start
    c: float
    d: float
    # shape (3, n_bins): number of breakpoints and changes of c and d, by bins of u = t / (1 + t) in [0, 1)
    bins: Float64Array


def minimise(
    loss: RayLoss, slope: float, curvature: float, C: float, refine: Refine, collect: Collect
) -> Generator[Request, Any, tuple[float, float]]:
    """Minimise phi; returns t and R(t).

    ``refine``, ``collect``: ``refine(low, per_unit)`` counts the breakpoints from ``u = low`` on in finer
        bins; ``collect(low, per_unit, q, joins)`` lists those of bin q: rows of (u, change of c, change of
        d), with ``joins`` one row for equal u in a block.
    """
    c, d, bins = loss.c, loss.d, loss.bins
    if curvature <= 0.0 or slope - C * d >= 0.0:
        return 0.0, c
    low, per_unit = 0.0, float(bins.shape[1])
    while True:
        q = _first_bin_of_ascent(bins, low, per_unit, slope, curvature, C, d)
        c, d = c + bins[1, :q].sum(), d + bins[2, :q].sum()
        finer = per_unit * bins.shape[1]
        if bins[0, q] <= MAX_EVENTS or finer > FINEST:
            break
        low, per_unit = low + q / per_unit, finer
        bins = yield from refine(low, per_unit)
    joins = bool(bins[0, q] > MAX_EVENTS)
    events = (yield from collect(low, per_unit, q, joins)) if bins[0, q] else np.empty((0, 3))
    u, change_c, change_d = events[np.argsort(events[:, 0], kind="stable")].T
    t = u / (1.0 - u)
    active_c, active_d = c + _running_sums(change_c), d + _running_sums(change_d)
    behind = slope + curvature * t - C * active_d[1:] >= 0.0
    k = int(np.argmax(behind)) if behind.any() else len(t)
    # Rounding must not move it to where other rows are active.
    best = max((C * active_d[k] - slope) / curvature, t[k - 1] if k else 0.0)
    if k < len(t):
        best = min(best, float(t[k]))
    return float(best), float(active_c[k] - best * active_d[k])


def _running_sums(terms: Float64Array) -> Float64Array:
    """The sums of the first k terms, from 0 terms to all, `EVENTS_A_SUM` terms being added at a time."""
    sums = np.zeros(len(terms) + 1)
    for first in range(0, len(terms), EVENTS_A_SUM):
        part = terms[first : first + EVENTS_A_SUM]
        sums[first + 1 : first + 1 + len(part)] = sums[first] + np.cumsum(part)
    return sums


def _first_bin_of_ascent(
    bins: Float64Array, low: float, per_unit: float, slope: float, curvature: float, C: float, d: float
) -> int:
    """The first bin at whose end phi ascends; the last one if none does."""
    u = low + np.arange(1, bins.shape[1] + 1) / per_unit
    with np.errstate(divide="ignore"):
        t = u / np.maximum(1.0 - u, 0.0)
    ascends = slope + curvature * t - C * (d + np.cumsum(bins[2])) >= 0.0
    return int(np.argmax(ascends)) if ascends.any() else bins.shape[1] - 1


@dataclass(frozen=True, slots=True)
class _Point:
    """R and its derivative r at t, and with them phi and its derivative."""

    t: float
    R: float
    r: float
    phi: float
    derivative: float


def descend(
    evaluate: Evaluate, start: tuple[float, float], slope: float, curvature: float, C: float, precision: float
) -> Generator[Request, Any, tuple[float, float]]:
    """Minimise phi where only values and derivatives of R can be had; returns t and R(t).

    The minimum is kept between two points at which phi falls and rises. The tangents of R there bound phi
    from below. The next point is where a line through the two derivatives is zero, or halfway where that is
    slow.

    ``evaluate``: ``evaluate(t)`` gives R(t) and a subgradient of it.
    ``start``: those at t = 0.
    ``precision``: the search ends when phi is known to be this close to its minimum, as a share of phi(0).
    """

    def point(t: float, R: float, r: float) -> _Point:
        phi = slope * t + 0.5 * curvature * t * t + C * R
        return _Point(t, R, r, phi, slope + curvature * t + C * r)

    low = point(0.0, *start)
    if curvature <= 0.0 or low.derivative >= 0.0:
        return 0.0, low.R
    best, scale, width = low, low.phi, math.inf
    # Where phi would end to fall if R did not bend; the minimum is hardly ever that far.
    end = -(slope + C * low.r) / curvature
    t = min(FIRST_T, end)
    high = point(t, *(yield from evaluate(t)))
    while high.derivative < 0.0 and t < end:
        further = min(GROWTH * t, -(slope + C * high.r) / curvature)
        if not further > t:
            # It is flat there, up to rounding.
            break
        low, t = high, further
        high = point(t, *(yield from evaluate(t)))
    for _ in range(MOST_EVALUATIONS):
        best = min(best, high, low, key=lambda known: known.phi)
        left, right, bound = _bounds(low, high, slope, curvature, C)
        if best.phi - bound <= precision * scale or not low.t < 0.5 * (left + right) < high.t:
            break
        secant = low.t - low.derivative * (high.t - low.t) / (high.derivative - low.derivative)
        slow = right - left > 0.5 * width
        t = 0.5 * (left + right) if slow or not left < secant < right else secant
        width = right - left
        found = point(t, *(yield from evaluate(t)))
        if found.derivative < 0.0:
            low = found
        else:
            high = found
    return best.t, best.R


def _bounds(
    low: _Point, high: _Point, slope: float, curvature: float, C: float
) -> tuple[float, float, float]:
    """Least and largest t at which phi can be smallest, and a lower bound on its minimum."""
    # Between the two, the derivative of R is between those at the two.
    left = max(low.t, -(slope + C * high.r) / curvature)
    right = min(high.t, -(slope + C * low.r) / curvature)
    bend = high.r - low.r
    kink = low.t if bend <= 0.0 else (low.R - low.r * low.t - high.R + high.r * high.t) / bend
    t = min(max(kink, left), right)
    tangents = low.R + low.r * (t - low.t), high.R + high.r * (t - high.t)
    return left, right, slope * t + 0.5 * curvature * t * t + C * max(tangents)
