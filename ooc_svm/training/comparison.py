"""The comparison of values of C at the end of a run: scores of folds kept by solvers, or another store.

The scores of a fold are those of the models that it was held out of. Reads of training have made them, so
that nothing is read for the comparison but labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ooc_svm.errors import InputError
from ooc_svm.evaluation.evaluate import measure, measure_data
from ooc_svm.model.decision import Decision
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.rowvectors.vector import RowVector
from ooc_svm.solvers.base import KeptScores
from ooc_svm.solvers.stopping import CERTIFIED
from ooc_svm.system import signals
from ooc_svm.system.memory import INTERPRETER_BYTES
from ooc_svm.training.fold_scores import FoldRows, FoldScores, fold_numbers, rows_of_folds
from ooc_svm.training.memory_plan import validation_bytes
from ooc_svm.training.progress import LOWER_IS_BETTER
from ooc_svm.training.result import certificate_report

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


class Compared(NamedTuple):
    """A value of C, its metric in each fold or on the other store; and whether its models are certified."""

    C: float
    values: list[float]
    converged: bool

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None of a single value."""
        n_values = len(self.values)
        return stdev(self.values) / math.sqrt(n_values) if n_values > 1 else None

    def to_json(self) -> dict[str, Any]:
        """As in the report."""
        own = {"C": self.C, "mean": self.mean, "standard_error": self.standard_error}
        return {**own, "values": self.values, "converged": self.converged}


def chosen(compared: Sequence[Compared], metric: str, rule: str) -> Compared:
    """The value of C that a rule chooses; of equal ones the least, whose weights are the smallest.

    ``rule``: "best", or "one-standard-error": the least C no more than a standard error worse than the best.
    """
    sign = 1.0 if metric in LOWER_IS_BETTER else -1.0
    best = min(compared, key=lambda each: (sign * each.mean, each.C))
    if rule == "best":
        return best
    limit = sign * best.mean + (best.standard_error or 0.0)
    return min((each for each in compared if sign * each.mean <= limit), key=lambda each: each.C)


def edge_hint(compared: Sequence[Compared], best: Compared) -> list[dict[str, str]]:
    """What to try where the least or the largest of several values is better than all others."""
    smaller = [each for each in compared if each.C < best.C]
    larger = [each for each in compared if each.C > best.C]
    tied = sum(each.mean == best.mean for each in compared) > 1
    if tied or bool(smaller) == bool(larger):
        return []
    size = "larg" if smaller else "small"
    message = (
        f"C = {best.C:g}, the best of those compared, is the {size}est of them; try {size}er ones as well"
    )
    return [{"code": "edge-of-values", "message": message}]


def _without_weights(model: Model) -> Decision:
    """What the scores of a model mean; it is kept while a run needs its memory."""
    none = LinearFunctions(np.empty((model.n_models, 0)), np.zeros(model.n_models))
    return Decision.of(replace(model, functions=none, feature_names=None))


class Comparison:
    """Compares the values of C of a run."""

    def __init__(self, run: Run) -> None:
        assert run.prepared.tuning is not None
        self._run, self._tuning = run, run.prepared.tuning
        self._costs = list(dict.fromkeys(spec.C for spec in run.models))
        self._memory = validation_bytes(run.prepared.options, self._tuning.n_folds)
        self._numbers: RowVector | None = None
        self._fold_rows: list[int] = []
        if (folds := self._tuning.folds) is not None:
            self._numbers = fold_numbers(run.engine, folds, self._memory // 4)
            self._fold_rows = rows_of_folds(self._numbers, folds.n_folds)
        self._decision = _without_weights(run.model())
        self._ignored = 0  # Values of the other store in features that the data lack

    def begin(self) -> None:
        """Say what is compared, and find out before the first pass whether it can be.

        InputError, UsageError for rows that the metric has no value for, or a store that does not fit.
        """
        run, n_folds = self._run, self._tuning.n_folds
        if not n_folds:
            self._of_store(run.model(), self._costs[0])
            if self._ignored:
                run.recorder.note(
                    f"{self._ignored} values of {run.prepared.options.validation} are of features that the "
                    "data lack; they are ignored"
                )
            return
        fewest, most = min(self._fold_rows), max(self._fold_rows)
        n_models, n_final = len(run.models), len(run.final[0])
        run.recorder.note(
            f"{n_folds} folds of {fewest}{f' to {most}' if most > fewest else ''} rows, {len(self._costs)} "
            f"value(s) of C: {n_models - n_final} models without a fold and {n_final} of all rows share each "
            "read"
        )
        for fold in range(n_folds):
            self._of_fold(fold, None)

    def concluded(self, model: Model) -> Model:
        """The model with the chosen C selected, and the comparison in its report.

        Interrupted by a signal.
        """
        compared = [Compared(C, self._values(model, C), self._converged(C)) for C in self._costs]
        tuning, report, rows = self._tuning, model.report, self._fold_models()
        best = chosen(compared, tuning.metric, tuning.rule)
        whole = [*report["models"], *rows]
        found = {
            "metric": tuning.metric,
            "lower_is_better": tuning.metric in LOWER_IS_BETTER,
            "rule": tuning.rule,
            "C": best.C,
            "folds": self._fold_rows or None,
            "store": None if self._fold_rows else str(self._run.prepared.options.validation),
            "ignored_values": self._ignored,
            "values": [each.to_json() for each in compared],
            "models": rows,
        }
        hints = [*report["hints"], *(edge_hint(compared, best) if tuning.rule == "best" else ())]
        ended = {
            "hints": hints,
            "converged": all(row["converged"] for row in whole),
            "stop_reason": ", ".join(dict.fromkeys(row["stop_reason"] for row in whole)),
        }
        return replace(model, selected=model.C.index(best.C), report={**report, **ended, "tuning": found})

    def _values(self, model: Model, C: float) -> list[float]:
        if not self._tuning.n_folds:
            return [self._of_store(model, C)]
        values = []
        for fold in range(self._tuning.n_folds):
            if (signal := signals.stop_requested()) is not None:
                raise self._run.interrupted(signal)
            models = zip(self._run.models, self._run.solvers, strict=True)
            own = [solver for spec, solver in models if (spec.fold, spec.C) == (fold, C)]
            kept = [scores for solver in own if (scores := solver.kept_scores()) is not None]
            assert len(kept) == len(own)
            values.append(self._of_fold(fold, kept))
        return values

    def _of_fold(self, fold: int, kept: Sequence[KeptScores] | None) -> float:
        """The metric of the rows of a fold."""
        data, n_folds = self._run.prepared.data, self._tuning.n_folds
        name = f"fold {fold + 1} of {n_folds}"
        sets = data.labels.sets
        names = data.labels.names if sets is None else sets.names
        has_sets = sets is not None
        rows = FoldRows(name, self._fold_rows[fold], names, data.labels.has_qid, label_sets=has_sets)
        assert self._numbers is not None
        where = self._run.engine, self._numbers, fold
        scores = FoldScores(*where, kept, self._decision, rows, self._memory // 2)
        try:
            return measure(scores, self._tuning.metric)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None

    def _of_store(self, model: Model, C: float) -> float:
        """The metric of the rows of the other store."""
        options = self._run.prepared.options
        found = measure_data(
            model,
            str(options.validation),
            self._tuning.metric,
            label=options.label,
            unlabelled=options.unlabelled,
            threads=options.threads,
            memory=INTERPRETER_BYTES + self._memory,
            C=C,
        )
        self._ignored = found.ignored
        return found.value

    def _converged(self, C: float) -> bool:
        models = zip(self._run.models, self._run.solvers, strict=True)
        return all(solver.certificate.stop_reason == CERTIFIED for spec, solver in models if spec.C == C)

    def _fold_models(self) -> list[dict[str, Any]]:
        """What the report says of each model that a fold was held out of."""
        names, n_rows = self._run.prepared.data.labels.names, self._run.engine.source.n_rows
        return [
            {"fold": spec.fold + 1}
            | certificate_report(spec, solver.solution().bias, solver.certificate, names)
            | solver.metadata(n_rows)
            for spec, solver in zip(self._run.models, self._run.solvers, strict=True)
            if spec.fold is not None
        ]
