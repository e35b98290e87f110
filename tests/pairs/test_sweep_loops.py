"""The tree of ranks and sweeps in windows of any length, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.pairs import sweep_loops


@pytest.mark.parametrize("n_ranks", [1, 2, 7, 8, 9, 64, 65, 512, 513, 5000])
@pytest.mark.parametrize("kind", [np.uint32, np.int64, np.float64])
def test_the_tree_sums_what_is_above(n_ranks, kind):
    rng = np.random.default_rng(n_ranks)
    tree = np.zeros(sweep_loops.tree_size(n_ranks), kind)
    inserted = np.zeros(n_ranks)
    for rank in [0, n_ranks - 1, *rng.integers(0, n_ranks, 60).tolist()]:
        amount = kind(rng.integers(1, 100))
        sweep_loops.insert(tree, np.uint64(n_ranks), np.uint64(rank), amount)
        inserted[rank] += amount
        for wanted in {0, rank, n_ranks - 1, int(rng.integers(n_ranks))}:
            above = sweep_loops.above(tree, np.uint64(n_ranks), np.uint64(wanted))
            assert above == inserted[wanted + 1 :].sum()


def test_the_tree_of_few_ranks_is_one_node():
    assert sweep_loops.tree_size(2) == sweep_loops.tree_size(8) == 8
    assert sweep_loops.tree_size(9) == 16 + 8


def swept(columns, windows, direction, n_ranks, weighted):
    """The sums of one sweep, the rows ahead and the rows counted for coming in windows of these lengths."""
    scores, ranks, weights = columns
    n_rows = len(scores)
    rows = np.arange(n_rows, dtype=np.uint32)
    tree = np.zeros(sweep_loops.tree_size(n_ranks), np.float64 if weighted else np.uint32)
    out = np.zeros(n_rows, np.float64 if weighted else np.uint32)
    weight = (lambda part: weights[part]) if weighted else (lambda part: None)

    def ranges(size):
        found = [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
        return found[::direction]

    waiting, q = ranges(windows[0]), 0
    ahead = waiting.pop(0)
    for own in ranges(windows[1]):
        k = 0
        while True:
            q, k = sweep_loops.sweep(
                scores[ahead], ranks[ahead], rows[ahead], weight(ahead), q, not waiting,
                scores[own], ranks[own], weight(own), k, out[own],
                direction, 3, 1, n_ranks, 1, 0, 1.0, tree,
            )  # fmt: skip
            if k == own.stop - own.start:
                break
            ahead, q = waiting.pop(0), 0
    return out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("windows", [(200, 200), (1, 1), (7, 50), (50, 7)])
def test_a_sweep_in_windows(windows, direction, weighted):
    rng = np.random.default_rng(2)
    scores = np.sort(rng.integers(-20, 20, 200) / 8)
    ranks = rng.integers(3, 3 + 24, 200).astype(np.int32)
    weights = rng.integers(0, 9, 200) / 4
    found = swept((scores, ranks, weights), windows, direction, 12, weighted)
    digits = (ranks - 3) >> 1
    difference = direction * (scores[None, :] - scores[:, None])
    active = (direction * (digits[None, :] - digits[:, None]) > 0) & (difference < 1.0)
    sums = (active * (np.outer(weights, weights) if weighted else 1)).sum(axis=1)
    np.testing.assert_array_equal(found, sums)


def test_dots_add_every_step_once():
    rng = np.random.default_rng(4)
    vectors, found = rng.normal(size=(2, 103)), np.empty(2)
    for counts in (rng.integers(0, 2**40, 103), rng.random(103)):
        for first, step in ((0, 1), (3, 1), (2, 3), (7, 8), (102, 5), (103, 1)):
            sweep_loops.dots(counts, vectors, first, step, found)
            expected = vectors[:, first::step] @ counts[first::step]
            np.testing.assert_allclose(found, expected, rtol=1e-12)
