"""The library writes nothing into a Zarr store, and no results over a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from helpers.scored_data import linear_model

from ooc_svm import UsageError, evaluation_report, export_model, predict, save_model

MATRIX = np.array([[1.0, 2.0], [-1.0, 0.5], [3.0, -1.0]])
LABELS = [1.0, -1.0, 1.0]
MODEL = linear_model(np.array([1.0, -1.0]), 0.25)


def confusion(path: str) -> None:
    evaluation_report(MODEL, MATRIX, labels=LABELS, confusion=True).write_confusion(path)


RESULTS: list[Callable[[str], object]] = [
    confusion,
    lambda path: predict(MODEL, MATRIX, output=path),
    lambda path: export_model(MODEL, path, "liblinear"),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "s.zarr"
    (folder / "X").mkdir(parents=True)
    (folder / "zarr.json").write_text("{}")
    (folder / "X" / "zarr.json").write_text("{}")
    return folder


@pytest.mark.parametrize("write", [*RESULTS, lambda path: save_model(MODEL, path)])
@pytest.mark.parametrize("place", ["zarr.json", "X/zarr.json", "X/new", "c/0/0"])
def test_nothing_is_written_into_a_store(store: Path, write: Callable[[str], object], place: str) -> None:
    (store / "c" / "0").mkdir(parents=True)
    link = store.parent / "link"
    link.symlink_to(store)
    before = sorted(store.rglob("*"))
    for folder in (store, link):
        with pytest.raises(UsageError, match=r"lies in the Zarr store .*s\.zarr(/X)?; choose another folder"):
            write(os.fspath(folder / place))
    assert sorted(store.rglob("*")) == before
    assert {path.read_text() for path in store.rglob("zarr.json")} == {"{}"}


@pytest.mark.parametrize("write", RESULTS)
def test_results_replace_text_and_no_model(tmp_path: Path, write: Callable[[str], object]) -> None:
    path, text = tmp_path / "m", tmp_path / "text"
    save_model(MODEL, path)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is a model of ooc-svm; choose another name to write to"):
        write(os.fspath(path))
    assert path.read_bytes() == before
    text.write_text("old")
    write(os.fspath(text))
    assert text.read_text() != "old"


def test_a_model_replaces_a_model_and_streams_are_no_files(tmp_path: Path) -> None:
    save_model(MODEL, tmp_path / "m")
    save_model(MODEL, tmp_path / "m")
    stream = BytesIO()
    predict(MODEL, MATRIX, output=stream)
    export_model(MODEL, stream, "liblinear")
    assert stream.getvalue().count(b"\n") > len(LABELS)


def test_the_names_of_classes_go_into_no_store(store: Path) -> None:
    named = linear_model(np.array([1.0, -1.0]), 0.25, label_names=("no", "yes"))
    labels = store.parent / "out.labels"
    labels.symlink_to(store / "zarr.json")
    with pytest.raises(UsageError, match=r"out\.labels: lies in the Zarr store"):
        export_model(named, store.parent / "out", "liblinear")
    assert (store / "zarr.json").read_text() == "{}"
