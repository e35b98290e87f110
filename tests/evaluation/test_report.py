"""The report of an evaluation: each class, confusions, and what was asked for wrongly."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.scored_data import Data, linear_model, one_vs_rest, random_data, regressor
from helpers.train_data import make_anndata
from scipy import sparse
from sklearn import metrics as sk
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.errors import StorageError, UsageError
from ooc_svm.evaluation.evaluate import evaluate, evaluation_report
from ooc_svm.model.file import save_model
from ooc_svm.model.model import Model

N_FEATURES = 30
CLASSES = (1.0, 2.0, 5.0, 7.0, 9.0)
NAMES = ('a, "b"', "two words", "line\nbreak\r", "plain", "-1")


@pytest.fixture
def model() -> Model:
    return one_vs_rest(np.random.default_rng(2).normal(size=(5, N_FEATURES)), 0.0, CLASSES)


@pytest.fixture
def data(model: Model) -> Data:
    """Rows of all classes but one, of uneven numbers, partly predicted right."""
    data = random_data(600, N_FEATURES)
    noise = np.random.default_rng(3).normal(scale=3.0, size=(600, 5))
    scores = data.scores(model) + noise - [0, 0, 3, 1000, 1]
    return Data(data.matrix, np.array(CLASSES)[scores.argmax(axis=1)])


def predicted_by(model: Model, data: Data) -> np.ndarray:
    return np.array(CLASSES)[data.scores(model).argmax(axis=1)]


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_metrics_of_several_classes_are_those_of_scikit_learn(model: Model, data: Data) -> None:
    predicted, scores = predicted_by(model, data), data.scores(model)
    expected = {
        "accuracy": sk.accuracy_score(data.labels, predicted),
        "balanced-accuracy": sk.balanced_accuracy_score(data.labels, predicted),
        "weighted-f1": sk.f1_score(data.labels, predicted, average="weighted"),
        "macro-f1": sk.f1_score(data.labels, predicted, average="macro"),
    }
    for k in (1, 2, 4, 5):
        top = sk.top_k_accuracy_score(data.labels, scores, k=k, labels=CLASSES) if k < 5 else 1.0
        expected[f"accuracy@{k}"] = top
    assert len({round(value, 6) for value in expected.values()}) == len(expected) - 1
    found = evaluate(model, data.matrix, list(expected), labels=data.labels)
    assert found == pytest.approx(expected, rel=1e-12)
    assert found["accuracy@1"] == found["accuracy"]


def test_balanced_accuracy_of_two_classes() -> None:
    model = linear_model(np.random.default_rng(1).normal(size=N_FEATURES), -1.0)
    data = random_data(300, N_FEATURES)
    predicted = np.where(data.scores(model)[:, 0] > 0, 1.0, -1.0)
    found = evaluate(model, data.matrix, "balanced-accuracy", labels=data.labels)
    expected = sk.balanced_accuracy_score(data.labels, predicted)
    assert found == {"balanced-accuracy": pytest.approx(expected, rel=1e-12)}
    assert "balanced-accuracy" not in evaluate(model, data.matrix, labels=data.labels)


def test_each_class_is_scored(model: Model, data: Data, tmp_path: Path) -> None:
    predicted = predicted_by(model, data)
    shares = sk.precision_recall_fscore_support(data.labels, predicted, labels=CLASSES, zero_division=0)
    for form in (data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")):
        found = evaluation_report(model, form)
        assert [each.label for each in found.classes] == ["1", "2", "5", "7", "9"]
        for name, expected in zip(("precision", "recall", "f1", "support"), shares, strict=True):
            values = [getattr(each, name) for each in found.classes]
            assert values == pytest.approx(expected.tolist(), rel=1e-12)
        assert found.confusion is None
        record = found.to_json()
        assert {name: record[name] for name in found.metrics} == evaluate(model, form)
        assert record["classes"]["7"]["support"] == 0
        assert set(record) == {*found.metrics, "classes"}
    assert evaluation_report(linear_model(np.ones(3)), np.eye(3), labels=[1, -1, 1]).classes == ()


@pytest.mark.parametrize("name", ["f1", "precision", "recall", "micro-f1"])
def test_a_metric_of_one_class_is_explained_where_there_are_several(model: Model, name: str) -> None:
    meant = {
        "f1": "macro-f1 is its mean over the classes",
        "precision": "table",
        "recall": "balanced-accuracy",
    }
    with pytest.raises(UsageError, match=meant.get(name, "micro-f1 is the accuracy")) as error:
        evaluate(model, "missing.svm", name)
    assert "choose from accuracy, error, balanced-accuracy, macro-f1, weighted-f1" in str(error.value)


class TestConfusions:
    def test_they_are_those_of_scikit_learn(self, model: Model, data: Data) -> None:
        found = evaluation_report(model, data.matrix, labels=data.labels, confusion=True).confusion
        table = sk.confusion_matrix(data.labels, predicted_by(model, data), labels=CLASSES)
        texts = ["1", "2", "5", "7", "9"]
        pairs = [(texts[i], texts[j], int(table[i, j])) for i, j in np.argwhere(table).tolist()]
        assert found == tuple(pairs)

    def test_of_two_classes(self) -> None:
        model = linear_model(np.random.default_rng(1).normal(size=N_FEATURES), -1.0)
        data = random_data(300, N_FEATURES)
        predicted = np.where(data.scores(model)[:, 0] > 0, 1.0, -1.0)
        found = evaluation_report(model, data.matrix, labels=data.labels, confusion=True).confusion
        table = sk.confusion_matrix(data.labels, predicted).ravel().tolist()
        pairs = [("-1", "-1"), ("-1", "1"), ("1", "-1"), ("1", "1")]
        assert found == tuple((*pair, rows) for pair, rows in zip(pairs, table, strict=True))

    def test_there_are_none_of_values(self) -> None:
        with pytest.raises(UsageError, match="confusion is for classes, and the model predicts values"):
            evaluation_report(regressor([1.0]), np.ones((2, 1)), labels=[1.0, 2.0], confusion=True)

    @pytest.mark.filterwarnings("ignore")  # of AnnData and Zarr about each other's versions
    def test_names_survive_the_file(self, model: Model, data: Data, tmp_path: Path) -> None:
        named = one_vs_rest(model.weights, 0.0, CLASSES, label_names=NAMES)
        kinds = [NAMES[CLASSES.index(label)] for label in data.labels]
        store = make_anndata(tmp_path / "s", sparse.csr_matrix(data.matrix), kind=pd.Categorical(kinds))
        found = evaluation_report(named, store, label="kind", confusion=True)
        found.write_confusion(tmp_path / "c.csv")
        with (tmp_path / "c.csv").open(newline="") as file:
            head, *rows = csv.reader(file)
        assert head == ["label", "predicted", "rows"]
        assert [(label, predicted, int(n)) for label, predicted, n in rows] == list(found.confusion or ())
        assert {label for label, _, _ in rows} == set(NAMES) - {"plain"}
        assert {each.label for each in found.classes} == set(NAMES)

    def test_the_file_is_whole_or_not_there(self, model: Model, data: Data, tmp_path: Path) -> None:
        found = evaluation_report(model, data.matrix, labels=data.labels, confusion=True)
        with pytest.raises(StorageError):
            found.write_confusion(tmp_path / "nowhere" / "c.csv")
        with pytest.raises(UsageError, match="confusion=True"):
            evaluation_report(model, data.matrix, labels=data.labels).write_confusion(tmp_path / "c.csv")
        assert list(tmp_path.iterdir()) == []


class TestCommand:
    @pytest.fixture
    def files(self, model: Model, data: Data, tmp_path: Path) -> tuple[Path, Path]:
        save_model(model, tmp_path / "m")
        return tmp_path / "m", data.text(tmp_path / "rows.svm")

    def run(self, *words: object, code: int = 0) -> tuple[str, str]:
        result = CliRunner().invoke(app, ["evaluate", *map(str, words)])
        assert result.exit_code == code, result.stderr
        return result.stdout, result.stderr

    def test_a_table_follows_the_metrics(self, files: tuple[Path, Path], model: Model, data: Data) -> None:
        metrics, table = self.run(*files)[0].split("\n\n")
        assert [line.split()[0] for line in metrics.splitlines()] == list(evaluate(model, files[1]))
        head, *rows = [line.split() for line in table.splitlines()]
        assert head == ["class", "precision", "recall", "f1", "rows"]
        assert [row[0] for row in rows] == ["1", "2", "5", "7", "9"]
        assert sum(int(row[-1]) for row in rows) == 600
        record = json.loads(self.run(*files, "--json", "-")[0])
        assert record["classes"]["2"]["f1"] == pytest.approx(float(rows[1][3]), abs=1e-4)

    def test_metrics_are_named_with_commas_and_repeated(self, files: tuple[Path, Path]) -> None:
        names = ["accuracy", "accuracy@2", "macro-f1"]
        for words in (
            ["--metric", "accuracy,accuracy@2,macro-f1"],
            ["--metric", "accuracy, accuracy@2", "--metric", "macro-f1"],
            [word for name in names for word in ("--metric", name)],
        ):
            lines = self.run(*files, *words)[0].split("\n\n")[0].splitlines()
            assert [line.split()[0] for line in lines] == names
        assert "'beauty'" in self.run(*files, "--metric", "accuracy,beauty", code=2)[1]
        assert "'accuracy', ''" in self.run(*files, "--metric", "accuracy,", code=2)[1]

    def test_confusions_are_written(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        self.run(*files, "--confusion", tmp_path / "c.csv", "--json", tmp_path / "j.json")
        with (tmp_path / "c.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert sum(int(row["rows"]) for row in rows) == 600
        record = json.loads((tmp_path / "j.json").read_text())
        right = sum(int(row["rows"]) for row in rows if row["label"] == row["predicted"])
        assert record["accuracy"] == right / 600

    def test_they_replace_neither_model_nor_data(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        before = [path.read_bytes() for path in files]
        for path in (*files, tmp_path / "nowhere" / "c.csv"):
            code = 5 if "nowhere" in str(path) else 2
            self.run(*files, "--confusion", path, code=code)
        self.run(*files, "--confusion", tmp_path / "x", "--json", tmp_path / "x", code=2)
        assert [path.read_bytes() for path in files] == before
        assert not (tmp_path / "x").exists()
