"""One call that puts data, problem, solver and engine together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_limits

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.errors import DamageError, InputError, Interrupted
from ooc_svm.model.model import Model
from ooc_svm.options import TrainOptions
from ooc_svm.passes.columns import ColumnPass, ColumnSums
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import Solver, WarmStarting
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.store import Store
from ooc_svm.system import signals
from ooc_svm.system.malloc import share_freed_memory
from ooc_svm.training.checkpoint import Checkpoints, saved_item
from ooc_svm.training.data import open_data
from ooc_svm.training.engines import open_engine
from ooc_svm.training.keys import families, run_keys
from ooc_svm.training.memory_plan import Budget
from ooc_svm.training.prepare import Preparation, normal_options, prepare
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.result import make_model
from ooc_svm.training.warm_start import warm_start
from ooc_svm.training.warmup import warm_up

# Reads after which a solver may give a hint.
HINT_PASSES = 1

# Share of the time that writing checkpoints may take.
CHECKPOINT_SHARE = 0.1


def train(
    data: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    qid: Any = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Model:
    """Train a linear support vector machine to a certified gap.

    What is minimised is one of ::

        P(w, b) = 1/2 |w|^2 + C sum_i omega_i loss(w.x_i + b)
        P(w)    = 1/2 |w|^2 + C/m sum_ij omega_ij max(0, 1 - w.(x_i - x_j))

    The loss is ``max(0, 1 - y_i s)`` or its square for classes, ``max(0, |z_i - s| - epsilon)`` or its square
    for values. ``omega_i`` is the weight of the row times that of its class; b is 0 (``bias="none"``), the
    weight of a constant feature, ``|w|^2 + b^2`` being penalised (``bias="penalized"``), or free of penalty
    (``bias="free"``). The second form is that of "ordinal", "roc-area" and "ranking": the sum is over the
    pairs of rows of which i has the higher label, for "ranking" inside groups of equal qid; m is the sum of
    their weights ``omega_ij``, the product of those of the rows or the weight of the group.

    Parameters
    ----------
    data : path, Store, or sparse matrix
        A store made by `ooc_svm.convert`, any AnnData Zarr file with a CSR ``X``, or rows in memory.
    labels : array_like of shape (n_rows,), optional
        With a matrix only: stores bring their labels.
    sample_weight : array_like of shape (n_rows,), optional
        With a matrix only: weights of the rows' losses, not negative.
    qid : array_like of int of shape (n_rows,), optional
        With a matrix only: numbers of the groups of "ranking"; rows of a group follow one another.
    progress : callable, optional
        Called with a `Progress` after each block and each pass.
    **options
        See `ooc_svm.options.TrainOptions`.

    Returns
    -------
    Model
        With the certificate of each decision function in ``report``.

    Raises
    ------
    UsageError
        Options that are not possible or contradict the data.
    InputError
        Labels that are no classes, fewer than two classes, negative weights, values that overflow.
    DamageError, StorageError
        The store or a checkpoint is damaged, reading or writing failed.
    MemoryBudgetError
        What is needed does not fit ``memory``; nothing was run.
    Interrupted
        By a signal, after a checkpoint if one was asked for.
    """
    wanted = TrainOptions(**normal_options(options))
    if isinstance(data, str | os.PathLike | Store):
        share_freed_memory()
    prepared = prepare(open_data(data, labels, sample_weight, wanted, qid), wanted)
    checkpoints = None
    if wanted.checkpoint is not None:
        checkpoints = Checkpoints(wanted.checkpoint, run_keys(prepared.data.id(), wanted))
    return _run(prepared, progress, checkpoints)


@dataclass(slots=True)
class Run:
    """One training: its parts, and what happens before every read of the data."""

    prepared: Preparation
    models: Sequence[ModelSpec]
    solvers: Sequence[Solver]
    scale: Float64Array | None
    budget: Budget
    engine: Engine
    recorder: Recorder
    checkpoints: Checkpoints | None
    _last_saved: float = field(default_factory=time.monotonic)
    _save_seconds: float = 0.0

    def start(self) -> None:
        """Begin where another run ended, if that is asked for."""
        options, data, vectors = self.prepared.options, self.prepared.data, self.engine.vectors
        if options.warm_start is None:
            return
        found = warm_start(
            options.warm_start,
            cast(WarmStarting, self.prepared.solver),
            self.solvers,
            self.models,
            vectors,
            families(data.id(), options),
            data.source.blocks,
        )
        self.recorder.note(f"starting from {found}")

    def restore(self) -> None:
        """Go on from the newest checkpoint."""
        assert self.checkpoints is not None
        counters = self.engine.counters
        states = [solver.state for solver in self.solvers]
        metadata = self.checkpoints.restore(states, self.engine.vectors, self._saved_vectors())
        fits = saved_item(metadata, "cut", list) == list(self.budget.plan.cut)
        if not fits or not all(solver.is_sound() for solver in self.solvers):
            raise DamageError(
                f"the checkpoint in {self.checkpoints.folder} does not fit the data; start the run again"
            )
        scaling_passes = counters.passes
        counters.passes = saved_item(metadata, "passes", int)
        counters.bytes_read = saved_item(metadata, "bytes_read", int)
        self.recorder.resume(saved_item(metadata, "history", list), saved_item(metadata, "seconds", float))
        for solver in self.solvers:
            if solver.certificate.passes:
                solver.certificate.reopen(solver.stopping)
        self.recorder.note(
            f"going on after {counters.passes} passes"
            + (f" ({scaling_passes} more for the scale of the columns)" if scaling_passes else "")
        )

    def run(self) -> Model:
        """Drive the solvers to their end."""
        # What overflows is reported by the certificate. The master problem's products are made by one
        # thread: a linear algebra library adds in another order on another number of processors.
        with np.errstate(over="ignore", invalid="ignore"), threadpool_limits(1, user_api="blas"):
            self.engine.run(self.solvers, self.between)
        self.recorder.passed()
        if self.checkpoints is not None:
            self.save()
        return self.model()

    def between(self) -> None:
        """Before every read of the data: history, checkpoint, interruption, a hint."""
        self.recorder.passed()
        passes, signal = self.engine.counters.passes, signals.stop_requested()
        if self.checkpoints is not None and passes:
            since = time.monotonic() - self._last_saved
            if signal is not None or self._save_seconds <= CHECKPOINT_SHARE * since:
                self.save()
        if signal is not None:
            kept = (
                "there is no checkpoint to go on from; ask for one with --checkpoint"
                if self.checkpoints is None
                else f"go on with --resume from {self.checkpoints.folder}"
            )
            whole = all(solver.certificate.passes for solver in self.solvers)
            model = self.model() if whole else None
            raise Interrupted(signal, f"interrupted after {passes} passes; {kept}", model)
        hint = self.solvers[0].hint() if passes == HINT_PASSES else None
        if hint is not None:
            self.recorder.note(hint)

    def save(self) -> None:
        """Write a checkpoint."""
        assert self.checkpoints is not None
        options, data, counters = self.prepared.options, self.prepared.data, self.engine.counters
        began = time.monotonic()
        metadata = {
            "C": [spec.C for spec in self.models],
            "family": families(data.id(), options)[0],
            "parameters": asdict(self.budget.plan.parameters),
            "cut": list(self.budget.plan.cut),
            "seconds": self.recorder.seconds,
            "history": self.recorder.history,
            "passes": counters.passes,
            "bytes_read": counters.bytes_read,
        }
        states = [solver.state for solver in self.solvers]
        self.checkpoints.save(counters.passes, states, self.engine.vectors, self._saved_vectors(), metadata)
        self._last_saved = time.monotonic()
        self._save_seconds = self._last_saved - began

    def model(self) -> Model:
        """The model of the best points so far."""
        plan = self.budget.plan
        return make_model(
            self.prepared, self.models, self.solvers, plan, self.scale, self.engine, self.recorder
        )

    def _saved_vectors(self) -> list[str]:
        """Names of the row vectors that solvers go on from; the others are made again from the data."""
        return [name for solver in self.solvers for name in solver.vectors]


def _run(
    prepared: Preparation, progress: Callable[[Progress], None] | None, checkpoints: Checkpoints | None
) -> Model:
    """Train, from prepared data to the model."""
    options, source = prepared.options, prepared.data.source
    saved = checkpoints.newest_metadata() if checkpoints is not None and options.resume else None
    kept = None if saved is None else _parameters(saved)
    with open_engine(prepared, kept) as (engine, budget):
        engine.sorting_bytes = budget.sorting_bytes
        solvers: list[Solver] = []
        recorder = Recorder(engine, lambda: [s.certificate for s in solvers], options.tol, progress)
        warm_up(options, prepared.data.value_type, source.has_weight, recorder.note)
        models = prepared.models(prepared.fill(engine))
        scale = column_scale(engine, options.scale, prepared.data.index_base)
        deadline = None if options.time_limit is None else time.monotonic() + options.time_limit
        context = prepared.context(
            prepared.workload().size, scale, Stopping(options.tol, options.max_passes, deadline)
        )
        solvers += prepared.solvers(models, budget.plan, context, engine)
        run = Run(prepared, models, solvers, scale, budget, engine, recorder, checkpoints)
        if saved is None:
            run.start()
        else:
            run.restore()
        return run.run()


def column_scale(engine: Engine, kind: str, index_base: int) -> Float64Array | None:
    """Factors of the columns, from one read of the data; None without scaling.

    Raises
    ------
    InputError
        A column whose spread cannot be divided by.
    """
    if kind == "none":
        return None
    sums: ColumnSums = engine.stream([ColumnPass(engine.source.n_features)])[0]
    with np.errstate(over="ignore", invalid="ignore"):
        spread = sums.largest if kind == "maxabs" else sums.deviation(engine.source.n_rows)
        # A column without spread keeps its unit.
        scale: Float64Array = 1.0 / np.where(spread == 0.0, 1.0, spread)
        # Dual solvers work with the squares.
        impossible = ~np.isfinite(scale**2) | (scale**2 == 0.0)
    if impossible.any():
        column = int(np.argmax(impossible))
        raise InputError(
            f"the feature {column + index_base} has values too large or too small to be "
            f"divided by their spread, {spread[column]}; change it or choose another --scale"
        )
    return scale


def _parameters(saved: Mapping[str, Any]) -> dict[str, int]:
    """The solver's parameters that a checkpoint was made with."""
    found: dict[str, int] = saved_item(saved, "parameters", dict)
    if any(type(number) is not int for number in found.values()):
        raise DamageError("the checkpoint does not say its parameters; start the run again")
    return found
