"""Calibration at the end of a run: from scores of rows that models were not trained on to probabilities.

The scores of each fold are those of the models that it was held out of, made in the reads of training. Where
a share of the rows is held out of all models, they are the scores of these rows. A map is fitted for each
model of the model file, to the scores of all folds together, and a temperature for several classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.errors import InputError, parameter
from ooc_svm.model.calibration import Calibration, ScoreMap, map_of, unfitted
from ooc_svm.model.model import Model
from ooc_svm.model.sigmoid import probabilities_of
from ooc_svm.problems.targets import FOLDS, HELD_OUT, WEIGHT
from ooc_svm.solvers.base import KeptScores, Solver
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.result import fold_certificates, with_certificates
from ooc_svm.training.score_bins import BinnedScores, FunctionScores, binned_scores
from ooc_svm.training.temperature import Temperature, fitted_temperature

if TYPE_CHECKING:
    from ooc_svm.training.run import Run

RELIABILITY_BINS = 20
"""Bins of equal width of the probability, in which it is compared with the share of rows of the class."""


def announcement(prepared: Preparation) -> str | None:
    """What a user should know before the first pass, where a calibration is all that needs folds."""
    folds = prepared.folds
    if folds is None or (prepared.tuning is not None and not prepared.tuning.on_store):
        return None
    rows = folds.sizes.sum(axis=0)
    fewest, most = int(rows.min()), int(rows.max())
    n_models = prepared.n_models
    return (
        f"{folds.n_folds} folds of {fewest}{f' to {most}' if most > fewest else ''} rows for the "
        f"probabilities: {n_models * folds.n_folds} models without a fold and {n_models} of all rows share "
        "each read"
    )


def uncalibrated(model: Model) -> Model:
    """A model as it will be, whose scores are taken for log-odds until there are some to fit maps to."""
    return replace(model, calibration=unfitted(model.n_models))


def calibrated(run: Run, model: Model) -> Model:
    """The model with a map for each of its functions, and what these do in its report.

    Interrupted by a signal.
    """
    prepared, models = run.prepared, model.report["models"]
    method = prepared.options.calibrate
    assert method is not None
    functions, bins = _functions(run), list[BinnedScores]()
    for own in binned_scores(run.engine, functions):
        bins += own
        if not all(each.n_rows for each in own):
            raise InputError(
                "all rows that probabilities could be fitted to have the weight 0; give them others, or "
                f"leave {parameter('calibrate')} out"
            )
        run.heed_signals()
    maps = [map_of(method).fit(own.scores, own.negatives, own.positives) for own in bins]
    temperatures = _temperatures(run, model, functions, maps, bins)
    facts: dict[str, Any] = {
        "method": method,
        "folds": None if prepared.folds is None else prepared.folds.sizes.sum(axis=0).tolist(),
        "functions": [
            {"label": row["label"], "C": row["C"], **own.to_json(), **reliability(own, counts)}
            for row, own, counts in zip(models, maps, bins, strict=True)
        ],
    }
    of_functions = None
    if temperatures:
        size = len(prepared.classes)
        facts["classes"] = [
            {"C": row["C"], "temperature": own.value, "log-loss": own.log_loss}
            for row, own in zip(models[::size], temperatures, strict=True)
        ]
        of_functions = np.repeat([own.value for own in temperatures], size)
    report = {**model.report, "calibration": facts}
    if prepared.tuning is None:
        facts["models"] = fold_certificates(run)
        report = with_certificates(report, facts["models"])
    return replace(model, calibration=Calibration(method, tuple(maps), of_functions), report=report)


def _temperatures(
    run: Run,
    model: Model,
    functions: Sequence[FunctionScores],
    maps: Sequence[ScoreMap],
    bins: Sequence[BinnedScores],
) -> list[Temperature]:
    """Of several classes that of the functions of each C; none where they are not all here."""
    batch, n_classes = run.prepared.batch, len(run.prepared.classes)
    if not model.is_one_vs_rest or model.multilabel or (batch is not None and batch.splits_classes):
        return []
    found = []
    for first in range(0, len(maps), n_classes):
        own = slice(first, first + n_classes)
        found.append(fitted_temperature(run.engine, functions[own], maps[own], bins[first].n_rows))
        run.heed_signals()
    return found


def _functions(run: Run) -> list[FunctionScores]:
    """Where the scores are, for each model of the model file."""
    prepared, (models, solvers) = run.prepared, run.final
    if prepared.folds is None:
        of_marks: list[dict[int, Solver]] = [{1: solver} for solver in solvers]
        marks, weight = HELD_OUT, None
    else:
        of_folds = [run.of_fold(fold)[1] for fold in range(prepared.n_folds)]
        of_marks = [dict(enumerate(own)) for own in zip(*of_folds, strict=True)]
        marks, weight = FOLDS, WEIGHT if prepared.has_weight else None
    found = []
    for spec, own in zip(models, of_marks, strict=True):
        assert spec.targets is not None
        kept = {mark: _kept(solver) for mark, solver in own.items()}
        found.append(FunctionScores(spec.targets, weight, marks, kept))
    return found


def _kept(solver: Solver) -> KeptScores:
    kept = solver.kept_scores()
    assert kept is not None
    return kept


def reliability(own: ScoreMap, counts: BinnedScores) -> dict[str, Any]:
    """How well a map does on the counts that it was fitted to, and how its probabilities are met, bin by bin.

    ``log-loss`` and ``brier-score`` of the class of the function against all others; of each bin with rows
    the mean ``probability`` from ``low`` to ``high``, the ``share`` of rows of the class, and the ``rows`` by
    their weight.
    """
    odds = own.log_odds(counts.scores)
    rows, p = counts.negatives + counts.positives, probabilities_of(odds)
    losses = counts.positives @ np.logaddexp(0.0, -odds) + counts.negatives @ np.logaddexp(0.0, odds)
    squares = counts.positives @ probabilities_of(-odds) ** 2 + counts.negatives @ p**2
    places = np.minimum((p * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
    parts, n_bins = (rows, rows * p, counts.positives), RELIABILITY_BINS
    columns = [np.bincount(places, part, n_bins).tolist() for part in parts]
    return {
        "log-loss": float(losses / rows.sum()),
        "brier-score": float(squares / rows.sum()),
        "rows": counts.n_rows,
        "bins": [
            {"low": k / n_bins, "high": (k + 1) / n_bins, "probability": p / n, "share": hits / n, "rows": n}
            for k, (n, p, hits) in enumerate(zip(*columns, strict=True))
            if n > 0.0
        ],
    }
