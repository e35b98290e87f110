"""The model of a run in batches, from the models of its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ooc_svm.model.calibration import Calibration
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.solvers.stopping import reason_of_all
from ooc_svm.training.batches import Batch
from ooc_svm.training.comparison import EDGE, Compared, chosen, edge_hints
from ooc_svm.training.progress import best_quality
from ooc_svm.training.result import COSTS


class JoinedModel:
    """Collects the models of batches; the weights of each are copied to where those of all will be."""

    def __init__(self, n_models: int) -> None:
        self._n_models = n_models
        self._weights = np.empty((0, 0))
        self._parts: list[Model] = []
        self._reports: list[dict[str, Any]] = []

    def add(self, part: Model, batch: Batch) -> None:
        """Take the model of the next batch; of one of folds alone, how it went and what it compares."""
        report = part.report | {"batches": [batch.n_trained]}
        if not batch.n_models:
            self._reports.append(report | {"models": [], "quality": []})
            return
        self._reports.append(report)
        if not self._parts:
            # The system gives memory to what is filled.
            self._weights = np.empty((self._n_models, part.n_features))
        first = sum(model.n_models for model in self._parts)
        own = self._weights[first : first + part.n_models]
        own[:] = part.weights
        self._parts.append(replace(part, functions=LinearFunctions(own, part.bias, part.scale)))

    @property
    def passes(self) -> int:
        """Reads of the batches so far."""
        return sum(report["passes"] for report in self._reports)

    def model(self) -> Model:
        """All functions, with one report."""
        parts, reports = self._parts, self._reports
        C = tuple(value for model in parts for value in model.C)
        report = reports[0] | _run_report(reports)
        selected = len(C) - 1
        validated = [each["validation"] for each in reports if "validation" in each]
        report.pop("validation", None)
        if len(validated) == len(reports):  # Else the best of all is not known
            best, *_ = best_quality([_measured(each) for each in validated])
            report["validation"] = next(each for each in validated if each["C"] == best)
            selected = C.index(best)
        if "tuning" in report:
            report["tuning"], hints = _tuning([each["tuning"] for each in reports])
            report["hints"] = [*(each for each in report["hints"] if each["code"] != EDGE), *hints]
            selected = C.index(report["tuning"]["C"])
        calibration = None
        if calibrations := [model.calibration for model in parts if model.calibration is not None]:
            calibration = Calibration.joined(calibrations)
            report["calibration"] = _calibration([each["calibration"] for each in reports])
        return replace(
            parts[0],
            functions=LinearFunctions(
                self._weights, np.concatenate([model.bias for model in parts]), parts[0].scale
            ),
            positive=[label for model in parts for label in model.positive],
            C=C,
            selected=selected,
            calibration=calibration,
            report=report,
        )


def _run_report(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How all batches went together; the history of each begins where the one before ended."""
    found: dict[str, Any] = {name: sum(report[name] for report in reports) for name in COSTS}
    history: list[dict[str, Any]] = []
    before = dict.fromkeys(("pass", "seconds", "bytes_read"), 0)
    for number, report in enumerate(reports, 1):
        history += [
            row | {name: row[name] + before[name] for name in before} | {"batch": number}
            for row in report["history"]
        ]
        passed = report["history"][-1]["pass"] if report["history"] else 0
        for name, value in (
            ("pass", passed),
            ("seconds", report["seconds"]),
            ("bytes_read", report["bytes_read"]),
        ):
            before[name] += value
    hints = {hint["code"]: hint for report in reversed(reports) for hint in report["hints"]}
    return found | {
        "peak_memory_bytes": max(report["peak_memory_bytes"] for report in reports),
        "converged": all(report["converged"] for report in reports),
        "stop_reason": reason_of_all(report["stop_reason"] for report in reports),
        "models": [row for report in reports for row in report["models"]],
        "quality": [row for report in reports for row in report["quality"]],
        "hints": list(hints.values()),
        "history": history,
        "batches": [size for report in reports for size in report["batches"]],
    }


def _calibration(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was fitted to the scores of the models of all batches."""
    lists = (name for name in ("functions", "classes", "models") if name in found[0])
    return found[0] | {name: [row for each in found for row in each[name]] for name in lists}


def _measured(found: dict[str, Any]) -> dict[str, float]:
    """The quality that a batch found on rows that it did not train on, its metric first."""
    return {name: value for name, value in found.items() if name not in ("n_rows", "store", "left_out")}


def _tuning(found: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The comparison of the values of all batches, and what it hints at."""
    values: dict[float, list[float]] = {}
    converged: dict[float, bool] = {}
    for row in (row for each in found for row in each["values"]):
        # Some of its folds may be in one batch and some in the next.
        values.setdefault(row["C"], []).extend(row["values"])
        converged[row["C"]] = converged.get(row["C"], True) and row["converged"]
    compared = [Compared({"C": C}, values[C], converged[C]) for C in values]
    best = chosen(compared, found[0]["metric"], found[0]["rule"])
    facts = {
        "C": best.C,
        "chosen": dict(best.settings),
        "values": [each.to_json() for each in compared],
        "models": [row for each in found for row in each["models"]],
    }
    return {**found[0], **facts}, edge_hints(compared, best) if found[0]["rule"] == "best" else []
