"""The augmented Lagrangian: optima against other solvers, certificates, bits, resumed runs, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import ooc_svm
from ooc_svm import UsageError, train
from ooc_svm.solvers.alm import plan as alm_plan

RNG = np.random.default_rng(21)
X = sparse.csr_array(RNG.standard_normal((700, 20)) * (RNG.random((700, 20)) < 0.4))
RULE = X @ RNG.standard_normal(20) + 0.8 + RNG.logistic(size=700)
Y = np.where(RULE > 0.0, 1.0, -1.0)
THREE = np.digitize(RULE, [-1.0, 1.5]).astype(np.float64)
WEIGHTS = RNG.integers(0, 4, 700) * 0.5
SOLVERS = ("alm", "inexact-alm")


def value(model, p, C, weights, bias):
    w, b = model.weights[0], model.bias[0]
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    return 0.5 * penalty + (C * weights * np.maximum(0.0, 1.0 - Y * (X @ w + b)) ** p).sum()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize(("p", "C"), [(1.0, 1.0), (1.2, 0.1), (1.5, 10.0), (2.0, 1.0)])
def test_it_certifies_the_optimum_of_streamed_smo(p, C, bias, solver):
    tol = 1e-4 if solver == "alm" else 1e-2
    options = {"loss": "lp", "p": p, "C": C, "bias": bias, "sample_weight": WEIGHTS, "scale": "std"}
    model = train(X, Y, solver=solver, tol=tol, max_passes=200, **options)
    found = model.report["models"][0]
    best = train(X, Y, solver="streamed-smo", tol=1e-6, **options).report["models"][0]
    assert found["converged"]
    assert found["relative_gap"] <= tol
    assert found["dual"] <= best["primal"] * (1 + 1e-12)
    assert best["dual"] <= found["primal"] * (1 + 1e-12)
    w, b = model.weights[0] / model.scale, model.bias[0]
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    losses = C * WEIGHTS * np.maximum(0.0, 1.0 - Y * (X @ model.weights[0] + b)) ** p
    assert found["primal"] == pytest.approx(0.5 * penalty + losses.sum(), rel=1e-9)


@pytest.mark.parametrize("p", [1.0, 1.5])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_products_by_reads_give_the_same_optimum(monkeypatch, p, bias):
    monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    model = train(X, Y, solver="alm", loss="lp", p=p, bias=bias, tol=1e-3)
    found = model.report["models"][0]
    best = train(X, Y, loss="lp", p=p, bias=bias, tol=1e-6).report["models"][0]
    assert model.report["gram"] is False
    assert found["converged"]
    assert best["dual"] <= found["primal"]
    assert found["dual"] <= best["primal"]
    assert found["primal"] == pytest.approx(value(model, p, 1.0, 1.0, bias), rel=1e-9)


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_company_and_a_pause_change_no_bit(tmp_path, monkeypatch, solver, by_products):
    if by_products:
        monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr", dtype="float64")
    options = {"solver": solver, "loss": "lp", "p": 1.3, "bias": "free", "tol": 5e-3}
    whole = train(tmp_path / "s.zarr", C=[0.5, 4.0], threads=1, **options)
    assert train(tmp_path / "s.zarr", C=[0.5, 4.0], threads=3, **options).weights.tobytes() == (
        whole.weights.tobytes()
    )
    alone = train(tmp_path / "s.zarr", C=4.0, **options)
    assert alone.weights[0].tobytes() == whole.weights[1].tobytes()
    for stop in (1, 4):
        place = {"checkpoint": tmp_path / f"checkpoint{stop}", "C": [0.5, 4.0]}
        part = train(tmp_path / "s.zarr", max_passes=stop, **place, **options)
        assert not part.report["converged"]
        resumed = train(tmp_path / "s.zarr", resume=True, **place, **options)
        assert resumed.weights.tobytes() == whole.weights.tobytes()


def test_several_classes_and_folds(tmp_path):
    ooc_svm.convert_matrix(X, THREE, tmp_path / "s.zarr")
    model = train(tmp_path / "s.zarr", solver="alm", bias="free", tol=1e-3)
    assert [row["converged"] for row in model.report["models"]] == [True] * 3
    tuned = ooc_svm.tune(tmp_path / "s.zarr", C=[0.1, 1.0], folds=3, solver="alm", loss="squared-hinge")
    assert tuned.report["converged"]


@pytest.mark.parametrize("loss", ["logistic"])
def test_other_losses_are_refused(loss):
    with pytest.raises(UsageError, match="is for the solver"):
        train(X, Y, solver="alm", loss=loss)


def test_numbers_that_overflow_end_with_one_sentence():
    with pytest.raises(ooc_svm.InputError, match="non-finite objective in pass"), np.errstate(all="ignore"):
        train(1e160 * X, Y, solver="alm", loss="squared-hinge", C=1e150)


def test_the_plan_says_which_way(tmp_path, monkeypatch):
    ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr")
    assert "Gram matrix" in "\n".join(ooc_svm.plan(tmp_path / "s.zarr", solver="alm").lines())
    monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    assert "conjugate gradients" in "\n".join(ooc_svm.plan(tmp_path / "s.zarr", solver="alm").lines())
