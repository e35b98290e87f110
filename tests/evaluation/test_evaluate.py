"""Evaluation against scikit-learn, over every form of the data, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scored_data import Data, linear_model, one_vs_rest, random_data, regressor
from scipy import sparse
from sklearn import metrics as sk

from ooc_svm.errors import InputError, MemoryBudgetError, UsageError
from ooc_svm.evaluation.evaluate import evaluate
from ooc_svm.evaluation.label_codes import LabelCodes
from ooc_svm.evaluation.metrics import default_metrics
from ooc_svm.model.decision import TWO_CLASSES
from ooc_svm.model.model import Model
from ooc_svm.rowvectors.growing import GrowingVector
from ooc_svm.store import Store
from ooc_svm.text.writer import format_rows

N_FEATURES = 30


def noisy_data(n_rows: int, model: Model, *, rounded: bool = False, seed: int = 0) -> Data:
    """Labels that the model mostly predicts; with `rounded`, many rows have the same score."""
    data = random_data(n_rows, N_FEATURES, seed=seed)
    if rounded:
        data.matrix.data = np.round(data.matrix.data)
    noise = np.random.default_rng(seed + 1).normal(size=n_rows)
    labels = np.where(data.scores(model)[:, 0] + noise > 0.5, 1.0, -1.0)
    return Data(data.matrix, labels)


@pytest.fixture
def model() -> Model:
    return linear_model(np.random.default_rng(1).normal(size=N_FEATURES), 0.25)


def prbep(labels: Any, scores: Any) -> float:
    """Precision of as many rows as there are positives, without ties at the cut."""
    n_positive = int((labels == 1).sum())
    order = np.argsort(-scores)
    assert scores[order[n_positive - 1]] > scores[order[n_positive]]
    return float((labels[order[:n_positive]] == 1).mean())


def test_two_classes_against_scikit_learn(model: Model, tmp_path: Path) -> None:
    data = noisy_data(700, model)
    scores = data.scores(model)[:, 0]
    predicted = np.where(scores > 0, 1.0, -1.0)
    expected = {
        "accuracy": sk.accuracy_score(data.labels, predicted),
        "error": sk.zero_one_loss(data.labels, predicted),
        "precision": sk.precision_score(data.labels, predicted),
        "recall": sk.recall_score(data.labels, predicted),
        "f1": sk.f1_score(data.labels, predicted),
        "auc": sk.roc_auc_score(data.labels, scores),
        "prbep": prbep(data.labels, scores),
    }
    assert len({round(value, 6) for value in expected.values()}) > 4
    text, store = data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")
    for form, options in ((text, {}), (store, {}), (data.matrix, {"labels": data.labels})):
        for threads in (1, 2):
            found = evaluate(model, form, threads=threads, **options)
            assert list(found) == list(default_metrics(TWO_CLASSES))
            assert found == pytest.approx(expected, rel=1e-12)


def test_equal_scores_count_half(model: Model, tmp_path: Path) -> None:
    whole = linear_model(np.round(model.weights), 0.0)
    data = noisy_data(700, whole, rounded=True)
    scores = data.scores(whole)[:, 0]
    assert len(np.unique(scores)) < 100
    found = evaluate(whole, data.text(tmp_path / "rows.svm"), "auc")
    assert found == {"auc": pytest.approx(sk.roc_auc_score(data.labels, scores), rel=1e-12)}


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_several_classes_against_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    classes = (1.0, 2.0, 5.0, 7.0)
    model = one_vs_rest(rng.normal(size=(4, N_FEATURES)), 0.0, classes)
    data = random_data(400, N_FEATURES, labels=classes[:3])  # one class does not occur
    predicted = np.array(classes)[data.scores(model).argmax(axis=1)]
    expected = {
        "accuracy": sk.accuracy_score(data.labels, predicted),
        "error": sk.zero_one_loss(data.labels, predicted),
        "balanced-accuracy": sk.balanced_accuracy_score(data.labels, predicted),
        "macro-f1": sk.f1_score(data.labels, predicted, average="macro"),
        "weighted-f1": sk.f1_score(data.labels, predicted, average="weighted"),
    }
    for form in (data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")):
        assert evaluate(model, form) == pytest.approx(expected, rel=1e-12)
    assert list(evaluate(model, form, ["macro-f1", "error"])) == ["macro-f1", "error"]


def test_values_against_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    model = regressor(rng.normal(size=N_FEATURES), 1.0)
    data = random_data(300, N_FEATURES)
    targets = data.scores(model)[:, 0] + rng.normal(size=300)
    data = Data(data.matrix, targets)
    scores = data.scores(model)[:, 0]
    expected = {
        "mse": sk.mean_squared_error(targets, scores),
        "mae": sk.mean_absolute_error(targets, scores),
        "r2": sk.r2_score(targets, scores),
    }
    assert evaluate(model, data.store(tmp_path / "rows.zarr")) == pytest.approx(expected, rel=1e-9)


def test_a_value_of_C_chooses_the_functions(model: Model) -> None:  # noqa: N802
    both = linear_model(
        np.concatenate([model.weights, -model.weights]), [0.25, -0.25], positive=[1.0, 1.0], C=(0.1, 1.0)
    )
    data = noisy_data(200, model)
    given = {"labels": data.labels, "metrics": "auc"}
    assert evaluate(both, data.matrix, C=0.1, **given) == evaluate(model, data.matrix, **given)
    assert evaluate(both, data.matrix, **given)["auc"] == pytest.approx(
        1 - evaluate(model, data.matrix, **given)["auc"]
    )


# Labels and what they stand for


@pytest.mark.parametrize(
    ("positive", "signs"),
    [([2.0, 7.0], [-1, 1, -1, 1]), ([1.0], [1, -1, -1, -1]), ([7.0, 1.0, 2.0], [1, 1, -1, 1])],
)
def test_a_set_of_positive_labels(positive: list[float], signs: list[int], tmp_path: Path) -> None:
    classes = np.array([1.0, 2.0, 5.0, 7.0])
    model = linear_model(
        np.random.default_rng(1).normal(size=N_FEATURES),
        positive=[min(positive)],
        negative=-1.0,
        classes=tuple(classes),
        options={"positive": positive},
    )
    data = random_data(300, N_FEATURES, labels=tuple(classes))
    sides = np.array(signs)[np.searchsorted(classes, data.labels)]
    scores = data.scores(model)[:, 0]
    found = evaluate(model, data.text(tmp_path / "rows.svm"))
    assert found["auc"] == pytest.approx(sk.roc_auc_score(sides, scores), rel=1e-12)
    assert found["recall"] == pytest.approx(sk.recall_score(sides, np.where(scores > 0, 1, -1)), rel=1e-12)


def test_labels_are_numbers_however_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("+1 1:1\n1.0 1:1\n-1 1:-1\n-1e0 1:-1\n")
    assert evaluate(linear_model([1.0]), path, "accuracy") == {"accuracy": 1.0}
    zero = linear_model([1.0], positive=[1.0], negative=0.0, classes=(0.0, 1.0))
    path.write_text("1 1:1\n-0 1:-1\n0 1:-1\n")
    assert evaluate(zero, path, "accuracy") == {"accuracy": 1.0}


def test_a_model_that_does_not_know_its_classes(model: Model) -> None:
    data = noisy_data(100, model)
    bare = linear_model(model.weights, 0.25, classes=())
    assert evaluate(bare, data.matrix, labels=data.labels) == evaluate(model, data.matrix, labels=data.labels)


def test_labels_the_model_was_not_trained_on(model: Model, tmp_path: Path) -> None:
    data = noisy_data(200, model)
    labels = data.labels.copy()
    labels[[3, 77, 150]], labels[80] = 7.0, 0.5
    strange = Data(data.matrix, labels)
    told = r"4 rows .*not trained on: '0\.5' \(1 row\), '7' \(3 rows\); it knows -1, 1: "
    text, store = strange.text(tmp_path / "rows.svm"), strange.store(tmp_path / "rows.zarr")
    for form, options in ((text, {}), (store, {}), (strange.matrix, {"labels": labels})):
        with pytest.raises(InputError, match=told):
            evaluate(model, form, **options)
    several = one_vs_rest(np.ones((3, N_FEATURES)), 0.0, (-1.0, 1.0, 7.0))
    with pytest.raises(InputError, match=r"1 row .*'0\.5' \(1 row\); it knows -1, 1, 7"):
        evaluate(several, text)


def test_labels_of_a_store_are_checked_before_its_rows_are_read(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = random_data(50, N_FEATURES, labels=(3.0, 4.0)).store(tmp_path / "rows.zarr")

    def read_block(*_: object) -> None:
        raise AssertionError("a block was read")

    monkeypatch.setattr(Store, "read_block", read_block)
    with pytest.raises(InputError, match="50 rows"):
        evaluate(model, store)


def test_values_where_classes_should_be_are_named_in_short(model: Model, tmp_path: Path) -> None:
    data = random_data(2000, N_FEATURES)
    values = Data(data.matrix, np.random.default_rng(0).normal(size=2000))
    for form in (values.text(tmp_path / "rows.svm"), values.store(tmp_path / "rows.zarr")):
        with pytest.raises(InputError, match=r"2000 rows .* and others \(1990 rows\)") as caught:
            evaluate(model, form)
        assert len(str(caught.value)) < 800


def named_store(path: Path, matrix: Any, column: Any) -> Path:
    """An AnnData store with a column ``obs/kind``."""
    import anndata
    import pandas as pd

    index = [f"cell{i}" for i in range(matrix.shape[0])]
    obs = pd.DataFrame({"kind": column}, index=index)
    anndata.AnnData(sparse.csr_matrix(matrix), obs=obs).write_zarr(path)
    return path


@pytest.mark.filterwarnings("ignore")  # of AnnData and Zarr about each other's versions
def test_names_are_compared_not_their_places(tmp_path: Path) -> None:
    import pandas as pd

    data = random_data(200, N_FEATURES, labels=(0.0, 1.0, 2.0))
    weights = np.random.default_rng(1).normal(size=(3, N_FEATURES))
    names = np.array(["B", "NK", "T"])
    model = one_vs_rest(weights, 0.0, (0.0, 1.0, 2.0), label_names=tuple(names))
    expected = (data.scores(model).argmax(axis=1) == data.labels).mean()
    kinds = names[data.labels.astype(int)]
    turned = pd.Categorical(kinds, categories=["T", "B", "X", "NK"])
    for number, column in enumerate((pd.Categorical(kinds), turned)):
        store = named_store(tmp_path / f"s{number}.zarr", data.matrix, column)
        assert evaluate(model, store, "accuracy", label="kind") == {"accuracy": pytest.approx(expected)}
    other = pd.Categorical(np.where(kinds == "T", "X", kinds))
    with pytest.raises(InputError, match=r"'X' \(\d+ rows\); it knows B, NK, T"):
        evaluate(model, named_store(tmp_path / "other.zarr", data.matrix, other), label="kind")
    with pytest.raises(InputError, match=r"'0' \(\d+ rows\)"):  # places are no names
        evaluate(model, data.matrix, labels=data.labels)


def test_names_that_are_numbers_are_the_numbers() -> None:
    assert LabelCodes(["-1", "1"], "rows", ("1", "-1")).codes(np.array([0.0, 1, 0])).tolist() == [1, 0, 1]
    assert LabelCodes(["1", "2.5"], "rows", None).codes(np.array([2.5, 1, 2.5])).tolist() == [1, 0, 1]
    codes = LabelCodes(["1"], "rows", None)
    assert codes.codes(np.array([1.0, 3, 3])).tolist() == [0, -1, -1]
    assert codes.codes(np.array([3.0])).tolist() == [-1]
    assert codes.n_unknown == 3
    assert codes.codes(np.empty(0)).tolist() == []


# Metrics that do not fit


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ("acuracy", r"no metric 'acuracy'; .* accuracy, error, precision"),
        (["accuracy", "macro-f1"], "macro-f1 is no metric for two classes"),
        ("mse", "mse is no metric for two classes"),
    ],
)
def test_metrics_that_do_not_fit_are_refused_before_anything_is_read(metrics: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        evaluate(linear_model([1.0]), "missing.svm", metrics)


def test_metrics_of_two_classes_do_not_fit_several_or_values() -> None:
    several = one_vs_rest(np.ones((3, 1)), 0.0, (1.0, 2.0, 3.0))
    with pytest.raises(
        UsageError,
        match=r"auc is no metric for several classes; .* accuracy, error, balanced-accuracy, macro-f1, ",
    ):
        evaluate(several, "missing.svm", "auc")
    for name in ("accuracy", "auc", "macro-f1"):
        with pytest.raises(UsageError, match=rf"{name} is no metric for values; .* mse, mae, r2"):
            evaluate(regressor([1.0]), "missing.svm", name)


def test_a_metric_without_a_value(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("-1 1:1\n-1 1:-1\n")
    model = linear_model([1.0])
    with pytest.raises(InputError, match="no row is positive"):
        evaluate(model, path, ["accuracy", "auc"])
    with pytest.raises(InputError, match="no row is positive"):
        evaluate(model, path, "prbep")
    found = evaluate(model, path)  # by default what has a value
    assert found == {"accuracy": 0.5, "error": 0.5, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    path.write_text("1 1:1\n1 1:-1\n")
    assert evaluate(model, path)["prbep"] == 1.0
    assert "auc" not in evaluate(model, path, [])


def test_rows_without_labels_and_no_rows(model: Model) -> None:
    with pytest.raises(UsageError, match="no labels"):
        evaluate(model, np.ones((3, model.n_features)))
    with pytest.raises(UsageError, match="no labels"):
        evaluate(regressor([1.0, 2.0]), np.ones((3, 2)))
    for several in (model, one_vs_rest(np.ones((3, 2)), 0.0, (1.0, 2.0, 3.0)), regressor([1.0, 2.0])):
        with pytest.raises(InputError, match="no rows to evaluate"):
            evaluate(several, np.ones((0, several.n_features)), labels=[])


# Memory


def test_scores_on_disk_give_the_same_numbers(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = noisy_data(1000, model)
    text, store = data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")
    expected = evaluate(model, text)
    vectors: list[GrowingVector] = []

    def on_disk(dtype: Any, memory_bytes: int, **options: Any) -> GrowingVector:
        assert memory_bytes > 0
        vectors.append(GrowingVector(dtype, 0, tmp_path, **options))
        return vectors[-1]

    monkeypatch.setattr("ooc_svm.evaluation.workspace.GrowingVector", on_disk)
    monkeypatch.setattr("ooc_svm.evaluation.workspace.SLICE_ROWS", 100)
    for form in (text, store):
        assert evaluate(model, form) == expected
    assert [vector.n_rows for vector in vectors] == [1000] * 4
    assert not any(vector.in_memory for vector in vectors)


def test_too_little_memory_is_an_error(model: Model) -> None:
    with pytest.raises(MemoryBudgetError, match="allowed are 50 MB"):
        evaluate(model, np.ones((3, model.n_features)), memory="50MB")


def test_order_is_not_kept_for_metrics_that_need_none(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    data = noisy_data(100, model)
    expected = evaluate(model, data.matrix, labels=data.labels)

    def append(*_: object) -> None:
        raise AssertionError("a score was kept")

    monkeypatch.setattr(GrowingVector, "append", append)
    asked = ["f1", "accuracy"]
    found = evaluate(model, data.matrix, asked, labels=data.labels)
    assert found == {name: expected[name] for name in asked}


def test_bad_rows_are_named(model: Model, tmp_path: Path) -> None:
    data = noisy_data(100, model)
    path = tmp_path / "rows.svm"
    path.write_bytes(format_rows(data.rows) + b"1 1:nan\n")
    with pytest.raises(InputError, match=r"rows\.svm:101:3: "):
        evaluate(model, path)
