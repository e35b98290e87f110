"""The judge itself: P and D by their definitions, optima of other solvers, and reports that lie."""

from __future__ import annotations

import copy
from functools import partial

import daqp
import numpy as np
import pytest
from audit.cases import draw
from audit.data import make_rows
from audit.independent_solvers import optimum
from audit.judge import judge
from audit.kernel_objective import in_features, of_all_rows
from audit.objective import Rows, make_objectives
from scipy import sparse
from scipy.optimize import minimize, minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR

import ooc_svm

ROW_LOSSES = [
    ("svc", "hinge"), ("svc", "squared-hinge"), ("svr", "epsilon-insensitive"),
    ("svr", "squared-epsilon-insensitive"),
]  # fmt: skip


def some_rows(problem, n=60, **data):
    return make_rows(problem, n=n, d=4, seed=3, **data)


def only(rows, scale=None, **options):
    [(_, _, objective)] = make_objectives(rows, options, scale)
    return objective


def plain_primal(rows, w, b, options):
    """P as the theory writes it, row by row."""
    eps, C, total = options.get("epsilon", 0.1), options.get("C", 1.0), 0.5 * float(w @ w)
    if options.get("bias") == "penalized":
        total += 0.5 * b * b
    dense = rows.matrix.toarray()
    for i in range(rows.n_rows):
        omega = 1.0 if rows.weights is None else rows.weights[i]
        score, label = float(dense[i] @ w) + b, rows.labels[i]
        u = max(0.0, 1 - label * score if options["problem"] == "svc" else abs(label - score) - eps)
        total += C * omega * (u * u if options["loss"].startswith("squared") else u)
    return total


@pytest.mark.parametrize(("problem", "loss"), ROW_LOSSES)
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_p_is_the_sum_of_the_losses(bias, problem, loss):
    rows = some_rows(problem, weights="zeros")
    options = {"problem": problem, "loss": loss, "bias": bias, "C": 0.7}
    objective, rng = only(rows, **options), np.random.default_rng(0)
    w, b = rng.normal(size=4), 0.0 if bias == "none" else 0.3
    assert float(objective.primal(w, b)) == pytest.approx(plain_primal(rows, w, b, options), rel=1e-12)
    if bias == "free":
        best = objective.best_bias(w)
        value = objective.primal(w, best)
        assert all(value <= objective.primal(w, best + step) for step in (-0.1, -1e-6, 1e-6, 0.1))


@pytest.mark.parametrize("problem", ["ordinal", "roc-area", "ranking"])
def test_p_of_pairs_is_their_mean(problem):
    rows = some_rows(problem, n=20, weights="uniform", ranks=2 if problem == "roc-area" else 3)
    objective, w = only(rows, problem=problem, C=5.0), np.random.default_rng(0).normal(size=4)
    s, total, m = rows.matrix @ w, 0.0, 0.0
    for i in range(20):
        for j in range(20):
            same = problem != "ranking" or rows.qid[i] == rows.qid[j]
            if rows.labels[i] > rows.labels[j] and same:
                omega = rows.weights[i] * (1.0 if problem == "ranking" else rows.weights[j])
                total, m = total + omega * max(0.0, 1 - (s[i] - s[j])), m + omega
    assert float(objective.primal(w)) == pytest.approx(0.5 * w @ w + 5.0 * total / m, rel=1e-12)


def peer(rows, problem, loss, bias, C):
    """Weights and bias of scikit-learn's solvers, where they solve the same problem."""
    if bias == "free":
        kind = SVC if problem == "svc" else SVR
        svm = kind(kernel="linear", C=C, tol=1e-9, **({} if problem == "svc" else {"epsilon": 0.1}))
    else:
        kind = LinearSVC if problem == "svc" else LinearSVR
        name = loss.replace("-", "_")
        more = {} if problem == "svc" else {"epsilon": 0.1}
        svm = kind(C=C, loss=name, dual=True, tol=1e-10, max_iter=10**6, fit_intercept=bias != "none", **more)
    svm.fit(rows.matrix.toarray(), rows.labels)
    return np.ravel(svm.coef_), float(np.ravel(svm.intercept_)[0]) if bias != "none" else 0.0


@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(("problem", "loss"), ROW_LOSSES)
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_the_reference_is_the_optimum_of_other_solvers(bias, problem, loss, C):
    if bias == "free" and loss.startswith("squared"):
        pytest.skip("scikit-learn has no such solver")
    rows = some_rows(problem)
    objective = only(rows, problem=problem, loss=loss, bias=bias, C=C)
    found, other = optimum(objective), objective.primal(*peer(rows, problem, loss, bias, C))
    assert float(found.error / found.primal) < 1e-8
    assert found.primal <= other * (1 + 1e-12)
    assert float(other) == pytest.approx(float(found.primal), rel=1e-5)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_the_reference_of_logistic_losses_is_the_optimum_of_another_solver(bias, C):
    rows = some_rows("svc", weights="zeros")
    objective = only(rows, problem="svc", loss="logistic", bias=bias, C=C)
    machine = LogisticRegression(C=C, fit_intercept=bias == "free", tol=1e-12, solver="newton-cholesky")
    machine.fit(rows.matrix.toarray(), rows.labels, sample_weight=rows.weights)
    w, b = machine.coef_.ravel(), float(np.ravel(machine.intercept_)[0])
    found, other = optimum(objective), objective.primal(w, b)
    assert float(found.error / found.primal) < 1e-8
    assert found.primal <= other * (1 + 1e-12)
    assert float(other) == pytest.approx(float(found.primal), rel=1e-9)
    s = rows.matrix @ w + b
    plain = 0.5 * w @ w + C * (rows.weights * np.logaddexp(0.0, -rows.labels * s)).sum()
    assert float(other) == pytest.approx(plain, rel=1e-12)
    value, best = objective.primal(w, objective.best_bias(w, b)), objective.best_bias(w, b)
    if bias == "free":
        assert all(value <= objective.primal(w, best + step) for step in (-0.1, -1e-6, 1e-6, 0.1))


@pytest.mark.parametrize("p", [1.2, 1.5, 1.8])
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_the_reference_of_powers_is_closed_and_above_what_a_generic_solver_finds(bias, p):
    rows = some_rows("svc", weights="zeros")
    objective, dense = only(rows, loss="lp", p=p, bias=bias, C=3.0), rows.matrix.toarray()

    def value(at):
        w, b = at[:-1], 0.0 if bias == "none" else at[-1]
        u = np.maximum(0.0, 1.0 - rows.labels * (dense @ w + b))
        penalty = 0.5 * w @ w + (0.5 * b * b if bias == "penalized" else 0.0)
        return penalty + 3.0 * (rows.weights * u**p).sum()

    found, other = optimum(objective), minimize(value, np.zeros(5), method="Powell", tol=1e-12).fun
    assert float(found.error / found.primal) < 1e-8
    assert found.primal <= other * (1 + 1e-12)
    assert other == pytest.approx(float(found.primal), rel=1e-4)
    b = 0.0 if bias == "none" else 0.3
    assert float(objective.primal(np.ones(4), b)) == pytest.approx(
        value(np.array([1.0] * 4 + [b])), rel=1e-12
    )


def test_powers_of_1_and_2_are_hinges():
    rows = some_rows("svc")
    for p, loss in ((1.0, "hinge"), (2.0, "squared-hinge")):
        power, plain = (only(rows, C=3.0, **of) for of in ({"loss": "lp", "p": p}, {"loss": loss}))
        assert (type(power), power.squared) == (type(plain), plain.squared)


@pytest.mark.parametrize("nu", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("problem", ["nu-svc", "nu-svr"])
def test_the_reference_of_nu_problems_is_the_optimum_of_other_solvers(problem, kernel, nu):
    rows = some_rows(problem, weights="none")
    options = {"problem": problem, "nu": nu, "kernel": kernel, "gamma": 0.5, "degree": 2, "coef0": 1.0}
    numbers = {name: options[name] for name in ("kernel", "gamma", "degree", "coef0")}
    kind = NuSVC if problem == "nu-svc" else NuSVR
    machine = kind(nu=nu, tol=1e-9, **({} if problem == "nu-svc" else {"C": 2.0}), **numbers)
    machine.fit(rows.matrix.toarray(), rows.labels)
    objective = only(rows, C=2.0, **options)
    if kernel == "linear":
        found, expanded = optimum(objective), objective
        coefficients = machine.coef_.ravel()
    else:
        expanded = of_all_rows(objective, rows, options, None)
        found = optimum(expanded, in_features(objective, rows, options, None))
        coefficients = np.zeros(rows.n_rows)
        coefficients[machine.support_] = machine.dual_coef_.ravel()
    if problem == "nu-svc":
        # Theirs has the margin 1: any multiple is a point of ours.
        value = partial(_nu_value, expanded, coefficients, rows.labels, nu)
        best = minimize_scalar(value, bounds=(0.0, 10.0), method="bounded", options={"xatol": 1e-12}).fun
    else:
        point, b = expanded.best_for(coefficients)
        best = float(point.primal(coefficients, b))
    assert float(found.error / abs(found.primal)) < 1e-8
    assert found.primal <= best + 1e-12 * abs(best)
    assert best == pytest.approx(float(found.primal), rel=1e-4)


def _nu_value(objective, coefficients, labels, nu, t):
    """P of nu-svc at t times some weights, with the best rho and bias: by sorting each class."""
    scores = objective.scores(coefficients).astype(np.float64)
    margins = [np.sort(labels[own] * t * scores[own]) for own in (labels > 0, labels < 0)]
    total, n = 0.5 * t * t * float(objective.norm2(coefficients, 0.0)), len(labels)
    for each in margins:
        # Least of ``-nu v / 2 + 1/n sum max(0, v - m)`` over v, which is at one of the m.
        inside = np.arange(len(each)) * each - np.concatenate([[0.0], np.cumsum(each)[:-1]])
        total += float((-nu * each / 2 + inside / n).min())
    return total


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_the_reference_of_kernels_is_the_optimum_of_another_solver(bias, kernel, loss):
    rows = some_rows("svc", n=20)
    options = {"problem": "svc", "loss": loss, "bias": bias, "C": 2.0, "kernel": kernel, "gamma": 0.5}
    objective = only(rows, **options)
    expanded = of_all_rows(objective, rows, options, None)
    found = optimum(expanded, in_features(objective, rows, options, None))
    assert float(found.error / found.primal) < 1e-8
    assert float(daqp_optimum(expanded, expanded.expanded.own)) == pytest.approx(
        float(found.primal), rel=1e-5
    )


def daqp_optimum(objective, products=None):
    """The dual as a quadratic program: ``min 1/2 v'Qv - g.v`` inside its box; ``products``: of the rows."""
    dense = objective.matrix.toarray().astype(np.float64)
    if objective.second is None:
        a = objective.sign.astype(np.float64)[:, None] * dense[objective.first]
    else:
        a = dense[objective.first] - dense[objective.second]
    signs = objective.sign.astype(np.float64)
    inner = a @ a.T if products is None else np.outer(signs, signs) * products.astype(np.float64)
    Q = inner + (np.outer(signs, signs) if objective.bias == "penalized" else 0.0)
    cost = objective.cost.astype(np.float64)
    upper = np.full(len(cost), 1e30) if objective.squared else cost
    if objective.squared:
        Q = Q + np.diag(0.5 / cost)
    equality = signs[None, :] if objective.bias == "free" else np.zeros((0, len(cost)))
    zeros = np.zeros(len(equality))
    kinds = np.concatenate([np.zeros(len(cost)), np.full(len(equality), 5)]).astype(np.int32)
    v, _, flag, _ = daqp.solve(
        Q + 1e-12 * np.eye(len(Q)), -objective.goal.astype(np.float64), equality,
        np.concatenate([upper, zeros]), np.concatenate([np.zeros(len(cost)), zeros]), kinds,
    )  # fmt: skip
    assert flag > 0
    return objective.dual(np.clip(v, 0.0, upper))


@pytest.mark.parametrize(("problem", "loss"), [*ROW_LOSSES, ("ordinal", "hinge")])
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_the_reference_is_the_optimum_of_a_generic_solver(bias, problem, loss):
    if problem == "ordinal" and bias != "none":
        pytest.skip("a bias cancels in every pair")
    rows = some_rows(problem, n=12)
    objective = only(rows, problem=problem, loss=loss, bias=bias, C=2.0)
    found = optimum(objective)
    assert float(daqp_optimum(objective)) == pytest.approx(float(found.primal), rel=1e-6)
    assert float(found.error / found.primal) < 1e-8


def trained(**options):
    rows = some_rows("svc")
    return ooc_svm.train(rows.matrix, rows.labels, **options), rows, options


def kinds(model, rows, options):
    return {finding.kind for finding in judge(model, rows, options)}


def lie(model, **changes):
    """The model with another report."""
    model = copy.deepcopy(model)
    model.report["models"][0].update(changes)
    return model


def test_the_judge_finds_what_is_wrong():
    model, rows, options = trained(bias="free", tol=1e-4)
    row = model.report["models"][0]
    assert kinds(model, rows, options) == set()
    P, D = row["primal"], row["dual"]
    assert "primal" in kinds(lie(model, primal=P * (1 - 1e-9)), rows, options)
    assert {"negative", "dual"} <= kinds(lie(model, dual=P * (1 + 1e-9)), rows, options)
    assert "certificate" in kinds(lie(model, dual=D * 0.99), rows, options)
    assert "support" in kinds(lie(model, n_support=row["n_support"] + 1), rows, options)
    assert "history" in kinds(lie(model, primal=np.float64(P)), rows, options)
    assert "report" in kinds(lie(model, dual=float("nan")), rows, options)
    assert "models" in kinds(lie(model, C=2.0), rows, options)
    assert "report" in kinds(lie(model, converged=False), rows, options)


def test_a_bound_between_the_optimum_and_p_is_found():
    model, rows, options = trained(bias="free", tol=1e-2, max_passes=1)
    best = optimum(only(rows, problem="svc", bias="free"))
    middle = float(best.primal + model.report["models"][0]["primal"]) / 2
    assert best.primal * 1.0001 < middle
    assert "dual" in kinds(lie(model, dual=middle, converged=False, stop_reason="max-passes"), rows, options)


def test_a_stall_is_found_unless_64_bits_cannot_set_p_more_finely():
    options = {"problem": "ordinal", "solver": "cutting-plane", "tol": 1e-8, "max_passes": 1}
    for size, expected in ((1.0, {"stalled"}), (1e9, set())):
        rows = make_rows("ordinal", n=20, d=1, seed=3, ranks=3, size=size)
        model = ooc_svm.train(rows.matrix, rows.labels, **options)
        assert not model.report["models"][0]["converged"]
        assert kinds(lie(model, stop_reason="no-progress"), rows, options) == expected
        assert kinds(lie(model, stop_reason="no-progress"), rows, {**options, "solver": "x"}) == {"stalled"}


def test_scales_of_columns_are_checked():
    model, rows, options = trained(scale="std")
    assert kinds(model, rows, options) == set()
    assert "scale" in kinds(model, rows, {**options, "scale": "maxabs"})


def test_cases_are_the_same_for_the_same_seed():
    assert [draw(1, k) for k in range(50)] == [draw(1, k) for k in range(50)]
    assert draw(1, 0) != draw(2, 0)
    case = next(case for k in range(50) if (case := draw(1, k))["options"]["problem"] == "svr")
    one, two = (make_rows("svr", **case["data"]) for _ in range(2))
    assert one.matrix.toarray().tobytes() == two.matrix.toarray().tobytes()
    assert one.labels.tobytes() == two.labels.tobytes()


def test_rows_are_what_their_description_says():
    rows = make_rows("svc", n=300, d=3, labels="imbalance", weights="zeros", dtype="float32")
    assert isinstance(rows, Rows)
    assert sparse.issparse(rows.matrix)
    assert rows.matrix.dtype == np.float32
    assert 1 <= (rows.labels > 0).sum() <= 6
    assert (rows.weights == 0).any()
    assert np.ptp(make_rows("svr", n=50, labels="constant", target_offset=1e6).labels) == 0.0
