"""Runs side by side: the table, the pictures, and what is no report."""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from conftest import SmallData
from typer.testing import CliRunner

from ooc_svm import save_model, train
from ooc_svm.cli.app import app
from ooc_svm.cli.format import bound
from ooc_svm.cli.pictures import draw
from ooc_svm.cli.runs import read_reports


def course(gaps: list[float], seconds: float = 1.0, **facts: Any) -> dict[str, Any]:
    """A report whose gap falls like this, a pass a time."""
    history = [
        {"pass": number, "seconds": seconds * number, "bytes_read": 10**6 * number, "relative_gap": gap}
        for number, gap in enumerate(gaps, 1)
    ]
    ends = {"passes": len(gaps), "bytes_read": 10**6 * len(gaps), "seconds": seconds * len(gaps)}
    models = [{"C": 1.0, "relative_gap": gaps[-1], "absolute": gaps[-1] == 0}]
    return {**ends, "converged": True, "tol": 1e-3, "history": history, "models": models, **facts}


@pytest.fixture
def reports(tmp_path: Path) -> list[Path]:
    """Two runs by different solvers with different C."""
    paths = [tmp_path / "first.json", tmp_path / "sub" / "second.json"]
    paths[1].parent.mkdir()
    slow = course([0.9 / 2**k for k in range(60)], 0.5, solver="ocas", problem="svc")
    paths[0].write_text(json.dumps(course([0.5, 0.02, 5e-4], solver="streamed-smo", problem="svc")))
    models = [{"C": C, "relative_gap": gap} for C, gap in ((0.1, 0.9 / 2**59), (1, 1e-19))]
    paths[1].write_text(json.dumps(slow | {"converged": False, "models": models}))
    return paths


def call(*arguments: object, code: int = 0) -> str:
    """What the command prints, or its error."""
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert done.exit_code == code, (done.stdout, done.stderr)
    if code:
        [line] = done.stderr.splitlines()
        return line.removeprefix("ooc-svm: error: ")
    assert done.stderr == ""
    return done.stdout


def test_the_table(reports: list[Path]) -> None:
    head, *rows = (line.split("  ") for line in call(*reports).splitlines())
    cells = [[cell.strip() for cell in row if cell.strip()] for row in (head, *rows)]
    assert cells == [
        ["run", "passes", "read", "time", "to 1e-1", "to 1e-2", "to 1e-3", "gap", "certified"],
        [
            *("first (streamed-smo, C 1)", "3", "3 MB", "3.0 s"),
            *("2 passes, 2.0 s", "3 passes, 3.0 s", "3 passes, 3.0 s", "5e-4", "yes"),
        ],
        [
            *("second (ocas, C 0.1, 1)", "60", "60 MB", "30 s"),
            *("5 passes, 2.5 s", "8 passes, 4.0 s", "11 passes, 5.5 s", "1.6e-18", "no"),
        ],
    ]


def test_runs_of_the_same_options_are_told_by_their_files(reports: list[Path], tmp_path: Path) -> None:
    twin = tmp_path / "sub" / "first.json"
    twin.write_text(reports[0].read_text())
    assert [run.name for run in read_reports([str(reports[0]), str(twin)])] == [str(reports[0]), str(twin)]
    assert [run.name for run in read_reports([str(twin)])] == ["first"]


def test_a_model_has_its_report_inside(small: SmallData, tmp_path: Path) -> None:
    model = train(small.store, C=[0.1, 1.0])
    save_model(model, tmp_path / "m.model")
    [run] = read_reports([str(tmp_path / "m.model")])
    assert run.course.gaps == [row["relative_gap"] for row in model.report["history"]]
    assert run.course.passes == list(range(1, model.report["passes"] + 1))
    assert run.tol == 1e-3
    assert "m " in call(tmp_path / "m.model")


@pytest.mark.parametrize("owner", ["models", "tuning", "calibration"])
def test_the_gap_is_that_of_the_worst_model_in_the_end(owner: str, tmp_path: Path) -> None:
    """Of a fold as well; pruning makes it larger than that of the last pass."""
    facts, worst = course([0.5, 1e-4]), [{"relative_gap": 0.125}]
    facts["models"] += worst if owner == "models" else []
    facts |= {owner: {"models": worst}} if owner != "models" else {}
    (tmp_path / "a.json").write_text(json.dumps(facts))
    assert "  1.3e-1  " in call(tmp_path / "a.json")
    worst[0]["relative_gap"] = None  # type: ignore[assignment]
    (tmp_path / "a.json").write_text(json.dumps(facts))
    assert "  -    " in call(tmp_path / "a.json")


def test_the_gap_of_a_pruned_model(small: SmallData, tmp_path: Path) -> None:
    model = train(small.store, prune=0.3)
    save_model(model, tmp_path / "m.model")
    [found] = model.report["models"]
    assert found["relative_gap"] > 10 * model.report["history"][-1]["relative_gap"]
    assert f"  {bound(found['relative_gap'])}  " in call(tmp_path / "m.model")


def test_the_course_of_batches_is_that_of_all_models(tmp_path: Path) -> None:
    """Before the last batch some models had no gap, and after it those of the others stay."""
    facts = course([0.5, 1e-4, 0.8, 0.02, 0.9, 0.05, 1e-3])
    for row, batch in zip(facts["history"], [1, 1, 2, 2, 3, 3, 3], strict=True):
        row["batch"] = batch
    facts["models"] = [{"relative_gap": gap} for gap in (1e-4, 0.02, 1e-3)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(facts))
    [run] = read_reports([str(path)])
    assert (run.course.passes, run.course.gaps) == ([5, 6, 7], [0.9, 0.05, 0.02])
    [_, line] = call(path).splitlines()
    assert line.split()[6:] == ["6", "passes,", "6.0", "s", "-", "-", "2e-2", "yes"]
    facts["history"][3]["relative_gap"] = None  # the second batch ended without a bound
    path.write_text(json.dumps(facts))
    [run] = read_reports([str(path)])
    assert run.course.gaps == []


def test_what_is_drawn(reports: list[Path]) -> None:
    runs = read_reports([str(path) for path in reports])
    figure = draw(runs)
    assert [place.get_xlabel() for place in figure.axes] == ["reads of the data", "MB read", "seconds"]
    for place, scale in zip(figure.axes, ["log", "log", "linear"], strict=True):
        assert (place.get_yscale(), place.get_xscale()) == ("log", scale)
        lines = {line.get_label(): line for line in place.get_lines()}
        for run in runs:
            assert list(lines[run.name].get_ydata()) == run.course.gaps
        others = [line for label, line in lines.items() if label not in {run.name for run in runs}]
        assert [list(line.get_ydata()) for line in others] == [[1e-3, 1e-3]]  # the gap that was asked for
    first = {line.get_label(): line for line in figure.axes[1].get_lines()}[runs[0].name]
    assert list(first.get_xdata()) == [1.0, 2.0, 3.0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [run.name for run in runs]


def test_data_in_memory_have_no_bytes_to_show(tmp_path: Path) -> None:
    facts = course([0.5, 1e-4])
    for row in facts["history"]:
        row["bytes_read"] = 0
    (tmp_path / "a.json").write_text(json.dumps(facts))
    assert len(draw(read_reports([str(tmp_path / "a.json")])).axes) == 2


def test_a_run_without_a_gap_is_drawn_as_nothing(tmp_path: Path) -> None:
    """P is 0 within rounding, or there was no bound yet."""
    (tmp_path / "a.json").write_text(json.dumps(course([0.0]) | {"tol": None}))
    call(tmp_path / "a.json", "-o", tmp_path / "a.png")
    assert " P is 0  " in call(tmp_path / "a.json")


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_pictures_are_whole_files_of_their_kind(ending: str, reports: list[Path], tmp_path: Path) -> None:
    path = tmp_path / f"a$b.{ending}"
    assert call(*reports, "-o", path) == ""
    content = path.read_bytes()
    if ending == "png":
        assert content.startswith(b"\x89PNG")
    elif ending == "svg":
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
    else:
        text = content.decode()
        assert text.startswith("<!DOCTYPE html>")
        assert "<svg" in text
        assert "<td>second (ocas, C 0.1, 1)</td>" in text
        assert "src=" not in text  # no other file is needed
    call(*reports, "-o", path)
    assert path.read_bytes() == content


def test_names_mean_nothing_to_a_page_or_a_picture(reports: list[Path], tmp_path: Path) -> None:
    strange = tmp_path / "_<b>$x_1$.json"
    strange.write_text(reports[0].read_text())
    call(strange, "-o", tmp_path / "a.html")
    assert "<b>" not in (tmp_path / "a.html").read_text()
    labels = [text.get_text() for text in draw(read_reports([str(strange)])).legends[0].get_texts()]
    assert labels == [" _<b>\\$x_1\\$"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "1 1:1\n",
        "[]",
        "{}",
        '{"history": 3, "passes": 3}',
        '{"history": [], "passes": 0}',
        '{"history": [3], "passes": 3}',
        '{"history": [{"pass": "3"}], "passes": 3}',
        '{"history": [{"pass": NaN, "seconds": 1, "bytes_read": 1, "relative_gap": 1}], "passes": 3}',
        '{"history": [{"pass": 1, "seconds": 1, "bytes_read": 1, "relative_gap": 1}]}',
        '{"history": [{"pass": 1, "seconds": 1, "bytes_read": 1%s, "relative_gap": 1}], "passes": 1}'
        % ("0" * 400),
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_what_is_no_report(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert call(path, "-o", tmp_path / "a.png", code=3) == (
        f"{path} is no report of a training; make one with train --report FILE.json"
    )
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("C", ["[1]", "1" + "0" * 400, "{}", "true", '"x"', "-1", "NaN"])
def test_costs_that_are_no_numbers_are_left_out(C: str, reports: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(course([0.5])).replace('{"C": 1.0}', f'{{"C": {C}}}'))
    assert [line.split()[0] for line in call(path, reports[0]).splitlines()] == ["run", "a", "first"]


def test_targets_are_checked_first(reports: list[Path], tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    assert call(missing, code=3) == f"{missing} does not exist; check the path"
    assert ".png, .svg or .html" in call(missing, "-o", tmp_path / "a.pdf", code=2)
    call(missing, "-o", tmp_path / "none" / "a.png", code=5)
    precious = tmp_path / "thesis.png"
    precious.write_text("years of work")
    assert "is not replaced" in call(missing, "-o", precious, code=2)
    assert precious.read_text() == "years of work"


def test_without_matplotlib_a_sentence_says_so(
    reports: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = call(*reports, "-o", tmp_path / "a.png", code=2)
    assert said.endswith("missing: pip install 'ooc-svm[plot]', or leave --output out for a table")
    assert not (tmp_path / "a.png").exists()
    assert "first" in call(*reports)


def test_a_name_that_is_no_text_is_drawn(reports: list[Path], tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"x\xff.json")
    place.write_bytes(reports[0].read_bytes())
    for ending in ("svg", "html"):
        found = CliRunner().invoke(app, ["report", str(place), "-o", str(tmp_path / f"p.{ending}")])
        assert found.exit_code == 0
    assert r"x\udcff" in (tmp_path / "p.html").read_text()
