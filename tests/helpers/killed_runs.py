"""Trainings in processes of their own that are killed at a given point."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from faults.calls import NEVER, CallFault
from faults.data import SETTINGS
from faults.server import Ended, ForkServer


def run_all(server: ForkServer, runs: list[dict[str, Any]], within: Path) -> list[Ended]:
    """Do the runs one after another, with a checkpoint after every pass and few rows resident.

    Parameters
    ----------
    server : ForkServer
    runs : list of dict
        "data" and "options" for `ooc_svm.train`, or with "tune" for `ooc_svm.tune`; "kill_pass": pass after
        which it is killed, or "kill_call": number of the call of fsync or rename at which it is killed;
        "large": whether streamed SMO is to work as it does on large data.
    within : Path
        Folder in which the calls are counted.

    Returns
    -------
    list of Ended
        The answers have "bits" and "report". Each run was killed if it was to be, and ended well if not.
    """
    ended = []
    for run in runs:
        at = run.get("kill_call", NEVER)
        fault = CallFault(("fsync", "rename"), at, at, "s", signal.SIGKILL)
        options = {"fault": fault, "within": within, "settings": SETTINGS}
        end = server.call("helpers.killed_runs:train_and_report", run, **options)
        expected = -signal.SIGKILL if run.keys() & {"kill_pass", "kill_call"} else 0
        assert end.code == expected, (run, end.error, end.err)
        ended.append(end)
    return ended


def large_effort() -> Any:
    """How streamed SMO works on large data, with lanes to be merged."""
    from ooc_svm.solvers.streamed_smo.effort import EFFORTS

    return replace(EFFORTS[20_000_000], lanes=4)


def train_and_report(run: dict[str, Any]) -> dict[str, Any]:
    """Train, and be killed after a pass if that was asked for."""
    from ooc_svm import train, tune
    from ooc_svm.solvers.streamed_smo import effort

    if run.get("large"):
        effort.EFFORTS = {0: large_effort()}

    def progress(event):
        if event.kind == "pass" and event.passes == run.get("kill_pass"):
            os.kill(os.getpid(), signal.SIGKILL)

    model = (tune if run.get("tune") else train)(run["data"], progress=progress, **run["options"])
    return {"bits": (model.weights.tobytes() + model.bias.tobytes()).hex(), "report": model.report}
