"""Compiled sums over multipliers and rows, against plain numpy; and the step of a free bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import losses
from helpers.dual_data import bias_of, centered, dual_data, dual_model, mean_weights
from helpers.losses import LOSSES, plain_conjugates, plain_losses
from scipy.optimize import brentq

from ooc_svm.losses.row_loops import slope_sizes
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet


def drawn(loss, seed=0, **options):
    data = dual_data(loss, **options)
    return data, data.random_multipliers(np.random.default_rng(seed))


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_of_multipliers_of_the_rows_not_held(loss):
    data, v = drawn(loss)
    rng = np.random.default_rng(1)
    marks = rng.integers(0, 4, len(v)).astype(np.uint8)
    sums = rng.random(dual_loops.N_SUMS)
    expected = sums.copy()
    own = (marks & dual_loops.HELD_AT_START == 0) & (v != 0.0)
    assert 20 < own.sum() < len(v) / 2
    cost = plain_conjugates(loss, v, data.t, data.cost, data.eps)
    size = [losses.magnitude(data.functions, *row) for row in zip(v, data.t, data.cost, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where(data.cost > 0.0, v * v / data.cost, 0.0)
    parts = data.t * v - cost, np.abs(data.t * v) + size, v, np.abs(v), squares
    names = range(dual_loops.WAS_LINEAR, dual_loops.WAS_SQUARE + 1)
    for name, part in zip(names, parts, strict=True):
        expected[name] += part[own].sum()
    dual_loops.count_before(data.functions, v, data.targets, marks, sums)
    np.testing.assert_allclose(sums, expected, rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_multipliers_are_put_inside_their_bounds(loss):
    data, v = drawn(loss)
    low, high = data.box[:, 1], data.box[:, 2]
    moved = np.nextafter(v, np.random.default_rng(0).choice([-np.inf, np.inf], len(v)))
    dual_loops.put_inside(data.functions, moved, data.targets)
    assert ((low <= moved) & (moved <= high)).all()
    inside = (low < v) & (v < high)
    assert (moved[inside] != v[inside]).all()  # those that were inside stay where they are
    expected = v.copy()
    dual_loops.put_inside(data.functions, expected, data.targets)
    assert expected.tobytes() == v.tobytes()


@pytest.mark.parametrize("loss", LOSSES)
def test_free_rows_are_counted(loss):
    data, v = drawn(loss)
    free = (data.box[:, 1] < v) & (v < data.box[:, 2]) & ((v != 0.0) | (data.eps == 0.0))
    if loss == "logistic":
        free = data.cost > 0.0
    assert dual_loops.count_free(data.functions, v, data.targets) == free.sum() > 0


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
def test_residuals(dtype, far, scaled):
    data, v = drawn("epsilon-insensitive", ones=dtype is None, scaled=scaled, rho=0.4)
    if dtype is not None:
        data.matrix.data = data.matrix.data.astype(dtype).astype(np.float64)
    mean = data.matrix.mean(axis=0) if far else None
    dense = centered(data, mean) if far else data
    moments = data.matrix @ mean_weights(data, mean) if far else None
    w, total, out = data.weights(v), v.sum(), np.empty(len(v))
    bias = bias_of(data, mean, w, total, 0.3)
    places = np.arange(len(v), dtype=np.uint64)
    dual_loops.residuals(*data.arrays(dtype), places, moments, w, bias, data.targets, out)
    np.testing.assert_allclose(out, data.t - dense.matrix @ dense.weights(v) - 0.3, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_those_of_the_losses(loss):
    data, _ = drawn(loss)
    residual, h = 3.0 * np.random.default_rng(0).normal(size=len(data.t)), 1e-6
    for shift in (0.0, -0.7, 2.0):
        ends = [
            plain_losses(loss, data.t, data.t - (residual - shift - side), data.cost, data.eps).sum()
            for side in (h, -h)
        ]
        found = dual_loops.slope_sum(data.functions, residual, shift, data.targets)
        assert found == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("error", [0.0, 0.2])
@pytest.mark.parametrize("loss", LOSSES)
def test_sizes_of_slopes(loss, error):
    """The steepest slope within the error of a residual counts."""
    data, _ = drawn(loss)
    scores, b, sums = np.random.default_rng(0).normal(size=len(data.t)), 0.4, np.ones(4)
    slope_sizes(data.functions, scores, b, error, data.t, data.cost, sums)
    r, expected = data.t - scores - b, np.ones(4)
    for ri, s, t, c in zip(r, scores, data.t, data.cost, strict=True):
        if c > 0.0:
            between = np.linspace(ri - error, ri + error, 41)
            g = max(abs(losses.slope(data.functions, x, t, c)) for x in between)
            expected[:3] += [g * g / c, g * (abs(t) + abs(s) + b), g]
    expected[3] += plain_losses(loss, data.t, scores + b, data.cost, data.eps).sum()
    np.testing.assert_allclose(sums, expected, rtol=1e-12)


class TestBiasStep:
    """How far b goes before the slopes of the losses of resident rows, and elsewhere, sum up to 0."""

    def setup_of(self, loss, elsewhere, seed=0):
        data, v = drawn(loss, seed, rho=0.3)
        every, indptr = np.arange(len(data.t)), data.matrix.indptr.astype(np.int64)
        indices = data.matrix.indices.astype(np.int32)
        rows = ResidentRows(10**6, data.matrix.data, False, every, indptr, indices)
        held = WorkingSet(rows, every, data.targets, v)
        w, total = data.weights(v), v.sum() + elsewhere
        bias = np.array([0.1, 0.3, total])
        r = data.t - data.matrix @ w - 0.1

        def slopes(shift):
            each = [
                losses.slope(data.functions, x - shift, *row) for x, row in zip(r, data.targets, strict=True)
            ]
            return elsewhere + sum(each)

        return dual_model(data, free_bias=True), held, w, bias, slopes

    @pytest.mark.parametrize("elsewhere", [-200.0, -30.0, -1.0, 0.0, 1.0, 30.0, 200.0])
    @pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0, 1e3])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_it_goes_to_where_the_sum_changes_its_sign(self, loss, size, elsewhere):
        model, held, w, bias, slopes = self.setup_of(loss, elsewhere)
        total = bias[dual_loops.TOTAL]
        step = math.copysign(size, total)
        found = held.bias_step(model, w, bias, step)
        if slopes(step) * total <= 0.0:
            assert found == step  # the sum has changed its sign before
            return
        far = step
        while slopes(far) * total > 0.0 and abs(far) < 1e12:
            far *= 2.0
        if slopes(far) * total > 0.0:
            assert found == step  # it never does
            return
        # Of a piecewise constant sum that is 0 on a whole piece, the first end.
        zero = brentq(lambda shift: 1.0 if slopes(shift) * total > 0.0 else -1.0, step, far, xtol=1e-14)
        assert abs(found) >= abs(step)
        assert found == pytest.approx(zero, rel=1e-5, abs=2e-6 * size)
        assert slopes(found) * total > 0.0  # not beyond it

    def test_no_step_and_no_number(self):
        model, held, w, bias, _ = self.setup_of("hinge", 1.0)
        assert held.bias_step(model, w, bias, 0.0) == 0.0
        assert held.bias_step(model, w, bias, math.inf) == math.inf
        assert math.isnan(held.bias_step(model, w, bias, math.nan))
