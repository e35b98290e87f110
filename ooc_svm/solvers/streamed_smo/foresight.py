"""Whether a read is going to be the last, as far as its first rounds tell.

A read scores the rows with the weights w that it begins with, to know P there. With the multipliers v that it
begins with as well, the row gaps sum up to ``P(w) - D(v)``: where those of the rows that have been met are so
small that all will be small enough, steps gain nothing any more, and the rest of the read scores the rows
alone. If that comes out otherwise, the next read makes all its steps.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.losses.row_loops import row_gaps
from ooc_svm.passes.base import Overlap, RowSet, RowSlice, padded
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import places

# A gap that is foreseen is to be at most this share of the one wanted.
SURE = 0.5

# Rounds tell of the others if they have this share of the rows, and saw this share of the last row gaps.
TELLING = 0.2


@dataclass(frozen=True, slots=True)
class RowGaps:
    """Rule on row vectors: the row gaps at the newest scores, of rows that were not held."""

    model: DualModel
    b: float
    held: Int64Array  # Row numbers, ascending
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.newest, *self.model.targets.reads)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        # Compiled once, whether the rows lie side by side or not.
        names = self.model.dual, self.model.newest
        dual, newest = (np.ascontiguousarray(rows.vectors[name]) for name in names)
        is_held = np.zeros(len(dual), np.bool_)
        first, last = np.searchsorted(self.held, [rows.start, rows.stop])
        is_held[places(self.held[first:last], rows)[1]] = True
        targets = self.model.targets_and_costs(rows)
        sums[0] += row_gaps(self.model.loss, dual, newest, self.b, targets, is_held)


@dataclass(slots=True)
class Foresight:
    """What is known of a model at the start of a read."""

    model: DualModel
    state: SmoState
    stopping: Stopping
    rounds: Sequence[Round]
    before: Float64Array  # shape (rounds,): the row gaps that each round saw in the read before
    b: float  # That the scores are without
    apart: float  # What a penalized bias that is not the sum of the multipliers adds to P - D
    held: Int64Array  # Row numbers of the resident rows
    _asked: int = field(default=0, init=False)  # Rows that had been met when their gaps were last summed up
    _here: float = field(default=0.0, init=False)  # The most that the gaps of the resident rows have been

    @classmethod
    def at_start(
        cls, model: DualModel, state: SmoState, stopping: Stopping, rounds: Sequence[Round]
    ) -> Foresight | None:
        """At the start of a read; None where its rounds are to make their steps in any case.

        They are in the first read, after a read that was not the last against expectation, with a free bias,
        whose multipliers have to be brought to a sum of 0, and where rows are scored with other weights.
        """
        if model.free_bias or model.unbounded:
            return None
        # All is compiled where no read needs it.
        none = np.empty(0)
        row_gaps(model.loss, none, none, 0.0, np.empty((0, 2)), np.empty(0, np.bool_))
        if state.certificate.passes == 0 or state.rests:
            return None
        space, held = model.space, state.multipliers.working_set.ids
        b = state.point(space)[1]
        apart = b - state.multipliers.total if space.penalized_bias else 0.0
        return cls(model, state, stopping, rounds, state.gaps.copy(), b, 0.5 * apart * apart, held)

    def ends(self, r: int, gap_here: float) -> Generator[Overlap, Any, bool]:
        """Whether the rounds after r need no steps, as far as is known.

        ``gap_here``: the row gaps of the resident rows, as the last solve saw them; those of the read's start
            are more.
        """
        self._here = max(self._here, gap_here)
        share, met = self._share(r), sum(each.n_rows for each in self.rounds[: r + 1])
        if r + 1 == len(self.rounds) or share < TELLING or met < 2 * self._asked:
            return False
        # What the lanes have seen is less, since w has moved meanwhile, and is known already.
        elsewhere = float(self.state.gaps[: r + 1].sum()) / share
        if not self._certifies(elsewhere + self._here + self.apart):
            return False
        # Row vectors still have these rows' multipliers of the read's start, as well as their scores.
        self._asked, of_read = met, self.rounds[: r + 1]
        held = np.sort(np.concatenate([each.those_inside(self.held) for each in of_read]))
        rows = RowSet(padded([segment for each in of_read for segment in each.rows.segments]))
        gaps = RowPass(RowGaps(self.model, self.b, held), rows)
        answers = yield Overlap((gaps,), apart=self.state.is_large)
        elsewhere = float(answers[0][0]) / share
        self.state.rests = int(self._certifies(elsewhere + self._here + self.apart))
        return bool(self.state.rests)

    def _certifies(self, gap: float) -> bool:
        certificate = self.state.certificate
        lower, gap = certificate.lower, gap / SURE + certificate.primal_rounding
        return gap < math.inf and self.stopping.certifies(lower + gap, lower)

    def _share(self, r: int) -> float:
        """The share of all row gaps that the rounds up to r have: the least there is reason for."""
        sizes = [each.n_rows for each in self.rounds]
        of_rows, total = sum(sizes[: r + 1]) / sum(sizes), float(self.before.sum())
        return min(of_rows, float(self.before[: r + 1].sum()) / total) if total > 0.0 else of_rows
