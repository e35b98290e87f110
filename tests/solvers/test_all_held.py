"""Reads of data whose rows are all resident: they score the rows, and make no steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.train_data import bits
from scipy import sparse

from ooc_svm import train, tune
from ooc_svm.solvers.streamed_smo import effort, plan, solver
from ooc_svm.solvers.streamed_smo.company import Company
from ooc_svm.solvers.streamed_smo.foresight import Foresight
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import ScorePass, SweepPass


def data(n_rows=400):
    rng = np.random.default_rng(1)
    matrix = sparse.random_array((n_rows, 30), density=0.3, format="csr", rng=rng)
    scores = matrix @ rng.standard_normal(30)
    return matrix, np.where(scores + 0.5 * rng.standard_normal(n_rows) > np.median(scores), 1, -1)


@pytest.fixture(autouse=True)
def all_rounds_make_steps(monkeypatch):
    """But for those that the rows here leave out: no read is foreseen to be the last."""
    monkeypatch.setattr(Foresight, "at_start", lambda *_: None)


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


@pytest.fixture
def in_rounds(monkeypatch):
    """A read has several rounds though all rows may be held, so that some leave in the middle of one."""
    monkeypatch.setitem(effort.EFFORTS, 0, replace(effort.EFFORTS[0], one_round=False))
    for name in ("is_narrow", "has_proximal_steps"):
        monkeypatch.setattr(plan, name, lambda *shape: False)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("costs", [1.0, [0.001, 0.05, 0.5, 5.0, 50.0, 500.0]], ids=["one", "many"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
@pytest.mark.parametrize("bias", ["none", "free"])
@pytest.mark.parametrize("rounds", ["one round", "rounds"])
def test_steps_left_out_would_have_changed_no_bit(
    served, rounds, bias, loss, costs, lanes, monkeypatch, request
):
    if rounds == "rounds":
        request.getfixturevalue("in_rounds")
    options = {"C": costs, "loss": loss, "bias": bias, "lanes": lanes, "tol": 1e-6, "resident": 1.0}
    found = train(*data(), **options)
    assert found.report["converged"]
    assert (found.report["rounds"] > 1) == (rounds == "rounds")
    # In several rounds rows out of reach of a loss with an end are never taken, unless C is small.
    if rounds == "one round" or loss == "logistic":
        assert any(SweepPass not in kinds for _, _, kinds in served)

    def none_known(model, rows):
        yield from ()
        return -1

    monkeypatch.setattr(solver, "count_with_cost", none_known)
    served.clear()
    assert bits(train(*data(), **options)) == bits(found)
    assert all(SweepPass in kinds for _, _, kinds in served)


def test_rows_that_leave_in_the_middle_of_such_a_read_are_moved_in_it(in_rounds, served, monkeypatch):
    """The rounds that are still to come sweep; multipliers are those of the rows all the time."""
    drops, admitted = [], Company.admit

    def admit(self):
        member = self.members[0]
        held = member.state.multipliers.working_set
        n_held = len(held.places)
        with monkeypatch.context() as patch:
            if member.certificate.passes == 1 and n_held == len(data()[1]) and not drops:
                drops.append(n_held)
                worth = held.priorities(member.model, member.state.unit)
                least = float(np.quantile(worth, 0.3)) + 1e-9
                patch.setattr(SmoState, "least_priority", lambda *_: least)
            admitted(self)
        if len(drops) == 1:
            drops.append(n_held - len(held.places))

    monkeypatch.setattr(Company, "admit", admit)
    found = train(*data(), loss="squared-hinge", C=0.01, bias="free", tol=1e-6, resident=1.0)
    assert found.report["converged"]
    assert drops[1] > 0
    of_read = [SweepPass in kinds for read, _, kinds in served if read == 1]
    assert not of_read[0]
    assert any(of_read)
    scores = data()[0] @ found.weights.ravel() + found.bias
    margins = np.maximum(0.0, 1.0 - data()[1] * scores)
    primal = 0.5 * float((found.weights**2).sum()) + 0.01 * float((margins**2).sum())
    model = found.report["models"][0]
    assert model["primal"] == pytest.approx(primal, rel=1e-9)
    assert model["dual"] <= primal
