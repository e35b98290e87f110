"""Exported models predict in the other program what they predict here."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scored_data import linear_model, model_of, one_vs_rest

from ooc_svm.errors import InputError, StorageError, UsageError
from ooc_svm.model import export
from ooc_svm.model.export import export_model
from ooc_svm.model.file import save_model
from ooc_svm.model.model import Model


def make(n_models: int = 1, n_features: int = 30, bias: float = 0.3, **facts: Any) -> Model:
    random = np.random.default_rng(n_models)
    weights = random.normal(size=(n_models, n_features)) * 10.0 ** random.integers(
        -9, 9, (n_models, n_features)
    )
    weights[random.random(weights.shape) < 0.3] = 0
    given: dict[str, Any] = {
        "problem": "svc",
        "loss": "hinge",
        "solver": "ocas",
        "weights": weights,
        "bias": bias * np.arange(1, n_models + 1),
    }
    return model_of(**given | facts)


def binary(**facts: Any) -> Model:
    return make(**{"positive": [7], "negative": -3, "classes": (-3, 7), "C": (1,)} | facts)


def rows(n_rows: int, n_features: int) -> np.ndarray:
    random = np.random.default_rng(9)
    X = random.normal(size=(n_rows, n_features))
    X[random.random(X.shape) < 0.5] = 0
    return X


def liblinear_predict(path: Path, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels and decision values of LIBLINEAR's own predictor."""
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    loaded = liblinear.load_model(str(path))
    features = [{j + 1: float(x) for j, x in enumerate(row) if x} for row in X]
    labels, _, values = liblinear.predict([], features, loaded, "-q")
    return np.array(labels), np.array(values)


@pytest.mark.parametrize("bias", [0.0, 0.3, -2.5])
@pytest.mark.parametrize(
    ("loss", "solver_type"),
    [
        ("hinge", "L2R_L1LOSS_SVC_DUAL"),
        ("squared-hinge", "L2R_L2LOSS_SVC_DUAL"),
        ("lp", "L2R_L2LOSS_SVC_DUAL"),
    ],
)
def test_liblinear_reads_a_binary_model(tmp_path, bias, loss, solver_type):
    trained = binary(bias=bias, loss=loss)
    export_model(trained, tmp_path / "m", "liblinear")
    X = rows(50, 30)
    labels, values = liblinear_predict(tmp_path / "m", X)
    scores = X @ trained.weights[0] + trained.bias[0]
    np.testing.assert_allclose(values[:, 0], scores, rtol=1e-12)
    np.testing.assert_array_equal(labels, np.where(scores > 0, 7, -3))
    assert set(labels) == {7, -3}
    text = (tmp_path / "m").read_text().splitlines()
    assert text[:6] == [
        f"solver_type {solver_type}",
        "nr_class 2",
        "label 7 -3",
        "nr_feature 30",
        f"bias {1 if bias else -1}",
        "w",
    ]
    assert len(text) == 6 + 30 + (bias != 0)
    assert [float(line) for line in text[6:36]] == trained.weights[0].tolist()


@pytest.mark.parametrize("bias", [0.0, 0.3])
@pytest.mark.parametrize("n_models", [3, 5])
def test_liblinear_reads_one_vs_rest(tmp_path, bias, n_models):
    labels = [4.0, -1.0, 2.0, 9.0, 0.0][:n_models]
    trained = make(n_models, bias=bias, positive=labels, classes=tuple(sorted(labels)), C=(1,) * n_models)
    export_model(trained, tmp_path / "m", "liblinear")
    X = rows(60, 30)
    predicted, values = liblinear_predict(tmp_path / "m", X)
    scores = X @ trained.weights.T + trained.bias
    np.testing.assert_allclose(values, scores, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(predicted, np.array(labels)[scores.argmax(axis=1)])
    assert len(set(predicted)) > 1


@pytest.mark.parametrize("loss", ["epsilon-insensitive", "squared-epsilon-insensitive"])
def test_liblinear_reads_a_regressor(tmp_path, loss):
    trained = make(problem="svr", loss=loss, C=(0.5,))
    export_model(trained, tmp_path / "m", "liblinear")
    X = rows(20, 30)
    predicted, values = liblinear_predict(tmp_path / "m", X)
    scores = X @ trained.weights[0] + trained.bias[0]
    np.testing.assert_allclose(values[:, 0], scores, rtol=1e-12)
    np.testing.assert_allclose(predicted, scores, rtol=1e-12)
    assert ("L2LOSS_SVR" in (tmp_path / "m").read_text()) == loss.startswith("squared")


@pytest.mark.parametrize("to", ["liblinear", "svmlight"])
def test_the_selected_model_is_written(tmp_path, to):
    grid = make(3, positive=[1] * 3, negative=0, C=(1, 2, 3), selected=1)
    alone = binary(weights=grid.weights[1:2], bias=grid.bias[1:2], positive=[1], negative=0)
    export_model(grid, tmp_path / "grid", to)
    export_model(alone, tmp_path / "alone", to)
    assert (tmp_path / "grid").read_bytes() == (tmp_path / "alone").read_bytes()


@pytest.mark.parametrize("label", [0.5, 2.0**31, -1e300])
def test_liblinear_takes_integer_labels_only(tmp_path, label):
    with pytest.raises(InputError, match="not an integer"):
        export_model(binary(positive=[label]), tmp_path / "m", "liblinear")
    assert list(tmp_path.iterdir()) == []
    export_model(binary(positive=[label]), tmp_path / "m", "svmlight")


def svmlight_read(text: str) -> tuple[dict[str, str], float, dict[int, float]]:
    """An independent reader: the weights are the sum of the support vectors times their coefficients."""
    lines = text.splitlines()
    assert lines[0].startswith("SVM-light Version V6")
    header = {
        comment.strip(): value.strip() for value, comment in (line.split("#", 1) for line in lines[1:11])
    }
    weights: dict[int, float] = {}
    vectors = lines[11:]
    assert len(vectors) == int(header["number of support vectors plus 1"]) - 1
    for line in vectors:
        coefficient, *pairs = line.split("#")[0].split()
        for pair in pairs:
            index, value = pair.split(":")
            assert int(index) > max(weights, default=0)
            weights[int(index)] = float(coefficient) * float(value)
    return header, float(header["threshold b, each following line is a SV (starting with alpha*y)"]), weights


@pytest.mark.parametrize("bias", [0.0, 0.3, -1e-20])
@pytest.mark.parametrize("index_base", [0, 1])
def test_the_svmlight_text_holds_the_model(tmp_path, bias, index_base, monkeypatch):
    monkeypatch.setattr(export, "_SLICE_FEATURES", 7)
    trained = binary(bias=bias, report={"n_rows": 1234}, index_base=index_base)
    export_model(trained, tmp_path / "m", "svmlight")
    header, threshold, weights = svmlight_read((tmp_path / "m").read_text())
    assert header["kernel type"] == "0"
    assert header["kernel parameter -u"] == "empty"
    assert header["highest feature index"] == "30"
    assert header["number of training documents"] == "1234"
    assert threshold == -bias
    assert "-0 # threshold" not in (tmp_path / "m").read_text()
    assert weights == {j + 1: w for j, w in enumerate(trained.weights[0].tolist()) if w}


def test_the_svmlight_text_of_a_regressor(tmp_path):
    trained = make(problem="svr", loss="epsilon-insensitive", bias=-1.5)
    export_model(trained, tmp_path / "m", "svmlight")
    _, threshold, weights = svmlight_read((tmp_path / "m").read_text())
    assert threshold == 1.5
    assert weights == {j + 1: w for j, w in enumerate(trained.weights[0].tolist()) if w}


def test_weights_of_zero(tmp_path):
    zero = binary(weights=np.zeros((1, 3)), bias=np.zeros(1))
    export_model(zero, tmp_path / "s", "svmlight")
    assert svmlight_read((tmp_path / "s").read_text())[1:] == (0.0, {})
    export_model(zero, tmp_path / "l", "liblinear")
    assert liblinear_predict(tmp_path / "l", np.ones((1, 3)))[1].tolist() == [[0.0]]


def test_slices_of_features_join(tmp_path, monkeypatch):
    trained = binary()
    for to in ("liblinear", "svmlight"):
        export_model(trained, tmp_path / "whole", to)
        with monkeypatch.context() as patch:
            patch.setattr(export, "_SLICE_FEATURES", 4)
            export_model(trained, tmp_path / "sliced", to)
        assert (tmp_path / "whole").read_bytes() == (tmp_path / "sliced").read_bytes()


def test_what_a_format_cannot_express(tmp_path):
    three = make(3, positive=[1, 2, 3], C=(1,) * 3)
    two = make(2, positive=[1, 2], C=(1,) * 2)
    with pytest.raises(UsageError, match="one decision function, this model has 3"):
        export_model(three, tmp_path / "m", "svmlight")
    with pytest.raises(UsageError, match="three labels or more"):
        export_model(two, tmp_path / "m", "liblinear")
    with pytest.raises(UsageError, match="to must be one of 'liblinear', 'libsvm', 'svmlight', not 'onnx'"):
        export_model(two, tmp_path / "m", "onnx")
    assert list(tmp_path.iterdir()) == []


def test_files_there_already(tmp_path):
    trained = binary()
    save_model(trained, tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    with pytest.raises(UsageError, match="is a model of ooc-svm"):
        export_model(trained, tmp_path / "model", "liblinear")
    assert (tmp_path / "model").read_bytes() == before
    (tmp_path / "old").write_text("old")
    export_model(trained, tmp_path / "old", "svmlight")
    assert svmlight_read((tmp_path / "old").read_text())[1] == -0.3
    with pytest.raises(StorageError, match="nowhere"):
        export_model(trained, tmp_path / "nowhere" / "m", "svmlight")


def test_names_of_classes_lie_beside_liblinear(tmp_path):
    names = ("B cell", 'T, "helper"', "tab\there", "two\nlines")
    classes = (0.0, 1.0, 2.0, 3.0)
    model = one_vs_rest(np.arange(8.0).reshape(4, 2), 0.0, classes, label_names=names)
    path = tmp_path / "m.txt"
    export_model(model, path, "liblinear")
    with (tmp_path / "m.txt.labels").open(newline="") as file:
        assert [tuple(row) for row in csv.reader(file, delimiter="\t")] == [
            (str(code), name) for code, name in enumerate(names)
        ]
    assert "label 0 1 2 3" in path.read_text()
    two = linear_model([1.0], positive=[1.0], negative=0.0, classes=(0.0, 1.0), label_names=("a", "b"))
    export_model(two, path, "liblinear")
    assert (tmp_path / "m.txt.labels").read_text() == "1\tb\n0\ta\n"
    export_model(two, tmp_path / "m.svm", "svmlight")
    export_model(linear_model([1.0]), tmp_path / "n.txt", "liblinear")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.svm", "m.txt", "m.txt.labels", "n.txt"]


def test_a_model_is_not_replaced_by_names_of_classes(tmp_path):
    two = linear_model([1.0], positive=[1.0], negative=0.0, classes=(0.0, 1.0), label_names=("a", "b"))
    save_model(two, tmp_path / "m.labels")
    before = (tmp_path / "m.labels").read_bytes()
    with pytest.raises(UsageError, match=r"m\.labels"):
        export_model(two, tmp_path / "m", "liblinear")
    assert (tmp_path / "m.labels").read_bytes() == before
    assert not (tmp_path / "m").exists()
