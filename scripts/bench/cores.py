"""What more threads are worth to one model: threads 1, 2, 4, ... on this machine, and what to expect of 64.

Every run is a process of its own; runs of different numbers of threads take turns, and a line has the median
of --runs. The last column is predicted from one more run on one thread, in which the parts of each round are
timed: resident rows are taken in by one thread, and solved by one, by as many as long rows have parts, or in
loops of proximal steps by as many as these have pieces; a lane is swept by one, and with t threads a round
takes

    max(taking in + solving, sweeping a lane, all that is done in it / t)

seconds. Threads that solve long rows together meet once a row, which takes `MEETING_SECONDS`, as measured
with two; those of a loop once a loop, `WAKING_SECONDS`.
What comes between rounds, and the start of the process, take as long as with one. Every number of threads
gives the same bits, which is checked.

Run: python scripts/bench/cores.py STORE [--threads 1,2,4] [--runs 3] [--option=--loss=logistic ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import Usage, run

OOC_SVM = (sys.executable, "-m", "ooc_svm.cli")
EXPECTED = (1, 2, 4, 8, 16, 32, 64)
MEETING_SECONDS, WAKING_SECONDS = 3e-7, 1e-4

# Prints what the rounds of a training took, as JSON: of each the time of a lane's chain of steps, of the
# resident rows, that of their solves among it, and of all; the rows that solves moved, and their parts; and
# by the number of pieces the time of loops, and how many these are.
TIMED = """
import json, sys, time
from ooc_svm.cli import main
from ooc_svm.engine.base import Engine
from ooc_svm.passes.crew import Alone
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.company import Company
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.sweep import SweepPass
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

rounds = []

def timed(owner, name, part):
    original = getattr(owner, name)
    def call(*arguments, **options):
        began = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            if rounds:
                rounds[-1][part] += time.perf_counter() - began
    setattr(owner, name, call)

timed(SweepPass, "visit", "sweep")
timed(Company, "admit", "resident")
timed(StreamedSmo, "_solve_working_set", "resident")
timed(WorkingSet, "solve", "solve")
serve, solve, each = Engine.serve, WorkingSet.solve, Alone.each

def solved(working_set, *arguments, **options):
    sums, longest = solve(working_set, *arguments, **options)
    if rounds:
        rounds[-1]["moved"] += float(sums[dual_loops.ROWS])
        rounds[-1]["parts"] = working_set.rows.n_parts
    return sums, longest

WorkingSet.solve = solved

def in_pieces(crew, work, pieces):
    began = time.perf_counter()
    each(crew, work, pieces)
    if rounds:
        loops = rounds[-1]["loops"].setdefault(len(pieces), [0.0, 0])
        loops[0] += time.perf_counter() - began
        loops[1] += 1

Alone.each = in_pieces

def served(*arguments):
    rounds.append(
        {"sweep": 0.0, "resident": 0.0, "solve": 0.0, "moved": 0.0, "parts": 1, "all": 0.0, "loops": {}}
    )
    began = time.perf_counter()
    try:
        return serve(*arguments)
    finally:
        rounds[-1]["all"] = time.perf_counter() - began

Engine.serve = served
sys.argv = ["ooc-svm", *sys.argv[1:]]
try:
    main()
finally:
    sys.stderr.write("\\n" + json.dumps(rounds))
"""


def train(store: Path, model: Path, threads: int, options: list[str], program: tuple[str, ...]) -> Usage:
    """One training; SystemExit if it does not come to a good end."""
    model.unlink(missing_ok=True)
    usage = run((*program, "train", store, "-o", model, "--threads", str(threads), *options))
    if usage.code != 0:
        raise SystemExit(f"the training ended with exit {usage.code}:\n{usage.errors}")
    return usage


def predicted(rounds: list[dict[str, Any]], seconds: float, threads: int) -> float:
    """Seconds with so many threads, from those of the rounds and of the whole process with one."""
    between = seconds - sum(each["all"] for each in rounds)
    return between + sum(
        max(each["resident"] - saved(each, threads), each["sweep"], each["all"] / threads) for each in rounds
    )


def saved(each: dict[str, Any], threads: int) -> float:
    """Seconds of the solves of a round that others save."""
    together, found = min(threads, each["parts"]), 0.0
    if together > 1:
        found = max((1.0 - 1.0 / together) * each["solve"] - MEETING_SECONDS * each["moved"], 0.0)
    for pieces, (seconds, count) in each["loops"].items():
        together = min(threads, int(pieces))
        if together > 1:
            found += max((1.0 - 1.0 / together) * seconds - WAKING_SECONDS * count, 0.0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--threads", default="", help="by default 1, 2, 4, ... up to the processors")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--option", action="append", default=[], help="of the training, as --option=--C=4")
    options = parser.parse_args()
    processors = os.cpu_count() or 1
    asked = [int(number) for number in options.threads.split(",") if number]
    numbers = asked or [number for number in EXPECTED if number <= processors]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        model = Path(folder) / "model"
        found: dict[int, list[Usage]] = {number: [] for number in numbers}
        weights = set()
        # The first one compiles and fills the page cache.
        train(options.store, model, 1, options.option, OOC_SVM)
        for _ in range(options.runs):
            for number in numbers:
                found[number].append(train(options.store, model, number, options.option, OOC_SVM))
                weights.add(weights_of(model))
        timed = (sys.executable, "-c", TIMED)
        usage = train(options.store, model, 1, options.option, timed)
    rounds = json.loads(usage.errors.splitlines()[-1])
    if len(weights) > 1:
        raise SystemExit("the weights depend on the number of threads")
    print(f"{'threads':>8}{'seconds':>10}{'CPU s':>8}{'of one':>8}{'predicted, of one':>20}")
    alone = predicted(rounds, usage.seconds, 1)
    measured = {number: statistics.median(each.seconds for each in runs) for number, runs in found.items()}
    one = measured.get(1, float("nan"))
    for number in sorted({*numbers, *EXPECTED}):
        share = predicted(rounds, usage.seconds, number) / alone
        if number in measured:
            cpu = statistics.median(each.cpu for each in found[number])
            seconds = measured[number]
            print(f"{number:8}{seconds:10.2f}{cpu:8.2f}{seconds / one:8.2f}{share:20.2f}")
        else:
            print(f"{number:8}{'':10}{'':8}{'':8}{share:20.2f}")
    resident, sweep, every = (sum(each[part] for each in rounds) for part in ("resident", "sweep", "all"))
    print(
        f"of {usage.seconds:.2f} s with one: resident rows {resident:.2f}, sweeps {sweep:.2f}, "
        f"reading, scoring and the rest of the rounds {every - resident - sweep:.2f}, "
        f"start and between rounds {usage.seconds - every:.2f}"
    )


def weights_of(model: Path) -> bytes:
    """The weights and biases of a model."""
    from ooc_svm import load_model

    loaded = load_model(model)
    return bytes(loaded.weights.tobytes() + loaded.bias.tobytes())


if __name__ == "__main__":
    main()
