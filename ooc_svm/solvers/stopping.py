"""When a run ends, and why."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

CERTIFIED = "certified"
MAX_PASSES = "max-passes"
TIME_LIMIT = "time-limit"
SIGNAL = "signal"
PRUNED = "pruning"  # The gap was certified, and with the small weights at 0 it is larger
LANDMARKS = "landmarks"  # The gap of the model of landmarks is known, and no polishing was asked for
STALLED = "no-progress"  # Neither P nor D has moved by more than its rounding for long

_BY_WORTH = (SIGNAL, TIME_LIMIT, MAX_PASSES, STALLED, LANDMARKS, PRUNED, CERTIFIED)


def reason_of_all(reasons: Iterable[str]) -> str:
    """Why several models ended, in one word: "certified" if all are certified, else why one is not.

    A limit that a user has set comes before what a larger one would not change. Reports of landmarks have
    several reasons in a row.
    """
    found = {each for reason in reasons for each in reason.split(", ")}
    return next((reason for reason in _BY_WORTH if reason in found), ", ".join(sorted(found)))


@dataclass(frozen=True, slots=True)
class Stopping:
    """Limits of a run."""

    # Relative certified gap at which a model is done: ``(upper - lower) / upper``, or by ``-lower`` where
    # that is larger
    tol: float = 1e-3
    max_passes: int | None = None  # Largest number of passes over the data
    deadline: float | None = None  # Time on the monotonic clock after which no pass is begun

    def certifies(self, upper: float, lower: float) -> bool:
        """Whether the gap between the upper end of P and the lower end of D is small enough."""
        return upper - lower <= self.tol * max(abs(upper), abs(lower)) < math.inf

    def reason(self, upper: float, lower: float, passes: int) -> str | None:
        """Why a run at this point ends, or None if it goes on."""
        if self.certifies(upper, lower):
            return CERTIFIED
        if self.max_passes is not None and passes >= self.max_passes:
            return MAX_PASSES
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return TIME_LIMIT
        return None
