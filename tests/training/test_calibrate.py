"""Probabilities fitted to scores of rows that models were not trained on, in the reads of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.label_data import make_labels
from helpers.scored_data import linear_model
from helpers.train_data import bits, make_store, problem_rows
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, logsumexp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import LinearSVC

from ooc_svm import (
    DamageError,
    InputError,
    Interrupted,
    UsageError,
    convert,
    evaluate,
    load_model,
    plan,
    predict,
    save_model,
    train,
    tune,
)
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.model.calibration import Calibration
from ooc_svm.model.sigmoid import Sigmoid, targets_of
from ooc_svm.problems.targets import FOLDS, HELD_OUT, ClassTargets
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.base import KeptScores
from ooc_svm.training import calibration
from ooc_svm.training.score_bins import BINS, BinnedScores, FunctionScores, binned_scores

N_ROWS = 400


def rows_of(problem: str) -> tuple[Any, Any]:
    return problem_rows(problem, N_ROWS, 20, noise=0.8)


def store_of(path: Path, problem: str) -> Path:
    return make_store(path, *rows_of(problem))


class Ended:
    """What a run had in the end: the fold of each row, and the scores of the models."""

    def __init__(self, run: Any) -> None:
        vectors = run.engine.vectors
        self.marks = {
            name: vectors[name].read(0, vectors.n_rows).copy()
            for name in (FOLDS, HELD_OUT)
            if name in vectors
        }
        pairs = zip(run.models, run.solvers, strict=True)
        self.solutions = [(spec.fold, spec.C, *solver.solution()) for spec, solver in pairs]

    def out_of_fold(self, X: Any, k: int) -> Any:
        """Scores of function k, of each row by the model that was trained without its fold."""
        folds = self.marks[FOLDS]
        scores = np.empty(X.shape[0])
        for fold in range(int(folds.max()) + 1):
            own = [(w, b) for f, _, w, b in self.solutions if f == fold]
            scores[folds == fold] = (X @ own[k][0] + own[k][1])[folds == fold]
        return scores


@pytest.fixture
def ended(monkeypatch):
    """The ends of all calibrated runs of a test."""
    ends: list[Ended] = []
    own = calibration.calibrated

    def keep(run, model):
        ends.append(Ended(run))
        return own(run, model)

    monkeypatch.setattr(calibration, "calibrated", keep)
    return ends


def sigmoid_of(scores: Any, positive: Any, weights: Any = None) -> Any:
    """Slope and offset of Platt's sigmoid, by scikit-learn's logistic regression without a penalty."""
    weights = np.ones(len(scores)) if weights is None else weights * len(scores) / weights.sum()
    targets = targets_of(np.array([weights[~positive].sum(), 0.0]), np.array([0.0, weights[positive].sum()]))
    shares = targets / [weights[~positive].sum(), weights[positive].sum()]
    share = shares[positive.astype(int)]
    machine = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky")
    twice = np.concatenate([scores, scores])[:, None]
    labels = np.repeat([1, 0], len(scores))
    machine.fit(twice, labels, np.concatenate([weights * share, weights * (1 - share)]))
    if machine.coef_[0, 0] < 0.0:  # a class between others: where scores do not tell it, a constant is fitted
        return 0.0, float(logit(np.average(share, weights=weights)))
    return float(machine.coef_[0, 0]), float(machine.intercept_[0])


CASES: list[tuple[str, dict[str, Any]]] = [
    ("two classes", {"bias": "none"}),
    ("two classes", {"loss": "squared-hinge", "bias": "free"}),
    ("two classes", {"loss": "logistic", "class_weight": "balanced"}),
    ("two classes", {"solver": "ocas"}),
    ("two classes", {"solver": "cutting-plane", "tol": 0.02}),
    ("two classes", {"problem": "nu-svc", "nu": 0.4}),
    ("three classes", {}),
    ("three classes", {"positive": [1, 2]}),
]


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize(("problem", "options"), CASES)
def test_the_sigmoid_is_that_of_the_scores_of_rows_held_out(problem, options, tmp_path, ended):
    X, labels = rows_of(problem)
    model = train(store_of(tmp_path / "s", problem), calibrate="sigmoid", **options)
    for k, own in enumerate(model.calibration.maps):
        sides = np.isin(labels, options["positive"]) if "positive" in options else labels == model.positive[k]
        scores = ended[0].out_of_fold(X, k)
        found, expected = own.log_odds(scores), np.polyval(sigmoid_of(scores, sides), scores)
        # Rows of both classes whose scores are next to each other may share a bin.
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        report = model.report["calibration"]["functions"][k]
        assert report["log-loss"] == pytest.approx(log_loss(sides, expit(expected)), rel=1e-4)
        assert report["brier-score"] == pytest.approx(np.mean((sides - expit(expected)) ** 2), rel=1e-4)
        assert report["rows"] == N_ROWS
        assert (report["slope"], report["offset"]) == own
    folds = model.report["calibration"]["folds"]
    assert folds == np.bincount(ended[0].marks[FOLDS]).tolist() == [N_ROWS // 5] * 5
    again = expit(own.log_odds(model.decision_function(X).reshape(N_ROWS, -1)[:, k]))
    if len(model.calibration.maps) == 1:
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], again)


def test_isotonic_regression_is_that_of_the_scores_of_rows_held_out(tmp_path, ended):
    X, labels = rows_of("two classes")
    model = train(store_of(tmp_path / "s", "two classes"), calibrate="isotonic")
    scores, positive = ended[0].out_of_fold(X, 0), labels > 0
    n = np.array([(~positive).sum(), positive.sum()])
    shares = targets_of(np.array([n[0], 0.0]), np.array([0.0, n[1]])) / n
    reference = IsotonicRegression(out_of_bounds="clip").fit(scores, shares[positive.astype(int)])
    points = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], reference.predict(points), atol=1e-6)
    assert model.report["calibration"]["functions"][0]["knots"] == len(model.calibration.maps[0].scores)


def test_each_label_of_sets(tmp_path, ended):
    made = make_labels()
    convert(made.write(tmp_path / "a.svm"), tmp_path / "a.zarr", labels="sets")
    # At the optimum: elsewhere within the gap more rows may share a bin.
    model = train(tmp_path / "a.zarr", calibrate="sigmoid", tol=1e-6)
    scores = model.decision_function(made.X)
    for k, own in enumerate(model.calibration.maps):
        out = ended[0].out_of_fold(made.X, k)
        expected = np.polyval(sigmoid_of(out, made.Y[:, k]), out)
        np.testing.assert_allclose(own.log_odds(out), expected, atol=1e-4)
        np.testing.assert_allclose(model.predict_proba(made.X)[:, k], expit(own.log_odds(scores[:, k])))


class TestSeveralClasses:
    @pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
    def test_their_temperature_is_that_of_the_largest_likelihood(self, method, ended):
        X, labels = rows_of("three classes")
        weights = np.random.default_rng(0).integers(0, 4, N_ROWS).astype(np.float64)
        model = train(X, labels, sample_weight=weights, calibrate=method, C=[0.1, 1.0])
        counted, target = weights > 0, np.full((N_ROWS, 3), 0.5 / ((weights > 0).sum() + 2.0))
        codes = np.searchsorted(np.unique(labels), labels)
        target[np.arange(N_ROWS), codes] = 1.0 - 2.0 * target[0, 0]
        for number, own in enumerate(model.report["calibration"]["classes"]):
            maps = enumerate(model.calibration.maps[3 * number : 3 * number + 3])
            log = np.log(
                [expit(each.log_odds(ended[0].out_of_fold(X, 3 * number + k))) for k, each in maps]
            ).T

            def loss(logarithm: float, wanted: Any = target, log: Any = log) -> float:
                scaled = log / np.exp(logarithm)
                losses = logsumexp(scaled, axis=1) - (wanted * scaled).sum(axis=1)
                return float((weights * losses)[counted].sum())

            best = minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded", options={"xatol": 1e-9})
            assert own["temperature"] == pytest.approx(np.exp(best.x), rel=1e-5)
            found = loss(np.log(own["temperature"]), np.eye(3)[codes]) / weights.sum()
            assert (own["C"], own["log-loss"]) == ((0.1, 1.0)[number], pytest.approx(found, rel=1e-9))
        temperatures = [own["temperature"] for own in model.report["calibration"]["classes"]]
        np.testing.assert_array_equal(model.calibration.temperatures, np.repeat(temperatures, 3))
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)

    @pytest.mark.parametrize("options", [{}, {"validation": 0.3}, {"loss": "logistic"}])
    def test_they_are_better_than_sigmoids_divided_by_their_sum(self, options):
        X, labels = load_digits(return_X_y=True)
        model = train(X[::2] / 16, labels[::2], calibrate="sigmoid", **options)
        without = replace(model, calibration=replace(model.calibration, temperatures=None))
        found, divided = (log_loss(labels[1::2], own.predict_proba(X[1::2] / 16)) for own in (model, without))
        assert found < 0.95 * divided

    def test_scores_that_tell_all_classes_apart(self):
        """Their probabilities are the targets: a rule of succession for 60 rows."""
        labels = np.arange(60) % 3
        model = train(np.eye(3)[labels], labels, calibrate="sigmoid", C=100.0)
        expected = np.where(np.eye(3)[labels] > 0, 61 / 62, 0.5 / 62)
        np.testing.assert_allclose(model.predict_proba(np.eye(3)[labels]), expected, rtol=1e-4)


@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_weights_of_rows_count_and_those_of_classes_do_not(size, ended):
    X, labels = rows_of("two classes")
    weights = size * np.random.default_rng(0).integers(0, 4, N_ROWS)
    cost = {"C": 1.0 / size}
    model = train(X, labels, sample_weight=weights, calibrate="sigmoid", **cost)
    counted = weights > 0
    scores = ended[0].out_of_fold(X, 0)[counted]
    expected = sigmoid_of(scores, labels[counted] > 0, weights[counted])
    [own] = model.calibration.maps
    np.testing.assert_allclose(own.log_odds(scores), np.polyval(expected, scores), rtol=1e-5, atol=1e-5)
    assert model.report["calibration"]["functions"][0]["rows"] == counted.sum()
    balanced = train(X, labels, calibrate="sigmoid", class_weight="balanced")
    share = (labels > 0).mean()
    scores = ended[1].out_of_fold(X, 0)
    assert expit(balanced.calibration.maps[0].log_odds(scores)).mean() == pytest.approx(share, abs=0.01)


@pytest.mark.usefixtures("few_held")
class TestReads:
    @pytest.mark.parametrize("solver", ["streamed-smo", "ocas"])
    def test_none_come_on_top_of_those_of_the_folds(self, solver, tmp_path):
        store = store_of(tmp_path / "s", "two classes")
        plain = tune(store, C=[0.1, 1.0], solver=solver)
        found = tune(store, C=[0.1, 1.0], solver=solver, calibrate="isotonic")
        assert bits(found) == bits(plain)
        for name in ("passes", "bytes_read"):
            assert found.report[name] == plain.report[name]
        assert found.report["tuning"] == plain.report["tuning"]
        assert [own["C"] for own in found.report["calibration"]["functions"]] == [0.1, 1.0]

    def test_a_run_takes_the_reads_of_its_slowest_model(self, tmp_path):
        store = store_of(tmp_path / "s", "two classes")
        report = train(store, calibrate="sigmoid").report
        everything = [*report["models"], *report["calibration"]["models"]]
        assert len(everything) == 6
        assert report["passes"] == max(row["passes"] for row in everything)
        assert report["converged"]
        stopped = train(store, calibrate="sigmoid", max_passes=1).report
        assert not stopped["converged"]
        assert "max-passes" in stopped["stop_reason"]

    def test_held_out_rows_cost_no_models(self, tmp_path, ended):
        X, labels = rows_of("two classes")
        store = store_of(tmp_path / "s", "two classes")
        model = train(store, calibrate="sigmoid", validation=0.4)
        plain = train(store, validation=0.4)
        assert bits(model) == bits(plain)
        assert model.report["passes"] == plain.report["passes"]
        held = ended[0].marks[HELD_OUT] > 0
        scores = (X @ model.weights[0] + model.bias[0])[held]
        expected = np.polyval(sigmoid_of(scores, labels[held] > 0), scores)
        np.testing.assert_allclose(model.calibration.maps[0].log_odds(scores), expected, atol=1e-5)
        assert model.report["calibration"]["folds"] is None
        assert model.report["calibration"]["functions"][0]["rows"] == held.sum()


class TestBits:
    @pytest.mark.parametrize(
        ("problem", "options"),
        [("two classes", {}), ("two classes", {"validation": 0.3}), ("three classes", {})],
    )
    def test_neither_threads_nor_engines_change_them(self, problem, options, tmp_path):
        store = store_of(tmp_path / "s", problem)
        wanted: dict[str, Any] = {"calibrate": "isotonic", "max_passes": 3, "C": [0.1, 1.0], **options}
        expected = train(store, threads=1, **wanted)
        for run in ({"threads": 3}, {"threads": 2, "engine": "dask", "memory": "900MB"}):
            found = train(store, **run, **wanted)
            assert found.report["calibration"] == expected.report["calibration"]
            for one, other in zip(found.calibration.maps, expected.calibration.maps, strict=True):
                assert one.scores.tobytes() == other.scores.tobytes()
                assert one.probabilities.tobytes() == other.probabilities.tobytes()

    @pytest.mark.usefixtures("few_held")
    def test_a_run_that_was_stopped_goes_on(self, tmp_path):
        store = store_of(tmp_path / "s", "two classes")
        options: dict[str, Any] = {"tol": 1e-5, "calibrate": "sigmoid"}
        whole = train(store, **options)
        place = {"checkpoint": tmp_path / "checkpoint"}
        part = train(store, max_passes=2, **place, **options)
        assert part.report["passes"] < whole.report["passes"]
        resumed = train(store, resume=True, **place, **options)
        assert bits(resumed) == bits(whole)
        assert resumed.report["calibration"]["functions"] == whole.report["calibration"]["functions"]
        # The states are the same whatever is fitted in the end.
        other = train(store, resume=True, **place, **(options | {"calibrate": "isotonic"}))
        assert bits(other) == bits(whole)
        with pytest.raises(DamageError, match="with other options"):
            train(store, resume=True, **place, tol=1e-5)

    def test_an_interrupted_run_has_a_model_without_them(self, tmp_path, monkeypatch):
        from ooc_svm.system import signals

        store = store_of(tmp_path / "s", "two classes")
        asked: list[int] = []

        def stop() -> int | None:
            asked.append(1)
            return 15 if len(asked) > 1 else None

        monkeypatch.setattr(signals, "stop_requested", stop)
        with pytest.raises(Interrupted) as caught:
            train(store, calibrate="sigmoid")
        assert caught.value.model.calibration is None


class TestTune:
    def test_values_of_c_are_compared_by_probabilities(self, tmp_path, ended):
        X, labels = rows_of("two classes")
        found = tune(
            store_of(tmp_path / "s", "two classes"), C=[0.01, 1.0], calibrate="sigmoid", metric="log-loss"
        )
        tuning, folds = found.report["tuning"], ended[0].marks[FOLDS]
        assert tuning["C"] == min(tuning["values"], key=lambda each: each["mean"])["C"]
        for number, each in enumerate(tuning["values"]):
            scores = ended[0].out_of_fold(X, number)
            p = expit(found.calibration.maps[number].log_odds(scores))
            expected = [log_loss(labels[folds == fold], p[folds == fold]) for fold in range(5)]
            np.testing.assert_allclose(each["values"], expected, rtol=1e-9)

    def test_another_store_to_measure_on_leaves_the_folds_to_the_calibration(self, tmp_path):
        store = store_of(tmp_path / "s", "two classes")
        other = store_of(tmp_path / "o", "two classes")
        found = tune(store, C=[0.1, 1.0], calibrate="sigmoid", validation=other, metric="log-loss")
        assert found.report["calibration"]["folds"] == [N_ROWS // 5] * 5
        for each in found.report["tuning"]["values"]:
            [value] = each["values"]
            assert value == pytest.approx(evaluate(found, other, "log-loss", C=each["C"])["log-loss"])
        trained = train(store, C=[0.1, 1.0], calibrate="sigmoid", validation=other)
        assert bits(trained) == bits(found)
        assert trained.report["validation"]["store"] == str(other)

    def test_without_a_calibration_there_are_no_probabilities_to_compare_by(self, tmp_path):
        message = "it is of probabilities, which calibrated models and those with the loss logistic give"
        with pytest.raises(UsageError, match=message):
            tune(store_of(tmp_path / "s", "two classes"), metric="log-loss")

    def test_fewer_folds(self, tmp_path):
        X, labels = rows_of("two classes")
        labels = np.where(np.arange(N_ROWS) < 4, 1.0, -1.0)
        store = make_store(tmp_path / "s", X, labels)
        with pytest.raises(InputError, match=r"calibrate='sigmoid' takes 5 folds, and needs as many rows"):
            train(store, calibrate="sigmoid")
        found = tune(store, calibrate="sigmoid", folds=3)
        assert len(found.report["calibration"]["folds"]) == 3
        assert found.calibration is not None


class TestBadInput:
    def test_fewer_rows_of_a_class_than_folds(self):
        X, _ = rows_of("two classes")
        labels = np.repeat(["many", "few"], [N_ROWS - 3, 3])
        message = (
            "calibrate='isotonic' takes 5 folds, and needs as many rows of the class few, one for each fold, "
            "and there are 3; leave calibrate out, take tune with fewer folds (folds), or leave the class out"
        )
        with pytest.raises(InputError) as caught:
            train(X, labels, calibrate="isotonic")
        assert str(caught.value) == message

    @pytest.mark.parametrize("problem", ["svr", "nu-svr", "ordinal", "roc-area", "ranking"])
    def test_values_and_orders_have_no_classes(self, problem):
        message = f"calibrate is for the problems 'svc' and 'nu-svc', not '{problem}'"
        with pytest.raises(UsageError, match=message):
            train(np.eye(4), [1, 2, 1, 2], problem=problem, calibrate="sigmoid")

    def test_rows_held_out_of_one_class(self):
        """Their targets keep the probabilities of the other class above 0."""
        rng = np.random.default_rng(0)
        X = rng.standard_normal((60, 3))
        labels = np.where(np.arange(60) < 2, 1.0, -1.0)
        for seed in range(9):
            try:
                model = train(X, labels, calibrate="sigmoid", validation=0.3, seed=seed)
            except InputError:  # all rows of a class are held out
                continue
            p = model.predict_proba(X)
            n = model.report["calibration"]["functions"][0]["rows"]
            bins = model.report["calibration"]["functions"][0]["bins"]
            if sum(each["share"] * each["rows"] for each in bins) == 0.0:
                np.testing.assert_allclose(p[:, 1], 1.0 / (n + 2.0), rtol=1e-6)
                return
        pytest.fail("some seed has to hold rows of one class out")

    @pytest.mark.parametrize("calibrate", ["sigmoid", "isotonic"])
    def test_equal_scores_give_the_base_rate(self, calibrate):
        """Rows without features have the score of the bias; out of folds it hardly differs."""
        X, labels = sparse.csr_array((1000, 3)), np.where(np.arange(1000) % 5 < 2, 1.0, -1.0)
        model = train(X, labels, calibrate=calibrate)
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], 0.4, atol=2e-3)

    @pytest.mark.parametrize("calibrate", ["sigmoid", "isotonic"])
    def test_data_with_unseen_columns(self, calibrate, tmp_path):
        X, labels = rows_of("two classes")
        model = train(X, labels, calibrate=calibrate)
        wider = sparse.hstack([X, 1e3 * sparse.eye_array(N_ROWS)], "csr")
        store = make_store(tmp_path / "s", wider, labels)
        told = (
            f"{N_ROWS} rows of {N_ROWS} have features that the model does not have; {N_ROWS} values ignored"
        )
        with pytest.warns(match=told):
            found = model.predict_proba(store)
        np.testing.assert_array_equal(found, model.predict_proba(X))
        save_model(model, tmp_path / "m")
        with pytest.warns(match=told):
            written = predict(tmp_path / "m", store, output=tmp_path / "p", probabilities=True)
        assert (written.rows, written.ignored.entries) == (N_ROWS, N_ROWS)
        table = np.loadtxt(tmp_path / "p", skiprows=1)
        np.testing.assert_allclose(table[:, 1:], model.predict_proba(X), rtol=1e-15)

    def test_weights_of_rows_that_are_held_out_are_not_known(self):
        X, labels = rows_of("two classes")
        message = "rows have weights, and calibrate='sigmoid' does not know those of the rows that validation"
        with pytest.raises(UsageError, match=message):
            train(X, labels, sample_weight=np.ones(N_ROWS), calibrate="sigmoid", validation=0.2)

    def test_rows_that_all_weigh_nothing(self):
        X, labels = rows_of("two classes")
        with pytest.raises(InputError, match="all rows have a weight of 0, so that there is nothing"):
            train(X, labels, sample_weight=np.zeros(N_ROWS), calibrate="sigmoid")

    def test_a_state_of_a_run_is_no_start_for_the_models_of_folds(self, tmp_path):
        store = store_of(tmp_path / "s", "two classes")
        train(store, checkpoint=tmp_path / "c")
        with pytest.raises(UsageError, match="trained without a fold, begin at the weights of a model"):
            train(store, calibrate="sigmoid", warm_start=tmp_path / "c")
        model = train(store)
        save_model(model, tmp_path / "m")
        assert train(store, calibrate="sigmoid", warm_start=tmp_path / "m").calibration is not None


def test_the_plan_counts_the_models_of_the_folds(tmp_path):
    store = store_of(tmp_path / "s", "two classes")
    assert plan(store, calibrate="sigmoid").n_models == 6
    assert plan(store, calibrate="sigmoid", validation=0.1).n_models == 1


def test_they_are_as_good_as_those_of_others(tmp_path):
    """Held out, on data whose probabilities are known; as scikit-learn's on the same folds in all."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((16_000, 8))
    labels = np.where(rng.random(16_000) < expit(1.5 * (X @ rng.standard_normal(8)) - 1.0), 1.0, -1.0)
    first, rest = slice(0, 8000), slice(8000, 16_000)
    reference = CalibratedClassifierCV(LinearSVC(loss="hinge", max_iter=10**5), cv=5, ensemble=False)
    reference.fit(X[first], labels[first])
    best = log_loss(labels[rest], reference.predict_proba(X[rest])[:, 1])
    for calibrate in ("sigmoid", "isotonic"):
        model = train(X[first], labels[first], calibrate=calibrate)
        save_model(model, tmp_path / "m")
        found = evaluate(load_model(tmp_path / "m"), X[rest], labels=labels[rest])
        assert found["log-loss"] == pytest.approx(best, rel=0.01)
        assert found["calibration-error"] < 0.02


class TestBins:
    """Scores that are known, as a solver keeps them."""

    def binned(self, scores: Any, positive: Any, weights: Any = None) -> BinnedScores:
        with RowVectors(len(scores), 1 << 20) as vectors:
            columns = {"codes": positive.astype(np.uint16), "marks": np.ones(len(scores), np.uint8)}
            columns |= {"scores": scores, **({} if weights is None else {"weights": weights})}
            for name, column in columns.items():
                vectors.create(name, column.dtype).write(0, column)
            source = MatrixSource(sparse.csr_array((len(scores), 1)), positive + 0.0)
            targets = ClassTargets(np.array([-1.0, 1.0]), np.ones(2))
            own = FunctionScores(
                targets, None if weights is None else "weights", "marks", {1: KeptScores("scores", "scores")}
            )
            [[found]] = binned_scores(SerialEngine(source, vectors), [own])
            return found

    @pytest.mark.parametrize(
        ("size", "shift"), [(1.0, 0.0), (1e-12, 0.0), (1e12, 0.0), (1.0, 1000.0), (1e-3, -50.0)]
    )
    def test_they_are_narrow_wherever_scores_are_many(self, size, shift):
        rng = np.random.default_rng(2)
        scores = size * rng.standard_normal(200_000) + shift
        positive = rng.random(200_000) < expit((scores - shift) / size)
        found = self.binned(scores, positive)
        assert len(found.scores) <= BINS
        assert found.n_rows == 200_000
        assert found.positives.sum() == pytest.approx(positive.sum())
        assert (np.diff(found.scores) > 0).all()
        inner = found.scores[len(found.scores) // 20 : -len(found.scores) // 20]
        assert np.diff(inner).max() < 0.01 * size
        exact, ours = (
            sigmoid_of((scores - shift) / size, positive),
            Sigmoid.fit(found.scores, found.negatives, found.positives),
        )
        np.testing.assert_allclose([ours.slope * size, ours.offset + ours.slope * shift], exact, atol=1e-4)

    def test_a_rare_class_has_bins_of_its_own(self):
        rng = np.random.default_rng(3)
        scores = np.concatenate([rng.standard_normal(100_000), 4.0 + rng.standard_normal(20)])
        found = self.binned(scores, np.arange(100_020) >= 100_000)
        assert (found.positives > 0).sum() == 20

    def test_few_rows_of_extreme_scores_do_not_widen_the_others(self):
        rng = np.random.default_rng(3)
        scores = np.concatenate([rng.standard_normal(100_000), [1e300, -1e300, 1e30, 1e-300, 0.0]])
        found = self.binned(scores, np.arange(100_005) % 2 == 0)
        assert np.diff(found.scores[1000:2000]).max() < 0.01

    def test_weights(self):
        scores = np.array([0.5, 0.5, 2.0, 3.0])
        positive, weights = np.array([True, False, True, False]), np.array([1.0, 2.0, 3.0, 0.0])
        found = self.binned(scores, positive, weights)
        assert found.scores.tolist() == [0.5, 2.0]
        np.testing.assert_allclose(found.negatives, [1.0, 0.0])
        np.testing.assert_allclose(found.positives, [0.5, 1.5])
        assert found.n_rows == 3


def test_a_calibrated_model_of_one_row() -> None:
    """Its label follows from the score alone, whatever the probability."""
    model = linear_model([1.0], calibration=Calibration("sigmoid", (Sigmoid(1.0, -5.0),)))
    assert model.predict(np.array([[1.0]])).tolist() == [1.0]
    assert model.predict_proba(np.array([[1.0]]))[0, 1] < 0.5
    assert model.predict_one({0: 1.0}) == 1.0
