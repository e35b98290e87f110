"""Rows, stores and independent optima for the tests of streamed SMO."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.losses import LOSSES, is_regression, is_squared, plain_losses, power_of
from helpers.train_data import make_store, store_rows
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

EPS = 0.15
CLASSES = tuple(loss for loss in LOSSES if not is_regression(loss))
VALUES = tuple(loss for loss in LOSSES if is_regression(loss))
# Fewer blocks than rounds: rounds of every k-th row; more: rounds of whole blocks.
FEW = {"chunk_elements": 4000, "chunk_rows": 650, "block_rows": 650}
MANY = {"chunk_elements": 50, "chunk_rows": 25, "block_chunks": 2, "block_rows": 25}


def problem_of(loss):
    return "svr" if is_regression(loss) else "svc"


def options_of(loss, **options):
    """Options of a training with this loss."""
    own = {"epsilon": EPS} if is_regression(loss) else {}
    return {"problem": problem_of(loss), "loss": loss, **own, **options}


KINDS = [
    options_of("hinge", bias="free", C=4.0, tol=1e-5, max_passes=4),
    options_of("squared-hinge", bias="penalized", C=[0.1, 2.0], scale="std", tol=1e-5, max_passes=4),
    options_of("squared-epsilon-insensitive", bias="free", tol=1e-5, max_passes=4),
]


def make_rows():
    """Rows, 5 % of them without features; labels, and values to learn."""
    matrix, labels = store_rows(1300, 30, density=0.15)
    rng = np.random.default_rng(8)
    values = 2.0 + matrix @ rng.normal(size=30) + 0.3 * rng.normal(size=1300)
    return matrix, labels, values


def make_weights():
    """Weights of the rows; a third of them is 0."""
    return np.random.default_rng(3).integers(0, 3, 1300) * 0.7


def make_stores(folder):
    """Stores by problem and number of blocks, all with weights."""
    matrix, labels, values = make_rows()
    return {
        (problem, name): make_store(folder / f"{problem}-{name}", matrix, t, weights=make_weights(), **cut)
        for problem, t in (("svc", labels), ("svr", values))
        for name, cut in (("few", FEW), ("many", MANY))
    }


def value_of(matrix, t, w, b, *, loss, C=1.0, omega=None, bias="none", eps=EPS):
    """P, from its definition."""
    cost = C * (np.ones(len(t)) if omega is None else omega)
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    return 0.5 * penalty + plain_losses(loss, t, matrix @ w + b, cost, eps).sum()


def reference(matrix, t, *, loss, C=1.0, omega=None, bias="none", eps=EPS):
    """Weights and bias of an independent solver at the optimum."""
    kept = np.ones(len(t), dtype=bool) if omega is None else omega > 0
    x, t, omega = matrix[kept], t[kept], None if omega is None else omega[kept]
    if bias != "free" and loss not in ("logistic", "lp"):
        # Dual coordinate descent where there is nothing better, and a Newton method.
        ways = {"dual": True, "tol": 1e-7, "max_iter": 10**6, "random_state": 0}
        if is_squared(loss):
            ways = {"dual": False, "tol": 1e-10, "max_iter": 1000}
        ways |= {"loss": loss.replace("-", "_"), "C": C, "fit_intercept": bias != "none"}
        machine = LinearSVR(epsilon=eps, **ways) if is_regression(loss) else LinearSVC(**ways)
        machine.fit(x, t, sample_weight=omega)
        return machine.coef_.ravel(), float(np.ravel(machine.intercept_)[0]) if bias != "none" else 0.0
    if is_squared(loss) or loss in ("logistic", "lp"):
        return _smooth_optimum(x, t, loss, C if omega is None else C * omega, eps, bias)
    libsvm = {"kernel": "linear", "C": C, "tol": 1e-5, "cache_size": 500}
    machine = SVR(epsilon=eps, **libsvm) if is_regression(loss) else SVC(**libsvm)
    machine.fit(x.toarray(), t, sample_weight=omega)
    return machine.coef_.ravel(), float(machine.intercept_[0])


def _smooth_optimum(x, t, loss, cost, eps, bias):
    has_bias, penalty = float(bias != "none"), float(bias == "penalized")

    def value(point):
        w, b = point[:-1], has_bias * point[-1]
        s = x @ w + b
        if is_regression(loss):
            excess = np.maximum(0.0, np.abs(t - s) - eps)
            slope = -2.0 * cost * excess * np.sign(t - s)
        elif loss == "logistic":
            slope = -cost * t * expit(-t * s)
        else:
            power = power_of(loss)
            slope = -power * cost * np.maximum(0.0, 1.0 - t * s) ** (power - 1.0) * t
        losses = plain_losses(loss, t, s, cost, eps).sum()
        slopes = np.append(w + x.T @ slope, penalty * b + has_bias * slope.sum())
        return 0.5 * (w @ w + penalty * b * b) + losses, slopes

    start = np.zeros(x.shape[1] + 1)
    limits = {"maxiter": 10_000, "maxfun": 10**6, "ftol": 1e-16, "gtol": 1e-8, "maxcor": 40}
    point = minimize(value, start, jac=True, method="L-BFGS-B", options=limits).x
    return point[:-1], has_bias * float(point[-1])


def assert_certified(model, matrix, t, *, tol, number=0, **problem):
    """The certificate encloses the independent optimum; the weights have the primal value that it names."""
    row = model.report["models"][number]
    best = value_of(matrix, t, *reference(matrix, t, **problem), **problem)
    own = value_of(matrix, t, model.weights[number], model.bias[number], **problem)
    assert row["converged"]
    assert row["relative_gap"] <= tol
    assert row["primal"] == pytest.approx(own, rel=1e-9)
    assert row["gap"] == pytest.approx(
        row["primal"] - row["dual"] + row["rounding"], rel=1e-9, abs=1e-15 * own
    )
    assert row["dual"] <= best * (1 + 1e-10)
    # The reference is not exact either.
    assert row["primal"] >= best * (1 - 1e-6)
    assert best <= row["primal"] * (1 + 1e-6)
