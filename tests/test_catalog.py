"""The catalog of problems, losses and solvers, and what goes together by it."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest

from ooc_svm.catalog import BIASES, CALIBRATIONS, KERNELS, LOSSES, PROBLEMS, SOLVERS, load, owners
from ooc_svm.errors import UsageError
from ooc_svm.options import OPTIONS, TrainOptions

CLASSES = ("hinge", "squared-hinge", "lp", "logistic")
LINEAR_SOLVERS = ("streamed-smo", "ocas", "cutting-plane")
POWERS, ALM = ("hinge", "squared-hinge", "lp"), ("alm", "inexact-alm")
CUTS, PAIRS = ("ocas", "cutting-plane"), ("ordinal", "roc-area", "ranking")
# What goes together, written out: problem, loss, solver, biases.
RUNS = {
    *(("svc", loss, "streamed-smo", bias) for loss in CLASSES for bias in BIASES),
    *(
        ("svr", loss, "streamed-smo", bias)
        for loss in ("epsilon-insensitive", "squared-epsilon-insensitive")
        for bias in BIASES
    ),
    *(("svc", loss, solver, bias) for loss in POWERS for solver in ALM for bias in BIASES),
    *(("svc", "hinge", solver, bias) for solver in CUTS for bias in BIASES),
    *(("svr", "epsilon-insensitive", solver, bias) for solver in CUTS for bias in BIASES),
    *(("nu-svc", "hinge", solver, "free") for solver in LINEAR_SOLVERS),
    *(("nu-svr", "epsilon-insensitive", solver, "free") for solver in LINEAR_SOLVERS),
    *(("svc", loss, "block-smo", bias) for loss in CLASSES[:2] for bias in BIASES),
    *(
        ("svr", loss, "block-smo", bias)
        for loss in ("epsilon-insensitive", "squared-epsilon-insensitive")
        for bias in BIASES
    ),
    *(("svc", "hinge", "smo", bias) for bias in BIASES),
    *((problem, "hinge", "kernel-cutting-plane", "free") for problem in ("svc", "nu-svc")),
    *((problem, "epsilon-insensitive", "kernel-cutting-plane", "free") for problem in ("svr", "nu-svr")),
    *((problem, "hinge", solver, "none") for problem in PAIRS for solver in CUTS),
}
GIVEN = {
    "epsilon": 0.2,
    "p": 1.2,
    "nu": 0.3,
    "class_weight": "balanced",
    "positive": ("1",),
    "calibrate": "sigmoid",
    "resident": 0.5,
    "prune": 0.01,
    "lanes": 2,
    "warm_start": "model",
    "cut_groups": 2,
    "gamma": 0.5,
    "degree": 2,
    "coef0": 1.0,
    "sparse_cuts": True,
    "landmarks": 10,
    "polish": True,
}
NEEDED = {"polish": {"landmarks": 10}}  # What goes with them


def test_its_names():
    assert list(PROBLEMS) == ["svc", "svr", "nu-svc", "nu-svr", "ordinal", "roc-area", "ranking"]
    values = ["epsilon-insensitive", "squared-epsilon-insensitive"]
    assert list(LOSSES) == ["hinge", "squared-hinge", "lp", "logistic", *values]
    assert list(KERNELS) == ["linear", "poly", "rbf", "sigmoid"]
    assert list(SOLVERS) == [*LINEAR_SOLVERS, "block-smo", "smo", "kernel-cutting-plane", *ALM]


def test_every_home_is_a_place_of_its_own():
    homes = [entry.home for entries in (PROBLEMS, LOSSES, KERNELS, SOLVERS) for entry in entries.values()]
    homes += CALIBRATIONS.values()
    assert len(set(homes)) == len(homes)
    for home in homes:
        module, name = home.split(":")
        assert module.startswith("ooc_svm.")
        assert name.isidentifier()


def test_names_in_entries_are_known():
    assert {loss for problem in PROBLEMS.values() for loss in problem.losses} == set(LOSSES)
    entries = [*PROBLEMS.values(), *LOSSES.values(), *KERNELS.values(), *SOLVERS.values()]
    named = {option for entry in entries for option in entry.options}
    assert named == set(GIVEN) <= set(OPTIONS)
    assert all(set(solver.biases) <= set(BIASES) for solver in SOLVERS.values())
    assert {kernel for solver in SOLVERS.values() for kernel in solver.kernels} == set(KERNELS)


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_goes_together(solver):
    for problem, loss, bias in product(PROBLEMS, LOSSES, BIASES):
        kernel = SOLVERS[solver].kernels[0]
        options = {"problem": problem, "loss": loss, "solver": solver, "bias": bias, "kernel": kernel}
        if (problem, loss, solver, bias) in RUNS:
            assert TrainOptions(**options).resolved_solver == solver
        else:
            with pytest.raises(UsageError):
                TrainOptions(**options)
    for kernel in set(KERNELS) - set(SOLVERS[solver].kernels):
        with pytest.raises(UsageError, match=f"kernel '{kernel}' is for the solver.*, not '{solver}'"):
            TrainOptions(solver=solver, kernel=kernel, bias=SOLVERS[solver].biases[-1])


@pytest.mark.parametrize(("problem", "loss", "bias"), sorted({(p, loss, bias) for p, loss, _, bias in RUNS}))
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_auto_is_the_first_solver_that_takes_a_run(problem, loss, bias, kernel):
    form = PROBLEMS[problem].form
    takers = [solver for solver in SOLVERS if (problem, loss, solver, bias) in RUNS]
    takers = [solver for solver in takers if kernel in SOLVERS[solver].kernels]
    if not takers:
        with pytest.raises(UsageError, match="no solver takes all of the options"):
            TrainOptions(problem=problem, loss=loss, bias=bias, kernel=kernel)
        return
    takers.sort(key=lambda solver: form in SOLVERS[solver].second_choice)
    options = TrainOptions(problem=problem, loss=loss, bias=bias, kernel=kernel)
    assert (options.resolved_solver, options.resolved_loss) == (takers[0], loss)


@pytest.mark.parametrize("name", GIVEN)
def test_an_option_is_taken_by_its_owners_alone(name):
    [(kind, names)] = owners(name).items()
    runs = [(*run, kernel) for run in RUNS for kernel in SOLVERS[run[2]].kernels]
    for problem, loss, solver, bias, kernel in runs:
        chosen = {"problem": problem, "loss": loss, "kernel": kernel, "solver": solver}
        options = {**chosen, "bias": bias, name: GIVEN[name]}
        if name in PROBLEMS[problem].without:
            with pytest.raises(UsageError, match=f"^problem '{problem}' has nu in place of {name}"):
                TrainOptions(**options)
        elif chosen[kind] in names:
            options |= NEEDED.get(name, {})
            assert getattr(TrainOptions(**options), name) == GIVEN[name]
        else:
            with pytest.raises(UsageError, match=rf"^{name} is for the {kind}.* not '{chosen[kind]}'$"):
                TrainOptions(**options)


def test_general_options_have_no_owner():
    assert [name for name in OPTIONS if owners(name)] == [name for name in OPTIONS if name in GIVEN]


def test_a_home_is_imported_on_demand():
    assert load("ooc_svm.options:TrainOptions") is TrainOptions
    script = (
        "import sys; from ooc_svm.catalog import load; print('colorsys' in sys.modules);"
        "load('colorsys:rgb_to_hsv'); print('colorsys' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
