"""The line search over pairs of rows by bins of their scores, against all pairs listed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.pairs_data import KINDS, Setup, all_pairs, data_of, pair_loss, pair_weights, ranked_rows

import ooc_svm
from ooc_svm.pairs.request import PairPass
from ooc_svm.solvers.cutting_plane.pair_oracle import CLOSE
from ooc_svm.solvers.cutting_plane.pair_ray import FINEST_SEARCH, MOST_RANKS, can_search, evaluate_by_bins
from ooc_svm.solvers.stopping import CERTIFIED

ONE_GROUP = [kind for kind in KINDS if "groups" not in kind]


@pytest.fixture(autouse=True)
def closed_vectors():
    """Row vectors that a test made are closed at its end."""
    yield
    while Setup.opened:
        Setup.opened.pop().close()


class Ray:
    """Scores at both ends of a ray, and the loss on it."""

    def __init__(self, kind, *, size=1.0, shift=0.0, outlier=None, seed=0):
        matrix, labels, qid, weights = data_of(kind, seed)
        self.setup = Setup(matrix, labels, 2.0, qid=qid, weights=weights, precision=1e-5)
        rng = np.random.default_rng(seed + 1)
        self.start, self.end = size * rng.normal(size=(2, len(labels))) + shift
        if outlier is not None:
            self.start[7], self.end[7] = outlier, -outlier
        best, previous = self.setup.oracle.vectors
        self.setup.vectors[best].write(0, self.start)
        self.setup.vectors[previous].write(0, self.end)
        self.pairs = all_pairs(labels, qid)
        self.omega = pair_weights(self.pairs, weights, qid)

    def loss(self, t):
        return pair_loss(self.start + t * (self.end - self.start), self.pairs, self.omega)

    def look(self):
        found = evaluate_by_bins(self.setup.rows, *self.setup.oracle.vectors, self.setup.total)
        return self.setup.answer(found)


@pytest.mark.parametrize("kind", ONE_GROUP)
@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("shift", [0.0, -1e4])
@pytest.mark.parametrize("t", [0.0, 0.37, 1.0, 2.5])
def test_a_look_is_nowhere_above_the_loss_and_close_to_it(kind, size, shift, t):
    ray = Ray(kind, size=size, shift=shift)
    look = ray.look()
    loss, slope = ray.setup.answer(look(t))
    exact = ray.loss(t)
    assert exact - 2e-5 * (1.0 + size) <= loss <= exact * (1 + 1e-9)
    h = 1e-6
    assert slope == pytest.approx((ray.loss(t + h) - ray.loss(t - h)) / (2 * h), abs=0.03 * (0.01 + size))


@pytest.mark.parametrize("kind", ONE_GROUP)
@pytest.mark.parametrize("outlier", [1e4, 1e8])
def test_rows_far_out_leave_the_others_in_fine_bins(kind, outlier):
    ray = Ray(kind, outlier=outlier)
    look = ray.look()
    for t in (0.0, 0.2, 1.0):
        exact = ray.loss(t)
        assert exact * (1 - 1e-4) <= ray.setup.answer(look(t))[0] <= exact * (1 + 1e-9)


@pytest.mark.parametrize("kind", ONE_GROUP)
def test_equal_scores(kind):
    ray = Ray(kind, size=0.0, shift=3.0)
    assert ray.setup.answer(ray.look()(0.5)) == pytest.approx((1.0, 0.0))


def test_where_bins_will_do():
    matrix, labels, qid, _ = data_of("groups")
    assert can_search(Setup(matrix, labels).rows, FINEST_SEARCH)
    assert not can_search(Setup(matrix, labels).rows, 0.99 * FINEST_SEARCH)
    assert not can_search(Setup(matrix, labels, qid=qid).rows, 1.0)


@pytest.mark.parametrize("n_ranks", [2, MOST_RANKS, MOST_RANKS + 1])
def test_ranks_up_to_a_limit(n_ranks):
    matrix, labels = ranked_rows(300, 6, n_ranks, seed=3)
    setup = Setup(matrix, labels, precision=1e-5)
    assert setup.oracle.searches_by_bins == (n_ranks <= MOST_RANKS)
    w = np.random.default_rng(0).normal(size=6)
    _, previous = setup.oracle.vectors
    setup.vectors[previous].write(0, matrix @ w)
    omega = np.ones(len(all_pairs(labels)[0]))
    t, loss, _ = setup.answer(setup.oracle.line_search(None, 0.0, float(w @ w)))
    assert loss == pytest.approx(pair_loss(t * (matrix @ w), all_pairs(labels), omega))


@pytest.mark.parametrize("kind", ONE_GROUP)
@pytest.mark.parametrize("outlier", [None, 1e3, 1e7])
@pytest.mark.parametrize("seed", range(4))
def test_the_search_ends_close_to_the_minimum(kind, outlier, seed):
    ray = Ray(kind, outlier=outlier, seed=seed)
    oracle = ray.setup.oracle
    slope, curvature = -0.1, 0.5
    t, loss, counted = ray.setup.answer(oracle.line_search(None, slope, curvature))
    assert loss == pytest.approx(ray.loss(t), rel=1e-9)
    assert (counted is not None) == (t >= CLOSE)

    def phi(t):
        return slope * t + 0.5 * curvature * t * t + oracle.C * ray.loss(t)

    tried = np.concatenate([np.linspace(0.0, 4.0, 400), np.maximum(t + np.linspace(-0.01, 0.01, 101), 0.0)])
    least = min(map(phi, tried))
    assert phi(t) <= least + 3 * oracle.precision * phi(0.0) + 1e-9


def test_a_search_that_bins_mislead_counts_at_each_look(monkeypatch):
    ray = Ray("two ranks")
    counted = []
    plain = ray.setup.engine.stream

    def stream(requests):
        counted.extend(request for request in requests if isinstance(request, PairPass))
        return plain(requests)

    monkeypatch.setattr(ray.setup.engine, "stream", stream)
    ray.setup.answer(ray.setup.oracle.line_search(None, -0.1, 0.5))
    assert len(counted) == 1
    monkeypatch.setattr("ooc_svm.solvers.cutting_plane.pair_ray.MOST_ZOOMS", 1)
    monkeypatch.setattr("ooc_svm.solvers.cutting_plane.pair_ray.REACH", 1e5)
    counted.clear()
    t, loss, _ = ray.setup.answer(ray.setup.oracle.line_search(None, -0.1, 0.5))
    assert len(counted) > 3
    assert loss == pytest.approx(ray.loss(t))


@pytest.mark.parametrize("outlier", [1e4, 1e6])
def test_a_row_far_out_does_not_keep_a_run_from_its_certificate(outlier):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(2000, 8))
    labels = (matrix @ rng.normal(size=8) + rng.normal(size=2000) > 0).astype(float)
    matrix[-1] *= outlier
    report = ooc_svm.train(matrix, labels, problem="roc-area", C=10.0, max_passes=40).report
    assert report["models"][0]["stop_reason"] == CERTIFIED
    assert report["bins"] > 0
