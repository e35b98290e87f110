"""Lines of JSON that follow a training."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest
from conftest import SmallData
from typer.testing import CliRunner

from ooc_svm.cli.app import app


def train(small: SmallData, folder: Path, *arguments: object, code: int = 0) -> str:
    """Train with a log; what standard error has."""
    typed = ["train", small.store, "-o", folder / "m", "--log", folder / "log.jsonl", *arguments]
    done = CliRunner().invoke(app, [str(word) for word in typed])
    assert done.exit_code == code, done.stderr
    return done.stderr


def lines_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_line_a_pass_with_the_fields_of_the_history(small: SmallData, tmp_path: Path) -> None:
    assert train(small, tmp_path, "--quiet", "--report", tmp_path / "r.json") == ""
    lines = lines_of(tmp_path)
    times = [datetime.datetime.fromisoformat(str(line.pop("time"))) for line in lines]
    assert times == sorted(times)
    assert all(time.tzinfo is not None for time in times)
    assert lines == json.loads((tmp_path / "r.json").read_text())["history"]


def test_runs_are_appended_and_a_torn_line_stays_one(small: SmallData, tmp_path: Path) -> None:
    torn = '{"time": "2020", "pass": 1}\n{"time": "20'
    (tmp_path / "log.jsonl").write_text(torn)
    assert "gap" in train(small, tmp_path, "--max-passes", 1)
    first, second, last = (tmp_path / "log.jsonl").read_text().splitlines()
    assert f"{first}\n{second}" == torn
    assert json.loads(last)["pass"] == 1


@pytest.mark.fault
@pytest.mark.parametrize("fault", ["error", "part"])
def test_a_full_disk_ends_the_log_and_not_the_run(
    fault: str, small: SmallData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, fired = os.write, []

    def full(descriptor: int, line: bytes) -> int:
        if not line.startswith(b'{"time"') or b'"pass": 1,' in line:
            return write(descriptor, line)
        fired.append(line)
        if fault == "part":
            return write(descriptor, line[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    said = train(small, tmp_path, "--quiet")
    assert len(fired) == 1
    assert said == (
        f"ooc-svm: warning: {tmp_path / 'log.jsonl'}: cannot be written: No space left on device; the run "
        "goes on, and its log ends here\n"
    )
    assert [line["pass"] for line in lines_of(tmp_path)] == [1]
    assert (tmp_path / "m").exists()


def test_what_is_no_log_is_left_alone(small: SmallData, tmp_path: Path) -> None:
    precious = tmp_path / "log.jsonl"
    precious.write_text("years of work")
    said = train(small, tmp_path, code=2)
    assert said.startswith(f"ooc-svm: error: {precious}: is no log of a training, so nothing is added to it")
    assert precious.read_text() == "years of work"
    precious.unlink()
    os.mkfifo(precious)
    assert "is no log" in train(small, tmp_path, code=2)
    precious.unlink()
    assert "same file" in train(small, tmp_path, "-o", precious, code=2)
    assert "same file" in train(small, tmp_path, "--report", precious, code=2)
    precious.mkdir()
    assert f"{precious}: is a folder, and a file is to be written" in train(small, tmp_path, code=2)
    assert not (tmp_path / "m").exists()
