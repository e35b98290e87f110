"""Kernel models of some rows, the landmarks: trained by the linear solver, certified for the kernel.

1. The seed draws landmarks, and one read that is not counted brings them.
2. Their whitened kernel values are the features of a linear model (`ooc_svm.data.landmarks`).
3. Block SMO begins with the model, as a function of the landmarks, and with the multipliers of the linear
   solver: one more read finds P and D of the kernel. It goes on from there if that is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ooc_svm.catalog import LINEAR, SOLVERS, load
from ooc_svm.data.blocks import Int64Array
from ooc_svm.data.landmarks import Landmarks, LandmarkSource
from ooc_svm.errors import Interrupted
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.passes.base import UNCOUNTED
from ooc_svm.passes.columns import ColumnSums
from ooc_svm.passes.gather import GatherPass, NumberedRows, join_gathered
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import row_slices
from ooc_svm.solvers.base import PointStarting, Start, WarmStarting
from ooc_svm.system.memory import memory_budget
from ooc_svm.training.checkpoint import Checkpoints, part_folder
from ooc_svm.training.columns import column_scale, column_sums, kernel_gamma, needs_columns
from ooc_svm.training.engines import open_engine
from ooc_svm.training.grid import variants_of
from ooc_svm.training.keys import key_of
from ooc_svm.training.memory_plan import Budget, divide
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.run import Run, one_thread_a_product
from ooc_svm.training.together import train_together

FEATURE_SOLVER = "streamed-smo"  # It has a multiplier of each row, which D of the kernel follows from
# What both parts of a run sum up to in its report.
_SUMS = ("passes", "bytes_read", "seconds", "waiting_seconds", "computing_seconds")
_KEPT = ("passes", "bytes_read", "seconds", "converged", "stop_reason", "models")


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """The landmarks, and what was found on the way."""

    numbers: Int64Array
    landmarks: Landmarks
    columns: ColumnSums | None
    seconds: float


def landmark_numbers(n_rows: int, count: int, seed: int) -> Int64Array:
    """Numbers of so many rows that the seed draws, ascending; of all rows if there are no more."""
    drawn = np.random.default_rng(seed).choice(n_rows, min(count, n_rows), replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def train_on_landmarks(
    prepared: Preparation, progress: Callable[[Progress], None] | None, checkpoints: Checkpoints | None
) -> Model:
    """Train a model of landmarks, and find the gap of the kernel."""
    feature_budget(prepared)
    # Eigenvectors and features, too, have the same bits on any number of processors.
    with ExitStack() as stack:
        handed = stack.enter_context(RowVectors(prepared.data.source.n_rows, 0))
        with one_thread_a_product():
            drawn = _draw(prepared, progress)
            of_features = with_features(prepared, drawn.landmarks)
            own = None
            if checkpoints is not None:
                own = Checkpoints(part_folder(checkpoints.folder, "landmarks"), key_of(of_features))
            linear = _train_features(of_features, progress, own, drawn.seconds, handed)
        assert isinstance(linear.functions, LinearFunctions)
        weights, bias = linear.functions.weights, linear.bias
        spent = drawn.seconds + linear.report["seconds"]

        def start(run: Run) -> None:
            assert isinstance(prepared.solver, PointStarting)
            for number, solver in enumerate(run.solvers):
                found = drawn.landmarks.coefficients(weights[number])
                point = Start(drawn.numbers, found, float(bias[number]), handed[str(number)])
                prepared.solver.begin_with(solver, run.engine.vectors, point)

        if checkpoints is not None:
            # States that follow from another end of the linear part are none of this run.
            name = f"kernel-{hashlib.sha256(weights.tobytes() + bias.tobytes()).hexdigest()[:16]}"
            checkpoints = Checkpoints(part_folder(checkpoints.folder, name), key_of(prepared))
        model, _ = train_together(prepared, progress, checkpoints, drawn.columns, spent, start)
    return replace(model, report=_joined(model.report, linear.report, drawn))


def _draw(prepared: Preparation, progress: Callable[[Progress], None] | None) -> _Drawn:
    """Read the landmarks, and before them what scales and numbers of the kernel follow from."""
    options, source = prepared.options, prepared.data.source
    assert options.landmarks is not None
    numbers = landmark_numbers(source.n_rows, options.landmarks, options.seed)
    with open_engine(prepared, None) as (engine, _):
        recorder = Recorder(engine, list, options.tol, progress)
        purpose, columns = needs_columns(options), None
        if purpose is not None:
            recorder.note(f"one read comes first, for {purpose}")
            columns = column_sums(engine)
        recorder.note(f"one read brings {len(numbers)} landmarks, whose kernel values are features")
        rows = join_gathered(engine.stream([GatherPass(NumberedRows(numbers), (), UNCOUNTED)])[0]).rows
    # Blocks in memory are gone by now.
    scale = column_scale(columns, options, source.n_rows, prepared.data.index_base)
    gamma = kernel_gamma(columns, options, source.n_rows, source.n_features, scale)
    kernel = prepared.variants[0].kernel(gamma)
    landmarks = Landmarks.of(kernel, rows, source.n_features, None if scale is None else scale**2)
    return _Drawn(numbers, landmarks, columns, recorder.seconds)


def feature_budget(prepared: Preparation) -> Budget:
    """The division of the memory for the linear part of a run; MemoryBudgetError if it does not fit."""
    of_features = with_features(prepared, None)
    allowed = memory_budget(prepared.options.memory)
    return divide(of_features.workload, of_features.solver, of_features.options, allowed)


def with_features(prepared: Preparation, landmarks: Landmarks | None) -> Preparation:
    """The linear problem that has the features of landmarks in place of columns.

    ``landmarks``: None where they are not known yet; there are no more features than landmarks.
    """
    options, data = prepared.options, prepared.data
    assert options.landmarks is not None
    count = min(options.landmarks, data.source.n_rows)
    linear = replace(
        options, kernel=LINEAR, gamma=None, degree=None, coef0=None, solver=FEATURE_SOLVER, scale="none",
        landmarks=None, polish=False, calibrate=None, validation=options.held_out_share,
    )  # fmt: skip
    source = LandmarkSource(data.source, landmarks, count)
    longest = -(-4 * data.source.n_nonzeros // max(data.source.n_rows, 1))
    features = replace(
        data,
        source=source,
        id=lambda: _id_of(data.id(), options.seed, landmarks),
        value_type=source.value_type,
        index_base=0,
        feature_names=None,
        thread_nbytes=source.thread_nbytes(count, longest),
        shared_nbytes=source.shared_nbytes(count, longest),
    )
    return replace(
        prepared,
        data=features,
        options=linear,
        solver=load(SOLVERS[FEATURE_SOLVER].home),
        variants=list(variants_of({}, linear)),
    )


def _id_of(data_id: str, seed: int, landmarks: Landmarks | None) -> str:
    """What tells features from others."""
    assert landmarks is not None
    scaled = landmarks.scale2 is not None
    return f"{data_id} landmarks {landmarks.n_rows} {seed} {landmarks.kernel} {scaled}"


def _train_features(
    prepared: Preparation,
    progress: Callable[[Progress], None] | None,
    checkpoints: Checkpoints | None,
    spent: float,
    handed: RowVectors,
) -> Model:
    """Train the linear model, and keep its multipliers: those of the k-th model as ``str(k)``."""

    def end(run: Run) -> Model:
        package, vectors = prepared.solver, run.engine.vectors
        assert isinstance(package, WarmStarting)
        for number, solver in enumerate(run.solvers):
            settled, kept = vectors[package.settle(solver, vectors)], handed.create(str(number), np.float64)
            for first, last in row_slices(settled.n_rows):
                kept.write(first, settled.read(first, last))
        return run.model()

    def tell(event: Progress) -> None:
        # Hints are of the data, and come with the second part.
        if progress is not None and event.kind != "hint":
            progress(event)

    told = None if progress is None else tell
    try:
        return train_together(prepared, told, checkpoints, None, spent, end=end)[0]
    except Interrupted as interrupted:
        # It would be a model of features that no data have.
        interrupted.model = None
        raise


def _joined(report: dict[str, Any], linear: dict[str, Any], drawn: _Drawn) -> dict[str, Any]:
    """The report of the kernel model, with that of the linear one."""
    sums = {name: report[name] + linear[name] for name in _SUMS}
    sums["seconds"] += drawn.seconds
    own = {"landmarks": drawn.landmarks.n_rows, "features": linear["n_features"]}
    peak = max(report["peak_memory_bytes"], linear["peak_memory_bytes"])
    return (
        report
        | sums
        | {
            "peak_memory_bytes": peak,
            "landmarks": own | {name: linear[name] for name in _KEPT},
        }
    )
