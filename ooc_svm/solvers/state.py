"""What every solver keeps: the certificate so far, and how it is saved."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ooc_svm.stopping import Stopping


@dataclass(slots=True)
class Certificate:
    """Best values found and what they cost.

    Attributes
    ----------
    primal, dual : float
        Smallest primal value and largest lower bound so far.
    passes : int
        Reads of the data this solver has taken part in.
    stop_reason : str or None
        Why the run ended; None while it goes on.
    history : list of (pass, primal, dual)
    """

    primal: float = np.inf
    dual: float = -np.inf
    passes: int = 0
    stop_reason: str | None = None
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
        self.dual = max(self.dual, dual)
        self.history.append((self.passes, self.primal, self.dual))
        self.stop_reason = stopping.reason(self.primal, self.dual, self.passes)
