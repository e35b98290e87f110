"""The augmented Lagrangian on well-known data sets: its optimum is that of other solvers; how many reads.

``OOC_SVM_DATA`` names a folder with adult/a9a.bz2, web/w8a.bz2, ijcnn1/ijcnn1.trn.bz2 and
covtype/covtype.multiclass.bz2 (the LIBSVM collection).
"""

from __future__ import annotations

import bz2
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import maxabs_scale
from sklearn.svm import LinearSVC

from ooc_svm import train

pytestmark = pytest.mark.realdata

FILES = ["adult/a9a.bz2", "web/w8a.bz2", "ijcnn1/ijcnn1.trn.bz2", "covtype/covtype.multiclass.bz2"]
N_ROWS = 2000  # The first ones of each file: the independent solvers take long
# The gap that is asked for, and the most reads to a gap of 1e-2
RUNS = [("alm", 1e-3, 25), ("inexact-alm", 1e-2, 60), ("streamed-smo", 1e-3, 6)]


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.split("/")[0])
def rows(request, tmp_path_factory):
    """Columns of one size, and labels of 1 and -1."""
    source = Path(os.environ.get("OOC_SVM_DATA", "")) / request.param
    if "OOC_SVM_DATA" not in os.environ or not source.exists():
        pytest.skip(f"OOC_SVM_DATA names no folder with {request.param}")
    part = tmp_path_factory.mktemp("real") / "part.svm"
    with bz2.open(source, "rb") as lines:
        part.write_bytes(b"".join(itertools.islice(lines, N_ROWS)))
    matrix, labels = load_svmlight_file(str(part))
    positive = 2.0 if "covtype" in request.param else 1.0
    return maxabs_scale(matrix), np.where(labels == positive, 1.0, -1.0)


def reads_to(report, tol):
    """Reads to a gap."""
    return next(row["pass"] for row in report["history"] if row["relative_gap"] <= tol)


def value(point, X, y, p):
    """P with a free bias, C = 1, and its gradient."""
    w, slack = point[:-1], np.maximum(0.0, 1.0 - y * (X @ point[:-1] + point[-1]))
    slopes = -p * slack ** (p - 1.0) * y
    return 0.5 * w @ w + (slack**p).sum(), np.append(w + X.T @ slopes, slopes.sum())


@pytest.mark.parametrize("p", [1.2, 1.5, 2.0])
def test_the_optimum_is_that_of_a_quasi_newton_method(rows, p):
    X, y = rows
    limits = {"maxiter": 1000, "maxfun": 10**5, "ftol": 1e-15, "gtol": 1e-6}
    start = np.zeros(X.shape[1] + 1)
    best = minimize(value, start, (X, y, p), jac=True, method="L-BFGS-B", options=limits).fun
    for solver, tol, most in RUNS:
        model = train(X, y, solver=solver, loss="lp", p=p, bias="free", tol=tol)
        [found] = model.report["models"]
        own = value(np.append(model.weights[0], model.bias[0]), X, y, p)[0]
        assert found["primal"] == pytest.approx(own, rel=1e-9)
        assert found["dual"] <= best * (1 + 1e-9)
        assert own <= best + found["gap"]
        assert found["relative_gap"] <= tol
        assert reads_to(model.report, 1e-2) <= most


@pytest.mark.parametrize(("p", "loss"), [(1.0, "hinge"), (2.0, "squared_hinge")])
def test_the_optimum_is_that_of_liblinear(rows, p, loss):
    X, y = rows
    svm = LinearSVC(loss=loss, fit_intercept=False, tol=1e-5, max_iter=200_000, random_state=0).fit(X, y)
    best = value(np.append(svm.coef_.ravel(), 0.0), X, y, p)[0]
    for solver, tol, most in RUNS:
        report = train(X, y, solver=solver, loss="lp", p=p, bias="none", tol=tol).report
        [found] = report["models"]
        assert found["dual"] <= best
        assert best <= found["primal"] * (1 + 1e-4)
        assert found["primal"] <= best + found["gap"]
        assert reads_to(report, 1e-2) <= most
