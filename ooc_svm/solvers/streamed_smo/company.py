"""Models that are trained together hold one set of rows in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.admission import Claim, admit
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

# A model's weight in the choice of rows: this times its gap, as a multiple of the one wanted, but no less and
# no more than these. So rows go to the models that are furthest from their end.
WEIGHT, LEAST_WEIGHT, MOST_WEIGHT = 0.1, 0.02, 1.0


class Member(Protocol):
    """A model that takes part."""

    model: DualModel
    stopping: Stopping

    @property
    def certificate(self) -> Certificate: ...

    @property
    def working_set(self) -> WorkingSet: ...

    def claim(self, share: float) -> Claim:
        """The rows that it has, and its candidates."""

    def part_with(self, ids: Int64Array, multipliers: Float64Array) -> None:
        """Some rows are no longer resident for this model."""


@dataclass(slots=True, eq=False)
class Company:
    """The models of a run; all of them meet the same rows in the same rounds."""

    members: list[Member] = field(default_factory=list)

    def admit(self) -> None:
        """Before resident rows are solved: take in what the last round has brought.

        Models that have ended give their rows back.
        """
        running = [member for member in self.members if member.certificate.stop_reason is None]
        ended = [member for member in self.members if member.certificate.stop_reason is not None]
        weights = [_weight(member) for member in running]
        claims = [
            member.claim(weight / sum(weights)) for member, weight in zip(running, weights, strict=True)
        ]
        claims += [_nothing(member.working_set) for member in ended]
        rows = self.members[0].working_set.rows
        for member, leaving in zip((*running, *ended), admit(rows, claims), strict=True):
            member.part_with(*leaving)
        rows.measure(self.members[0].model.space.scale2)


def _weight(member: Member) -> float:
    gap, tol = member.certificate.relative_gap, member.stopping.tol
    # Before the first read there is no gap, which is more than any.
    return max(LEAST_WEIGHT, WEIGHT * gap / tol) if WEIGHT * gap < MOST_WEIGHT * tol else MOST_WEIGHT


def _nothing(working_set: WorkingSet) -> Claim:
    return Claim(working_set, np.full(len(working_set.places), -1.0), (), 0.0, 0.0, 0.0)
