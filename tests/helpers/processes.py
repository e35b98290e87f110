"""Commands as processes of their own, and what becomes of the processes that they start."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

LONG = 60.0
COMMAND = [sys.executable, "-m", "ooc_svm.cli"]


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *(str(argument) for argument in arguments)]
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False, **options)


@contextmanager
def started(*arguments: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A running command with pipes; it is gone afterwards, however the test ends."""
    command = [*COMMAND, *(str(argument) for argument in arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def assert_one_sentence(process: subprocess.CompletedProcess[str], code: int) -> None:
    assert process.returncode == code, process.stderr
    assert process.stderr.startswith("ooc-svm: error: ")
    assert process.stderr.count("\n") == 1
    assert "Traceback" not in process.stderr


def below(pid):
    """Worker processes that a process has started."""
    try:
        return {
            child.pid
            for child in psutil.Process(pid).children()
            if "ooc_svm.cluster.processes" in child.cmdline()[2]
        }
    except (psutil.NoSuchProcess, IndexError):
        return set()


def wait_until(condition):
    deadline = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def gone(pids):
    """Whether these processes have ended; zombies have."""
    return all(
        not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids
    )
