"""``ooc-svm tune``: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import SmallData
from test_cli import facts, run

from ooc_svm import load_model, train
from ooc_svm.cli.report import comparison

WANTED = ("--bias", "none", "--C", "1e-6,0.1,1", "--folds", 4)


def last_table(text: str) -> list[list[str]]:
    return [line.split() for line in text.split("\n\n")[-1].splitlines()]


@pytest.mark.parametrize(
    ("size", "written"), [(0.51, "0.5100"), (2.5e-9, "2.5e-09"), (1.27977140584947e10, "1.28e+10")]
)
def test_values_of_any_size_can_be_told_apart(size: float, written: str) -> None:
    compared = [
        {"C": C, "mean": part * size, "standard_error": 0.0, "values": [part * size] * 2, "converged": True}
        for C, part in ((0.1, 1.0), (1.0, 0.9))
    ]
    tuning = {"C": 0.1, "metric": "mse", "folds": [5, 5], "values": compared}
    _, first, second = comparison(tuning).splitlines()
    assert first.split()[1] == written
    assert first.split()[1] != second.split()[1]


def test_the_choice_and_the_table(small: SmallData, tmp_path: Path) -> None:
    files = "-o", tmp_path / "m", "--report", tmp_path / "r.json", "--log", tmp_path / "l"
    out, err = run("tune", small.store, *files, "--metric", "auc", *WANTED)
    report = json.loads((tmp_path / "r.json").read_text())
    found, model = report["tuning"], load_model(tmp_path / "m")
    assert model.report == report
    assert model.C[model.selected] == found["C"]
    [chosen] = [each for each in found["values"] if each["C"] == found["C"]]
    lines = facts(out)
    known = run("info", tmp_path / "m")[0]
    assert facts(known)["predicts with"] == f"C {found['C']:g}"
    assert last_table(known) == last_table(out)
    assert lines["certified"].startswith("yes, relative gap ")
    spread = f"auc {chosen['mean']:.4g} with a standard error of {chosen['standard_error']:.2g}"
    assert lines["chosen"] == f"C {chosen['C']:g}: {spread}, the highest"
    assert lines["compared"] == "3 values of C on 4 folds of 75 rows, 12 models"
    head, *rows = last_table(out)
    names = "C", "auc", "standard error", *(f"fold {fold}" for fold in range(1, 5)), "certified"
    assert head == " ".join(names).split()
    for row, each in zip(rows, found["values"], strict=True):
        numbers = [each["mean"], each["standard_error"], *each["values"]]
        last = ["yes", "chosen"] if each is chosen else ["yes"]
        assert row == [f"{each['C']:g}", *(f"{number:.4f}" for number in numbers), *last]
    assert "4 folds of 75 rows, 3 value(s) of C: 12 models without a fold and 3 of all rows" in err
    assert re.search(r"^pass 1 .* \d+ models to go$", err, re.MULTILINE)
    assert len((tmp_path / "l").read_text().splitlines()) == report["passes"]


def test_the_gap_is_that_of_the_worst_model_of_all(small: SmallData, tmp_path: Path) -> None:
    out, _ = run("tune", small.store, "-o", tmp_path / "m", *WANTED, "--max-passes", 1, "--quiet")
    report = load_model(tmp_path / "m").report
    assert not report["converged"]
    assert report["stop_reason"] in ("max-passes", "max-passes, certified", "certified, max-passes")
    assert facts(out)["certified"].startswith("no, stopped by ")
    certified = ["yes" if each["converged"] else "no" for each in report["tuning"]["values"]]
    assert [row[7] for row in last_table(out)[1:]] == certified
    assert "no" in certified


def test_quiet_and_the_default_name(
    small: SmallData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, err = run("tune", small.store, *WANTED, "--quiet")
    assert all(line.startswith("ooc-svm: hint: ") for line in err.splitlines())
    assert load_model("train.zarr.model").report["tuning"]["metric"] == "accuracy"


def test_one_value_is_cross_validated(small: SmallData, tmp_path: Path) -> None:
    out, err = run("tune", small.store, "-o", tmp_path / "m", "--bias", "none", "--quiet")
    assert facts(out)["compared"] == "1 value of C on 5 folds of 60 rows, 5 models"
    assert "largest" not in err
    weights = train(small.store, bias="none").weights
    assert np.array_equal(load_model(tmp_path / "m").weights, weights)


def test_another_store(small: SmallData, tmp_path: Path) -> None:
    run("convert", small.test, "-o", tmp_path / "test.zarr")
    place = "-o", tmp_path / "m", "--validation", tmp_path / "test.zarr"
    out, _ = run("tune", small.store, *place, "--metric", "f1", "--C", "1e-6,1", "--bias", "none")
    assert facts(out)["compared"] == f"2 values of C on {tmp_path / 'test.zarr'}"
    evaluated, _ = run("evaluate", tmp_path / "m", tmp_path / "test.zarr", "--metric", "f1")
    [row] = [row for row in last_table(out) if row[-1] == "chosen"]
    assert float(row[1]) == pytest.approx(float(evaluated.split()[1]), abs=1e-4)


def test_a_grid_has_a_column_for_each_number(small: SmallData, tmp_path: Path) -> None:
    place = "-o", tmp_path / "m", "--report", tmp_path / "r.json", "--folds", 2
    out, _ = run("tune", small.store, *place, "--problem", "nu-svc", "--grid", "nu=0.1,0.3")
    head, *rows = last_table(out)
    assert head[:3] == ["C", "nu", "accuracy"]
    chosen = json.loads((tmp_path / "r.json").read_text())["tuning"]["chosen"]
    assert [row[1] for row in rows if row[-1] == "chosen"] == [f"{chosen['nu']:g}"]
    assert facts(out)["chosen"].startswith(f"C 1, nu {chosen['nu']:g}: accuracy ")
    assert facts(out)["compared"].startswith("2 values of C and nu on 2 folds of ")
    assert load_model(tmp_path / "m").options["nu"] == chosen["nu"]


def test_degrees_are_whole_numbers(small: SmallData, tmp_path: Path) -> None:
    own = "--kernel", "poly", "--grid", "degree=1,2"
    out, _ = run("tune", small.store, "-o", tmp_path / "m", "--folds", 2, "--tol", 0.1, *own)
    assert [row[1] for row in last_table(out)] == ["degree", "1", "2"]
    assert load_model(tmp_path / "m").options["degree"] in (1, 2)
    assert "6 model(s)" in run("plan", small.store, "--folds", 2, *own)[0]


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    [
        ("--metric mse", 2, "mse is no metric for two classes; for this model choose from accuracy,"),
        ("--C 1,1", 2, "--C holds the same value twice"),
        (
            "--metric f1,auc",
            2,
            "--metric is 'f1,auc', and values are compared by one metric; give one of them",
        ),
        ("--folds 1", 2, "--folds must be an integer from 2 to 100, not 1"),
        ("--folds two", 2, "--folds must be an integer from 2 to 100, not 'two'"),
        ("--rule worst", 2, "--rule must be 'best' or 'one-standard-error', not 'worst'"),
        ("--validation 0.1", 2, "--validation names a store here, not a share of the rows"),
        ("--validation none.zarr --folds 3", 2, "--folds and --validation are two ways to compare"),
        ("--validation none.zarr", 3, "none.zarr does not exist"),
        ("--memory 100MB", 6, "training needs "),
        ("--grid nu", 2, "--grid: 'nu' is not NAME=NUMBERS; write for example nu=0.1,0.2"),
        ("--grid nu=", 2, "--grid: 'nu=' is not NAME=NUMBERS"),
        (
            "--kernel poly --grid degree=2.5",
            2,
            "--grid: 'degree=2.5' is not NAME=WHOLE NUMBERS; write for example degree=2,3",
        ),
        ("--grid nu=0.1", 2, "--nu is for the problems 'nu-svc' and 'nu-svr', not 'svc'"),
        ("--problem nu-svc --grid nu=0.1 --nu 0.2", 2, "--grid has values for nu; leave --nu out"),
        ("--grid nu=0.1 --grid nu=0.2", 2, "--grid: 'nu' is given twice"),
        ("-v 5", 2, "options of another program: write --folds 5 for -v 5"),
        ("-C", 2, "options of another program: write --C 0.01,0.1,1 for -C"),
    ],
)
def test_what_is_refused(small: SmallData, tmp_path: Path, typed: str, code: int, message: str) -> None:
    _, err = run("tune", small.store, "-o", tmp_path / "m", *typed.split(), code=code)
    assert message in err.splitlines()[-1]
    assert not (tmp_path / "m").exists()


def test_a_class_with_fewer_rows_than_folds(tmp_path: Path) -> None:
    lines = [f"{'rare' if i < 3 else 'common'} 1:{i}\n" for i in range(30)]
    (tmp_path / "a.svm").write_text("".join(lines))
    run("convert", tmp_path / "a.svm", "-o", tmp_path / "a.zarr", "--labels", "text")
    _, err = run("tune", tmp_path / "a.zarr", "-o", tmp_path / "m", code=3)
    assert "--folds 5 needs as many rows of the class rare, one for each fold, and there are 3" in err


def test_train_leads_to_it(small: SmallData) -> None:
    _, err = run("train", "-v", 5, small.store, code=2)
    assert "write tune --folds 5 for -v 5 (a command of its own, all folds in the same reads)" in err


def test_a_plan_with_folds(small: SmallData) -> None:
    out, _ = run("plan", small.store, "--C", "0.1,1", "--folds", 3, "--bias", "none")
    assert "8 model(s)" in out


def test_help_says_what_options_of_training_mean_here() -> None:
    text = " ".join(run("tune", "--help")[0].split())
    assert "--validation STORE Another store to compare on, in place of folds" in text
    assert "SHARE|STORE" not in text
    assert "--validation SHARE" not in text
    assert "held out for validation" not in text
    assert "five folds of their own. Only for svc and nu-svc." in text
    assert "--validation SHARE|STORE" in " ".join(run("train", "--help")[0].split())
