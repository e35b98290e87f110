"""Rows partitioned and sorted by score, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.rowvectors import sort
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.sort import partition, sort_by_score
from ooc_svm.rowvectors.vector import MemoryVector


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("rows", [1, 10, 1000])
def test_rows_are_partitioned_in_order(memory, rows, tmp_path):
    rng = np.random.default_rng(6)
    numbers = rng.integers(0, 5, 300)
    numbers[numbers == 3] = 1  # a bucket without rows
    with RowVectors(300, memory, tmp_path) as vectors:
        targets = [vectors.create("numbers", np.int64), vectors.create("places", np.float64)]
        sources = [MemoryVector.wrap(numbers), MemoryVector.wrap(np.arange(300.0))]
        sizes = np.bincount(numbers[20:280], minlength=5)
        bounds = partition(sources, targets, 20, 280, sizes, lambda start, stop: numbers[start:stop], rows)
        order = np.argsort(numbers[20:280], kind="stable") + 20
        np.testing.assert_array_equal(targets[0].read(20, 280), numbers[order])
        np.testing.assert_array_equal(targets[1].read(20, 280), order)
        assert bounds.tolist() == [20, *(20 + np.cumsum(sizes)).tolist()]
        assert not targets[1].read(0, 20).any()
        assert not targets[1].read(280, 300).any()


@pytest.mark.parametrize("best", [2, 64, 100_000])
@pytest.mark.parametrize("spread", ["wide", "near", "zeros"])
def test_rows_are_sorted_by_score_then_row(best, spread, tmp_path):
    rng = np.random.default_rng(7)
    scores = {
        "wide": rng.normal(size=3000) * 10.0 ** rng.integers(-300, 300, 3000),
        "near": 1.0 + rng.integers(-40, 40, 3000) * 2.0**-53,
        "zeros": rng.choice([0.0, -0.0, 1.0], 3000),
    }[spread]
    with RowVectors(3000, 1 << 30, tmp_path) as vectors:
        targets = [vectors.create("scores", np.float64), vectors.create("rows", np.int64)]
        sources = [MemoryVector.wrap(scores), MemoryVector.wrap(np.arange(3000))]
        sort_by_score(sources, targets, best=best, most=3000, rows=500, memory_bytes=1 << 20)
        order = np.argsort(scores, kind="stable")
        np.testing.assert_array_equal(targets[1].read(0, 3000), order)
        np.testing.assert_array_equal(targets[0].read(0, 3000), scores[order])


def test_keys_that_do_not_fit_next_to_the_places_are_sorted_all_the_same(monkeypatch):
    """Neighbours among numbers of all sizes: their keys differ in the bits that had to be dropped."""
    scores = np.array([1e300, np.nextafter(1.0, 2.0), 1.0, -1e300, 1.0, np.nextafter(1.0, 0.0)] * 3)
    part = sort.ScoreRange(-1e300, 1e300, len(scores))
    dropped = []
    monkeypatch.setattr(
        sort.sort_keys,
        "is_ascending",
        lambda ordered: dropped.append(np.all(np.diff(ordered) >= 0)) or dropped[-1],
    )
    np.testing.assert_array_equal(sort._order(scores, part), np.argsort(scores, kind="stable"))
    assert dropped == [False]
