"""W is recomputed from all multipliers where the residue of the steps may matter, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.losses import LOSSES
from helpers.smo_runs import Run

from ooc_svm.passes.base import Overlap
from ooc_svm.solvers.streamed_smo.sweep import SweepPass

RECOMPUTED = {"logistic", "lp"}  # D is no parabola along steps


def reads(run, tol, passes=4):
    """Of each read whether its rounds recompute w."""
    solver = run.solver
    solver.stopping = replace(solver.stopping, tol=tol, max_passes=passes)
    found = {}
    for request in run.moments():
        for each in request.requests if isinstance(request, Overlap) else (request,):
            if isinstance(each, SweepPass):
                found.setdefault(solver.certificate.passes, set()).add(each.rebuild)
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", LOSSES)
def test_with_an_ordinary_gap(loss, bias):
    run = Run(loss, bias=bias)
    first, *later = reads(run, 1e-7)
    assert first == {False}
    assert len(later) > 0
    assert all(each == {loss in RECOMPUTED or bias == "free"} for each in later)
    value, rounding = run.solver._bound()
    v = run.multipliers()
    w = run.data.weights(v)
    exact = run.linear(v) - 0.5 * run.model.space.inner(w, w) - 0.5 * run.data.rho * v.sum() ** 2
    near = rounding + 1e-13 * abs(exact)
    if bias == "free":
        # D is at a feasible point near by.
        assert value - rounding <= run.solver.certificate.upper
    elif loss in RECOMPUTED:
        assert value <= exact + near
    else:
        assert abs(value - exact) <= near


@pytest.mark.parametrize("loss", LOSSES)
def test_with_a_gap_near_rounding(loss):
    run = Run(loss)
    first, *later = reads(run, 1e-15)
    assert first == {False}
    assert later == [{True}] * 3
    np.testing.assert_allclose(run.state.w, run.data.weights(run.multipliers()), rtol=1e-12, atol=1e-12)


def test_what_would_be_left_is_felt_at_last(monkeypatch):
    """A gap that is far from rounding; steps that would have left more than a thousandth of it."""
    run, wanted = Run("hinge"), []
    rounding = run.state.rounding
    monkeypatch.setattr(type(rounding), "dual", lambda *_: 1e-6 * max(run.solver.certificate.lower, 0.0))
    for tol in (1e-2, 1e-4):
        run = Run("hinge")
        wanted.append(reads(run, tol, passes=3)[1:])
    assert all(each == {False} for each in wanted[0])
    assert wanted[1] == [{True}, {True}]
