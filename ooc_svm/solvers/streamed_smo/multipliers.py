"""Where the multiplier of every row is, through a read that changes them in rounds.

Invariant. At every moment the multiplier of row i is

1. ``working_set.dual[k]``, if the row is the k-th of the working set;
2. else its entry of ``returned_dual``, if it is one of ``returned``: rows that have left the working set and
   that no round has met since;
3. else ``dual[i] + theta step[i]``, the two being row vectors and theta that of the row's round: what a lane
   wants to add is known before theta is.

So no row vector is written but in the row's own round, which brings 2 and 3 up to date. A read may leave out
rounds, whose rows keep theirs. All multipliers are inside their bounds; ``total`` is their sum, ``linear`` is
``sum_i (t_i v_i - l*_i(v_i))``, and the solver's w is ``sum_i v_i x_i``, all three up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.sweep import Residency
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet


@dataclass(slots=True)
class Multipliers:
    """All multipliers of a model."""

    working_set: WorkingSet = field(metadata={"saved_as": "residents"})
    thetas: Float64Array  # shape (rounds,): the step last taken in each round
    total: float = 0.0
    linear: float = 0.0
    # Rows that have left the working set and that no round has met since
    returned: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    returned_dual: Float64Array = field(
        default_factory=lambda: np.empty(0), metadata={"saved_as": "multipliers"}
    )

    def residency(self, of: Round, at_start: Int64Array, back: BoolArray) -> Residency:
        """What a round has to know of its rows.

        ``at_start`` are the rows that were resident at the start of the read; ``back`` says which of the
        returned rows are among its own.
        """
        working_set = self.working_set
        now = anywhere = working_set.rows.inside(of)
        if len(working_set.places) < len(working_set.rows.ids):
            now = of.those_inside(working_set.ids)
        start = of.those_inside(at_start)
        return Residency(now, start, self.returned[back], self.returned_dual[back], anywhere)

    def met(self, back: BoolArray) -> None:
        """A round has written down those of the returned rows."""
        self.returned, self.returned_dual = self.returned[~back], self.returned_dual[~back]

    def leave(self, ids: Int64Array, multipliers: Float64Array) -> None:
        """Some rows have left the working set."""
        self.returned = np.concatenate([self.returned, ids])
        self.returned_dual = np.concatenate([self.returned_dual, multipliers])

    def copy(self) -> Multipliers:
        """The same, to be moved apart from these."""
        thetas, dual = self.thetas.copy(), self.returned_dual.copy()
        return replace(self, working_set=self.working_set.copy(), thetas=thetas, returned_dual=dual)

    def rescale(self, model: DualModel, ratio: float) -> None:
        """Multiply all of them but those in row vectors, which are left to the caller; so goes C."""
        self.working_set.rescale(model, ratio)
        self.returned_dual *= ratio
        self.total *= ratio
        self.linear *= ratio

    def is_sound(self, n_features: int, n_rounds: int) -> bool:
        """Whether the parts fit each other; saved ones may come from anywhere."""
        pending = len(self.returned) == len(self.returned_dual)
        return pending and self.thetas.shape == (n_rounds,) and self.working_set.is_sound(n_features)
