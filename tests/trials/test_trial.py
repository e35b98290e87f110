"""The trial of four users: it passes where all is as it must be, and only there."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
PATHS = [str(SCRIPTS), str(SCRIPTS / "bench")]


@pytest.fixture
def trial(monkeypatch):
    """The module of the program."""
    for path in PATHS:
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(PATHS))
    return importlib.import_module("trials.__main__")


def test_a_user_is_content():
    environment = {name: value for name, value in os.environ.items() if name != "OOC_SVM_DATA"}
    done = subprocess.run(
        [sys.executable, "-m", "trials", "--user", "anndata", "--size", "0.1"],
        env=environment | {"PYTHONPATH": os.pathsep.join(PATHS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = [line for line in done.stdout.splitlines() if line.startswith("| anndata |")]
    assert len(rows) > 15
    assert all(row.endswith("| yes |") for row in rows)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("exit 3", "exit code 3 instead of 2"),
        ("echo 'Traceback' >&2; exit 2", "no error of one sentence"),
        ("echo accuracy 0.5; echo 'ooc-svm: error: no' >&2; exit 2", "accuracy is 0.5"),
        ("echo accuracy of 0.9; echo 'ooc-svm: error: no' >&2; exit 2", "no accuracy is printed"),
    ],
)
def test_a_step_that_is_wrong_is_told(trial, typed, said, monkeypatch, capsys):
    from trials.checks import near

    def play(session, size, real):
        session.shell("echo fine")
        session.shell(typed, near("accuracy", 0.9, 0.1), code=2)

    monkeypatch.setitem(trial.USERS, "liblinear", play)
    monkeypatch.setattr(sys, "argv", ["trial", "--user", "liblinear"])
    monkeypatch.delenv("OOC_SVM_DATA", raising=False)
    assert trial.main() == 1
    printed = capsys.readouterr().out
    assert f"NOT SO: {said}" in printed
    assert "2 steps" in printed
    assert "1 not what they must be" in printed


def test_checks_of_what_is_printed_and_made(trial, tmp_path):
    from processes import Usage
    from trials.checks import Unmet, lines, makes, says, within

    usage = Usage(1.0, 5_000_000, 0, "one\ntwo\n", "three\n")
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_text("x")
    for check in (says("two", "three"), lines(2), makes("full"), within("5MB")):
        assert check(usage, tmp_path)
    for check in (says("two", "four"), lines(3), makes("full", "none"), makes("empty"), within("4MB")):
        with pytest.raises(Unmet):
            check(usage, tmp_path)
