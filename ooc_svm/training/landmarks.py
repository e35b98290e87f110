"""Kernel models of some rows, the landmarks: trained by the linear solver, certified for the kernel.

1. One read that is not counted brings rows that the seed draws, and half of the landmarks are chosen among
   them by their kernel values.
2. Whitened kernel values are the features of a linear model (`ooc_svm.data.landmarks`). From a rough one
   follows, by another read that is not counted, what it would gain from each of the other rows: the other
   half of the landmarks are the best of these.
3. A model of the features of all landmarks is trained.
4. Block SMO begins with the model, as a function of the landmarks, and with the multipliers of the linear
   solver: one more read finds P and D of the kernel. It goes on from there if that is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ooc_svm.data.blocks import row_slices
from ooc_svm.errors import Interrupted
from ooc_svm.model.model import Model
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.base import LinearFunction, PointStarting, Start, WarmStarting
from ooc_svm.training.checkpoint import Checkpoints
from ooc_svm.training.keys import key_of
from ooc_svm.training.landmark_draw import draw
from ooc_svm.training.landmark_features import feature_budget, first_features, with_features
from ooc_svm.training.landmark_gains import choose_by_gain
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress
from ooc_svm.training.result import sum_of_costs
from ooc_svm.training.run import Run, one_thread_a_product
from ooc_svm.training.together import train_together

_KEPT = ("history", "passes", "bytes_read", "seconds", "converged", "stop_reason", "models")

Tell = Callable[[Progress], None] | None


@dataclass(frozen=True, slots=True)
class _Linear:
    """What linear models of features ended with; those that a fold is held out of are among them."""

    report: dict[str, Any]
    functions: list[LinearFunction]
    primals: list[float]


def train_on_landmarks(
    prepared: Preparation, progress: Tell, checkpoints: Checkpoints | None, deadline: float | None
) -> Model:
    """Train a model of landmarks, and find the gap of the kernel; ``deadline``: see `train_together`."""
    feature_budget(prepared)
    # Eigenvectors and features, too, have the same bits on any number of processors.
    with ExitStack() as stack:
        handed = stack.enter_context(RowVectors(prepared.data.source.n_rows, 0))
        with one_thread_a_product():
            drawn = draw(prepared, progress)
            before = drawn.costs
            if drawn.pivots.missing:
                of_first = first_features(prepared, drawn.landmarks())
                rough = None if checkpoints is None else checkpoints.inner("rough", key_of(of_first))
                first = _train_features(of_first, progress, rough, None, before, handed)
                before = sum_of_costs(before, first.report)
                told = _after(progress, before)
                found = choose_by_gain(drawn, prepared, handed, first.primals, told)
                before = sum_of_costs(before, found)
            numbers, columns, landmarks = drawn.numbers, drawn.columns, drawn.landmarks()
            del drawn
            of_features = with_features(prepared, landmarks)
            own = None if checkpoints is None else checkpoints.inner("landmarks", key_of(of_features))
            linear = _train_features(of_features, progress, own, deadline, before, handed)
        spent = sum_of_costs(before, linear.report)

        def start(run: Run) -> None:
            assert isinstance(prepared.solver, PointStarting)
            run.recorder.note(
                "the model of the features is trained; one read more finds the gap of the kernel"
            )
            for number, (solver, function) in enumerate(zip(run.solvers, linear.functions, strict=True)):
                coefficients = landmarks.coefficients(function.weights)
                point = Start(numbers, coefficients, float(function.bias), handed[str(number)])
                prepared.solver.begin_with(solver, run.engine.vectors, point)

        if checkpoints is not None:
            # States that follow from another end of the linear part are none of this run.
            end = b"".join(np.append(each.weights, each.bias).tobytes() for each in linear.functions)
            name = f"kernel-{hashlib.sha256(end).hexdigest()[:16]}"
            checkpoints = checkpoints.inner(name, key_of(prepared))
        told = _after(progress, spent)
        model, _ = train_together(prepared, told, checkpoints, columns, deadline, start)
    return replace(model, report=_joined(model.report, linear.report, landmarks.n_rows, spent))


def _train_features(
    prepared: Preparation,
    progress: Tell,
    checkpoints: Checkpoints | None,
    deadline: float | None,
    before: dict[str, Any],
    handed: RowVectors,
) -> _Linear:
    """Train linear models of features, and keep their multipliers: those of the k-th model as ``str(k)``.

    ``before``: what the run has cost so far.
    """
    functions, primals = list[LinearFunction](), list[float]()

    def end(run: Run) -> Model:
        package, vectors = prepared.solver, run.engine.vectors
        assert isinstance(package, WarmStarting)
        for number, solver in enumerate(run.solvers):
            name = str(number)
            settled = vectors[package.settle(solver, vectors)]
            kept = handed[name] if name in handed else handed.create(name, np.float64)
            for first, last in row_slices(settled.n_rows):
                kept.write(first, settled.read(first, last))
            solution = solver.solution()
            assert isinstance(solution, LinearFunction)
            functions.append(solution)
            primals.append(solver.certificate.primal)
        return run.model()

    def tell(event: Progress) -> None:
        # Hints are of the data, and come with the last part.
        if progress is not None and event.kind != "hint":
            progress(event)

    told = None if progress is None else _after(tell, before)
    try:
        model, _ = train_together(prepared, told, checkpoints, None, deadline, end=end)
    except Interrupted as interrupted:
        # It would be a model of features that no data have.
        interrupted.model = None
        raise
    return _Linear(model.report, functions, primals)


def _after(progress: Tell, spent: dict[str, Any]) -> Tell:
    """Tell of a part as what follows on those before it."""
    if progress is None:
        return None

    def tell(event: Progress) -> None:
        names = ("passes", "bytes_read", "seconds")
        progress(replace(event, **{name: getattr(event, name) + spent[name] for name in names}))

    return tell


def _joined(
    report: dict[str, Any], linear: dict[str, Any], n_landmarks: int, before: dict[str, Any]
) -> dict[str, Any]:
    """The report of the kernel model, with that of the linear one; ``before``: costs of all parts before."""
    later = {"pass": before["passes"], "bytes_read": before["bytes_read"], "seconds": before["seconds"]}
    history = [row | {name: row[name] + later[name] for name in later} for row in report["history"]]
    own = {"landmarks": n_landmarks, "features": linear["n_features"]}
    peak = max(report["peak_memory_bytes"], linear["peak_memory_bytes"])
    own |= {name: linear[name] for name in _KEPT}
    if not report["converged"] and not linear["converged"]:
        reasons = f"{linear['stop_reason']}, {report['stop_reason']}".split(", ")
        report["stop_reason"] = ", ".join(dict.fromkeys(reasons))
    costs = sum_of_costs(report, before)
    return report | costs | {"peak_memory_bytes": peak, "history": history, "landmarks": own}
