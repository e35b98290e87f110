"""Kernel models of some rows, the landmarks: trained by the linear solver, certified for the kernel.

1. One read that is not counted brings rows that the seed draws, and landmarks are chosen among them.
2. Their whitened kernel values are the features of a linear model (`ooc_svm.data.landmarks`).
3. Block SMO begins with the model, as a function of the landmarks, and with the multipliers of the linear
   solver: one more read finds P and D of the kernel. It goes on from there if that is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from ooc_svm.data.blocks import row_slices
from ooc_svm.errors import Interrupted
from ooc_svm.model.model import Model
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.base import LinearFunction, PointStarting, Start, WarmStarting
from ooc_svm.training.checkpoint import Checkpoints
from ooc_svm.training.keys import key_of
from ooc_svm.training.landmark_draw import Drawn, draw
from ooc_svm.training.landmark_features import feature_budget, with_features
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress
from ooc_svm.training.result import COSTS
from ooc_svm.training.run import Run, one_thread_a_product
from ooc_svm.training.together import train_together

_KEPT = ("history", "passes", "bytes_read", "seconds", "converged", "stop_reason", "models")


def train_on_landmarks(
    prepared: Preparation, progress: Callable[[Progress], None] | None, checkpoints: Checkpoints | None
) -> Model:
    """Train a model of landmarks, and find the gap of the kernel."""
    feature_budget(prepared)
    # Eigenvectors and features, too, have the same bits on any number of processors.
    with ExitStack() as stack:
        handed = stack.enter_context(RowVectors(prepared.data.source.n_rows, 0))
        with one_thread_a_product():
            drawn = draw(prepared, progress)
            of_features = with_features(prepared, drawn.landmarks)
            own = None
            if checkpoints is not None:
                own = Checkpoints(checkpoints.folder / "landmarks", key_of(of_features))
            linear, functions = _train_features(of_features, progress, own, drawn.report["seconds"], handed)
        spent = drawn.report["seconds"] + linear["seconds"]

        def start(run: Run) -> None:
            assert isinstance(prepared.solver, PointStarting)
            run.recorder.note(
                "the model of the features is trained; one read more finds the gap of the kernel"
            )
            for number, (solver, function) in enumerate(zip(run.solvers, functions, strict=True)):
                coefficients = drawn.landmarks.coefficients(function.weights)
                point = Start(drawn.numbers, coefficients, float(function.bias), handed[str(number)])
                prepared.solver.begin_with(solver, run.engine.vectors, point)

        if checkpoints is not None:
            # States that follow from another end of the linear part are none of this run.
            end = b"".join(np.append(each.weights, each.bias).tobytes() for each in functions)
            name = f"kernel-{hashlib.sha256(end).hexdigest()[:16]}"
            checkpoints = Checkpoints(checkpoints.folder / name, key_of(prepared))
        told = None if progress is None else _after(progress, linear)
        model, _ = train_together(prepared, told, checkpoints, drawn.columns, spent, start)
    return replace(model, report=_joined(model.report, linear, drawn))


def _train_features(
    prepared: Preparation,
    progress: Callable[[Progress], None] | None,
    checkpoints: Checkpoints | None,
    spent: float,
    handed: RowVectors,
) -> tuple[dict[str, Any], list[LinearFunction]]:
    """Train the linear models, and keep their multipliers: those of the k-th model as ``str(k)``.

    Returns the report, and what the models are; those that a fold is held out of are among them.
    """
    found: list[LinearFunction] = []

    def end(run: Run) -> Model:
        package, vectors = prepared.solver, run.engine.vectors
        assert isinstance(package, WarmStarting)
        for number, solver in enumerate(run.solvers):
            settled, kept = vectors[package.settle(solver, vectors)], handed.create(str(number), np.float64)
            for first, last in row_slices(settled.n_rows):
                kept.write(first, settled.read(first, last))
            solution = solver.solution()
            assert isinstance(solution, LinearFunction)
            found.append(solution)
        return run.model()

    def tell(event: Progress) -> None:
        # Hints are of the data, and come with the second part.
        if progress is not None and event.kind != "hint":
            progress(event)

    told = None if progress is None else tell
    try:
        model, _ = train_together(prepared, told, checkpoints, None, spent, end=end)
    except Interrupted as interrupted:
        # It would be a model of features that no data have.
        interrupted.model = None
        raise
    return model.report, found


def _after(progress: Callable[[Progress], None], report: dict[str, Any]) -> Callable[[Progress], None]:
    """Tell of the second part as what follows on the first."""

    def tell(event: Progress) -> None:
        before = {name: getattr(event, name) + report[name] for name in ("passes", "bytes_read", "seconds")}
        progress(replace(event, **before))

    return tell


def _joined(report: dict[str, Any], linear: dict[str, Any], drawn: Drawn) -> dict[str, Any]:
    """The report of the kernel model, with that of the linear one."""
    sums = {name: report[name] + linear[name] + drawn.report[name] for name in COSTS}
    before = {name: linear[name] + drawn.report[name] for name in ("bytes_read", "seconds")}
    before["pass"] = linear["passes"]
    history = [row | {name: row[name] + before[name] for name in before} for row in report["history"]]
    own = {"landmarks": drawn.landmarks.n_rows, "features": linear["n_features"]}
    peak = max(report["peak_memory_bytes"], linear["peak_memory_bytes"])
    own |= {name: linear[name] for name in _KEPT}
    if not report["converged"] and not linear["converged"]:
        reasons = f"{linear['stop_reason']}, {report['stop_reason']}".split(", ")
        report["stop_reason"] = ", ".join(dict.fromkeys(reasons))
    return report | sums | {"peak_memory_bytes": peak, "history": history, "landmarks": own}
