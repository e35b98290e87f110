"""The quality on the rows of training: that of `evaluate`, from scores that are there, on any engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.train_data import make_store, store_rows
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.evaluation.evaluate import evaluate, evaluation_report
from ooc_svm.model.file import save_model
from ooc_svm.training.train import train

N_ROWS = 300


@pytest.fixture(scope="module")
def rows():
    return store_rows(N_ROWS)


@pytest.fixture(scope="module")
def classes(rows):
    """Four classes of uneven size, told apart with errors."""
    rng = np.random.default_rng(5)
    scores = rows[0] @ rng.normal(size=(rows[0].shape[1], 4)) + rng.normal(size=(N_ROWS, 4)) + [2, 0, 0, 0]
    return scores.argmax(axis=1).astype(np.float64)


@pytest.fixture(scope="module")
def values(rows):
    rng = np.random.default_rng(6)
    return rows[0] @ rng.normal(size=rows[0].shape[1]) + rng.normal(size=N_ROWS) + 3.0


def whole(model) -> dict[str, float]:
    """The measures of the last C."""
    found = dict(model.report["quality"][-1])
    del found["C"]
    return found


TWO = ("accuracy", "balanced-accuracy")
PAIRS = ("auc", "swapped-pairs")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, TWO),
        ({"bias": "free", "resident": 0.1}, TWO),
        ({"solver": "ocas", "bias": "penalized"}, TWO),
        ({"scale": "std"}, TWO),
        ({"problem": "roc-area"}, PAIRS),
        ({"problem": "roc-area", "solver": "cutting-plane", "C": [0.01, 0.5]}, PAIRS),
    ],
)
def test_of_two_classes_it_is_what_evaluate_finds(rows, options, names):
    costs = options.get("C", [0.01, 1.0])
    model = train(*rows, **({"C": costs} | options))
    assert [each["C"] for each in model.report["quality"]] == costs
    assert tuple(whole(model)) == names
    for C, own, found in zip(costs, model.report["models"], model.report["quality"], strict=True):
        expected = evaluate(model, rows[0], names, labels=rows[1], C=C)
        assert {name: found[name] for name in names} == pytest.approx(expected, rel=1e-12)
        assert own["quality"] == {name: found[name] for name in names}
    assert model.report["models"][0]["rows"] == (np.sum(rows[1] > 0) if names == TWO else None)


@pytest.mark.parametrize("solver", ["streamed-smo", "ocas"])
def test_of_several_classes_it_is_told_class_by_class(rows, classes, solver):
    model = train(rows[0], classes, solver=solver, bias="penalized")
    names = ["accuracy", "balanced-accuracy", "macro-f1"]
    expected = evaluation_report(model, rows[0], names, labels=classes)
    assert 0.3 < expected.metrics["accuracy"] < 0.99
    assert whole(model) == pytest.approx(expected.metrics, rel=1e-12)
    for own, each in zip(model.report["models"], expected.classes, strict=True):
        assert own["rows"] == each.support == np.sum(classes == float(each.label))
        shares = {"precision": each.precision, "recall": each.recall, "f1": each.f1}
        assert own["quality"] == pytest.approx(shares, rel=1e-12)


@pytest.mark.parametrize("bias", ["none", "free"])
def test_of_values(rows, values, bias):
    model = train(rows[0], values, problem="svr", bias=bias, sample_weight=np.linspace(0.5, 2, N_ROWS))
    expected = evaluate(model, rows[0], ["r2", "mae"], labels=values)
    assert whole(model) == pytest.approx(expected, rel=1e-9)
    assert model.report["models"][0]["rows"] is None


@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2.0, N_ROWS)])
@pytest.mark.parametrize("problem", ["ordinal", "ranking"])
def test_of_an_order(rows, classes, problem, weights):
    """Equal scores count half: some rows have no features."""
    matrix = rows[0].copy()
    matrix.data[: matrix.indptr[40]] = 0.0
    qid = np.repeat(np.arange(30), 10) if problem == "ranking" else None
    given = {} if qid is None else {"qid": qid}
    if qid is not None and weights is not None:
        weights = np.repeat(weights[::10], 10)
    model = train(matrix, classes, problem=problem, sample_weight=weights, C=10.0, **given)
    expected = evaluate(model, matrix, "swapped-pairs", labels=classes, **given)
    assert whole(model) == pytest.approx(expected, rel=1e-12)


def test_it_takes_no_read_and_has_the_same_bits_on_every_engine(rows, classes, values, tmp_path):
    for name, labels, options in (
        ("c", classes, {"bias": "free", "resident": 0.2}),
        ("v", values, {"problem": "svr", "bias": "free"}),
        ("r", rows[1], {"problem": "roc-area"}),
    ):
        store = make_store(tmp_path / f"{name}.zarr", rows[0], labels)
        found: list[Any] = []
        for engine in ({"threads": 1}, {"threads": 3}, {"engine": "dask", "threads": 2}):
            report = train(store, **options, **engine).report
            assert report["passes"] == report["history"][-1]["pass"]
            found.append((report["quality"], [model["quality"] for model in report["models"]]))
        assert found[0][0] != []
        assert found[0] == found[1] == found[2]


def test_where_no_scores_are_kept_nothing_is_said(rows):
    report = train(*rows, solver="cutting-plane").report
    assert report["quality"] == []
    assert report["models"][0]["quality"] is None


def test_a_resumed_run_ends_with_it_too(rows, tmp_path):
    store = make_store(tmp_path / "s.zarr", *rows)
    expected = train(store, tol=1e-5).report["quality"]
    train(store, tol=1e-5, checkpoint=tmp_path / "c", max_passes=2)
    for _ in range(2):  # the second time there is nothing left to do
        report = train(store, tol=1e-5, checkpoint=tmp_path / "c", resume=True).report
        assert report["quality"] == expected


def test_the_command_prints_it(rows, classes, tmp_path):
    store, path = make_store(tmp_path / "s.zarr", rows[0], classes), tmp_path / "m"
    found = CliRunner().invoke(app, ["train", str(store), "-o", str(path), "--quiet"])
    assert found.exit_code == 0
    facts, table = found.stdout.split("\n\n")
    assert "training rows" in facts
    assert "accuracy 0." in facts
    assert "macro-f1 0." in facts
    head, *lines = [line.split() for line in table.splitlines()]
    assert head[-4:] == ["rows", "precision", "recall", "f1"]
    assert [int(line[-4]) for line in lines] == np.unique(classes, return_counts=True)[1].tolist()
    report = train(store).report
    assert [float(line[-1]) for line in lines] == pytest.approx(
        [model["quality"]["f1"] for model in report["models"]], abs=1e-4
    )


def test_models_of_before_are_listed_without_it(rows, tmp_path):
    model = train(*rows, C=[0.1, 1.0])
    for row in model.report["models"]:
        del row["quality"], row["rows"]
    del model.report["quality"], model.report["hints"], model.report["unlabelled_rows"]
    save_model(model, tmp_path / "m")
    assert CliRunner().invoke(app, ["info", str(tmp_path / "m")]).exit_code == 0
