"""Runs of streamed SMO that can be looked at between any two of their requests."""

from __future__ import annotations

import numpy as np
from helpers.dual_data import DualData, dual_data, dual_model, read_all
from helpers.problems_data import MatrixSource, cut_rows

from ooc_svm.engine.serial import SerialEngine
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.effort import effort_for
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.rounds import cut_rounds
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.state import SmoState

N_ROWS = 700


def multipliers_of(solver, dual, step):
    """All multipliers of a solver, by the three rules of `Multipliers`, the last one first.

    ``dual`` and ``step`` are its row vectors.
    """
    state, v = solver.state.multipliers, dual.copy()
    for each, theta in zip(solver.rounds, state.thetas, strict=True):
        for part in (part for segment in each.rows.segments for part in segment):
            own = slice(part.start, part.stop, part.step)
            v[own] += theta * step[own]
    v[state.returned] = state.returned_dual
    v[state.working_set.ids] = state.working_set.dual
    return v


class Run:
    """A run that can be looked at between any two of its requests."""

    def __init__(
        self, loss, *, bias="none", n_blocks=1, lanes=1, share=0.1, scaled=False, data=None, passes=4
    ):
        rho = 1.0 if bias == "penalized" else 0.0
        self.data: DualData = data or dual_data(loss, n_rows=N_ROWS, C=2.0, rho=rho, scaled=scaled)
        self.model = dual_model(self.data, free_bias=bias == "free")
        source = MatrixSource(self.data.matrix, self.data.t, spans=cut_rows(self.data.matrix, n_blocks))
        nnz = self.data.matrix.nnz
        effort = effort_for(nnz, share, lanes)
        self.rounds = cut_rounds(source.blocks, effort.rounds, lanes)
        resident = ResidentRows(int(share * nnz), np.empty(0), False)
        self.state = SmoState.fresh(source.n_features, len(self.rounds), resident)
        stopping = Stopping(1e-9, max_passes=passes)
        self.solver = StreamedSmo(self.model, stopping, self.state, self.rounds, nnz, effort)
        self.vectors = RowVectors(len(self.data.t), 1 << 30)
        self.vectors.create("codes", np.uint16).write(0, (self.data.t > 0).astype(np.uint16))
        self.vectors.create("target", np.float64).write(0, self.data.t)
        self.vectors.create("weight", np.float64).write(0, self.data.cost)
        for name, dtype in self.solver.vectors.items():
            self.vectors.create(name, dtype)
        self.engine = SerialEngine(source, self.vectors)

    def multipliers(self):
        """All multipliers, as they are between two requests."""
        vectors = (read_all(self.vectors, name) for name in (self.model.dual, self.model.step))
        return multipliers_of(self.solver, *vectors)

    def linear(self, v):
        """D without its norm, targets being counted from the center."""
        return self.data.linear(v) - self.state.center * v.sum()

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
