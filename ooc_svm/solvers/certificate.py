"""What every solver keeps: the certificate so far, and how it is saved."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ooc_svm.errors import InputError
from ooc_svm.solvers.stopping import STALLED, Stopping

STALL_PASSES = 100


@dataclass(slots=True)
class Certificate:
    """Best values found and what they cost."""

    # Smallest primal value and largest lower bound so far
    primal: float = math.inf
    dual: float = -math.inf
    passes: int = 0  # Reads of the data this solver has taken part in
    stop_reason: str | None = None  # Why the run ended; None while it goes on
    # Rows inside the margin or on the wrong side of it, ``y f(x) < 1``, at the best point
    n_support: int = 0
    history: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """``primal - dual``, never below 0 beyond rounding."""
        return self.primal - self.dual

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the primal value."""
        return self.gap / self.primal if self.primal > 0.0 else 0.0

    def record(self, dual: float, stopping: Stopping) -> None:
        """Close an iteration: keep the best bound, write the history, decide whether the run ends."""
        self.passes += 1
        if not (math.isfinite(self.primal) and math.isfinite(dual)):
            raise InputError(
                f"non-finite objective in pass {self.passes}: the values are too large; scale the columns "
                "(--scale maxabs) or take a smaller C"
            )
        self.dual = max(self.dual, dual)
        self.history.append((self.passes, self.primal, self.dual))
        self.stop_reason = stopping.reason(self.primal, self.dual, self.passes)
        if self.stop_reason is None and self.stalled:
            self.stop_reason = STALLED

    def is_sound(self) -> bool:
        """Whether the parts fit each other; a saved certificate may come from anywhere."""
        return len(self.history) == self.passes and all(len(row) == 3 for row in self.history)

    def reopen(self, stopping: Stopping) -> None:
        """Decide again whether the run ends: a limit or a gap that ended it before may be another one now."""
        reason = stopping.reason(self.primal, self.dual, self.passes)
        if reason is not None or self.stop_reason != STALLED:
            self.stop_reason = reason

    @property
    def stalled(self) -> bool:
        """Whether neither value has moved for long: the limit of double precision."""
        if self.passes <= STALL_PASSES:
            return False
        _, primal, dual = self.history[-1 - STALL_PASSES]
        return primal <= self.primal and dual >= self.dual
