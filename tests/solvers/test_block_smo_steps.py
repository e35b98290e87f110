"""Block SMO: steps of two multipliers, rows that stay in the set, the bias, rows of very different length."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.svm import SVC

import ooc_svm
from ooc_svm.ops.kernels import Polynomial
from ooc_svm.solvers.block_smo import bound, set_loops
from ooc_svm.solvers.block_smo.update import UpdatePass


def best_of_faces(K, boxes, d):
    """The largest D of two multipliers from 0: on each side of the kinks, each face of the rectangle."""
    best = 0.0
    for signs in itertools.product((-1.0, 1.0), repeat=2):
        sign = np.array(signs)
        low = np.where(sign < 0.0, boxes[0], np.maximum(boxes[0], 0.0))
        high = np.where(sign < 0.0, np.minimum(boxes[1], 0.0), boxes[1])
        slope, curvature = d - sign * boxes[2], K + np.diag(boxes[3])
        points = [np.array(corner) for corner in itertools.product(*zip(low, high, strict=True))]
        for k, end in itertools.product(range(2), (low, high)):
            other = 1 - k
            v = np.empty(2)
            v[k] = end[k]
            v[other] = (slope[other] - curvature[k, other] * v[k]) / curvature[other, other]
            points.append(v)
        points.append(np.linalg.solve(curvature, slope))
        for v in points:
            if (v >= low - 1e-12).all() and (v <= high + 1e-12).all():
                best = max(best, float(slope @ v - 0.5 * v @ curvature @ v))
    return best


def dual(K, boxes, d, v):
    return d @ v - boxes[2] @ np.abs(v) - 0.5 * v @ K @ v - 0.5 * boxes[3] @ v**2


numbers = st.floats(-3.0, 3.0)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(numbers, min_size=6, max_size=6),
    st.lists(numbers, min_size=2, max_size=2),
    st.sampled_from([(0.0, 1.0), (-1.0, 0.0), (-0.5, 2.0), (-np.inf, np.inf)]),
    st.sampled_from([(0.0, 0.3), (-2.0, 2.0)]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.0, 0.7]),
)
def test_two_multipliers_take_their_best_step(entries, d, first, second, eps, damping):
    A = np.array(entries).reshape(2, 3)
    K = A @ A.T + 0.1 * np.eye(2)
    boxes = np.array([*zip(first, second, strict=True), (eps, eps), (damping, damping)])
    v, slopes = np.zeros(2), np.array(d)
    for _ in range(30):  # A kink may be in the way of a step
        set_loops.solve_free_sum(K, boxes, v, slopes, 1e-14, 1)
    assert (v >= boxes[0]).all()
    assert (v <= boxes[1]).all()
    best = best_of_faces(K, np.clip(boxes, -1e6, 1e6), np.array(d))
    assert dual(K, boxes, np.array(d), v) == pytest.approx(best, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(slopes, np.array(d) - K @ v, atol=1e-12)


def test_without_a_kink_one_step_is_enough():
    rng = np.random.default_rng(0)
    for _ in range(200):
        A = rng.normal(size=(2, 3))
        K, d = A @ A.T + 0.01 * np.eye(2), rng.normal(size=2)
        boxes = np.array([(-rng.random(), -rng.random()), rng.random(2), (0.0, 0.0), (0.0, 0.0)])
        v = np.zeros(2)
        set_loops.solve_free_sum(K, boxes, v, d.copy(), 1e-14, 1)
        assert dual(K, boxes, d, v) == pytest.approx(best_of_faces(K, boxes, d), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("common", [0.0, 1.0, 50.0])
def test_what_all_rows_have_in_common_costs_few_steps(common):
    """A penalized bias adds 1 to all kernel values; steps of one multiplier would creep along it."""
    rng = np.random.default_rng(1)
    A = rng.normal(size=(300, 20))
    K, t = A @ A.T / 20.0 + common, np.sign(A[:, 0] + 0.5 * rng.normal(size=300))
    boxes = np.array([np.minimum(10.0 * t, 0.0), np.maximum(10.0 * t, 0.0), np.zeros(300), np.zeros(300)])
    v, d = np.zeros(300), t.copy()
    steps, _ = set_loops.solve_free_sum(K, boxes, v, d, 1e-3, 100_000)
    assert steps < 3000
    up = np.where(v < boxes[1], d, -np.inf).max()
    down = np.where(v > boxes[0], d, np.inf).min()
    assert max(up, -down) <= 1e-3 * np.abs(t).max() * (1.0 + 1e-9)


def means(n_rows=3000):
    """Rows far from 0, most of which are no support vectors."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 20)) + rng.uniform(1.0, 5.0, 20)
    scores = rows @ rng.normal(size=20)
    return rows, np.where(scores > np.median(scores) + rng.normal(size=n_rows), 1.0, -1.0)


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("bias", ["free", "penalized", "none"])
def test_reads_and_steps_to_a_gap(bias, C):
    rows, t = means()
    model = ooc_svm.train(rows, t, kernel="rbf", gamma="scale", bias=bias, C=C, tol=1e-3)
    (row,) = model.report["models"]
    assert row["converged"]
    assert row["passes"] <= 15
    # As many without a free bias as with it.
    assert row["steps"] <= (1_500 if C == 1.0 else 55_000)


def test_slopes_are_judged_by_the_bias_that_the_steps_have_led_to(monkeypatch):
    """The bias of the last P is an old one where rows are set aside in between."""
    empty, seen = UpdatePass.empty, []

    def keep(self):
        seen.append(self.choice.pivot)
        return empty(self)

    monkeypatch.setattr(UpdatePass, "empty", keep)
    rows, t = means()
    model = ooc_svm.train(rows, t, kernel="rbf", gamma="scale", bias="free", C=100.0, tol=1e-3)
    assert len(set(seen)) >= model.report["passes"] - 1
    assert seen[-1] == pytest.approx(float(model.functions.bias[0]), abs=0.05)


def long_rows():
    """Most rows are short; one in 300 is 200 times as long."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(900, 6))
    rows[::300] *= 200.0
    return rows, np.where(rows[:, 0] + rows[:, 1] * rows[:, 2] > 0.1 * rng.normal(size=900), 1.0, -1.0)


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("bias", ["free", "penalized", "none"])
def test_a_few_long_rows_do_not_hide_the_gap_of_a_polynomial(bias, C):
    """Their kernel values are 1e13 times those of the others."""
    rows, t = long_rows()
    options = {"kernel": "poly", "gamma": 0.05, "degree": 3, "C": C, "bias": bias}
    model = ooc_svm.train(rows, t, tol=1e-4, **options)
    (row,) = model.report["models"]
    assert row["converged"]
    K = (0.05 * rows @ rows.T) ** 3
    if bias == "free":
        peer = SVC(kernel="precomputed", C=C, tol=1e-6).fit(K, t)
        v = np.zeros(len(t))
        v[peer.support_] = peer.dual_coef_[0]
        optimum = np.abs(v).sum() - 0.5 * v @ K @ v
        assert row["dual"] <= optimum * (1.0 + 1e-6)
        assert row["primal"] >= optimum * (1.0 - 1e-6)
        assert row["dual"] == pytest.approx(optimum, rel=2e-4)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_no_kernel_value_is_off_by_more_than_the_share_of_its_rows_sizes(precision):
    rows, _ = long_rows()
    kernel = Polynomial(0.05, 0.3, 3)
    exact = rows.astype(np.longdouble)
    squares = np.asarray((exact**2).sum(axis=1), np.float64)
    own = rows.astype(precision)
    values = np.asarray((np.dtype(precision).type(0.05) * (own @ own.T) + np.dtype(precision).type(0.3)) ** 3)
    true = (np.longdouble(0.05) * (exact @ exact.T) + np.longdouble(0.3)) ** 3
    s = bound.row_sizes(kernel, squares)
    sizes = bound.RowSizes(float(squares.max()), 6)
    off = np.abs(values - true)
    assert (off <= 2.0 * bound.kernel_error(kernel, sizes, precision) * np.outer(s, s)).all()
    assert (np.abs(true) <= np.outer(s, s) * (1.0 + 1e-12)).all()
    # A share of the largest value of all would say nothing of the short rows.
    assert np.median(np.outer(s, s)) < 1e-6 * bound.largest_value(kernel, sizes)


def test_a_read_without_any_violator_leaves_the_bias():
    """Rows whose distances are all rounding: the set is empty, and no bias follows from it."""
    rows = 1e6 + 1e-6 * np.random.default_rng(0).standard_normal((6, 6))
    t = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    options = {"problem": "svr", "kernel": "rbf", "gamma": 0.01, "bias": "free"}
    report = ooc_svm.train(sparse.csr_matrix(rows), t, max_passes=40, **options).report
    assert report["stop_reason"] in ("certified", "no-progress", "max-passes")
    assert np.isfinite(report["models"][0]["bias"])
