"""``--positive``: what stands for all other classes in predictions and in what is exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_cli import run

from ooc_svm import convert_matrix, load_model

HINT = "ooc-svm: hint: -1 in predictions stands for all labels that are not --positive, and one of them is -1"


def store_of(folder: Path, labels: str, *options: str) -> Path:
    """Rows with these labels in turn, the first of them on one side of a plane."""
    names = labels.split()
    lines = [f"{name} 1:{1 if name == names[0] else -1} 2:{row}\n" for row in range(4) for name in names]
    (folder / "a.svm").write_text("".join(lines))
    run("convert", folder / "a.svm", "-o", folder / "a.zarr", "--quiet", *options)
    return folder / "a.zarr"


@pytest.mark.parametrize(
    ("labels", "positive", "written"),
    [
        ("spam Spam ham egg", "spam,Spam", "0\tSpam\n-1\tall others\n"),
        ("spam ham", "spam", "1\tspam\n0\tham\n"),
        ("spam Spam ham", "spam,Spam", "0\tSpam\n1\tham\n"),
    ],
)
@pytest.mark.parametrize("program", ["liblinear", "libsvm"])
def test_each_label_of_an_exported_model_has_a_line(
    tmp_path: Path, labels: str, positive: str, written: str, program: str
) -> None:
    store = store_of(tmp_path, labels, "--labels", "text")
    run("train", store, "-o", tmp_path / "m", "--positive", positive, "--quiet")
    run("export", tmp_path / "m", "-o", tmp_path / "m.out", "--to", program)
    assert (tmp_path / "m.out.labels").read_text() == written
    numbers = [line.split("\t")[0] for line in written.splitlines()]
    [own] = [line for line in (tmp_path / "m.out").read_text().splitlines() if line.startswith("label ")]
    assert own.split()[1:] == numbers


@pytest.mark.parametrize("command", ["train", "tune"])
@pytest.mark.parametrize(
    ("labels", "options", "positive", "hinted"),
    [
        ("1 -1 2", (), "1", True),
        ("spam -1 egg", ("--labels", "text"), "spam", True),
        ("1 -1", (), "1", False),
        ("1 -1", (), "", False),
        ("1 2 3", (), "1", False),
        ("1 -1 2", (), "1,2", False),
    ],
)
def test_a_class_called_as_all_others_is_hinted_at(
    tmp_path: Path, command: str, labels: str, options: tuple[str, ...], positive: str, hinted: bool
) -> None:
    store = store_of(tmp_path, labels, *options)
    more = ("--folds", 2) if command == "tune" else ()
    named = ("--positive", positive) if positive else ()
    _, err = run(command, store, "-o", tmp_path / "m", *named, "--quiet", *more)
    assert (HINT in err) == hinted


@pytest.mark.parametrize(
    ("labels", "options", "positive", "line"),
    [
        ("spam Spam ham egg", ("--labels", "text"), "Spam,spam", "Spam   spam; others are predicted as -1"),
        ("spam ham", ("--labels", "text"), "spam", "spam; others are predicted as ham"),
        ("1 2 3", (), "1,3", "1   3; others are predicted as 2"),
        ("1 2", (), "", ""),
    ],
)
def test_info_shows_both_sides(
    tmp_path: Path, labels: str, options: tuple[str, ...], positive: str, line: str
) -> None:
    store = store_of(tmp_path, labels, *options)
    run("train", store, "-o", tmp_path / "m", *(("--positive", positive) if positive else ()), "--quiet")
    text, _ = run("info", tmp_path / "m")
    shown = [each.split(maxsplit=1) for each in text.split("\n\n")[0].splitlines()]
    assert [rest for name, rest in shown if name == "positive"] == ([line] if line else [])


def test_a_label_with_commas_stands_in_double_quotes(tmp_path: Path) -> None:
    rows = np.repeat(np.eye(3), 20, axis=0)
    names = np.repeat(["a", "b,c", "d"], 20)
    convert_matrix(rows, names, tmp_path / "a.zarr")
    for positive, expected in (('"b,c"', [1.0]), ('"b,c",a', [0.0, 1.0])):
        run("train", tmp_path / "a.zarr", "-o", tmp_path / "m", "--positive", positive, "--quiet")
        model = load_model(tmp_path / "m")
        assert model.label_names == ("a", "b,c", "d")
        assert sorted(model.options["positive"]) == expected
    run("train", tmp_path / "a.zarr", "-o", tmp_path / "m", "--class-weight", '"b,c":3,a:2', "--quiet")
    assert load_model(tmp_path / "m").options["class_weight"] == [["b,c", 3.0], ["a", 2.0]]
