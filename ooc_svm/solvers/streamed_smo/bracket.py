"""The multipliers of a nu problem from those of two models around it; what both are, see `by_nu`."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.losses.epsilon_insensitive import EpsilonInsensitive
from ooc_svm.passes.base import Overlap, Pass, RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.saved_state import find_again
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import LONGEST, Residency, add_steps, places

SAME = 1e-9  # Relative difference of two bounds of rounding that makes none


@dataclass(frozen=True, slots=True)
class SizesElsewhere:
    """Rule on row vectors: the sum of the magnitudes of the multipliers of the rows that are not resident."""

    model: DualModel
    theta: float  # The share of the round's last steps that was taken
    residency: Residency
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.step)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        dual = rows.vectors[self.model.dual].copy()
        add_steps(dual, rows.vectors[self.model.step], self.theta, self.residency, rows)
        sums[0] += np.abs(dual[self.residency.marks(rows) == 0]).sum()


@dataclass(frozen=True, slots=True)
class Rescale:
    """Rule on row vectors: multiply multipliers and the steps still to be taken."""

    model: DualModel
    ratio: float
    reads: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.step)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        for name in self.writes:
            rows.vectors[name][:] *= self.ratio


@dataclass(frozen=True, slots=True)
class AddMultipliers:
    """Rule on row vectors: write the multipliers of a model, times a factor, or add them."""

    model: DualModel
    theta: float  # See `SizesElsewhere`
    residency: Residency
    ids: Int64Array  # Of the resident rows
    dual: Float64Array  # Their multipliers
    factor: float
    to: str
    added: bool
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.step)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.to,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        dual = rows.vectors[self.model.dual].copy()
        add_steps(dual, rows.vectors[self.model.step], self.theta, self.residency, rows)
        here, place = places(self.ids, rows)
        dual[place] = self.dual[here]
        to = rows.vectors[self.to]
        to[:] = to + self.factor * dual if self.added else self.factor * dual


@dataclass(slots=True)
class MemberState:
    """What is known of a model that takes part in a bracket."""

    smo: SmoState = field(metadata={"saved_as": ""})
    number: int  # Among those that the first bracket had
    place: float = 0.0  # log C of a classification, epsilon of a regression
    size: float = 0.0  # Sum of the magnitudes of the multipliers, whose own sum is 0
    tol: float = 0.0  # Relative gap wanted of it


@dataclass(slots=True)
class Member:
    """A model with a C or an epsilon of its own."""

    solver: StreamedSmo
    state: MemberState

    @property
    def place(self) -> float:
        """See `MemberState`."""
        return self.state.place

    @property
    def size(self) -> float:
        """See `MemberState`."""
        return self.state.size

    @property
    def in_margins(self) -> bool:
        """Whether it is a classification."""
        return self.solver.model.targets.in_margins

    @property
    def is_lost(self) -> bool:
        """Whether D of a classification is not above 0: its bound is that of no multipliers, not of these."""
        return self.in_margins and not self.solver.certificate.lower > 0.0

    def take(self, state: MemberState) -> None:
        """Go on from a state that is another one's so far."""
        self.state, self.solver.state = state, state.smo
        self._be_at(state.place)
        self.want(state.tol)

    def want(self, tol: float) -> None:
        """Let this be the relative gap wanted."""
        self.state.tol = tol
        self.solver.stopping = replace(self.solver.stopping, tol=tol)

    def find_again(self, origin: str) -> Generator[Overlap | Pass, Any, None]:
        """Check a saved state, see `ooc_svm.solvers.streamed_smo.saved_state`; one that is right stays."""
        solver, state, certificate = self.solver, self.solver.state, self.solver.certificate
        rows, error = state.rounding.rows, certificate.primal_rounding
        yield from find_again(solver.model, state, solver.rounds, solver.rows, origin)
        # Saved ones were multiplied when C changed, which rounds in another way than a sum.
        if np.allclose(state.rounding.rows, rows, rtol=SAME, atol=0.0):
            state.rounding.rows = rows
            if certificate.primal_rounding <= (1.0 + SAME) * error:
                certificate.primal_rounding = error

    def record(self) -> None:
        """Close a read; the model goes on, whatever its gap."""
        certificate = self.solver.certificate
        certificate.record(self.solver.stopping)
        certificate.stop_reason = None

    def settle(self) -> Generator[Pass, Any, None]:
        """Take the feasible multipliers near by for good, b staying where it is, and add up their sizes.

        Where D of a classification is not above 0 there, the steps to them would undo what has been gained.
        """
        solver = self.solver
        state, space, multipliers = solver.state, solver.model.space, solver.state.multipliers
        solver.let_go()
        if not self.is_lost:
            b = float(state.bias(space)[dual_loops.B])
            state.settle(solver.model)
            state.b += b - float(state.bias(space)[dual_loops.B])
        self.state.size = max(multipliers.linear, 0.0)  # it is a sum of steps, with their rounding
        if self.in_margins:
            return
        self.state.size = float(np.abs(multipliers.working_set.dual).sum())
        for each, theta, residency in self._rounds():
            found = yield RowPass(SizesElsewhere(solver.model, theta, residency), each.rows)
            self.state.size += float(found[0])

    def add_multipliers(self, to: str, factor: float, *, added: bool) -> Generator[Pass, Any, None]:
        """Write the multipliers, times a factor, to a row vector, or add them."""
        working_set = self.solver.state.multipliers.working_set
        for each, theta, residency in self._rounds():
            here = each.inside(working_set.ids)
            own = working_set.ids[here], working_set.dual[here]
            rule = AddMultipliers(self.solver.model, theta, residency, *own, factor, to, added)
            yield RowPass(rule, each.rows)

    def _rounds(self) -> Iterator[tuple[Round, float, Residency]]:
        """Each round between two reads, its theta, and where their multipliers are."""
        multipliers = self.solver.state.multipliers
        resident = multipliers.working_set.ids
        for each, theta in zip(self.solver.rounds, multipliers.thetas.tolist(), strict=True):
            back = each.inside(multipliers.returned)
            yield each, theta, multipliers.residency(each, resident, back)

    def move(self, place: float) -> Generator[Pass, Any, None]:
        """Go on with another C or epsilon: with the multipliers as large a share of their bounds as now."""
        solver, state = self.solver, self.solver.state
        model, multipliers, certificate = solver.model, state.multipliers, state.certificate
        if place == self.place:
            return
        before = self.place
        self._be_at(place)
        if self.in_margins:
            ratio = solver.model.C / model.C
            state.w = state.w * ratio
            state.gaps *= ratio
            state.rounding.rows[:LONGEST] *= ratio
            multipliers.rescale(model, ratio)
            yield RowPass(Rescale(model, ratio), solver.rows)
        else:
            multipliers.linear -= (place - before) * self.size
        # Of another problem than before.
        certificate.primal, certificate.dual = math.inf, -math.inf

    def _be_at(self, place: float) -> None:
        solver = self.solver
        changed = {"C": math.exp(place)} if self.in_margins else {"loss": EpsilonInsensitive(place)}
        solver.model = replace(solver.model, **changed)
        self.state.place = place
