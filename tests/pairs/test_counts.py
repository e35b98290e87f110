"""Counts of active pairs against all pairs, in memory, on disk and in queries; numbers of pairs."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from helpers.thinning import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.data.blocks import row_slices
from ooc_svm.errors import InputError, StorageError
from ooc_svm.pairs import counts, lookup, sweep
from ooc_svm.pairs.counts import (
    MOST_PAIRS,
    add_slices,
    check_trainable,
    count_in_queries,
    count_pairs,
    rank_labels,
    slice_sums,
)
from ooc_svm.pairs.sweep import PairSweep
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import DiskVector, MemoryVector


def active_pairs(scores, labels, margin):
    """Whether (i, j) is a pair, and active, and what it loses."""
    difference = scores[:, None] - scores[None, :]
    active = (labels[:, None] > labels[None, :]) & (difference < margin)
    return active, np.where(active, margin - difference, 0.0)


def reference(scores, labels, weights=None, slacks=1, first_row=0, margin=1.0):
    active, loss = active_pairs(scores, labels, margin)
    own = (first_row + np.arange(len(scores))) % slacks
    omega = np.ones((len(scores),) * 2) if weights is None else np.outer(weights, weights)
    plus = (active * omega).sum(axis=1)
    minus = np.stack([(active * omega)[own == g].sum(axis=0) for g in range(slacks)], axis=1)
    return plus, minus, np.array([(loss * omega)[own == g].sum() for g in range(slacks)])


class Sums(NamedTuple):
    """Loss and weight of the active pairs of each slack block."""

    loss: np.ndarray
    active: np.ndarray


def sums_of(scores, plus, minus, first_row=0, margin=1.0):
    """The sums that follow from the counts of all rows."""
    slices = [
        slice_sums(scores[None, start:stop], plus[start:stop], list(minus[start:stop].T), first_row + start)
        for start, stop in list(row_slices(len(scores))) or [(0, 0)]
    ]
    active, differences = add_slices(slices)
    return Sums(margin * active + differences[:, 0], active)


def as_vectors(*arrays):
    return [MemoryVector.wrap(array) for array in arrays]


def sweep_pairs(
    scores, ranks, n_ranks, weights, out, *, first_row=0, margin=1.0, memory=1 << 40, folder=None, threads=1
):
    """Count with sweeps in so much memory; `out` are the row vectors plus and minus."""
    with RowVectors(scores.n_rows, memory // 2, folder) as scratch:
        most = memory // 2 // sweep.ROW_BYTES
        counting = PairSweep(scores, ranks, n_ranks, weights, len(out) - 1, scratch, most, threads)
        counting.count(margin, first_row, out[0], out[1:])


def counted(scores, labels, weights=None, slacks=1, first_row=0, margin=1.0):
    ranks, n_ranks = rank_labels(labels)
    kind = np.int64 if weights is None else np.float64
    plus, minus = np.full(len(scores), 7, kind), np.full((len(scores), slacks), 7, kind)
    if weights is None:
        count_pairs(scores, ranks, n_ranks, plus, minus, first_row=first_row, margin=margin)
    else:
        vectors, out = as_vectors(scores, ranks), as_vectors(plus, *minus.T)
        sweep_pairs(*vectors, n_ranks, *as_vectors(weights), out, first_row=first_row, margin=margin)
    return plus, minus, sums_of(scores, plus, minus, first_row, margin)


def check(scores, labels, weights=None, slacks=1, first_row=0, margin=1.0):
    plus, minus, sums = counted(scores, labels, weights, slacks, first_row, margin)
    expected_plus, expected_minus, expected_loss = reference(
        scores, labels, weights, slacks, first_row, margin
    )
    if weights is None:
        np.testing.assert_array_equal(plus, expected_plus)
        np.testing.assert_array_equal(minus, expected_minus)
        assert sums.active.tolist() == minus.sum(axis=0).tolist()
        assert plus.sum() == minus.sum()
    else:
        np.testing.assert_allclose(plus, expected_plus, rtol=1e-12)
        np.testing.assert_allclose(minus, expected_minus, rtol=1e-12)
        np.testing.assert_allclose(sums.active, minus.sum(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sums.loss, expected_loss, rtol=1e-11, atol=1e-10)


# Differences of exactly 1, ties, both zeros, neighbours of 1, and numbers that swallow 1.
SCORES = st.one_of(
    st.integers(-3, 3).map(float),
    st.integers(-8, 8).map(lambda k: k / 4),
    st.sampled_from([-0.0, 0.0, 1.0, np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0), 5e-324, -5e-324]),
)
ROWS = st.lists(st.tuples(SCORES, st.integers(0, 40), st.integers(0, 28).map(lambda k: k / 7)), max_size=40)


@pytest.fixture
def small_parts():
    """Parts so small that a few rows pass through all of them."""
    with (
        mock.patch.object(sweep, "RANK_BITS", 2),
        mock.patch.object(sweep, "BEST_ROWS", 4),
        mock.patch.object(lookup, "_BUCKET_ROWS", 4),
    ):
        yield


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ROWS, st.integers(1, 41), st.booleans(), st.sampled_from([1, 2, 8]), st.integers(0, 5))
def test_counts_are_those_of_all_pairs(rows, n_labels, weighted, slacks, first_row):
    scores, labels, weights = (np.array([row[k] for row in rows], float) for k in range(3))
    check(scores, labels % n_labels, weights if weighted else None, slacks, first_row)


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ROWS, st.integers(1, 41), st.booleans(), st.sampled_from([1, 3]), st.sampled_from([1.0, 0.0, 2.5]))
def test_counts_are_the_same_in_small_parts(small_parts, rows, n_labels, weighted, slacks, margin):
    scores, labels, weights = (np.array([row[k] for row in rows], float) for k in range(3))
    check(scores, labels % n_labels, weights if weighted else None, slacks, 0, margin)


@pytest.mark.parametrize("offset", [0.0, 1e15, -1e300])
@pytest.mark.parametrize("n_ranks", [2, 3, 9, 65, 700])
def test_counts_of_more_rows(n_ranks, offset):
    rng = np.random.default_rng(n_ranks)
    scores = rng.normal(size=700) * rng.choice([1e-300, 0.5, 1.0, 1e3], size=700) + offset
    labels = rng.permutation(700) % n_ranks
    plus, minus, _ = counted(scores, labels)
    expected_plus, expected_minus, _ = reference(scores, labels)
    np.testing.assert_array_equal(plus, expected_plus)
    np.testing.assert_array_equal(minus, expected_minus)


FAR = st.sampled_from([1e300, -1e300, np.finfo(float).max, -np.finfo(float).max, 2.0**53, 2.0**53 + 2])
TWO_RANKS = st.lists(st.tuples(st.one_of(SCORES, FAR), st.integers(0, 1)), max_size=60)
MARGINS = st.sampled_from([1.0, 0.0, 5e-324, 0.25, 2.5, 2.0**53, -1.0])


def check_look_up(scores, labels, slacks, first_row, margin):
    own = MemoryVector.wrap(scores), MemoryVector.wrap(labels.astype(np.int32))
    found = lookup.TwoRanks(*own, slacks, first_row, margin)
    with np.errstate(over="ignore"):
        active, _ = active_pairs(scores, labels, margin)
    blocks_of = (first_row + np.arange(len(scores))) % slacks
    np.testing.assert_array_equal(found.plus.read(0, len(scores)), active.sum(axis=1))
    for slack, column in enumerate(found.minus):
        np.testing.assert_array_equal(column.read(0, len(scores)), active[blocks_of == slack].sum(axis=0))


@settings(
    max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(TWO_RANKS, st.sampled_from([1, 2, 5]), st.integers(0, 5), MARGINS)
def test_look_up_of_two_ranks_finds_all_pairs(small_parts, rows, slacks, first_row, margin):
    scores, labels = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows], int)
    check_look_up(scores, labels, slacks, first_row, margin)


CROWDS = {
    "equal": lambda rng, n: np.full(n, 0.3),
    "two clusters": lambda rng, n: rng.choice([-1e6, 1e6], size=n) + rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "neighbours": lambda rng, n: 1.0 + rng.integers(0, 20, n) * 2.0**-52,
    "denormal": lambda rng, n: rng.integers(-50, 50, n) * 5e-324,
    "lost next to 1": lambda rng, n: np.where(np.arange(n) % 200, rng.random(n) * 3e-16, 1.0),
    "one far away": lambda rng, n: np.concatenate([rng.normal(size=n - 1), [1e300]]),
    "ends of the range": lambda rng, n: rng.choice([-1.0, 1.0], size=n) * np.finfo(float).max,
}


@pytest.mark.parametrize("shape", CROWDS)
@pytest.mark.parametrize("share", [0.5, 0.01])
def test_look_up_of_two_ranks_where_scores_crowd_together(small_parts, shape, share):
    rng = np.random.default_rng(8)
    scores, labels = CROWDS[shape](rng, 900), (rng.random(900) < share).astype(int)
    for margin in (1.0, 0.0):
        check_look_up(scores, labels, 2, 1, margin)


def test_swapped_and_tied_pairs_are_counted_exactly():
    rng = np.random.default_rng(1)
    scores = rng.choice([0.1, 0.1 + 1e-17, np.nextafter(0.1, 1), -0.0, 0.0, 3.0], size=300)
    labels = rng.integers(0, 5, 300)
    higher = labels[:, None] > labels[None, :]
    swapped = int((higher & (scores[:, None] < scores[None, :])).sum())
    tied = int((higher & (scores[:, None] == scores[None, :])).sum())
    assert tied > 0
    assert counted(scores, labels, margin=0.0)[2].active.tolist() == [swapped]
    assert counted(scores, labels, margin=np.nextafter(0.0, 1.0))[2].active.tolist() == [swapped + tied]


def test_counts_past_32_bits():
    """All scores equal: every pair is active, and the counts of pairs are known."""
    half = 70_000
    labels = np.repeat([0.0, 1.0], half)
    plus, minus, sums = counted(np.zeros(2 * half), labels)
    assert plus.tolist() == [0] * half + [half] * half
    assert minus[:, 0].tolist() == [half] * half + [0] * half
    assert sums.active.tolist() == [half * half] == sums.loss.tolist()
    assert half * half > 2**32


def test_no_rows_and_one_rank():
    for n_rows in (0, 1, 5):
        plus, minus, sums = counted(np.arange(n_rows, dtype=float), np.full(n_rows, 3.0))
        assert plus.tolist() == minus[:, 0].tolist() == [0] * n_rows
        assert sums.loss.tolist() == sums.active.tolist() == [0.0]


def test_ranks_are_dense():
    ranks, n_ranks = rank_labels(np.array([3.5, -1.0, 3.5, 2.0]))
    assert ranks.tolist() == [2, 0, 2, 1]
    assert ranks.dtype == np.int32
    assert n_ranks == 3


def test_a_score_that_is_not_finite_is_refused():
    with pytest.raises(InputError, match="row 1 has the score nan"):
        counted(np.array([0.0, np.nan]), np.array([0, 1]))


def test_training_refuses_no_pairs_and_too_many():
    check_trainable(1)
    check_trainable(MOST_PAIRS)
    with pytest.raises(InputError, match="no two rows that can be compared have different labels"):
        check_trainable(0)
    with pytest.raises(InputError, match=f"{2**63} pairs of rows, more than"):
        check_trainable(2**63)


# Queries


def queries_reference(scores, labels, starts, weights, slacks, first_row):
    plus, minus = np.zeros(len(scores)), np.zeros((len(scores), slacks))
    loss = np.zeros(slacks)
    for g, (start, stop) in enumerate(pairwise(starts.tolist())):
        part = slice(start, stop)
        found = reference(scores[part], labels[part], None, slacks, first_row + start)
        omega = 1.0 if weights is None else weights[g]
        plus[part], minus[part] = omega * found[0], omega * found[1]
        loss += omega * found[2]
    return plus, minus, loss


@pytest.mark.parametrize("small", [0, 20, 1024])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("slacks", [1, 3])
def test_pairs_inside_queries(small, weighted, slacks):
    rng = np.random.default_rng(5)
    starts = np.concatenate([[2], np.cumsum(rng.integers(0, 60, 40)) + 2])
    n_rows = int(starts[-1]) + 3
    scores, labels = rng.integers(-6, 6, n_rows) / 4, rng.integers(0, 5, n_rows)
    weights = rng.uniform(0.5, 2, 40) if weighted else None
    kind = np.float64 if weighted else np.int64
    plus, minus = np.full(n_rows, 7, kind), np.full((n_rows, slacks), 7, kind)
    with mock.patch.object(counts, "_SMALL", small):
        count_in_queries(scores, labels.astype(np.int32), starts, plus, minus, weights=weights, first_row=11)
    sums = sums_of(scores, plus, minus, 11)
    expected = queries_reference(scores, labels, starts, weights, slacks, 11)
    np.testing.assert_allclose(plus, expected[0], rtol=1e-14)
    np.testing.assert_allclose(minus, expected[1], rtol=1e-14)
    np.testing.assert_allclose(sums.loss, expected[2], rtol=1e-12)


def test_a_query_of_one_row_and_an_empty_one_have_no_pairs():
    plus, minus = np.empty(3, np.int64), np.empty((3, 1), np.int64)
    scores, ranks = np.array([2.0, 0.0, 1.0]), np.array([0, 1, 2], np.int32)
    count_in_queries(scores, ranks, np.array([0, 1, 1, 3]), plus, minus)
    assert plus.tolist() == [0, 0, 0] == minus[:, 0].tolist()  # a difference of exactly 1 loses nothing
    assert sums_of(scores, plus, minus).active.tolist() == [0.0]


# On disk


@pytest.fixture
def on_disk(tmp_path):
    """The function that puts an array into a scratch file; all are closed at the end."""
    with ExitStack() as stack:

        def put(array):
            vector = DiskVector(len(array), array.dtype, tmp_path)
            stack.callback(vector.close)
            vector.write(0, array)
            return vector

        yield put


def crowded(rng, n_rows):
    """Half of the scores are 0, some crowd together, a few are far away."""
    scores = rng.normal(size=n_rows)
    scores[rng.random(n_rows) < 0.5] = 0.0
    near = rng.random(n_rows) < 0.2
    scores[near] = 1.0 + rng.integers(0, 50, int(near.sum())) * 2.0**-52
    scores[:3] = 1e300, -1e300, 5e-324
    return scores


SHAPES = {
    "zeros": lambda rng, n: np.zeros(n),
    "normal": lambda rng, n: rng.normal(size=n),
    "crowded": crowded,
    "two": lambda rng, n: rng.choice([-0.5, 0.5], size=n),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("n_ranks", "weighted", "slacks"), [(2, False, 3), (9, True, 1), (20_000, True, 2)])
def test_counts_on_disk_are_the_same_bits(shape, n_ranks, weighted, slacks, on_disk, tmp_path):
    n_rows = 20_000
    rng = np.random.default_rng(n_ranks)
    scores, labels = SHAPES[shape](rng, n_rows), rng.permutation(n_rows) % n_ranks
    weights = rng.random(n_rows) if weighted else None
    with mock.patch.object(sweep, "RANK_BITS", 6):  # three levels of ranks
        plus, minus, sums = counted(scores, labels, weights, slacks)
        ranks, _ = rank_labels(labels)
        out = [on_disk(np.full(n_rows, 7, plus.dtype)) for _ in range(1 + slacks)]
        own = on_disk(scores), on_disk(ranks), n_ranks, None if weights is None else on_disk(weights)
        sweep_pairs(*own, out, memory=200_000, folder=tmp_path)
    up, *down = (vector.read(0, n_rows) for vector in out)
    np.testing.assert_array_equal(up, plus)
    np.testing.assert_array_equal(np.stack(down, axis=1), minus)
    found = sums_of(scores, up, np.stack(down, axis=1))
    assert found.loss.tolist() == sums.loss.tolist()
    assert found.active.tolist() == sums.active.tolist()


def test_memory_on_disk_is_bounded(on_disk, tmp_path, monkeypatch):
    """However the scores lie, no column is read or written by more rows than are allowed."""
    n_rows, most = 50_000, 1000
    longest = 0

    def noting(patch, name):
        old = getattr(DiskVector, name)

        def noted(self, start, *rest):
            nonlocal longest
            size = rest[0] - start if name == "_read" else len(rest[0])
            longest = max(longest, size)
            return old(self, start, *rest)

        patch.setattr(DiskVector, name, noted)

    rng = np.random.default_rng(3)
    for make in SHAPES.values():
        ranks = (rng.permutation(n_rows) % 7).astype(np.int32)
        vectors = [on_disk(make(rng, n_rows)), on_disk(ranks)]
        out = [on_disk(np.zeros(n_rows, np.int64)) for _ in range(2)]
        with monkeypatch.context() as patch:
            noting(patch, "_read")
            noting(patch, "_write")
            with RowVectors(n_rows, 0, tmp_path) as scratch:
                counting = PairSweep(*vectors, 7, None, 1, scratch, most)
                counting.count(1.0, 0, out[0], out[1:])
        assert 0 < longest <= most


@pytest.mark.parametrize("slacks", [1, 3])
@pytest.mark.parametrize(("n_ranks", "weighted"), [(2, False), (2, True), (200_000, True)])
def test_threads_change_no_bits(n_ranks, weighted, slacks):
    rng = np.random.default_rng(4)
    n_rows = 2 * sweep.BEST_ROWS
    scores, weights = rng.normal(size=n_rows), rng.random(n_rows) if weighted else None
    ranks = rng.integers(0, n_ranks, n_rows).astype(np.int32)
    kind = np.float64 if weighted else np.int64
    found = []
    for threads in (1, 3):
        plus, minus = np.empty(n_rows, kind), np.empty((n_rows, slacks), kind)
        if weighted:
            out = as_vectors(plus, *minus.T)
            sweep_pairs(*as_vectors(scores, ranks), n_ranks, *as_vectors(weights), out, threads=threads)
        else:
            count_pairs(scores, ranks, n_ranks, plus, minus, threads=threads)
        found.append(plus.tobytes() + minus.tobytes())
    assert found[0] == found[1]


def test_a_full_scratch_folder_is_said(tmp_path):
    scores, ranks, *out = (MemoryVector(1000, kind) for kind in (np.float64, np.int32, np.int64, np.int64))
    with pytest.raises(StorageError, match="scratch data"):
        sweep_pairs(scores, ranks, 1, None, out, memory=1000, folder=tmp_path / "none")
