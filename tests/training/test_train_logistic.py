"""Logistic models: their optimum against scikit-learn, their bounds, their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.losses import plain_losses
from helpers.train_data import make_store
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

import ooc_svm
from ooc_svm import UsageError, evaluate, export_model, load_model, predict, save_model, train, tune

RNG = np.random.default_rng(11)
X = sparse.csr_array(RNG.standard_normal((900, 25)) * (RNG.random((900, 25)) < 0.4))
RULE = X @ RNG.standard_normal(25) + 0.8 + RNG.logistic(size=900)
Y = np.where(RULE > 0.0, 1.0, -1.0)
THREE = np.digitize(RULE, [-1.0, 1.5]).astype(np.float64)
NAMES = np.array(["ham", "spam", "eggs"])[THREE.astype(int)]
WEIGHTS = RNG.integers(0, 4, 900) * 0.5


def value(model, y, weights=1.0, k=0, matrix=X, bias="none"):
    w, b = model.weights[k], model.bias[k]
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    return 0.5 * penalty + plain_losses("logistic", y, matrix @ w + b, model.C[k] * weights).sum()


@pytest.mark.usefixtures("few_held")
class TestOptimum:
    @pytest.mark.parametrize("C", [1e-3, 1.0, 30.0])
    @pytest.mark.parametrize("weights", [None, WEIGHTS])
    @pytest.mark.parametrize("bias", ["none", "free"])
    def test_it_is_that_of_scikit_learn(self, bias, weights, C):
        model = train(X, Y, sample_weight=weights, loss="logistic", C=C, bias=bias, tol=1e-9)
        found = model.report["models"][0]
        own = np.ones(900) if weights is None else weights
        machine = LogisticRegression(C=C, fit_intercept=bias == "free", tol=1e-12, solver="newton-cholesky")
        machine.fit(X, Y, sample_weight=weights)
        assert found["converged"]
        assert found["primal"] == pytest.approx(value(model, Y, own), rel=1e-12)
        w = machine.coef_.ravel()
        best = 0.5 * w @ w + plain_losses("logistic", Y, X @ w + machine.intercept_, C * own).sum()
        assert found["dual"] <= best * (1 + 1e-12)
        assert best <= found["primal"] * (1 + 1e-12)
        # P is 1-strongly convex in w.
        assert np.linalg.norm(model.weights[0] - w) <= np.sqrt(2.0 * found["gap"]) + 1e-6
        if bias == "free":
            assert model.bias[0] == pytest.approx(machine.intercept_[0], abs=1e-3)

    @pytest.mark.parametrize("bias", ["none", "penalized", "free"])
    @pytest.mark.parametrize(("C", "size"), [(1e-8, 1.0), (1e8, 1.0), (1.0, 1e6), (1e8, 1e-3), (1e-8, 1e6)])
    def test_extreme_values_have_true_bounds(self, C, size, bias):
        matrix = size * X[:200]
        model = train(matrix, Y[:200], loss="logistic", C=C, bias=bias, max_passes=20)
        found = model.report["models"][0]
        assert found["primal"] == pytest.approx(value(model, Y[:200], matrix=matrix, bias=bias), rel=1e-9)
        assert 0.0 <= found["dual"] <= found["primal"] + found["rounding"]
        assert np.isfinite(model.weights).all()
        machine = LogisticRegression(C=C * size**2, fit_intercept=bias == "free", tol=1e-12, max_iter=10_000)
        if bias != "penalized":
            machine.fit(X[:200], Y[:200])
            w = machine.coef_.ravel() / size
            best = 0.5 * w @ w
            best += plain_losses("logistic", Y[:200], matrix @ w + machine.intercept_, C).sum()
            assert found["dual"] - found["rounding"] <= best

    def test_balanced_classes_and_scaled_columns(self):
        options = {"loss": "logistic", "class_weight": "balanced", "scale": "std", "bias": "free"}
        model = train(X, Y, tol=1e-8, **options)
        machine = LogisticRegression(class_weight="balanced", tol=1e-12, solver="newton-cholesky")
        spread = 1.0 / model.scale
        machine.fit(X.toarray() / spread, Y)
        np.testing.assert_allclose(model.weights[0] * spread, machine.coef_[0], atol=2e-3)
        assert model.bias[0] == pytest.approx(machine.intercept_[0], abs=2e-3)

    def test_it_is_the_same_on_any_number_of_threads_and_after_a_pause(self, tmp_path):
        options = {"loss": "logistic", "bias": "free", "C": [0.5, 4.0], "tol": 1e-6}
        whole = train(X, Y, threads=1, **options)
        again = train(X, Y, threads=3, **options)
        assert whole.weights.tobytes() == again.weights.tobytes()
        ooc_svm.convert_matrix(X, Y, tmp_path / "store.zarr", dtype="float64")
        place = {"checkpoint": tmp_path / "checkpoint"}
        part = train(tmp_path / "store.zarr", max_passes=3, **place, **options)
        assert not part.report["converged"]
        resumed = train(tmp_path / "store.zarr", resume=True, **place, **options)
        assert resumed.weights.tobytes() == whole.weights.tobytes()
        warm = train(tmp_path / "store.zarr", warm_start=tmp_path / "checkpoint", **options)
        assert warm.report["passes"] < whole.report["passes"]


class TestProbabilities:
    def test_of_two_classes(self):
        model = train(X, Y, loss="logistic")
        found = model.predict_proba(X)
        np.testing.assert_allclose(found[:, 1], expit(model.decision_function(X)), rtol=1e-14)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-15)
        assert model.classes_.tolist() == [-1.0, 1.0]

    def test_of_several_classes_they_are_divided_by_their_sum(self):
        model = train(X, NAMES, loss="logistic")
        each = expit(model.decision_function(X))
        found = model.predict_proba(X)
        np.testing.assert_allclose(found, each / each.sum(axis=1, keepdims=True), rtol=1e-12)
        assert (model.classes_[found.argmax(axis=1)] == model.predict(X)).all()

    def test_rows_far_from_all_classes_have_some_too(self):
        model = train(X, NAMES, loss="logistic")
        far = model.predict_proba(1e6 * X)
        assert np.isfinite(far).all()
        np.testing.assert_allclose(far.sum(axis=1), 1.0, rtol=1e-12)

    def test_the_file_of_a_model_keeps_its_loss(self, tmp_path):
        model = train(X, Y, loss="logistic")
        save_model(model, tmp_path / "m.model")
        again = load_model(tmp_path / "m.model")
        assert again.gives_probabilities
        assert (again.predict_proba(X) == model.predict_proba(X)).all()

    @pytest.mark.parametrize("ending", ["txt", "csv"])
    def test_in_a_file(self, tmp_path, ending):
        model, path = train(X, NAMES, loss="logistic"), tmp_path / f"out.{ending}"
        predict(model, X, output=path, scores=True, probabilities=True)
        delimiter = "," if ending == "csv" else "\t"
        header, *lines = path.read_text().splitlines()
        names = ["eggs", "ham", "spam"]
        expected = ["label", *(f"score of {n}" for n in names), *(f"probability of {n}" for n in names)]
        assert header.split(delimiter) == expected
        numbers = np.array([line.split(delimiter)[1:] for line in lines], dtype=np.float64)
        both = np.column_stack([model.decision_function(X), model.predict_proba(X)])
        assert (numbers == both).all()

    def test_other_models_have_none(self, tmp_path):
        model = train(X, Y)
        for ask in (
            lambda: model.predict_proba(X),
            lambda: predict(model, X, output=tmp_path / "p.txt", probabilities=True),
        ):
            with pytest.raises(UsageError, match="a model with the loss hinge gives scores and no prob"):
                ask()
        with pytest.raises(UsageError, match="log-loss is no metric for two classes: it is of probabilities"):
            evaluate(model, X, "log-loss", labels=Y)
        with pytest.raises(UsageError, match="needs output"):
            predict(model, X, probabilities=True)

    def test_ocas_refuses_the_loss(self):
        for solver in ("ocas", "cutting-plane"):
            with pytest.raises(UsageError, match=f"loss 'logistic' is for .*'streamed-smo'.*not '{solver}'"):
                train(X, Y, loss="logistic", solver=solver)


class TestMetrics:
    def test_of_two_classes(self):
        model = train(X, Y, loss="logistic", C=0.01)
        found, p = evaluate(model, X, labels=Y), model.predict_proba(X)
        assert found["log-loss"] == pytest.approx(log_loss(Y, p), rel=1e-12)
        assert found["brier-score"] == pytest.approx(brier_score_loss(Y, p[:, 1]), rel=1e-12)
        hit = (p.argmax(axis=1) == (Y > 0)).astype(float)
        bins = np.minimum((p.max(axis=1) * 15).astype(int), 14)
        error = sum(abs((hit - p.max(axis=1))[bins == k].sum()) for k in range(15)) / 900
        assert found["calibration-error"] == pytest.approx(error, rel=1e-12)

    def test_of_several_classes(self):
        model = train(X, NAMES, loss="logistic", C=0.01)
        found, p = evaluate(model, X, labels=NAMES), model.predict_proba(X)
        assert found["log-loss"] == pytest.approx(log_loss(NAMES, p), rel=1e-12)
        actual = np.unique(NAMES, return_inverse=True)[1]
        squares = ((p - np.eye(3)[actual]) ** 2).sum(axis=1).mean()
        assert found["brier-score"] == pytest.approx(squares, rel=1e-12)

    def test_memory_changes_no_bit(self, tmp_path):
        store = make_store(tmp_path / "s.zarr", X, Y, chunk_rows=100, block_rows=100)
        model = train(X, Y, loss="logistic")
        names = ["log-loss", "brier-score", "calibration-error"]
        one, other = (evaluate(model, store, names, memory=m) for m in ("400MB", "2GB"))
        assert one == other

    def test_tuning_takes_the_smallest(self, tmp_path):
        ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr")
        model = tune(
            tmp_path / "s.zarr", loss="logistic", C=[1e-6, 0.1], folds=3, metric="log-loss", bias="free"
        )
        assert model.C[model.selected] == 0.1


def test_export_to_liblinear(tmp_path):
    model = train(X, Y, loss="logistic")
    export_model(model, tmp_path / "m.txt", "liblinear")
    assert (tmp_path / "m.txt").read_text().startswith("solver_type L2R_LR_DUAL\nnr_class 2\nlabel 1 -1\n")


@pytest.mark.filterwarnings("ignore")
def test_the_estimator_is_the_model():
    machine = ooc_svm.OocLogisticRegression(C=0.3).fit(X, NAMES)
    model = train(X, NAMES, loss="logistic", C=0.3)
    assert machine.coef_.tobytes() == model.coef_.tobytes()
    assert (machine.predict_proba(X) == model.predict_proba(X)).all()
    np.testing.assert_allclose(np.exp(machine.predict_log_proba(X)), machine.predict_proba(X), rtol=1e-14)
    assert "loss" not in machine.get_params()
    assert hasattr(ooc_svm.OocSVC(loss="logistic"), "predict_proba")
    assert not hasattr(ooc_svm.OocSVC(), "predict_proba")
    assert not hasattr(ooc_svm.OocNuSVC(), "predict_proba")


@pytest.mark.filterwarnings("ignore")
def test_weights_are_rows_given_several_times():
    weights = RNG.integers(0, 4, 900)
    one = ooc_svm.OocLogisticRegression(tol=1e-10).fit(X, Y, sample_weight=weights)
    other = ooc_svm.OocLogisticRegression(tol=1e-10).fit(
        X[np.repeat(np.arange(900), weights)], Y.repeat(weights)
    )
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-4)
