"""Random cases: what is trained, on what, and how; each is a dict of plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
from audit.data import make_rows
from audit.objective import make_objectives

Case = dict[str, Any]
"""``{"data": see audit.data, "options": of train, "how": see audit.trial}``"""

MAX_PASSES, TIME_LIMIT = 120, 1.0
LOSSES = {
    "svc": ("hinge", "squared-hinge", "logistic", "lp"),
    "svr": ("epsilon-insensitive", "squared-epsilon-insensitive"),
}
PAIRS = ("ordinal", "roc-area", "ranking")
BY_NU = ("nu-svc", "nu-svr")
CUTS, ALM = ("ocas", "cutting-plane"), ("alm", "inexact-alm")
KERNEL_LOSSES = ("hinge", "squared-hinge", *LOSSES["svr"])


def draw(seed: int, number: int) -> Case:
    """The case of this number; the same for the same seed on every machine."""
    rng = np.random.default_rng([seed, number])
    problem = _one(
        rng, {"svc": 6, "svr": 6, "ordinal": 1, "roc-area": 1, "ranking": 1, "nu-svc": 2, "nu-svr": 2}
    )
    options = _options(rng, problem)
    data = _data(rng, problem, "kernel" in options)
    if problem == "roc-area":
        # Two ranks, or the upper one of three by name.
        data["ranks"] = min(data["ranks"], 3)
        if data["ranks"] == 3:
            options["positive"] = [2.0]
    if problem in BY_NU:
        options["nu"] = _nu(rng, problem, data)
    return {"data": data, "options": options, "how": _how(rng, options)}


def _nu(rng, problem, data):
    """A share of the largest nu that the weights of the classes allow."""
    share, most = _one(rng, [0.02, 0.1, 0.3, 0.6, 0.9, 0.999]), 1.0
    if problem == "nu-svc":
        most = _largest_nu(data)
        if most == 0.0:  # No row of a class weighs anything
            del data["weights"]
            most = _largest_nu(data)
    return float(f"{share * most:.3g}") if share < 0.9 else share * most


def _largest_nu(data):
    """What the class that weighs least allows."""
    objectives = make_objectives(make_rows("nu-svc", **data), {"problem": "nu-svc"})
    positive = [float(each.cost[each.sign > 0].sum()) for _, _, each in objectives]
    return min(1.0, *(2.0 * min(total, 1.0 - total) for total in positive))


def _one(rng, choices):
    """One of some values, each with its share; a list has equal ones."""
    if isinstance(choices, dict):
        shares = np.array(list(choices.values()), dtype=float)
        names = list(choices)
        return names[int(rng.choice(len(names), p=shares / shares.sum()))]
    return choices[int(rng.integers(len(choices)))]


def _chance(rng, share):
    return bool(rng.random() < share)


def _power(rng, low, high):
    """A number whose logarithm is uniform, with few digits."""
    return float(f"{10.0 ** rng.uniform(low, high):.2g}")


def _options(rng, problem):
    options: dict[str, Any] = {"problem": problem}
    if problem in LOSSES:
        options["loss"] = _one(rng, LOSSES[problem])
        options["bias"] = _one(rng, {"none": 1, "penalized": 1, "free": 3})
    if options.get("loss") == "lp":
        options["p"] = _one(rng, [1.0, 1.01, 1.2, 1.5, 1.8, 1.99, 2.0])
    if problem == "svr" and _chance(rng, 0.5):
        options["epsilon"] = _one(rng, [0.0, 0.001, 0.5, 10.0])
    if options.get("loss", "hinge") in KERNEL_LOSSES and problem not in PAIRS and _chance(rng, 0.2):
        options |= _kernel(rng)
    options["solver"] = _solver(rng, options)
    if options["solver"] == "kernel-cutting-plane" and problem not in BY_NU:
        options["bias"] = "free"
    if problem != "nu-svc":
        options["C"] = _costs(rng)
    options["tol"] = _one(rng, {1e-2: 2, 1e-3: 6, 1e-4: 2, 1e-5: 1, 1e-6: 2, 1e-8: 1})
    if _chance(rng, 0.25):
        options["scale"] = _one(rng, ["maxabs", "std"])
    if problem == "svc" and _chance(rng, 0.2):
        options["class_weight"] = "balanced"
    if options["solver"] == "streamed-smo":
        if _chance(rng, 0.8):
            options["resident"] = _one(rng, {0.1: 3, 0.02: 1, 0.001: 1, 1e-6: 1, 0.3: 1, 0.6: 1, 1.0: 2})
        if _chance(rng, 0.3):
            options["lanes"] = _one(rng, [2, 4, 16])
        options["seed"] = int(rng.integers(3))
    elif options["solver"] in CUTS and _chance(rng, 0.6):
        options["cut_groups"] = _one(rng, [1, 2, 7, 32])
    elif options["solver"] == "kernel-cutting-plane" and problem not in BY_NU and _chance(rng, 0.3):
        options["sparse_cuts"] = True
    options["max_passes"], options["time_limit"] = MAX_PASSES, TIME_LIMIT
    return options


def _kernel(rng):
    """A definite kernel, so that there is an optimum to compare with."""
    options = {"kernel": _one(rng, ["rbf", "poly"]), "gamma": _one(rng, [0.01, 0.1, 1.0])}
    if options["kernel"] == "poly":
        options |= {"degree": _one(rng, [1, 2, 3]), "coef0": _one(rng, [0.0, 1.0])}
    return options


def _solver(rng, options):
    """One that takes the problem."""
    problem, loss = options["problem"], options.get("loss", "hinge")
    if "kernel" in options:
        cuts = problem in BY_NU or not loss.startswith("squared")
        if problem in BY_NU or (cuts and _chance(rng, 0.3)):
            return "kernel-cutting-plane"
        return _one(rng, ["block-smo", "smo"]) if loss == "hinge" else "block-smo"
    if problem in PAIRS:
        return _one(rng, CUTS)
    if problem in BY_NU:
        return _one(rng, {"streamed-smo": 2, "ocas": 1, "cutting-plane": 1})
    others = {"hinge": (*CUTS, *ALM, "smo"), "squared-hinge": ALM, "lp": ALM, "epsilon-insensitive": CUTS}
    if loss in others and _chance(rng, 0.5):
        return _one(rng, others[loss])
    return "streamed-smo"


def _costs(rng):
    if _chance(rng, 0.5):
        return _one(rng, [0.01, 1.0, 1.0, 100.0])
    if _chance(rng, 0.25):
        return sorted({_power(rng, -4, 4) for _ in range(int(rng.integers(2, 4)))})
    return _power(rng, -8, 8)


def _data(rng, problem, small):
    problem = problem.removeprefix("nu-")
    pairs = problem in PAIRS
    data: dict[str, Any] = {"n": _rows(rng, pairs or small), "d": int(_power(rng, 0, 1.6))}
    data["seed"] = int(rng.integers(1 << 30))
    if _chance(rng, 0.08):
        data["d"] = int(rng.integers(100, 400))
    data["values"] = _one(rng, {"normal": 6, "ones": 1, "uniform": 1, "whole": 1, "heavy": 1})
    for name, share, values in (
        ("density", 0.4, [0.02, 0.1, 0.3, 0.7]),
        ("spread", 0.15, [1.0, 2.0, 4.0]),
        ("size", 0.2, [1e-6, 1e-3, 30.0, 1e3, 1e7]),
        ("offset", 0.25, [1.0, 10.0, 100.0, 1e4, 1e6]),
        ("empty_rows", 0.15, [0.1, 0.6]),
        ("duplicates", 0.15, [0.3, 0.95]),
        ("constant_columns", 0.1, [1, 2]),
        ("dtype", 0.2, ["float32"]),
        ("noise", 0.4, [0.0, 0.05, 2.0]),
        ("weights", 0.3, ["uniform", "far", "zeros", "tiny"]),
    ):
        if _chance(rng, share):
            data[name] = _one(rng, values)
    if problem == "svc":
        data["labels"] = _one(
            rng, {"plain": 6, "random": 1, "one-sided": 1, "imbalance": 1, "runs": 1, "several": 1}
        )
        if data["labels"] == "several":
            data["ranks"] = int(rng.integers(3, 6))
    elif problem == "svr":
        data["labels"] = _one(rng, {"plain": 10, "random": 1, "constant": 1, "runs": 1})
        if _chance(rng, 0.5):
            data["target_offset"] = _one(rng, [1e2, -1e3, 1e4, 1e6, 1e8, 1e10])
        if _chance(rng, 0.3):
            data["target_size"], data["target_offset"] = 1e4, 2e4
    else:
        data["labels"] = _one(rng, {"plain": 6, "random": 1, "runs": 1})
        data["ranks"] = _one(rng, {2: 3, 3: 2, 5: 2, 10**6: 1})
        data["queries"] = int(rng.integers(1, 12))
    return data


def _rows(rng, pairs):
    if _chance(rng, 0.1):
        return int(rng.integers(2, 6))
    return int(10.0 ** rng.uniform(0.7, 2.0 if pairs else 2.9 if _chance(rng, 0.9) else 3.4))


def _how(rng, options):
    """Where the data lie, and whether the run is warm started or interrupted."""
    how: dict[str, Any] = {}
    if _chance(rng, 0.15):
        how["store"] = int(rng.integers(20, 200))  # Rows of a chunk
        if _chance(rng, 0.02):
            how["dask"] = True
    if _chance(rng, 0.1):
        how["threads"] = 2
    smo = options["solver"] == "streamed-smo"
    if smo and _chance(rng, 0.2):
        how["warm"] = _one(rng, ["state", "model"])
        how["ratio"] = float(f"{10.0 ** rng.uniform(-8, 8):.2g}")
    elif _chance(rng, 0.15):
        how["interrupt"] = int(rng.integers(1, 5))  # Reads after which the run is resumed
    return how
