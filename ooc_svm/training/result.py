"""What a run ends with: the model of the best points, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.catalog import KERNELS
from ooc_svm.data.classes import label_name
from ooc_svm.engine.base import Engine
from ooc_svm.model.model import Model
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.stopping import CERTIFIED, SIGNAL, reason_of_all
from ooc_svm.training import hints
from ooc_svm.training.functions import decision_functions
from ooc_svm.training.progress import Recorder, best_quality
from ooc_svm.training.prune import pruning_report
from ooc_svm.training.quality import Quality, measure, to_json

if TYPE_CHECKING:
    from ooc_svm.training.preparation import Preparation
    from ooc_svm.training.run import Run

_UNKNOWN: dict[str, Any] = {"rows": None, "quality": None}


def ended_model(run: Run) -> Model:
    """The model of a run that has ended, calibrated if that is asked for; Interrupted by a signal."""
    model = run.model(ended=True)
    if run.prepared.options.calibrate is None:
        return model
    from ooc_svm.training.calibration import calibrated

    return calibrated(run, model)


def make_model(run: Run, *, measured: bool, room: int | None = None) -> Model:
    """The model of the best points so far; measuring it takes passes. ``room``: see `decision_functions`."""
    prepared, (models, solvers) = run.prepared, run.final
    batch = prepared.batch
    # Which class has the largest score is not known where some are in another batch.
    measured = measured and not (batch is not None and (batch.splits_classes or not batch.n_models))
    quality, found = _measured(run) if measured else ([], run.hints)
    options, data = run.prepared.options_of(run.variant), prepared.data
    names = data.labels.names
    solutions = [solver.solution() for solver in solvers]
    rows = [model_report(run, number) for number in run.numbers(run.final_fold)]
    own = [each for whole in quality for each in _own_quality(whole, len(models) // len(quality))]
    rows = [row | quality_of for row, quality_of in zip(rows, own or [_UNKNOWN] * len(rows), strict=True)]
    report = {
        "problem": options.problem,
        "loss": options.resolved_loss,
        "solver": options.resolved_solver,
        "kernel": options.kernel,
        **_kernel_numbers(run),
        "tol": options.tol,
        "prune": options.prune if run.unpruned else None,
        **run.budget.plan.report,
        "value_type": data.value_type,
        "unlabelled_rows": data.n_unlabelled,
        "quality": to_json(models, quality) if quality else [],
        "hints": hints.to_json(found),
        **_run_report(run.recorder, run.engine, rows),
        "n_rows": data.source.n_rows - data.n_held_out,
    }
    selected = len(models) - 1
    validated = run.recorder.quality
    # Pruning has changed the models since; a run that had ended was measured on other rows, or on none.
    if measured and (run.unpruned or validated is None):
        validated = run.recorder.measure()
    if validated is not None:
        C, metric, value = best_quality(validated)
        selected = [spec.C for spec in models].index(C)
        report["validation"] = {**_rows_of_validation(run), "C": C, metric: value}
    if data.conversion_seconds is not None:
        report["conversion_seconds"] = data.conversion_seconds()
    classes = prepared.classes if prepared.problem.has_classes else np.empty(0)
    binary = [spec.classes for spec in models if spec.classes is not None]
    return Model(
        problem=options.problem,
        loss=options.resolved_loss,
        solver=options.resolved_solver,
        functions=decision_functions(run, solutions, room),
        positive=[each.positive for each in binary],
        negative=binary[0].negative if binary else None,
        classes=tuple(classes.tolist()),
        label_names=tuple(names[int(label)] for label in classes) if names and len(classes) else None,
        multilabel=data.labels.sets is not None and bool(binary),
        C=tuple(spec.C for spec in models),
        index_base=data.text_base,
        feature_names=data.feature_names,
        options=replace(options, positive=_positive(prepared)).to_json(),
        selected=selected,
        report=report,
    )


def _rows_of_validation(run: Run) -> dict[str, Any]:
    """What the report says of the rows that the quality was measured on."""
    if n_rows := run.prepared.data.n_held_out:
        return {"n_rows": n_rows}
    left_out = {} if run.measuring is None else run.measuring.left_out
    return {"store": str(run.prepared.options.validation), **left_out}


def _positive(prepared: Preparation) -> tuple[float | str, ...]:
    """The labels of the positive side: where labels are names and no classes, the names of the higher rank.

    Without them that would be the larger number, and other data may count the same names otherwise.
    """
    labels = prepared.data.labels
    positive = labels.positive(prepared.options)
    if labels.names is None or prepared.problem.has_classes:
        return positive
    return tuple(labels.names[int(label)] for label in positive or prepared.classes[-1:].tolist())


def _kernel_numbers(run: Run) -> dict[str, Any]:
    """What the report says of a kernel that has numbers."""
    names = KERNELS[run.prepared.options.kernel].options
    return {
        name: number for name, number in run.context.kernels[run.variant]._asdict().items() if name in names
    }


def _measured(run: Run) -> tuple[list[Quality | None], list[hints.Hint]]:
    """How well the best points predict the rows of training, for each C, and all hints."""
    (models, solvers), prepared = run.final, run.prepared
    kept = [solver.kept_scores() for solver in solvers]
    with np.errstate(over="ignore", invalid="ignore"):
        quality = measure(run.engine, models, kept)
    certified = all(solver.certificate.stop_reason == CERTIFIED for solver in solvers)
    found = [*run.hints, *hints.of_columns(solvers[0].hints(), prepared.data, quality)]
    found += [hints.Hint(*each) for solver in solvers for each in solver.obstacles().items()]
    exact = [solver.certificate for solver in solvers if not solver.refines_values]
    found += hints.of_rounding(exact, prepared.options.tol)
    return quality, [*found, *hints.of_quality(run.prepared.options_of(run.variant), quality, certified)]


def _own_quality(whole: Quality | None, n_models: int) -> list[dict[str, Any]]:
    """What the report says of the quality of each model of one value of C."""
    if whole is None:
        return [_UNKNOWN] * n_models
    return [{"rows": n, "quality": own} for n, own in zip(whole.rows, whole.models, strict=True)]


def model_report(run: Run, number: int) -> dict[str, Any]:
    """What the report says of one model of a run, its quality left out."""
    solver, data = run.solvers[number], run.prepared.data
    bias = solver.solution().bias
    return (
        _certificate_report(run.models[number], bias, solver.certificate, data.labels.names)
        | solver.metadata(data.source.n_rows)
        | pruning_report(run, number)
    )


def _certificate_report(
    spec: ModelSpec, bias: float, certificate: Certificate, names: tuple[str, ...] | None
) -> dict[str, Any]:
    """What the report says of the certificate of a model."""
    label = None
    if spec.classes is not None:
        positive = spec.classes.positive
        label = label_name(positive, names)
    return {
        "label": label,
        "C": spec.C,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "rounding": certificate.rounding,
        "absolute": certificate.absolute,
        "passes": certificate.passes,
        "bias": float(bias),
        "n_support": None if certificate.stop_reason is None else certificate.n_support,
        "converged": certificate.stop_reason == CERTIFIED,
        "stop_reason": certificate.stop_reason or SIGNAL,
    }


def fold_certificates(run: Run) -> list[dict[str, Any]]:
    """What the report says of each model that a fold was held out of."""
    return [
        {**run.prepared.variants[spec.variant].settings, "fold": spec.fold + 1} | model_report(run, number)
        for number, spec in enumerate(run.models)
        if spec.fold is not None
    ]


def with_certificates(report: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report of a run that has other models than those of the report as well: how they ended counts."""
    return {**report, **_ended([*report["models"], *others])}


def _ended(models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How the models ended."""
    return {
        "converged": all(model["converged"] for model in models),
        "stop_reason": reason_of_all(model["stop_reason"] for model in models),
    }


# What the parts of a run sum up to.
COSTS = ("passes", "bytes_read", "seconds", "waiting_seconds", "computing_seconds")


def costs(recorder: Recorder, engine: Engine) -> dict[str, Any]:
    """What a run has cost, by the names in `COSTS`."""
    of = engine.counters
    found = (of.passes, of.bytes_read, recorder.seconds, of.waiting_seconds, of.visiting_seconds)
    return dict(zip(COSTS, found, strict=True))


def sum_of_costs(*parts: dict[str, Any]) -> dict[str, Any]:
    """What the parts of a run have cost together; each may have other entries as well."""
    return {name: sum(part[name] for part in parts) for name in COSTS}


def _run_report(recorder: Recorder, engine: Engine, models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The part of the report that tells how the run went."""
    source = engine.source
    return {
        "n_rows": source.n_rows,
        "n_features": source.n_features,
        "n_nonzeros": source.n_nonzeros,
        **costs(recorder, engine),
        "peak_memory_bytes": engine.peak_memory(),
        **_ended(models),
        "models": list(models),
        "history": recorder.history,
    }
