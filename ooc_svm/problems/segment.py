"""Exact minimum of a convex, piecewise quadratic objective along a ray.

    phi(t) = slope t + curvature t^2 / 2 + C R(t),     R(t) = c(t) - t d(t),   t >= 0

R is piecewise linear; c(t) and d(t) are sums over the rows active at t and change at the rows' breakpoints.
The breakpoints are known by bins first; only those of the bin that holds the minimum are looked at one by
one, so that memory stays bounded whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.passes import Pass
from ooc_svm.rows import Float64Array

# Breakpoints that are looked at one by one; more of them are split into finer bins first.
MAX_EVENTS = 1 << 18

# Finer than this in u, bins are of the size of rounding errors.
FINEST = 2.0**50

Refine = Callable[[float, float], Generator[Pass, Any, Float64Array]]
Collect = Callable[[float, float, int], Generator[Pass, Any, Float64Array]]


@dataclass(frozen=True, slots=True)
class SegmentLoss:
    """The loss along a segment.

    Parameters
    ----------
    c, d : float
        Sums over the rows active right behind the segment's start.
    bins : ndarray of float64, shape (3, n_bins)
        Number of breakpoints and changes of c and d, by bins of ``u = t / (1 + t)`` in [0, 1).
    """

    c: float
    d: float
    bins: Float64Array


def minimise(
    loss: SegmentLoss, slope: float, curvature: float, C: float, refine: Refine, collect: Collect
) -> Generator[Pass, Any, tuple[float, float]]:
    """Minimise phi.

    Parameters
    ----------
    loss : SegmentLoss
    slope, curvature, C : float
    refine, collect : generators of passes
        ``refine(low, per_unit)`` counts the breakpoints from ``u = low`` on in finer bins;
        ``collect(low, per_unit, q)`` lists those of bin q: rows of (u, change of c, change of d).

    Returns
    -------
    t, R(t) : float
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
    events = (yield from collect(low, per_unit, q)) if bins[0, q] else np.empty((0, 3))
    u, change_c, change_d = events[np.argsort(events[:, 0], kind="stable")].T
    t = u / (1.0 - u)
    active_c = c + np.concatenate([[0.0], np.cumsum(change_c)])
    active_d = d + np.concatenate([[0.0], np.cumsum(change_d)])
    behind = slope + curvature * t - C * active_d[1:] >= 0.0
    k = int(np.argmax(behind)) if behind.any() else len(t)
    best = max((C * active_d[k] - slope) / curvature, 0.0)
    if k < len(t):
        best = min(best, float(t[k]))
    return float(best), float(active_c[k] - best * active_d[k])


def _first_bin_of_ascent(
    bins: Float64Array, low: float, per_unit: float, slope: float, curvature: float, C: float, d: float
) -> int:
    """The first bin at whose end phi ascends; the last one if none does."""
    u = low + np.arange(1, bins.shape[1] + 1) / per_unit
    with np.errstate(divide="ignore"):
        t = u / np.maximum(1.0 - u, 0.0)
    ascends = slope + curvature * t - C * (d + np.cumsum(bins[2])) >= 0.0
    return int(np.argmax(ascends)) if ascends.any() else bins.shape[1] - 1
