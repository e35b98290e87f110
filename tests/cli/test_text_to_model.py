"""``train`` of text on the command line: names of models, standard input, signals, closed folders."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import SmallData
from helpers.processes import LONG, assert_one_sentence, run, started

from ooc_svm.model.file import load_model


@pytest.fixture
def place(tmp_path: Path) -> dict[str, object]:
    """A process in an empty folder of its own, with its scratch data in another."""
    for name in ("here", "scratch"):
        (tmp_path / name).mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    return {"cwd": tmp_path / "here", "env": environment}


def files(place: dict[str, object]) -> list[str]:
    folder = Path(str(place["cwd"]))
    assert not list((folder.parent / "scratch").iterdir())
    return sorted(path.name for path in folder.iterdir())


def test_the_model_has_the_name_of_the_data(small: SmallData, place: dict[str, object]) -> None:
    ended = run("train", small.text, **place)
    assert ended.returncode == 0, ended.stderr
    assert files(place) == ["train.svm.model"]
    assert "\nconversion   " in ended.stdout.replace("conversion ", "\nconversion   ")
    lines = ended.stderr.splitlines()
    assert lines[0].startswith("converted ")
    assert lines[1].startswith("pass 1  ")
    assert run("train", small.store, "--quiet", **place).returncode == 0
    assert files(place) == ["train.svm.model", "train.zarr.model"]
    assert run("train", small.text, "--quiet", "--C", "2", **place).returncode == 0  # replaces its own
    assert load_model(Path(str(place["cwd"])) / "train.svm.model").C == (2.0,)


def test_what_is_no_model_is_not_replaced(small: SmallData, place: dict[str, object]) -> None:
    other = Path(str(place["cwd"])) / "train.svm.model"
    other.write_text("solver_type L2R_L2LOSS_SVC_DUAL\n")
    ended = run("train", small.text, **place)
    assert_one_sentence(ended, 2)
    assert "train.svm.model: is no model of ooc-svm, so it is not replaced" in ended.stderr
    assert other.read_text() == "solver_type L2R_L2LOSS_SVC_DUAL\n"


def test_standard_input(small: SmallData, place: dict[str, object]) -> None:
    ended = run("train", "-", **place)
    assert_one_sentence(ended, 2)
    assert "a model of standard input has no name of its own; name the file to write by -o" in ended.stderr
    with open(small.text, "rb") as text:
        ended = run("train", "-", "-o", "m", "--quiet", stdin=text, **place)
    assert ended.returncode == 0, ended.stderr
    assert files(place) == ["m"]


def test_several_files_need_a_name(small: SmallData, place: dict[str, object]) -> None:
    ended = run("train", small.text, small.test, **place)
    assert_one_sentence(ended, 2)
    assert "a model of several files has no name of its own" in ended.stderr
    assert run("train", small.text, small.test, "-o", "m", "--quiet", **place).returncode == 0


def test_options_of_text_are_refused_with_a_store(small: SmallData, place: dict[str, object]) -> None:
    for option in (["--store", "a"], ["--features", "9"], ["--bad-lines", "skip"]):
        ended = run("train", small.store, *option, **place)
        assert_one_sentence(ended, 2)
        assert f"error: {option[0]} is for text, and this data is none; leave it out" in ended.stderr
    assert files(place) == []


def test_a_bad_line_is_named_and_nothing_is_left(small: SmallData, place: dict[str, object]) -> None:
    text = Path(str(place["cwd"])) / "bad.svm"
    text.write_bytes(small.text.read_bytes() + b"1 2:3 1:4\n")
    ended = run("train", "bad.svm", "--quiet", **place)
    assert_one_sentence(ended, 3)
    assert f"bad.svm:{small.n_rows + 1}:7: " in ended.stderr
    assert files(place) == ["bad.svm"]


def test_a_folder_that_cannot_be_written(small: SmallData, place: dict[str, object]) -> None:
    ended = run("train", small.text, cwd="/proc", env=place["env"])  # not even root may write there
    assert_one_sentence(ended, 5)
    assert "train.svm.model" in ended.stderr
    assert files(place) == []


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_text_is_read_ends_it_at_once(
    number: signal.Signals, place: dict[str, object]
) -> None:
    command = ["train", "-", "-o", "m", "--store", "kept.zarr"]
    with started(*command, stdin=subprocess.PIPE, **place) as process:
        assert process.stdin is not None
        deadline = time.monotonic() + LONG
        while not list(Path(str(place["cwd"])).glob("kept.zarr.building-*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.stdin.write("1 1:1\n")
        process.stdin.flush()
        sent = time.monotonic()
        process.send_signal(number)
        process.wait(timeout=LONG)
        assert time.monotonic() - sent < 6  # and not the time that a training has to come to its end
        assert process.stderr is not None
        error = process.stderr.read()
    assert process.returncode == 128 + number
    assert error.count("\n") == 1
    assert error.startswith(f"ooc-svm: error: interrupted by {number.name}")
    assert files(place) == []
