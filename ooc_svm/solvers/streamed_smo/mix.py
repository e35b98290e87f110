"""Multipliers and a point of a nu problem: a mix of those of two models, and its certificate.

See `ooc_svm.solvers.streamed_smo.by_nu`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Request, RowSet, RowSlice
from ooc_svm.passes.of_rows import of_rows
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.free_oracle import FreeCutOracle
from ooc_svm.solvers.cutting_plane.row_rules import LossesAt
from ooc_svm.solvers.rounding import FEW, gamma
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.bracket import Member
from ooc_svm.solvers.streamed_smo.sweep import COST, LENGTH, LONGEST


@dataclass(frozen=True, slots=True)
class MixScores:
    """Rule on row vectors: a mix of the scores at the best points of two models."""

    first: str
    second: str
    shares: tuple[float, float]
    to: str
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.first, self.second)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.to,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        first, second = (rows.vectors[name] for name in self.reads)
        rows.vectors[self.to][:] = self.shares[0] * first + self.shares[1] * second


@dataclass(frozen=True, slots=True)
class Mix:
    """Two models and their parts in a mix, which add up to 1."""

    oracle: FreeCutOracle
    members: Sequence[Member]
    parts: tuple[float, float]

    @classmethod
    def around(cls, oracle: FreeCutOracle, members: Sequence[Member]) -> Mix:
        """The two of some models, given by falling shares, that are around nu, or nearest to it."""
        nu, shares = nu_of(oracle), [share_of(oracle, member) for member in members]
        enough = enough_of(oracle, members)
        inside = [k for k, (more, less) in enumerate(pairwise(shares)) if more >= enough > less]
        first = inside[0] if inside else (0 if shares[0] < nu else len(shares) - 2)
        more, less = shares[first : first + 2]
        part = min(max((nu - less) / (more - less), 0.0), 1.0) if more > less else float(more >= nu)
        return cls(oracle, members[first : first + 2], (part, 1.0 - part))

    @property
    def shares(self) -> tuple[float, float]:
        """What nu the multipliers of each are of."""
        first, second = (share_of(self.oracle, member) for member in self.members)
        return first, second

    @property
    def mean_share(self) -> float:
        """The mean of the shares between the two: of D of a model, it is the slope in its price."""
        values = [value_of(self.oracle, member) for member in self.members]
        change = self.oracle.C * self.oracle.targets.weight * self._change_of_price
        return abs(values[1] - values[0]) / change if change > 0.0 else 0.0

    @property
    def _change_of_price(self) -> float:
        """By how much margins or widths of the tube of the two differ."""
        first, second = (price_of(self.oracle, member) for member in self.members)
        return abs(second - first)

    @property
    def cost(self) -> float | None:
        """What D lacks because two models are mixed, at most; None where nu is not between theirs.

        D of the optimum is concave in nu; its slope is the margin, or the width of the tube, times C W.
        """
        more, less = self.shares
        if not more >= enough_of(self.oracle, self.members) > less:
            return None
        steeper = self.oracle.C * self.oracle.targets.weight * self._change_of_price
        return 0.5 * self.parts[0] * self.parts[1] * steeper * (more - less)

    @property
    def _factors(self) -> list[float]:
        """What the weights of each are taken times."""
        pairs = zip(self.parts, self.members, strict=True)
        return [part * factor_of(self.oracle, member) for part, member in pairs]

    def _sum(self, vectors: Sequence[Float64Array]) -> Float64Array:
        first, second = self._factors
        mixed: Float64Array = first * vectors[0] + second * vectors[1]
        return mixed

    def point(self, certificate: Certificate) -> Generator[Request, Any, tuple[Float64Array, float] | None]:
        """P at the mix of the best points: a new best point of the nu problem, or None.

        With it comes what a row's score there is off by at most, as a multiple of ``(m + 2) |x|``.
        """
        oracle, solvers = self.oracle, [member.solver for member in self.members]
        losses, in_margins, (first, second) = oracle.losses, oracle.losses.targets.in_margins, self._factors
        w = np.zeros(oracle.space.dimension)
        weights = self._sum([solver.state.best for solver in solvers])
        w[: len(weights)] = weights if oracle.space.scale is None else weights / oracle.space.scale
        names = solvers[0].model.best, solvers[1].model.best
        yield RowPass(MixScores(*names, (first, second), losses.previous), solvers[0].rows)
        best, loss = yield from of_rows(oracle.settle(1.0, w, math.inf), solvers[0].rows)
        square, t = float(w @ w), 1.0
        rounding = primal_rounding(oracle, self._row_sums, self._n_rows, best, self._scores, loss)
        if in_margins and square > 0.0:
            # Along the ray the loss is t times as large, if b and the margin are.
            t = max(-oracle.C * loss, 0.0) / square
            best *= t
            oracle.space.free(best)[1] += 1.0 - t
        value, scores = 0.5 * t * t * square + t * oracle.C * loss, t * self._scores
        # What the losses were off by is t times as large as well.
        there = primal_rounding(oracle, self._row_sums, self._n_rows, best, scores, t * loss)
        rounding = max(t * rounding, there)
        if not certificate.offer_primal(value, rounding):
            return None
        yield RowPass(MixScores(losses.previous, losses.previous, (t, 0.0), losses.best), solvers[0].rows)
        return best, scores

    @property
    def _scores(self) -> float:
        """What a mixed score is off by at most, as a multiple of ``(m + 2) |x|``."""
        states = [member.solver.state for member in self.members]
        norms = [member.solver.model.space.norm(member.solver.state.best) for member in self.members]
        return sum(
            factor * (state.rounding.scores + gamma(FEW) * norm)
            for factor, state, norm in zip(self._factors, states, norms, strict=True)
        )

    @property
    def _row_sums(self) -> Float64Array:
        return self.members[0].solver.state.rounding.rows

    def bound(self, k: float) -> tuple[float, float] | None:
        """D at the mix and a bound of its rounding; None if it is not feasible.

        ``k``: the breakpoint of the best point, see `FreeCutOracle`: what a larger sum of sizes is worth.
        """
        oracle = self.oracle
        n, space, in_margins = self._n_rows, self.members[0].solver.model.space, self.members[0].in_margins
        if in_margins and self._reached < enough_of(oracle, self.members):
            return None
        tau = self._tau
        w = tau * self._sum([member.solver.state.w for member in self.members])
        norm, linear, rounding = space.norm(w), 0.0, 0.0
        for part, member in zip(self.parts, self.members, strict=True):
            state, factor = member.solver.state, factor_of(oracle, member)
            if part == 0.0:
                continue
            if abs(state.multipliers.total) > 2.0 * state.rounding.total(n):
                return None
            b, size = float(state.bias(space)[dual_loops.B]), (n, space.n_features)
            # That of the sum of v, which may be as far from 0, counts twice.
            rounding += 2.0 * (factor * factor) * state.rounding.dual(norm / factor, b, size)
            if not in_margins:
                linear += tau * part * (state.multipliers.linear + member.place * member.size)
        rounding += gamma(n + FEW) * (oracle.C * oracle.price * (oracle.origin + abs(k)) + abs(linear))
        return linear - 0.5 * norm * norm, rounding

    def keep(self, to: str) -> Generator[Request, Any, None]:
        """Write the multipliers that D is at to a row vector."""
        for number, (factor, member) in enumerate(zip(self._factors, self.members, strict=True)):
            yield from member.add_multipliers(to, self._tau * factor, added=number > 0)

    @property
    def _reached(self) -> float:
        """What nu the mix of the multipliers is of."""
        return sum(part * share for part, share in zip(self.parts, self.shares, strict=True))

    @property
    def _tau(self) -> float:
        """The part of the mix that is of the wanted nu: also feasible, where no size is asked for."""
        return min(1.0, nu_of(self.oracle) / self._reached) if self._reached > 0.0 else 1.0

    @property
    def _n_rows(self) -> int:
        return self.members[0].solver.rows.n_rows


def primal_rounding(
    oracle: FreeCutOracle, row_sums: Float64Array, n_rows: int, best: Float64Array, scores: float, loss: float
) -> float:
    """Bound of the rounding of P: of scores, by the inequality of Cauchy and Schwarz, and of the sums.

    ``row_sums``: see `ooc_svm.solvers.streamed_smo.sweep.NormPass`.
    ``best``, ``scores``: the point, and what its scores are off by, see `Mix.point`.
    ``loss``: the losses and what k is charged with, without C.
    """
    weight, (b, k) = oracle.C * oracle.targets.weight, oracle.space.free(best).tolist()
    length = math.sqrt(float(row_sums[LENGTH] / row_sums[COST])) if row_sums[COST] > 0.0 else 0.0
    weights = oracle.space.penalized(best)
    square = float(weights @ weights)
    size = oracle.reach + abs(b) + abs(k) + 1.0 + float(row_sums[LONGEST]) * math.sqrt(square)
    # No loss of a row is negative: together they are what P has of them less what k is charged with.
    together = oracle.C * (abs(loss) + 2.0 * oracle.price * abs(k - oracle.origin))
    of_scores = weight * (scores * length + gamma(FEW) * size) + oracle.C * oracle.solution_error(best)
    bound: float = of_scores + gamma(n_rows + FEW) * together + gamma(len(weights) + FEW) * square
    return bound


def loss_at(oracle: FreeCutOracle, best: Float64Array, rows: RowSet) -> Generator[Request, Any, float]:
    """The losses at the kept scores of the best point and what k is charged with there, without C."""
    b, k = (float(each) for each in oracle.space.free(best))
    sums: Float64Array = yield RowPass(LossesAt(oracle.losses, 0.0, (b, k)), rows)
    return float(sums[0]) + oracle.price * (k - oracle.origin)


def nu_of(oracle: FreeCutOracle) -> float:
    """The wanted nu."""
    assert oracle.nu is not None
    return oracle.nu


def enough_of(oracle: FreeCutOracle, members: Sequence[Member]) -> float:
    """The wanted nu, less what rounding can make of it: there may be no place with more."""
    return nu_of(oracle) * (1.0 - gamma(members[0].solver.rows.n_rows + FEW))


def share_of(oracle: FreeCutOracle, member: Member) -> float:
    """The nu that the multipliers of a model are of."""
    return member.size / (member.solver.model.C * oracle.targets.weight)


def factor_of(oracle: FreeCutOracle, member: Member) -> float:
    """What the multipliers and weights of a model are taken times in the nu problem."""
    return oracle.C / member.solver.model.C


def price_of(oracle: FreeCutOracle, member: Member) -> float:
    """The margin or the half width of the tube that a model is of, in the nu problem."""
    return factor_of(oracle, member) if member.in_margins else member.place


def value_of(oracle: FreeCutOracle, member: Member) -> float:
    """D of a model in the units of the nu problem."""
    factor = factor_of(oracle, member)
    return member.solver.certificate.lower * (factor * factor)


def limits(oracle: FreeCutOracle, member: Member, upper: float) -> tuple[float, float]:
    """Places that the wanted one is between, where P of the nu problem is at most ``upper``.

    With its multipliers, D of a model bounds the value of the nu problem with any price in place of its own:
    they are linear in it. Where that is above ``upper``, the optimum is not. The bound of a model
    that is lost tells nothing of its multipliers.
    """
    if member.is_lost and member.size > 0.0:
        return -math.inf, math.inf
    weight, price = oracle.C * oracle.targets.weight, price_of(oracle, member)
    excess = (share_of(oracle, member) - nu_of(oracle)) * weight
    # Of the nu problem a margin is worth nu, and a tube costs it.
    charged = (-price if member.in_margins else price) * nu_of(oracle) * weight
    slack = upper - (value_of(oracle, member) + charged)
    if excess == 0.0 or not math.isfinite(slack):
        return -math.inf, math.inf
    away = max(slack, 0.0) / abs(excess)
    if not member.in_margins:
        return (price - away, math.inf) if excess > 0.0 else (-math.inf, price + away)
    if excess > 0.0:
        return math.log(oracle.C / (price + away)), math.inf
    return -math.inf, math.log(oracle.C / (price - away)) if price > away else math.inf


def trivial_bound(oracle: FreeCutOracle, member: Member) -> float:
    """A bound that is known after one read: no mix of rows is longer than the longest of them.

    For values no multipliers at all do.
    """
    if not member.in_margins:
        return 0.0
    longest = oracle.C * oracle.price * float(member.solver.state.rounding.rows[LONGEST])
    return -0.5 * longest * longest
