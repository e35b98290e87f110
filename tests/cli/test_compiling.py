"""Commands that compile say so, and `warmup` compiles what they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from conftest import SmallData
from helpers.processes import COMMAND
from typer.testing import CliRunner

from ooc_svm.catalog import PROBLEMS
from ooc_svm.cli import compiling, warmup
from ooc_svm.cli.app import app
from ooc_svm.errors import HintWarning
from ooc_svm.ops import compile_events, compiled


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(compiling, "PATIENCE", 0.1)


@pytest.mark.parametrize("quiet", [False, True])
def test_compiling_that_takes_long_is_said_once(capsys, quiet):
    for waits in (0.4, 0.0):  # it goes on, or has taken most of the time
        with compiling.compile_notice(quiet):
            for begins in (True, True, False):  # one inside another
                compile_events.report(begins)
            time.sleep(0.3 - waits / 2)
            compile_events.report(False)
            compile_events.report(True)
            time.sleep(waits / 2)
            compile_events.report(False)
        err = capsys.readouterr().err
        assert err == ("" if quiet else f"{compiling.NOTICE}\n")
    assert not compile_events.listeners


def test_compiling_that_takes_no_time_is_not_said(capsys):
    with compiling.compile_notice(False):
        for begins in (True, False):
            compile_events.report(begins)
        time.sleep(0.3)
    with compiling.compile_notice(False):
        compile_events.report(True)
        compile_events.report(False)
    time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_a_command_says_that_it_compiles_and_the_next_one_does_not(small: SmallData, tmp_path: Path):
    impatient = "from ooc_svm.cli import compiling, main; compiling.PATIENCE = 0.0; main()"
    command = [sys.executable, "-c", impatient, "verify", str(small.store)]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    for expected in (1, 0):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=280
        )
        assert done.stderr.count(compiling.NOTICE) == expected, done.stderr
    done = subprocess.run(
        [*COMMAND, "warmup", "--help"], env=environment, capture_output=True, text=True, check=True
    )
    assert "--problem" in done.stdout


@pytest.fixture
def steps(monkeypatch):
    """What is run in place of training and the other commands."""
    found = []
    monkeypatch.setattr(warmup, "_train", lambda options, values: found.append((options, values)))
    monkeypatch.setattr(warmup, "_use", found.append)
    return found


def test_warmup_says_what_it_does_and_where_the_result_is(steps):
    result = CliRunner().invoke(app, ["warmup", "--problem", "svr", "--problem", "ranking"])
    assert result.exit_code == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == len(steps)
    assert lines[0].startswith(f"1 of {len(steps)}: train svr, epsilon-insensitive, ones, ")
    assert [each for each in steps if isinstance(each, str)] == ["svr", "ranking"]
    assert result.stdout.startswith("compiled in ")
    assert result.stdout.endswith(f"; kept in {compiled.cache_folder()}\n")
    quiet = CliRunner().invoke(app, ["warmup", "--quiet", "--problem", "svr"])
    assert (quiet.exit_code, quiet.stderr) == (0, "")


def test_warmup_is_for_all_problems_losses_and_biases(steps):
    assert CliRunner().invoke(app, ["warmup", "--quiet"]).exit_code == 0
    trained = {(each[0].problem, each[0].loss, each[0].bias) for each in steps if not isinstance(each, str)}
    assert trained == {
        (name, loss, bias)
        for name, entry in PROBLEMS.items()
        for loss in entry.losses
        for bias in entry.biases
    }


def test_warmup_refuses_what_it_cannot_do(steps, monkeypatch):
    result = CliRunner().invoke(app, ["warmup", "--problem", "svm"])
    assert result.exit_code == 2
    assert "--problem must be one of svc, " in result.stderr
    monkeypatch.setattr(compiled, "cache_folder", lambda: None)
    result = CliRunner().invoke(app, ["warmup"])
    assert result.exit_code == 5
    assert "NUMBA_CACHE_DIR" in result.stderr
    assert not steps


def test_the_other_commands_run_on_made_up_rows_without_hints():
    with warnings.catch_warnings():
        warnings.simplefilter("error", HintWarning)
        for problem in PROBLEMS:
            warmup._use(problem)


KILLED = """
import os, signal
from ooc_svm.cli import warmup
warmup._use_rows = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
warmup._use("svr")
"""


@pytest.mark.fault
def test_what_a_killed_warmup_left_is_removed_by_the_next(tmp_path: Path, monkeypatch):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    assert left.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(warmup, "_use_rows", lambda *arguments: None)
    warmup._use("svr")
    assert not list(tmp_path.iterdir())
