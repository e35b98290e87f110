"""Sequential minimal optimisation streamed from disk, with a resident working set.

    min_w  P(w, b) = 1/2 |w|^2 + sum_i loss_i(t_i - w.x_i - b)
    max_v  D(v) = sum_i (t_i v_i - loss*_i(v_i)) - 1/2 |sum_i v_i x_i|^2

`ooc_svm.losses.functions` has the terms. Platt (1998) changes one multiplier at a time where the
threshold is fixed (equation 23), and alternates passes over all rows with passes over the non-bound ones.
Here the pass over all rows is a read of the data and the non-bound rows are held in memory. A read is cut
into rounds:

1. Fresh rows: each lane of a round begins with the same w, moves its rows once and returns the change of w;
   the changes are added with the step ``theta`` in [0, 1] that maximises D.
2. The working sets of all models take the rows best worth keeping, of the fresh ones and their own, which
   are in memory once.
3. Each is solved, with shrinking, until its row gaps sum up to a share of those of all other rows.

Step 3 of one round goes on while the rows of the next are read and swept from the w before it.

Certificate: while a read goes on, all rows are scored with the w that it began with. So P is exact there, and
at every point of the segment to the best point before; D belongs to the multipliers of the moment, with w
recomputed from them where rounding matters. The run ends when ``P - D <= tol P``. Where its first
rounds tell that a read will be the last, the others make no steps.

With a free bias, ``sum_i v_i = 0`` is reached by the method of multipliers: ``b = b_k + rho sum_i v_i``, b_k
being the b that a round begins with; where that is a small step, b_k takes the larger one that is best for
the resident rows as they are scored. P takes the b that is best for the scores, D a feasible point near by.
A penalized bias is ``sum_i v_i`` at an optimum. With many columns it comes to that by the proximal point
method (Rockafellar 1976), for fewer steps: ``b = (1 - rho) b_k + rho sum_i v_i`` with a small rho.
Values are learnt as their distance from a center, which is what they cost least to predict by without
features, and rows far from the origin as theirs from a mean row (`dual_loops`): the problem stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.passes.base import Overlap, Pass, RowSet, Steps, rows_of
from ooc_svm.solvers.base import KeptScores, LinearFunction, Prunable, Sample
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.best_point import (
    Target,
    count_support,
    improve_best,
    score_best,
)
from ooc_svm.solvers.streamed_smo.bound import (
    begin_read,
    check_saved,
    dual_value,
    farthest_bias,
    lower_bound,
    read_began,
)
from ooc_svm.solvers.streamed_smo.company import Company
from ooc_svm.solvers.streamed_smo.dual import DualModel, looked_at
from ooc_svm.solvers.streamed_smo.effort import NEAR, WORTHWHILE, Effort, hardness_after
from ooc_svm.solvers.streamed_smo.path import Path, take_over
from ooc_svm.solvers.streamed_smo.placement import count_with_cost, log_odds, place_rows, place_targets
from ooc_svm.solvers.streamed_smo.rounds import Round, opening
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import (
    COST,
    CandidateRows,
    LaneSums,
    NormPass,
    Residency,
    RowSums,
    ScorePass,
    SweepPass,
    seed_of,
)

# Largest distance of the values around the smallest P at the end of a search, as a share of the gap wanted.
FLAT = 0.01

# The step of b that is best for the resident rows does not know that others answer to it. It is taken by the
# share of the free rows that are resident, times this at most: twice as long a step would not come nearer.
RELAXED = 1.5

# A read that leaves so much of the sum of the multipliers makes rho so many times as large.
FIRMER = 4.0


@dataclass(slots=True)
class _Solved:
    """What the solving of the working set has changed."""

    w: Float64Array
    sums: Float64Array
    b: float  # That of the state: a penalized bias has followed
    rate: float  # What b_k moves by for each unit that the multipliers sum up to
    longest: float  # A bound of the norm of w on the way


@dataclass(slots=True, eq=False)
class StreamedSmo(Prunable):
    """The solver of one model: `steps` yields the rounds of reads, and passes over row vectors."""

    model: DualModel
    stopping: Stopping
    state: SmoState
    rounds: Sequence[Round]  # One read of the data (`ooc_svm.solvers.streamed_smo.rounds`)
    n_nonzeros: int  # Of the data
    effort: Effort
    seed: int = 0
    company: Company = field(default_factory=Company)  # The models that share the resident rows
    path: Path | None = None  # The models that differ in C alone
    _candidates: list[CandidateRows] = field(default_factory=list)
    _theta: float = 0.0
    _log_odds: float = 0.0  # Of the classes' costs, where no row is without a loss
    # Rows that are no longer resident, with their multipliers; the state has them after the next answer
    _leaving: list[tuple[Int64Array, Float64Array]] = field(default_factory=list)
    _solved: _Solved | None = None
    _looked_at: float = 0.0  # Nonzeros and rows that the last solve has looked at
    _gap_here: float = 0.0  # The row gaps that it saw
    # Not 0 when the run is to end in the middle of a solve
    _stop: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1, np.uint8))
    _origin: str | None = None  # The checkpoint that the state came from
    _n_with_cost: int | None = None  # Rows that cost something, where all of them may be resident
    _root: StreamedSmo | None = None  # The model whose row vectors are to be taken over, times a ratio
    rows: RowSet = field(init=False)  # All, in the lanes' order: passes over row vectors run where these do

    def __post_init__(self) -> None:
        self.rows = rows_of([each.rows for each in self.rounds])
        self.company.members.append(self)

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        return dict.fromkeys(self.model.row_vectors, np.float64)

    def solution(self) -> LinearFunction:
        return LinearFunction(self.state.best, self.state.best_b + self.state.center)

    def is_sound(self) -> bool:
        return self.state.is_sound(self.model.space.n_features, len(self.rounds))

    def metadata(self, n_rows: int) -> dict[str, float]:
        """Part of the report: rows looked at, as a multiple of the rows of the data."""
        return {"row_visits": self.state.visited / n_rows}

    def kept_scores(self) -> KeptScores:
        best = self.model.best
        return KeptScores(best, best, offset=self.state.best_b + self.state.center, rows=self.rows)

    def hints(self) -> dict[str, str]:
        space = self.model.space
        has_bias = self.model.free_bias or space.penalized_bias
        rows = self.state.multipliers.working_set.rows
        return rows.hints(space.n_features, scaled=space.scale is not None, has_bias=has_bias)

    def sample(self) -> Sample:
        """The first round of a read, all rows being scored."""
        first = self.rounds[0]
        zeros, no_rows = np.zeros(self.model.space.n_features), np.empty(0, dtype=np.int64)
        sweep = SweepPass(
            self.model, self.state.w, None, False, np.array([0.0, 1.0, 0.0]), 1.0, 0.0,
            self.state.multipliers.residency(first, no_rows, np.empty(0, np.bool_)),
            self.effort.visits, seed_of(self.seed), self._room, self._least_priority(),
            first.rows, first.position,
        )  # fmt: skip
        scores = ScorePass(self.model, zeros, first.rows, first.position)
        return Sample((), (sweep, scores), sweeps=self.effort.expected_sweeps)

    @property
    def _room(self) -> tuple[int, int]:
        """Nonzeros and rows together that the candidates of a lane may have, and how many they may be."""
        rows = self.state.multipliers.working_set.rows
        # Later fewer models may be swept as one.
        at_once = self.effort.at_once and self.certificate.passes == 0
        share = self.effort.offered * self.company.room(at_once=at_once)
        # Where all rows may be offered, a lane may have most of them.
        share /= self.effort.lanes if share < 1.0 else 1
        return math.ceil(share * rows.capacity), math.ceil(share * rows.most_pairs)

    def steps(self) -> Steps:
        yield from self.begin()
        while self.certificate.stop_reason is None:
            yield from self.iterate()
            self.certificate.record(self.stopping)
        self.certificate.n_support = yield from count_support(self.model, self.state, self.rows)

    def prune(self, features: npt.NDArray[np.bool_]) -> Steps:
        model, state, certificate = self.model, self.state, self.certificate
        target = Target.scored(model.space, model.space.without(state.best, features), state.best_b)
        yield from score_best(model, target.w, self.rounds, self.rows)
        state.best, state.rounding.scores, certificate.primal = target.w, target.error, math.inf
        yield from improve_best(model, state, self.rows, None, FLAT * self.stopping.tol)
        certificate.prune(certificate.primal, certificate.primal_rounding, self.stopping)
        certificate.n_support = yield from count_support(model, state, self.rows)

    def begin(self) -> Steps:
        """What comes before the first read."""
        state = self.state
        if state.unit == 0.0:
            state.center, state.unit = yield from place_targets(self.model, self.rows)
        self.model = replace(self.model, center=state.center)
        if self.model.free_bias and not self.model.has_end:
            self._log_odds = yield from log_odds(self.model, self.rows)
            if self.certificate.passes == 0 and not state.w.any() and math.isfinite(self._log_odds):
                state.b = self._log_odds
        if self._origin is not None:
            place = self.rounds, self.rows, self._origin
            yield from check_saved(self.model, state, self.stopping, place, self._log_odds)
        if state.rho == 0.0:
            state.rho, state.mean = yield from place_rows(self.model, self.rounds, self.rows)
        if self.company.holds_all(self.rows.n_rows, self.n_nonzeros):
            self._n_with_cost = yield from count_with_cost(self.model, self.rows)

    def iterate(self) -> Steps:
        """One read of the data; P and D after it are not recorded yet."""
        state, certificate = self.state, self.certificate
        reference, reference_b = state.point(self.model.space)
        if len(state.start):
            reference, reference_b = state.start, state.start_b - state.center
        # Without a point yet all scores are 0.
        scored = certificate.passes > 0 or len(state.start) > 0 or bool(state.best.any())
        yield from self._read(reference, scored)
        certificate.scale = state.scale
        towards = Target.scored(self.model.space, reference, reference_b) if scored else None
        yield from improve_best(self.model, state, self.rows, towards, FLAT * self.stopping.tol)
        certificate.set_dual(*self._bound())
        # In a chain a model follows another once that has been solved.
        at_once = self.effort.chains and self.effort.at_once and certificate.passes == 0
        chained = self.path if at_once and self._n_with_cost is not None else None
        if chained is None and not self.is_done():
            yield from self._follow_path()
        if not self.is_done():
            # The w of the moment is the next reference.
            solve = partial(self.solve_after, None) if chained is None else partial(chained.solve_chain, self)
            yield Overlap(
                (), solve, self._ahead, self.company.admit, self._end_solving, state.helper(self.model),
                self._looked_at,
            )  # fmt: skip
            if self._root is not None:
                yield take_over(self.model, self._root.model, self.rows)
                self._root = None
            certificate.set_dual(*self._bound())
            if len(state.start):
                self.state.choose_start(self.model)

    def is_done(self) -> bool:
        """Whether the gap is as small as wanted."""
        return self.stopping.certifies(self.certificate.upper, self.certificate.lower)

    def solve_after(self, before: StreamedSmo | None) -> None:
        """Solve the working set, from where a model of a smaller C ended if that is the better point."""
        ratio = 1.0 if before is None else self.model.C / before.model.C
        if before is not None and before.state.dual_at(self.model, ratio) > self.state.dual_at(self.model):
            self.let_go()
            self.state.go_on_from(before.state, self.model, ratio)
            self.state.waits, self._root = 0, before._root or before
        self._solve_working_set(last=True)
        self._adopt()

    def _follow_path(self) -> Steps:
        """Go on from where a model with a smaller C is, if that is better."""
        path, found = self.path, []
        if path is None:
            return
        yield Overlap((), lambda: found.append(path.origin(self)), first=path.choose)
        origin, state = found[0], self.state
        if origin is None:
            return
        ratio, other = self.model.C / origin.model.C, origin.state
        state.go_on_from(other, self.model, ratio)
        candidates, self._theta = origin.candidates()
        self._candidates = [part.rescaled(ratio) for part in candidates]
        target = Target(other.best, other.best_b, other.rounding.scores)
        yield take_over(self.model, origin.model, self.rows)
        yield from improve_best(self.model, state, self.rows, target, FLAT * self.stopping.tol)
        state.certificate.set_dual(*self._bound())

    def restart(self) -> list[StreamedSmo]:
        """Take the state for the start of a new run; the models that it is of."""
        return [self]

    def distrust(self, origin: str) -> None:
        self._origin = origin

    def _floor(self, w: Float64Array, linear: float, total: float) -> float:
        """The sum of row gaps below which the working set is not solved, with these multipliers."""
        D = dual_value(self.model.space, w, linear, total)
        return self.effort.floor * self.stopping.tol * max(D, 0.0)

    def _bound(self) -> tuple[float, float]:
        """D at the multipliers of the moment, and a bound of its rounding."""
        return lower_bound(self.model, self.state, self.rows.n_rows, self._log_odds)

    def _read(self, reference: Float64Array, scored: bool) -> Steps:
        """One read of the data, with all rows scored by the reference."""
        if self.state.is_large:
            # Models sum up their resident rows at the same time.
            yield Overlap((), apart=True)
        model, state, multipliers = self.model, self.state, self.state.multipliers
        working_set, rounding = multipliers.working_set, state.rounding
        at_start = working_set.ids
        held_at_start = scored and working_set.count_with_cost() == self._n_with_cost
        rebuild, foresight = begin_read(model, state, self.stopping, self.rounds, self.rows.n_rows)
        norms = rounding.rows[COST] == 0.0
        # A run that goes on from here has met no round, either.
        self._candidates, self.company.has_met = [], False
        averaged = model.unbounded and len(self.rounds) > 1
        mean, mean_b = np.zeros(model.space.n_features if averaged else 0), 0.0
        if model.free_bias and not norms and math.isfinite(self.certificate.upper):
            # With few rows of a model resident, the search for b may have gone astray.
            farthest = farthest_bias(model, state, self._log_odds)
            state.b = min(max(state.b, -farthest), farthest)
        for r, each in enumerate(self.rounds):
            back = each.inside(multipliers.returned)
            # Where all rows are held, and were at the start, there are no steps, nor parts of w to sum up.
            moves = not (held_at_start and working_set.count_with_cost() == self._n_with_cost)
            residency = multipliers.residency(each, at_start, back) if moves else None
            answers = yield Overlap(
                self._passes(r, residency, reference if scored else None, rebuild is not None, norms),
                self._solve_working_set, (), self.company.admit, self._end_solving, state.helper(model),
                self._looked_at, state.is_large,
            )  # fmt: skip
            answer: LaneSums = answers[0] if moves else LaneSums.without_steps(state.w)
            if norms:
                RowSums(rounding.rows, np.empty(0)).add(answers[-1].sums)
            # Only now: a checkpoint may have been written since.
            multipliers.met(back)
            if r == 0:
                read_began(state, rebuild)
            if rebuild is not None and moves:
                rebuild.w += answer.rebuilt
            rate = self._join(r, answer)
            if averaged:
                w, b = state.point(model.space)
                mean += w / len(self.rounds)
                mean_b += b / len(self.rounds)
            # The next round comes back with as much.
            del answers, answer
            if foresight is not None and (yield from foresight.ends(r, self._gap_here)):
                yield from self._only_score(r + 1, reference)
                break
            if r == 0 and norms:
                state.loosen(model)
            if model.free_bias:
                resident, answering = state.answering(model, r)
                rate = max(state.rho * answering, rate * min(answering, RELAXED * resident))
                state.b += state.limited(model, rate * multipliers.total)
        state.start, state.start_b = mean, mean_b + state.center
        if rebuild is not None:
            rebuild.end(state)
            if model.free_bias and state.creeps(rebuild.total, self.stopping.tol):
                state.rho = max(state.rho, min(FIRMER * state.rho, rounding.mean_square))

    def _only_score(self, first: int, reference: Float64Array) -> Steps:
        """The rounds of a read from ``first`` on, without steps."""
        for r in range(first, len(self.rounds)):
            yield Overlap(self._passes(r, None, reference, False, False), apart=self.state.is_large)
            # Other models go on, and may need the room.
            self.let_go()

    def _passes(
        self, r: int, residency: Residency | None, reference: Float64Array | None, rebuild: bool, norms: bool
    ) -> tuple[Pass, ...]:
        """The passes of a round: the steps, the scores, and the norms of the rows, if they are wanted."""
        model, state, each = self.model, self.state, self.rounds[r]
        place = each.rows, each.position, each.prefetch
        passes: list[Pass] = []
        if residency is not None:
            least = max(self.company.min_worth(), self._least_priority())
            sweep = SweepPass(
                model, state.w, state.mean_row, rebuild, state.bias(model.space), state.unit,
                float(state.multipliers.thetas[r]), residency, self.effort.visits,
                seed_of(self.seed, self.certificate.passes), self._room, least, *place,
            )  # fmt: skip
            passes.append(sweep)
        if reference is not None:
            passes.append(ScorePass(model, reference, *place))
        if norms:
            passes.append(NormPass(model, False, *place))
        return tuple(passes)

    @property
    def _ahead(self) -> tuple[int, ...]:
        """The blocks that the next read begins with, unless it is known that there is none."""
        certificate = self.certificate
        if self.stopping.reason(certificate.upper, certificate.lower, certificate.passes + 1) is not None:
            return ()
        return opening(self.rounds)

    def _least_priority(self) -> float:
        return self.state.least_priority(self.model, self.effort)

    def candidates(self) -> tuple[list[CandidateRows], float]:
        """Those of the last round, and its theta."""
        return list(self._candidates), self._theta

    def offer(self) -> tuple[list[CandidateRows], float, float]:
        """The candidates of the last round, its theta, and the lowest priority of a row worth keeping."""
        candidates, theta = self.candidates()
        # Cleared in place: the engine may still reference the answer.
        self._candidates.clear()
        return candidates, theta, self._least_priority()

    def leave(self) -> None:
        """Take no further part: rows that are resident for this model alone go with the next admission."""
        self.company.members.remove(self)
        self.path = None

    def part_with(self, ids: Int64Array, multipliers: Float64Array) -> None:
        """Rows leave the working set; a round that is under way does not know of it."""
        self._leaving.append((ids, multipliers))
        if self.certificate.stop_reason is not None:
            self.let_go()

    def let_go(self) -> None:
        """Know of the rows that have left, between two rounds."""
        for leaving in self._leaving:
            self.state.multipliers.leave(*leaving)
        self._leaving.clear()

    def _solve_working_set(self, last: bool = False) -> None:
        """Improve the resident rows."""
        state, model, multipliers = self.state, self.model, self.state.multipliers
        effort, working_set, self._gap_here = self.effort, multipliers.working_set, 0.0
        if not len(working_set.places):
            return
        w = state.w.copy()
        floor = self._floor(w, multipliers.linear, multipliers.total)
        near = self.certificate.relative_gap <= NEAR * self.stopping.tol
        hardness = hardness_after(self.certificate.history)
        share = (effort.last_share if near else effort.early_share) if last else effort.share / hardness
        wanted = max(share * float(state.gaps.sum()), floor)
        sweeps = effort.waiting_sweeps if state.waits else hardness * effort.sweeps
        most = max(int(sweeps * self.n_nonzeros / len(self.rounds)), WORTHWHILE)
        bias, b, rate = state.bias(model.space), state.b, state.rho
        follow = rate if state.is_loose(model.space) else 0.0
        seed = seed_of(self.seed, self.certificate.passes, int(state.visited))
        solve = partial(working_set.solve, model, w, bias, mean=state.mean_row, stop=self._stop)
        solve = partial(solve, patience=effort.patience, unit=state.unit, follow=follow)
        sums, longest = solve(seed, wanted, most)
        if last and effort.at_once:
            # No row elsewhere has a gap, and D, which the gap wanted is a share of, is nearly known.
            linear = multipliers.linear + float(sums[dual_loops.LINEAR])
            wanted = self._floor(w, linear, float(bias[dual_loops.TOTAL]))
            if not sums[dual_loops.GAP] <= wanted:
                sums[dual_loops.GAP] = 0.0
                more, later = solve(seed_of(seed, 1), wanted, most, again=self._root is None)
                sums, longest = sums + more, max(longest, later)
        if follow:
            b = float(bias[dual_loops.B] - rate * bias[dual_loops.TOTAL])
        if model.free_bias and (total := float(bias[dual_loops.TOTAL])):
            rate = working_set.bias_step(model, w, bias, rate * total) / total
        self._solved = _Solved(w, sums, b, rate, max(longest, model.space.norm(w)))
        self._looked_at = float(looked_at(sums))
        self._gap_here = float(sums[dual_loops.GAP])

    def _end_solving(self) -> None:
        self._stop[0] = 1

    def _adopt(self) -> float:
        """Make what the solving of the working set has changed the state of the moment; the rate of b."""
        state, solved = self.state, self._solved
        self._solved = None
        self.let_go()
        if solved is None:
            assert not len(state.multipliers.working_set.places)
            state.w = state.w.copy()  # `_join` changes it in place
            if state.is_loose(self.model.space):
                state.b = (1.0 - state.rho) * state.multipliers.total
            return state.rho
        state.w, state.b = solved.w, solved.b
        state.rounding.moved(solved.sums, solved.longest)
        state.multipliers.linear += float(solved.sums[dual_loops.LINEAR])
        state.multipliers.total += float(solved.sums[dual_loops.MOVED])
        state.visited += float(solved.sums[dual_loops.ROWS])
        return solved.rate

    def _join(self, r: int, answer: LaneSums) -> float:
        """Add the lanes' changes with the step that maximises D; returns the rate of b."""
        state, multipliers, s, before = self.state, self.state.multipliers, answer.sums, self.state.w
        rate = self._adopt()
        terms = (dual_loops.MOVED, dual_loops.LINEAR, dual_loops.QUADRATIC, dual_loops.MOMENT)
        moved, linear, quadratic, moment = (float(s[k]) for k in terms)
        along, square = dual_loops.lane_products(state.w, before, answer.w, self.model.space.scale2)
        b, rho, total = state.bias(self.model.space).tolist()
        slope = linear - along - b * moved + total * moment
        curvature = square - 2.0 * moved * moment + rho * moved * moved + quadratic
        theta = min(max(slope / curvature, 0.0), 1.0) if curvature > 0.0 else float(slope > 0.0)
        dual_loops.add_change(state.w, theta, before, answer.w)
        multipliers.linear += theta * linear - 0.5 * theta**2 * quadratic
        multipliers.total += theta * moved
        multipliers.thetas[r], state.gaps[r], state.free[r] = theta, s[dual_loops.GAP], s[dual_loops.FREE]
        state.visited += float(s[dual_loops.ROWS])
        state.rounding.moved(s, self.model.space.norm(state.w))
        self._candidates, self._theta = answer.candidates, theta
        self.company.has_met = True
        return rate
