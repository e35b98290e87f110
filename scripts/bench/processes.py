"""Run a command as a process of its own under a memory limit; its time, peak and output.

The process that calls this must be small: the peak of a child is never below that of the process it was
forked from.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memory import make_group

POLL_SECONDS = 0.002


@dataclass(frozen=True)
class Usage:
    """What a process took.

    Attributes
    ----------
    seconds : float
        Wall clock, from its start to its end.
    peak : int
        Largest resident size in bytes.
    code : int
        Exit status; negative: the signal that ended it.
    output, errors : str
    cpu : float
        Seconds of processor time, those of the system and of its own children included; nan if unknown.
    """

    seconds: float
    peak: int
    code: int
    output: str
    errors: str
    cpu: float = math.nan


class TrainingWatch:
    """Times the training of a program that reads a text, closes it, trains, and then opens its model."""

    def __init__(self, text: Path, model: Path) -> None:
        self._text, self._model = str(text.resolve()), model
        self._reading = False
        self._began: float | None = None
        self._ended: float | None = None

    def __call__(self, pid: int) -> None:
        """Look at the process once."""
        if self._ended is None and self._model.exists():
            self._ended = time.perf_counter()
        if self._began is None:
            is_open = self._is_open(pid)
            if self._reading and not is_open:
                self._began = time.perf_counter()
            self._reading |= is_open

    def _is_open(self, pid: int) -> bool:
        try:
            return any(os.readlink(entry) == self._text for entry in os.scandir(f"/proc/{pid}/fd"))
        except OSError:
            return self._reading

    @property
    def seconds(self) -> float:
        """Between the two; nan if it was not seen."""
        if self._began is None or self._ended is None:
            return float("nan")
        return self._ended - self._began


def run(
    command: Sequence[str | Path],
    *,
    limit: int | None = None,
    time_limit: float | None = None,
    watch: Callable[[int], None] | None = None,
) -> Usage:
    """Run a command to its end.

    Parameters
    ----------
    command : sequence of str
    limit : int, optional
        Bytes that a control group allows it, where one can be made.
    time_limit : float, optional
        Seconds after which it is killed.
    watch : callable, optional
        Called with its process id every few milliseconds.
    """
    group = None if limit is None else make_group(limit)

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        words = [str(part) for part in command]
        began = time.perf_counter()
        process = subprocess.Popen(words, stdout=output, stderr=errors, preexec_fn=enter)
        try:
            status, usage = _wait(process, began + (time_limit or math.inf), watch)
            seconds = time.perf_counter() - began
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            if group is not None:
                group.rmdir()
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        return Usage(seconds, peak, process.returncode, _text(output), _text(errors), cpu)


def _wait(
    process: subprocess.Popen[bytes], deadline: float, watch: Callable[[int], None] | None
) -> tuple[int, resource.struct_rusage]:
    """Status and usage of a process at its end, which comes at the deadline at the latest."""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            return status, usage
        if watch is not None:
            watch(process.pid)
        if time.perf_counter() > deadline:
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def evict(folder: Path) -> None:
    """Drop the files of a folder from the page cache: reading them is charged to who reads."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
