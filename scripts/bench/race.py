"""The contenders of scripts/bench/train.py on one data set: what each is run as, and what is measured."""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from processes import TrainingWatch, Usage, evict, run

from ooc_svm.system.memory import INTERPRETER_BYTES, format_size

HERE = Path(__file__).parent
OOC_SVM = (sys.executable, "-m", "ooc_svm.cli")
CONTENDERS = (sys.executable, HERE / "contenders.py")
TEXTS = (sys.executable, HERE / "texts.py")

TOLERANCE = 1e-3
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
SHARE_OF_CSR = 8
REFUSED = 6
# How often memory that is refused is doubled at most.
DOUBLINGS = 16
LIBLINEAR, OURS = "LIBLINEAR", "ours, "

Command = Sequence[str | Path]


class Failed(Exception):
    """A contender did not come to a good end; the message says how."""


def failure_of(usage: Usage) -> Failed:
    """How a process ended, and the last line that it said."""
    how = f"signal {-usage.code}" if usage.code < 0 else f"exit {usage.code}"
    last = (usage.errors.strip().splitlines() or ["it said nothing"])[-1]
    return Failed(f"{how} after {usage.seconds:.0f} s: {last}")


@dataclass(frozen=True)
class DataSet:
    """A text with what is known of it.

    Attributes
    ----------
    title : str
    text, store : Path
    peer_text : Path
        What LIBLINEAR reads: the same, or with scaled columns.
    make : tuple
        Arguments of texts.py.
    scaled : bool
        Columns are divided by their largest magnitude.
    peak_only : bool
        Too large for anything but measuring memory.
    """

    title: str
    text: Path
    store: Path
    peer_text: Path
    make: tuple[str | Path, ...]
    scaled: bool = False
    peak_only: bool = False


@dataclass(frozen=True)
class Result:
    """A line of the table; seconds and bytes. `allowed` and `dual` are None where there is none."""

    contender: str
    text_to_model: float
    training: float
    peak: float
    passes: float
    primal: float
    dual: float | None = None
    allowed: float | None = None


class Race:
    """All contenders on one data set.

    Parameters
    ----------
    data : DataSet
    options : argparse.Namespace
        The command line.
    scratch : Path
        Folder for stores and models that nobody needs later.
    """

    def __init__(self, data: DataSet, options: argparse.Namespace, scratch: Path) -> None:
        self.data, self.options, self.scratch = data, options, scratch
        self._prepare()
        self.facts = json.loads(self._succeed((*OOC_SVM, "info", data.store, "--json")).output)
        self.csr = 8 * (self.facts["n_nonzeros"] + self.facts["n_rows"])
        self.memory = options.memory or INTERPRETER_BYTES + self.csr // SHARE_OF_CSR
        self.failures: list[str] = []
        # The largest dual value that is known, a lower bound of the optimum.
        self.bound = -math.inf
        self.converted, self.convert_memory = self._convert()

    def _prepare(self) -> None:
        """Text and store, if they are not there from another run; this also compiles the parser."""
        data = self.data
        if not (data.text.exists() and data.peer_text.exists()):
            note(f"making {data.text.name}")
            self._succeed((*TEXTS, *data.make), time_limit=math.inf)
        if not data.store.exists():
            note(f"converting {data.text.name}")
            self._succeed((*OOC_SVM, "convert", data.text, "-o", data.store, "--quiet"))

    def _succeed(self, command: Command, **settings: Any) -> Usage:
        """Run a command that has to end well."""
        usage = run(command, **{"time_limit": self.options.time_limit} | settings)
        if usage.code != 0:
            raise failure_of(usage)
        return usage

    def results(self) -> list[Result]:
        """Race: LIBLINEAR, SGD, and our solvers; who failed is listed in `failures`."""
        rounds: list[tuple[str, Callable[[], Result]]] = []
        try:
            tolerance, self.bound = self._tolerance()
            rounds.append((f"{LIBLINEAR} -e {tolerance:g}", partial(self.liblinear, tolerance)))
        except Failed as failure:
            self.failures.append(f"{LIBLINEAR}: {failure}")
        if not self.data.peak_only:
            rounds.append(("SGD", partial(self.sgd, self.bound)))
        for solver in self.options.solvers:
            rounds.append((OURS + solver, partial(self.ours, solver)))
        found = []
        for name, contend in rounds:
            note(f"{self.data.title}: {name}")
            try:
                runs = [replace(contend(), contender=name) for _ in range(self.options.repeat)]
            except Failed as failure:
                self.failures.append(f"{name}: {failure}")
                continue
            found.append(median(runs))
            self.bound = max(self.bound, found[-1].dual or self.bound)
        return found

    def liblinear(self, tolerance: float) -> Result:
        """LIBLINEAR at a tolerance, from the text."""
        text, model, program = self.data.peer_text, self.scratch / "liblinear.model", self.options.liblinear
        model.unlink(missing_ok=True)
        watch = TrainingWatch(text, model)
        C, limit = self.options.C, repr(tolerance)
        command: Command
        if program is None:
            command = (*CONTENDERS, "liblinear-package", text, model, "--C", repr(C), "--tolerance", limit)
        else:
            command = (program, "-s", "3", "-c", repr(C), "-e", limit, text, model)
        usage = self._succeed(command, watch=watch)
        training = watch.seconds if program else last_json(usage)["training"]
        iterations = re.search(r"#iter = (\d+)", usage.output)
        objective = re.search(r"Objective value = (\S+)", usage.output)
        if iterations is None or objective is None:
            raise Failed("it did not say its number of iterations and its objective value")
        return Result(
            LIBLINEAR,
            usage.seconds,
            training,
            usage.peak,
            int(iterations[1]),
            self.primal(model),
            # It minimises the negative dual.
            -float(objective[1]),
        )

    def _tolerance(self) -> tuple[float, float]:
        """LIBLINEAR's first sufficient tolerance, and a lower bound of the optimum; kept beside the store."""
        if self.data.peak_only:
            return TOLERANCES[0], -math.inf
        path = self.data.store.with_suffix(f".C{self.options.C!r}.json")
        size = self.data.peer_text.stat().st_size
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kept.get("text_bytes") == size:
            return kept["tolerance"], kept["bound"]
        primals: list[float] = []
        bound, enough = -math.inf, False
        for tolerance in TOLERANCES:
            note(f"{self.data.title}: looking for LIBLINEAR's tolerance, -e {tolerance:g}")
            result = self.liblinear(tolerance)
            primals.append(result.primal)
            bound = max(bound, result.dual or bound)
            # One run more than it takes makes the bound a tight one.
            if enough:
                break
            enough = min(primals) <= (1.0 + TOLERANCE) * bound
        sufficient = [place for place, primal in enumerate(primals) if primal <= (1.0 + TOLERANCE) * bound]
        if not sufficient:
            raise Failed(f"its primal value is not within {TOLERANCE:g} of its dual at -e {TOLERANCES[-1]:g}")
        tolerance = TOLERANCES[sufficient[0]]
        path.write_text(json.dumps({"tolerance": tolerance, "bound": bound, "text_bytes": size}))
        return tolerance, bound

    def _convert(self) -> tuple[Usage, int]:
        """Our conversion, and the memory it was allowed; its store takes the place of the one before."""
        store, memory = self.scratch / "store.zarr", self.memory
        command: Command = (*OOC_SVM, "convert", self.data.text, "-o", store, "--quiet", *self._threads())
        runs = []
        for _ in range(self.options.repeat):
            note(f"{self.data.title}: convert")
            shutil.rmtree(store, ignore_errors=True)
            usage, memory = self._within(memory, command)
            runs.append(usage)
        shutil.rmtree(self.data.store)
        store.rename(self.data.store)
        seconds = statistics.median(usage.seconds for usage in runs)
        return replace(runs[0], seconds=seconds, peak=round(statistics.median(u.peak for u in runs))), memory

    def sgd(self, bound: float) -> Result:
        """SGD from the store."""
        command = (*CONTENDERS, "sgd", self.data.store, f"--bound={bound!r}", "--C", repr(self.options.C))
        usage = self._succeed((*command, *self._scaled("--scaled")))
        said = last_json(usage)
        seconds = self.converted.seconds + usage.seconds - said["checking"]
        peak = max(self.converted.peak, usage.peak)
        return Result("SGD", seconds, said["training"], peak, said["passes"], said["primal"])

    def ours(self, solver: str, memory: int | None = None) -> Result:
        """One of our solvers from the store, with a memory (by default of an eighth of the CSR)."""
        model, report = self.scratch / "ours.model", self.scratch / "report.json"
        command: list[str | Path] = [
            *OOC_SVM,
            "train",
            self.data.store,
            "-o",
            model,
            "--solver",
            solver,
            "--bias",
            "none",
            "--quiet",
        ]
        command += ["--C", repr(self.options.C), *self._scaled("--scale", "maxabs"), *self._threads()]
        # Compiles, unless that was done.
        self._succeed([*command, "--max-passes", "2"])
        command += ["--tol", repr(TOLERANCE), "--report", report]
        usage, allowed = self._within(memory or self.memory, command)
        said = json.loads(report.read_text())
        if not said["converged"]:
            raise Failed(f"it was stopped by {said['stop_reason']}")
        return Result(
            solver,
            self.converted.seconds + usage.seconds,
            said["seconds"],
            max(self.converted.peak, usage.peak),
            said["passes"],
            self.primal(model),
            said["models"][0]["dual"],
            allowed,
        )

    def _within(self, memory: int, command: Command) -> tuple[Usage, int]:
        """Run a command of ours with a memory, or the first doubling of it that is not refused."""
        on_top = memory - INTERPRETER_BYTES
        for doubled in range(DOUBLINGS + 1):
            memory = INTERPRETER_BYTES + (on_top << doubled)
            evict(self.data.store)
            limited = (*command, "--memory", str(memory))
            usage = run(limited, limit=memory, time_limit=self.options.time_limit)
            if usage.code == 0:
                return usage, memory
            if usage.code != REFUSED:
                break
        raise Failed(f"with {format_size(memory)}: {failure_of(usage)}")

    def _scaled(self, *words: str) -> tuple[str, ...]:
        return words if self.data.scaled else ()

    def _threads(self) -> tuple[str, ...]:
        return () if self.options.threads is None else ("--threads", str(self.options.threads))

    def primal(self, model: Path) -> float:
        """The exact primal value of a model."""
        command = (*CONTENDERS, "primal", self.data.store, model, "--C", repr(self.options.C))
        return float(last_json(self._succeed((*command, *self._scaled("--scaled"))))["primal"])


def last_json(usage: Usage) -> dict[str, Any]:
    """What a command printed last."""
    said: dict[str, Any] = json.loads(usage.output.strip().splitlines()[-1])
    return said


def note(text: str) -> None:
    """Say what is going on."""
    print(text, file=sys.stderr, flush=True)


def median(runs: Sequence[Result]) -> Result:
    """Medians of all numbers."""
    first = runs[0]
    names = [field.name for field in fields(Result) if isinstance(getattr(first, field.name), int | float)]
    return replace(first, **{name: statistics.median(getattr(run, name) for run in runs) for name in names})
