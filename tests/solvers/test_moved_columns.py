"""Where the rows and the values lie, and how large they are, does not change where a run ends.

nu-svc has a free bias: a constant added to all columns changes nothing.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.problems_data import nu_svc_loss
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import NuSVC

import ooc_svm
from ooc_svm.losses.hinge import Hinge
from ooc_svm.problems.targets import ClassTargets
from ooc_svm.solvers.cutting_plane.free_oracle import FreeCutOracle
from ooc_svm.solvers.cutting_plane.row_rules import RowLosses
from ooc_svm.solvers.space import LinearSpace

NU = {"problem": "nu-svc", "tol": 1e-3}


def overlapping(n_rows=300):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n_rows) < 0.5, -1.0, 1.0)
    rows = rng.normal(size=(n_rows, 4))
    rows[:, 0] += y
    return rows, y


@pytest.mark.parametrize("shift", [10.0, 1e3, 1e4])
@pytest.mark.parametrize("solver", ["ocas", "cutting-plane", "streamed-smo"])
def test_moved_rows_have_the_same_optimum(solver, shift):
    rows, y = overlapping()
    options = {**NU, "nu": 0.35, "solver": solver}
    [exact] = ooc_svm.train(rows, y, **{**options, "solver": "ocas", "tol": 1e-6}).report["models"]
    model = ooc_svm.train(rows + shift, y, **options)
    [row] = model.report["models"]
    assert not row["absolute"]
    assert row["dual"] <= exact["primal"] + row["rounding"]
    assert exact["dual"] <= row["primal"] + row["rounding"]
    assert row["relative_gap"] <= NU["tol"]
    assert row["primal"] == pytest.approx(exact["primal"], rel=2e-3)
    assert model.score(rows + shift, y) > 0.8


@pytest.mark.parametrize(
    ("solver", "size"),
    [
        *[("ocas", 1e3), ("ocas", 1e4), ("cutting-plane", 1e4), ("kernel-cutting-plane", 1e3)],
        *[("streamed-smo", 1e3), ("streamed-smo", 1e4)],
    ],
)
def test_a_column_of_large_values_hides_no_gap(solver, size):
    """The free parameters of an optimum follow from its w, not from the largest that any mix of rows has."""
    rows, y = overlapping()
    rows = (rows * [1.0, size, 1.0, 1.0]).astype(np.float32).astype(np.float64)
    kernel = {"kernel": "poly", "degree": 1, "gamma": 1.0} if solver == "kernel-cutting-plane" else {}
    model = ooc_svm.train(rows, y, **NU, **kernel, nu=0.35, solver=solver)
    [row] = model.report["models"]
    assert row["relative_gap"] <= NU["tol"]
    assert not row["absolute"]
    with warnings.catch_warnings():
        # It does not get there, and its point is above the optimum all the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = NuSVC(kernel="linear", nu=0.35, max_iter=10**5).fit(rows, y)
    share = 0.35 / np.abs(peer.dual_coef_).sum()
    w, b = peer.coef_[0] * share, peer.intercept_[0] * share
    value = 0.5 * w @ w + nu_svc_loss(y * (rows @ w + b), 0.35)
    assert row["dual"] <= value + row["rounding"]
    if not kernel:
        w, b = model.weights[0], model.bias[0]
        own = 0.5 * w @ w + nu_svc_loss(y * (rows @ w + b), 0.35)
        assert row["primal"] == pytest.approx(own, rel=1e-9)
        assert own <= value + 1e-3 * abs(value)


@pytest.mark.parametrize(("size", "reads"), [(1e3, 15), (1e4, 25)])
def test_a_search_that_goes_past_its_place_comes_back(size, reads):
    """After the second read the models have a D below 0, and what it says of the place would be false."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 10))
    y = np.where(rows @ rng.normal(size=10) + rng.normal(size=2000) > 0.0, 1.0, -1.0)
    rows[:, 0] *= size
    model = ooc_svm.train(rows, y, **NU, nu=0.5, solver="streamed-smo")
    [row] = model.report["models"]
    assert row["relative_gap"] <= NU["tol"]
    assert row["passes"] <= reads
    assert model.score(rows, y) > 0.85


@pytest.mark.parametrize(
    ("solver", "size"), [("ocas", 1e6), ("ocas", 1e7), ("cutting-plane", 1e6), ("streamed-smo", 1e4)]
)
def test_a_column_of_noise_hides_no_optimum(solver, size):
    """The first bound follows from the largest column; next to that, an optimum may be nothing."""
    rng = np.random.default_rng(3)
    y = np.resize([1.0, -1.0], 120)
    rows = rng.normal(size=(120, 3)) + 2.0 * y[:, None]
    rows[:, 0] = size * rng.normal(size=120)
    model = ooc_svm.train(rows, y, **NU, nu=0.3, solver=solver)
    [row] = model.report["models"]
    assert row["relative_gap"] <= NU["tol"]
    assert row["primal"] < -0.1
    assert model.score(rows, y) > 0.95


@pytest.mark.parametrize("solver", ["ocas", "streamed-smo"])
@pytest.mark.parametrize("seed", range(12))
def test_solvers_agree_on_whether_there_is_a_point_below_0(solver, seed):
    rng = np.random.default_rng(100 + seed)
    y = np.where(rng.random(80) < 0.4, 1.0, -1.0)
    rows = rng.normal(size=(80, 3)) + np.outer(y, rng.normal(size=3)) * rng.choice([0.3, 1.0, 3.0])
    rows *= 10.0 ** rng.uniform(-3, 3, size=3)
    options = {**NU, "nu": float(rng.uniform(0.02, 0.7))}
    [row] = ooc_svm.train(rows, y, **options, solver=solver).report["models"]
    [other] = ooc_svm.train(rows, y, **options, solver="cutting-plane").report["models"]
    assert row["converged"]
    assert (row["primal"] < 0.0) == (other["primal"] < 0.0)
    assert row["dual"] <= other["primal"] + row["rounding"] + other["rounding"]
    assert other["dual"] <= row["primal"] + row["rounding"] + other["rounding"]


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
@pytest.mark.parametrize("options", [{"problem": "svr", "bias": "free"}, {"problem": "nu-svr", "nu": 0.4}])
def test_large_values_hide_no_gap(solver, options):
    """A free parameter counts in a row as often as the row does, however large its value is."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(150, 3)) * [1.0, 100.0, 1e4]
    values = (1e5 * (rows @ [1.0, 0.01, 1e-4] + rng.normal(size=150))).astype(np.float32)
    [row] = ooc_svm.train(rows, values, C=1e4, tol=1e-5, solver=solver, **options).report["models"]
    assert row["relative_gap"] <= 1e-5
    [exact] = ooc_svm.train(rows, values, C=1e4, tol=1e-6, solver="streamed-smo", **options).report["models"]
    assert row["dual"] <= exact["primal"] + exact["rounding"] + row["rounding"]
    assert exact["dual"] <= row["primal"] + exact["rounding"] + row["rounding"]


@pytest.mark.parametrize("seed", range(20))
def test_the_free_parameters_of_an_optimum_are_in_the_box(seed):
    rng = np.random.default_rng(seed)
    y = np.resize([1.0, -1.0], 60)
    rows = (rng.normal(size=(60, 3)) + np.outer(y, [1.0, 0.0, 0.5])) * 10.0 ** rng.uniform(-3, 3, size=3)
    rows += rng.normal(size=3) * rng.choice([0.0, 10.0])
    nu = float(rng.uniform(0.3, 0.9))
    model = ooc_svm.train(rows, y, problem="nu-svc", nu=nu, tol=1e-4, solver="ocas")
    [row] = model.report["models"]
    assert row["converged"]
    losses = RowLosses(ClassTargets(np.array([-1.0, 1.0]), np.ones(2)), Hinge())
    oracle = FreeCutOracle(losses, 1.0 / len(y), LinearSpace(3, n_free=2), nu=nu)
    oracle.targets.weight, oracle.largest_norm = len(y), float(np.linalg.norm(rows, axis=1).max())
    given = []

    def bound(box):
        given.append(box)
        return row["dual"], row["rounding"]

    oracle.in_box(row["primal"], bound)
    assert given[-1] <= given[0]
    assert max(abs(float(model.bias[0])), abs(1.0 - row["rho"])) <= given[-1]


@pytest.mark.parametrize("solver", ["ocas", "kernel-cutting-plane", "streamed-smo"])
@pytest.mark.parametrize("shift", [0.0, 10.0])
def test_hulls_that_meet_end_a_run_by_the_gap_itself(solver, shift):
    rng = np.random.default_rng(1)
    rows, y = rng.normal(size=(200, 3)), np.resize([1.0, -1.0], 200)
    kernel = {"kernel": "poly", "degree": 1, "gamma": 1.0} if solver == "kernel-cutting-plane" else {}
    [row] = ooc_svm.train(rows + shift, y, **NU, **kernel, nu=0.9, solver=solver).report["models"]
    assert row["converged"]
    assert row["absolute"]
    assert row["primal"] + row["rounding"] >= 0.0
    spread = rows.var(axis=0).sum()
    assert row["gap"] <= 1e-8 * 0.5 * 0.9**2 * spread + row["rounding"]


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane", "streamed-smo"])
def test_an_optimum_below_0_ends_by_a_share_of_it(solver):
    """Far smaller than that of rows of this length: the classes differ in a column of small values alone."""
    rng = np.random.default_rng(2)
    y = np.resize([1.0, -1.0], 300)
    rows = np.column_stack([20.0 * rng.normal(size=300), 0.05 * (y + 0.4 * rng.normal(size=300))])
    [row] = ooc_svm.train(rows, y, **NU, nu=0.3, solver=solver).report["models"]
    assert row["primal"] < -3.4e-5
    assert not row["absolute"]
    assert row["relative_gap"] <= NU["tol"]
