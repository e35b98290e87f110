"""The loops that choose rows, next to sorting and to sets of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc_svm.losses.functions import FREE_PRIORITY
from ooc_svm.solvers.streamed_smo.choice_loops import (
    HIGHEST_PRIORITY,
    best_that_fit,
    claim,
    inside_ranges,
    kept_of,
)

NO_LIMIT = 1 << 62


def sorted_choice(priority, sizes, eligible, room, most):
    """The same by sorting: levels of priority, of a level in their order, as long as there is room."""
    levels = (np.clip(HIGHEST_PRIORITY - priority, 0.0, HIGHEST_PRIORITY) * 16383.0).astype(np.int64)
    order = np.argsort(levels, kind="stable")
    order = order[eligible[order]]
    kept = np.zeros(len(priority), np.bool_)
    kept[order[np.cumsum(sizes[order]) <= room][:most]] = True
    return kept


@given(seed=st.integers(0, 10**6), m=st.integers(0, 60), few_levels=st.booleans(), limited=st.booleans())
@settings(deadline=None, max_examples=200)
def test_the_best_that_fit_are_those_of_a_sorted_list(seed, m, few_levels, limited):
    rng = np.random.default_rng(seed)
    priority = rng.integers(-1, 5, m) * 1.0 if few_levels else rng.uniform(-1.0, 5.0, m)
    sizes = rng.integers(1, 9, m)
    eligible = rng.random(m) < 0.8
    room = int(rng.integers(0, 5 * m + 2))
    most = int(rng.integers(0, m + 2)) if limited else NO_LIMIT
    kept = best_that_fit(priority, sizes, eligible, room, most)
    assert kept.tolist() == sorted_choice(priority, sizes, eligible, room, most).tolist()
    assert sizes[kept].sum() <= room
    assert kept.sum() <= most


def test_no_number_has_the_highest_priority():
    """What has overflowed ends the run anyway; it must not reach beyond the levels."""
    kept = best_that_fit(
        np.array([1.0, np.nan, np.inf, -np.inf]), np.ones(4, np.int64), np.full(4, True), 2, 9
    )
    assert kept.tolist() == [False, True, True, False]


@pytest.mark.parametrize("squarings", [0, 3, 5])
@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_a_claim(weight, squarings):
    rng = np.random.default_rng(3)
    own = rng.permutation(40)[:30]
    own[:4] = -1
    priority = rng.uniform(0.0, 4.0, 30)
    worth, wanted = np.full(40, 0.2), np.zeros(40, np.bool_)
    is_wanted, of = claim(own, priority, 0.7, weight, weight / 4.0, squarings, worth, wanted)
    expected = np.where(priority >= FREE_PRIORITY, weight, weight / 4.0) * priority
    np.testing.assert_array_equal(of, expected)
    assert is_wanted.tolist() == [row >= 0 and p >= 0.7 for row, p in zip(own, priority, strict=True)]
    assert sorted(own[is_wanted]) == np.flatnonzero(wanted).tolist()
    total = np.full(40, 0.2)
    total[own[is_wanted]] += expected[is_wanted] ** 2**squarings
    np.testing.assert_allclose(worth, total, rtol=1e-14)
    kept = rng.random(40) < 0.5
    assert kept_of(own, is_wanted, kept).tolist() == (is_wanted & kept[own]).tolist()


@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=200)
def test_rows_inside_of_ranges(seed):
    """Ranges of several blocks, of which lanes have every other row."""
    rng = np.random.default_rng(seed)
    ranges, edge = [], 0
    for _ in range(rng.integers(0, 6)):
        start = edge + int(rng.integers(0, 20))
        edge = start + int(rng.integers(1, 30))
        step = int(rng.integers(1, 5))
        for lane in rng.permutation(step)[: rng.integers(1, step + 1)]:
            if start + lane < edge:
                ranges.append((start + int(lane), edge, step))
    ranges.sort()
    starts, stops, steps = np.array(ranges, dtype=np.int64).reshape(-1, 3).T.copy()
    ids = rng.permutation(edge + 20)
    expected = np.isin(ids, [row for each in ranges for row in range(*each)])
    assert inside_ranges(ids, starts, stops, steps).tolist() == expected.tolist()
