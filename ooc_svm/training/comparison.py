"""The comparison of values of C, and of a grid, at the end of a run: scores of folds, or another store.

The scores of a fold are those of the models that it was held out of. Reads of training have made them, so
that nothing is read for the comparison but labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from ooc_svm.errors import InputError
from ooc_svm.evaluation.evaluate import measure
from ooc_svm.evaluation.metrics import lower_is_better
from ooc_svm.model.decision import Decision, decision_alone
from ooc_svm.model.model import Model
from ooc_svm.rowvectors.vector import RowVector
from ooc_svm.solvers.base import KeptScores
from ooc_svm.solvers.stopping import CERTIFIED
from ooc_svm.training.calibration import uncalibrated
from ooc_svm.training.fold_scores import FoldRows, FoldScores, fold_numbers, rows_of_folds
from ooc_svm.training.memory_plan import fold_bytes
from ooc_svm.training.result import ended_model, fold_certificates, with_certificates
from ooc_svm.training.validation_store import ValidationStore

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


EDGE = "edge-of-values"  # The code of a hint that only the comparison of all values can give
# Values beyond which there are none.
LAST = {("p", 1.0), ("p", 2.0), ("nu", 1.0), ("epsilon", 0.0), ("degree", 1.0)}


class Compared(NamedTuple):
    """A value of C at a point of the grid, its metric in each fold or on the other store.

    And whether its models are certified; ``settings``: C and the numbers of the grid, by name.
    """

    settings: Mapping[str, float]
    values: list[float]
    converged: bool

    @property
    def C(self) -> float:  # noqa: N802
        return self.settings["C"]

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
        own = {"mean": self.mean, "standard_error": self.standard_error}
        return {**self.settings, **own, "values": self.values, "converged": self.converged}


def chosen(compared: Sequence[Compared], metric: str, rule: str) -> Compared:
    """What a rule chooses; of equal ones the least C, whose weights are the smallest, and the first of those.

    ``rule``: "best", or "one-standard-error": the least C no more than a standard error worse than the best,
    and of several points of a grid with it the best one.
    """
    sign = 1.0 if lower_is_better(metric) else -1.0
    best = min(compared, key=lambda each: (sign * each.mean, each.C))
    if rule == "best":
        return best
    limit = sign * best.mean + (best.standard_error or 0.0)
    near = [each for each in compared if sign * each.mean <= limit]
    return min(near, key=lambda each: (each.C, sign * each.mean))


def edge_hints(compared: Sequence[Compared], best: Compared) -> list[dict[str, str]]:
    """What to try where the least or the largest of several values of a number is better than all others."""
    if sum(each.mean == best.mean for each in compared) > 1:
        return []
    found = []
    for name, value in best.settings.items():
        smaller = any(each.settings[name] < value for each in compared)
        larger = any(each.settings[name] > value for each in compared)
        if smaller != larger and (name, value) not in LAST:
            size = "larg" if smaller else "small"
            found.append(
                f"{name} = {value:g}, the best of those compared, is the {size}est of them; try {size}er "
                "ones as well"
            )
    return [{"code": EDGE, "message": message} for message in found[:1]]


class Comparison:
    """Compares the values of C of a run."""

    def __init__(self, run: Run) -> None:
        assert run.prepared.tuning is not None
        self._run, self._tuning = run, run.prepared.tuning
        self._costs = list(dict.fromkeys(spec.C for spec in run.models))
        options, folds = run.prepared.options, run.prepared.folds
        self._n_folds = 0
        self._own_folds = range(0)  # Those of this batch
        self._complete = True  # Whether these are all
        self._memory = 0  # Bytes for the scores of a fold
        self._store = ValidationStore(run) if self._tuning.on_store else None
        self._numbers: RowVector | None = None
        self._fold_rows: list[int] = []
        if folds is not None and not self._tuning.on_store:
            batch, self._n_folds = run.prepared.batch, folds.n_folds
            self._memory = fold_bytes(options, folds.n_folds)
            self._own_folds = range(folds.n_folds) if batch is None else batch.folds
            self._complete = len(self._own_folds) == folds.n_folds
            self._numbers = fold_numbers(run.engine, folds, self._memory // 4)
            self._fold_rows = rows_of_folds(self._numbers, folds.n_folds)

    def begin(self) -> None:
        """Say what is compared, and find out before the first pass whether it can be.

        InputError, UsageError for rows that the metric has no value for, or a store that does not fit.
        """
        run, n_folds, batch = self._run, self._n_folds, self._run.prepared.batch
        if batch is not None and batch.number:
            return  # The first one has said and found it.
        model = run.model()
        if run.prepared.options.calibrate is not None:
            model = uncalibrated(model)
        if self._store is not None:
            self._store.measure(model, self._tuning.metric, self._costs[0])
            self._store.tell_left_out()
            return
        fewest, most = min(self._fold_rows), max(self._fold_rows)
        n_final = sum(spec.fold is None for spec in run.models) if batch is None else batch.n_final
        n_points = len(run.prepared.variants)
        grid = f" at {n_points} points of the grid" if n_points > 1 else ""
        n_costs, together = len(run.prepared.options.C), " share each read" if batch is None else ""
        run.recorder.note(
            f"{n_folds} folds of {fewest}{f' to {most}' if most > fewest else ''} rows, {n_costs} value(s) "
            f"of C{grid}: {n_final * n_folds} models without a fold and {n_final} of all rows{together}"
        )
        decision = decision_alone(model, self._costs[0])
        for fold in range(n_folds):
            self._of_fold(fold, None, decision)

    def concluded(self) -> Model:
        """The models of the best point of the grid, the chosen C selected, the comparison in their report.

        Where some folds are in other batches, nothing is chosen yet. Interrupted by a signal.
        """
        run, tuning, compared = self._run, self._tuning, list[Compared]()
        if not self._complete:
            [C], model = self._costs, ended_model(run)
            values = [{"C": C, "values": self._values(model, C), "converged": self._converged(C)}]
            return self._reported(model, {"values": values})
        points = [each.settings for each in run.prepared.variants]
        for run.variant, settings in enumerate(points):
            model = ended_model(run)
            for C in self._costs:
                compared.append(Compared({"C": C, **settings}, self._values(model, C), self._converged(C)))
        best = chosen(compared, tuning.metric, tuning.rule)
        variant = next(k for k, settings in enumerate(points) if settings.items() <= best.settings.items())
        if variant != run.variant:
            run.variant = variant
            model = ended_model(run)
        hints = edge_hints(compared, best) if tuning.rule == "best" else []
        found = {
            "C": best.C,
            "chosen": dict(best.settings),
            "values": [each.to_json() for each in compared],
        }
        return replace(self._reported(model, found, hints), selected=model.C.index(best.C))

    def _reported(
        self, model: Model, found: Mapping[str, Any], hints: Sequence[Mapping[str, str]] = ()
    ) -> Model:
        """A model with the comparison in its report, and the certificates of the models of folds."""
        tuning, rows, report = self._tuning, fold_certificates(self._run), model.report
        facts = {
            "metric": tuning.metric,
            "lower_is_better": lower_is_better(tuning.metric),
            "rule": tuning.rule,
            "C": None,
            "chosen": None,
            "folds": self._fold_rows or None,
            "store": None if self._fold_rows else str(self._run.prepared.options.validation),
            "ignored_values": 0 if self._store is None else self._store.ignored,
            **({} if self._store is None else self._store.left_out),
            **found,
            "models": rows,
        }
        report = {**report, "hints": [*report["hints"], *hints], "tuning": facts}
        return replace(model, report=with_certificates(report, rows))

    def _values(self, model: Model, C: float) -> list[float]:
        if self._store is not None:
            return list(self._store.measure(model, self._tuning.metric, C).values())
        values, decision = [], decision_alone(model, C)
        for fold in self._own_folds:
            self._run.heed_signals()
            models = zip(*self._run.of_fold(fold), strict=True)
            own = [solver for spec, solver in models if spec.C == C]
            kept = [scores for solver in own if (scores := solver.kept_scores()) is not None]
            assert len(kept) == len(own)
            values.append(self._of_fold(fold, kept, decision))
        return values

    def _of_fold(self, fold: int, kept: Sequence[KeptScores] | None, decision: Decision) -> float:
        """The metric of the rows of a fold."""
        data = self._run.prepared.data
        name = f"fold {fold + 1} of {self._n_folds}"
        sets = data.labels.sets
        names = data.labels.names if sets is None else sets.names
        has_sets = sets is not None
        rows = FoldRows(name, self._fold_rows[fold], names, data.labels.has_qid, label_sets=has_sets)
        assert self._numbers is not None
        where = self._run.engine, self._numbers, fold
        scores = FoldScores(*where, kept, decision, rows, self._memory // 2)
        try:
            return measure(scores, self._tuning.metric)
        except InputError as error:
            # Some name the rows themselves.
            text = str(error)
            raise InputError(text if text.startswith(f"{name}: ") else f"{name}: {text}") from None

    def _converged(self, C: float) -> bool:
        run = self._run
        reasons = [
            solver.certificate.stop_reason
            for spec, solver in zip(run.models, run.solvers, strict=True)
            if (spec.variant, spec.C) == (run.variant, C)
        ]
        return all(reason == CERTIFIED for reason in reasons)
