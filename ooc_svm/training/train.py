"""One call that puts data, problem, solver and engine together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from ooc_svm.model.model import Model
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.base import Solver
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.store import Store
from ooc_svm.system.malloc import share_freed_memory
from ooc_svm.training.checkpoint import Checkpoints, saved_parameters
from ooc_svm.training.data import open_data
from ooc_svm.training.engines import open_engine
from ooc_svm.training.keys import run_keys
from ooc_svm.training.prepare import Preparation, normal_options, prepare
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.run import Run
from ooc_svm.training.scale import column_scale
from ooc_svm.training.warmup import warm_up


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


def _run(
    prepared: Preparation, progress: Callable[[Progress], None] | None, checkpoints: Checkpoints | None
) -> Model:
    """Train, from prepared data to the model."""
    options, source = prepared.options, prepared.data.source
    saved = checkpoints.newest_metadata() if checkpoints is not None and options.resume else None
    kept = None if saved is None else saved_parameters(saved)
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
