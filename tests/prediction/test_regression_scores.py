"""Regressors after training: model file, prediction, metrics, export, and the commands for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scored_data import Data, linear_model, model_of, one_vs_rest, random_data, regressor
from scipy import sparse
from sklearn import metrics as sk
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.errors import InputError, UsageError
from ooc_svm.evaluation import evaluate as evaluate_module
from ooc_svm.evaluation.evaluate import evaluate
from ooc_svm.evaluation.metrics import default_metrics
from ooc_svm.model.decision import TWO_CLASSES, VALUES, select_C
from ooc_svm.model.export import export_model
from ooc_svm.model.file import load_model, model_info, save_model
from ooc_svm.model.model import Model
from ooc_svm.prediction import scores as scores_module
from ooc_svm.prediction.predict import predict
from ooc_svm.prediction.scores import decision_scores
from ooc_svm.rowvectors.growing import GrowingVector

N_FEATURES = 30


@pytest.fixture
def model() -> Model:
    """Two values of C, with the report of a run."""
    weights = np.random.default_rng(1).normal(size=(2, N_FEATURES))
    rows = [
        {
            "label": None,
            "C": C,
            "primal": 12.5 * C,
            "dual": 12.49 * C,
            "gap": 0.01 * C,
            "relative_gap": 8e-4,
            "passes": 7,
            "bias": bias,
            "n_support": 40,
            "converged": True,
            "stop_reason": "certified",
        }
        for C, bias in ((0.1, 0.25), (10.0, -3.0))
    ]
    report = {"n_rows": 500, "n_nonzeros": 4000, "passes": 7, "bytes_read": 70_000, "seconds": 1.5}
    return regressor(
        weights,
        [0.25, -3.0],
        loss="squared-epsilon-insensitive",
        C=(0.1, 10.0),
        options={"epsilon": 0.125},
        report=report | {"models": rows},
    )


@pytest.fixture
def data(model: Model) -> Data:
    """Targets near what the last model predicts."""
    rows = random_data(1500, N_FEATURES)
    noise = np.random.default_rng(4).normal(size=1500)
    return Data(rows.matrix, rows.scores(model)[:, 1] + noise)


def expected_metrics(targets: Any, values: Any) -> dict[str, float]:
    return {
        "mse": sk.mean_squared_error(targets, values),
        "mae": sk.mean_absolute_error(targets, values),
        "r2": sk.r2_score(targets, values),
    }


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Run a command line; its standard output and standard error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result.stdout, result.stderr


# ---------------------------------------------------------------- evaluation


def test_metrics_equal_scikit_learn_for_every_form_of_the_data(
    model: Model, data: Data, tmp_path: Path
) -> None:
    text, store = data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")
    scores = data.scores(model)
    for C, values in ((None, scores[:, 1]), (0.1, scores[:, 0]), (10.0, scores[:, 1])):
        expected = expected_metrics(data.labels, values)
        for form, options in ((text, {}), (store, {}), (data.matrix, {"labels": data.labels})):
            found = evaluate(model, form, C=C, **options)
            assert list(found) == ["mse", "mae", "r2"]
            assert found == pytest.approx(expected, rel=1e-12)
    assert list(evaluate(model, store, ["r2", "mse"])) == ["r2", "mse"]
    assert 0.8 < evaluate(model, store, "r2")["r2"] < 1
    assert evaluate(model, store, "r2", C=0.1)["r2"] < 0


def test_metrics_have_the_same_bits_for_all_threads_and_blocks(
    model: Model, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, store = data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")
    monkeypatch.setattr(evaluate_module, "_SLICE_ROWS", 101)
    expected = evaluate(model, data.matrix, labels=data.labels)
    assert expected == pytest.approx(expected_metrics(data.labels, data.scores(model)[:, 1]), rel=1e-12)
    for tile in (10, 999, 1 << 18):
        monkeypatch.setattr(scores_module, "TILE_ELEMENTS", tile)
        for threads in (1, 3):
            assert evaluate(model, text, threads=threads) == expected
            assert evaluate(model, store, threads=threads) == expected


def test_no_value_is_kept(model: Model, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(*_: object) -> None:
        raise AssertionError("a value was kept")

    monkeypatch.setattr(GrowingVector, "append", append)
    assert evaluate(model, data.matrix, labels=data.labels)["mse"] > 0


@pytest.mark.parametrize("target", [0.1, 3.0, -1e9 / 7])
def test_r2_where_all_targets_are_equal(target: float, tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text(f"{target!r} 1:1\n" * 3)
    assert evaluate(regressor([0.0], target), path)["r2"] == 1.0
    assert evaluate(regressor([0.0], target + 1), path)["r2"] == 0.0


def test_labels_that_are_no_values(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 of 2 labels are missing"):
        evaluate(model, np.ones((2, 3)), labels=[0.5, np.nan])
    path = tmp_path / "rows.svm"
    path.write_text("0.5 1:1\nnan 1:1\n")
    with pytest.raises(InputError, match=r"rows\.svm:2:1"):
        evaluate(model, path)


@pytest.mark.filterwarnings("ignore")  # of AnnData and Zarr about each other's versions
def test_columns_of_an_anndata_store(model: Model, data: Data, tmp_path: Path) -> None:
    import anndata
    import pandas as pd

    holed = data.labels.copy()
    holed[17] = np.nan
    columns = {"age": data.labels, "holed": holed, "kind": pd.Categorical(["a", "b", "c"] * 500)}
    obs = pd.DataFrame(columns, index=[f"cell{i}" for i in range(1500)])
    store = tmp_path / "cells.zarr"
    anndata.AnnData(sparse.csr_matrix(data.matrix), obs=obs).write_zarr(store)
    expected = expected_metrics(data.labels, data.scores(model)[:, 1])
    assert evaluate(model, store, label="age") == pytest.approx(expected, rel=1e-12)
    with pytest.raises(InputError, match="names for labels, and the model gives values; choose a column"):
        evaluate(model, store, label="kind")
    with pytest.raises(InputError, match=r"1 of 1500 rows .* no label in obs/holed, the first is row 17;"):
        evaluate(model, store, label="holed")


def test_metrics_of_the_other_kind_are_refused_before_anything_is_read() -> None:
    for name in (*default_metrics(TWO_CLASSES), "macro-f1"):
        with pytest.raises(
            UsageError, match=rf"^{name} is no metric for values; .*choose from mse, mae, r2, "
        ):
            evaluate(regressor([1.0]), "missing.svm", ["mse", name])
    three = one_vs_rest(np.ones((3, 1)), 0.0, (1.0, 2.0, 3.0))
    for name in default_metrics(VALUES):
        with pytest.raises(UsageError, match=rf"^{name} is no metric for two classes; .* accuracy, error, "):
            evaluate(linear_model([1.0]), "missing.svm", name)
        with pytest.raises(
            UsageError, match=rf"^{name} is no metric for several classes; .* macro-f1, weighted-f1, "
        ):
            evaluate(three, "missing.svm", name)


# ---------------------------------------------------------------- prediction


def test_values_are_the_scores_and_read_back_bit_for_bit(model: Model, data: Data, tmp_path: Path) -> None:
    text, output = data.text(tmp_path / "rows.svm"), tmp_path / "values"
    for C, k in ((None, 1), (0.1, 0), (10.0, 1)):
        expected = np.concatenate([block.scores[:, 0] for block in decision_scores(model, text, C=C)])
        np.testing.assert_allclose(expected, data.scores(model)[:, k], rtol=1e-12, atol=1e-12)
        assert predict(model, text, C=C).tobytes() == expected.tobytes()
        predict(model, text, C=C, output=output)
        lines = output.read_text().splitlines()
        assert [float(line) for line in lines] == expected.tolist()
        assert all(len(line) <= len(repr(value)) for line, value in zip(lines, expected, strict=True))
        predict(model, text, C=C, output=output, scores=True)
        assert output.read_text().splitlines() == ["value\tscore", *(f"{line}\t{line}" for line in lines)]


def test_no_rows_give_no_values(model: Model) -> None:
    empty = predict(model, np.ones((0, model.n_features)))
    assert (empty.shape, empty.dtype) == ((0,), np.float64)


# ---------------------------------------------------------------- export


@pytest.mark.parametrize("bias", [-1, 1])
@pytest.mark.parametrize(
    ("solver", "problem", "loss"),
    [
        (1, "svc", "squared-hinge"),
        (3, "svc", "hinge"),
        (12, "svr", "squared-epsilon-insensitive"),
        (13, "svr", "epsilon-insensitive"),
    ],
)
def test_the_export_is_what_liblinear_saves(
    solver: int, problem: str, loss: str, bias: int, data: Data, tmp_path: Path
) -> None:
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    targets = data.labels if problem == "svr" else np.where(data.labels > 0, 4.0, 2.0)
    X = [dict(zip((row.indices + 1).tolist(), row.data.tolist(), strict=True)) for row in data.matrix]
    trained = liblinear.train(targets.tolist(), X, f"-s {solver} -B {bias} -c 0.1 -p 0.1 -q")
    liblinear.save_model(str(tmp_path / "theirs"), trained)
    width = N_FEATURES + (bias == 1)
    weights = np.array([trained.w[j] for j in range(width)])
    if problem == "svc":
        first, second = trained.get_labels()
        facts: dict[str, Any] = {"positive": [first], "negative": second, "classes": (2.0, 4.0)}
    else:
        facts = {}
    ours = model_of(
        problem=problem,
        loss=loss,
        solver="streamed-smo",
        weights=weights[None, :N_FEATURES],
        bias=weights[N_FEATURES:] if bias == 1 else np.zeros(1),
        **facts,
    )
    export_model(ours, tmp_path / "ours", "liblinear")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()

    loaded = liblinear.load_model(str(tmp_path / "ours"))
    predicted, _, values = liblinear.predict([], X, loaded, "-q")
    np.testing.assert_allclose(np.array(values)[:, 0], data.scores(ours)[:, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(predicted, predict(ours, data.matrix), rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- file and command line


def test_a_saved_regressor_is_the_same_again(model: Model, data: Data, tmp_path: Path) -> None:
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert (loaded.problem, loaded.loss) == ("svr", "squared-epsilon-insensitive")
    assert (loaded.positive, loaded.negative, loaded.classes, loaded.label_names) == ([], None, (), None)
    assert (loaded.is_regressor, loaded.epsilon, loaded.C) == (True, 0.125, (0.1, 10.0))
    assert (loaded.active, select_C(loaded, 0.1).active) == ((1,), (0,))
    assert predict(loaded, data.matrix).tobytes() == predict(model, data.matrix).tobytes()
    facts = model_info(loaded)
    assert (facts["epsilon"], facts["C"], facts["bias"]) == (0.125, [0.1, 10.0], [0.25, -3.0])
    assert model_info(linear_model([1.0], options={"epsilon": 0.1}))["epsilon"] is None


def test_info(model: Model, tmp_path: Path) -> None:
    save_model(model, tmp_path / "m")
    told, table = run("info", tmp_path / "m")[0].split("\n\n")
    facts = dict(line.split(maxsplit=1) for line in told.splitlines())
    assert facts["problem"].startswith(
        "svr, squared-epsilon-insensitive loss, linear kernel, solver streamed"
    )
    assert (facts["epsilon"], facts["C"].split(), facts["bias"].split()) == (
        "0.125",
        ["0.1", "10"],
        ["0.25", "-3"],
    )
    assert "classes" not in facts
    head, first, second = (line.split() for line in table.splitlines())
    assert head[:3] == ["C", "P", "D"]
    assert first == ["0.1", "1.25", "1.249", "8e-4", "7", "yes"]
    assert second[:3] == ["10", "125", "124.9"]
    assert json.loads(run("info", tmp_path / "m", "--json")[0])["epsilon"] == 0.125

    save_model(linear_model([1.0], 0.5, C=(2.0,), loss="squared-hinge"), tmp_path / "svc")
    told = run("info", tmp_path / "svc")[0]
    assert "svc, squared-hinge loss" in told
    assert "epsilon" not in told
    assert ["bias", "0.5"] in [line.split() for line in told.splitlines()]


def test_the_command_line(model: Model, data: Data, tmp_path: Path) -> None:
    path, text, output = tmp_path / "m", data.text(tmp_path / "rows.svm"), tmp_path / "values"
    save_model(model, path)
    for chosen, k in (([], 1), (["--C", "0.1"], 0)):
        values = data.scores(model)[:, k]
        run("predict", path, text, "-o", output, "--scores", *chosen)
        np.testing.assert_allclose(
            np.loadtxt(output, skiprows=1), np.column_stack([values, values]), rtol=1e-12, atol=1e-12
        )
        found = json.loads(run("evaluate", path, text, "--json", "-", *chosen)[0])
        assert found == pytest.approx(expected_metrics(data.labels, values), rel=1e-12)
        run("export", path, "-o", tmp_path / f"l{k}", "--to", "liblinear", *chosen)
        run("export", path, "-o", tmp_path / f"s{k}", "--to", "svmlight", *chosen)
        exported = (tmp_path / f"l{k}").read_text().splitlines()
        assert exported[:5] == [
            "solver_type L2R_L2LOSS_SVR_DUAL",
            "nr_class 2",
            f"nr_feature {N_FEATURES}",
            "bias 1",
            "w",
        ]
        assert [float(line) for line in exported[5:]] == [*model.weights[k].tolist(), model.bias[k]]
    shown = run("evaluate", path, text, "--metric", "mae", "--metric", "r2")[0]
    assert [line.split()[0] for line in shown.splitlines()] == ["mae", "r2"]
    assert "choose from mse, mae, r2" in run("evaluate", path, text, "--metric", "auc", code=2)[1]
    assert "it has 0.1, 10.0" in run("predict", path, text, "--C", "1", code=2)[1]

    save_model(linear_model(np.ones(N_FEATURES)), tmp_path / "svc")
    refused = run("evaluate", tmp_path / "svc", text, "--metric", "mse", code=2)[1]
    assert "mse is no metric for two classes; for this model choose from accuracy, error" in refused
