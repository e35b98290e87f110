"""What a trained model and its report are worth, against P and D recomputed and an independent optimum."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
from audit.independent_solvers import optimum
from audit.kernel_objective import Expanded, expansion_of, in_features, of_all_rows, with_expansion
from audit.objective import LONG, LogisticObjective, NuObjective, make_objectives

EXACT = 1e-12  # Relative allowance of values that come without one of their own
FAR = 1e3  # Multiple of the rounding above which a gap has another cause
CERTIFIED, STALLED = "certified", "no-progress"
# Solvers that do not count all roundings of w and of the multipliers when they end without progress
COARSE = ("ocas", "cutting-plane", "kernel-cutting-plane", "block-smo", "smo", "alm", "inexact-alm")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: its kind and a sentence with the numbers."""

    kind: str
    text: str

    def __str__(self):
        return f"{self.kind}: {self.text}"


def judge(model, rows, options):
    """All that is wrong with a model of these rows, trained with these options."""
    findings, scale = _plain(model), model.functions.scale
    objectives = make_objectives(rows, options, scale)
    found = model.report["models"]
    if len(objectives) != len(found):
        return [*findings, Finding("models", f"{len(found)} models instead of {len(objectives)}")]
    findings += _scale(model, rows, options)
    linear = options.get("kernel", "linear") == "linear"
    for k, (label, C, objective) in enumerate(objectives):
        row = found[k]
        if row["C"] != C or (label is not None and float(row["label"]) != label):
            findings.append(Finding("models", f"model {k} is of C {row['C']}, label {row['label']}"))
        if linear:
            best, w = optimum(objective), model.weights[k]
        else:
            best, w = _kernel_optimum(objective, rows, options, scale), model.functions.coefficients[k]
            objective = with_expansion(objective, expansion_of(model, rows, options))
        point = w, float(model.bias[k])
        findings += (
            Finding(each.kind, f"model {k}: {each.text}")
            for each in _judge_model(objective.of(row), best, point, row, options)
        )
    return findings


def _kernel_optimum(objective, rows, options, scale):
    """Bounds of the optimum; None where the kernel is not definite."""
    features = in_features(objective, rows, options, scale)
    return None if features is None else optimum(of_all_rows(objective, rows, options, scale), features)


def allowance(row):
    """What P and D of a model may be off by, together: what its report allows for."""
    if "rounding" not in row:
        return EXACT * abs(row["primal"])
    return float(row["rounding"]) + 4 * np.finfo(np.float64).eps * abs(row["primal"])


def _judge_model(objective, best, point, row, options):
    primal, dual, tol = row["primal"], row["dual"], options.get("tol", 1e-3)
    allowed, (w, b) = allowance(row), point
    if not all(math.isfinite(row[name]) for name in ("primal", "dual", "gap", "relative_gap")):
        yield Finding("report", f"P {primal!r}, D {dual!r} or the gap {row['gap']!r} are not finite")
        return
    true, own = objective.primal(w, b), objective.rounding(w, b)
    if abs(LONG(primal) - true) > allowed + own:
        yield Finding(
            "primal",
            f"P is {primal!r} in the report and {float(true)!r} in truth, {_share(primal - true, true)} off; "
            f"allowed {allowed:.3g}",
        )
    if dual - primal > allowed:
        yield Finding("negative", f"D {dual!r} is above P {primal!r} by {_share(dual - primal, primal)}")
    if best is not None and dual - min(best.primal, true) > allowed + own:
        least = min(best.primal, true)
        yield Finding(
            "dual",
            f"D is {dual!r}, above the optimum, which is {float(least)!r} at most (independent bounds "
            f"{_share(best.error, least)} apart), by {_share(dual - least, least)}; allowed {allowed:.3g}",
        )
    if best is not None and true - best.primal > row["gap"] + allowed + own:
        over = float(true - best.primal)
        yield Finding("gap", f"P is at least {over!r} above the optimum, and the gap {row['gap']!r}")
    # The reference's own rounding, of 80 bits.
    size = 4 * np.finfo(LONG).eps * objective.losses(abs(objective.goal))
    size += EXACT * _size_of_hulls(objective) if isinstance(objective, NuObjective) else 0.0
    if best is not None and best.dual - true > EXACT * abs(true) + size + own:
        yield Finding("reference", f"P {float(true)!r} is below the reference's bound {float(best.dual)!r}")
    if row["converged"] != (row["stop_reason"] == CERTIFIED):
        yield Finding("report", f"converged is {row['converged']}, the run ended by {row['stop_reason']}")
    if row["converged"]:
        yield from _judge_certified(objective, row, true, tol)
    elif row["stop_reason"] == STALLED and row["gap"] > max(
        FAR * allowance(row), tol * abs(true), _step_of_multipliers(objective, options.get("solver"))
    ):
        yield Finding(
            "stalled", f"no progress at a gap of {row['gap']:.3g}, P {primal!r}, rounding {allowed:.3g}"
        )
    if options.get("solver") == "block-smo":
        if row["n_support"] != np.count_nonzero(w):
            yield Finding("support", f"n_support is {row['n_support']}, not {np.count_nonzero(w)}")
    else:
        yield from _support(objective, w, b, row)


def _step_of_multipliers(objective, solver):
    """How finely a solver that sums up w from multipliers can set P, in 64 bits.

    The multiplier of a unit, or of a cut, may lose the share u of its bound c, and ``c |a| u`` of w is lost.
    Of all of them together, m being the costs times the norms of the units, that moves the losses by u m^2.
    """
    if solver not in COARSE:
        return 0.0
    norms = np.sqrt(_squares(objective))
    size = norms[objective.first] + (0.0 if objective.second is None else norms[objective.second])
    return float(np.finfo(np.float64).eps * (objective.cost * size).sum() ** 2)


def _judge_certified(objective, row, true, tol):
    """A certified gap is true; of an optimum of 0 it is an absolute one, within rounding."""
    gap, most = float(true - LONG(row["dual"])), float(max(abs(true), abs(LONG(row["dual"]))))
    if gap <= tol * (most * (1 + 1e-9) + 2 * allowance(row)) + 1e-300:
        return
    if isinstance(objective, NuObjective) and row["absolute"] and gap <= tol * _size_of_hulls(objective):
        return
    # What rounding is a small part of: the losses of the goals themselves.
    goals = abs(objective.goal)
    size = objective.losses(np.maximum(goals, 1) if isinstance(objective, NuObjective) else goals)
    allowed = max(allowance(row), 1e-12 * float(size))
    if row.get("absolute", row["primal"] <= allowed) and gap <= allowed <= 1e-9 * size:
        return
    yield Finding(
        "certificate",
        f"certified, and the true gap is {gap:.4g}, {_share(gap, true)} of P {float(true)!r}, tol {tol:g}",
    )


def _size_of_hulls(objective):
    """Half the mean squared norm of the rows: what the classes' distance is compared with where it is 0."""
    return float(_squares(objective).mean()) / 2


def _squares(objective):
    """Squared norms of the rows."""
    if isinstance(objective, Expanded):
        return objective.expanded.squares
    rows = objective.matrix if objective.scale is None else objective.matrix.multiply(objective.scale)
    return np.asarray(rows.multiply(rows).sum(axis=1), np.float64).ravel()


def _support(objective, w, b, row):
    """``n_support`` counts rows that weigh something and have a loss; those on the edge may count or not."""
    if objective.second is not None or row["n_support"] is None:
        return
    if isinstance(objective, LogisticObjective):
        return  # every row that weighs something, unless its slope underflows
    excess, held = objective.excess(w, b), objective.cost > 0
    sizes = abs(objective.goal).max() + objective.sizes(w).max() + abs(b)
    # Of a nu problem its margin is near 1 as the solvers see it, whatever rho is.
    ones = 4 if isinstance(objective, NuObjective) else 1
    edge = (1e-5 if isinstance(objective, Expanded) else 1e-9) * (ones + float(sizes))
    n_rows = objective.matrix.shape[0]
    least = len(np.unique(objective.first[held & (excess > edge)]))
    most = len(np.unique(objective.first[held & (excess > -edge)]))
    if not least <= row["n_support"] <= most:
        yield Finding("support", f"n_support is {row['n_support']}, not {least} to {most} of {n_rows} rows")


def _plain(model):
    """The report is plain JSON: numbers of Python, and the same when read again."""
    findings = [
        Finding("history", f"{place} of the report is of the type {kind}")
        for place, kind in list(_others(model.report, "report"))[:1]
    ]
    try:
        again = json.loads(json.dumps(model.report))
    except TypeError as error:
        return [*findings, Finding("history", f"the report is no JSON: {error}")]
    if again != model.report:
        findings.append(Finding("history", "the report does not come back from JSON as it was"))
    return findings


def _others(part, place):
    """Places of values that JSON has no type for."""
    if isinstance(part, dict | list):
        for name, inner in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _others(inner, f"{place}[{name!r}]")
    elif type(part) not in (int, float, str, bool, type(None)):
        yield place, type(part).__name__


def _scale(model, rows, options):
    """The scale of the columns is what the options say, as far as sums of 64 bits can tell."""
    kind, scale = options.get("scale", "none"), model.functions.scale
    if (scale is None) != (kind == "none"):
        return [Finding("scale", f"scale {kind!r}, and the model's is {scale!r}")]
    if scale is None:
        return []
    dense = np.asarray(rows.matrix.toarray(), LONG)
    spread = abs(dense).max(axis=0) if kind == "maxabs" else dense.std(axis=0)
    clear = spread > 1e-4 * np.sqrt((dense * dense).mean(axis=0))
    off = abs(scale * spread - 1)[clear].max(initial=0.0)
    return [Finding("scale", f"a column is scaled {float(off):.3g} off")] if off > 1e-6 else []


def _share(part, whole):
    return f"{float(part / whole):.3g}" if whole else f"{float(part):.3g} (absolute)"
