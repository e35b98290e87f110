"""Sequential minimal optimisation streamed from disk, with a resident working set.

    min_w  P(w, b) = 1/2 |w|^2 + sum_i loss_i(t_i - w.x_i - b)
    max_v  D(v) = sum_i (t_i v_i - eps |v_i| - damping_i v_i^2 / 2) - 1/2 |sum_i v_i x_i|^2
           low_i <= v_i <= high_i

(`ooc_svm.solvers.streamed_smo.dual` has the losses.) Platt (1998) changes one multiplier at a time where the
threshold is fixed (equation 23), and alternates passes over all rows with passes over the non-bound ones.
Here the pass over all rows is a read of the data and the non-bound rows are held in memory. A read is cut
into rounds:

1. Fresh rows: each lane of a round begins with the same w, moves its rows once and returns the change of w;
   the changes are added with the step ``theta`` in [0, 1] that maximises D.
2. The resident set takes the rows best worth keeping, of the fresh ones and its own.
3. It is solved, with shrinking, until its row gaps sum up to a share of those of all other rows.

Step 3 of one round goes on while the rows of the next are read and swept from the w before it.

Certificate: while a read goes on, all rows are scored with the w that it began with. So P is exact there, and
at every point of the segment to the best point before; D belongs to the multipliers of the moment, with w
rebuilt from them. The run ends when ``P - D <= tol P``.

With a free bias, ``sum_i v_i = 0`` is reached by the method of multipliers: ``b = b_k + rho sum_i v_i``, b_k
being the b that a round begins with. P takes the b that is best for the scores, D a feasible point near by.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.passes.base import Extent, Pass, rows_of
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.grid_minimum import lowest
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualProblem, names
from ooc_svm.solvers.streamed_smo.sweep import (
    Held,
    Interlude,
    LaneSums,
    NormPass,
    Rows,
    SweepPass,
    opening,
    places,
    seed_of,
)
from ooc_svm.solvers.streamed_smo.working_set import Residents


@dataclass(frozen=True, slots=True)
class Effort:
    """How a read is cut, and how far the resident set is solved in each round.

    Parameters
    ----------
    rounds, most_rounds : int
        Of a read: the second at most, and
    brought : float
        so many that a round sweeps at most so many times what the resident set holds.
    lanes : int
        Of a round; a power of two.
    share, early_share, last_share : float
        Until its row gaps sum up to this share of the gaps of all other rows, as last seen; the smaller
        ``last_share`` at the end of a read, since that w is the next reference, and ``early_share`` there as
        long as the gap is more than `NEAR` times the one wanted.
    floor : float
        But no further than this share of the gap that the run is to end with.
    sweeps : float
        And with no more steps than this many times those of a round.
    reach : float
        Rows at a bound are held if a change of their margin by at most this much would move them.
    offered : float
        The lanes of a round offer together at most this share of what the resident set may hold. All of that
        takes more memory, and up to two thirds more reads where little is resident: too many rows leave
        before their time.
    """

    rounds: int
    most_rounds: int
    brought: float
    lanes: int
    share: float
    early_share: float
    last_share: float
    floor: float
    sweeps: float
    reach: float
    offered: float = 0.5


# By the number of nonzeros from which on they are worth it (measured): with little data a read is dear beside
# the steps, with much data the steps are what takes the time. Each lane more takes more reads and memory, and
# one is enough where solving the resident set keeps another processor busy; only of very large data, which
# several machines may take part of, there are two. With 2 % resident 20 rounds take 17 and 11 reads (covtype,
# a9a), 60 take 13 and 8. Rows further from the margin than ``reach`` hardly ever move: without them no data
# takes more reads, and arXiv two thirds of the time.
_LARGE = Effort(5, 20, 2.0, 1, 0.3, 0.1, 0.03, 0.1, 60.0, 0.43)
EFFORTS = {
    0: Effort(20, 100, 0.8, 1, 0.05, 0.005, 0.005, 0.03, 300.0, 0.67),
    2_000_000: Effort(20, 100, 0.8, 1, 0.1, 0.01, 0.01, 0.1, 60.0, 0.67),
    20_000_000: _LARGE,
    1_000_000_000: replace(_LARGE, lanes=2),
}


def effort_for(n_nonzeros: int, resident: float, lanes: int | None = None) -> Effort:
    """The effort for data of a size with a share of it resident, and so many lanes where they are given.

    It must not follow from a clock, since the bits follow from it.
    """
    effort = EFFORTS[max(least for least in EFFORTS if least <= n_nonzeros)]
    wanted = 1.0 / (effort.brought * max(resident, 1e-9))
    rounds = round(min(max(wanted, effort.rounds), effort.most_rounds))
    # Where all rows are held none has to leave.
    offered = 1.0 if resident >= 1.0 else effort.offered
    return replace(effort, rounds=rounds, lanes=lanes or effort.lanes, offered=offered)


# rho of a free bias, as a share of the mean squared norm of a row.
RHO = 0.1

# A gap of at most so many times the one wanted: from then on w is rebuilt from the multipliers in each read,
# and no solving is an early one.
NEAR = 100.0

# Lanes offer rows down to this share of the key of the least row that the resident set last kept: that saves
# copying most rows (measured: it costs no reads).
OFFERED_KEY = 0.95

# How far apart the values around the smallest P may be at the end of a search, as a share of the gap wanted.
FLAT = 0.01


def _no_ids() -> Int64Array:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class SmoState:
    """Everything the solver knows between two reads, beside the row vectors.

    Attributes
    ----------
    w, best : ndarray of float64, shape (n_features,)
        Weights of the multipliers and of the best point, in units of the data.
    residents : Residents
    thetas, gaps : ndarray of float64, shape (rounds,)
        The step taken in each round, and the sum of the row gaps seen there before the steps.
    certificate : Certificate
    b, best_b : float
        Multiplier of the free bias; the bias of the best point.
    rho : float
        What the bias adds to the squared norm of a row: 1 for a penalized one, 0 without one.
    total, linear : float
        ``sum_i v_i``, and D without its norm.
    visited : float
        Rows looked at so far.
    start : ndarray of float64, shape (n_features,) or (0,)
    start_b : float
        Weights that the first read scores the rows with, and their bias; none if empty.
    returned : ndarray of int64; multipliers : ndarray of float64
        Rows that have left the resident set and that no round has met since.
    """

    w: Float64Array
    best: Float64Array
    residents: Residents
    thetas: Float64Array
    gaps: Float64Array
    certificate: Certificate
    b: float = 0.0
    best_b: float = 0.0
    rho: float = 0.0
    total: float = 0.0
    linear: float = 0.0
    visited: float = 0.0
    start: Float64Array = field(default_factory=lambda: np.empty(0))
    start_b: float = 0.0
    returned: Int64Array = field(default_factory=_no_ids)
    multipliers: Float64Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def fresh(cls, n_features: int, n_rounds: int, residents: Residents) -> SmoState:
        """The state before the first read."""
        w, best, (thetas, gaps) = np.zeros(n_features), np.zeros(n_features), np.zeros((2, n_rounds))
        return cls(w, best, residents, thetas, gaps, Certificate())

    @property
    def bias(self) -> float:
        """The bias of the moment."""
        return self.b + self.rho * self.total

    def is_sound(self, n_features: int, n_rounds: int) -> bool:
        """Whether the parts fit each other and the problem; a saved state may come from anywhere."""
        shapes = self.w.shape == self.best.shape == (n_features,)
        rounds = self.thetas.shape == self.gaps.shape == (n_rounds,)
        pending = len(self.returned) == len(self.multipliers)
        return (
            shapes
            and rounds
            and pending
            and len(self.start) in (0, n_features)
            and self.certificate.is_sound()
            and self.residents.is_sound(n_features)
        )


@dataclass(slots=True)
class _Solved:
    """What the solving of the resident set has changed."""

    w: Float64Array
    sums: Float64Array
    leaving: tuple[Int64Array, Float64Array]


@dataclass(slots=True)
class StreamedSmo:
    """The solver: `steps` yields the rounds of reads, and passes over row vectors.

    Parameters
    ----------
    problem : DualProblem
    stopping : Stopping
    state : SmoState
    rounds : sequence of Extent
        The data, cut by `ooc_svm.solvers.streamed_smo.sweep.cut_rounds`.
    n_nonzeros : int
        Of the data.
    effort : Effort
    seed : int
    """

    problem: DualProblem
    stopping: Stopping
    state: SmoState
    rounds: Sequence[Extent]
    n_nonzeros: int
    effort: Effort
    seed: int = 0
    _offered: list[Rows] = field(default_factory=list)
    _theta: float = 0.0
    _solved: _Solved | None = None
    _rows: Extent = field(init=False)
    """All rows, in the lanes' order: passes over row vectors run where the lanes' rows are."""

    def __post_init__(self) -> None:
        self._rows = rows_of(self.rounds)

    def steps(self) -> Generator[Pass, Any, None]:
        """Yield passes until the gap is certified or a limit is reached."""
        problem, state = self.problem, self.state
        certificate = state.certificate
        if state.rho == 0.0:
            state.rho = yield from self._bias_norm()
        while certificate.stop_reason is None:
            reference, reference_b = state.w, state.bias
            if certificate.passes == 0 and len(state.start):
                reference, reference_b = state.start, state.start_b
            # Without a point yet all scores are 0.
            scored = math.isfinite(certificate.primal) or len(state.start) > 0
            yield from self._read(reference, scored)
            yield from self._improve_best(reference, reference_b, scored)
            bound = self._bound()
            certificate.dual = max(certificate.dual, bound)
            if not self.stopping.certifies(certificate.primal, certificate.dual):
                # The w of the moment is the next reference.
                yield Interlude(partial(self._solve_residents, last=True), Extent(((),), self._ahead))
                self._adopt()
                bound = self._bound()
            certificate.record(bound, self.stopping)
        *_, best = names(problem)
        certificate.n_support = int((yield problem.count_losses(best, state.best_b, self._rows))[0])

    def solution(self) -> tuple[Float64Array, float]:
        """Weights in units of the data, and bias, of the best point."""
        return self.state.best, self.state.best_b

    def is_sound(self) -> bool:
        """Whether the state fits the problem; a saved one may come from anywhere."""
        return self.state.is_sound(self.problem.space.n_features, len(self.rounds))

    def rescale(self, ratio: float) -> None:
        """Go on from the state of the same problem whose C, times ``ratio``, is the one here.

        Multipliers times ``ratio`` are feasible here, and w, D's linear part and their sum move with them.
        The best point stays, and so do its losses but for C. The row vectors of multipliers and steps are
        left to the caller.
        """
        state, certificate = self.state, self.state.certificate
        state.w = state.w * ratio
        state.linear *= ratio
        state.total *= ratio
        state.gaps *= ratio
        state.multipliers *= ratio
        state.residents.rescale(ratio)
        state.rho = 0.0
        norm = self._inner(state.best, state.best)
        if self.problem.space.penalized_bias:
            norm += state.best_b * state.best_b
        primal = 0.5 * norm + ratio * (certificate.primal - 0.5 * norm)
        state.certificate = Certificate(primal=primal)

    def _bias_norm(self) -> Generator[Pass, Any, float]:
        """rho; for a free bias from the norms of the first rows, which are read next anyway."""
        if not self.problem.free_bias:
            return float(self.problem.space.penalized_bias)
        first = next(segment for segment in self.rounds[0].segments if segment)[:1]
        squares, n_rows = yield NormPass(self.problem.metric, Extent((first,), opening(self.rounds), 0, 2))
        all_rows = sum(p.n_rows for extent in self.rounds for segment in extent.segments for p in segment)
        # With a small C all multipliers together are small, and have to move b all the same.
        return max(RHO * float(squares / n_rows), 1.0 / (self.problem.C * all_rows))

    def _inner(self, u: Float64Array, v: Float64Array) -> float:
        metric = self.problem.metric
        return float(u @ v) if metric is None else float((u / metric) @ v)

    def _dual(self, w: Float64Array, linear: float) -> float:
        """D at multipliers with these weights and this linear part."""
        penalty = self.state.total * self.state.total if self.problem.space.penalized_bias else 0.0
        return linear - 0.5 * (self._inner(w, w) + penalty)

    def _bound(self) -> float:
        """D at a feasible point: the multipliers of the moment, with a free bias made to sum up to 0."""
        state = self.state
        if not self.problem.free_bias:
            return self._dual(state.w, state.linear)
        w = state.w.copy()
        gain, rest = state.residents.absorb(self.problem, state.total, w)
        bound = self._dual(w, state.linear + gain)
        # No row moves: feasible, and D is 0.
        return max(bound, 0.0) if rest == 0.0 or math.isnan(bound) else 0.0

    def _read(self, reference: Float64Array, scored: bool) -> Generator[Pass, Any, None]:
        """One read of the data, with all rows scored by the reference."""
        problem, state = self.problem, self.state
        certificate = state.certificate
        number = certificate.passes
        rebuild = number > 0 and self._near
        at_start = np.sort(state.residents.ids)
        rebuilt = state.residents.sum_of_rows(problem) if rebuild else np.empty(0)
        scoring = reference if scored else np.empty(0)
        self._offered = []
        room = math.ceil(self.effort.offered * state.residents.capacity / self.effort.lanes)
        for r, extent in enumerate(self.rounds):
            back = _inside(state.returned, extent)
            answer: LaneSums = yield SweepPass(
                problem,
                state.w,
                scoring,
                rebuild,
                np.array([state.bias, state.rho]),
                float(state.thetas[r]),
                self._held(extent, at_start, back),
                seed_of(self.seed, number),
                room,
                max(OFFERED_KEY * state.residents.least, self._worth),
                extent,
                self._solve_residents,
            )
            # Only now: a checkpoint may have been written since.
            state.returned, state.multipliers = state.returned[~back], state.multipliers[~back]
            if rebuild:
                rebuilt += answer.rebuilt
            self._join(r, answer)
            if problem.free_bias:
                state.b = state.bias
        if rebuild:
            # Many small steps leave a residue.
            state.w = state.w + (rebuilt - reference)

    @property
    def _ahead(self) -> tuple[int, ...]:
        """The blocks that the next read begins with, unless it is known that there is none."""
        certificate = self.state.certificate
        if self.stopping.reason(certificate.primal, certificate.dual, certificate.passes + 1) is not None:
            return ()
        return opening(self.rounds)

    @property
    def _near(self) -> bool:
        return self.state.certificate.relative_gap <= NEAR * self.stopping.tol

    @property
    def _worth(self) -> float:
        """The key of a row that is out of reach; far in a regression depends on the unit of its values."""
        return 0.0 if self.problem.two_sided else 1.0 / (1.0 + self.effort.reach)

    def _held(self, extent: Extent, at_start: Int64Array, back: npt.NDArray[np.bool_]) -> Held:
        """What concerns the rows of a round; ``back`` says which of those given back are there."""
        state = self.state
        now = _inside(state.residents.ids, extent)
        return Held(
            state.residents.ids[now],
            at_start[_inside(at_start, extent)],
            state.returned[back],
            state.multipliers[back],
        )

    def _solve_residents(self, last: bool = False) -> None:
        """Take in what the last round offered, and improve the resident rows."""
        state, problem = self.state, self.problem
        effort = self.effort
        leaving = state.residents.take(self._offered, self._theta, problem.epsilon, self._worth)
        # Whoever still has the round's answer must not keep its rows.
        self._offered.clear()
        w = state.w.copy()
        floor = effort.floor * self.stopping.tol * max(self._dual(w, state.linear), 0.0)
        share = (effort.last_share if self._near else effort.early_share) if last else effort.share
        wanted = max(share * float(state.gaps.sum()), floor)
        most = int(effort.sweeps * self.n_nonzeros / len(self.rounds))
        seed = seed_of(self.seed, state.certificate.passes, int(state.visited))
        bias = np.array([state.bias, state.rho])
        sums = state.residents.solve(problem, w, bias, seed, wanted, most)
        self._solved = _Solved(w, sums, leaving)

    def _adopt(self) -> None:
        """Make what the solving of the resident set has changed the state of the moment."""
        state, solved = self.state, self._solved
        assert solved is not None
        self._solved = None
        state.w = solved.w
        state.linear += float(solved.sums[dual_loops.LINEAR])
        state.total += float(solved.sums[dual_loops.MOVED])
        state.visited += float(solved.sums[dual_loops.ROWS])
        ids, multipliers = solved.leaving
        state.returned = np.concatenate([state.returned, ids])
        state.multipliers = np.concatenate([state.multipliers, multipliers])

    def _join(self, r: int, answer: LaneSums) -> None:
        """Add the lanes' changes with the step that maximises D."""
        state, s, before = self.state, answer.sums, self.state.w
        self._adopt()
        moved, linear, quadratic = (
            float(s[k]) for k in (dual_loops.MOVED, dual_loops.LINEAR, dual_loops.QUADRATIC)
        )
        along, square = dual_loops.lane_products(state.w, before, answer.w, self.problem.metric)
        slope = linear - along - state.bias * moved
        curvature = square + state.rho * moved * moved + quadratic
        theta = min(max(slope / curvature, 0.0), 1.0) if curvature > 0.0 else float(slope > 0.0)
        dual_loops.add_change(state.w, theta, before, answer.w)
        state.linear += theta * linear - 0.5 * theta**2 * quadratic
        state.total += theta * moved
        state.thetas[r], state.gaps[r] = theta, s[dual_loops.GAP]
        state.visited += float(s[dual_loops.ROWS])
        self._offered, self._theta = answer.best, theta

    def _improve_best(
        self, reference: Float64Array, reference_b: float, scored: bool
    ) -> Generator[Pass, Any, None]:
        """Move the best point to the best one of the segment to the reference, by exact values of P."""
        problem, state, certificate = self.problem, self.state, self.state.certificate
        *_, newest, best = names(problem)
        change, change_b = reference - state.best, reference_b - state.best_b
        penalized = float(problem.space.penalized_bias)
        n0 = self._inner(state.best, state.best) + penalized * state.best_b * state.best_b
        n1 = 2 * (self._inner(state.best, change) + penalized * state.best_b * change_b)
        n2 = self._inner(change, change) + penalized * change_b * change_b

        def along(t: Float64Array) -> Generator[Pass, Any, Float64Array]:
            points = np.column_stack([t, state.best_b + t * change_b])
            losses: Float64Array = yield problem.values_along(best, newest, points, self._rows)
            return 0.5 * (n0 + t * n1 + t**2 * n2) + losses

        def over_bias(b: Float64Array) -> Generator[Pass, Any, Float64Array]:
            points = np.column_stack([np.zeros(len(b)), b])
            losses: Float64Array = yield problem.values_along(best, best, points, self._rows)
            return 0.5 * self._inner(state.best, state.best) + losses

        tolerance = FLAT * self.stopping.tol
        if not math.isfinite(certificate.primal):
            certificate.primal = float((yield from along(np.zeros(1)))[0])
        if scored:
            t, primal = yield from lowest(along, 0.0, 2.0, tolerance)
            if primal < certificate.primal:
                yield problem.move(best, newest, t, self._rows)
                state.best = state.best + t * change
                state.best_b += t * change_b
                certificate.primal = primal
        if problem.free_bias:
            b, primal = yield from lowest(over_bias, state.best_b - 1.0, state.best_b + 1.0, tolerance)
            if primal < certificate.primal:
                state.best_b, certificate.primal = b, primal


def _inside(ids: Int64Array, extent: Extent) -> Any:
    """Which of the row numbers a part of the data holds."""
    pieces = [piece for segment in extent.segments for piece in segment]
    start, stop = min(p.start for p in pieces), max(p.stop for p in pieces)
    inside = (ids >= start) & (ids < stop)
    if any(piece.step > 1 for piece in pieces):
        near = np.flatnonzero(inside)
        inside[near] = np.any([places(ids[near], piece)[0] for piece in pieces], axis=0)
    return inside
