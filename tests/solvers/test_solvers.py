"""The solvers against independent references, and by their own certificates."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems_data import MatrixSource, hinge_oracle, noisy_rows, objective, row_vectors
from scipy import sparse
from sklearn.svm import LinearSVC

from ooc_svm.engine.serial import SerialEngine
from ooc_svm.errors import InputError
from ooc_svm.solvers.certificate import STALL_PASSES, Certificate
from ooc_svm.solvers.cutting_plane import bundle
from ooc_svm.solvers.cutting_plane.joachims import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.cutting_plane.master import solve_master
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.stopping import CERTIFIED, MAX_PASSES, STALLED, TIME_LIMIT, Stopping

SOLVERS = ["cutting-plane", "ocas"]


def solve(
    solver, matrix, labels, C=1.0, *, tol=1e-6, max_cuts=600, weights=None, stopping=None, points=1, **options
):
    oracle = hinge_oracle(matrix.shape[1], C, weighted=weights is not None, **options)
    engine = SerialEngine(MatrixSource(matrix, labels, weights), row_vectors(labels, oracle, weights))
    limits = stopping or Stopping(tol, max_passes=3000)
    dimension = oracle.space.dimension
    if solver == "ocas":
        run = Ocas(oracle, limits, OcasState.fresh(oracle, max_cuts), points)
    else:
        run = CuttingPlane(oracle, limits, CuttingPlaneState.fresh(dimension, max_cuts))
    engine.run([run])
    return run.state, engine


def reference(matrix, labels, C, *, bias=False, weights=None):
    svm = LinearSVC(loss="hinge", C=C, fit_intercept=bias, tol=1e-10, max_iter=10**7, random_state=0)
    svm.fit(matrix, labels, sample_weight=weights)
    return svm.coef_.ravel(), float(np.ravel(svm.intercept_)[0]) if bias else 0.0


@pytest.mark.parametrize(("solver", "points"), [("cutting-plane", 1), ("ocas", 1), ("ocas", 7)])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("ones", [False, True])
def test_the_primal_value_is_within_the_gap_of_liblinear(solver, points, groups, C, ones):
    matrix, labels = noisy_rows(ones=ones)
    state, _ = solve(solver, matrix, labels, C, groups=groups, points=points)
    certificate = state.certificate
    best = objective(matrix, labels, reference(matrix, labels, C)[0], C)
    assert certificate.stop_reason == CERTIFIED
    assert certificate.dual <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= certificate.primal <= best + certificate.gap * (1 + 1e-9)
    assert objective(matrix, labels, state.best, C) == pytest.approx(certificate.primal, rel=1e-10)
    assert certificate.n_support == pytest.approx((labels * (matrix @ state.best) < 1.0).sum(), abs=2)


@pytest.mark.parametrize("solver", SOLVERS)
def test_penalized_bias_scale_and_weights(solver):
    matrix, labels = noisy_rows(seed=5)
    rng = np.random.default_rng(5)
    scale, weights = rng.random(matrix.shape[1]) + 0.2, rng.integers(0, 4, len(labels)) * 0.7
    omega = weights * np.where(labels > 0, 3.0, 0.5)
    options = {"scale": scale, "penalized_bias": True, "class_weight": (0.5, 3.0)}
    state, _ = solve(solver, matrix, labels, weights=weights, **options)
    scaled = matrix @ np.diag(scale)
    coef, intercept = reference(scaled, labels, 1.0, bias=True, weights=omega)
    expected = objective(scaled, labels, coef, 1.0, omega, intercept) + 0.5 * intercept**2
    assert state.certificate.stop_reason == CERTIFIED
    assert state.certificate.primal == pytest.approx(expected, rel=2e-6)
    np.testing.assert_allclose(state.best, [*coef, intercept], atol=5e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_weight_counts_as_copies_of_the_row(solver):
    matrix, labels = noisy_rows(120, 15, seed=6)
    counts = np.random.default_rng(6).integers(0, 3, 120)
    weighted, _ = solve(solver, matrix, labels, weights=counts.astype(float))
    kept = np.repeat(np.arange(120), counts)
    copied, _ = solve(solver, matrix[kept], labels[kept])
    assert weighted.certificate.primal == pytest.approx(copied.certificate.primal, rel=2e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_dual_never_passes_a_primal_value(solver):
    matrix, labels = noisy_rows(seed=7)
    state, _ = solve(solver, matrix, labels, tol=1e-8)
    history = np.array(state.certificate.history)
    assert (history[:, 2].max() <= history[:, 1].min() * (1 + 1e-12)).all()
    assert (np.diff(history[:, 2]) >= 0).all()


def test_one_read_an_iteration():
    matrix, labels = noisy_rows()
    for solver in SOLVERS:
        state, engine = solve(solver, matrix, labels)
        assert engine.counters.passes == state.certificate.passes == len(state.certificate.history)


def test_line_search_and_points_and_groups_save_reads():
    matrix, labels = noisy_rows(2000, 60, seed=8)
    plain, _ = solve("cutting-plane", matrix, labels, tol=1e-3)
    search, _ = solve("ocas", matrix, labels, tol=1e-3)
    points, _ = solve("ocas", matrix, labels, tol=1e-3, points=7)
    groups, _ = solve("ocas", matrix, labels, tol=1e-3, points=7, groups=8)
    reads = [state.certificate.passes for state in (plain, search, points, groups)]
    assert reads == sorted(reads, reverse=True)
    assert len(set(reads)) == 4


@pytest.mark.parametrize(("solver", "points"), [("cutting-plane", 1), ("ocas", 1), ("ocas", 7)])
@pytest.mark.parametrize("groups", [1, 3])
def test_few_cuts_are_enough_and_the_bound_is_kept(solver, points, groups):
    matrix, labels = noisy_rows(200, 12, seed=9)
    room = groups + groups * points + 1
    state, _ = solve(solver, matrix, labels, tol=1e-2, max_cuts=room, groups=groups, points=points)
    assert state.bundle.n_cuts <= room
    assert state.certificate.stop_reason == CERTIFIED
    best = objective(matrix, labels, reference(matrix, labels, 1.0)[0], 1.0)
    assert state.certificate.dual <= best <= state.certificate.primal


def test_idle_cuts_go(monkeypatch):
    matrix, labels = noisy_rows(seed=10)
    monkeypatch.setattr(bundle, "IDLE_LIMIT", 3)
    state, _ = solve("cutting-plane", matrix, labels)
    assert state.certificate.stop_reason == CERTIFIED
    assert state.bundle.n_cuts < state.certificate.passes
    assert state.bundle.idle.max() <= 4


@pytest.mark.parametrize("solver", SOLVERS)
def test_limits(solver):
    matrix, labels = noisy_rows()
    state, _ = solve(solver, matrix, labels, stopping=Stopping(1e-9, max_passes=4))
    assert (state.certificate.stop_reason, state.certificate.passes) == (MAX_PASSES, 4)
    state, _ = solve(solver, matrix, labels, stopping=Stopping(1e-9, deadline=0.0))
    assert (state.certificate.stop_reason, state.certificate.passes) == (TIME_LIMIT, 1)


def test_a_run_without_progress_ends():
    certificate = Certificate(primal=2.0)
    while certificate.stop_reason is None:
        certificate.offer_dual(1.0 if certificate.passes < 50 else 1.5, 0.0)
        certificate.record(Stopping(1e-6))
    assert certificate.stop_reason == STALLED
    assert certificate.passes == 51 + STALL_PASSES


def test_a_tolerance_beyond_double_precision_ends():
    matrix, labels = noisy_rows(60, 5, seed=11)
    state, _ = solve("ocas", matrix, labels, stopping=Stopping(1e-17))
    assert state.certificate.stop_reason in (CERTIFIED, STALLED)
    assert abs(state.certificate.relative_gap) < 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("C", [1e-8, 1e8])
def test_extreme_values_of_the_loss_weight(solver, C):
    matrix, labels = noisy_rows(80, 20, seed=12)
    state, _ = solve(solver, matrix, labels, C, tol=1e-3, stopping=Stopping(1e-3, max_passes=2000))
    certificate = state.certificate
    assert certificate.dual <= certificate.primal
    assert certificate.stop_reason in (CERTIFIED, MAX_PASSES)
    assert objective(matrix, labels, state.best, C) == pytest.approx(certificate.primal, rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_of_weight_0_are_not_counted(solver):
    matrix, labels = noisy_rows(seed=13)
    weights = np.random.default_rng(13).integers(0, 3, len(labels)).astype(float)
    state, _ = solve(solver, matrix, labels, weights=weights)
    inside = labels * (matrix @ state.best) < 1.0
    assert (inside & (weights == 0.0)).sum() > 10
    assert state.certificate.n_support == pytest.approx((inside & (weights > 0.0)).sum(), abs=2)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_loss_at_all_is_certified_by_the_gap_itself(solver):
    """Rows without weight: every loss is 0, and so is P."""
    matrix, labels = noisy_rows(60, 5, seed=14)
    state, _ = solve(solver, matrix, labels, weights=np.zeros(60))
    certificate = state.certificate
    assert (certificate.stop_reason, certificate.passes) == (CERTIFIED, 1)
    assert certificate.absolute
    assert (certificate.primal, certificate.gap) == (0.0, 0.0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_large_c_and_many_groups_take_a_moment(monkeypatch, solver):
    """It took a million pairwise steps an iteration."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(72, 10))
    labels = np.where(dense @ rng.normal(size=10) + rng.normal(size=72) > 0, 1.0, -1.0)
    steps = []

    def counted(*arguments, **options):
        found = solve_master(*arguments, **options)
        steps.append(found.steps)
        return found

    monkeypatch.setattr(bundle, "solve_master", counted)
    state, _ = solve(solver, sparse.csr_array(dense), labels, 1.5e7, tol=1e-3, groups=7)
    assert state.certificate.stop_reason == CERTIFIED
    assert state.certificate.passes <= 30
    assert max(steps) <= 20_000


@pytest.mark.parametrize("solver", SOLVERS)
def test_products_that_overflow_are_said(solver):
    matrix, labels = noisy_rows(50, 5)
    with pytest.raises(InputError, match=r"non-finite objective in pass \d+"), np.errstate(all="ignore"):
        solve(solver, matrix * 1e200, labels, 1e200)
