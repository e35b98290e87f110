"""Where the multipliers are at any moment of a run: feasible, with the sums that the solver keeps of them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.dual_data import DualData, dual_data, dual_model, read_all
from helpers.losses import LOSSES
from helpers.problems_data import MatrixSource, cut_rows

from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import Overlap, RowSet, StridedRange
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.effort import effort_for
from ooc_svm.solvers.streamed_smo.multipliers import inside
from ooc_svm.solvers.streamed_smo.rounds import cut_rounds
from ooc_svm.solvers.streamed_smo.solver import SmoState, StreamedSmo
from ooc_svm.solvers.streamed_smo.sweep import SweepPass
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

N_ROWS = 700


class Run:
    """A run that can be looked at between any two of its requests."""

    def __init__(self, loss, *, bias="none", n_blocks=1, lanes=1, share=0.1, scaled=False):
        rho = 1.0 if bias == "penalized" else 0.0
        self.data: DualData = dual_data(loss, n_rows=N_ROWS, C=2.0, rho=rho, scaled=scaled)
        self.model = dual_model(self.data, free_bias=bias == "free")
        source = MatrixSource(self.data.matrix, self.data.t, spans=cut_rows(self.data.matrix, n_blocks))
        nnz = self.data.matrix.nnz
        effort = effort_for(nnz, share, lanes)
        self.rounds = cut_rounds(source.blocks, effort.rounds, lanes)
        working_set = WorkingSet(int(share * nnz), np.empty(0), False)
        self.state = SmoState.fresh(source.n_features, len(self.rounds), working_set)
        stopping = Stopping(1e-9, max_passes=4)
        self.solver = StreamedSmo(self.model, stopping, self.state, self.rounds, nnz, effort)
        self.vectors = RowVectors(N_ROWS, 1 << 30)
        self.vectors.create("codes", np.uint16).write(0, (self.data.t > 0).astype(np.uint16))
        self.vectors.create("target", np.float64).write(0, self.data.t)
        self.vectors.create("weight", np.float64).write(0, self.data.cost)
        for name, dtype in self.solver.vectors.items():
            self.vectors.create(name, dtype)
        self.engine = SerialEngine(source, self.vectors)

    def multipliers(self):
        """All multipliers, by the three rules of `Multipliers`, the last one first."""
        state = self.state.multipliers
        v, step = read_all(self.vectors, self.model.dual), read_all(self.vectors, self.model.step)
        for each, theta in zip(self.rounds, state.thetas, strict=True):
            for part in (part for segment in each.rows.segments for part in segment):
                own = slice(part.start, part.stop, part.step)
                v[own] += theta * step[own]
        v[state.returned] = state.multipliers
        v[state.working_set.ids] = state.working_set.dual
        return v

    def moments(self):
        """Go on, and yield whenever what the solver knows is up to date: before each of its requests."""
        steps = self.solver.steps()
        request = next(steps)
        while True:
            yield request
            [answer] = self.engine.serve([request])
            try:
                request = steps.send(answer)
            except StopIteration:
                return


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
        assert known.linear == pytest.approx(data.linear(v), rel=1e-9, abs=1e-8)
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
            others = others[~inside(others, sweep.rows)]
    v = run.multipliers()
    assert ((v >= run.data.box[:, 1] - 1e-12) & (v <= run.data.box[:, 2] + 1e-12)).all()
    assert run.state.multipliers.total == pytest.approx(v.sum(), abs=1e-9)
    assert run.state.multipliers.linear == pytest.approx(run.data.linear(v), abs=1e-8)
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
    run.solver.rescale(3.0)
    np.testing.assert_allclose(run.multipliers(), 3.0 * v, rtol=1e-12)
    assert (known.total, known.linear) == (3.0 * total, 3.0 * linear)
    np.testing.assert_array_equal(run.state.w, 3.0 * w)
    held = known.working_set
    np.testing.assert_allclose(held.targets[:, 1], 3.0 * run.data.cost[held.ids])


@pytest.mark.parametrize("strides", [1, 3])
def test_rows_inside_a_round(strides):
    ranges = StridedRange(0, 10, 40, strides), StridedRange(1, 60, 90, strides)
    ids = np.random.default_rng(0).permutation(120)
    expected = np.isin(ids, [*range(10, 40, strides), *range(60, 90, strides)])
    # Of rounds of whole blocks the ranges follow one another.
    if strides == 1:
        ranges = (StridedRange(0, 10, 60), StridedRange(1, 60, 90))
        expected = np.isin(ids, range(10, 90))
    assert inside(ids, RowSet(((ranges[0],), (ranges[1],)))).tolist() == expected.tolist()
