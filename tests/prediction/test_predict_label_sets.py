"""Predicted sets of labels: lines, tables, arrays, single rows; model files and other programs."""

from __future__ import annotations

import csv
import io
import json
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.label_data import LABELS, make_labels
from scipy import sparse

import ooc_svm
from ooc_svm.errors import DamageError, UsageError
from ooc_svm.model import file as model_file
from ooc_svm.model.file import load_model, model_info


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of two values of C, and its rows."""
    folder = tmp_path_factory.mktemp("labels")
    made = make_labels(120)
    return ooc_svm.train(made.write(folder / "a.svm"), labels="sets", C=[0.05, 0.5]), made, folder / "a.svm"


def sets_of(model, X, **options):
    scores = X @ model.coef_.T + model.intercept_
    return [[LABELS[k] for k in np.flatnonzero(own)] for own in scores > 0]


def test_lines(trained):
    model, made, text = trained
    wanted = sets_of(model, made.X)
    assert [] in wanted
    assert any(len(own) > 1 for own in wanted)
    lines = io.BytesIO()
    ooc_svm.predict(model, text, output=lines)
    assert lines.getvalue().decode() == "".join(",".join(own) + "\n" for own in wanted)
    lines = io.BytesIO()
    ooc_svm.predict(model, text, output=lines, scores=True)
    head, *rest = lines.getvalue().decode().splitlines()
    assert head.split("\t") == ["labels", *(f"score of {label}" for label in LABELS)]
    scores = model.decision_function(made.X)
    for line, own, numbers in zip(rest, wanted, scores.tolist(), strict=True):
        assert line.split("\t") == [",".join(own), *line.split("\t")[1:]]
        assert [float(field) for field in line.split("\t")[1:]] == numbers


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("scores", [False, True])
def test_tables(trained, tmp_path, ending, scores):
    model, made, text = trained
    ooc_svm.predict(model, text, output=tmp_path / f"a.{ending}", scores=scores)
    with open(tmp_path / f"a.{ending}", newline="") as file:
        head, *rows = csv.reader(file, delimiter="," if ending == "csv" else "\t")
    assert head[0] == "labels"
    assert [row[0] for row in rows] == [",".join(own) for own in sets_of(model, made.X)]
    assert {len(row) for row in rows} == {1 + scores * len(LABELS)}


def test_parquet(trained, tmp_path):
    model, made, text = trained
    ooc_svm.predict(model, text, output=tmp_path / "a.parquet", scores=True)
    table = pq.read_table(tmp_path / "a.parquet").to_pydict()
    assert table["labels"] == sets_of(model, made.X)
    assert table["score of cat"] == model.decision_function(made.X)[:, 3].tolist()


def test_arrays_and_single_rows(trained):
    model, made, text = trained
    found = ooc_svm.predict(model, text)
    assert (found.dtype, found.shape) == (np.int8, (120, len(LABELS)))
    assert model.classes_.tolist() == LABELS
    wanted = sets_of(model, made.X)
    for k in range(10):
        row = {j: value for j, value in enumerate(made.X[k].tolist()) if value}
        assert model.predict_one(row) == wanted[k]
        assert model.score_one(row) == pytest.approx(
            dict(zip(LABELS, model.decision_function(made.X)[k], strict=True))
        )
    one = ooc_svm.train(text, labels="sets", positive="cat", C=0.5)
    assert [one.predict_one(made.X[k]) == ["cat"] for k in range(10)] == ["cat" in own for own in wanted[:10]]
    assert list(one.score_one(made.X[0])) == ["cat"]
    assert ooc_svm.predict(one, text)[:, 0].tolist() == found[:, 3].tolist()
    assert ooc_svm.predict(model, text, C=0.05).sum() != found.sum()
    assert ooc_svm.predict(model, np.empty((0, 12))).shape == (0, len(LABELS))


def test_a_model_file(trained, tmp_path, monkeypatch):
    model, made, _ = trained
    model_file.save_model(model, tmp_path / "a.model")
    again = load_model(tmp_path / "a.model")
    assert again.multilabel
    assert again.classes_.tolist() == LABELS
    assert np.array_equal(again.predict(made.X), model.predict(made.X))
    facts = model_info(again)
    assert (facts["multilabel"], facts["format_version"]) == (True, 2)
    json.dumps(facts)
    classes = ooc_svm.train(np.eye(3), [1, 2, 3])
    model_file.save_model(classes, tmp_path / "b.model")
    assert model_info(classes)["format_version"] == 1
    monkeypatch.setattr(model_file, "MODEL_FILE", model_file._PLAIN_FILE)
    assert not load_model(tmp_path / "b.model").multilabel
    with pytest.raises(DamageError, match="format version 2, this release reads up to 1"):
        load_model(tmp_path / "a.model")


@pytest.mark.parametrize(
    "change", [{"label_names": None}, {"negative": -1.0}, {"positive": [9.0] * 10}, {"problem": "svr"}]
)
def test_parts_that_do_not_fit(trained, change):
    from dataclasses import replace

    with pytest.raises(UsageError, match=r"sets of labels|which svr does not have"):
        replace(trained[0], **change)


def test_other_programs(trained, tmp_path):
    model, _, text = trained
    with pytest.raises(UsageError, match="LIBLINEAR predicts one label a row, and this model sets of labels"):
        ooc_svm.export_model(model, tmp_path / "a", "liblinear")
    with pytest.raises(
        UsageError, match=r"SVMlight's format .* this model has \d; train with one label as pos"
    ):
        ooc_svm.export_model(model, tmp_path / "a", "svmlight")
    one = ooc_svm.train(text, labels="sets", positive="cat")
    for each in (model, one):
        with pytest.raises(
            UsageError, match="LIBSVM predicts one label a row, and this model sets of labels"
        ):
            ooc_svm.export_model(each, tmp_path / "a", "libsvm")
    ooc_svm.export_model(one, tmp_path / "a", "svmlight")
    vector = (tmp_path / "a").read_text().splitlines()[-1]
    weights = dict(field.split(":") for field in vector.split()[1:-1])
    assert [float(weights.get(str(j + 1), 0)) for j in range(12)] == one.weights[0].tolist()


def test_top_features_name_the_label(trained):
    from ooc_svm.model.top_features import top_features

    assert [each["label"] for each in top_features(trained[0], 2)][-5:] == LABELS


def test_no_column_of_obs(trained, tmp_path):
    import anndata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(sparse.csr_matrix(trained[1].X)).write_zarr(tmp_path / "a.zarr")
    with pytest.raises(UsageError, match="one label a row, and the model predicts sets of labels"):
        ooc_svm.predict(trained[0], tmp_path / "a.zarr", to_obs="labels")
