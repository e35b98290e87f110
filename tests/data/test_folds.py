"""Folds: rows shared out evenly, by label or by query, drawn with a seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from helpers.store_data import write_store
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from ooc_svm import DamageError, open_store
from ooc_svm.data.folds import Folds, count_queries
from ooc_svm.data.matrix import MatrixSource

RNG = np.random.default_rng(2)
LABELS = RNG.choice([-1.0, 2.0, 5.0], 500, p=[0.7, 0.27, 0.03])
QIDS = np.repeat(np.arange(60), RNG.integers(1, 12, 60))


def source_of(labels, qids=None):
    return MatrixSource(sparse.eye_array(len(labels), 3, format="csr"), labels, None, qids=qids)


def numbers(folds, source):
    parts = list(folds.numbers(source))
    assert [start for start, _ in parts] == [span.start for span in source.blocks]
    return np.concatenate([found for _, found in parts])


def of_labels(n_folds=5, seed=0, labels=LABELS):
    counts = dict(Counter(labels.tolist()))
    return Folds.of_labels(counts, [[label] for label in sorted(counts)], n_folds, seed)


@settings(deadline=None)  # the first one compiles
@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), min_size=2, max_size=80),
    st.integers(2, 12),
    st.integers(0, 2**64 - 1),
)
def test_classes_and_folds_differ_by_one_row_at_most(labels, n_folds, seed):
    labels = np.array(labels)
    folds = of_labels(n_folds, seed, labels)
    found = numbers(folds, source_of(labels))
    for label in np.unique(labels):
        rows = np.bincount(found[labels == label], minlength=n_folds)
        assert rows.max() - rows.min() <= 1
        for fold in range(n_folds):
            assert folds.rows_without(fold)[label] == rows.sum() - rows[fold]
    sizes = np.bincount(found, minlength=n_folds)
    assert sizes.max() - sizes.min() <= 1


def test_a_class_of_several_labels_is_in_every_fold():
    """None of its labels has as many rows as there are folds."""
    labels = np.repeat([0.0, 1.0, 2.0, 3.0], [40, 2, 2, 2])
    counts = dict(Counter(labels.tolist()))
    for seed in range(20):
        folds = Folds.of_labels(counts, [[0.0], [1.0, 3.0, 2.0]], 6, seed)
        found = numbers(folds, source_of(labels))
        assert np.bincount(found[labels > 0]).tolist() == [1] * 6


def test_the_seed_decides_and_nothing_else(tmp_path):
    """Not how the rows are cut into blocks."""
    first = numbers(of_labels(), source_of(LABELS))
    assert np.array_equal(first, numbers(of_labels(), source_of(LABELS)))
    assert np.mean(first == numbers(of_labels(seed=1), source_of(LABELS))) < 0.4
    X = sparse.eye_array(len(LABELS), 3, format="csr")
    write_store(tmp_path / "s", X, LABELS, chunk_rows=40, block_rows=30, block_chunks=1, chunk_elements=100)
    store = open_store(tmp_path / "s")
    assert len(store.blocks) > 3
    assert np.array_equal(first, numbers(of_labels(), store))


def test_each_row_is_as_likely_in_each_fold():
    """Also neighbours: two rows of a class are in one fold about as often as in a random assignment."""
    labels = np.ones(9)
    draws = np.array([numbers(of_labels(3, seed, labels), source_of(labels)) for seed in range(3000)])
    for fold in range(3):
        assert np.abs((draws == fold).mean(axis=0) - 1 / 3).max() < 0.04
    for other in range(1, 9):
        assert abs((draws[:, 0] == draws[:, other]).mean() - 2 / 8) < 0.04


@pytest.mark.parametrize("n_folds", [2, 7])
def test_queries_stay_together(n_folds, tmp_path):
    assert count_queries(source_of(np.ones(len(QIDS)), QIDS)) == 60
    folds = Folds.of_queries(60, n_folds, 3)
    found = numbers(folds, source_of(np.ones(len(QIDS)), QIDS))
    of_query = [np.unique(found[qid == QIDS]) for qid in range(60)]
    assert all(len(own) == 1 for own in of_query)
    sizes = np.bincount(np.concatenate(of_query), minlength=n_folds)
    assert sizes.max() - sizes.min() <= 1
    X = sparse.eye_array(len(QIDS), 3, format="csr")
    cut = {"chunk_rows": 40, "block_rows": 30, "block_chunks": 1, "chunk_elements": 100}
    write_store(tmp_path / "s", X, np.ones(len(QIDS)), qids=QIDS, **cut)
    store = open_store(tmp_path / "s")
    assert count_queries(store) == 60
    assert np.array_equal(found, numbers(folds, store))


def test_rows_alike():
    found = numbers(Folds.of_rows(503, 10, 1), source_of(np.arange(503.0)))
    assert sorted(np.bincount(found)) == [50] * 7 + [51] * 3


@pytest.mark.parametrize("labels", [LABELS + 1.0, np.full(500, 5.0), np.full(500, 9.0)])
def test_labels_that_were_not_counted_are_refused(labels):
    """Of a store whose summary is not that of its labels; nothing is written out of bounds."""
    with pytest.raises(DamageError, match="not those that were counted"):
        numbers(of_labels(), source_of(labels))


def test_queries_that_were_not_counted_are_refused():
    with pytest.raises(DamageError, match="not those that were counted"):
        numbers(Folds.of_queries(59, 5, 0), source_of(np.ones(len(QIDS)), QIDS))
