"""Cases of the audit that a defect showed in once, as its output repeats them."""

from __future__ import annotations

import pytest
from audit.trial import try_case

LIMITS = {"max_passes": 120, "time_limit": 60.0}
CASES = {
    # P and D are both 0, and their rounding is not.
    "constant targets, a kernel in working sets": (
        {"n": 2, "d": 1, "seed": 525571737, "labels": "constant"},
        {"problem": "svr", "loss": "squared-epsilon-insensitive", "bias": "free", "kernel": "rbf",
         "gamma": 0.1, "solver": "block-smo"},
        {},
    ),
    "targets of 0, a kernel in working sets": (
        {"n": 2, "d": 2, "seed": 119247208, "density": 0.1, "noise": 0.0},
        {
            "problem": "svr",
            "loss": "epsilon-insensitive",
            "bias": "free",
            "kernel": "rbf",
            "gamma": 0.1,
            "solver": "block-smo",
        },
        {},
    ),
    "constant targets, a kernel by cutting planes": (
        {"n": 101, "d": 1, "seed": 807707125, "values": "ones", "noise": 0.0, "labels": "constant",
         "target_offset": 1e8},
        {"problem": "svr", "loss": "epsilon-insensitive", "bias": "free", "epsilon": 0.0, "kernel": "poly",
         "gamma": 0.1, "solver": "kernel-cutting-plane"},
        {},
    ),
    # The bias of the model is the sum of a small number and the center of the targets.
    "values far from 0, cutting planes": (
        {"n": 3, "d": 1, "seed": 176769853, "noise": 0.0, "target_offset": 1e10},
        {"problem": "svr", "loss": "epsilon-insensitive", "bias": "free", "epsilon": 0.0,
         "solver": "cutting-plane", "C": 8.2e7},
        {},
    ),
    "values far from 0, nu": (
        {"n": 2, "d": 1, "seed": 477580730, "target_offset": 1e8},
        {"problem": "nu-svr", "solver": "streamed-smo", "C": 1.0, "nu": 0.02},
        {},
    ),
    # The cuts of values have both signs, and cancel in their sum.
    "a kernel by cutting planes, resumed": (
        {"n": 7, "d": 25, "seed": 229694765, "values": "uniform", "density": 0.1, "target_offset": 1e8},
        {"problem": "nu-svr", "kernel": "poly", "gamma": 1.0, "degree": 3, "coef0": 1.0,
         "solver": "kernel-cutting-plane", "C": 250.0, "nu": 0.9},
        {"interrupt": 3},
    ),
    # What is nothing next to a bias is not nothing next to such features.
    "small features, nu": (
        {"n": 5, "d": 1, "seed": 876247397, "size": 0.001},
        {"problem": "nu-svc", "solver": "ocas", "nu": 0.594},
        {},
    ),
    "small features, nu, cutting planes": (
        {"n": 12, "d": 1, "seed": 290962627, "size": 0.001, "duplicates": 0.95, "labels": "several"},
        {"problem": "nu-svc", "solver": "cutting-plane", "tol": 1e-5, "cut_groups": 1, "nu": 0.4995},
        {},
    ),
    # The C that nu stands for is out of reach.
    "nu beyond all C": (
        {"n": 5, "d": 2, "seed": 289932022, "values": "uniform", "density": 0.7, "offset": 1e4,
         "constant_columns": 1, "noise": 0.05},
        {"problem": "nu-svc", "solver": "streamed-smo", "tol": 1e-6, "seed": 0, "nu": 0.0957},
        {},
    ),
    # No multiplier is between its bounds, and no two of the rows that violate their conditions can move.
    "all multipliers at a bound, one kind of violators": (
        {"n": 11, "d": 1, "seed": 649113700},
        {"problem": "svc", "loss": "hinge", "bias": "free", "solver": "smo"},
        {},
    ),
    "all multipliers at a bound, a row on the edge": (
        {"n": 7, "d": 4, "seed": 937974802, "values": "uniform", "spread": 1.0, "duplicates": 0.95},
        {"problem": "svc", "loss": "hinge", "bias": "free", "solver": "smo"},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_shows_none_any_more(name):
    data, options, how = CASES[name]
    if options["problem"] != "nu-svc":
        options = {"C": 1.0, **options}
    findings, report = try_case({"data": data, "options": {"tol": 1e-3, **LIMITS, **options}, "how": how})
    assert not findings, "\n".join(map(str, findings))
    assert report["models"]
