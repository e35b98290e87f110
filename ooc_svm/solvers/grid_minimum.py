"""The minimum of a convex function whose values at several points cost one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Pass

GRID = 9  # Points that are evaluated together
MOST_GRIDS = 60
# A bracket that is not narrower by this factor is divided evenly: there is a kink in it.
NARROWER = 4.0
TINY = 1e-9  # Share of a bracket that is narrow enough


def lowest(
    values: Callable[[Float64Array], Generator[Pass, Any, Float64Array]],
    low: float,
    high: float,
    tolerance: float,
) -> Generator[Pass, Any, tuple[float, float]]:
    """The smallest value of a convex function, on grids that close in on it: point and value.

    ``values``: gives the values at some points, by way of passes.
    ``low``, ``high``: where to look first; a minimum at an end is followed outwards.
    ``tolerance``: as a share of the value: how far it may be above the minimum, which lies above the lines
        through the lowest point and its neighbours.
    """
    points, found, width = np.empty(0), np.empty(0), math.inf
    grid = np.linspace(low, high, GRID)
    for _ in range(MOST_GRIDS):
        new = yield from values(grid)
        points = np.concatenate([points, grid])
        found = np.concatenate([found, np.where(np.isnan(new), np.inf, new)])
        points, first = np.unique(points, return_index=True)
        found = found[first]
        k, last = int(np.argmin(found)), len(points) - 1
        before, behind = max(k - 1, 0), min(k + 1, last)
        if _farthest(points[before : behind + 1], found[before : behind + 1]) <= tolerance * abs(found[k]):
            break
        low, high = float(points[before]), float(points[behind])
        if k in (0, last):
            reach = float(points[-1] - points[0])
            grid = np.linspace(low - reach, low, GRID) if k == 0 else np.linspace(high, high + reach, GRID)
        elif high - low > width / NARROWER or not np.isfinite(found[k - 1 : k + 2]).all():
            grid = np.linspace(low, high, GRID)
        else:
            grid = _around_vertex(points[k - 1 : k + 2], found[k - 1 : k + 2], tolerance)
        width = high - low
    return float(points[k]), float(found[k])


def _farthest(points: Float64Array, values: Float64Array) -> float:
    """How far the lowest value may be above the minimum between its neighbours; of two, their difference."""
    if not np.isfinite(values).all():
        return 0.0 if np.isinf(values).all() else math.inf
    if len(values) < 3:
        return float(np.ptp(values))
    left, right = np.diff(points)
    return float(max((values[0] - values[1]) * right / left, (values[2] - values[1]) * left / right))


def _around_vertex(points: Float64Array, values: Float64Array, tolerance: float) -> Float64Array:
    """A grid around the lowest point of the parabola through three, dense there and no wider than these."""
    left, right = np.diff(values) / np.diff(points)
    width, bend = float(points[2] - points[0]), (right - left) / (points[2] - points[0])
    vertex = 0.5 * (points[0] + points[1] - left / bend)
    # So near to each other the lowest points end the search; the others tell where the parabola errs.
    least = min(math.sqrt(0.5 * tolerance * abs(values[1]) / bend), 0.5 * width)
    offsets = np.geomspace(max(least, TINY * width), 0.5 * width, GRID // 2 + 1)[:-1]
    grid: Float64Array = np.concatenate([vertex - offsets, [vertex], vertex + offsets])
    return grid.clip(points[0], points[2])
