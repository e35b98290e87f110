"""Models that are trained together: from the engine to the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ooc_svm.model.model import Model
from ooc_svm.passes.columns import ColumnSums
from ooc_svm.solvers.base import Solver
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.training.checkpoint import Checkpoints, saved_parameters
from ooc_svm.training.columns import column_scale, column_sums, kernel_gamma, needs_columns
from ooc_svm.training.engines import open_engine
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.prune import prune
from ooc_svm.training.result import ended_model
from ooc_svm.training.run import Run
from ooc_svm.training.warmup import warm_up


def train_together(
    prepared: Preparation,
    progress: Callable[[Progress], None] | None,
    checkpoints: Checkpoints | None,
    columns: ColumnSums | None,
    deadline: float | None,
    start: Callable[[Run], None] = Run.start,
    end: Callable[[Run], Model] = ended_model,
) -> tuple[Model, ColumnSums | None]:
    """Train models that share the reads, from prepared data to the model.

    ``columns``: the statistics that a batch before has found.
    ``deadline``: time on the monotonic clock after which no read begins.
    ``start``: gives a run that goes on from no checkpoint what it begins with.
    ``end``: makes the model of a run that has ended.

    Returns the statistics as well, if any are needed.
    """
    options = prepared.options
    saved = checkpoints.newest_metadata() if checkpoints is not None and options.resume else None
    kept = None if saved is None else saved_parameters(saved)
    with open_engine(prepared, kept) as (engine, budget), _leaving() as solvers:
        engine.sorting_bytes = budget.sorting_bytes
        recorder = Recorder(engine, lambda: [s.certificate for s in solvers], options.tol, progress)
        _tell_what_begins(prepared, recorder)
        kind = prepared.data.value_type, prepared.weighted
        warm_up(options, *kind, recorder.note, kinds=budget.plan.kinds)
        models = prepared.models(prepared.fill(engine))
        variants, source = prepared.variants, prepared.data.source
        purpose = needs_columns(variants[0].options)
        if purpose is not None and columns is None:
            recorder.note(f"one read comes first, for {purpose}")
            columns = column_sums(engine)
        scale = column_scale(columns, options, source.n_rows, prepared.data.index_base)
        sizes = source.n_rows, source.n_features
        gammas = [kernel_gamma(columns, variant.options, *sizes, scale) for variant in variants]
        recorder.begin()
        context = prepared.context(
            prepared.workload.size, scale, Stopping(options.tol, options.max_passes, deadline), gammas
        )
        solvers += prepared.solvers(models, budget.plan, context, engine)
        run = Run(prepared, models, solvers, context, budget, engine, recorder, checkpoints)
        if prepared.folds is not None:
            from ooc_svm.training.calibration import announcement

            if (remark := announcement(prepared)) is not None:
                recorder.note(remark)
        comparison = None
        if prepared.tuning is not None:
            from ooc_svm.training.comparison import Comparison

            comparison = Comparison(run)
            comparison.begin()
        if saved is None:
            start(run)
        else:
            run.restore()
        run.run()
        if options.prune is not None:
            prune(run, options.prune)
        return (end(run) if comparison is None else comparison.concluded()), columns


@contextmanager
def _leaving() -> Iterator[list[Solver]]:
    """The solvers of a run, that know of each other until it ends: then the memory of all is free at once."""
    solvers: list[Solver] = []
    try:
        yield solvers
    finally:
        for each in solvers:
            each.leave()


def _tell_what_begins(prepared: Preparation, recorder: Recorder) -> None:
    """Say what a user should know before the first read."""
    data, batch = prepared.data, prepared.batch
    if batch is not None:
        recorder.note(f"{batch.name}, {batch.content}: more at a time need more memory")
    if batch is None or batch.number == 0:
        if data.remark is not None:
            recorder.note(data.remark)
        if data.writing_seconds:
            recorder.wrote(data.writing_seconds)
        if data.n_unlabelled:
            recorder.note(f"{data.n_unlabelled} rows without a label are left out")
