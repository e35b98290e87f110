"""A prepared training, carried out: from the engine to the model."""

from __future__ import annotations

import time
from collections.abc import Callable

from ooc_svm.model.model import Model
from ooc_svm.solvers.base import Solver
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.training import hints
from ooc_svm.training.checkpoint import Checkpoints, saved_parameters
from ooc_svm.training.columns import column_scale, column_sums, kernel_gamma, needs_columns
from ooc_svm.training.comparison import Comparison
from ooc_svm.training.engines import open_engine
from ooc_svm.training.prepare import Preparation
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.run import Run
from ooc_svm.training.warmup import warm_up

PUBLIC_CALL = 4  # Level of the stack: behind `execute` come the function and the check of its arguments


def execute(prepared: Preparation, progress: Callable[[Progress], None] | None) -> Model:
    """Train, with checkpoints if they are asked for, and compare values of C if that is.

    Where nobody is told of progress, hints are warnings, in the name of who called the public function.
    """
    wanted, checkpoints = prepared.options, None
    if wanted.checkpoint is not None:
        checkpoints = Checkpoints(wanted.checkpoint, prepared.key())
    model = _run(prepared, progress, checkpoints)
    if progress is None:
        hints.warn(model.report, PUBLIC_CALL)
    return model


def _run(
    prepared: Preparation, progress: Callable[[Progress], None] | None, checkpoints: Checkpoints | None
) -> Model:
    """Train, from prepared data to the model."""
    options = prepared.options
    saved = checkpoints.newest_metadata() if checkpoints is not None and options.resume else None
    kept = None if saved is None else saved_parameters(saved)
    with open_engine(prepared, kept) as (engine, budget):
        engine.sorting_bytes = budget.sorting_bytes
        solvers: list[Solver] = []
        recorder = Recorder(engine, lambda: [s.certificate for s in solvers], options.tol, progress)
        if (remark := prepared.data.remark) is not None:
            recorder.note(remark)
        if n_unlabelled := prepared.data.n_unlabelled:
            recorder.note(f"{n_unlabelled} rows without a label are left out")
        warm_up(options, prepared.data.value_type, prepared.weighted, recorder.note)
        models = prepared.models(prepared.fill(engine))
        if (purpose := needs_columns(options)) is not None:
            recorder.note(f"one read comes first, for {purpose}")
        sums = None if purpose is None else column_sums(engine)
        source = prepared.data.source
        scale = column_scale(sums, options, source.n_rows, prepared.data.index_base)
        gamma = kernel_gamma(sums, options, source.n_rows, source.n_features, scale)
        recorder.begin()
        deadline = None if options.time_limit is None else time.monotonic() + options.time_limit
        context = prepared.context(
            prepared.workload.size, scale, Stopping(options.tol, options.max_passes, deadline), gamma
        )
        solvers += prepared.solvers(models, budget.plan, context, engine)
        run = Run(prepared, models, solvers, context, budget, engine, recorder, checkpoints)
        comparison = None if prepared.tuning is None else Comparison(run)
        if comparison is not None:
            comparison.begin()
        if saved is None:
            run.start()
        else:
            run.restore()
        model = run.run()
        return model if comparison is None else comparison.concluded(model)
