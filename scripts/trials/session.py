"""A user at work: commands and lines of Python as typed, their time, and whether they give what they must."""

from __future__ import annotations

import contextlib
import io
import os
import sysconfig
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from processes import Usage, run

from trials.checks import Check, Unmet, ends_with

COMMANDS = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"


class Step(NamedTuple):
    """What a user typed, what it gave, and whether that is what it must be."""

    user: str
    number: int
    typed: str
    seconds: float
    result: str
    ok: bool


class Session:
    """The folder, the shell and the Python of one user.

    Python runs in a process of its own, so that this one stays small: the peak of a command is never below
    that of the process that starts it.

    Parameters
    ----------
    user : str
    folder : Path
        Where the user works.
    say : callable
        Takes each step when it is done, and all that was printed.

    Attributes
    ----------
    folder : Path
    steps : list of Step
    """

    def __init__(self, user: str, folder: Path, say: Callable[[Step, Usage], None]) -> None:
        self._user, self.folder, self._say = user, folder, say
        self.steps: list[Step] = []
        self._python = ProcessPoolExecutor(1, get_context("spawn"), _enter, (folder,))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._python.shutdown()

    def prepare(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the user's folder, in the process of the user's Python; not a step."""
        return self._python.submit(make, *arguments).result()

    def shell(self, typed: str, *checks: Check, code: int = 0) -> Usage:
        """Run a line of the shell, which must end with an exit code and pass the checks."""
        line = f"cd {self.folder} && PATH={COMMANDS}\n{typed}"
        usage = run(["bash", "-euo", "pipefail", "-c", line])
        return self._judge(typed, usage, ends_with(code), *checks)

    def python(self, typed: str, *checks: Check) -> Usage:
        """Run lines of Python, which share their names with those before; what they print is checked."""
        began = time.perf_counter()
        code, output, errors = self.prepare(_run_lines, typed)
        usage = Usage(time.perf_counter() - began, 0, code, output, errors)
        return self._judge(typed.strip(), usage, ends_with(0), *checks)

    def _judge(self, typed: str, usage: Usage, *checks: Check) -> Usage:
        found, ok = [], True
        for check in checks:
            try:
                found.append(check(usage, self.folder))
            except Unmet as unmet:
                found.append(f"NOT SO: {unmet}")
                ok = False
        result = "; ".join(filter(None, found))
        self.steps.append(Step(self._user, len(self.steps) + 1, typed, usage.seconds, result, ok))
        self._say(self.steps[-1], usage)
        return usage


_NAMES: dict[str, Any] = {"__name__": "__main__"}


def _enter(folder: Path) -> None:
    os.chdir(folder)


def _run_lines(lines: str) -> tuple[int, str, str]:
    """Run lines of Python; 0 or 1, and what was printed."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        try:
            exec(compile(lines, "<typed>", "exec"), _NAMES)
            code = 0
        except Exception:
            traceback.print_exc()
            code = 1
    return code, output.getvalue(), errors.getvalue()
