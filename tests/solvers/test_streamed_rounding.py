"""P and D of streamed SMO in extended precision: rounding changes them by no more than is allowed for."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.dual_data import DualData
from helpers.hostile_data import hostile_rows
from helpers.losses import LOSSES, POWER, box_of, is_regression, power_of
from helpers.smo_runs import Run
from scipy import sparse

from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo

LONG = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(LONG).eps > 2e-19, reason="no floats of 80 bits here")

KINDS = ["plain", "columns of many sizes", "large", "far from 0", "far targets", "scaled"]
N_ROWS, EPS = 150, 0.1


def hostile_data(kind, loss, C, rho, seed=0):
    """Rows, targets by a noisy rule, and costs, some of them 0."""
    rng = np.random.default_rng(seed)
    dense = hostile_rows(kind, rng, N_ROWS)
    size = np.abs(dense).max(axis=0)
    scores = (dense - dense.mean(axis=0)) / size @ rng.normal(size=9)
    scores = scores / scores.std() + 0.3 * rng.normal(size=N_ROWS)
    t = scores + (1e8 if kind == "far targets" else 0.0)
    if not is_regression(loss):
        t = np.where(scores > 0.0, 1.0, -1.0)
    cost = C * rng.integers(0, 4, N_ROWS) * 0.5
    box = np.array([box_of(loss, *row) for row in zip(t, cost, strict=True)])
    scale2 = size**-2.0 if kind == "scaled" else None
    eps = EPS if is_regression(loss) else 0.0
    return DualData(loss, sparse.csr_array(dense), t, cost, box, eps, rho, scale2)


def entropy(part, whole):
    """``-part log(part / whole)``."""
    held = part > 0
    return np.where(held, -part * np.log(np.where(held, part / np.where(held, whole, 1), 1)), 0)


class Exact:
    """P and D of a problem by their definitions."""

    def __init__(self, data, model):
        self.data, self.rows = data, data.matrix.toarray().astype(LONG)
        self.t, self.cost = data.t.astype(LONG), data.cost.astype(LONG)
        # The solver scales by the square of the scale that it was given.
        scale2 = model.space.scale2
        self.scale2 = np.ones(9, LONG) if scale2 is None else scale2.astype(LONG)

    def primal(self, w, b):
        w, b = w.astype(LONG), LONG(b)
        s = self.rows @ w + b
        norm = (w * w / self.scale2).sum() / 2 + LONG(self.data.rho) * b * b / 2
        if self.data.loss == "logistic":
            return norm + (self.cost * np.logaddexp(LONG(0), -self.t * s)).sum()
        size = np.abs(self.t - s) - LONG(self.data.eps) if self.data.eps else 1 - self.t * s
        loss = self.cost * np.maximum(size, 0) ** LONG(power_of(self.data.loss))
        return norm + loss.sum()

    def dual(self, v, *, center=0.0):
        """D; of multipliers that sum up to 0 it is the same from any center, and exact with a near one."""
        w = self.rows.T @ v
        damping = self.data.box[:, 3].astype(LONG)
        linear = (self.t - LONG(center)) * v - LONG(self.data.eps) * np.abs(v) - damping * v * v / 2
        if self.data.loss == "logistic":
            linear = entropy(self.t * v, self.cost) + entropy(self.cost - self.t * v, self.cost)
        if self.data.loss == "lp":
            p, cost = LONG(POWER), np.where(self.cost > 0, self.cost, 1)
            linear = self.t * v - (p - 1) * cost * np.maximum(self.t * v / (p * cost), 0) ** (p / (p - 1))
        return linear.sum() - (w * w * self.scale2).sum() / 2 - LONG(self.data.rho) * v.sum() ** 2 / 2

    def feasible(self, v, *, balanced):
        """The multipliers inside their bounds and, with a free bias, summing up to 0."""
        low, high = self.data.box[:, 1], self.data.box[:, 2]
        v = np.clip(v, low, high)
        for _ in range(N_ROWS if balanced else 0):
            excess = v.sum()
            room = np.maximum(v - low if excess > 0 else high - v, 0)
            best = int(np.argmax(room))
            v[best] -= np.sign(excess) * min(abs(excess), room[best])
            if abs(v.sum()) <= 1e-18 * np.abs(v).sum():
                break
        return v


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e7])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", LOSSES)
def test_in_every_read(loss, bias, kind, C, monkeypatch):
    data = hostile_data(kind, loss, C, 1.0 if bias == "penalized" else 0.0)
    run = Run(loss, bias=bias, data=data, passes=6, share=0.3)
    exact, changes, checked = Exact(data, run.model), [], 0
    bound, gains = StreamedSmo._bound, dual_loops.gains

    def watched_gains(loss, dual, change, targets, out):
        changes.append(change.copy())
        gains(loss, dual, change, targets, out)

    def watched(solver):
        nonlocal checked
        changes.clear()
        value, rounding = bound(solver)
        v = run.multipliers().astype(LONG)
        if bias == "free" and value != 0.0:
            v[run.state.multipliers.working_set.ids] += changes[-1]
        elif bias == "free":
            v[:] = 0.0
        v = exact.feasible(v, balanced=bias == "free")
        assert value - rounding <= exact.dual(v, center=run.state.center)
        certificate = run.state.certificate
        primal = exact.primal(*solver.solution())
        assert abs(certificate.primal - primal) <= certificate.primal_rounding
        assert certificate.lower <= primal
        checked += 1
        return value, rounding

    monkeypatch.setattr(StreamedSmo, "_bound", watched)
    monkeypatch.setattr(dual_loops, "gains", watched_gains)
    for _ in run.moments():
        pass
    certificate = run.state.certificate
    assert checked >= certificate.passes >= 1
    if kind == "plain" and C <= 1.0:
        # Up to 300 sweeps in each solve leave as many roundings.
        assert certificate.rounding <= 1e-9 * certificate.primal
