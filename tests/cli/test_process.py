"""The command line as a process of its own: exit codes, pipes, signals, what is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SmallData
from helpers.processes import COMMAND, assert_one_sentence, run, started

from ooc_svm.model.file import load_model, save_model
from ooc_svm.prediction.predict import predict
from ooc_svm.store import open_store
from ooc_svm.training.train import train


@pytest.fixture(scope="module")
def model(small: SmallData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.model"
    save_model(train(small.store), path)
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from ooc_svm.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    sys.stderr.write(' '.join(sys.modules))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert process.stdout
    modules = {name.split(".")[0] for name in process.stderr.split()}
    assert "ooc_svm" in modules
    assert ("typer" in modules) == (arguments != ["--version"])  # The version alone needs no command line
    assert modules.isdisjoint({"numpy", "numba", "zarr", "scipy", "sklearn", "rich", "anndata"})


def test_the_script_is_installed() -> None:
    script = Path(sys.executable).with_name("ooc-svm")
    process = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert process.stdout.startswith("ooc-svm ")


def test_exit_codes(small: SmallData, tmp_path: Path) -> None:
    assert_one_sentence(run("train"), 2)
    assert_one_sentence(run("info", tmp_path / "none"), 3)
    assert_one_sentence(run("info", small.text), 4)
    assert_one_sentence(run("train", small.store, "-o", tmp_path / "no" / "m"), 5)
    assert_one_sentence(run("train", small.store, "-o", tmp_path / "m", "--memory", "1MB"), 6)


def test_names_that_are_no_text_or_touch_the_terminal(tmp_path: Path, small: SmallData) -> None:
    strange = os.fsdecode(b"\xff\x1b[31m\nred.model")
    process = run("info", tmp_path / strange)
    assert_one_sentence(process, 3)
    assert "\x1b" not in process.stderr
    process = run("train", small.store, "-o", tmp_path / strange, "--quiet")
    assert process.returncode == 0, process.stderr
    assert "\x1b" not in process.stdout
    assert (tmp_path / strange).exists()


def test_standard_input(small: SmallData, model: Path, tmp_path: Path) -> None:
    with small.text.open() as file:
        assert run("convert", "-", "-o", tmp_path / "s.zarr", stdin=file).returncode == 0
    assert open_store(tmp_path / "s.zarr").id == open_store(small.store).id
    with small.test.open() as file:
        piped = run("predict", model, "-", stdin=file)
    assert piped.returncode == 0
    predicted = predict(load_model(model), small.test)
    assert [float(line) for line in piped.stdout.splitlines()] == predicted.tolist()


@pytest.mark.fault
def test_a_reader_that_goes_away_is_no_error(small: SmallData, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "many.svm"
    text.write_text(small.test.read_text() * 500)  # more lines than a pipe holds
    with started("predict", model, text) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.fault
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_results_that_cannot_be_written_are_an_error(small: SmallData, model: Path) -> None:
    for arguments in (["info", model], ["predict", model, small.test]):
        with open("/dev/full", "w") as full:
            process = run(*arguments, stdout=full)
        assert_one_sentence(process, 5)
        assert "standard output: No space left" in process.stderr


@pytest.mark.fault
def test_a_closed_standard_output_is_an_error(small: SmallData) -> None:
    process = subprocess.run(
        ["bash", "-c", '"$@" >&-', "bash", *COMMAND, "info", str(small.store)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert_one_sentence(process, 5)


@pytest.mark.fault
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_progress_that_cannot_be_written_does_not_end_a_run(small: SmallData, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [*COMMAND, "train", str(small.store), "-o", str(tmp_path / "m")],
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=60,
            check=False,
        )
    assert process.returncode == 0
    assert process.stdout.startswith(b"certified")


def test_a_bug_is_one_line_and_the_traceback_is_there_for_the_asking(tmp_path: Path) -> None:
    program = (
        "import ooc_svm.model.file\n"
        "def broken(path): raise RuntimeError('the sky\\nfell')\n"
        "ooc_svm.model.file.load_model = broken\n"
        "from ooc_svm.cli import main\n"
        "main()\n"
    )
    (tmp_path / "m").write_text("x")
    command = [sys.executable, "-c", program, "info", str(tmp_path / "m")]
    for environment in ({}, {"OOC_SVM_TRACEBACK": "1"}):
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **environment},
        )
        assert process.returncode == 1
        last = process.stderr.splitlines()[-1]
        assert last.startswith(
            "ooc-svm: error: RuntimeError: the sky fell; this is a bug; set OOC_SVM_TRACEBACK=1"
        )
        assert ("Traceback" in process.stderr) == bool(environment)


def wait_for_pass(process: subprocess.Popen[str]) -> None:
    """Wait until a running training reports its second pass."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("pass 2 "):
            return
    raise AssertionError("the run ended before it was interrupted")


ENDLESS = ["--solver", "cutting-plane", "--tol", "1e-15", "--C", "1e6"]


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_after_a_checkpoint(
    number: signal.Signals, small: SmallData, tmp_path: Path
) -> None:
    model, states = tmp_path / "m", tmp_path / "states"
    arguments = ["train", small.store, "-o", model, "--checkpoint", states, *ENDLESS]
    with started(*arguments) as process:
        wait_for_pass(process)
        process.send_signal(number)
        sent = time.monotonic()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert time.monotonic() - sent < 10
    # The best model so far is written, with its gap.
    assert out.startswith("certified      no, stopped by signal: relative gap ")
    assert load_model(model).report["converged"] is False
    last = err.splitlines()[-1]
    assert last.startswith("ooc-svm: error: interrupted after ")
    assert "--resume" in last
    assert err.count("ooc-svm: ending with this pass, or in 8 s; another signal ends it at once") == 1
    assert "Traceback" not in err
    resumed = run(*arguments, "--resume", "--max-passes", 1)
    assert resumed.returncode == 0
    assert "going on after" in resumed.stderr


@pytest.mark.fault
def test_a_signal_ends_a_conversion_that_waits_for_input(tmp_path: Path) -> None:
    with started("convert", "-", "-o", tmp_path / "s.zarr", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write("1 1:1\n" * 1000)
        process.stdin.flush()
        began = time.monotonic()
        while not any("building" in path.name for path in tmp_path.iterdir()):
            assert time.monotonic() - began < 60
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        assert process.wait(30) == 128 + signal.SIGTERM
        assert time.monotonic() - sent < 10
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert not (tmp_path / "s.zarr").exists()
    (tmp_path / "t.svm").write_text("1 1:1\n-1 2:1\n")
    assert run("convert", tmp_path / "t.svm", "-o", tmp_path / "s.zarr").returncode == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["s.zarr"]
