"""The result of ``train`` for people: the certificate of the model, and what training took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ooc_svm.cli.format import block, bound, count, objective, short, table
from ooc_svm.solvers.stopping import LANDMARKS, PRUNED, reason_of_all
from ooc_svm.system.amounts import format_read, format_seconds
from ooc_svm.system.memory import format_size

MOST_MODELS = 20
"""Largest number of models in a table; of more, those with the largest gaps are listed."""
MOST_FOLDS = 10
"""Largest number of folds whose values are listed."""
SMALL_SHARE = 0.01
"""Rounding is named where it is more than this share of the gap."""


def certificate(report: Mapping[str, Any], tol: float, path: str, model_bytes: int) -> str:
    """The certificate of a run, in a few lines; `tol` is the relative gap that was asked for."""
    models, tuning = report["models"], report.get("tuning")
    facts = [("certified", _verdict(report, tol))]
    if tuning is not None:
        facts += _choice(tuning)
    if len(models) == 1:
        facts += [
            ("objective P", objective(models[0]["primal"], 10)),
            ("lower bound D", objective(models[0]["dual"], 10)),
            ("gap P - D", objective(models[0]["gap"], 3) + _rounding(models[0])),
        ]
    if report.get("prune") is not None:
        facts.append(("pruned", _pruning(report)))
    facts += _qualities(report.get("quality", []))
    if "calibration" in report:
        facts.append(("probabilities", probabilities(report)))
    if "validation" in report:
        facts.append(("validation", _validation(report)))
    if n_unlabelled := report.get("unlabelled_rows", 0):
        facts.append(("rows", f"{report['n_rows']:,} ({n_unlabelled:,} without a label were left out)"))
    facts.append(("passes", f"{_passes(report)} ({format_read(report['bytes_read'])})"))
    if "batches" in report:
        fewest, most = min(report["batches"]), max(report["batches"])
        sizes = f"{fewest} to {most} models" if fewest < most else count(most, "model")
        facts.append(("batches", f"{len(report['batches'])} of {sizes}: more at a time need more memory"))
    if report.get("resident") is not None:
        facts.append(("in memory", f"{100 * report['resident']:.3g} % of the data"))
    size = f"{count(len(models), 'model')} of {count(report['n_features'], 'feature')}"
    if "conversion_seconds" in report:
        facts.append(("conversion", f"{format_seconds(report['conversion_seconds'])}, of text"))
    facts += [
        ("time", format_seconds(report["seconds"]) + _waiting(report)),
        ("peak memory", format_size(report["peak_memory_bytes"])),
        ("model", f"{path} ({size}, {format_size(model_bytes)})"),
    ]
    text = block(facts)
    return text if len(models) == 1 else f"{text}\n\n{model_table(models)}"


def _qualities(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """How well the rows of training are predicted, a line for each C."""
    lines = []
    for each in found:
        measures = ", ".join(f"{name} {value:.4g}" for name, value in each.items() if name != "C")
        lines.append(("training rows", measures + (f" (C = {each['C']:g})" if len(found) > 1 else "")))
    return lines


def _pruning(report: Mapping[str, Any]) -> str:
    """What pruning has left, and the gap before it."""
    models, before = report["models"], [model["unpruned"] for model in report["models"]]
    left = sum(model["n_nonzero_weights"] for model in models)
    total = sum(each["n_nonzero_weights"] for each in before)
    worst = max((each["relative_gap"] for each in before), key=_or_infinity)
    of_all = "" if len(models) == 1 else ", of the worst model"
    return (
        f"{left:,} of {total:,} weights are left, the others below {short(report['prune'])} of the largest; "
        f"with all, the relative gap was {bound(worst)}{of_all}"
    )


def _validation(report: Mapping[str, Any]) -> str:
    """The quality on rows that were not trained on, and the C that it speaks for."""
    found = report["validation"]
    *_, (metric, value) = found.items()
    where = f"{found['n_rows']:,} rows held out" if "n_rows" in found else found["store"]
    costs = {model["C"] for model in report["models"]}
    chosen = (
        f"; C {found['C']:g} is the best of {len(costs)}, and what predict takes" if len(costs) > 1 else ""
    )
    return f"{metric} {value:.4g} on {where}{chosen}"


def chosen_functions(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the report says of the probabilities of each function of the C that predicts."""
    return _of_chosen_C(report, report["calibration"]["functions"])


def _of_chosen_C(  # noqa: N802  (C is the field's name for it)
    report: Mapping[str, Any], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Those of the C that predicts."""
    found = [report[name]["C"] for name in ("tuning", "validation") if name in report]
    C = (found or [rows[-1]["C"]])[0]
    return [each for each in rows if each["C"] == C]


def probabilities(report: Mapping[str, Any]) -> str:
    """What the probabilities of a calibrated model were fitted to, and how well they fit there."""
    calibration, functions = report["calibration"], chosen_functions(report)
    folds, losses = calibration["folds"], [each["log-loss"] for each in functions]
    where = f"{functions[0]['rows']:,} rows held out" if folds is None else _of_folds(folds)
    if models := calibration.get("models"):
        where += f", {count(len(models), 'model')}"
    mean = sum(losses) / len(losses)
    loss = f"log-loss {mean:.4g}" if len(losses) == 1 else f"mean log-loss of each label {mean:.4g}"
    if classes := calibration.get("classes"):
        [own] = _of_chosen_C(report, classes)
        loss = f"log-loss {own['log-loss']:.4g} at the temperature {own['temperature']:.3g}"
    return f"{calibration['method']} on {where}: {loss}"


def _of_folds(folds: Sequence[int]) -> str:
    rows = f"{min(folds):,}" if min(folds) == max(folds) else f"{min(folds):,} to {max(folds):,}"
    return f"{count(len(folds), 'fold')} of {rows} rows"


def _choice(tuning: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The C that was chosen, and how."""
    settings = tuning.get("chosen", {"C": tuning["C"]})
    [chosen] = [each for each in tuning["values"] if settings.items() <= each.items()]
    named = ", ".join(f"{name} {value:g}" for name, value in settings.items())
    error, folds, metric = chosen["standard_error"], tuning["folds"], tuning["metric"]
    spread = "" if error is None else f" with a standard error of {error:.2g}"
    if folds is None:
        where = f"on {tuning['store']}"
    else:
        where = f"on {_of_folds(folds)}, {count(len(tuning['models']), 'model')}"
    best = "the lowest" if tuning["lower_is_better"] else "the highest"
    tied = sum(each["mean"] == chosen["mean"] for each in tuning["values"])
    shared = f"{best}, which {tied} of them share" if tied > 1 else best
    why = shared if tuning["rule"] == "best" else f"the least C within a standard error of {best}"
    ignored = tuning["ignored_values"]
    left_out = f"; {count(ignored, 'value')} of features that the model lacks ignored" if ignored else ""
    compared = f"{count(len(tuning['values']), 'value')} of {' and '.join(settings)}"
    return [
        ("chosen", f"{named}: {metric} {chosen['mean']:.4g}{spread}, {why}"),
        ("compared", f"{compared} {where}{left_out}"),
    ]


def comparison(tuning: Mapping[str, Any]) -> str:
    """A line for each C and point of a grid: mean and standard error of the metric, its values in folds."""
    chosen = tuning.get("chosen", {"C": tuning["C"]})
    folds = range(len(tuning["folds"] or ())) if len(tuning["folds"] or ()) <= MOST_FOLDS else ()
    spread = ["standard error"] if tuning["folds"] else []
    head = [*chosen, tuning["metric"], *spread, *(f"fold {fold + 1}" for fold in folds), "certified", ""]
    largest = max(abs(value) for each in tuning["values"] for value in (each["mean"], *each["values"]))
    # Shares have four decimals; of values, which may be of any size, four digits tell as much.
    shown = ("{:.4f}" if 0.1 <= largest < 10.0 else "{:.4g}").format
    rows = [
        (
            *(f"{each[name]:g}" for name in chosen),
            shown(each["mean"]),
            *([shown(each["standard_error"])] if spread else ()),
            *(shown(each["values"][fold]) for fold in folds),
            "yes" if each["converged"] else "no",
            "chosen" if chosen.items() <= each.items() else "",
        )
        for each in tuning["values"]
    ]
    return table(head, rows)


def _passes(report: Mapping[str, Any]) -> str:
    """The reads of the solvers; the one before them for the columns, and the one after them for pruning."""
    history, pruned = report.get("history"), report.get("prune") is not None
    passes = history[-1]["pass"] if history else report["passes"]
    is_linear = report.get("kernel", "linear") == "linear"
    first = "for the scale of the columns" if is_linear else "for the columns"
    others = [first] if report["passes"] - pruned > passes else []
    others += ["for the pruned models"] if pruned else []
    return f"{passes}" + (f", and one {' and one '.join(others)}" if others else "")


def _waiting(report: Mapping[str, Any]) -> str:
    """The share of the computing threads' time in which they waited for blocks."""
    waited, computed = report.get("waiting_seconds", 0.0), report.get("computing_seconds", 0.0)
    if waited + computed <= 0.0:
        return ""
    return f" ({100 * waited / (waited + computed):.0f} % of it waiting for blocks)"


def _rounding(model: Mapping[str, Any]) -> str:
    """What the gap has in it for rounding, where that shows."""
    rounding, gap = model.get("rounding", 0.0), model["gap"]
    return f" (of which rounding {bound(rounding)})" if gap and rounding > SMALL_SHARE * gap else ""


def _verdict(report: Mapping[str, Any], tol: float) -> str:
    of_folds = [report.get(name, {}).get("models", ()) for name in ("tuning", "calibration")]
    everything = [*report["models"], *of_folds[0], *of_folds[1]]
    models = [model for model in everything if not _is_absolute(model)]
    if not models:
        worst = max((model["gap"] for model in everything), key=_or_infinity)
        gap = f"P is 0 within rounding, and at most {bound(worst)} above the optimum"
    else:
        worst = max((model["relative_gap"] for model in models), key=_or_infinity)
        which = "" if len(everything) == 1 else " of the worst model"
        gap = f"relative gap {bound(worst)}{which}, asked for {short(tol)}"
    if report["converged"]:
        return f"yes, {gap}"
    reason = reason_of_all([report["stop_reason"]])
    why = f"because of {reason}" if reason in (PRUNED, LANDMARKS) else f"stopped by {reason}"
    certified = sum(model["converged"] for model in everything)
    how_many = f"; {certified} of {count(len(everything), 'model')} are certified"
    return f"no, {why}: {gap}{how_many if len(everything) > 1 else ''}"


def _is_absolute(model: Mapping[str, Any]) -> bool:
    """Whether a model's P is 0 within rounding, so that no share of it tells how good the model is."""
    return bool(model.get("absolute", False))


def _or_infinity(number: float | None) -> float:
    return float("inf") if number is None else number


def _closeness(model: Mapping[str, Any]) -> tuple[bool, float]:
    """The larger, the closer a model is to its optimum."""
    return _is_absolute(model), -_or_infinity(model["relative_gap"])


def _class_quality(model: Mapping[str, Any]) -> tuple[str, ...]:
    """Rows of the class of a model, and how well they are predicted."""
    return f"{model['rows']:,}", *(f"{model['quality'][name]:.4f}" for name in ("precision", "recall", "f1"))


def _pruned_columns(model: Mapping[str, Any]) -> tuple[str, str]:
    """The weights that pruning has left of a model, and the gap before it."""
    return f"{model['n_nonzero_weights']:,}", bound(model["unpruned"]["relative_gap"])


def model_table(models: list[dict[str, Any]]) -> str:
    """The models of a run in a table, if there are many those with the largest gaps."""
    listed = models
    if len(models) > MOST_MODELS:
        listed = sorted(models, key=_closeness)[:MOST_MODELS]
    head = ["label", "C", "P", "D", "relative gap", "passes", "certified"]
    of_classes = all("f1" in (model.get("quality") or {}) for model in models)
    head += ["rows", "precision", "recall", "f1"] if of_classes else []
    pruned = all("unpruned" in model for model in models)
    head += ["weights", "gap before"] if pruned else []
    rows = [
        (
            str(model["label"]),
            f"{model['C']:g}",
            objective(model["primal"], 8),
            objective(model["dual"], 8),
            "P is 0" if _is_absolute(model) else bound(model["relative_gap"]),
            str(model["passes"]),
            "yes" if model["converged"] else "no",
            *(_class_quality(model) if of_classes else ()),
            *(_pruned_columns(model) if pruned else ()),
        )
        for model in listed
    ]
    first = 0 if any(model["label"] is not None for model in models) else 1
    rest = len(models) - len(listed)
    text = table(head[first:], [row[first:] for row in rows])
    return text + (f"\nand {count(rest, 'model')} with a smaller gap" if rest else "")
