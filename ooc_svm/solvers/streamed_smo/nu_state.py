"""What the solver of a nu problem knows between two reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.streamed_smo.bracket import SAME, Member, MemberState
from ooc_svm.solvers.streamed_smo.nu_check import Again
from ooc_svm.solvers.streamed_smo.nu_search import NuSearch
from ooc_svm.solvers.streamed_smo.state import SmoState

# How far log C may go from 0: further out P and D are no numbers of 64 bits.
FARTHEST = 300.0


@dataclass(slots=True)
class NuState:
    """All but the row vectors."""

    best: Float64Array  # shape (dimension,): the best point, with b and the margin or the tube
    # The two models that close in on the place; before the first read there are more
    first: MemberState
    second: MemberState
    search: NuSearch
    # shape (2,): where the two go before the next read
    ahead: Float64Array = field(default_factory=lambda: np.zeros(2))
    scores: float = 0.0  # What the scores of the best point are off by at most, see `Mix.point`
    certificate: Certificate = field(default_factory=Certificate)
    start: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (n_features,) or (0,)
    start_b: float = 0.0  # Weights that the first read scores the rows with, and their bias; none if empty

    @property
    def of_models(self) -> list[SmoState]:
        """The states of the models that multipliers are saved of."""
        return [self.first.smo, self.second.smo]

    @property
    def placed(self) -> bool:
        """Whether the two are known."""
        return self.first.place < self.second.place

    @classmethod
    def fresh(cls, dimension: int, members: Sequence[Member]) -> NuState:
        """The state before the first read."""
        first, second = (replace(member.state) for member in members[:2])
        # There is no tube narrower than none.
        search = NuSearch(-FARTHEST, FARTHEST) if members[0].in_margins else NuSearch(0.0)
        return cls(np.zeros(dimension), first, second, search)

    def is_sound(self, members: Sequence[Member], dimension: int) -> bool:
        """Whether the parts fit each other, the models of the first bracket and the data."""
        solver, two = members[0].solver, (self.first, self.second)
        if not (
            all(each.smo.is_sound(solver.model.space.n_features, len(solver.rounds)) for each in two)
            and self.certificate.is_sound()
            and self.best.shape == (dimension,)
            and len(self.start) in (0, solver.model.space.n_features)
        ):
            return False
        largest = float(np.finfo(float).max)
        farthest = FARTHEST if members[0].in_margins else largest
        return (self.certificate.passes == 0 and not self.placed) or (
            all(0 <= each.number < len(members) for each in two)
            and all(abs(each.place) <= farthest and 0.0 <= each.size <= largest for each in two)
            and all(0.0 < each.tol < 1.0 for each in two)
            and two[0].number != two[1].number
            and self.placed
            and self.ahead.shape == (2,)
            and bool((np.abs(self.ahead) <= farthest).all())
            and self.scores >= 0.0
        )

    def believe(self, again: Again, trivial: float, origin: str) -> None:
        """Let P and D be what was found again, where they are not; DamageError if P cannot be.

        ``trivial``: a bound that needs no multipliers. ``origin``: the checkpoint.
        """
        certificate = self.certificate
        certificate.check_primal(again.primal, again.primal_rounding, origin)
        if not again.primal_rounding <= (1.0 + SAME) * certificate.primal_rounding:
            certificate.primal_rounding = again.primal_rounding
        bound, rounding = trivial, 0.0
        if again.feasible and again.dual - again.dual_rounding > trivial:
            bound, rounding = again.dual, again.dual_rounding
        if not certificate.lower <= bound + rounding:
            certificate.dual, certificate.dual_rounding = bound, rounding
