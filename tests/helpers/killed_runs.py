"""Trains in child processes that are killed at a given point; run as a script, it reads and writes JSON.

The script imports and compiles once and forks a child for every run, so that a run costs a fraction of a
second. A child prints what came out; a killed one prints nothing.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any


def run_all(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Do the runs one after another in a process of their own.

    Parameters
    ----------
    runs : list of dict
        "data" and "options" for `ooc_svm.train`; "kill_pass": pass after which it is killed, or "kill_call":
        number of the call of fsync or rename before which it is killed; "large": whether streamed SMO is to
        work as it does on large data.

    Returns
    -------
    list of dict
        "signal" that ended it or 0; of the others "bits", "report" and "calls" (of fsync and rename).
    """
    script = [sys.executable, __file__]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(script, input=json.dumps(runs), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def large_effort() -> Any:
    """How streamed SMO works on large data, with lanes to be merged."""
    from ooc_svm.solvers.streamed_smo.effort import EFFORTS

    return replace(EFFORTS[20_000_000], lanes=4)


def _child(run: dict[str, Any]) -> dict[str, Any]:
    from ooc_svm.solvers.streamed_smo import effort, plan
    from ooc_svm.training import train as module

    module.CHECKPOINT_SHARE = math.inf  # a checkpoint after every pass
    plan.FEW_ELEMENTS = 0  # so few rows are held that there are some passes
    if run.get("large"):
        effort.EFFORTS = {0: large_effort()}
    calls = 0

    def counted(function):
        def call(*arguments):
            nonlocal calls
            if calls == run.get("kill_call"):
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1
            return function(*arguments)

        return call

    def progress(event):
        if event.kind == "pass" and event.passes == run.get("kill_pass"):
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync, os.rename = counted(os.fsync), counted(os.rename)
    model = module.train(run["data"], progress=progress, **run["options"])
    bits = (model.weights.tobytes() + model.bias.tobytes()).hex()
    return {"bits": bits, "report": model.report, "calls": calls}


def _forked(run: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as file:
                json.dump(_child(run), file)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    assert status == 0, f"{run} ended with status {status}"
    return {"signal": 0, **json.loads(answer)}


def _main() -> None:
    import ooc_svm.training.train  # noqa: F401  (here rather than in every child)
    from ooc_svm.options import TrainOptions
    from ooc_svm.training.warmup import warm_up

    for solver in ("ocas", "cutting-plane", "streamed-smo"):
        warm_up(TrainOptions(solver=solver), "float64", True, lambda message: None)
    json.dump([_forked(run) for run in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    _main()
