"""Begin a run of streamed SMO where another one ended: at the weights of a model, or with saved multipliers.

From a saved state every multiplier is taken over, times the ratio of the two values of C: that is feasible,
and keeps w as their sum. Steps that were still to be taken, by the theta of their round, are taken: this run
may cut its rounds in another way. A model has no multipliers; its weights are the first point that P is taken
at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.source import Span
from ooc_svm.solvers.base import WarmStarting, write_entries
from ooc_svm.solvers.streamed_smo.rounds import Round, cut_rounds
from ooc_svm.solvers.streamed_smo.state import SmoState


class SmoWarmStarting(WarmStarting):
    """The part of the solver package that warm starts need."""

    def begin_at(self, solver: Any, w: Float64Array, b: float) -> None:
        """Let the first read score the rows with these weights."""
        solver.state.start, solver.state.start_b = w.copy(), b

    def settle(self, solver: Any, vectors: Any) -> str:
        multipliers, name = solver.state.multipliers, str(solver.model.dual)
        dual, step = vectors[name], vectors[solver.model.step]
        for each, theta in zip(solver.rounds, multipliers.thetas.tolist(), strict=True):
            _take_steps(each, theta, dual, step)
        write_entries(dual, multipliers.returned, multipliers.returned_dual)
        write_entries(dual, multipliers.working_set.ids, multipliers.working_set.dual)
        return name

    def take_over(
        self,
        solver: Any,
        ratio: float,
        cut: Sequence[int],
        blocks: Sequence[Span],
        vectors: Any,
        fill: Callable[[Any], None],
    ) -> bool:
        if len(cut) != 2 or not all(type(number) is int and number > 0 for number in cut):
            return False
        rounds, resident = cut_rounds(blocks, *cut), solver.state.of_models[0].multipliers.working_set.rows
        n_rounds = len(solver.state.of_models[0].gaps)
        # The first round makes the rows fit.
        capacity, resident.capacity = resident.capacity, 1 << 62
        fill(solver.state)
        taken = [_cut_again(state, n_rounds) for state in solver.state.of_models]
        if any(thetas.shape != (len(rounds),) for thetas in taken) or not solver.is_sound():
            return False
        resident.capacity, resident.cutoff = capacity, 0.0
        for own, thetas in zip(solver.restart(), taken, strict=True):
            if own is solver and own.state.is_far(own.model, ratio):
                self._keep_rows(own, blocks, vectors)
                continue
            own.state.rescale(own.model, ratio)
            dual, step = vectors[own.model.dual], vectors[own.model.step]
            for each, theta in zip(rounds, thetas.tolist(), strict=True):
                _take_steps(each, theta, dual, step)
            for span in blocks:
                dual.write(span.start, dual.read(span.start, span.stop) * ratio)
                step.write(span.start, np.zeros(span.stop - span.start))
        return True

    def _keep_rows(self, solver: Any, blocks: Sequence[Span], vectors: Any) -> None:
        """Take over the rows in memory alone."""
        state = solver.state
        solver.state = state.fresh(len(state.best), len(state.gaps), state.multipliers.working_set.rows)
        for name in solver.model.row_vectors:
            for span in blocks:
                vectors[name].write(span.start, np.zeros(span.stop - span.start))


def _cut_again(state: SmoState, n_rounds: int) -> Float64Array:
    """Let a state go on with rounds that are cut in another way; the thetas of those that there were."""
    thetas = state.multipliers.thetas
    state.multipliers.thetas = np.zeros(n_rounds)
    state.gaps = np.full(n_rounds, float(state.gaps.sum()) / n_rounds)
    state.free = np.full(n_rounds, -1.0)
    return thetas


def _take_steps(of: Round, theta: float, dual: Any, step: Any) -> None:
    """Take the share of the steps of a round that the round decided on."""
    for part in (part for segment in of.rows.segments for part in segment):
        multipliers = dual.read(part.start, part.stop).copy()
        multipliers[:: part.step] += theta * step.read(part.start, part.stop)[:: part.step]
        dual.write(part.start, multipliers)
