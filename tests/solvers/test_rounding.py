"""P and D computed again in extended precision: rounding changes them by no more than is allowed for."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.hostile_data import hostile_rows
from helpers.pairs_data import Setup, all_pairs, group_numbers, pair_weights
from helpers.problems_data import MatrixSource, cut_rows, hinge_oracle, row_vectors
from scipy import sparse

from ooc_svm.engine.serial import SerialEngine
from ooc_svm.solvers.cutting_plane.joachims import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.rounding import DOT_BLOCK, Rounding, exact_sum, gamma, inner, inner_error
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping

LONG = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(LONG).eps > 2e-19, reason="no floats of 80 bits here")

KINDS = ["plain", "columns of many sizes", "large", "far from 0", "many rows"]
C_CHOICES = [1e-3, 1.0, 1e7]


def hostile_problem(kind, seed=0):
    """Rows and scores by a noisy rule."""
    rng = np.random.default_rng(seed)
    n_rows = 4000 if kind == "many rows" else 150
    dense = hostile_rows(kind, rng, n_rows)
    spread = np.abs(dense).max(axis=0)
    scores = (dense / spread) @ rng.normal(size=9) + 0.3 * rng.normal(size=n_rows)
    return sparse.csr_array(dense), scores


def long_norm(w):
    w = w.astype(LONG)
    return w @ w / 2


def assert_within(certificate, primal):
    """P is that of 80 bits but for its rounding, and D is below it."""
    assert abs(LONG(certificate.primal) - primal) <= certificate.primal_rounding
    assert LONG(certificate.lower) <= primal
    assert certificate.lower <= certificate.upper


def long_dual(bundle, planes, offsets):
    """D at the multipliers, of cuts in extended precision."""
    beta = bundle.beta.astype(LONG)
    return beta @ offsets - long_norm(beta @ planes)


@pytest.mark.parametrize("solver", ["cutting-plane", "ocas"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("C", C_CHOICES)
@pytest.mark.parametrize("options", [{}, {"groups": 3, "penalized_bias": True}, {"weighted": True}])
def test_of_rows(solver, kind, C, options):
    matrix, scores = hostile_problem(kind)
    labels = np.where(scores > np.median(scores), 1.0, -1.0)
    rng = np.random.default_rng(1)
    weights = 10.0 ** rng.integers(-5, 3, len(labels)) if options.get("weighted") else None
    if options.get("penalized_bias"):
        options = {**options, "scale": 10.0 ** rng.integers(-3, 3, matrix.shape[1]).astype(float)}
    oracle = hinge_oracle(matrix.shape[1], C, class_weight=(1.0, 7.0), **options)
    source = MatrixSource(matrix, labels, weights, spans=cut_rows(matrix, 7))
    engine = SerialEngine(source, row_vectors(labels, oracle, weights))
    if solver == "ocas":
        run = Ocas(oracle, Stopping(1e-9, 25), OcasState.fresh(oracle, 60), 7)
    else:
        run = CuttingPlane(oracle, Stopping(1e-9, 25), CuttingPlaneState.fresh(oracle.space.dimension, 60))
    engine.run([run])
    seen = np.hstack([matrix.toarray(), np.ones((len(labels), int(oracle.space.penalized_bias)))]).astype(
        LONG
    )
    if oracle.space.scale is not None:
        seen[:, :-1] *= oracle.space.scale
    omega = np.where(labels > 0, LONG(7), LONG(1)) * (1 if weights is None else weights.astype(LONG))
    state = run.state

    def value(w):
        return long_norm(w) + C * (omega * np.maximum(0, 1 - labels * (seen @ w.astype(LONG)))).sum()

    assert_within(state.certificate, value(state.best))
    # The master's point is that of multipliers of cuts: D there is below P everywhere.
    assert LONG(state.certificate.lower) <= value(state.w)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("C", C_CHOICES)
@pytest.mark.parametrize("groups", [1, 3])
def test_the_bound_of_cuts_of_rows(kind, C, groups):
    """Each cut is made again in extended precision, at the point that it was taken at."""
    matrix, scores = hostile_problem(kind)
    labels = np.where(scores > np.median(scores), 1.0, -1.0)
    oracle = hinge_oracle(matrix.shape[1], C, groups=groups)
    source = MatrixSource(matrix, labels, spans=cut_rows(matrix, 7))
    engine = SerialEngine(source, row_vectors(labels, oracle))
    points = []

    class Watched(type(oracle)):
        def cut(self, w, counted=None):
            points.append(w.copy())
            return super().cut(w, counted)

    watched = Watched(oracle.losses, oracle.C, oracle.space, oracle.groups)
    run = CuttingPlane(watched, Stopping(0.0, 5), CuttingPlaneState.fresh(matrix.shape[1], 200))
    engine.run([run])
    seen, group = matrix.toarray().astype(LONG), np.arange(len(labels)) % groups
    planes, offsets = [], []
    for w in points:
        active = labels * (matrix @ w) < 1.0
        for g in range(groups):
            own = active & (group == g)
            planes.append(labels[own].astype(LONG) @ seen[own])
            offsets.append(LONG(own.sum()))
    bundle = run.state.bundle
    assert bundle.n_cuts == len(points) * groups
    if not np.allclose(
        np.array(planes, float), bundle.planes, rtol=1e-6, atol=1e-6 * np.abs(bundle.planes).max()
    ):
        pytest.skip("a row is so near its margin that rounding decides")
    bound, error = bundle.bound(bundle.w, run.rounding, oracle.cut_operations(run.rounding))
    assert abs(LONG(bound) - long_dual(bundle, np.array(planes), np.array(offsets))) <= error


@pytest.mark.parametrize("solver", ["cutting-plane", "ocas"])
@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("C", C_CHOICES)
@pytest.mark.parametrize("problem", ["ordinal", "roc-area", "ranking", "weighted", "weighted ranking"])
def test_of_pairs(solver, kind, C, problem):
    matrix, scores = hostile_problem(kind)
    rng = np.random.default_rng(2)
    n_ranks = 2 if problem == "roc-area" else 4
    labels = np.searchsorted(np.quantile(scores, np.arange(1, n_ranks) / n_ranks), scores).astype(float)
    qid = group_numbers(len(labels)) if "ranking" in problem else None
    weights = None
    if "weighted" in problem:
        weights = 10.0 ** rng.integers(-3, 3, len(labels))
        weights = weights if qid is None else weights[qid]
    trials = {"trials": 3, "n_bins": 0 if qid is not None else 16} if solver == "ocas" else {}
    setup = Setup(matrix, labels, C, qid=qid, weights=weights, **trials)
    run = setup.solve(solver, tol=1e-9, max_passes=15)
    pairs = all_pairs(labels, qid)
    omega = pair_weights(pairs, weights, qid).astype(LONG)
    seen = matrix.toarray().astype(LONG)

    def value(w):
        s = seen @ w.astype(LONG)
        losses = np.maximum(0, 1 - (s[pairs[0]] - s[pairs[1]]))
        return long_norm(w) + C * (omega @ losses) / omega.sum()

    state = run.state
    assert_within(state.certificate, value(state.best))
    assert LONG(state.certificate.lower) <= value(state.w)


def test_normal_data_keep_their_digits():
    rng = np.random.default_rng(6)
    matrix = sparse.csr_array(rng.normal(size=(500, 20)) / np.sqrt(20))
    labels = np.where(matrix @ rng.normal(size=20) + 0.3 * rng.normal(size=500) > 0, 1.0, -1.0)
    oracle = hinge_oracle(20)
    engine = SerialEngine(MatrixSource(matrix, labels), row_vectors(labels, oracle))
    run = Ocas(oracle, Stopping(1e-10, 600), OcasState.fresh(oracle, 600), 1)
    engine.run([run])
    certificate = run.state.certificate
    assert certificate.stop_reason == "certified"
    assert 0.0 < certificate.rounding <= 5e-11 * certificate.primal


@pytest.mark.parametrize("length", [1, 100, DOT_BLOCK, DOT_BLOCK + 1, 100_000])
def test_inner_products(length):
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=(2, length)) * 10.0 ** rng.integers(-8, 8, length)
    exact = (a.astype(LONG) * b.astype(LONG)).sum()
    assert abs(LONG(inner(a, b)) - exact) <= inner_error(length) * (np.abs(a) @ np.abs(b))
    assert inner_error(length) <= 1e-12


def test_sums_that_overflow_are_left_to_the_certificate():
    assert exact_sum([1e308, 1e308]) == np.inf
    assert np.isnan(exact_sum([np.inf, -np.inf]))
    assert exact_sum([1e100, 1.0, -1e100]) == 1.0
    assert gamma(2.0**60) == np.inf


def test_products_are_bounded_by_columns_or_by_norms():
    space = LinearSpace(3, np.array([1.0, 2.0, 4.0]), penalized_bias=True)
    found = Rounding(space, np.array([1.0, 1.0, 1.0]), 2.0, 5.0, 7.0, 1e9, 3, 10, 10)
    w = np.array([1.0, -1.0, 1.0, -3.0])
    assert found.products(w) == pytest.approx(2.0 * (1 + 2 + 4) + 3 * 5.0)
    near = Rounding(space, np.array([1.0, 1.0, 1.0]), 2.0, 5.0, 7.0, 1.0, 3, 10, 10)
    assert near.products(w) == pytest.approx(np.sqrt(12.0))
