"""The largest number of an array, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.largest import LANES, first_largest


@compiled
def _place(numbers):
    return first_largest(numbers)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_first_of_the_largest_numbers(dtype):
    random = np.random.default_rng(0)
    for length in (LANES, 2 * LANES, 5 * LANES):
        for _ in range(200):
            # Few different numbers: many are equal.
            numbers = random.integers(-3, 3, length).astype(dtype)
            numbers[random.random(length) < 0.3] = -np.inf
            assert _place(numbers) == np.argmax(numbers)
    assert _place(np.full(LANES, -np.inf, dtype)) == 0
