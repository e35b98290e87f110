"""The solving of rows held in memory, with shrinking, against LIBLINEAR."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import losses
from helpers.dual_data import dual_data, spread_columns
from helpers.dual_runs import Solving
from helpers.losses import LOSSES, POWER, is_regression, is_squared, plain_losses
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC, LinearSVR

from ooc_svm.solvers.streamed_smo import dual_loops


def least_primal(data):
    """The optimum of P by a quasi-Newton method, of a smooth loss of classes."""
    x = np.column_stack([data.scaled, np.full(len(data.t), math.sqrt(data.rho))])

    def value(w):
        slack = np.maximum(1.0 - data.t * (x @ w), 0.0)
        slopes = -data.cost * POWER * slack ** (POWER - 1.0) * data.t
        return 0.5 * w @ w + (data.cost * slack**POWER).sum(), w + x.T @ slopes

    limits = {"maxiter": 10_000, "maxfun": 10**6, "ftol": 1e-16, "gtol": 1e-10}
    return minimize(value, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options=limits).fun


def best_value(data):
    """The optimum of P by LIBLINEAR as scikit-learn calls it."""
    kept = data.cost > 0.0
    options = {"C": 1.0, "tol": 1e-9, "max_iter": 200_000, "fit_intercept": data.rho > 0.0, "random_state": 0}
    if data.rho > 0.0:
        options["intercept_scaling"] = math.sqrt(data.rho)
    if data.loss == "logistic":
        del options["random_state"]
        model = LogisticRegression(solver="liblinear", dual=True, random_state=0, **options)
    elif is_regression(data.loss):
        name = ("squared_" if is_squared(data.loss) else "") + "epsilon_insensitive"
        model = LinearSVR(epsilon=data.eps, loss=name, dual=True, **options)
    else:
        model = LinearSVC(loss="squared_hinge" if is_squared(data.loss) else "hinge", dual=True, **options)
    if data.loss == "lp":
        return least_primal(data)
    model.fit(data.scaled[kept], data.t[kept], sample_weight=data.cost[kept])
    w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0]) if data.rho > 0.0 else 0.0
    norm = w @ w + (b * b / data.rho if data.rho > 0.0 else 0.0)
    return 0.5 * norm + plain_losses(data.loss, data.t, data.scaled @ w + b, data.cost, data.eps).sum()


def gap_with_bias(run):
    """P - D of a penalized bias, P at the weights and the bias of a run."""
    data, v, b = run.data, run.dual, run.bias[dual_loops.B]
    w = data.scaled.T @ v
    losses = plain_losses(data.loss, data.t, data.scaled @ w + b, data.cost, data.eps).sum()
    return 0.5 * (w @ w + b * b) + losses - replace(data, rho=1.0).dual(v)


class TestSolve:
    @pytest.mark.parametrize(("rho", "scaled"), [(0.0, False), (1.0, False), (0.3, True)])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_reaches_the_optimum(self, loss, rho, scaled):
        data = dual_data(loss, n_rows=150, rho=rho, scaled=scaled)
        run = Solving(data, wanted=1e-9)
        assert ((run.dual >= data.box[:, 1]) & (run.dual <= data.box[:, 2])).all()
        assert data.primal(run.dual) - data.dual(run.dual) <= 1e-8
        assert data.dual(run.dual) == pytest.approx(best_value(data), rel=1e-6)
        np.testing.assert_allclose(run.w, data.weights(run.dual), atol=1e-9)
        assert run.bias[0] == pytest.approx(rho * run.dual.sum(), abs=1e-9)

    @pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
    def test_more_columns_change_no_bit(self, dtype):
        """Where there are more weights than a core's own cache holds they are asked for ahead."""
        data = dual_data("hinge", n_rows=150, ones=dtype is None)
        every = dual_loops.NEAR_WEIGHTS // data.matrix.shape[1] + 1
        one, other = (Solving(each, dtype=dtype, wanted=1e-6) for each in (data, spread_columns(data, every)))
        assert len(one.w) < dual_loops.NEAR_WEIGHTS < len(other.w)
        assert one.w.tobytes() == other.w[::every].tobytes()
        assert one.dual.tobytes() == other.dual.tobytes()
        assert one.sums.tobytes() == other.sums.tobytes()

    @pytest.mark.parametrize("dtype", [None, np.float32])
    def test_kinds_of_values(self, dtype):
        data = dual_data("hinge", n_rows=150, ones=True)
        run, usual = Solving(data, dtype=dtype, wanted=1e-9), Solving(data, wanted=1e-9)
        assert data.dual(run.dual) == pytest.approx(data.dual(usual.dual), rel=1e-9)

    @pytest.mark.parametrize("rho", [0.0, 0.6])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_sums_are_those_of_the_multipliers(self, loss, rho):
        data = dual_data(loss, rho=rho)
        v = data.random_multipliers(np.random.default_rng(2)) * 0.7
        run = Solving(data, v, most_elements=5 * data.matrix.nnz)
        assert run.sums[dual_loops.LINEAR] == pytest.approx(data.linear(run.dual) - data.linear(v))
        assert run.sums[dual_loops.MOVED] == pytest.approx((run.dual - v).sum())
        assert run.bias[dual_loops.TOTAL] == pytest.approx(run.dual.sum())
        assert run.sums[dual_loops.CHANGES] >= (run.dual != v).sum() > 0
        assert run.sums[dual_loops.DISTANCE] >= np.abs(run.dual - v).sum() * (1 - 1e-12)
        # No step changes D's terms by more than their sizes.
        assert run.sums[dual_loops.SIZE] >= abs(run.sums[dual_loops.LINEAR])
        assert run.sums[dual_loops.ROWS] >= len(v)
        assert data.dual(run.dual) > data.dual(v)

    @pytest.mark.parametrize("wanted", [10.0, 1.0, 1e-3])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_ends_at_the_wanted_gap(self, loss, wanted):
        data = dual_data(loss)
        v = data.random_multipliers(np.random.default_rng(2))
        run = Solving(data, v, wanted=wanted)
        assert data.primal(v) - data.dual(v) > 10.0
        assert run.sums[dual_loops.GAP] <= wanted
        # The gaps were seen while the rows moved; they say what the gap is, not to the last digit.
        assert data.primal(run.dual) - data.dual(run.dual) <= 2.0 * wanted
        looser = Solving(data, v, wanted=10 * wanted)
        assert looser.sums[dual_loops.ELEMENTS] <= run.sums[dual_loops.ELEMENTS]

    @pytest.mark.parametrize("rho", [0.02, 0.3])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_a_bias_that_follows_comes_to_the_sum_of_the_multipliers(self, loss, rho):
        data = dual_data(loss, n_rows=150, rho=rho)
        run = Solving(data, wanted=1e-9, follow=rho)
        assert run.bias[dual_loops.B] == pytest.approx(run.dual.sum(), abs=1e-4)
        assert gap_with_bias(run) <= 1e-8
        whole = replace(data, rho=1.0)
        assert whole.dual(run.dual) == pytest.approx(best_value(whole), rel=1e-6)
        early = Solving(data, wanted=1.0, follow=rho)
        assert 1e-6 < gap_with_bias(early) <= 2.0
        assert early.sums[dual_loops.GAP] <= 1.0

    @pytest.mark.parametrize("loss", LOSSES)
    def test_ways_that_are_too_long_become_shorter(self, loss):
        data = dual_data(loss, n_rows=150, rho=0.02)
        run = Solving(data, wanted=1e-6, follow=1.0)
        assert gap_with_bias(run) <= 1e-5
        assert run.sums[dual_loops.ROWS] < 3_000 * len(run.dual)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_short_ways_become_longer(self, loss):
        data = dual_data(loss, n_rows=150, rho=0.02)
        run = Solving(data, wanted=1e-6, follow=1e-9)
        assert gap_with_bias(run) <= 1e-5
        usual = Solving(data, wanted=1e-6, follow=0.02)
        assert run.sums[dual_loops.ROWS] < 5 * usual.sums[dual_loops.ROWS] + 100 * len(run.dual)

    def test_it_does_not_go_back_and_forth_where_all_rows_are_at_bounds(self):
        """Far values that cost little: all rows are on one side of any b but those of a short interval."""
        data = dual_data("epsilon-insensitive", n_rows=150, rho=0.02, C=1.0)
        data.t[:] = 30.0
        run = Solving(data, wanted=1e-6, follow=0.02)
        assert gap_with_bias(run) <= 1e-5
        assert run.sums[dual_loops.ROWS] < 500 * len(run.dual)

    def test_ends_after_the_sweep_with_the_most_elements(self):
        data = dual_data("hinge", C=50.0)
        nnz, n_rows = data.matrix.nnz, len(data.t)
        one = Solving(data, most_elements=1)
        assert one.sums[dual_loops.ELEMENTS] == nnz
        assert one.sums[dual_loops.ROWS] == n_rows
        for most in (2 * nnz, 7 * nnz):
            sums = Solving(data, most_elements=most).sums
            assert most <= sums[dual_loops.ELEMENTS] + sums[dual_loops.ROWS] < most + nnz + n_rows

    def test_looks_at_no_row_when_it_is_stopped(self):
        run = Solving(dual_data("hinge"), stopped=True)
        assert (run.sums[dual_loops.ROWS], run.sums[dual_loops.CHANGES]) == (0.0, 0.0)
        assert not run.w.any()

    @pytest.mark.parametrize("loss", LOSSES)
    def test_shrinking_saves_work_and_changes_no_optimum(self, loss):
        """The rows that are set aside are looked at again, whatever they were when they were."""
        data = dual_data(loss, n_rows=600, n_features=10, density=0.5, C=0.05 if loss == "hinge" else 0.5)
        v = data.random_multipliers(np.random.default_rng(4))
        run = Solving(data, v, wanted=1e-8)
        assert data.primal(run.dual) - data.dual(run.dual) <= 1e-7
        # Nearly all rows of these move all the time.
        if loss not in ("squared-epsilon-insensitive", "logistic"):
            assert run.sums[dual_loops.ROWS] % len(data.t) != 0
        plain = v.copy()
        while data.primal(plain) - data.dual(plain) > 1e-7:
            plain = Solving(data, plain, most_elements=1).dual
        assert data.dual(run.dual) == pytest.approx(data.dual(plain), abs=2e-7)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_stationarity_is_that_of_the_rows(self, loss):
        data = dual_data(loss)
        run = Solving(data, wanted=1e-11)
        r = data.t - data.matrix @ run.w
        expected = [
            losses.violation(data.functions, v, ri, *row)
            for v, ri, row in zip(run.dual, r, data.targets, strict=True)
        ]
        np.testing.assert_allclose(run.far, expected, atol=1e-4)

    @pytest.mark.parametrize("rho", [0.0, 1.0])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_rows_without_features_end_too(self, loss, rho):
        """No number of nonzeros ends the work here, only that nothing moves, or the number of rows."""
        data = dual_data(loss, rho=rho, n_rows=50)
        data.matrix.data[:] = 0.0
        data.matrix.eliminate_zeros()
        run = Solving(data, data.random_multipliers(np.random.default_rng(3)), most_elements=100_000)
        assert data.primal(run.dual) - data.dual(run.dual) == pytest.approx(0.0, abs=1e-9)
        assert run.sums[dual_loops.ROWS] < 100_000 + len(data.t)

    @pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
    def test_a_start_inside_the_tube_without_features(self, loss):
        """Multipliers that a wider tube makes wrong go back to zero, also where no feature helps."""
        name = "squared-epsilon-insensitive" if is_squared(loss) else "epsilon-insensitive"
        data = dual_data(name, n_rows=20, eps=100.0)
        data.matrix.data[:] = 0.0
        data.matrix.eliminate_zeros()
        run = Solving(data, data.random_multipliers(np.random.default_rng(3)))
        assert (run.dual == 0.0).all()
