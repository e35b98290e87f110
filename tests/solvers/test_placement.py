"""Where the data lies: center and unit of the targets, the mean row, and inner products of weights."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.dual_data import dual_data, dual_model, dual_vectors
from helpers.losses import LOSSES, is_regression, plain_losses
from helpers.problems_data import MatrixSource, cut_rows
from scipy.optimize import minimize_scalar

from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import rows_of
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.streamed_smo.placement import MEAN_SHARE, RHO, place_rows, place_targets
from ooc_svm.solvers.streamed_smo.rounds import cut_rounds

VALUES = [loss for loss in LOSSES if is_regression(loss)]


class Placing:
    """The requests of a placement answered, and counted."""

    def __init__(self, data, *, free_bias=True):
        self.data, self.model = data, dual_model(data, free_bias=free_bias)
        source = MatrixSource(data.matrix, data.t, spans=cut_rows(data.matrix, 3))
        self.rounds = cut_rounds(source.blocks, 4, 1)
        self.rows = rows_of([each.rows for each in self.rounds])
        self.engine = SerialEngine(source, dual_vectors(data, [self.model]))
        self.engine.vectors[self.model.best].write(0, np.zeros(len(data.t)))

    def answered(self, steps):
        try:
            request = next(steps)
            while True:
                request = steps.send(self.engine.serve([request])[0])
        except StopIteration as end:
            return end.value

    def targets(self):
        return self.answered(place_targets(self.model, self.rows))

    def mean(self):
        return self.answered(place_rows(self.model, self.rounds, self.rows))


class TestTargets:
    @pytest.mark.parametrize("offset", [0.0, -3.0, 1e4, 1e6, 1e8, -1e10])
    @pytest.mark.parametrize("loss", VALUES)
    def test_the_center_is_the_best_bias_without_features(self, loss, offset):
        data = dual_data(loss)
        near = data.t
        data.t = near + offset
        center, unit = Placing(data).targets()

        def losses(b):
            return plain_losses(loss, data.t - offset, b, data.cost, data.eps).sum()

        best = minimize_scalar(losses, bracket=(near.min(), near.max())).fun
        digits = 10 * np.finfo(float).eps * abs(offset) * data.cost.sum() * np.abs(near).max()
        assert losses(center - offset) <= best * 1.002 + digits
        distance = data.cost @ np.abs(data.t - center) / data.cost.sum()
        assert unit == pytest.approx(distance, rel=1e-9)

    @pytest.mark.parametrize("value", [0.0, 0.1, -7.5, 1e10])
    @pytest.mark.parametrize("loss", VALUES)
    def test_a_constant_is_its_own_center(self, loss, value):
        data = dual_data(loss)
        data.t = np.full(len(data.t), value)
        center, unit = Placing(data).targets()
        assert center == pytest.approx(value, rel=1e-15)
        assert unit == 1.0 or unit <= 1e-15 * abs(value)

    def test_the_smallest_unit_has_an_inverse(self):
        data = dual_data(VALUES[0])
        data.t = np.random.default_rng(0).choice([-5e-324, 5e-324], len(data.t))
        _, unit = Placing(data, free_bias=False).targets()
        assert 0.0 < 1.0 / unit < np.inf

    @pytest.mark.parametrize("loss", LOSSES)
    def test_rows_without_weights(self, loss):
        data = dual_data(loss)
        data.cost[:] = 0.0
        assert Placing(data).targets() == (0.0, 1.0)

    @pytest.mark.parametrize("loss", VALUES)
    def test_no_center_without_a_free_bias(self, loss):
        data = dual_data(loss)
        data.t += 100.0
        center, unit = Placing(data, free_bias=False).targets()
        assert center == 0.0
        assert unit == pytest.approx(data.cost @ np.abs(data.t) / data.cost.sum())

    @pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
    def test_classes_are_where_they_are(self, loss):
        assert Placing(dual_data(loss)).targets() == (0.0, 1.0)


class TestRows:
    @pytest.mark.parametrize("scaled", [False, True])
    @pytest.mark.parametrize("offset", [0.0, 30.0])
    def test_a_mean_is_taken_where_rows_are_far(self, offset, scaled):
        data = dual_data("hinge", density=0.9, scaled=scaled)
        data.matrix.data += offset
        placing = Placing(data)
        rho, mean = placing.mean()
        part = next(segment for segment in placing.rounds[0].rows.segments if segment)[0]
        own = np.arange(part.start, part.stop, part.step)
        cost, rows = data.cost[own], data.scaled[own]
        middle, square = cost @ rows / cost.sum(), cost @ (rows**2).sum(axis=1) / cost.sum()
        far = middle @ middle >= MEAN_SHARE * square
        assert far == (offset > 0.0)
        if far:
            scale = 1.0 if data.scale2 is None else np.sqrt(data.scale2)
            np.testing.assert_allclose(mean, middle * scale)
            # Rows less the mean are what is left: the deviation from it.
            left = cost @ ((rows - middle) ** 2).sum(axis=1) / cost.sum()
            assert rho == pytest.approx(max(RHO * left, 1.0 / data.cost.sum()), rel=1e-9)
        else:
            assert len(mean) == 0
            assert rho == pytest.approx(max(RHO * square, 1.0 / data.cost.sum()))

    @pytest.mark.parametrize("rho", [0.0, 1.0])
    def test_another_bias_reads_nothing(self, rho):
        data = dual_data("hinge", rho=rho)
        placing = Placing(data, free_bias=False)
        found, mean = placing.mean()
        assert (found, len(mean)) == (rho, 0)
        assert placing.engine.counters.blocks_read == 0

    def test_rows_without_weights(self):
        data = dual_data("hinge")
        data.cost[:] = 0.0
        rho, mean = Placing(data).mean()
        assert rho >= 0.0
        assert len(mean) == 0

    def test_a_small_cost_moves_the_bias_all_the_same(self):
        data = dual_data("hinge", C=1e-9)
        rho, _ = Placing(data).mean()
        assert rho == pytest.approx(1.0 / data.cost.sum())


@pytest.mark.parametrize("scaled", [False, True])
def test_inner_products_in_units_of_the_data(scaled):
    rng = np.random.default_rng(0)
    u, v, scale = *rng.normal(size=(2, 9)), 0.1 + rng.random(9)
    space = LinearSpace(9, scale if scaled else None)
    factor = scale if scaled else 1.0
    assert space.inner(u * factor, v * factor) == pytest.approx(u @ v)
    assert space.norm(u * factor) == pytest.approx(np.linalg.norm(u))
