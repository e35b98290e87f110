"""A command ended by signals at any time: one sentence and the code of the signal, or it was done before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SmallData
from helpers.processes import run
from helpers.thinning import ALL

# Milliseconds after which a signal is sent, from the moment on at which it can be handled: the one signal
# comes in the middle between two moments of the other.
STEP = 10 if os.environ.get(ALL) else 50
MOMENTS = {signal.SIGINT: range(0, 401, STEP), signal.SIGTERM: range(STEP // 2, 401, STEP)}

# Says when signals are handled, which is the first thing that `main` does.
PROGRAM = """
import os
from ooc_svm.cli import main
from ooc_svm.system import signals
start = signals._Watch.start
def starting(watch):
    start(watch)
    signals._Watch.start = start
    os.write(1, b".")
signals._Watch.start = starting
main()
"""


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == "."
    return process


def assert_interrupted(process: subprocess.Popen[str], *numbers: signal.Signals) -> bool:
    """One sentence and the code of one of these signals; False if the command was done before."""
    twice = len(numbers) > 1
    _, err = process.communicate(timeout=60)
    errors = [line for line in err.splitlines() if line.startswith("ooc-svm: error: ")]
    assert "Traceback" not in err
    assert "ignored" not in err
    if process.returncode == 0:
        assert not errors
        return False
    # A second signal in the last moments of Python may end the process: a shell shows the same code.
    codes = {128 + number for number in numbers} | ({-number for number in numbers} if twice else set())
    assert process.returncode in codes, err
    [sentence] = errors
    assert "interrupted" in sentence
    assert err.splitlines()[-1] == sentence
    return True


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", MOMENTS)
def test_a_signal_at_any_time_of_the_start(number: signal.Signals, small: SmallData, tmp_path: Path) -> None:
    arguments = ["train", small.store, "-o", tmp_path / "m", "--quiet"]
    assert run(*arguments).returncode == 0  # compiled from here on
    interrupted = 0
    for moment in MOMENTS[number]:
        with start(*arguments) as process:
            time.sleep(moment / 1000)
            process.send_signal(number)
            interrupted += assert_interrupted(process, number)
    assert interrupted > len(MOMENTS[number]) // 2


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("gap", "waits"), [(0, (0.5, 1.5)), (0.01, (1.5, 2.5)), (0.3, (0.5, 2.5))])
@pytest.mark.parametrize("command", ["train", "convert"])
def test_two_signals_while_compiling(
    command: str, gap: float, waits: tuple[float, ...], small: SmallData, tmp_path: Path
) -> None:
    what = small.store if command == "train" else small.text
    arguments = [command, what, "-o", tmp_path / "out", "--quiet"]
    for wait in waits:
        with start(*arguments, NUMBA_CACHE_DIR=str(tmp_path / f"cache {wait}")) as process:
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            time.sleep(gap)
            process.send_signal(signal.SIGTERM)
            assert assert_interrupted(process, signal.SIGINT, signal.SIGTERM)
    assert not (tmp_path / "out").exists()


def test_little_is_imported_before_signals_are_handled() -> None:
    """What comes before is not ours to handle: the time of it is the time of starting Python."""
    program = "import sys, ooc_svm.cli; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(process.stdout.split())
    assert {name for name in modules if name.startswith("ooc_svm")} == {"ooc_svm", "ooc_svm.cli"}
    assert modules.isdisjoint({"typer", "decimal", "numpy", "rich"})


def test_an_interrupt_before_signals_are_handled_is_a_sentence() -> None:
    program = """
import sys
class Interrupt:
    def find_spec(self, name, *rest):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from ooc_svm.cli import main
main()
"""
    for module in ("ooc_svm.system.signals", "ooc_svm.errors"):
        command = [sys.executable, "-c", program, module]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (130, 1), done.stderr
        assert done.stderr.startswith("ooc-svm: error: interrupted by SIGINT")
