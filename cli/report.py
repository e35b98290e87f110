"""The result of ``train`` for people: the certificate of the model, and what training took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ooc_svm.cli.format import block, bound, count, objective, seconds, short, table
from ooc_svm.system.memory import format_size

MOST_MODELS = 20
"""Largest number of models in a table; of more, those with the largest gaps are listed."""


def certificate(report: Mapping[str, Any], tol: float, path: str, model_bytes: int) -> str:
    """The certificate of a run, in a few lines; `tol` is the relative gap that was asked for."""
    models = report["models"]
    facts = [("certified", _verdict(report, tol))]
    if len(models) == 1:
        facts += [
            ("objective P", objective(models[0]["primal"], 10)),
            ("lower bound D", objective(models[0]["dual"], 10)),
            ("gap P - D", objective(models[0]["gap"], 3)),
        ]
    facts.append(("passes", f"{report['passes']} ({format_size(report['bytes_read'])} read)"))
    if report.get("resident") is not None:
        facts.append(("in memory", f"{100 * report['resident']:.3g} % of the data for each model"))
    size = f"{count(len(models), 'model')} of {count(report['n_features'], 'feature')}"
    facts += [
        ("time", seconds(report["seconds"]) + _waiting(report)),
        ("peak memory", format_size(report["peak_memory_bytes"])),
        ("model", f"{path} ({size}, {format_size(model_bytes)})"),
    ]
    text = block(facts)
    return text if len(models) == 1 else f"{text}\n\n{model_table(models)}"


def _waiting(report: Mapping[str, Any]) -> str:
    """The share of the computing threads' time in which they waited for blocks."""
    waited, computed = report.get("waiting_seconds", 0.0), report.get("computing_seconds", 0.0)
    if waited + computed <= 0.0:
        return ""
    return f" ({100 * waited / (waited + computed):.0f} % of it waiting for blocks)"


def _verdict(report: Mapping[str, Any], tol: float) -> str:
    worst = max((model["relative_gap"] for model in report["models"]), key=_or_infinity)
    which = "" if len(report["models"]) == 1 else " of the worst model"
    gap = f"relative gap {bound(worst)}{which}, asked for {short(tol)}"
    return f"yes, {gap}" if report["converged"] else f"no, stopped by {report['stop_reason']}: {gap}"


def _or_infinity(number: float | None) -> float:
    return float("inf") if number is None else number


def model_table(models: list[dict[str, Any]]) -> str:
    """The models of a run in a table, if there are many those with the largest gaps."""
    listed = models
    if len(models) > MOST_MODELS:
        listed = sorted(models, key=lambda model: -_or_infinity(model["relative_gap"]))[:MOST_MODELS]
    head = ("label", "C", "P", "D", "relative gap", "passes", "certified")
    rows = [
        (
            str(model["label"]),
            f"{model['C']:g}",
            objective(model["primal"], 8),
            objective(model["dual"], 8),
            bound(model["relative_gap"]),
            str(model["passes"]),
            "yes" if model["converged"] else "no",
        )
        for model in listed
    ]
    first = 0 if any(model["label"] is not None for model in models) else 1
    rest = len(models) - len(listed)
    text = table(head[first:], [row[first:] for row in rows])
    return text + (f"\nand {count(rest, 'model')} with a smaller gap" if rest else "")
