"""Along a path of C: a model goes on from where one with a smaller C is, where that is the better point.

Where v are multipliers of a problem, ``ratio v`` are some of the same problem with C times ``ratio``: a cost
is C times a weight, and the conjugate of a loss times a number is homogeneous in both. With L for D without
its norm,

    D'(ratio v) = ratio L - ratio^2 |w|^2 / 2

At the optimum of the smaller C, with P taken at its own w, that leaves a gap of ``(ratio - 1)^2 |w|^2 / 2``:
next to nothing where C is large and the losses are most of P.

With few columns, where all rows are resident after the first round, models are solved in chains: each begins
where the one before ended, which takes half the steps. Of a text nothing is gained: few multipliers are at a
bound that grows with C, and D' is seldom the better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Protocol

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import RowSet, RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows


class Member(Protocol):
    """A model of a path."""

    model: DualModel
    state: SmoState

    def candidates(self) -> tuple[list[CandidateRows], float]:
        """Those of the last round, and the share of their steps that was taken."""

    def is_done(self) -> bool:
        """Whether the gap is as small as wanted."""

    def solve_after(self, before: Any) -> None:
        """Solve the working set, from where another member ended if that is better."""


# A model waits for another one that is under way, and is likely to go on from there: in the first read for
# one whose C is not smaller by more than this, later for one whose multipliers would put its bound down by no
# more than this share of its gap. (Measured on four data sets, with ten and with six values of C: without it,
# up to five times as many rows are looked at; with larger shares, some take two more reads.)
CLOSE_BY, NEARLY = 16.0, 0.2

# Chains of a run at least: as many threads have work while each model waits for the one before. The first of
# a chain begins from nothing, which costs few steps with a small C alone.
CHAINS = 4


@dataclass(slots=True, eq=False)
class Path:
    """The models of a run that differ in C alone.

    ``n_paths``: of the run.
    """

    members: Sequence[Member]
    n_paths: int = 1
    _origins: dict[str, Member] = field(default_factory=dict)  # By the name of the model that goes on from it

    def __post_init__(self) -> None:
        self.members = sorted(self.members, key=lambda each: each.model.C)
        for before, member in pairwise(self.members):
            member.state.waits = int(1.0 < member.model.C / before.model.C <= CLOSE_BY)

    def solve_chain(self, member: Member) -> None:
        """Solve the working sets of a chain one after another, if the member is the first that has to be."""
        n_chains = -(-CHAINS // self.n_paths)
        length = -(-len(self.members) // n_chains)
        place = self.members.index(member)
        begin = place - place % length
        chain = [each for each in self.members[begin : begin + length] if not each.is_done()]
        if member is chain[0]:
            for before, each in zip((None, *chain), chain, strict=False):
                each.solve_after(before)

    def choose(self) -> None:
        """After a read: which models go on from where which others are, that stay where they are."""
        self._origins.clear()
        for number, member in enumerate(self.members):
            certificate, member.state.waits = member.state.certificate, 0
            if certificate.stop_reason is not None:
                continue
            most = certificate.dual
            least = most - NEARLY * (certificate.upper - most)
            for other in self._before(number):
                ratio = member.model.C / other.model.C
                linear, square = other.state.feasible.tolist()
                value = ratio * linear - 0.5 * ratio * ratio * square
                if value >= least and other.state.certificate.stop_reason is None:
                    member.state.waits = 1
                if value > most and other.model.name not in self._origins:
                    self._origins[member.model.name], most = other, value

    def _before(self, number: int) -> list[Member]:
        """Those of a smaller C, but for those that ended long ago: none is gone on from for ever.

        One that went on from another in the read that was its last can be gone on from after the next one.
        """
        passes = self.members[number].state.certificate.passes
        certificates = [(each, each.state.certificate) for each in self.members[:number]]
        return [each for each, own in certificates if own.stop_reason is None or own.passes >= passes]

    def origin(self, member: Member) -> Member | None:
        """The model that one goes on from; None if it does not."""
        return self._origins.get(member.model.name)


def take_over(model: DualModel, origin: DualModel, rows: RowSet) -> RowPass:
    """The pass that lets the row vectors of a model be those of another one."""
    return RowPass(TakeOver(model, origin, model.C / origin.C), rows)


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Rule on row vectors: multipliers of another model, times the ratio; its best scores are the newest."""

    model: DualModel
    origin: DualModel
    ratio: float
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.origin.dual, self.origin.step, self.origin.best)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.step, self.model.newest)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        vectors = rows.vectors
        vectors[self.model.dual][:] = self.ratio * vectors[self.origin.dual]
        vectors[self.model.step][:] = self.ratio * vectors[self.origin.step]
        vectors[self.model.newest][:] = vectors[self.origin.best]
