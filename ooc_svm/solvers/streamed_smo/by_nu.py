"""The nu problems by the dual solver: two models around the C or the epsilon that nu stands for.

The decision of nu-SVC is that of C-SVC with a free bias at some C, up to its scale, and that of nu-SVR is
that of epsilon-SVR at some epsilon. With W the sum of the rows' weights omega_i, the dual problems are

    nu-SVC:  max -1/2 |w|^2               0 <= y_i v_i <= C omega_i,  sum v_i = 0,  sum |v_i| >= nu C W
    nu-SVR:  max sum t_i v_i - 1/2 |w|^2  |v_i| <= C omega_i,         sum v_i = 0,  sum |v_i| <= nu C W

with ``w = sum_i v_i x_i``, C being 1 / W for nu-SVC. The multipliers of C-SVC at C', times C / C', and those
of epsilon-SVR as they are lack only the last condition. Their size ``sum |v_i|``, as a share of C W, falls as
C' or epsilon grows. So a mix of a model below the wanted place and one above it is feasible, and D of the mix
is short of the optimum in second order of their distance only; scaling one model's is in first order.

All values of a first, wide bracket are trained in the first read, as models that share the resident rows.
Then two go on, which close in on the place after each read, until what the mix costs is next to nothing.

P of the nu problem is taken at the same mix of their best points; of nu-SVC, along its ray. The margin or the
tube and b are the best for the scores (`ooc_svm.solvers.cutting_plane.free_oracle`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ooc_svm.passes.base import RowSet, Steps
from ooc_svm.passes.of_rows import of_rows
from ooc_svm.passes.together import together
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import Context, KeptScores, LinearFunction, Prunable, Sample
from ooc_svm.solvers.cutting_plane.free_oracle import FreeCutOracle
from ooc_svm.solvers.cutting_plane.row_rules import RowLosses
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.bracket import Member, MemberState
from ooc_svm.solvers.streamed_smo.first_bracket import N_MODELS, place_members
from ooc_svm.solvers.streamed_smo.mix import (
    Mix,
    enough_of,
    factor_of,
    limits,
    trivial_bound,
)
from ooc_svm.solvers.streamed_smo.nu_check import check_again, nu_model, value_at
from ooc_svm.solvers.streamed_smo.nu_state import NuState
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo

EARLY_TOL = 1e-2  # Relative gap wanted of the models as long as the nu problem has none
TOL_SHARE, LEAST_TOL = 0.2, 1e-15  # Of the gap wanted, in what the models leave; the least wanted of them
MIX_SHARE = 0.05  # Of the gap wanted, in what the mix costs
VANISHING = 1e-5  # Of the first bound, times the tolerance: next to nothing, where P tends to 0
PAST = 1.0  # So much further than where D is foreseen to be next to nothing log C goes at most
AROUND = 0.2  # How far from a place log C is tried for another nu; epsilon, in units of the values
KNOWN = 0.3  # Gap up to which a model says of what nu its C or epsilon is: so much of its P, or of D


@dataclass(slots=True)
class SmoByNu(Prunable):
    """The solver of one nu problem: `steps` yields the merged requests of its members."""

    oracle: FreeCutOracle
    stopping: Stopping
    state: NuState
    members: list[Member]
    _origin: str | None = None  # The checkpoint that the state came from
    _facts: dict[str, float] = field(default_factory=dict)

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        own: dict[str, npt.DTypeLike] = {
            self.oracle.losses.best: np.float64,
            nu_model(self.oracle).dual: np.float64,
        }
        going_on = self.state.first.number, self.state.second.number
        for member in self.members:
            if not self.state.placed or member.state.number in going_on:
                own |= member.solver.vectors
        return own

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return {self.oracle.losses.previous: np.float64}

    def solution(self) -> LinearFunction:
        return LinearFunction(*self.oracle.solution(self.state.best))

    def is_sound(self) -> bool:
        return self.state.is_sound(self.members, self.oracle.space.dimension)

    def restart(self) -> list[StreamedSmo]:
        """Take the state for the start of a new run, of another C or nu; the models that it is of."""
        self._take_two()
        fresh = NuState.fresh(self.oracle.space.dimension, self.members)
        fresh.first, fresh.second = self.state.first, self.state.second
        # They had come close to a place that is not the one wanted now.
        apart = AROUND * (1.0 if self.members[0].in_margins else fresh.first.smo.unit)
        ends = fresh.first.place - apart, fresh.second.place + apart
        fresh.ahead = np.clip(ends, fresh.search.low, fresh.search.high)
        self.state = fresh
        return [member.solver for member in self.members]

    def distrust(self, origin: str) -> None:
        self._origin = origin

    def sample(self) -> Sample:
        found = self.members[0].solver.sample()
        return replace(found, passes=found.passes * 2)

    def metadata(self, n_rows: int) -> dict[str, float]:
        visited = sum(member.solver.state.visited for member in self.members)
        return {"row_visits": visited / n_rows, **self._facts}

    def kept_scores(self) -> KeptScores:
        best, offset = self.oracle.losses.best, self.oracle.score_offset(self.state.best)
        return KeptScores(best, best, offset=offset, rows=self._rows)

    def hints(self) -> dict[str, str]:
        return self.members[0].solver.hints()

    def leave(self) -> None:
        for member in self.members:
            member.solver.leave()

    @property
    def _rows(self) -> RowSet:
        return self.members[0].solver.rows

    def steps(self) -> Steps:
        oracle, state, certificate = self.oracle, self.state, self.certificate
        yield from of_rows(oracle.open(), self._rows)
        yield from self._begin()
        if self._origin is not None:
            yield from self._check_saved(self._origin)
        while certificate.stop_reason is None:
            if state.placed:
                moves = zip(self.members, state.ahead.tolist(), strict=True)
                yield from together([member.move(place) for member, place in moves])
            yield from together([member.solver.iterate() for member in self.members])
            for member in self.members:
                member.record()
            yield from together([member.settle() for member in self.members])
            mix = Mix.around(oracle, self.members)
            self._keep(mix.members)
            if (point := (yield from mix.point(certificate))) is not None:
                state.best, state.scores = point
            if self._certify(mix):
                yield from mix.keep(nu_model(oracle).dual)
            certificate.record(self.stopping)
            state.ahead = np.array(self._closer(mix))
        self._end()
        yield from self._count_support()

    def prune(self, features: npt.NDArray[np.bool_]) -> Steps:
        solver, w = self.members[0].solver, self.oracle.space.without(self.state.best, features)
        row_sums = solver.state.rounding.rows
        found = yield from value_at(self.oracle, w, row_sums, solver.rounds, solver.rows)
        self.state.best, self.state.scores = found.point, found.scores
        self.certificate.prune(found.primal, found.rounding, self.stopping)
        yield from self._count_support()

    def _count_support(self) -> Steps:
        found = yield from of_rows(self.oracle.count_support(0.0, self.state.best), self._rows)
        self.certificate.n_support, self._facts = found

    def _keep(self, members: Sequence[Member]) -> None:
        """Go on with two of the models; the others take no further part."""
        for member in self.members:
            if all(member is not other for other in members):
                member.solver.leave()
        self.members = list(members)
        self.state.first, self.state.second = (member.state for member in members)

    def _begin(self) -> Steps:
        """What comes before the first read: the first bracket, or the two models of a saved state."""
        state = self.state
        if state.placed:
            self._take_two()
        else:
            yield from place_members(self.members, self.oracle.targets.weight)
            for member in self.members:
                member.want(EARLY_TOL)
        if len(state.start) and state.certificate.passes == 0:
            for member in self.members:
                factor, own = factor_of(self.oracle, member), member.solver.state
                own.start, own.start_b = state.start / factor, state.start_b / factor
        yield from together([member.solver.begin() for member in self.members])

    def _take_two(self) -> None:
        """Go on with the two models of the state alone."""
        two = self.state.first, self.state.second
        if len(self.members) > len(two):
            members = [self.members[each.number] for each in two]
            for member, own in zip(members, two, strict=True):
                member.take(own)
            self._keep(members)

    def _check_saved(self, origin: str) -> Steps:
        """Before a resumed run goes on: find P and D again, and refuse what cannot be true."""
        oracle, state, certificate, solver = self.oracle, self.state, self.certificate, self.members[0].solver
        yield from together([member.find_again(origin) for member in self.members])
        point = state.best, state.scores, certificate.upper
        again = yield from check_again(oracle, *point, solver.rounds, solver.rows, origin)
        self._measure()
        state.believe(again, trivial_bound(oracle, self.members[0]), origin)
        certificate.amend(self.stopping)
        self._end()

    def _end(self) -> None:
        """Let the two models end with this one: they give their rows back to the other models of the run."""
        for member in self.members:
            member.solver.certificate.stop_reason = self.certificate.stop_reason

    def _measure(self) -> None:
        """What a gap is compared with, where P is 0 or tends to it."""
        oracle, certificate = self.oracle, self.certificate
        certificate.scale = oracle.scale
        certificate.vanishing = oracle.vanishing(self.stopping.tol, VANISHING)

    def _certify(self, mix: Mix) -> bool:
        """D at the mix, and what the models are to leave of the gap; whether the mix has raised D."""
        oracle, certificate, tol = self.oracle, self.certificate, self.stopping.tol
        self._measure()
        bound, raised = mix.bound(float(oracle.space.free(self.state.best)[1])), False
        certificate.offer_dual(trivial_bound(oracle, self.members[0]), 0.0)
        if bound is not None:
            raised = certificate.offer_dual(*bound)
        # While P may be 0, no share of it is certified.
        share = tol if certificate.upper < 0.0 or not self.members[0].in_margins else max(tol, EARLY_TOL)
        for member in self.members:
            factor = factor_of(oracle, member)
            wanted = TOL_SHARE * share * abs(certificate.dual) / (factor * factor)
            upper = member.solver.certificate.upper
            own = max(wanted / upper, LEAST_TOL) if upper > 0.0 else EARLY_TOL
            member.want(min(own, EARLY_TOL))
        return raised

    def _is_known(self, member: Member) -> bool:
        """Whether a model says of what nu its place is."""
        certificate, factor = member.solver.certificate, factor_of(self.oracle, member)
        own = factor * factor
        return own * certificate.gap <= KNOWN * max(own * certificate.upper, abs(self.certificate.dual))

    def _closer(self, mix: Mix) -> tuple[float, float]:
        """Where the two models go next: nearer to the place at which nu is the wanted one, or beyond them."""
        first, second = (member.place for member in self.members)
        for member in self.members:
            self.state.search.learn(*limits(self.oracle, member, self.certificate.upper))
        if not all(self._is_known(member) for member in self.members):
            return first, second
        search, nu = self.state.search, enough_of(self.oracle, self.members)
        ends = (first, second), mix.shares
        if (cost := mix.cost) is None:
            return search.beyond(*ends, nu, self._farthest(second))
        # Not much narrower than what the models leave of the gap makes sense.
        wanted = MIX_SHARE * max(self.stopping.tol * abs(self.certificate.dual), self.certificate.gap)
        narrower = math.sqrt(wanted / cost) if cost > 0.0 else 1.0
        return search.between(*ends, mix.mean_share, nu, narrower)

    def _farthest(self, place: float) -> float:
        """How far a model is worth going: as long as P may be 0, D falls like 1 / C^2."""
        certificate = self.certificate
        if not (certificate.nothing > 0.0 and certificate.upper >= 0.0):
            return math.inf
        return place + PAST + 0.5 * math.log(max(abs(certificate.dual) / certificate.nothing, 1.0))


def build_by_nu(
    spec: ModelSpec, name: str, build: Callable[[ModelSpec, str], StreamedSmo], context: Context
) -> SmoByNu:
    """The solver of a nu problem; ``build`` makes the solver of a model of such a name."""
    assert spec.targets is not None
    space = replace(context.space, n_free=context.options.n_free)
    oracle = FreeCutOracle(
        RowLosses(spec.targets, spec.loss, name), spec.C, space, nu=spec.nu, mean=spec.mean
    )
    start = math.log(spec.C) if spec.targets.in_margins else 0.0
    solvers = [build(spec, f"{name}/{number}") for number in range(N_MODELS)]
    members = [
        Member(solver, MemberState(solver.state, number, start)) for number, solver in enumerate(solvers)
    ]
    state = NuState.fresh(space.dimension, members)
    return SmoByNu(oracle, context.stopping, state, members)
