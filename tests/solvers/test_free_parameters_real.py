"""Free bias, margin and tube on well-known data sets: the optimum is scikit-learn's, the bias Platt's.

``OOC_SVM_DATA`` names a folder with files of the LIBSVM collection: adult/a1a.bz2 and so on.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.svm import SVC, SVR, NuSVC, NuSVR

from ooc_svm import train

pytestmark = [pytest.mark.realdata, pytest.mark.timeout(600)]

GAP, PEER_GAP = 1e-4, 1e-5
EPSILON = 0.1
SOLVERS = ("ocas", "cutting-plane", "streamed-smo")

CLASSES = [
    *(("adult/a1a.bz2", None), ("adult/a2a.bz2", None), ("adult/a3a.bz2", None), ("adult/a4a.bz2", None)),
    *(("web/w1a.bz2", None), ("ijcnn1/ijcnn1.trn.bz2", 3000)),
]
VALUES = [
    ("regression/abalone.trn.bz2", None),
    ("regression/housing_scale.bz2", None),
    ("regression/protein.bz2", 2000),
]


@cache
def rows(name, n_rows):
    """The first rows of a data set, columns divided by their largest absolute value; labels."""
    source = Path(os.environ.get("OOC_SVM_DATA", "")) / name
    if "OOC_SVM_DATA" not in os.environ or not source.exists():
        pytest.skip(f"OOC_SVM_DATA names no folder with {name}")
    matrix, labels = load_svmlight_file(str(source))
    matrix, labels = matrix[:n_rows], labels[:n_rows]
    largest = abs(matrix).max(axis=0).toarray().ravel()
    return (matrix / np.where(largest > 0.0, largest, 1.0)).tocsr(), labels


def largest_nu(labels):
    """Nearly the largest that these classes allow; with a small one their hulls meet."""
    return 1.8 * min((labels > 0).mean(), (labels < 0).mean())


def value(problem, matrix, labels, w, b, *, C=1.0, nu=0.5):
    """P from its definition; of the nu problems at the best margin or width for w and b."""
    s, n = matrix @ w + b, len(labels)
    margins, residuals = labels * s, np.abs(labels - s)
    if problem == "svc":
        loss = C * np.maximum(0.0, 1.0 - margins).sum()
    elif problem == "svr":
        loss = C * np.maximum(0.0, residuals - EPSILON).sum()
    elif problem == "nu-svc":
        # The slope in rho, which is the share of rows below it less nu, changes its sign there.
        rho = max(np.sort(margins)[max(int(np.ceil(nu * n)) - 1, 0)], 0.0)
        loss = np.maximum(0.0, rho - margins).mean() - nu * rho
    else:
        width = np.sort(residuals)[n - 1 - int(np.floor(nu * n))] if nu < 1.0 else 0.0
        loss = C * (nu * n * width + np.maximum(0.0, residuals - width).sum())
    return 0.5 * w @ w + loss


def peer(problem, matrix, labels, *, C=1.0, nu=0.5):
    """Weights and bias by scikit-learn, in the units of the problem."""
    common = {"kernel": "linear", "tol": 1e-5, "cache_size": 400}
    kinds = {
        "svc": lambda: SVC(C=C, **common),
        "svr": lambda: SVR(C=C, epsilon=EPSILON, **common),
        "nu-svc": lambda: NuSVC(nu=nu, **common),
        "nu-svr": lambda: NuSVR(nu=nu, C=C, **common),
    }
    model = kinds[problem]().fit(matrix, labels)
    w, b = model.coef_.toarray()[0], float(model.intercept_[0])
    if problem == "nu-svc":
        # Its multipliers are divided by rho: here they add up to nu.
        share = nu / np.abs(model.dual_coef_.toarray()).sum()
        w, b = w * share, b * share
    return w, b


def check(problem, matrix, labels, solver, tol=GAP, **parameters):
    """Both certify the same optimum; the model, its report, and the peer's weights, bias and P."""
    constants = {"epsilon": EPSILON} if problem == "svr" else {}
    model = train(
        matrix, labels, problem=problem, solver=solver, bias="free", tol=tol, **constants, **parameters
    )
    [found] = model.report["models"]
    w, b = peer(problem, matrix, labels, **parameters)
    theirs = value(problem, matrix, labels, w, b, **parameters)
    own = value(problem, matrix, labels, model.weights[0], model.bias[0], **parameters)
    assert found["converged"]
    assert not found["absolute"]
    assert found["primal"] == pytest.approx(own, rel=1e-9)
    assert found["dual"] <= theirs + 1e-9 * abs(theirs)
    # P of either point is within the gap, so the biases are two of those that the gap leaves.
    assert max(own, theirs) - found["dual"] <= 2.0 * max(tol, PEER_GAP) * abs(theirs)
    return model, found, (w, b, theirs)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "n_rows"), CLASSES)
def test_svc(name, n_rows, solver):
    check("svc", *rows(name, n_rows), solver, C=0.05)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "n_rows"), VALUES)
def test_svr(name, n_rows, solver):
    check("svr", *rows(name, n_rows), solver, C=0.05)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "n_rows"), CLASSES)
def test_nu_svc_and_svc_at_the_matching_c(name, n_rows, solver):
    matrix, labels = rows(name, n_rows)
    model, found, _ = check("nu-svc", matrix, labels, solver, nu=largest_nu(labels))
    n, rho = len(labels), found["rho"]
    assert rho > 0.0
    # P of C-SVC at the function divided by rho is (P + nu rho) / rho^2, and its C is 1 / (n rho).
    C = 1.0 / (n * rho)
    other = train(matrix, labels, problem="svc", solver="ocas", bias="free", C=C, tol=GAP).report["models"][0]
    scaled = value("svc", matrix, labels, model.weights[0] / rho, model.bias[0] / rho, C=C)
    assert other["dual"] <= scaled
    assert scaled <= other["primal"] + (found["gap"] / rho**2)
    assert scaled == pytest.approx(other["primal"], rel=5 * GAP)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("nu", [0.2, 0.6])
@pytest.mark.parametrize(("name", "n_rows"), VALUES)
def test_nu_svr_and_svr_at_the_matching_epsilon(name, n_rows, nu, solver):
    matrix, labels = rows(name, n_rows)
    _, found, _ = check("nu-svr", matrix, labels, solver, nu=nu, C=0.05)
    constants = {"C": 0.05, "epsilon": found["epsilon"], "bias": "free", "tol": GAP}
    [other] = train(matrix, labels, problem="svr", solver="ocas", **constants).report["models"]
    # P of the nu problem is larger by what the width costs.
    price = 0.05 * nu * len(labels) * found["epsilon"]
    assert other["dual"] <= found["primal"] - price + 1e-12 * found["primal"]
    assert found["dual"] <= other["primal"] + price


@pytest.mark.parametrize(
    ("problem", "name", "n_rows"),
    [
        *((problem, *each) for problem in ("svc", "nu-svc") for each in CLASSES),
        *((problem, *each) for problem in ("svr", "nu-svr") for each in VALUES),
    ],
)
def test_each_bias_is_as_good_at_the_weights_of_the_other_one(problem, name, n_rows):
    matrix, labels = rows(name, n_rows)
    parameters = {} if problem == "nu-svc" else {"C": 0.05}
    if problem.startswith("nu"):
        parameters["nu"] = 0.4 if problem == "nu-svr" else largest_nu(labels)
    model, _, (w, b, theirs) = check(problem, matrix, labels, "ocas", tol=2e-6, **parameters)
    for at, bias in ((w, model.bias[0]), (model.weights[0], b)):
        assert value(problem, matrix, labels, at, bias, **parameters) <= theirs + GAP * abs(theirs)


@pytest.mark.parametrize(
    ("name", "C", "threshold"),
    [
        *(("adult/a1a.bz2", 0.05, 0.884999), ("adult/a2a.bz2", 0.05, 1.12781)),
        *(("adult/a3a.bz2", 0.05, 1.17302), ("adult/a4a.bz2", 0.05, 1.24946)),
        *(("adult/a8a.bz2", 0.05, 1.39797), ("adult/a9a.bz2", 0.05, 1.41408)),
        *(("web/w1a.bz2", 1.0, 1.08553), ("web/w7a.bz2", 1.0, 1.02946), ("web/w8a.bz2", 1.0, 1.03446)),
    ],
)
@pytest.mark.filterwarnings("ignore::ooc_svm.HintWarning")
def test_thresholds_of_platt(name, C, threshold):
    """His b is one that a gap of 1e-5 leaves: the least P of all weights with it is so close to the bound.

    With b fixed, a row loses ``max(0, 1 - y b - w.(y x))``: one side of the loss of a value, whose other side
    is far away where the tube is wide.
    """
    matrix, labels = rows(name, None)
    [free] = train(matrix, labels, problem="svc", bias="free", C=C, tol=1e-6).report["models"]
    width, signed = 100.0, matrix.multiply(labels[:, None]).tocsr()
    values = 1.0 + labels * threshold + width
    fixed = train(signed, values, problem="svr", epsilon=width, bias="none", C=C, tol=1e-6)
    least = value("svc", matrix, labels, fixed.weights[0], -threshold, C=C)
    assert least - free["dual"] <= 1e-5 * least
