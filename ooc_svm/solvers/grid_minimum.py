"""The minimum of a convex function whose values at several points cost one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Pass

GRID = 9  # Points that are evaluated together


def lowest(
    values: Callable[[Float64Array], Generator[Pass, Any, Float64Array]],
    low: float,
    high: float,
    tolerance: float,
) -> Generator[Pass, Any, tuple[float, float]]:
    """The smallest value of a convex function, on grids that close in on it: point and value.

    ``values``: gives the values at some points, by way of passes.
    ``low``, ``high``: where to look first; a minimum at an end is followed outwards.
    ``tolerance``: as a share of the value: how far the neighbours of the lowest point may be above it in the
        end.
    """
    point, value = 0.0, math.inf
    for _ in range(30):
        points = np.linspace(low, high, GRID)
        found = yield from values(points)
        k = int(np.argmin(found))
        if found[k] < value:
            point, value = float(points[k]), float(found[k])
        before, behind = max(k - 1, 0), min(k + 1, GRID - 1)
        if max(found[before], found[behind]) - value <= tolerance * abs(value):
            break
        width = high - low
        low = float(points[before]) - (width if k == 0 else 0.0)
        high = float(points[behind]) + (width if k == GRID - 1 else 0.0)
    return point, value
