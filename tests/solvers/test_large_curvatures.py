"""Where C |x|^2 is huge: steps lead to the optimum, and sweeps do not lead away from it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.proximal_data import Rows
from sklearn.linear_model import LogisticRegression

from ooc_svm import train
from ooc_svm.solvers.streamed_smo import proximal

LOSSES = ["hinge", "squared-hinge", "lp", "logistic", "epsilon-insensitive", "squared-epsilon-insensitive"]


def overlapping(n, d, size=1.0):
    """Classes that overlap, of dense rows whose values are so large."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d))
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-rows[:, 0])), 1.0, -1.0)
    return size * rows, y


def in_few_visits(rows, y, most, **options):
    [found] = train(rows, y, threads=1, max_passes=3, **options).report["models"]
    assert found["converged"]
    assert found["row_visits"] <= most
    return found


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize(("size", "C"), [(1.0, 1e4), (1.0, 1e8), (1e4, 1.0), (1e3, 1e4)])
def test_the_logistic_loss(size, C, bias):
    rows, y = overlapping(1000, 20, size)
    found = in_few_visits(rows, y, 100, loss="logistic", C=C, bias=bias)
    if bias != "penalized":
        peer = LogisticRegression(C=1e6, fit_intercept=bias == "free", tol=1e-9, solver="newton-cholesky")
        peer.fit(rows / size, y)
        loss = np.logaddexp(0.0, -y * peer.decision_function(rows / size)).sum()
        best = C * loss + 0.5 * float((peer.coef_**2).sum()) / size**2
        assert found["dual"] <= best
        assert found["primal"] <= best * (1 + 2e-3)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_columns_of_many_sizes(loss):
    rng = np.random.default_rng(1)
    rows, y = overlapping(1000, 9)
    rows = rows * 10.0 ** rng.uniform(0, 4, 9) + 10.0 ** rng.uniform(0, 4, 9)
    in_few_visits(rows, y, 200, loss=loss, C=10.0, bias="free")


@pytest.mark.parametrize(("C", "seed"), [(1e3, 4), (1e4, 1), (1e5, 0), (1e5, 1), (1e5, 2)])
def test_a_few_rows_whose_columns_are_left_as_they_are(C, seed):
    """Sweeps raise D however large a squared norm is: of the logistic loss they once lost all of it."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(54, 10))
    value = rows @ rng.normal(size=10) + 3.0 * rng.normal(size=54)
    rows *= 10.0 ** np.array([-4, -3, -1.5, 0, 0.5, 0.7, 1.5, 3, 4, 4])
    y = np.where(value > np.median(value), 1.0, -1.0)
    in_few_visits(rows, y, 300, loss="logistic", C=C, seed=seed, bias="none", tol=0.01)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_long_rows_of_columns_that_are_not_many(loss):
    """Threads could share their parts, but steps are worth more."""
    rows, y = overlapping(2000, 410)
    in_few_visits(rows, y, 1500, loss=loss, C=100.0)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gap_that_a_step_leaves(loss):
    rows = Rows(loss, n=600)
    rows.sweeps(1)
    rows.step(wanted=np.inf)
    found, seen = rows.gap, rows.stationarity.copy()
    assert found == pytest.approx(rows.row_gaps(), rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(seen, rows.stationarity, rtol=1e-6, atol=1e-9)
    # Where more is wanted it is foreseen, from the change of w that Newton's method found.
    rows.step(mu=0.01)
    assert rows.gap == pytest.approx(rows.row_gaps(), rel=0.3, abs=1e-3)


def test_a_step_that_gains_much_is_followed_by_another(monkeypatch):
    rows, y = overlapping(1000, 20)
    options = {"loss": "squared-hinge", "C": 1e4, "bias": "none"}
    found = in_few_visits(rows, y, 100, **options)
    monkeypatch.setattr(proximal, "CLOSER", 0.0)
    monkeypatch.setattr(proximal, "ENOUGH", 0.0)
    swept = train(rows, y, threads=1, max_passes=3, **options).report["models"][0]
    assert swept["row_visits"] > 1.15 * found["row_visits"]
