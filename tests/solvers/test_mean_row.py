"""Steps on rows less a mean, none of which becomes dense: against dense rows, and in training."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.dual_data import bias_of, centered, dual_data, mean_weights
from helpers.dual_runs import Solving, Sweep, check_sweep
from helpers.losses import LOSSES, QUADRATIC, is_regression
from helpers.streamed_data import EPS, options_of, reference, value_of
from scipy import sparse

from ooc_svm import train
from ooc_svm.solvers.streamed_smo import dual_loops, placement

VALUES = (None, np.float32, np.float64)


def far_data(loss, dtype=np.float64, *, rho=0.7, scaled=False, n_rows=150):
    """Rows whose columns have a mean of their own, and that mean."""
    data = dual_data(loss, n_rows=n_rows, rho=rho, scaled=scaled, ones=dtype is None, density=0.5)
    if dtype is not None:
        data.matrix.data = (data.matrix.data + 3.0).astype(dtype).astype(np.float64)
    return data, data.matrix.mean(axis=0)


class TestSweep:
    @pytest.mark.parametrize("scaled", [False, True])
    @pytest.mark.parametrize("dtype", VALUES)
    @pytest.mark.parametrize("loss", LOSSES)
    def test_against_plain_python(self, loss, dtype, scaled):
        data, mean = far_data(loss, dtype, scaled=scaled)
        sweep = Sweep(data, dtype=dtype, b=0.2, mean=mean, total=-1.3, unit=2.5)
        check_sweep(sweep)
        assert abs(sweep.sums[dual_loops.MOMENT]) > 1e-3

    def test_the_unit_is_that_of_priorities_alone(self):
        one, other = (Sweep(dual_data("hinge"), unit=unit).compiled() for unit in (1.0, 4.0))
        assert one.step.tobytes() == other.step.tobytes()
        assert one.sums.tobytes() == other.sums.tobytes()
        assert one.priority.tobytes() != other.priority.tobytes()

    @pytest.mark.parametrize("scaled", [False, True])
    def test_a_mean_of_0_changes_no_step(self, scaled):
        data = dual_data("hinge", rho=0.7, scaled=scaled)
        mean = np.zeros(data.matrix.shape[1])
        one, other = (Sweep(data, b=0.3, mean=m, total=5.0).compiled() for m in (None, mean))
        for name in ("step", "w_after", "priority", "sums", "bias"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))

    @pytest.mark.parametrize("loss", LOSSES)
    def test_lanes_are_joined_by_the_step_that_is_best_for_d(self, loss):
        """The solver's parabola along the lanes' changes is that of D on the centered rows."""
        data, mean = far_data(loss)
        dense, m = centered(data, mean), mean_weights(data, mean)
        v = data.random_multipliers(np.random.default_rng(1)) * 0.3
        w, total = data.weights(v), v.sum()
        change, s, steps = np.zeros(len(w)), np.zeros(dual_loops.N_SUMS), np.zeros(len(v))
        for lane in range(3):
            own = {"first": lane, "every": 3, "seed": lane}
            one = Sweep(data, b=data.rho * total, mean=mean, total=total, **own)
            one.w, one.v = w, v[lane::3]
            one.marks[:] = 0
            one.compiled(building=False)
            change += one.w_after - w
            s += one.sums
            steps[lane::3] = one.step
        b, rho, _ = bias_of(data, mean, w, total, data.rho * total)
        moved, moment = s[dual_loops.MOVED], s[dual_loops.MOMENT]
        assert moment == pytest.approx(change @ m)
        slope = s[dual_loops.LINEAR] - w @ change - b * moved + total * moment
        bend = change @ change - 2.0 * moved * moment + rho * moved**2 + s[dual_loops.QUADRATIC]
        for theta in (0.0, 0.3, 1.0):
            expected = dense.dual(v) + theta * slope - 0.5 * theta**2 * bend
            there = dense.dual(v + theta * steps)
            if loss in QUADRATIC or theta in (0.0, 1.0):
                assert there == pytest.approx(expected, rel=1e-9, abs=1e-8)
            assert there >= expected - 1e-8


class TestSolve:
    @pytest.mark.parametrize("scaled", [False, True])
    @pytest.mark.parametrize("dtype", VALUES)
    @pytest.mark.parametrize("loss", LOSSES)
    def test_takes_the_steps_of_centered_rows(self, loss, dtype, scaled):
        data, mean = far_data(loss, dtype, scaled=scaled, n_rows=60)
        dense, limit = centered(data, mean), 5 * 60 * data.matrix.shape[1]
        v = data.random_multipliers(np.random.default_rng(2)) * 0.1
        run = Solving(data, v, dtype=dtype, mean=mean, most_elements=60)
        other = Solving(dense, v, most_elements=60)
        np.testing.assert_allclose(run.dual, other.dual, atol=1e-9)
        np.testing.assert_allclose(run.far, other.far, atol=1e-8)
        kinds = [k for k in range(dual_loops.WAS_LINEAR) if k != dual_loops.ELEMENTS]
        np.testing.assert_allclose(run.sums[kinds], other.sums[kinds], rtol=1e-8, atol=1e-8)
        total, rho = run.dual.sum(), data.rho
        np.testing.assert_allclose(run.bias, bias_of(data, mean, run.w, total, rho * total), atol=1e-8)
        np.testing.assert_allclose(run.w, data.weights(run.dual), atol=1e-9)
        np.testing.assert_allclose(other.w, run.w - total * mean_weights(data, mean), atol=1e-9)
        whole = Solving(data, v, dtype=dtype, mean=mean, wanted=1e-7, most_elements=1000 * limit)
        assert dense.primal(whole.dual) - dense.dual(whole.dual) <= 1e-6

    def test_a_row_at_the_mean_has_a_curvature(self):
        """That of ``x - m`` is a difference, and may come out as nothing or less."""
        data, _ = far_data("hinge", rho=0.0, n_rows=40)
        data.matrix = data.matrix[np.zeros(40, dtype=int)]
        data.matrix.data += 1e6
        run = Solving(data, mean=data.matrix[[0]].toarray().ravel(), most_elements=10**5)
        assert np.isfinite(run.dual).all()
        assert ((run.dual >= data.box[:, 1]) & (run.dual <= data.box[:, 2])).all()
        assert np.isfinite(run.bias).all()


@pytest.mark.usefixtures("few_held")
class TestTraining:
    @pytest.mark.parametrize("scale", ["none", "std"])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_the_optimum_of_an_independent_solver(self, loss, scale, monkeypatch):
        """Rows far from the origin, with the bias free."""
        rng = np.random.default_rng(5)
        matrix = rng.normal(size=(600, 8)) + 20.0
        scores = (matrix - 20.0) @ rng.normal(size=8) + 0.3 * rng.normal(size=600)
        t = scores + 50.0 if is_regression(loss) else np.where(scores > 0.4, 1.0, -1.0)
        means, place_rows = [], placement.place_rows

        def watched(*arguments):
            found = yield from place_rows(*arguments)
            means.append(found[1])
            return found

        monkeypatch.setattr("ooc_svm.solvers.streamed_smo.solver.place_rows", watched)
        model = train(matrix, t, resident=0.15, tol=1e-6, scale=scale, **options_of(loss, bias="free"))
        own_scale = 1.0 if scale == "none" else matrix.std(axis=0)
        # What is compiled before is trained on other rows.
        rows = matrix / own_scale
        squares = 1.0 if scale == "none" else own_scale**-2.0
        np.testing.assert_allclose(means[-1], matrix.mean(axis=0) * squares, rtol=0.05)
        row = model.report["models"][0]
        assert row["converged"]
        assert row["relative_gap"] <= 1e-6
        # The reference takes centered rows, on which it is exact; P is the same but for the bias.
        middle = rows.mean(axis=0)
        w, b = reference(sparse.csr_array(rows - middle), t, loss=loss, bias="free", eps=EPS)
        best = value_of(rows - middle, t, w, b, loss=loss, bias="free")
        weights = model.weights[0] * own_scale
        own = value_of(rows, t, weights, model.bias[0], loss=loss, bias="free")
        assert row["primal"] == pytest.approx(own, rel=1e-9)
        assert row["dual"] <= best * (1 + 1e-10)
        assert own <= best * (1 + 2e-6)
