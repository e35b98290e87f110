"""Predictions as tables: CSV, TSV and Parquet, by the ending of the file; names survive."""

from __future__ import annotations

import builtins
import csv
import errno
import gc
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scored_data import Data, linear_model, one_vs_rest, random_data, regressor
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.errors import InputError, UsageError
from ooc_svm.model.decision import Decision
from ooc_svm.model.file import save_model
from ooc_svm.model.model import Model
from ooc_svm.prediction import tables
from ooc_svm.prediction.predict import predict

N_FEATURES = 12
NAMES = ("B cell", 'T, "helper"', "two\nlines", "carriage\rreturn\t")


@pytest.fixture
def data() -> Data:
    return random_data(300, N_FEATURES)


@pytest.fixture
def named() -> Model:
    weights = np.random.default_rng(1).normal(size=(4, N_FEATURES))
    return one_vs_rest(weights, 0.1, (0.0, 1.0, 2.0, 3.0), label_names=NAMES)


def read(path: Path) -> tuple[list[str], list[list[str]]]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file, delimiter=delimiter)
    return head, rows


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".CSV"])
class TestDelimited:
    def test_names_and_scores_survive(self, named: Model, data: Data, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"p{ending}"
        assert predict(named, data.matrix, output=path, scores=True).rows == 300
        head, rows = read(path)
        assert head == ["label", *(f"score of {name}" for name in NAMES)]
        assert [row[0] for row in rows] == predict(named, data.matrix).tolist()
        assert {row[0] for row in rows} == set(NAMES)
        found = np.array([[float(number) for number in row[1:]] for row in rows])
        np.testing.assert_allclose(found, data.scores(named), rtol=1e-12)

    def test_without_scores_it_has_a_header_too(self, named: Model, data: Data, tmp_path: Path, ending: str):
        path = tmp_path / f"p{ending}"
        predict(named, data.matrix, output=path)
        head, rows = read(path)
        assert head == ["label"]
        assert [label for (label,) in rows] == predict(named, data.matrix).tolist()

    def test_values_and_numbers(self, data: Data, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"p{ending}"
        values = regressor(np.random.default_rng(2).normal(size=N_FEATURES))
        predict(values, data.matrix, output=path)
        head, rows = read(path)
        assert head == ["value"]
        assert [float(value) for (value,) in rows] == predict(values, data.matrix).tolist()
        predict(linear_model(np.ones(N_FEATURES)), data.matrix, output=path, scores=True)
        head, rows = read(path)
        assert head == ["label", "score"]
        assert {row[0] for row in rows} == {"1", "-1"}


class TestParquet:
    @pytest.mark.parametrize("entries", [1 << 20, 100])
    def test_names_and_scores_survive(
        self, named: Model, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int
    ) -> None:
        import pyarrow.parquet as pq

        monkeypatch.setattr("ooc_svm.prediction.tables._GROUP_ENTRIES", entries)
        monkeypatch.setattr("ooc_svm.prediction.scores.TILE_SCORES", 128)
        path = tmp_path / "p.parquet"
        predict(named, data.matrix, output=path, scores=True)
        table = pq.read_table(path)
        assert table.column_names == ["label", *(f"score of {name}" for name in NAMES)]
        assert table["label"].to_pylist() == predict(named, data.matrix).tolist()
        found = np.column_stack([table[name].to_numpy() for name in table.column_names[1:]])
        np.testing.assert_allclose(found, data.scores(named), rtol=1e-12)
        assert (pq.ParquetFile(path).num_row_groups > 1) == (entries == 100)

    def test_values_and_numbers(self, data: Data, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        path = tmp_path / "p.parquet"
        values = regressor(np.random.default_rng(2).normal(size=N_FEATURES))
        for model, name, kind in (
            (values, "value", "double"),
            (linear_model(np.ones(N_FEATURES)), "label", "int64"),
            (linear_model(np.ones(N_FEATURES), positive=[0.5], classes=(-1.0, 0.5)), "label", "double"),
        ):
            predict(model, data.matrix, output=path)
            table = pq.read_table(path)
            assert [(field.name, str(field.type)) for field in table.schema] == [(name, kind)]
            assert table[name].to_pylist() == predict(model, data.matrix).tolist()
        predict(values, data.matrix[:0], output=path, scores=True)
        assert pq.read_table(path).num_rows == 0

    def test_rows_that_wait_are_counted_once(self, data: Data, tmp_path: Path) -> None:
        looks: list[int] = []

        class Scores(np.ndarray[Any, Any]):
            @property
            def size(self) -> int:
                looks.append(1)
                return len(self)

        decision = Decision.of(linear_model(np.ones(N_FEATURES)))
        table = tables.ParquetTable(tables.Details(decision))
        with (tmp_path / "p.parquet").open("wb") as file:
            table.begin(file)
            for score in np.ones(200):
                table.add(np.array([[score]]).view(Scores))
            assert len(looks) == 200
            table.end()

    def test_where_the_library_is_missing_that_is_said_in_one_sentence(
        self, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        imported: Any = builtins.__import__
        asked: list[str] = []

        def missing(name: str, *arguments: Any) -> Any:
            if name.startswith("pyarrow"):
                asked.append(name)
                raise ImportError(name)
            return imported(name, *arguments)

        monkeypatch.setattr(builtins, "__import__", missing)
        with pytest.raises(UsageError, match=r"needs pyarrow; install it .*or write \.csv"):
            predict(linear_model(np.ones(N_FEATURES)), data.matrix, output=tmp_path / "p.parquet")
        assert asked
        assert list(tmp_path.iterdir()) == []


def test_plain_text_stays_one_line_a_row(named: Model, data: Data, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line break or a tab in its name.*output with the ending \.csv"):
        predict(named, data.matrix, output=tmp_path / "p.txt")
    plain = one_vs_rest(named.weights, 0.1, named.classes, label_names=("a b", 'c"d', "e,f", "g"))
    predict(plain, data.matrix, output=tmp_path / "p.txt")
    assert (tmp_path / "p.txt").read_text().splitlines() == predict(plain, data.matrix).tolist()


def test_the_command_writes_them(named: Model, data: Data, tmp_path: Path) -> None:
    save_model(named, tmp_path / "m")
    text = data.text(tmp_path / "rows.svm")
    words = ["predict", str(tmp_path / "m"), str(text), "-o", str(tmp_path / "p.csv")]
    assert CliRunner().invoke(app, words).exit_code == 0
    head, rows = read(tmp_path / "p.csv")
    assert head == ["label"]
    assert len(rows) == 300


class FullDisk(io.BytesIO):
    """Takes so many bytes, and no more."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, content: Any) -> int:
        if self.tell() + memoryview(content).nbytes > self._most:
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(content)


@pytest.mark.parametrize("most", [0, 4, 100])
@pytest.mark.parametrize("entries", [1, 1 << 20])
def test_an_error_while_parquet_is_written_is_the_only_one(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int, most: int
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(tables, "_GROUP_ENTRIES", entries)
    model, path = linear_model(np.ones(N_FEATURES)), tmp_path / "p.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("ooc_svm.prediction.predict.atomic_write", lambda path, write: write(FullDisk(most)))
        with pytest.raises(OSError, match="no space left"):
            predict(model, data.matrix, output=path)

    def failing(*arguments: Any) -> None:
        raise InputError("the next block is damaged")

    monkeypatch.setattr(tables.ParquetTable, "_write", failing)
    with pytest.raises(InputError, match="the next block is damaged"):
        predict(model, data.matrix, output=path)
    gc.collect()
    assert (unraisable, list(tmp_path.iterdir())) == ([], [])
