"""What every solver keeps: the certificate so far, and how it is saved.

P and D are sums of many products, and each is known up to its rounding only: what rounding can have changed
in the value at most (`ooc_svm.solvers.rounding`). What is certified is the upper end of P against the lower
end of D. With ``P* <= P(w) <= upper`` and ``lower <= P*``,

    P(w) - P* <= upper - lower        (P(w) - P*) / P(w) <= 1 - lower / upper

so both gaps are true whatever rounding has done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, InputError, InternalError, parameter
from ooc_svm.solvers.stopping import CERTIFIED, LANDMARKS, PRUNED, STALLED, Stopping

STALL_PASSES = 100
NOTHING = (
    1e-9  # A value that cannot be told from 0 is one, where rounding is at most this share of the losses
)


@dataclass(slots=True)
class Certificate:
    """Best values found and what they cost."""

    # Primal value with the smallest upper end and lower bound with the largest lower end so far
    primal: float = math.inf
    dual: float = -math.inf
    passes: int = 0  # Reads of the data this solver has taken part in
    stop_reason: str | None = None  # Why the run ended; None while it goes on
    # Rows inside the margin or on the wrong side of it, ``y f(x) < 1``, at the best point
    n_support: int = 0
    # A row for each iteration: passes, upper end and lower end
    history: list[tuple[int, float, float]] = field(default_factory=list)
    # What rounding can have changed in the two values at most
    primal_rounding: float = 0.0
    dual_rounding: float = 0.0
    # Of the first lower bound, the share that counts as none to an optimum of 0, where P may tend to 0 from
    # below; 0 where P has a lower bound of 0
    vanishing: float = field(default=0.0, metadata={"saved": False})
    # What the losses amount to where all scores are 0, at least; 0 as long as the solver does not say
    scale: float = field(default=0.0, metadata={"saved": False})

    @property
    def upper(self) -> float:
        """The largest that P of the best point can be."""
        return self.primal + self.primal_rounding

    @property
    def lower(self) -> float:
        """The smallest that the lower bound can be."""
        return self.dual - self.dual_rounding

    @property
    def gap(self) -> float:
        """``upper - lower``: the best point is at most so far above the optimum."""
        return self.upper - self.lower

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the upper end; of a P that is below 0, of the lower end."""
        size = max(abs(self.upper), abs(self.lower))
        return self.gap / size if size > 0.0 else 0.0

    @property
    def rounding(self) -> float:
        """What rounding adds to the gap."""
        return self.primal_rounding + self.dual_rounding

    @property
    def nothing(self) -> float:
        """A gap that counts as none to an optimum of 0, which is no further from 0 than the first bound."""
        return self.vanishing * abs(self.history[0][2]) if self.history else 0.0

    @property
    def absolute(self) -> bool:
        """Whether P is 0 within its rounding, and no further from D than rounding is: no share of P tells.

        Or the gap is next to nothing, where P may tend to 0 from below and no point below 0 is known: of an
        optimum below 0 there is a share.

        Rounding has to be nothing next to the losses. If not, P is not known well enough to be called 0.
        """
        if 0.0 < self.nothing >= self.gap and self.upper >= 0.0:
            return True
        if self.rounding > NOTHING * self.scale:
            return False
        return abs(self.primal) <= self.primal_rounding and self.primal - self.dual <= self.rounding

    def offer_primal(self, value: float, rounding: float) -> bool:
        """Keep a value of P if its upper end is the smallest so far; returns whether it is kept."""
        if not value + rounding < self.upper:
            return False
        self.primal, self.primal_rounding = float(value), float(rounding)
        return True

    def offer_dual(self, value: float, rounding: float) -> bool:
        """Keep a value of D if its lower end is the largest so far; returns whether it is kept."""
        if math.isnan(value - rounding):
            raise self._overflow()
        if not value - rounding > self.lower:
            return False
        self.dual, self.dual_rounding = float(value), float(rounding)
        return True

    def set_dual(self, value: float, rounding: float) -> None:
        """Take the value of D that belongs to the multipliers of the moment: a resumed run finds it again."""
        self.dual, self.dual_rounding = -math.inf, 0.0
        self.offer_dual(value, rounding)

    def record(self, stopping: Stopping, *, moves: bool = False) -> None:
        """Close an iteration: write the history, decide whether the run ends.

        ``moves``: whether the solver knows of progress that rounding hides.

        InputError if there is no finite value yet, InternalError if the bound is above the value.
        """
        if not (math.isfinite(self.upper) and math.isfinite(self.lower)):
            raise self._overflow()
        if self.lower > self.upper:
            raise self._contradiction()
        self.passes += 1
        self.history.append((self.passes, self.upper, self.lower))
        self.stop_reason = self._reason(stopping)
        if self.stop_reason is None and self.stalled and not moves:
            self.stop_reason = STALLED

    def is_sound(self) -> bool:
        """Whether the parts fit each other; a saved certificate may come from anywhere."""
        rounding = 0.0 <= self.primal_rounding < math.inf and 0.0 <= self.dual_rounding < math.inf
        # A state without a pass is not checked by a read, and there is nothing that it can claim.
        if self.passes == 0 and (self.stop_reason is not None or self.dual != -math.inf):
            return False
        return rounding and len(self.history) == self.passes and all(len(row) == 3 for row in self.history)

    @staticmethod
    def does_not_fit(origin: str | None, what: str) -> DamageError:
        """The error for a state of the checkpoint ``origin`` that cannot be one of these data."""
        return DamageError(f"the checkpoint in {origin} does not fit the data: {what}; start the run again")

    def check_primal(self, found: float, rounding: float, origin: str | None) -> None:
        """Compare a saved P with that of its point, found again; DamageError if it is another one."""
        if not abs(found - self.primal) <= rounding + self.primal_rounding:
            raise self.does_not_fit(origin, f"it says that P is {self.primal!r}, and it is {found!r}")

    def check_dual(self, found: float, rounding: float, origin: str | None) -> None:
        """Compare a saved D with that of its multipliers, found again; DamageError if it is above that."""
        if not self.lower <= found + rounding:
            raise self.does_not_fit(origin, f"it says that D is {self.dual!r}, and it is {found!r}")

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Give the arrays of a release that did not count rounding those of today."""
        for name in ("primal_rounding", "dual_rounding"):
            saved.setdefault(name, np.asarray(0.0))

    def reopen(self, stopping: Stopping) -> None:
        """Decide again whether the run ends: a limit or a gap that ended it before may be another one now."""
        reason = self._reason(stopping)
        if reason is not None or self.stop_reason not in (STALLED, LANDMARKS):
            self.stop_reason = reason

    def amend(self, stopping: Stopping) -> None:
        """Close the last iteration again, after values of it were found again or came late.

        DamageError if there is none: a saved state may come from anywhere.
        """
        if not self.history:
            raise DamageError("the checkpoint has no history of its passes; start the run again")
        if self.lower > self.upper:
            raise self._contradiction()
        self.history[-1] = (self.passes, self.upper, self.lower)
        self.reopen(stopping)

    def prune(self, value: float, rounding: float, stopping: Stopping) -> None:
        """After the end of a run: take the value of P at another point for that of the best one."""
        self.primal, self.primal_rounding = float(value), float(rounding)
        if not math.isfinite(self.upper):
            raise self._overflow()
        if self.lower > self.upper:
            raise self._contradiction()
        if self.absolute or stopping.certifies(self.upper, self.lower):
            self.stop_reason = CERTIFIED
        elif self.stop_reason == CERTIFIED:
            self.stop_reason = PRUNED

    @property
    def stalled(self) -> bool:
        """Whether neither value has moved for long: the limit of double precision."""
        if self.passes <= STALL_PASSES:
            return False
        # A value of the moment may fall for a while, and what is less than rounding is no progress.
        before, since = self.history[:-STALL_PASSES], self.history[-STALL_PASSES:]
        lower = max(row[2] for row in before) + self.rounding
        return before[-1][1] <= self.upper and lower >= max(row[2] for row in since)

    def _reason(self, stopping: Stopping) -> str | None:
        return CERTIFIED if self.absolute else stopping.reason(self.upper, self.lower, self.passes)

    def _contradiction(self) -> InternalError:
        return InternalError(
            f"the lower bound D = {self.dual!r} is above the objective P = {self.primal!r} by more than "
            f"rounding ({self.rounding:.1e}) in pass {self.passes + 1}: one of them is wrong and no model is "
            "written; please report this with the options and, if you can, the data"
        )

    def _overflow(self) -> InputError:
        return InputError(
            f"non-finite objective in pass {self.passes + 1}: the values are too large; scale the columns "
            f"({parameter('scale', 'maxabs')}) or take a smaller C"
        )
