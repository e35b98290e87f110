"""Reads of data whose rows are all resident: they score the rows, and make no steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ooc_svm import train, tune
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.sweep import ScorePass, SweepPass


def data(n_rows=400):
    rng = np.random.default_rng(1)
    matrix = sparse.random_array((n_rows, 30), density=0.3, format="csr", rng=rng)
    scores = matrix @ rng.standard_normal(30)
    return matrix, np.where(scores + 0.5 * rng.standard_normal(n_rows) > np.median(scores), 1, -1)


@pytest.fixture
def served(monkeypatch):
    """Of each round the number of its read, how many rows are resident, and the kinds of its passes."""
    found, passes = [], StreamedSmo._passes

    def kept(self, *args):
        result = passes(self, *args)
        if self.n_nonzeros == data()[0].nnz:  # no warm-up
            n_held = len(self.state.multipliers.working_set.ids)
            found.append((self.certificate.passes, n_held, {type(each) for each in result}))
        return result

    monkeypatch.setattr(StreamedSmo, "_passes", kept)
    return found


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
@pytest.mark.parametrize("without_cost", [False, True])
def test_one_model(served, loss, bias, without_cost):
    matrix, y = data()
    weights = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    if without_cost:
        weights[::3] = 0.0
    report = train(matrix, y, sample_weight=weights, loss=loss, bias=bias, tol=1e-5).report
    assert report["converged"]
    n_with_cost = np.count_nonzero(weights)
    assert served[1][:2] == (1, n_with_cost)
    for read, n_held, kinds in served:
        assert (SweepPass in kinds) == (n_held < n_with_cost)
        assert (ScorePass in kinds) == (read > 0)


def test_folds(served):
    report = tune(*data(), C=[0.1, 0.5, 2.0], folds=3, tol=1e-5).report
    assert all(model["converged"] for model in report["models"])
    assert {read for read, _, _ in served} >= {0, 1}
    for read, n_held, kinds in served:
        assert (SweepPass in kinds) == (read == 0)
        assert read == 0 or n_held > 250


def test_steps_go_on_where_a_row_is_not_held(served, few_held):
    train(*data(), tol=1e-5)
    assert {read for read, _, _ in served} >= {0, 1}
    assert all(SweepPass in kinds for _, _, kinds in served)
