"""Training, prediction and evaluation where some rows have no label."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from helpers.train_data import bits, make_anndata, store_rows
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.errors import InputError
from ooc_svm.evaluation.evaluate import evaluate, evaluation_report
from ooc_svm.prediction.predict import predict
from ooc_svm.training.train import train

N_ROWS = 300
MISSING = np.r_[0, 7, 100:140, 299]
KEPT = np.setdiff1d(np.arange(N_ROWS), MISSING)
pytestmark = pytest.mark.filterwarnings("ignore")  # of AnnData and Zarr about each other's versions


@pytest.fixture
def rows():
    return store_rows(N_ROWS)


@pytest.fixture
def stores(rows, tmp_path):
    """Some rows without a label, and the others alone; neither has the default column."""
    matrix, labels = rows
    holed = labels.astype(np.float64).copy()
    holed[MISSING] = np.nan
    kinds = np.where(labels > 0, "T", "B").astype(object)
    kinds[MISSING] = None
    whole = make_anndata(tmp_path / "whole.zarr", matrix, age=holed, kind=pd.Categorical(kinds))
    columns = {"age": holed[KEPT], "kind": pd.Categorical(kinds[KEPT])}
    rest = make_anndata(tmp_path / "rest.zarr", matrix[KEPT], **columns)
    return whole, rest


@pytest.mark.parametrize("options", [{"label": "kind"}, {"label": "age", "problem": "svr", "scale": "std"}])
def test_training_without_them_is_training_on_the_others(stores, options):
    whole, rest = stores
    message = r"43 of 300 rows .* have no label in obs/.*, the first is row 0; .*unlabelled='skip'"
    with pytest.raises(InputError, match=message):
        train(whole, **options)
    notes = []
    model = train(whole, unlabelled="skip", progress=lambda event: notes.append(event.message), **options)
    assert bits(model) == bits(train(rest, **options))
    assert (model.report["n_rows"], model.report["unlabelled_rows"]) == (len(KEPT), len(MISSING))
    assert any("43 rows without a label are left out" in note for note in notes)


def test_rows_of_a_matrix_without_a_label_are_left_out(rows):
    matrix, labels = rows
    holed, weights = labels.astype(np.float64).copy(), np.linspace(1, 2, N_ROWS)
    holed[MISSING] = np.nan
    with pytest.raises(InputError, match=r"43 of 300 labels are missing .* row 0, .*unlabelled='skip'"):
        train(matrix, holed)
    model = train(matrix, holed, sample_weight=weights, unlabelled="skip")
    assert bits(model) == bits(train(matrix[KEPT], holed[KEPT], sample_weight=weights[KEPT]))
    found = evaluation_report(model, matrix, labels=holed, unlabelled="skip")
    assert found.metrics == evaluate(model, matrix[KEPT], labels=holed[KEPT])
    assert found.n_unlabelled == len(MISSING)


def test_prediction_needs_no_labels(stores, rows, tmp_path):
    model = train(stores[1], label="kind")
    query = make_anndata(tmp_path / "query.zarr", rows[0], batch=np.arange(N_ROWS))
    expected = predict(model, rows[0])
    for options in ({}, {"label": "batch"}):
        np.testing.assert_array_equal(predict(model, query, **options), expected)
    np.testing.assert_array_equal(predict(model, stores[0], label="kind"), expected)


def test_evaluation_leaves_them_out_and_classes_that_the_model_does_not_know(stores, rows, tmp_path):
    model = train(stores[1], label="kind")
    expected = evaluate(model, stores[1], label="kind")
    with pytest.raises(InputError, match=r"43 of 300 rows .*unlabelled='skip'"):
        evaluate(model, stores[0], label="kind")
    assert evaluate(model, stores[0], label="kind", unlabelled="skip") == expected
    kinds = np.where(rows[1] > 0, "T", "B").astype(object)
    kinds[MISSING] = "NK"
    kinds[5] = None
    other = make_anndata(tmp_path / "other.zarr", rows[0], kind=pd.Categorical(kinds))
    found = evaluation_report(model, other, label="kind", unlabelled="skip")
    assert (found.n_unlabelled, found.n_unknown) == (1, len(MISSING))
    left = np.setdiff1d(KEPT, [5])
    text = predict(model, rows[0][left])
    assert found.metrics["accuracy"] == np.mean(text == kinds[left])


def test_the_commands_say_so(stores, rows, tmp_path):
    def run(*words, code=0):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.stderr
        return result.stdout, result.stderr

    whole, model = stores[0], tmp_path / "m"
    _, err = run("train", whole, "--label", "kind", "-o", model, code=3)
    assert "43 of 300 rows" in err
    assert "--unlabelled skip" in err
    out, err = run("train", whole, "--label", "kind", "-o", model, "--unlabelled", "skip")
    assert "43 rows without a label are left out" in err
    assert "257 (43 without a label were left out)" in out
    assert "--unlabelled skip" in run("evaluate", model, whole, "--label", "kind", code=3)[1]
    out, _ = run("evaluate", model, whole, "--label", "kind", "--unlabelled", "skip")
    assert "43 rows without a label" in out
    words = ("evaluate", model, whole, "--label", "kind", "--unlabelled", "skip", "--json", "-")
    assert json.loads(run(*words)[0])["left_out"] == {"unlabelled": 43, "unknown": 0}
    query = make_anndata(tmp_path / "query.zarr", rows[0], batch=np.arange(N_ROWS))
    assert len(run("predict", model, query)[0].splitlines()) == N_ROWS
    assert "whole" in run("verify", query, "--quiet")[0]
    assert "labels" in run("info", query)[0]
    assert "43" in run("info", whole, "--label", "kind")[0]


def test_a_cluster_leaves_them_out_too(stores):
    model = train(stores[0], label="kind", unlabelled="skip", engine="dask", threads=2)
    assert bits(model) == bits(train(stores[1], label="kind"))
