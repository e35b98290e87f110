"""Values of C compared on folds, or on another store, in the reads of training."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.killed_runs import run_all
from helpers.train_data import bits, make_store, problem_rows
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from ooc_svm import (
    DamageError,
    InputError,
    Interrupted,
    MemoryBudgetError,
    UsageError,
    evaluate,
    load_model,
    plan,
    predict,
    save_model,
    train,
    tune,
)
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.problems.targets import FOLDS
from ooc_svm.system.signals import handle_signals
from ooc_svm.training import comparison
from ooc_svm.training.comparison import Compared, chosen, edge_hints

N_ROWS, SEED = 400, 3
COSTS = [0.01, 1.0]


def rows_of(problem: str) -> tuple[Any, Any, Any]:
    X, labels = problem_rows(problem, N_ROWS, 20, noise=0.8)
    return X, labels, np.arange(N_ROWS) // 8 if problem == "ranking" else None


def store_of(path: Path, problem: str, rows: Any = slice(None)) -> Path:
    """Rows as a store of several blocks."""
    X, labels, qid = rows_of(problem)
    return make_store(path, X[rows], labels[rows], qids=None if qid is None else qid[rows])


# A problem, its options, and the metrics that are looked at.
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("two classes", {"solver": "streamed-smo", "bias": "none"}, ["accuracy", "auc", "f1", "prbep"]),
    ("two classes", {"solver": "streamed-smo", "loss": "squared-hinge", "bias": "free"}, ["auc"]),
    ("two classes", {"solver": "ocas", "bias": "penalized", "class_weight": "balanced"}, ["recall"]),
    ("two classes", {"solver": "cutting-plane", "bias": "none", "tol": 0.02}, ["balanced-accuracy"]),
    ("three classes", {"bias": "free", "class_weight": "balanced"}, ["macro-f1", "accuracy@2"]),
    ("three classes", {"solver": "cutting-plane", "bias": "none", "tol": 0.02}, ["accuracy"]),
    ("three classes", {"positive": [1, 2], "bias": "penalized"}, ["auc"]),
    ("svr", {"bias": "free"}, ["mse", "r2"]),
    ("ordinal", {"solver": "ocas"}, ["kendall-tau", "swapped-pairs"]),
    ("roc-area", {"solver": "ocas"}, ["auc"]),
    ("roc-area", {"solver": "cutting-plane", "tol": 0.02}, ["auc"]),
    ("ranking", {"solver": "ocas"}, ["ndcg@10", "map"]),
]


def options_of(problem: str, options: dict[str, Any]) -> dict[str, Any]:
    names = {} if problem.endswith("classes") else {"problem": problem}
    return {"C": COSTS, "seed": SEED, "folds": 3, **names, **options}


class Finished:
    """What a tuning had in the end: the fold of each row, and the models of each fold."""

    def __init__(self, run: Any) -> None:
        vectors = run.engine.vectors
        self.folds = vectors[FOLDS].read(0, vectors.n_rows).copy() if FOLDS in vectors else None
        pairs = list(zip(run.models, run.solvers, strict=True))
        self.solutions = [(spec.fold, spec.C, *solver.solution()) for spec, solver in pairs]

    def model(self, model: Any, fold: int, C: float) -> Any:
        """The models of one C that a fold was held out of, as one model."""
        own = [(w, b) for f, cost, w, b in self.solutions if (f, cost) == (fold, C)]
        functions = LinearFunctions(np.array([w for w, _ in own]), np.array([b for _, b in own]))
        active = [k for k in range(model.n_models) if model.C[k] == C]
        positive = [model.positive[k] for k in active] if model.positive else ()
        return replace(model, functions=functions, positive=positive, C=(C,) * len(own), selected=0)


@pytest.fixture
def finished(monkeypatch):
    """The ends of all tunings of a test."""
    ends: list[Finished] = []
    concluded = comparison.Comparison.concluded

    def keep(self):
        ends.append(Finished(self._run))
        return concluded(self)

    monkeypatch.setattr(comparison.Comparison, "concluded", keep)
    return ends


@pytest.mark.parametrize(("problem", "options", "metrics"), CASES)
def test_each_fold_is_measured_by_models_that_never_saw_it(problem, options, metrics, tmp_path, finished):
    """And the measures are those of `evaluate`."""
    X, labels, qid = rows_of(problem)
    store = store_of(tmp_path / "s", problem)
    for metric in metrics:
        model = tune(store, metric=metric, **options_of(problem, options))
        found, end = model.report["tuning"], finished[-1]
        assert found["folds"] == np.bincount(end.folds, minlength=3).tolist()
        for fold in range(3):
            mask = end.folds == fold
            given = {} if qid is None else {"qid": qid[mask]}
            for each in found["values"]:
                own = end.model(model, fold, each["C"])
                expected = evaluate(own, X[mask], metric, labels=labels[mask], **given)[metric]
                assert each["values"][fold] == pytest.approx(expected, rel=1e-9)
        for each in found["values"]:
            values = each["values"]
            assert each["mean"] == pytest.approx(np.mean(values))
            assert each["standard_error"] == pytest.approx(np.std(values, ddof=1) / math.sqrt(3))


@pytest.mark.parametrize(("problem", "options", "metrics"), CASES)
def test_models_are_those_of_the_rows_alone(problem, options, metrics, tmp_path, finished):
    """Of the rows outside of each fold, and for the model file of all rows, within the gaps."""
    X, labels, qid = rows_of(problem)
    wanted = options_of(problem, options)
    model = tune(store_of(tmp_path / "s", problem), **wanted)
    wanted.pop("folds")
    assert model.report["converged"]
    folded = model.report["tuning"]["models"]
    reports = [[row for row in folded if row["fold"] == fold + 1] for fold in range(3)]
    for fold, own in (*enumerate(reports), (None, model.report["models"])):
        rows = np.ones(N_ROWS, np.bool_) if fold is None else finished[0].folds != fold
        given = {} if qid is None else {"qid": qid[rows]}
        alone = train(X[rows], labels[rows], **given, **wanted).report["models"]
        for one, other in zip(own, alone, strict=True):
            assert (one["label"], one["C"]) == (other["label"], other["C"])
            # Each is at most its gap above the same optimum, and D at most its gap below.
            assert one["dual"] <= other["primal"] * (1 + 1e-9)
            assert other["dual"] <= one["primal"] * (1 + 1e-9)
            assert one["n_support"] <= np.count_nonzero(rows)


def test_an_independent_cross_validation_finds_the_same(tmp_path, finished):
    X, labels, _ = rows_of("two classes")
    store = store_of(tmp_path / "s", "two classes")
    found = tune(store, C=COSTS, folds=4, metric="auc", tol=1e-6, bias="penalized", seed=SEED).report[
        "tuning"
    ]
    folds = finished[0].folds
    for each in found["values"]:
        for fold in range(4):
            mask = folds == fold
            svm = LinearSVC(loss="hinge", C=each["C"], tol=1e-9, max_iter=10**7, random_state=0)
            svm.fit(X[~mask], labels[~mask])
            scores, w = svm.decision_function(X), svm.coef_.ravel()
            losses = np.maximum(0.0, 1.0 - labels * scores)[~mask].sum()
            P = 0.5 * (w @ w + svm.intercept_[0] ** 2) + each["C"] * losses
            [own] = [row for row in found["models"] if (row["fold"], row["C"]) == (fold + 1, each["C"])]
            assert own["primal"] == pytest.approx(P, rel=3e-6)
            assert own["dual"] <= P * (1 + 1e-9)
            assert each["values"][fold] == pytest.approx(roc_auc_score(labels[mask], scores[mask]), abs=2e-3)


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("solver", ["streamed-smo", "ocas", "cutting-plane"])
def test_reads_are_those_of_the_slowest_model(solver, tmp_path):
    store = store_of(tmp_path / "s", "two classes")
    options = {"solver": solver, "C": COSTS, "bias": "none", "tol": 0.01}
    report = tune(store, folds=3, **options).report
    models = [*report["models"], *report["tuning"]["models"]]
    assert len(models) == 2 * 4
    assert report["passes"] == max(row["passes"] for row in models)
    assert sum(row["passes"] for row in models) > 3 * report["passes"]
    assert len({row["passes"] for row in models}) > 1
    # Blocks that are kept in memory are fetched once; without room for them once a pass.
    assert report["bytes_read"] == train(store, **options).report["bytes_read"]


@pytest.mark.parametrize(("problem", "options", "metrics"), [CASES[0], CASES[4], CASES[8], CASES[11]])
def test_neither_threads_nor_engines_change_it(problem, options, metrics, tmp_path):
    store = store_of(tmp_path / "s", problem)
    wanted = options_of(problem, options) | {"max_passes": 3, "metric": metrics[0]}
    expected = tune(store, threads=1, **wanted)
    for run in ({"threads": 3}, {"threads": 2, "engine": "dask", "memory": "900MB"}):
        found = tune(store, **run, **wanted)
        assert found.report["tuning"] == expected.report["tuning"]
        assert bits(found) == bits(expected)


def test_no_model_is_swept_with_the_loss_of_another():
    """The hinge and its square are p = 1 and p = 2; with six models or more some are swept as one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 10))
    y = np.where(x @ rng.normal(size=10) + 2.0 * rng.normal(size=900) > 0.0, 1.0, -1.0)
    grid = {"p": [1.0, 2.0]}
    model = tune(x, y, folds=5, loss="lp", grid=grid, tol=1e-4, resident=0.3, progress=lambda _: None)
    assert model.report["converged"]


def test_a_seed_draws_the_same_folds_and_another_one_others(tmp_path, finished):
    X, labels, _ = rows_of("two classes")
    for data, seed in ((store_of(tmp_path / "s", "two classes"), 1), (X, 1), (X, 2)):
        given = () if data is not X else (labels,)
        tune(data, *given, folds=5, seed=seed, max_passes=1)
    first, same, other = (end.folds for end in finished)
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    for label in (-1.0, 1.0):
        rows = np.bincount(first[labels == label], minlength=5)
        assert rows.max() - rows.min() <= 1


@pytest.mark.parametrize("problem", ["three classes", "ordinal", "roc-area"])
def test_each_label_has_its_share_of_every_fold(problem, finished):
    X, labels, _ = rows_of(problem)
    tune(X, labels, **options_of(problem, {"folds": 7, "max_passes": 1}))
    for label in np.unique(labels):
        rows = np.bincount(finished[0].folds[labels == label], minlength=7)
        assert rows.max() - rows.min() <= 1


def test_queries_stay_together_where_rows_of_a_query_are_compared(tmp_path, finished):
    """Of "ranking", and of values where the metric asks for it."""
    X, labels, _ = rows_of("ranking")
    qid = np.arange(N_ROWS) // 8
    for options in ({"problem": "ranking"}, {"problem": "svr", "metric": "ndcg@5"}, {"problem": "ordinal"}):
        tune(X, labels, qid=qid, folds=4, max_passes=1, **options)
        of_query = finished[-1].folds.reshape(-1, 8)
        assert (of_query == of_query[:, :1]).all()
        assert np.ptp(np.bincount(of_query[:, 0])) <= 1
    tune(X, labels, qid=qid, problem="svr", folds=4, max_passes=1)
    of_query = finished[-1].folds.reshape(-1, 8)
    assert not (of_query == of_query[:, :1]).all()


def compared(C, values, converged):
    """A value of C without a grid."""
    return Compared({"C": C}, values, converged)


class TestChoice:
    VALUES = (
        compared(0.1, [0.80, 0.84, 0.82], True),
        compared(1.0, [0.83, 0.87, 0.85], True),
        compared(0.01, [0.82, 0.86, 0.84], True),
        compared(10.0, [0.83, 0.87, 0.85], True),
    )

    def test_the_best_and_of_equal_ones_the_least(self):
        assert chosen(self.VALUES, "auc", "best").C == 1.0
        assert chosen(self.VALUES, "mse", "best").C == 0.1

    def test_the_least_within_a_standard_error(self):
        """The standard error is 0.0115 for all."""
        assert chosen(self.VALUES, "auc", "one-standard-error").C == 0.01
        assert chosen(self.VALUES[:2], "auc", "one-standard-error").C == 1.0
        assert chosen(self.VALUES, "error", "one-standard-error").C == 0.1

    def test_a_hint_where_the_best_is_the_first_or_the_last(self):
        low, high, worst = compared(0.1, [0.9], True), compared(1.0, [0.95], True), compared(0.5, [0.1], True)
        for values, best, said in (
            ((low, high), high, "the largest of them; try larger"),
            ((high, low), low, "the smallest of them; try smaller"),
        ):
            [hint] = edge_hints(values, best)
            assert (hint["code"], said in hint["message"]) == ("edge-of-values", True)
        assert (
            edge_hints(
                (low, high._replace(settings={"C": 0.5}), worst._replace(settings={"C": 1.0})),
                high._replace(settings={"C": 0.5}),
            )
            == []
        )
        assert edge_hints((low, high._replace(values=[0.9])), low) == []
        assert edge_hints((low,), low) == []

    def test_no_hint_beyond_the_last_value_that_there_is(self):
        low, high = compared(1.0, [0.9], True), compared(1.0, [0.95], True)
        values = [each._replace(settings={"p": p}) for each, p in ((low, 1.5), (high, 2.0))]
        assert edge_hints(values, values[1]) == []

    def test_the_chosen_c_predicts(self, tmp_path):
        X, _, _ = rows_of("two classes")
        store = store_of(tmp_path / "s", "two classes")
        model = tune(store, C=[1e-7, 0.3, 1e-6], bias="none", folds=3)
        found = model.report["tuning"]
        assert found["C"] == 0.3 == model.C[model.selected]
        assert found["metric"] == "accuracy"
        assert model.C == (1e-7, 0.3, 1e-6)
        save_model(model, tmp_path / "m")
        loaded = load_model(tmp_path / "m")
        assert loaded.report["tuning"] == found
        assert np.array_equal(predict(loaded, X), predict(model, X, C=0.3))
        assert not np.array_equal(predict(loaded, X), predict(model, X, C=1e-7))

    def test_of_several_classes_all_models_of_the_chosen_c_predict(self, tmp_path):
        model = tune(store_of(tmp_path / "s", "three classes"), C=[1.0, 1e-6], bias="free", folds=3)
        assert model.report["tuning"]["C"] == 1.0
        assert model.active == (0, 1, 2)
        assert len(model.report["tuning"]["models"]) == 2 * 3 * 3


@pytest.mark.fault
@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("two classes", {"solver": "streamed-smo", "bias": "free"}),
        ("two classes", {"solver": "cutting-plane", "bias": "penalized", "scale": "std"}),
        ("three classes", {"solver": "ocas", "bias": "none"}),
        ("ranking", {"problem": "ranking"}),
    ],
)
def test_what_was_killed_goes_on_with_the_same_bits(problem, options, tmp_path, fork_server):
    store = store_of(tmp_path / "s", problem)
    options = {"C": COSTS, "folds": 3, "max_passes": 4, "tol": 1e-9, **options}
    whole = tune(store, **options)
    runs = []
    for number in (1, 3):
        wanted = options | {"checkpoint": str(tmp_path / str(number))}
        runs.append({"data": str(store), "options": wanted, "kill_pass": number, "tune": True})
        runs.append({"data": str(store), "options": wanted | {"resume": True}, "tune": True})
    ends = run_all(fork_server, runs, tmp_path)
    for end in ends[1::2]:
        assert end.answer["bits"] == bits(whole).hex()
        assert end.answer["report"]["tuning"] == whole.report["tuning"]
        assert end.answer["report"]["passes"] == whole.report["passes"]


def test_a_checkpoint_is_of_its_folds(tmp_path):
    """Another metric and another rule compare the same models."""
    store = store_of(tmp_path / "s", "two classes")
    options = {"C": COSTS, "bias": "none", "checkpoint": tmp_path / "c", "resume": True}
    first = tune(store, folds=3, metric="auc", **options)
    again = tune(store, folds=3, metric="f1", rule="one-standard-error", **options)
    assert again.report["passes"] == first.report["passes"]
    assert again.report["tuning"]["metric"] == "f1"
    assert bits(again) == bits(first)
    for call in (
        lambda: tune(store, folds=4, **options),
        lambda: tune(store, folds=3, seed=9, **options),
        lambda: train(store, **options),
    ):
        with pytest.raises(DamageError, match="with other options"):
            call()


def test_a_signal_leaves_a_checkpoint_and_no_model(tmp_path):
    def stop(event):
        if event.kind == "pass" and event.passes == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    store = store_of(tmp_path / "s", "two classes")
    options = {
        "C": COSTS,
        "bias": "none",
        "folds": 3,
        "tol": 1e-9,
        "max_passes": 4,
        "checkpoint": tmp_path / "c",
    }
    with handle_signals(), pytest.raises(Interrupted, match=r"resume=True from .*c$") as stopped:
        tune(store, progress=stop, **options)
    assert stopped.value.model is None
    resumed = tune(store, resume=True, **options)
    options.pop("checkpoint")
    assert resumed.report["tuning"] == tune(store, **options).report["tuning"]


class TestOtherStore:
    def test_the_measures_are_those_of_evaluate(self, tmp_path):
        rows = np.arange(N_ROWS) % 3 == 0
        store = store_of(tmp_path / "s", "three classes", ~rows)
        other = store_of(tmp_path / "other", "three classes", rows)
        options = {"C": COSTS, "bias": "free"}
        model = tune(store, validation=other, metric="macro-f1", **options)
        found = model.report["tuning"]
        for each in found["values"]:
            expected = evaluate(model, other, "macro-f1", C=each["C"])["macro-f1"]
            assert each["values"] == [each["mean"]] == [expected]
            assert each["standard_error"] is None
        assert (found["folds"], found["store"], found["models"]) == (None, str(other), [])
        assert found["C"] == max(found["values"], key=lambda each: each["mean"])["C"]
        assert bits(model) == bits(train(store, **options))

    def test_columns_that_were_never_seen_are_counted(self, tmp_path):
        X, labels, _ = rows_of("two classes")
        more = sparse.hstack([X, np.ones((N_ROWS, 2))], format="csr")
        lines = [
            f"{label:g} "
            + " ".join(f"{j + 1}:{value!r}" for j, value in zip(row.indices, row.data.tolist(), strict=True))
            for label, row in zip(labels, more, strict=True)
        ]
        (tmp_path / "other.svm").write_text("\n".join(lines) + "\n")
        from ooc_svm import convert

        convert(tmp_path / "other.svm", tmp_path / "other", dtype="float64")
        notes = []
        model = tune(
            store_of(tmp_path / "s", "two classes"),
            validation=tmp_path / "other",
            bias="none",
            progress=lambda event: notes.append(event.message),
        )
        assert model.report["tuning"]["ignored_values"] == 2 * N_ROWS
        assert f"{2 * N_ROWS} values of {tmp_path / 'other'} are of features that the data lack" in " ".join(
            notes
        )

    def test_what_is_wrong_with_it_is_found_before_the_first_pass(self, tmp_path):
        X, labels, _ = rows_of("two classes")
        store, events = store_of(tmp_path / "s", "two classes"), []
        make_store(tmp_path / "foreign", X, np.where(labels > 0, 7.0, -1.0))
        make_store(tmp_path / "one", X, np.ones(N_ROWS))
        for other, metric, message in (
            ("none", None, "none"),
            ("foreign", None, r"labels that the model was not trained on: '7' \("),
            ("one", "auc", "no row is negative"),
        ):
            with pytest.raises(InputError, match=message):
                tune(store, validation=tmp_path / other, metric=metric, progress=events.append)
        assert not [event for event in events if event.kind != "note"]


class TestRefused:
    """Before the first pass, by a sentence."""

    @staticmethod
    def refused(error, *arguments, **options):
        events = []
        with pytest.raises(error) as found:
            tune(*arguments, progress=events.append, **options)
        assert not [event for event in events if event.kind not in ("note",)]
        return str(found.value)

    def test_more_folds_than_rows_of_a_class(self):
        X, labels, _ = rows_of("three classes")
        labels[labels == 2] = 1
        labels[:4] = 2
        said = self.refused(InputError, X, labels, folds=5)
        assert said == (
            "folds=5 needs as many rows of the class 2, one for each fold, and there are 4; "
            "give fewer folds, or leave the class out"
        )
        names = np.array(["", "rare", "dog", "cat"])[labels.astype(int)]
        names[names == "dog"] = "cat"
        names[5] = "rare"
        names[(names == "rare") & (np.arange(N_ROWS) != 5)] = "cow"
        assert "of the class rare" in self.refused(InputError, X, names, folds=5)

    def test_more_folds_than_rows_of_a_rank(self):
        X, *_ = rows_of("roc-area")
        few = np.where(np.arange(N_ROWS) < 3, 1.0, 0.0)
        said = self.refused(InputError, X, few, problem="roc-area")
        assert "rows of the class 1, one for each fold, and there are 3;" in said

    def test_more_folds_than_queries(self):
        X, labels, _ = rows_of("ranking")
        qid = np.arange(N_ROWS) // 100
        said = self.refused(InputError, X, labels, qid=qid, problem="ranking")
        assert said.startswith("folds=5 needs as many queries, one for each fold, and there are 4;")

    def test_folds_without_pairs(self):
        """Only the first query has rows of different labels."""
        X, _, qid = rows_of("ranking")
        labels = (np.arange(N_ROWS) == 0) + 0.0
        assert "without fold" in self.refused(InputError, X, labels, qid=qid, problem="ranking", folds=3)

    def test_a_fold_that_the_metric_has_no_value_for(self):
        """Rows of different labels are in the first two queries."""
        X, _, qid = rows_of("ranking")
        labels = np.isin(np.arange(N_ROWS), [0, 8]) + 0.0
        said = [
            self.refused(InputError, X, labels, qid=qid, problem="ranking", folds=4, metric="map", seed=seed)
            for seed in range(6)
        ]
        assert any("of 4: map is for relevant rows" in each for each in said)

    @pytest.mark.parametrize(
        ("problem", "metric", "message"),
        [
            ("two classes", "mse", "mse is no metric for two classes; .* choose from accuracy, error"),
            ("three classes", "f1", "macro-f1 is its mean over the classes"),
            ("svr", "auc", "auc is no metric for values; .* choose from mse"),
            ("ranking", "accuracy", "accuracy is no metric for rankings"),
            ("two classes", "nonsense", "there is no metric 'nonsense'"),
            ("ranking", "ndcg", "there is no metric 'ndcg'"),
        ],
    )
    def test_a_metric_that_does_not_fit(self, problem, metric, message):
        X, labels, qid = rows_of(problem)
        options = {} if problem.endswith("classes") else {"problem": problem}
        with pytest.raises(UsageError, match=message):
            tune(X, labels, qid=qid, metric=metric, **options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"C": [1, 1.0]}, "^C holds the same value twice"),
            ({"validation": 0.2}, "^validation names a store here, not a share"),
            ({"validation": "x.zarr", "folds": 3}, "^folds and validation are two ways"),
            ({"validation": "x.zarr", "rule": "one-standard-error"}, "needs the standard error over folds"),
            ({"folds": 1}, "^folds must be an integer from 2 to 100, not 1$"),
            ({"folds": 101}, "^folds must be an integer from 2 to 100, not 101$"),
            ({"rule": "worst"}, "^rule must be 'best' or 'one-standard-error', not 'worst'"),
        ],
    )
    def test_options(self, options, message):
        X, labels, _ = rows_of("two classes")
        with pytest.raises(UsageError, match=message):
            tune(X, labels, **options)

    def test_metrics_of_queries_on_folds_of_classes(self):
        X, labels, _ = rows_of("two classes")
        with pytest.raises(UsageError, match="compares rows of a query, and folds of problem 'svc'"):
            tune(X, labels, qid=np.arange(N_ROWS) // 8, metric="ndcg@10")

    def test_text_and_saved_states(self, tmp_path):
        (tmp_path / "a.svm").write_text("1 1:1\n-1 1:2\n")
        with pytest.raises(UsageError, match=r"a\.svm is text"):
            tune(tmp_path / "a.svm")
        store = store_of(tmp_path / "s", "two classes")
        train(store, bias="none", checkpoint=tmp_path / "c")
        with pytest.raises(UsageError, match=r"^.*c is a folder of checkpoints"):
            tune(store, bias="none", warm_start=tmp_path / "c")


def test_a_model_is_where_all_begin(tmp_path):
    store = store_of(tmp_path / "s", "two classes")
    save_model(train(store, bias="none", tol=1e-6), tmp_path / "m")
    warm = tune(store, bias="none", folds=3, C=COSTS, warm_start=tmp_path / "m")
    cold = tune(store, bias="none", folds=3, C=COSTS)
    for own, other in zip(warm.report["tuning"]["models"], cold.report["tuning"]["models"], strict=True):
        assert own["dual"] <= other["primal"] * (1 + 1e-9)
        assert other["dual"] <= own["primal"] * (1 + 1e-9)


@pytest.mark.parametrize("problem", ["two classes", "ranking"])
def test_a_plan_counts_all_models(problem, tmp_path):
    store = store_of(tmp_path / "s", problem)
    wanted = {"bias": "none", "C": COSTS, "problem": problem if problem == "ranking" else "svc"}
    plain, folded = plan(store, **wanted), plan(store, folds=5, **wanted)
    assert (plain.n_models, folded.n_models) == (2, 12)
    weights = [next(item for item in each.items if item.name == "weights") for each in (plain, folded)]
    assert weights[1].nbytes == 6 * weights[0].nbytes
    assert "12 model(s)" in "\n".join(folded.lines())
    with pytest.raises(MemoryBudgetError) as refused:
        tune(store, folds=5, memory="100MB", **wanted)
    with pytest.raises(MemoryBudgetError) as less:
        train(store, memory="100MB", **wanted)
    assert refused.value.needed > less.value.needed
