"""The minimum of convex functions by values on grids."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ooc_svm.solvers.grid_minimum import GRID, MOST_GRIDS, lowest

FUNCTIONS = {
    "parabola": (lambda x: 3.0 + 40.0 * (x - 0.7) ** 2, 0.7),
    "flat beside the values": (lambda x: 1e6 + (x - 0.7) ** 2, 0.7),
    "kink": (lambda x: 1.0 + np.where(x > 0.31, 9.0 * (x - 0.31), 0.31 - x), 0.31),
    "kink at a grid point": (lambda x: 1.0 + np.abs(x - 1.0), 1.0),
    "steep on one side": (lambda x: np.exp(8.0 * x) - 9.0 * x, math.log(9.0 / 8.0) / 8.0),
    "far below": (lambda x: 1.0 + (x + 50.0) ** 2, -50.0),
    "far above": (lambda x: 1.0 + np.abs(x - 1234.5), 1234.5),
    "logistic": (lambda x: np.logaddexp(0.0, 3.0 * x) - 0.4 * x, math.log(0.4 / 2.6) / 3.0),
    "no number far away": (lambda x: np.where(x < 1.5, 1.0 + (x - 0.2) ** 2, np.nan), 0.2),
}


def search(function, tolerance: float, low: float = 0.0, high: float = 2.0):
    asked = []

    def values(points):
        asked.append(points)
        return function(points)
        yield  # makes it a generator

    steps = lowest(values, low, high, tolerance)
    with pytest.raises(StopIteration) as end:
        next(steps)
    return *end.value.value, asked


@pytest.mark.parametrize("tolerance", [1e-3, 1e-5, 1e-11])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "far above"])
def test_the_value_is_as_near_to_the_minimum_as_wanted(name, tolerance):
    function, minimum = FUNCTIONS[name]
    point, value, asked = search(function, tolerance)
    best = float(function(np.array([minimum]))[0])
    assert value == function(np.array([point]))[0]
    assert value <= best + tolerance * abs(value) + 1e-15 * abs(best)
    assert len(asked) < MOST_GRIDS


def test_a_minimum_far_away_is_followed():
    function, minimum = FUNCTIONS["far above"]
    point, _, _ = search(function, 1e-5)
    assert point == pytest.approx(minimum, abs=1e-4)


def test_a_smooth_function_takes_two_grids():
    function, _ = FUNCTIONS["parabola"]
    _, _, asked = search(function, 1e-5)
    assert [len(points) for points in asked] == [GRID, GRID]


def test_values_without_a_minimum_end():
    point, value, _ = search(lambda x: np.full(len(x), np.nan), 1e-3)
    assert value == math.inf
    assert math.isfinite(point)
