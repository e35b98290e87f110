"""Models that are trained together hold one set of rows in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.admission import SEVERAL, Claim, admit
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

# A model's weight in the choice of rows: this times its gap, as a multiple of the one wanted, but no less and
# no more than these. So rows go to the models that are furthest from their end.
WEIGHT, LEAST_WEIGHT, MOST_WEIGHT = 0.01, 0.02, 1.0

# So many models may each offer as much as one alone may. Of more each offers less: many of their rows are the
# same, but each may bring copies of others. (With 16 models and a room of 2 there are twice as many reads.)
# Where all rows are offered at once, those that are swept as one bring the same copies: with no more than so
# many copies of a row in all, each model may offer all rows.
MOST_OFFERS = 8

# Lowest priority of a candidate, as a share of the lowest worth that was kept last, of one model, of
# several and of more than `SEVERAL`. What several keep follows from the gaps of others, too: 0.5 takes a
# read more of paths of a9a. With 0.2, 20 and 170 classes of texts take a third more visits.
OF_ONE, OF_SEVERAL, OF_MANY = 0.95, 0.2, 0.5


def room_of(n_models: int) -> float:
    """What one of so many models may offer, as a share of what one alone may."""
    return min(1.0, MOST_OFFERS / n_models)


class Member(Protocol):
    """A model that takes part."""

    model: DualModel
    stopping: Stopping
    state: SmoState

    def offer(self) -> tuple[list[CandidateRows], float, float]:
        """Candidates, the share of their steps that was taken, the lowest priority of a row worth keeping."""

    def part_with(self, ids: Int64Array, multipliers: Float64Array) -> None:
        """Some rows are no longer resident for this model."""


@dataclass(slots=True, eq=False)
class Company:
    """The models of a run; all of them meet the same rows in the same rounds."""

    members: list[Member] = field(default_factory=list)
    offers_all: bool = False  # Whether each model may offer all rows at once, few copies of which that makes
    has_met: bool = False  # Whether members have met a round since rows were last taken in

    def room(self, *, at_once: bool) -> float:
        """What a model may offer, as a share of what one alone may.

        ``at_once``: whether all rows are offered in one round.
        """
        return 1.0 if at_once and self.offers_all else room_of(len(self.members))

    def holds_all(self, n_rows: int, n_nonzeros: int) -> bool:
        """Whether each model may have so many resident rows, with so many nonzeros together."""
        rows = _set_of(self.members[0]).rows
        return rows.capacity >= n_rows + n_nonzeros and rows.most_pairs >= n_rows * len(self.members)

    def min_worth(self) -> float:
        """The least that a row has to be worth to a model, to be a candidate."""
        n_models = len(self.members)
        share = OF_ONE if n_models == 1 else OF_SEVERAL if n_models <= SEVERAL else OF_MANY
        return share * _set_of(self.members[0]).rows.cutoff

    def admit(self) -> None:
        """Before resident rows are solved: take in what the last round has brought.

        Models that have ended give their rows back.
        """
        running = [member for member in self.members if member.state.certificate.stop_reason is None]
        ended = [member for member in self.members if member.state.certificate.stop_reason is not None]
        weights = [_weight(member) for member in running]
        most = max(weights, default=1.0)
        claims = [_claim(member, weight / most) for member, weight in zip(running, weights, strict=True)]
        for member in ended:
            member.offer()
            member.state.settle(member.model)
        claims += [_nothing(_set_of(member)) for member in ended]
        rows = _set_of(self.members[0]).rows
        if self.has_met and not any(claim.candidates for claim in claims):
            # None came up to it: what is held may be worth less by now.
            rows.cutoff = 0.0
        self.has_met = False
        left = admit(rows, claims)
        for member, leaving in zip((*running, *ended), left, strict=True):
            member.part_with(*leaving)
        rows.measure(self.members[0].model.space.scale2)


def _set_of(member: Member) -> WorkingSet:
    return member.state.multipliers.working_set


def _claim(member: Member, weight: float) -> Claim:
    working_set = _set_of(member)
    priority = working_set.priorities(member.model, member.state.unit)
    return Claim(working_set, priority, *member.offer(), weight)


def _weight(member: Member) -> float:
    gap, tol = member.state.certificate.relative_gap, member.stopping.tol
    # Before the first read there is no gap, which is more than any.
    return max(LEAST_WEIGHT, WEIGHT * gap / tol) if WEIGHT * gap < MOST_WEIGHT * tol else MOST_WEIGHT


def _nothing(working_set: WorkingSet) -> Claim:
    return Claim(working_set, np.full(len(working_set.places), -1.0), (), 0.0, 0.0, 0.0)
