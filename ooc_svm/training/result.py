"""What a run ends with: the model of the best points, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.data.classes import label_text
from ooc_svm.engine.base import Engine
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.stopping import CERTIFIED, SIGNAL
from ooc_svm.training.progress import Recorder

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


def make_model(run: Run) -> Model:
    """The model of the best points so far, with the report of the run."""
    prepared, models, solvers = run.prepared, run.models, run.solvers
    options, data = prepared.options, prepared.data
    names = data.labels.names
    solutions = [solver.solution() for solver in solvers]
    rows = [
        _model_report(spec, bias, solver.certificate, names) | solver.metadata(data.source.n_rows)
        for spec, (_, bias), solver in zip(models, solutions, solvers, strict=True)
    ]
    report = {
        "problem": options.problem,
        "loss": options.resolved_loss,
        "solver": options.resolved_solver,
        "kernel": options.kernel,
        **run.budget.plan.report,
        "value_type": data.value_type,
        **_run_report(run.recorder, run.engine, rows),
    }
    classes = prepared.classes if prepared.problem.has_classes else np.empty(0)
    binary = [spec.classes for spec in models if spec.classes is not None]
    return Model(
        problem=options.problem,
        loss=options.resolved_loss,
        solver=options.resolved_solver,
        functions=LinearFunctions(
            np.array([w for w, _ in solutions]), np.array([bias for _, bias in solutions]), run.scale
        ),
        positive=[each.positive for each in binary],
        negative=binary[0].negative if binary else None,
        classes=tuple(classes.tolist()),
        label_names=tuple(names[int(label)] for label in classes) if names and len(classes) else None,
        C=tuple(spec.C for spec in models),
        index_base=data.index_base,
        options=replace(options, positive=data.labels.positive(options)).to_json(),
        report=report,
    )


def _model_report(
    spec: ModelSpec, bias: float, certificate: Certificate, names: tuple[str, ...] | None
) -> dict[str, Any]:
    label = None
    if spec.classes is not None:
        positive = spec.classes.positive
        label = label_text(positive) if names is None else names[int(positive)]
    return {
        "label": label,
        "C": spec.C,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "passes": certificate.passes,
        "bias": bias,
        "n_support": None if certificate.stop_reason is None else certificate.n_support,
        "converged": certificate.stop_reason == CERTIFIED,
        "stop_reason": certificate.stop_reason or SIGNAL,
    }


def _run_report(recorder: Recorder, engine: Engine, models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The part of the report that tells how the run went."""
    counters, source = engine.counters, engine.source
    return {
        "n_rows": source.n_rows,
        "n_features": source.n_features,
        "n_nonzeros": source.n_nonzeros,
        "passes": counters.passes,
        "bytes_read": counters.bytes_read,
        "seconds": recorder.seconds,
        "waiting_seconds": counters.waiting_seconds,
        "computing_seconds": counters.visiting_seconds,
        "peak_memory_bytes": engine.peak_memory(),
        "converged": all(model["converged"] for model in models),
        "stop_reason": ", ".join(dict.fromkeys(model["stop_reason"] for model in models)),
        "models": list(models),
        "history": recorder.history,
    }
