"""Sequential minimal optimisation streamed from disk, with a resident working set.

    min_w  P(w, b) = 1/2 |w|^2 + sum_i loss_i(t_i - w.x_i - b)
    max_v  D(v) = sum_i (t_i v_i - loss*_i(v_i)) - 1/2 |sum_i v_i x_i|^2

`ooc_svm.losses.functions` has the terms. Platt (1998) changes one multiplier at a time where the
threshold is fixed (equation 23), and alternates passes over all rows with passes over the non-bound ones.
Here the pass over all rows is a read of the data and the non-bound rows are held in memory. A read is cut
into rounds:

1. Fresh rows: each lane of a round begins with the same w, moves its rows once and returns the change of w;
   the changes are added with the step ``theta`` in [0, 1] that maximises D.
2. The working set takes the rows best worth keeping, of the fresh ones and its own.
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
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.passes.base import Overlap, Pass, Position, RowSet, rows_of
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.base import Sample, Solver, Steps
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.grid_minimum import lowest
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel, LossCount, LossesAlong, MoveBest
from ooc_svm.solvers.streamed_smo.effort import NEAR, Effort
from ooc_svm.solvers.streamed_smo.multipliers import Multipliers, inside
from ooc_svm.solvers.streamed_smo.rounds import Round, opening
from ooc_svm.solvers.streamed_smo.sweep import (
    CandidateRows,
    LaneSums,
    NormPass,
    ScorePass,
    SweepPass,
    seed_of,
)
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

RHO = 0.1  # rho of a free bias, as a share of the mean squared norm of a row

# Lowest priority of candidates, as a share of the lowest that the working set last kept: most rows need no
# copying then (measured: it costs no reads).
CANDIDATE_SHARE = 0.95

# Largest distance of the values around the smallest P at the end of a search, as a share of the gap wanted.
FLAT = 0.01

EXPECTED_SWEEPS = 3  # Sweeps over as many rows as the data has, which the solves of one read amount to
LARGE_SPREAD = 100.0  # Factor between the sizes of the columns above which a hint is given


@dataclass(slots=True)
class SmoState:
    """Everything the solver knows between two reads, besides the row vectors."""

    # shape (n_features,): weights of the multipliers and of the best point, in units of the data
    w: Float64Array
    best: Float64Array
    multipliers: Multipliers = field(metadata={"saved_as": ""})
    gaps: Float64Array  # shape (rounds,): the sum of the row gaps that each round saw before its steps
    certificate: Certificate
    # Multiplier of the free bias; the bias of the best point
    b: float = 0.0
    best_b: float = 0.0
    # What the bias adds to the squared norm of a row: 1 for a penalized one, 0 without one
    rho: float = 0.0
    visited: float = 0.0  # Rows looked at so far
    start: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (n_features,) or (0,)
    start_b: float = 0.0  # Weights that the first read scores the rows with, and their bias; none if empty

    @classmethod
    def fresh(cls, n_features: int, n_rounds: int, working_set: WorkingSet) -> SmoState:
        """The state before the first read."""
        w, best, (thetas, gaps) = np.zeros(n_features), np.zeros(n_features), np.zeros((2, n_rounds))
        return cls(w, best, Multipliers(working_set, thetas), gaps, Certificate())

    @property
    def bias(self) -> float:
        """The bias of the moment."""
        return self.b + self.rho * self.multipliers.total

    def is_sound(self, n_features: int, n_rounds: int) -> bool:
        """Whether the parts fit each other and the data; a saved state may come from anywhere."""
        return (
            self.w.shape == self.best.shape == (n_features,)
            and self.gaps.shape == (n_rounds,)
            and len(self.start) in (0, n_features)
            and self.certificate.is_sound()
            and self.multipliers.is_sound(n_features, n_rounds)
        )


@dataclass(slots=True)
class _Solved:
    """What the solving of the working set has changed."""

    w: Float64Array
    sums: Float64Array
    leaving: tuple[Int64Array, Float64Array]


@dataclass(slots=True)
class StreamedSmo(Solver):
    """The solver of one model: `steps` yields the rounds of reads, and passes over row vectors."""

    model: DualModel
    stopping: Stopping
    state: SmoState
    rounds: Sequence[Round]  # One read of the data (`ooc_svm.solvers.streamed_smo.rounds`)
    n_nonzeros: int  # Of the data
    effort: Effort
    seed: int = 0
    _candidates: list[CandidateRows] = field(default_factory=list)
    _theta: float = 0.0
    _solved: _Solved | None = None
    _rows: RowSet = field(init=False)
    """All rows, in the lanes' order: passes over row vectors run where the lanes' rows are."""

    def __post_init__(self) -> None:
        self._rows = rows_of([each.rows for each in self.rounds])

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        return dict.fromkeys(self.model.row_vectors, np.float64)

    def solution(self) -> tuple[Float64Array, float]:
        return self.state.best, self.state.best_b

    def is_sound(self) -> bool:
        return self.state.is_sound(self.model.space.n_features, len(self.rounds))

    def metadata(self, n_rows: int) -> dict[str, float]:
        """Part of the report: rows looked at, as a multiple of the rows of the data."""
        return {"row_visits": self.state.visited / n_rows}

    def hint(self) -> str | None:
        spread = self.state.multipliers.working_set.column_spread(self.model.space.n_features)
        if spread <= LARGE_SPREAD or self.model.space.scale is not None:
            return None
        return (
            f"the columns differ in size by a factor of {spread:.0e}: that takes many passes; "
            "--scale maxabs or std trains on columns of one size"
        )

    def sample(self) -> Sample:
        """The first round of a read, all rows being scored."""
        first = self.rounds[0]
        zeros = np.zeros(self.model.space.n_features)
        nobody = np.empty(0, dtype=np.int64)
        sweep = SweepPass(
            self.model, self.state.w, False, np.array([0.0, 1.0]), 0.0,
            self.state.multipliers.residency(first.rows, nobody, np.empty(0, np.bool_)),
            seed_of(self.seed), self._room, self._min_priority, first.rows, first.position,
        )  # fmt: skip
        scores = ScorePass(self.model, zeros, first.rows, first.position)
        return Sample((), (sweep, scores), n_sweeps=EXPECTED_SWEEPS)

    @property
    def _room(self) -> int:
        """Nonzeros and rows together that the candidates of a lane may have."""
        capacity = self.state.multipliers.working_set.capacity
        return math.ceil(self.effort.offered * capacity / self.effort.lanes)

    def steps(self) -> Steps:
        state, certificate = self.state, self.certificate
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
                yield Overlap((), partial(self._solve_working_set, last=True), self._ahead)
                self._adopt()
                bound = self._bound()
            certificate.record(bound, self.stopping)
        counted = yield RowPass(LossCount(self.model, state.best_b), self._rows)
        certificate.n_support = int(counted[0])

    def rescale(self, ratio: float) -> None:
        """Go on from the state of the same problem whose C, times ``ratio``, is the one here.

        Multipliers times ``ratio`` are feasible here, and w, D's linear part and their sum move with them.
        The best point stays, and so do its losses but for C. The row vectors of multipliers and steps are
        left to the caller.
        """
        state = self.state
        state.w = state.w * ratio
        state.gaps *= ratio
        state.multipliers.rescale(ratio)
        state.rho = 0.0
        norm = self._inner(state.best, state.best)
        if self.model.space.penalized_bias:
            norm += state.best_b * state.best_b
        primal = 0.5 * norm + ratio * (self.certificate.primal - 0.5 * norm)
        state.certificate = Certificate(primal=primal)

    def _bias_norm(self) -> Generator[Pass, Any, float]:
        """rho; for a free bias from the norms of the first rows, which are read next anyway."""
        if not self.model.free_bias:
            return float(self.model.space.penalized_bias)
        first = next(segment for segment in self.rounds[0].rows.segments if segment)[:1]
        # A part of a read: no read ends with it.
        part = Position(0, 1, 2)
        squares, n_rows = yield NormPass(
            self.model.space.scale2, RowSet((first,)), part, opening(self.rounds)
        )
        all_rows = sum(p.n_rows for each in self.rounds for segment in each.rows.segments for p in segment)
        # With a small C all multipliers together are small, and have to move b all the same.
        return max(RHO * float(squares / n_rows), 1.0 / (self.model.C * all_rows))

    def _inner(self, u: Float64Array, v: Float64Array) -> float:
        scale2 = self.model.space.scale2
        return float(u @ v) if scale2 is None else float((u / scale2) @ v)

    def _dual(self, w: Float64Array, linear: float) -> float:
        """D at multipliers with these weights and this linear part."""
        total = self.state.multipliers.total
        penalty = total * total if self.model.space.penalized_bias else 0.0
        return linear - 0.5 * (self._inner(w, w) + penalty)

    def _bound(self) -> float:
        """D at a feasible point: the multipliers of the moment, with a free bias made to sum up to 0."""
        state, multipliers = self.state, self.state.multipliers
        if not self.model.free_bias:
            return self._dual(state.w, multipliers.linear)
        w = state.w.copy()
        gain, rest = multipliers.working_set.absorb(self.model, multipliers.total, w)
        bound = self._dual(w, multipliers.linear + gain)
        # No row moves: feasible, and D is 0.
        return max(bound, 0.0) if rest == 0.0 or math.isnan(bound) else 0.0

    def _read(self, reference: Float64Array, scored: bool) -> Steps:
        """One read of the data, with all rows scored by the reference."""
        model, state, multipliers = self.model, self.state, self.state.multipliers
        number = self.certificate.passes
        rebuild = number > 0 and self._near
        working_set = multipliers.working_set
        at_start = np.sort(working_set.ids)
        rebuilt = working_set.sum_of_rows(model) if rebuild else np.empty(0)
        self._candidates = []
        for r, each in enumerate(self.rounds):
            back = inside(multipliers.returned, each.rows)
            least = max(CANDIDATE_SHARE * working_set.cutoff, self._min_priority)
            place = each.rows, each.position, each.prefetch
            sweep = SweepPass(
                model, state.w, rebuild, np.array([state.bias, state.rho]), float(multipliers.thetas[r]),
                multipliers.residency(each.rows, at_start, back), seed_of(self.seed, number), self._room,
                least, *place,
            )  # fmt: skip
            scores = ScorePass(model, reference, *place)
            requests = (sweep, scores) if scored else (sweep,)
            answer: LaneSums = (yield Overlap(requests, self._solve_working_set))[0]
            # Only now: a checkpoint may have been written since.
            multipliers.met(back)
            if rebuild:
                rebuilt += answer.rebuilt
            self._join(r, answer)
            if model.free_bias:
                state.b = state.bias
        if rebuild:
            # Many small steps leave a residue.
            state.w = state.w + (rebuilt - reference)

    @property
    def _ahead(self) -> tuple[int, ...]:
        """The blocks that the next read begins with, unless it is known that there is none."""
        certificate = self.certificate
        if self.stopping.reason(certificate.primal, certificate.dual, certificate.passes + 1) is not None:
            return ()
        return opening(self.rounds)

    @property
    def _near(self) -> bool:
        return self.certificate.relative_gap <= NEAR * self.stopping.tol

    @property
    def _min_priority(self) -> float:
        """The priority of a row out of reach; what is far in a regression depends on the values' unit."""
        return 1.0 / (1.0 + self.effort.margin_reach) if self.model.targets.in_margins else 0.0

    def _solve_working_set(self, last: bool = False) -> None:
        """Take in the candidates of the last round, and improve the resident rows."""
        state, model, multipliers = self.state, self.model, self.state.multipliers
        effort, working_set = self.effort, multipliers.working_set
        leaving = working_set.take(model, self._candidates, self._theta, self._min_priority)
        # Cleared in place: the engine may still reference the answer.
        self._candidates.clear()
        w = state.w.copy()
        floor = effort.floor * self.stopping.tol * max(self._dual(w, multipliers.linear), 0.0)
        share = (effort.last_share if self._near else effort.early_share) if last else effort.share
        wanted = max(share * float(state.gaps.sum()), floor)
        most = int(effort.sweeps * self.n_nonzeros / len(self.rounds))
        seed = seed_of(self.seed, self.certificate.passes, int(state.visited))
        bias = np.array([state.bias, state.rho])
        sums = working_set.solve(model, w, bias, seed, wanted, most)
        self._solved = _Solved(w, sums, leaving)

    def _adopt(self) -> None:
        """Make what the solving of the working set has changed the state of the moment."""
        state, solved = self.state, self._solved
        assert solved is not None
        self._solved = None
        state.w = solved.w
        state.multipliers.linear += float(solved.sums[dual_loops.LINEAR])
        state.multipliers.total += float(solved.sums[dual_loops.MOVED])
        state.visited += float(solved.sums[dual_loops.ROWS])
        state.multipliers.leave(*solved.leaving)

    def _join(self, r: int, answer: LaneSums) -> None:
        """Add the lanes' changes with the step that maximises D."""
        state, multipliers, s, before = self.state, self.state.multipliers, answer.sums, self.state.w
        self._adopt()
        terms = (dual_loops.MOVED, dual_loops.LINEAR, dual_loops.QUADRATIC)
        moved, linear, quadratic = (float(s[k]) for k in terms)
        along, square = dual_loops.lane_products(state.w, before, answer.w, self.model.space.scale2)
        slope = linear - along - state.bias * moved
        curvature = square + state.rho * moved * moved + quadratic
        theta = min(max(slope / curvature, 0.0), 1.0) if curvature > 0.0 else float(slope > 0.0)
        dual_loops.add_change(state.w, theta, before, answer.w)
        multipliers.linear += theta * linear - 0.5 * theta**2 * quadratic
        multipliers.total += theta * moved
        multipliers.thetas[r], state.gaps[r] = theta, s[dual_loops.GAP]
        state.visited += float(s[dual_loops.ROWS])
        self._candidates, self._theta = answer.candidates, theta

    def _improve_best(
        self, reference: Float64Array, reference_b: float, scored: bool
    ) -> Generator[Pass, Any, None]:
        """Move the best point to the best one of the segment to the reference, by exact values of P."""
        model, state, certificate = self.model, self.state, self.certificate
        change, change_b = reference - state.best, reference_b - state.best_b
        penalized = float(model.space.penalized_bias)
        n0 = self._inner(state.best, state.best) + penalized * state.best_b * state.best_b
        n1 = 2 * (self._inner(state.best, change) + penalized * state.best_b * change_b)
        n2 = self._inner(change, change) + penalized * change_b * change_b

        def along(t: Float64Array) -> Generator[Pass, Any, Float64Array]:
            points = np.column_stack([t, state.best_b + t * change_b])
            losses: Float64Array = yield RowPass(LossesAlong(model, model.newest, points), self._rows)
            return 0.5 * (n0 + t * n1 + t**2 * n2) + losses

        def over_bias(b: Float64Array) -> Generator[Pass, Any, Float64Array]:
            points = np.column_stack([np.zeros(len(b)), b])
            losses: Float64Array = yield RowPass(LossesAlong(model, model.best, points), self._rows)
            return 0.5 * self._inner(state.best, state.best) + losses

        tolerance = FLAT * self.stopping.tol
        if not math.isfinite(certificate.primal):
            certificate.primal = float((yield from along(np.zeros(1)))[0])
        if scored:
            t, primal = yield from lowest(along, 0.0, 2.0, tolerance)
            if primal < certificate.primal:
                yield RowPass(MoveBest(model, t), self._rows)
                state.best = state.best + t * change
                state.best_b += t * change_b
                certificate.primal = primal
        if model.free_bias:
            b, primal = yield from lowest(over_bias, state.best_b - 1.0, state.best_b + 1.0, tolerance)
            if primal < certificate.primal:
                state.best_b, certificate.primal = b, primal
