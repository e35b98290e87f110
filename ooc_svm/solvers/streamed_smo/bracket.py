"""The multipliers of a nu problem from those of two models around it; what both are, see `by_nu`."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.losses.epsilon_insensitive import EpsilonInsensitive
from ooc_svm.passes.base import Pass, RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.sweep import LONGEST, Residency, add_steps


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


@dataclass(slots=True)
class Member:
    """A model with a C or an epsilon of its own, and the multipliers that it has come to."""

    solver: StreamedSmo
    place: float  # log C of a classification, epsilon of a regression
    size: float = 0.0  # Sum of the magnitudes of the multipliers, whose own sum is 0

    @property
    def in_margins(self) -> bool:
        """Whether it is a classification."""
        return self.solver.model.targets.in_margins

    def record(self) -> None:
        """Close a read; the model goes on, whatever its gap."""
        certificate = self.solver.certificate
        certificate.record(self.solver.stopping)
        certificate.stop_reason = None

    def settle(self) -> Generator[Pass, Any, None]:
        """Take the feasible multipliers near by for good, b staying where it is, and add up their sizes."""
        solver = self.solver
        state, space, multipliers = solver.state, solver.model.space, solver.state.multipliers
        solver.let_go()
        b = float(state.bias(space)[dual_loops.B])
        state.settle(solver.model)
        state.b += b - float(state.bias(space)[dual_loops.B])
        self.size = multipliers.linear
        if self.in_margins:
            return
        resident = np.sort(multipliers.working_set.ids)
        self.size = float(np.abs(multipliers.working_set.dual).sum())
        for each, theta in zip(solver.rounds, multipliers.thetas.tolist(), strict=True):
            residency = multipliers.residency(each.rows, resident, multipliers.back_in(each.rows))
            found = yield RowPass(SizesElsewhere(solver.model, theta, residency), each.rows)
            self.size += float(found[0])

    def move(self, place: float) -> Generator[Pass, Any, None]:
        """Go on with another C or epsilon: with the multipliers as large a share of their bounds as now."""
        solver, state = self.solver, self.solver.state
        model, multipliers, certificate = solver.model, state.multipliers, state.certificate
        if self.in_margins:
            ratio = math.exp(place) / model.C
            solver.model = replace(model, C=math.exp(place))
            state.w = state.w * ratio
            state.gaps *= ratio
            state.rounding.rows[:LONGEST] *= ratio
            multipliers.rescale(model, ratio)
            yield RowPass(Rescale(model, ratio), solver.rows)
        else:
            solver.model = replace(model, loss=EpsilonInsensitive(place))
            multipliers.linear -= (place - self.place) * self.size
        self.place = place
        # Of another problem than before.
        certificate.primal, certificate.dual = math.inf, -math.inf
