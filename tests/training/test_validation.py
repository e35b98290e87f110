"""The quality on rows that are held out, or of another store: measured after each pass, and what follows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.train_data import make_anndata, make_store, problem_rows
from scipy import sparse

import ooc_svm.training.run
from ooc_svm import (
    InputError,
    Interrupted,
    UsageError,
    convert_matrix,
    evaluate,
    load_model,
    predict,
    save_model,
    train,
)
from ooc_svm.data.folds import HeldOut
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.errors import DamageError
from ooc_svm.options import TrainOptions

SHARE, SEED = 0.3, 5
N_ROWS = 600


def rows_of(problem: str) -> tuple[Any, Any, Any]:
    X, labels = problem_rows(problem, N_ROWS, 30, noise=0.5)
    return X, labels, np.arange(N_ROWS) // 10


def store_of(path: Path, problem: str, rows: Any = slice(None)) -> Path:
    """Rows as a store of several blocks."""
    X, labels, qid = rows_of(problem)
    own = qid[rows] if problem == "ranking" else None
    return make_store(path, X[rows], labels[rows], qids=own)


def held_out(problem: str) -> Any:
    X, labels, qid = rows_of(problem)
    by_query = problem == "ranking"
    source = MatrixSource(X, labels, None, qids=qid if by_query else None)
    return HeldOut(SHARE, SEED, by_query).mask(source, 0, N_ROWS)


CASES = [
    ("two classes", {"solver": "streamed-smo"}),
    ("two classes", {"solver": "streamed-smo", "loss": "squared-hinge", "bias": "free"}),
    ("two classes", {"solver": "ocas", "bias": "penalized"}),
    ("two classes", {"solver": "cutting-plane"}),
    ("three classes", {"solver": "streamed-smo", "class_weight": "balanced"}),
    ("three classes", {"solver": "cutting-plane", "tol": 0.02}),
    ("svr", {"bias": "free"}),
    ("ordinal", {"solver": "ocas"}),
    ("roc-area", {"solver": "ocas"}),
    ("roc-area", {"solver": "cutting-plane"}),
    ("ranking", {"solver": "ocas"}),
]
METRICS = {
    "two classes": ["accuracy"],
    "three classes": ["accuracy"],
    "svr": ["r2", "mse"],
    "ordinal": ["swapped-pairs"],
    "roc-area": ["swapped-pairs"],
    "ranking": ["swapped-pairs"],
}


def options_of(problem: str, options: dict[str, Any]) -> dict[str, Any]:
    names = {} if problem.endswith("classes") else {"problem": problem}
    return {"C": [0.1, 3.0], "seed": SEED, **names, **options}


@pytest.mark.parametrize(("problem", "options"), CASES)
def test_rows_held_out_are_as_if_they_were_not_there(problem, options, tmp_path):
    """And the quality is what `evaluate` finds on them."""
    X, labels, qid = rows_of(problem)
    mask, wanted = held_out(problem), options_of(problem, options)
    assert 0.15 < mask.mean() < 0.45
    model = train(store_of(tmp_path / "s", problem), validation=SHARE, **wanted)
    others = {"qid": qid[~mask]} if problem == "ranking" else {}
    alone = train(X[~mask], labels[~mask], **others, **wanted)
    assert model.report["n_rows"] == alone.report["n_rows"] == np.count_nonzero(~mask)
    for own, other in zip(model.report["models"], alone.report["models"], strict=True):
        # Each is at most its gap above the same optimum, and D at most its gap below.
        assert own["dual"] <= other["primal"] * (1 + 1e-9)
        assert other["dual"] <= own["primal"] * (1 + 1e-9)
        assert own["n_support"] <= np.count_nonzero(~mask)
    given = {"qid": qid[mask]} if problem == "ranking" else {}
    measured = model.report["history"][-1]["validation"]
    assert [quality["C"] for quality in measured] == [0.1, 3.0]
    for quality in measured:
        found = evaluate(model, X[mask], METRICS[problem], labels=labels[mask], C=quality["C"], **given)
        assert {name: quality[name] for name in found} == pytest.approx(found, rel=1e-9)
    if problem.endswith("classes"):
        for quality in measured:
            predicted = np.asarray(predict(model, X[mask], C=quality["C"]))
            shares = [np.mean(predicted[labels[mask] == y] == y) for y in np.unique(labels)]
            assert quality["balanced-accuracy"] == pytest.approx(np.mean(shares))


@pytest.mark.parametrize(("problem", "options"), CASES)
def test_the_quality_on_the_rows_of_training_leaves_those_held_out_out(problem, options, tmp_path):
    X, labels, qid = rows_of(problem)
    mask, wanted = held_out(problem), options_of(problem, options)
    model = train(store_of(tmp_path / "s", problem), validation=SHARE, **wanted)
    given = {"qid": qid[~mask]} if problem == "ranking" else {}
    assert [quality["C"] for quality in model.report["quality"]] == [0.1, 3.0]
    for quality in model.report["quality"]:
        measures = {name: value for name, value in quality.items() if name != "C"}
        found = evaluate(model, X[~mask], list(measures), labels=labels[~mask], C=quality["C"], **given)
        assert measures == pytest.approx(found, rel=1e-9)
    if problem == "three classes":
        rows = np.unique(labels[~mask], return_counts=True)[1].tolist()
        assert [own["rows"] for own in model.report["models"]] == 2 * rows


def test_of_a_query_held_out_no_pair_is_in_the_quality(tmp_path):
    """Long queries are counted on another way than short ones."""
    X, labels, _ = rows_of("ranking")
    X, labels = sparse.vstack([X] * 200, format="csr"), np.tile(labels, 200)
    qid = np.arange(len(labels)) // (len(labels) // 3)
    source = MatrixSource(X, labels, None, qids=qid)
    seed = next(
        seed for seed in range(9) if HeldOut(SHARE, seed, True).mask(source, 0, len(labels)).mean() == 1 / 3
    )
    mask = HeldOut(SHARE, seed, True).mask(source, 0, len(labels))
    model = train(X, labels, qid=qid, problem="ranking", validation=SHARE, seed=seed, tol=0.1)
    for rows, found in ((~mask, model.report["quality"][0]), (mask, model.report["validation"])):
        expected = evaluate(model, X[rows], "swapped-pairs", labels=labels[rows], qid=qid[rows])
        assert found["swapped-pairs"] == pytest.approx(expected["swapped-pairs"], rel=1e-9)


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("solver", ["streamed-smo", "ocas", "cutting-plane"])
def test_nothing_is_read_for_it(solver, tmp_path):
    store = store_of(tmp_path / "s", "two classes")
    options = {"solver": solver, "max_passes": 3, "tol": 1e-9}
    plain, measured = train(store, **options), train(store, validation=SHARE, **options)
    assert measured.report["passes"] == plain.report["passes"] == 3
    assert measured.report["bytes_read"] == plain.report["bytes_read"]
    assert all("validation" in row for row in measured.report["history"])
    assert not any("validation" in row for row in plain.report["history"])
    assert "validation" not in plain.report


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("solver", ["streamed-smo", "cutting-plane"])
def test_each_pass_is_measured_at_its_best_point(solver, tmp_path):
    X, labels, _ = rows_of("two classes")
    mask, store = held_out("two classes"), store_of(tmp_path / "s", "two classes")
    options = {"solver": solver, "tol": 1e-9, "seed": SEED, "validation": SHARE}
    whole = train(store, max_passes=6, **options).report["history"]
    assert len(whole) > 2
    for passes in range(1, len(whole) + 1):
        model = train(store, max_passes=passes, **options)
        found = evaluate(model, X[mask], "accuracy", labels=labels[mask])["accuracy"]
        assert whole[passes - 1]["validation"][0]["accuracy"] == pytest.approx(found)


def test_rows_that_cost_nothing_are_not_resident(tmp_path, monkeypatch):
    runs = []
    make_model = ooc_svm.training.run.make_model

    def keep(run, **options):
        runs.append(run)
        return make_model(run, **options)

    monkeypatch.setattr(ooc_svm.training.run, "make_model", keep)
    train(store_of(tmp_path / "s", "two classes"), validation=SHARE, seed=SEED, max_passes=2, tol=1e-9)
    [solver] = runs[-1].solvers
    resident = solver.state.multipliers.working_set.ids
    assert len(resident) > 0
    assert not held_out("two classes")[resident].any()


def test_the_best_c_predicts(tmp_path):
    X, _, _ = rows_of("two classes")
    store = store_of(tmp_path / "s", "two classes")
    noisy = {"C": [1e-6, 0.3, 1e-7], "seed": SEED, "validation": SHARE}
    model = train(store, **noisy)
    measured = model.report["history"][-1]["validation"]
    best = max(measured, key=lambda each: (each["accuracy"], -each["C"]))
    assert best["C"] == 0.3
    chosen = {"n_rows": int(held_out("two classes").sum()), "C": 0.3, "accuracy": best["accuracy"]}
    assert model.report["validation"] == chosen
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.C[loaded.selected] == 0.3
    assert np.array_equal(predict(loaded, X), predict(loaded, X, C=0.3))
    assert not np.array_equal(predict(loaded, X), predict(loaded, X, C=1e-7))
    assert train(store, **noisy | {"validation": None}).selected == 2


def test_of_several_classes_all_models_of_the_best_c_predict(tmp_path):
    X, _, _ = rows_of("three classes")
    model = train(store_of(tmp_path / "s", "three classes"), C=[1.0, 1e-6], validation=SHARE)
    assert model.report["validation"]["C"] == 1.0
    assert model.active == (0, 1, 2)
    assert np.array_equal(predict(model, X), predict(model, X, C=1.0))


def test_fewer_swapped_pairs_are_better(tmp_path):
    model = train(store_of(tmp_path / "s", "roc-area"), problem="roc-area", C=[1e-7, 1.0], validation=SHARE)
    qualities = [quality["swapped-pairs"] for quality in model.report["history"][-1]["validation"]]
    assert model.report["validation"]["swapped-pairs"] == min(qualities)
    assert model.C[model.selected] == [1e-7, 1.0][int(np.argmin(qualities))]


class TestOtherStore:
    def test_quality_is_that_of_evaluate(self, tmp_path):
        mask = held_out("three classes")
        store = store_of(tmp_path / "s", "three classes", ~mask)
        other = store_of(tmp_path / "other", "three classes", mask)
        options = {"C": [0.01, 1.0], "memory": "900MB"}
        model = train(store, validation=other, **options)
        for quality in model.report["history"][-1]["validation"]:
            C = quality.pop("C")
            assert quality == evaluate(model, other, C=C)
        assert model.report["validation"]["store"] == str(other)
        plain = train(store, **options)
        assert np.array_equal(model.weights, plain.weights)
        assert model.report["n_rows"] == plain.report["n_rows"]

    def test_what_is_wrong_with_it_is_found_before_the_first_pass(self, tmp_path):
        store, events = store_of(tmp_path / "s", "two classes"), []
        X, labels, _ = rows_of("two classes")
        convert_matrix(X, labels + 5, tmp_path / "foreign")
        for other, message in (("none", "none"), ("foreign", "foreign")):
            with pytest.raises(InputError, match=message):
                train(store, validation=tmp_path / other, progress=events.append)
        assert not [event for event in events if event.kind != "note"]

    @pytest.mark.filterwarnings("ignore")  # of AnnData and Zarr about each other's versions
    def test_rows_without_a_label_are_left_out_of_it_too(self, tmp_path):
        X, labels, _ = rows_of("two classes")
        store = store_of(tmp_path / "s", "two classes")
        some = np.where(np.arange(N_ROWS) % 3 == 0, np.nan, labels)
        other = make_anndata(tmp_path / "other.zarr", X, label=some)
        with pytest.raises(InputError, match="other"):
            train(store, validation=other)
        model = train(store, validation=other, unlabelled="skip")
        known = np.isfinite(some)
        expected = evaluate(model, X[known], "accuracy", labels=labels[known])["accuracy"]
        assert model.report["validation"]["accuracy"] == expected
        report = train(other, validation=SHARE, seed=SEED, unlabelled="skip").report
        n_held_out = report["validation"]["n_rows"]
        assert n_held_out > 0
        assert (report["n_rows"] + n_held_out, report["unlabelled_rows"]) == (known.sum(), (~known).sum())

    def test_it_is_no_part_of_what_a_run_is(self, tmp_path):
        store, other = store_of(tmp_path / "s", "two classes"), store_of(tmp_path / "o", "two classes")
        options = {"solver": "ocas", "tol": 1e-9, "checkpoint": tmp_path / "c"}
        train(store, max_passes=2, **options)
        resumed = train(store, max_passes=4, resume=True, validation=other, **options)
        assert ["validation" in row for row in resumed.report["history"]] == [False, False, True, True]


@pytest.mark.parametrize("solver", ["streamed-smo", "cutting-plane"])
def test_a_resumed_run_measures_the_same(solver, tmp_path):
    store = store_of(tmp_path / "s", "two classes")
    options = {"solver": solver, "tol": 1e-9, "validation": SHARE, "seed": SEED}
    whole = train(store, max_passes=6, **options)
    train(store, max_passes=3, checkpoint=tmp_path / "c", **options)
    resumed = train(store, max_passes=6, checkpoint=tmp_path / "c", resume=True, **options)
    assert [row["validation"] for row in resumed.report["history"]] == [
        row["validation"] for row in whole.report["history"]
    ]
    assert np.array_equal(resumed.weights, whole.weights)
    for changed in ({"validation": 0.2}, {"seed": 6}, {"validation": None}):
        with pytest.raises(DamageError, match="with other options"):
            train(store, max_passes=6, checkpoint=tmp_path / "c", resume=True, **options | changed)


def test_a_warm_start_needs_the_same_rows(tmp_path):
    store = store_of(tmp_path / "s", "two classes")
    train(store, validation=SHARE, seed=SEED, checkpoint=tmp_path / "c")
    warm = train(store, validation=SHARE, seed=SEED, C=2.0, warm_start=tmp_path / "c")
    assert warm.report["converged"]
    with pytest.raises(DamageError, match="with other options"):
        train(store, validation=SHARE, seed=6, C=2.0, warm_start=tmp_path / "c")


@pytest.mark.parametrize(("problem", "options"), [CASES[4], CASES[8]])
def test_neither_threads_nor_engines_change_it(problem, options, tmp_path):
    store = store_of(tmp_path / "s", problem)
    wanted = options_of(problem, options) | {"validation": SHARE, "max_passes": 3}
    expected = train(store, threads=1, **wanted).report["history"]
    for run in ({"threads": 3}, {"threads": 2, "engine": "dask", "memory": "800MB"}):
        found = train(store, **run, **wanted).report["history"]
        assert [row["validation"] for row in found] == [row["validation"] for row in expected]


def test_the_rows_follow_from_numbers_and_seed():
    X, labels, _ = rows_of("two classes")
    source = MatrixSource(X, labels, None)
    whole = HeldOut(SHARE, SEED).mask(source, 0, N_ROWS)
    parts = [HeldOut(SHARE, SEED).mask(source, *part) for part in ((0, 7), (7, 500), (500, N_ROWS))]
    assert np.array_equal(np.concatenate(parts), whole)
    assert not np.array_equal(HeldOut(SHARE, SEED + 1).mask(source, 0, N_ROWS), whole)
    smaller = HeldOut(0.1, SEED).mask(source, 0, N_ROWS)
    assert whole[smaller].all()
    assert held_out("ranking").reshape(-1, 10).all(axis=1).sum() == held_out("ranking").sum() / 10


@pytest.mark.parametrize("value", [0, 1, 1.5, -0.1, np.nan, True, ""])
def test_what_is_no_share_and_no_store(value):
    with pytest.raises(
        UsageError, match=r"^validation must be a share of the rows between 0 and 1, or the path"
    ):
        TrainOptions(validation=value)


def test_shares_that_leave_nothing_are_refused():
    X, labels, _ = rows_of("two classes")
    with pytest.raises(InputError, match=r"^validation=1e-09 holds none of the 600 rows out; give another"):
        train(X, labels, validation=1e-9)
    rare = np.where(np.arange(N_ROWS) == np.flatnonzero(held_out("two classes"))[0], 7.0, labels)
    with pytest.raises(
        InputError, match=r"^validation=0\.3 holds all rows of the label 7 out; give a smaller"
    ):
        train(X, rare, validation=SHARE, seed=SEED)


def test_a_model_of_an_interrupted_run_has_its_quality(tmp_path):
    import os
    import signal

    from ooc_svm.system.signals import handle_signals

    def stop(event):
        if event.kind == "pass" and event.passes == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    store = store_of(tmp_path / "s", "two classes")
    with handle_signals(), pytest.raises(Interrupted) as stopped:
        train(store, validation=SHARE, C=[1.0, 1e-7], tol=1e-9, solver="cutting-plane", progress=stop)
    model = stopped.value.model
    best = max(model.report["history"][-1]["validation"], key=lambda each: (each["accuracy"], -each["C"]))
    assert model.report["validation"]["C"] == best["C"] == model.C[model.selected]


def test_it_is_shown_while_a_run_goes_on_and_at_its_end(tmp_path, capsys):
    from typer.testing import CliRunner

    from ooc_svm.cli.app import app

    store = store_of(tmp_path / "s", "two classes")
    typed = ["train", str(store), "-o", str(tmp_path / "m"), "--validation", "0.3", "--C", "1e-7,1"]
    done = CliRunner().invoke(app, [*typed, "--log", str(tmp_path / "l")])
    assert done.exit_code == 0, done.stderr
    history = load_model(tmp_path / "m").report["history"]
    shown = re.findall(r"^pass .*  accuracy (\S+) ", done.stderr, re.MULTILINE)
    best = [max(quality["accuracy"] for quality in row["validation"]) for row in history]
    assert shown == [f"{accuracy:.4g}" for accuracy in best]
    line = next(line for line in done.stdout.splitlines() if line.startswith("validation"))
    held = int(HeldOut(0.3, 0).mask(MatrixSource(*rows_of("two classes")[:2], None), 0, N_ROWS).sum())
    assert line.split(maxsplit=1)[1] == (
        f"accuracy {best[-1]:.4g} on {held} rows held out; C 1 is the best of 2, and what predict takes"
    )
    logged = [json.loads(row) for row in (tmp_path / "l").read_text().splitlines()]
    assert [row["validation"] for row in logged] == [row["validation"] for row in history]
