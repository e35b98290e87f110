"""Fitted probabilities on the command line: train, tune, predict, evaluate, info, export and report."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SmallData
from scipy.special import expit
from test_cli import facts, run

from ooc_svm import load_model
from ooc_svm.cli.reliability import draw_curves, read_curves


@pytest.fixture(scope="module")
def trained(small: SmallData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str, str]:
    """A model, its report, and what was printed."""
    folder = tmp_path_factory.mktemp("calibrated")
    files = "-o", folder / "m", "--report", folder / "r.json"
    out, err = run("train", small.store, *files, "--calibrate", "sigmoid")
    return folder / "m", folder / "r.json", out, err


def test_training_says_what_they_were_fitted_to(trained: Any, small: SmallData) -> None:
    model, report, out, err = trained
    found = json.loads(report.read_text())
    assert load_model(model).report == found
    calibration = found["calibration"]
    [own] = calibration["functions"]
    text = f"sigmoid on 5 folds of {small.n_rows // 5} rows, 5 models: log-loss {own['log-loss']:.4g}"
    assert facts(out)["probabilities"] == text
    assert facts(run("info", model)[0])["probabilities"] == text
    assert (
        f"5 folds of {small.n_rows // 5} rows for the probabilities: 5 models without a fold and 1 of" in err
    )
    worst = max(row["relative_gap"] for row in [*found["models"], *calibration["models"]])
    assert (
        f"of the worst model, asked for {found['tol']:g}".replace("0.001", "1e-3") in facts(out)["certified"]
    )
    assert worst <= found["tol"]
    assert json.loads(run("info", model, "--json")[0])["calibration"] == "sigmoid"


def test_predictions_have_them(trained: Any, small: SmallData, tmp_path: Path) -> None:
    model = trained[0]
    run("predict", model, small.test, "--scores", "--probabilities", "-o", tmp_path / "p")
    head, *rows = [line.split("\t") for line in (tmp_path / "p").read_text().splitlines()]
    assert head == ["label", "score", "probability of -1", "probability of 1"]
    numbers = np.array(rows, np.float64)
    [own] = load_model(model).calibration.maps  # type: ignore[union-attr]
    np.testing.assert_allclose(numbers[:, 3], expit(own.log_odds(numbers[:, 1])), rtol=1e-12)
    evaluated = facts(run("evaluate", model, small.test)[0])
    assert {"log-loss", "brier-score", "calibration-error"} <= set(evaluated)


def test_a_share_held_out(small: SmallData, tmp_path: Path) -> None:
    wanted = "--calibrate", "isotonic", "--validation", 0.3, "--C", "0.1,1"
    out, _ = run("train", small.store, "-o", tmp_path / "m", *wanted, "--quiet")
    assert re.fullmatch(r"isotonic on \d+ rows held out: log-loss [\d.]+", facts(out)["probabilities"])


def test_several_classes_have_a_temperature(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((300, 3))
    lines = (f"{row.argmax()} 1:{row[0]} 2:{row[1]} 3:{row[2]}\n" for row in rows)
    (tmp_path / "a.svm").write_text("".join(lines))
    wanted = "-o", tmp_path / "m", "--calibrate", "sigmoid", "--C", "0.1,1", "--quiet"
    out, _ = run("train", tmp_path / "a.svm", *wanted)
    model = load_model(tmp_path / "m")
    own = model.report["calibration"]["classes"][1]
    loss = f"log-loss {own['log-loss']:.4g} at the temperature {own['temperature']:.3g}"
    for text in (out, run("info", tmp_path / "m")[0]):
        assert facts(text)["probabilities"].endswith(loss)
    run("predict", tmp_path / "m", tmp_path / "a.svm", "--probabilities", "-o", tmp_path / "p")
    found = np.loadtxt(tmp_path / "p", skiprows=1)[:, 1:]
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found, model.predict_proba(tmp_path / "a.svm"), rtol=1e-12)


def test_tuning_by_them(small: SmallData, tmp_path: Path) -> None:
    wanted = "--calibrate", "sigmoid", "--metric", "log-loss", "--C", "0.01,1", "--folds", 3, "--quiet"
    out, _ = run("tune", small.store, "-o", tmp_path / "m", *wanted)
    found = load_model(tmp_path / "m").report
    [own] = [own for own in found["calibration"]["functions"] if own["C"] == found["tuning"]["C"]]
    assert facts(out)["probabilities"] == f"sigmoid on 3 folds of 100 rows: log-loss {own['log-loss']:.4g}"
    assert facts(out)["chosen"].startswith(f"C {found['tuning']['C']:g}: log-loss ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--problem", "svr"), "--calibrate is for the problems 'svc' and 'nu-svc', not 'svr'"),
        (("--problem", "ranking"), "--calibrate is for the problems 'svc' and 'nu-svc', not 'ranking'"),
        (("--calibrate", "beta"), "--calibrate must be 'sigmoid' or 'isotonic', not 'beta'"),
    ],
)
def test_what_has_no_classes_is_refused(
    options: tuple[str, ...], message: str, small: SmallData, tmp_path: Path
) -> None:
    given = options if "--calibrate" in options else (*options, "--calibrate", "sigmoid")
    _, err = run("train", small.store, "-o", tmp_path / "m", *given, code=2)
    assert err == f"ooc-svm: error: {message}\n"


def test_a_class_with_fewer_rows_than_folds(tmp_path: Path) -> None:
    text = tmp_path / "t.svm"
    text.write_text("".join(f"{1 if k < 3 else 2} 1:{k + 1}\n" for k in range(40)))
    _, err = run("train", text, "-o", tmp_path / "m", "--calibrate", "sigmoid", "--quiet", code=3)
    assert err == (
        "ooc-svm: error: --calibrate sigmoid takes 5 folds, and needs as many rows of the class 1, one for "
        "each fold, and there are 3; leave --calibrate out, take tune with fewer folds (--folds), or leave "
        "the class out\n"
    )
    assert not (tmp_path / "m").exists()


def test_a_model_without_them_says_how_to_get_some(small: SmallData, tmp_path: Path) -> None:
    run("train", small.store, "-o", tmp_path / "m", "--quiet")
    _, err = run("predict", tmp_path / "m", small.test, "--probabilities", code=2)
    assert err == (
        "ooc-svm: error: a model with the loss hinge gives scores and no probabilities; train one with "
        "--calibrate sigmoid, --calibrate isotonic or --loss logistic\n"
    )
    run("train", small.store, "-o", tmp_path / "values", "--problem", "svr", "--quiet")
    _, err = run("predict", tmp_path / "values", small.test, "--probabilities", code=2)
    assert (
        err
        == "ooc-svm: error: a model of the problem svr gives no probabilities; they are of classes (svc)\n"
    )


@pytest.mark.filterwarnings("always")
def test_an_export_says_what_it_leaves_out(trained: Any, tmp_path: Path) -> None:
    for kind in ("liblinear", "svmlight"):
        _, err = run("export", trained[0], "-o", tmp_path / kind, "--to", kind)
        assert err == (
            f"ooc-svm: warning: the format of {kind} has scores alone: the probabilities that the model was "
            "calibrated to give are left out\n"
        )
        assert (tmp_path / kind).exists()


class TestReliability:
    def test_the_table(self, trained: Any) -> None:
        out, _ = run("report", trained[1], "--reliability")
        head, *rows = out.splitlines()
        assert head.split() == ["run", "from", "to", "rows", "probability", "share", "of", "the", "class"]
        bins = load_model(trained[0]).report["calibration"]["functions"][0]["bins"]
        assert [row.split() for row in rows] == [
            [
                *("r", f"{each['low']:g}", f"{each['high']:g}", f"{each['rows']:g}"),
                *(f"{each['probability']:.4f}", f"{each['share']:.4f}"),
            ]
            for each in bins
        ]
        assert run("report", trained[0], "--reliability")[0] == out.replace("  r ", "  m ")

    def test_bins_are_whole(self, trained: Any, small: SmallData) -> None:
        [curve] = read_curves([str(trained[1])])
        assert sum(each.rows for each in curve.bins) == pytest.approx(small.n_rows)
        assert all(each.low <= each.probability <= each.high for each in curve.bins)
        [own] = load_model(trained[0]).report["calibration"]["functions"]
        mean = sum(each.rows * each.share for each in curve.bins) / small.n_rows
        assert 0.0 < mean < 1.0
        assert own["rows"] == small.n_rows

    def test_functions_are_put_together(self, tmp_path: Path) -> None:
        text = tmp_path / "t.svm"
        text.write_text("".join(f"{k % 3} {k % 3 + 1}:1 4:{k % 7 + 1}\n" for k in range(90)))
        run("train", text, "-o", tmp_path / "m", "--calibrate", "sigmoid", "--quiet", "--C", "0.1,1")
        [curve] = read_curves([str(tmp_path / "m")])
        assert sum(each.rows for each in curve.bins) == pytest.approx(3 * 90)
        assert sum(each.rows * each.share for each in curve.bins) == pytest.approx(90)

    @pytest.mark.parametrize("ending", ["png", "svg", "html"])
    def test_pictures(self, ending: str, trained: Any, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        for name in ("a", "b"):
            run("report", trained[0], trained[1], "--reliability", "-o", tmp_path / f"{name}.{ending}")
        content = (tmp_path / f"a.{ending}").read_bytes()
        assert content == (tmp_path / f"b.{ending}").read_bytes()
        if ending == "html":
            assert "<title>Reliability of probabilities</title>" in content.decode()
            assert "share of the class" in content.decode()
        if ending == "svg":
            ElementTree.fromstring(content)

    def test_the_lines_are_those_of_the_bins(self, trained: Any) -> None:
        pytest.importorskip("matplotlib")
        [curve] = read_curves([str(trained[1])])
        upper, lower = draw_curves([curve]).axes
        drawn = upper.get_lines()[1].get_xydata()
        np.testing.assert_allclose(drawn, [(each.probability, each.share) for each in curve.bins])
        assert [bar.get_height() for bar in lower.patches] == [each.rows for each in curve.bins]
        assert upper.get_xlim() == lower.get_xlim()

    def test_a_run_without_them(self, small: SmallData, tmp_path: Path) -> None:
        run("train", small.store, "-o", tmp_path / "m", "--quiet")
        _, err = run("report", tmp_path / "m", "--reliability", code=3)
        assert err == (
            f"ooc-svm: error: {tmp_path / 'm'} has no calibration to show; make a report of a run with "
            "--calibrate\n"
        )

    @pytest.mark.fault
    @pytest.mark.parametrize(
        "calibration",
        [
            {},
            {"functions": []},
            {"functions": [{}]},
            {"functions": [{"C": 1, "bins": 3}]},
            {"functions": [{"C": 1, "bins": ["x"]}]},
            {"functions": [{"C": 1, "bins": [{"low": 0, "high": 1, "rows": 1, "probability": 0.5}]}]},
            {
                "functions": [
                    {"C": 1, "bins": [dict.fromkeys(("low", "high", "rows", "probability", "share"), "x")]}
                ]
            },
            {
                "functions": [
                    {"C": 1, "bins": [dict.fromkeys(("low", "high", "rows", "probability", "share"), 0)]}
                ]
            },
        ],
    )
    def test_a_malformed_report(self, calibration: Any, tmp_path: Path) -> None:
        (tmp_path / "r.json").write_text(json.dumps({"calibration": calibration}))
        _, err = run("report", tmp_path / "r.json", "--reliability", code=3)
        assert err == (
            f"ooc-svm: error: the calibration in {tmp_path / 'r.json'} is malformed; make the report again\n"
        )
