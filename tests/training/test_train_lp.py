"""Models with L_p hinge losses: their optimum against a quasi-Newton method, bounds, and how p is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

import ooc_svm
from ooc_svm import DamageError, OocSVC, UsageError, load_model, save_model, train
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.base import NO_ROOM, DataSize
from ooc_svm.solvers.streamed_smo import effort, state
from ooc_svm.solvers.streamed_smo.plan import StreamedSmoPackage

RNG = np.random.default_rng(12)
X = sparse.csr_array(RNG.standard_normal((900, 25)) * (RNG.random((900, 25)) < 0.4))
RULE = X @ RNG.standard_normal(25) + 0.8 + RNG.logistic(size=900)
Y = np.where(RULE > 0.0, 1.0, -1.0)
WEIGHTS = RNG.integers(0, 4, 900) * 0.5


def value(point, p, cost, bias, y=Y):
    """P from its definition, and its gradient."""
    w, b = point[:-1], point[-1] if bias != "none" else 0.0
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    slack = np.maximum(0.0, 1.0 - y * (X @ w + b))
    slopes = -p * cost * slack ** (p - 1.0) * y
    end = slopes.sum() + (b if bias == "penalized" else 0.0) if bias != "none" else 0.0
    return 0.5 * penalty + (cost * slack**p).sum(), np.append(w + X.T @ slopes, end)


@pytest.mark.usefixtures("few_held")
class TestOptimum:
    @pytest.mark.parametrize("bias", ["none", "penalized", "free"])
    @pytest.mark.parametrize("weights", [None, WEIGHTS])
    @pytest.mark.parametrize(("p", "C"), [(1.1, 0.3), (1.5, 1e-3), (1.5, 30.0), (1.99, 1.0)])
    def test_it_is_that_of_a_quasi_newton_method(self, p, C, weights, bias):
        model = train(X, Y, sample_weight=weights, loss="lp", p=p, C=C, bias=bias, tol=1e-5)
        found = model.report["models"][0]
        cost = C * (np.ones(900) if weights is None else weights)
        own = value(np.append(model.weights[0], model.bias[0]), p, cost, bias)[0]
        limits = {"maxiter": 10_000, "maxfun": 10**6, "ftol": 1e-16, "gtol": 1e-9}
        best = minimize(value, np.zeros(26), (p, cost, bias), jac=True, method="L-BFGS-B", options=limits).fun
        assert found["converged"]
        assert found["relative_gap"] <= 1e-5
        assert found["primal"] == pytest.approx(own, rel=1e-12)
        assert found["dual"] <= best * (1 + 1e-12)
        assert best <= own * (1 + 1e-5)

    @pytest.mark.parametrize(("p", "loss"), [(1, "hinge"), (2.0, "squared-hinge")])
    def test_the_ends_have_the_bits_of_other_losses(self, p, loss):
        model, same = train(X, Y, loss="lp", p=p), train(X, Y, loss=loss)
        assert model.weights.tobytes() == same.weights.tobytes()

    @pytest.mark.parametrize("p", [1.0 + 2.0**-52, 1.0 + 1e-9, 2.0 - 2.0**-52])
    def test_next_to_the_ends_the_optimum_is_next_to_theirs(self, p):
        found = train(X, Y, loss="lp", p=p).report["models"][0]
        end = train(X, Y, loss="hinge" if p < 1.5 else "squared-hinge").report["models"][0]
        assert found["converged"]
        assert found["dual"] <= end["primal"] * (1 + 1e-6)
        assert end["dual"] <= found["primal"] * (1 + 1e-6)

    @pytest.mark.parametrize(("C", "size"), [(1e-8, 1.0), (1e8, 1.0), (1.0, 1e6), (1e-8, 1e6)])
    def test_extreme_values_have_true_bounds(self, C, size):
        model = train(size * X, Y, loss="lp", p=1.3, C=C, bias="free", max_passes=10)
        found = model.report["models"][0]
        w = np.append(size * model.weights[0], model.bias[0])
        own = value(w, 1.3, C * np.ones(900), "free")[0] - 0.5 * (w[:-1] @ w[:-1])
        assert found["primal"] == pytest.approx(own + 0.5 * (w[:-1] @ w[:-1]) / size**2, rel=1e-9)
        assert 0.0 <= found["dual"] - found["rounding"] <= found["primal"]

    def test_it_is_the_same_on_any_number_of_threads_and_after_a_pause(self, tmp_path):
        options = {"loss": "lp", "p": 1.4, "bias": "free", "C": [0.5, 4.0], "tol": 1e-6}
        whole = train(X, Y, threads=1, **options)
        assert train(X, Y, threads=3, **options).weights.tobytes() == whole.weights.tobytes()
        ooc_svm.convert_matrix(X, Y, tmp_path / "store.zarr", dtype="float64")
        place = {"checkpoint": tmp_path / "checkpoint"}
        part = train(tmp_path / "store.zarr", max_passes=3, **place, **options)
        assert not part.report["converged"]
        resumed = train(tmp_path / "store.zarr", resume=True, **place, **options)
        assert resumed.weights.tobytes() == whole.weights.tobytes()
        with pytest.raises(DamageError, match="was saved by a run with other options"):
            train(tmp_path / "store.zarr", resume=True, **place, **(options | {"p": 1.5}))


class TestPower:
    def test_its_default(self, tmp_path):
        model = train(X, Y, loss="lp")
        assert model.options["p"] == 1.5
        assert model.weights.tobytes() == train(X, Y, loss="lp", p=1.5).weights.tobytes()
        save_model(model, tmp_path / "m.model")
        assert load_model(tmp_path / "m.model").options["p"] == 1.5
        assert train(X, Y).options["p"] is None

    def test_of_an_estimator(self):
        machine = OocSVC(loss="lp", p=1.2).fit(X, Y)
        assert machine.coef_.tobytes() == train(X, Y, loss="lp", p=1.2).weights.tobytes()
        assert machine.get_params()["p"] == 1.2

    @pytest.mark.parametrize("p", [0.99, 2.01, 0, -1.5, float("nan"), float("inf"), "1.5", True])
    def test_others_are_refused(self, p):
        with pytest.raises(UsageError, match=r"^p must be a power from 1 to 2, not "):
            train(X, Y, loss="lp", p=p)

    def test_it_needs_its_loss(self):
        with pytest.raises(UsageError, match=r"^p is for the loss 'lp', not 'hinge'$"):
            TrainOptions(p=1.5)


@pytest.mark.parametrize(("options", "saves"), [({"loss": "lp", "p": 1.5}, True), ({"loss": "hinge"}, False)])
def test_a_resident_part_solved_harder_saves_reads_where_multipliers_have_no_end(monkeypatch, options, saves):
    rows = RNG.standard_normal((6000, 30)).astype(np.float32)
    labels = np.sign(rows[:, 0] + 0.5 * rows[:, 1] + RNG.standard_normal(6000))

    def reads():
        model = train(rows, labels, resident=0.1, tol=1e-3, solver="streamed-smo", **options)
        assert model.report["converged"]
        return model.report["passes"]

    own = reads()
    as_others = {least: replace(each, unbounded_ratio=1.0) for least, each in effort.EFFORTS.items()}
    monkeypatch.setattr(effort, "EFFORTS", as_others)
    assert own < reads() if saves else own == reads()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_mean_of_the_rounds_saves_a_read_where_most_free_rows_are_elsewhere(monkeypatch, seed):
    rng = np.random.default_rng(seed)
    # The classes of the second half follow from another rule.
    rows, rules = rng.standard_normal((6000, 30)).astype(np.float32), rng.standard_normal((2, 30))
    scores = np.concatenate([rows[:3000] @ rules[0], rows[3000:] @ rules[1]])
    labels = np.sign(scores + 0.5 * np.sqrt(30) * rng.standard_normal(6000))

    def reads():
        options = {"loss": "squared-hinge", "tol": 1e-4, "resident": 0.1, "solver": "streamed-smo"}
        report = train(rows, labels, **options).report
        assert report["converged"]
        return report["passes"]

    own = reads()
    monkeypatch.setattr(state, "MOSTLY", -1.0)
    assert own < reads()


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "squared-hinge"},
        {"loss": "lp", "p": 1.2},
        {"loss": "lp", "p": 1.0},
        {"loss": "hinge"},
        {"loss": "logistic"},
        {"problem": "svr", "loss": "squared-epsilon-insensitive"},
    ],
)
def test_rounds_of_data_of_some_size_follow_from_the_share(options):
    def rounds(size, share):
        return (
            StreamedSmoPackage().plan(size, TrainOptions(resident=share, **options), NO_ROOM).report["rounds"]
        )

    size = DataSize(600_000, 7_000_000, 5_400, 1, 4)
    assert [rounds(size, share) for share in (0.1, 0.5, 1.0)] == [20, 5, 1]
    large = replace(size, n_nonzeros=70_000_000)
    assert [rounds(large, share) for share in (0.1, 0.3, 0.5, 1.0)] == [5, 5, 3, 3]
    # With fewer columns there are proximal steps, and rows of more data are solved at once as well.
    for dimension in (54, 540):
        assert rounds(replace(large, dimension=dimension), 1.0) == 1
