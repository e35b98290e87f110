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
from ooc_svm.solvers.base import WarmStarting
from ooc_svm.solvers.streamed_smo.rounds import Round, cut_rounds


class SmoWarmStarting(WarmStarting):
    """The part of the solver package that warm starts need."""

    def begin_at(self, solver: Any, w: Float64Array, b: float) -> None:
        """Let the first read score the rows with these weights."""
        solver.state.start, solver.state.start_b = w.copy(), b

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
        rounds = cut_rounds(blocks, *cut)
        state, multipliers = solver.state, solver.state.multipliers
        resident = multipliers.working_set.rows
        # The first round makes the rows fit.
        capacity, resident.capacity = resident.capacity, 1 << 62
        fill(state)
        thetas, gap, n_rounds = multipliers.thetas, float(state.gaps.sum()), len(solver.rounds)
        multipliers.thetas, state.gaps = np.zeros(n_rounds), np.full(n_rounds, gap / n_rounds)
        state.free = np.full(n_rounds, -1.0)
        if thetas.shape != (len(rounds),) or not solver.is_sound():
            return False
        resident.capacity, resident.cutoff = capacity, 0.0
        state.rescale(solver.model, ratio)
        dual, step = vectors[solver.model.dual], vectors[solver.model.step]
        for each, theta in zip(rounds, thetas.tolist(), strict=True):
            _take_steps(each, theta, dual, step)
        for span in blocks:
            dual.write(span.start, dual.read(span.start, span.stop) * ratio)
            step.write(span.start, np.zeros(span.stop - span.start))
        return True


def _take_steps(of: Round, theta: float, dual: Any, step: Any) -> None:
    """Take the share of the steps of a round that the round decided on."""
    for part in (part for segment in of.rows.segments for part in segment):
        multipliers = dual.read(part.start, part.stop).copy()
        multipliers[:: part.step] += theta * step.read(part.start, part.stop)[:: part.step]
        dual.write(part.start, multipliers)
