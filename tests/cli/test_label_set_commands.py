"""Sets of labels on the command line: ``--multilabel``, from text to metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.label_data import LABELS, LabelData, make_labels
from typer.testing import CliRunner

import ooc_svm
from ooc_svm.cli.app import app


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Run a command in this process."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, its store and a model."""
    made = tmp_path_factory.mktemp("labels")
    make_labels(150).write(made / "a.svm")
    out, _ = run("convert", "--multilabel", made / "a.svm", "-o", made / "a.zarr", "--quiet")
    assert "5 labels in" in out
    run("train", made / "a.zarr", "-o", made / "a.model", "--C", "0.1,1", "--quiet")
    return made


def test_information(folder: Path) -> None:
    rows = make_labels(150).Y.sum(axis=0).tolist()
    out, _ = run("info", folder / "a.zarr")
    assert "   ".join(f"{label}: {n}" for label, n in zip(LABELS, rows, strict=True)) in out
    assert "version 3" in out
    facts = json.loads(run("info", folder / "a.zarr", "--json")[0])
    assert facts["labels"] == dict(zip(LABELS, rows, strict=True))
    out, _ = run("info", folder / "a.model")
    assert "labels of a row  1   2   10   cat   dog" in out
    assert json.loads(run("info", folder / "a.model", "--json")[0])["multilabel"] is True
    assert "whole" in run("verify", folder / "a.zarr", "--quiet")[0]


def test_text_directly(folder: Path) -> None:
    for option in (["--multilabel"], ["--labels", "sets"]):
        run("train", folder / "a.svm", *option, "-o", folder / "b.model", "--C", "0.1,1", "--quiet")
        same, own = ooc_svm.load_model(folder / "a.model"), ooc_svm.load_model(folder / "b.model")
        assert same.weights.tobytes() == own.weights.tobytes()


def test_evaluation(folder: Path) -> None:
    out, _ = run("evaluate", folder / "a.model", folder / "a.zarr")
    found = json.loads(run("evaluate", folder / "a.model", folder / "a.svm", "--json", "-")[0])
    assert [line.split()[0] for line in out.splitlines()[:5]] == list(found)[:5]
    assert list(found["classes"]) == LABELS
    (folder / "c.svm").write_text("new,1 1:1\nnew 2:1\n 3:1\n")
    out, _ = run("evaluate", folder / "a.model", folder / "c.svm", "--metric", "jaccard")
    assert "labels that the model does not know, in rows: new: 2" in out


def test_prediction(folder: Path) -> None:
    data: LabelData = make_labels(150)
    model = ooc_svm.load_model(folder / "a.model")
    run("predict", folder / "a.model", folder / "a.svm", "-o", folder / "out.txt")
    wanted = model.predict(data.X)
    lines = (folder / "out.txt").read_text().split("\n")[:-1]
    assert [[label in line.split(",") for label in LABELS] for line in lines] == (wanted > 0).tolist()


def test_tuning(folder: Path) -> None:
    out, _ = run(
        "tune", folder / "a.zarr", "-o", folder / "t.model", "--C", "0.01,1", "--folds", 3, "--quiet"
    )
    assert "micro-f1" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["convert", "--multilabel", "--labels", "text", "a.svm", "-o", "x.zarr"],
            2,
            "contradict each other",
        ),
        (["export", "a.model", "-o", "x", "--to", "liblinear"], 2, "this model sets of labels"),
        (["evaluate", "a.model", "a.zarr", "--confusion", "x.csv"], 2, "the model predicts sets of labels"),
        (
            ["train", "a.zarr", "-o", "x", "--problem", "svr"],
            3,
            "sets of labels, which are for --problem svc",
        ),
        (["train", "a.zarr", "-o", "x", "--positive", "bird"], 3, "no row has the label 'bird'"),
        (["evaluate", "a.model", "a.zarr", "--metric", "accuracy"], 2, "subset-accuracy"),
    ],
)
def test_refusals(folder: Path, monkeypatch: pytest.MonkeyPatch, arguments, code, message) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "ooc_svm.cli", *arguments], capture_output=True, text=True, cwd=folder
    )
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert not list(folder.glob("x*"))
