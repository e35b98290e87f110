"""Where the multipliers are at any moment of a run: feasible, with the sums that the solver keeps of them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.dual_data import read_all
from helpers.losses import LOSSES, QUADRATIC, plain_losses
from helpers.smo_runs import N_ROWS, Run

from ooc_svm.passes.base import Overlap, Position, RowSet, StridedRange
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.sweep import SweepPass


def assert_known(run, v):
    """The linear part; where the conjugate is no parabola the steps' theta may have added less to it."""
    exact, known = run.linear(v), run.state.multipliers.linear
    assert known <= exact + 1e-9 * max(abs(exact), 10.0)
    slack = 1e-9 if run.data.loss in QUADRATIC else 0.1
    assert known >= exact - slack * max(abs(exact), 10.0)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("n_blocks", "lanes"), [(1, 1), (1, 2), (60, 1), (60, 4)])
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", LOSSES)
def test_they_are_feasible_and_their_sums_are_known(loss, bias, n_blocks, lanes, scaled):
    run = Run(loss, bias=bias, n_blocks=n_blocks, lanes=lanes, scaled=scaled)
    data, known = run.data, run.state.multipliers
    returned, resident, moments = 0, 0, 0
    for _ in run.moments():
        v = run.multipliers()
        assert ((v >= data.box[:, 1] - 1e-12) & (v <= data.box[:, 2] + 1e-12)).all()
        assert known.total == pytest.approx(v.sum(), abs=1e-8)
        assert_known(run, v)
        np.testing.assert_allclose(run.state.w, data.weights(v), atol=1e-8)
        # A row is in one place.
        assert not np.isin(known.returned, known.working_set.ids).any()
        assert len(set(known.returned.tolist())) == len(known.returned)
        returned, resident = max(returned, len(known.returned)), max(resident, len(known.working_set.ids))
        moments += 1
    assert returned > 5
    assert 20 < resident < N_ROWS / 2
    assert moments > 4 * len(run.rounds) > 4
    assert np.abs(v).max() > 0.0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_so_they_are_after_any_number_of_rounds(loss, seed):
    """Row vectors are written in a row's own round alone."""
    rng = np.random.default_rng(seed)
    run = Run(loss, n_blocks=int(rng.integers(1, 40)), share=float(rng.choice([0.02, 0.1, 0.3])))
    names = run.model.dual, run.model.step
    last, before = int(rng.integers(3, 3 * len(run.rounds))), [read_all(run.vectors, name) for name in names]
    others = np.arange(N_ROWS)
    for number, request in enumerate(run.moments()):
        after = [read_all(run.vectors, name) for name in names]
        for old, new in zip(before, after, strict=True):
            assert old[others].tobytes() == new[others].tobytes()
        if number == last:
            break
        before, others = after, np.arange(N_ROWS)
        passes = request.requests if isinstance(request, Overlap) else ()
        for sweep in (each for each in passes if isinstance(each, SweepPass)):
            others = others[~Round(sweep.rows, sweep.position, ()).inside(others)]
    v = run.multipliers()
    assert ((v >= run.data.box[:, 1] - 1e-12) & (v <= run.data.box[:, 2] + 1e-12)).all()
    assert run.state.multipliers.total == pytest.approx(v.sum(), abs=1e-9)
    assert_known(run, v)
    np.testing.assert_allclose(run.state.w, run.data.weights(v), atol=1e-9)


def test_rescaled_ones_are_those_of_another_c():
    run = Run("hinge", bias="penalized")
    for _ in run.moments():
        pass
    v, known = run.multipliers(), run.state.multipliers
    w, total, linear = run.state.w.copy(), known.total, known.linear
    dual, step = run.vectors[run.model.dual], run.vectors[run.model.step]
    for vector in (dual, step):
        vector.write(0, 3.0 * vector.read(0, N_ROWS))
    run.state.rescale(run.model, 3.0)
    np.testing.assert_allclose(run.multipliers(), 3.0 * v, rtol=1e-12)
    assert (known.total, known.linear) == (3.0 * total, 3.0 * linear)
    np.testing.assert_array_equal(run.state.w, 3.0 * w)
    held = known.working_set
    np.testing.assert_allclose(held.targets[:, 1], 3.0 * run.data.cost[held.ids])


@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0, 1e4])
@pytest.mark.parametrize("bias", ["none", "penalized"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
class TestAnotherC:
    def values(self, run, ratio):
        """P of the best point and D of the multipliers, of C times ``ratio``."""
        data, v = run.data, run.multipliers()
        w, b = run.state.best / np.sqrt(data.scale2), run.state.best_b
        losses = plain_losses(run.data.loss, data.t, data.scaled @ w + b, data.cost).sum()
        norm = data.linear(v) - data.dual(v)
        return 0.5 * w @ w + 0.5 * data.rho * b * b + ratio * losses, ratio * data.linear(v) - ratio**2 * norm

    def test_row_gaps_grow_as_the_gap_does(self, loss, bias, ratio):
        run = Run(loss, bias=bias, scaled=True)
        for _ in run.moments():
            pass
        (primal, dual), (wider_primal, wider_dual) = (self.values(run, each) for each in (1.0, ratio))
        before = run.state.gaps.sum()
        run.state.rescale(run.model, ratio)
        wider = wider_primal - max(wider_dual, 0.0) - primal + dual
        assert run.state.gaps.sum() == pytest.approx(ratio * before + max(wider, 0.0), rel=1e-9)
        assert run.state.visited == 0.0
        assert ratio == 1.0 or wider > 0.0

    def test_of_a_far_larger_one_they_are_worse_than_none(self, loss, bias, ratio):
        run = Run(loss, bias=bias, scaled=True)
        for _ in run.moments():
            pass
        primal, dual = self.values(run, ratio)
        assert run.state.is_far(run.model, ratio) == (dual < -primal) == (ratio == 1e4)


@pytest.mark.parametrize("strides", [1, 3])
def test_rows_inside_a_round(strides):
    ranges = StridedRange(0, 10, 40, strides), StridedRange(1, 60, 90, strides)
    ids = np.random.default_rng(0).permutation(120)
    expected = np.isin(ids, [*range(10, 40, strides), *range(60, 90, strides)])
    # Of rounds of whole blocks the ranges follow one another.
    if strides == 1:
        ranges = (StridedRange(0, 10, 60), StridedRange(1, 60, 90))
        expected = np.isin(ids, range(10, 90))
    own = Round(RowSet(((ranges[0],), (ranges[1],))), Position(), ())
    assert own.inside(ids).tolist() == expected.tolist()
    np.testing.assert_array_equal(own.those_inside(ids), ids[expected])
