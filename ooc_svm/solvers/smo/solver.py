"""Platt, Sequential Minimal Optimization (1998), out of core.

    min_w,b  P(w, b) = 1/2 |w|^2 + sum_i c_i max(0, 1 - y_i (w.x_i + b))
    max      D(alpha) = sum_i alpha_i - 1/2 |sum_i alpha_i y_i x_i|^2,   0 <= alpha_i <= c_i,  y.alpha = 0

The main routine alternates one pass over all rows with passes over those at no bound, until these are
consistent (section 2.2). Here the pass over all rows is a read of the data, and the rows at no bound are kept
in memory. A read comes in rounds:

1. The rows of the round are examined where they are: those that violate the KKT conditions come back.
2. Each of them is optimized with a second one. The hierarchy of second choices goes over the rows at no
   bound, and then over all rows in memory in place of the entire training set.
3. Multipliers at a bound go back to where the rows are; rows at no bound stay.

Between two reads there are passes over the rows in memory. Where the threshold is fixed (a penalized bias or
none), multipliers move one at a time (equation 23). The algorithm is one sequence of steps, so its bits
depend on nothing else; what threads share is the scoring of rows.

The tolerance of the KKT conditions begins with the paper's, and becomes finer when a read has changed
nothing. The run ends when ``P - D <= tol P``: P is that of the weights and multipliers that a read began
with, D that of the same multipliers with w summed again from the rows. With a free bias, P takes the b that is
best for the scores, and D is charged with what rounding has left of ``y.alpha``, times the largest b that an
optimum can have.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import BoolArray, Float64Array
from ooc_svm.errors import DamageError
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import Overlap, Position, Request, RowSet, rows_of
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.passes.of_rows import of_rows
from ooc_svm.passes.rowwise import CopyScores, RowPass
from ooc_svm.solvers.base import KeptScores, Sample, Solver, Steps
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.quantile import weighted_quantiles
from ooc_svm.solvers.cutting_plane.row_rules import LossesAt, TargetPass, TargetSums
from ooc_svm.solvers.rounding import Rounding
from ooc_svm.solvers.smo import smo_loops
from ooc_svm.solvers.smo.examine_pass import (
    ALPHA,
    BOUND,
    FREE,
    OUTSIDE,
    TOTAL,
    Examined,
    ExaminePass,
    PutMultipliers,
    SmoModel,
)
from ooc_svm.solvers.smo.rows import HeldRows
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.rounds import Round

KKT_TOLERANCE = 1e-3  # The paper's: of outputs on the margin, which are 1
FINER = 0.25  # The tolerance becomes so many times as large when a read has changed nothing
# The paper's eps, the least change of a multiplier that is progress, as a share of the tolerance. With a larger
# one, steps of the first second choice are refused, and most time goes to trying all others (measured).
PROGRESS = 1e-3

# Elements that one call of a compiled loop goes through: a fraction of a second, after which an interrupt is
# seen. Between two reads there are so many calls at least, and so many times the elements of the data.
WORK_A_CALL, CALLS, WORK_A_READ = 1e8, 8, 50.0


@dataclass(slots=True)
class SmoState:
    """Everything the solver knows between two reads, besides the row vectors."""

    # shape (n_features,): weights of the multipliers and of the best point, in units of the data
    w: Float64Array
    best: Float64Array
    held: HeldRows  # The rows at no bound
    certificate: Certificate
    # shape (smo_loops.N_NUMBERS,): threshold, steps and other numbers of the run
    run: Float64Array = field(default_factory=lambda: np.zeros(smo_loops.N_NUMBERS))
    best_b: float = 0.0
    tol: float = KKT_TOLERANCE
    # Multipliers at no bound and at c when the last read began
    n_free: float = 0.0
    n_bound: float = 0.0

    def is_sound(self, n_features: int) -> bool:
        """Whether the parts fit each other and the data; a saved state may come from anywhere."""
        return (
            self.w.shape == self.best.shape == (n_features,)
            and self.run.shape == (smo_loops.N_NUMBERS,)
            and bool(np.isfinite(self.run).all() and np.isfinite(self.w).all())
            and 0.0 < self.tol <= KKT_TOLERANCE
            and self.certificate.is_sound()
            and self.held.is_sound(n_features)
        )


@dataclass(slots=True, eq=False)
class Smo(Solver):
    """The solver of one model."""

    model: SmoModel
    space: LinearSpace  # With the free bias, if there is one
    stopping: Stopping
    state: SmoState
    rounds: Sequence[Round]  # One read of the data
    capacity: int  # Nonzeros and rows together that are kept in memory between two rounds
    n_nonzeros: int  # Of the data
    seed: int = 0
    _targets: TargetSums = field(default_factory=TargetSums)
    _rounding: Rounding | None = None  # Known after the first read
    _origin: str | None = None  # The checkpoint that the state came from
    _longest: float = math.inf  # The largest norm of a row
    _changed: int = 0  # Rows that the last read has led to progress with
    rows: RowSet = field(init=False)
    """All rows, in the order of the read: passes over row vectors run where its rows are."""

    def __post_init__(self) -> None:
        self.rows = rows_of([each.rows for each in self.rounds])

    @property
    def free_bias(self) -> bool:
        """Whether multipliers move in pairs."""
        return self.space.n_free > 0

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        return dict.fromkeys((self.model.alpha, self.model.best), np.float64)

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return {self.model.scores: np.float64}

    def solution(self) -> tuple[Float64Array, float]:
        return self.state.best, self.state.best_b

    def is_sound(self) -> bool:
        return self.state.is_sound(self.space.n_features)

    def distrust(self, origin: str) -> None:
        self._origin = origin

    def metadata(self, n_rows: int) -> dict[str, float]:
        """Part of the report: support vectors at no bound and at C; steps; the tolerance reached."""
        state = self.state
        return {
            "non_bound_support": state.n_free,
            "bound_support": state.n_bound,
            "steps": float(state.run[smo_loops.STEPS]),
            "row_visits": float(state.run[smo_loops.EXAMINED]) / n_rows,
            "kkt_tolerance": state.tol,
        }

    def kept_scores(self) -> KeptScores:
        return KeptScores(self.model.best, self.model.best, offset=self.state.best_b, rows=self.rows)

    def sample(self) -> Sample:
        """The first round of a read."""
        first = self.rounds[0]
        return Sample((), (self._pass(first, first.position, self.state.w),), sweeps=(1.0, 20.0))

    def steps(self) -> Steps:
        certificate, run = self.certificate, self.state.run
        run[smo_loops.OFFSET], run[smo_loops.PAIRS] = self.space.penalized_bias, self.free_bias
        self._targets = yield from of_rows(_single(TargetPass(self.model.losses)), self.rows)
        if self._origin is not None:
            yield from self._check_saved()
        while certificate.stop_reason is None:
            yield from self._read()
            if not self.stopping.certifies(certificate.upper, certificate.lower):
                yield from self._pass_over_held_rows()
                if not self._changed:
                    self.state.tol *= FINER
            certificate.record(self.stopping)

    def _pass(
        self, each: Round, position: Position, start: Float64Array, measure: bool = False
    ) -> ExaminePass:
        """The pass of a round of a read that began with these weights."""
        state = self.state
        return ExaminePass(
            self.model, self.space.scale2, start, state.w if self._changed else start, float(state.run[smo_loops.B]), state.tol,
            np.sort(state.held.ids), measure, each.rows, position, each.prefetch,
        )  # fmt: skip

    def _read(self) -> Steps:
        """One pass over all rows; P and D of the point that it begins with."""
        state, start, measure = self.state, self.state.w, self._rounding is None
        b = float(state.run[smo_loops.B])
        found, self._changed = Examined(np.zeros(len(start))), 0
        state.w = start.copy()
        for each in self.rounds:
            part: Examined = yield self._pass(each, each.position, start, measure)
            found.add(part)
            yield from self._optimize(each, part.violators)
        if measure:
            self._measured(found.magnitudes)
        self._refuse_outside(found)
        # Many small steps leave a residue.
        state.w += found.weights - start
        if not self.free_bias:
            state.run[smo_loops.B] += self.space.penalized_bias * (float(found.sums[TOTAL]) - b)
        state.n_free, state.n_bound = float(found.sums[FREE]), float(found.sums[BOUND])
        yield from self._offer_primal(start, b)
        self.certificate.offer_dual(*self._bound(found))

    def _optimize(self, each: Round, violators: Sequence[HeldRows]) -> Steps:
        """Optimize the rows that a round has brought, and keep those at no bound."""
        if not violators:
            return
        state, n_held = self.state, len(self.state.held.ids)
        rows = HeldRows.joined([state.held, *violators])
        before = rows.multipliers.copy()
        changed: list[int] = []
        yield Overlap((), lambda: changed.append(self._examine(rows, n_held, only_free=False)))
        self._changed += changed[0]
        moved = rows.multipliers[n_held:] != before[n_held:]
        if moved.any():
            yield self._put(rows, np.concatenate([np.zeros(n_held, np.bool_), moved]), each.rows)
        stays = rows.is_free
        stays[:n_held] = True
        state.held = rows.chosen(stays & self._fits(rows, stays))

    def _fits(self, rows: HeldRows, wanted: BoolArray) -> BoolArray:
        """The first of the rows wanted that there is room for."""
        sizes = np.where(wanted, np.diff(rows.indptr) + 1, 0)
        fitting: BoolArray = np.cumsum(sizes) <= self.capacity
        return fitting

    def _pass_over_held_rows(self) -> Steps:
        """Passes over the rows at no bound until they are consistent."""
        state, rows = self.state, self.state.held
        if not len(rows.ids):
            return
        yield Overlap((), lambda: self._make_consistent(rows))
        yield self._put(rows, np.ones(len(rows.ids), np.bool_), self.rows)
        state.held = rows.chosen(rows.is_free)

    def _make_consistent(self, rows: HeldRows) -> None:
        run = self.state.run
        end = run[smo_loops.WORK] + max(CALLS * WORK_A_CALL, WORK_A_READ * self.n_nonzeros)
        while self._examine(rows, 0, only_free=True) and run[smo_loops.WORK] < end:
            pass

    def _examine(self, rows: HeldRows, first: int, *, only_free: bool) -> int:
        """One pass over the rows in memory from the first one; returns how many have led to progress."""
        state = self.state
        y, c, alpha, outputs = np.ascontiguousarray(rows.known.T)
        squares, (z1, z2) = np.empty(len(y)), np.zeros((2, len(state.w)))
        scale2, every = self.space.scale2, np.arange(len(y), dtype=np.uint64)
        row_ops.row_squares(*rows.arrays, scale2, every, squares)
        row_ops.row_scores(*rows.arrays, every, state.w, outputs)
        arrays = (*rows.arrays, scale2, squares, y, c, alpha, outputs, state.w, z1, z2)
        changed, seed = 0, np.uint64(self.seed)
        while first < len(y):
            found, first = smo_loops.examine_rows(
                None, arrays, state.run, first, only_free, state.tol, PROGRESS * state.tol, seed,
                WORK_A_CALL,
            )  # fmt: skip
            changed += found
        rows.known[:, 2], rows.known[:, 3] = alpha, outputs
        return changed

    def _put(self, rows: HeldRows, chosen: BoolArray, where: RowSet) -> RowPass:
        """Write multipliers to where the rows are."""
        places = np.flatnonzero(chosen)
        places = places[np.argsort(rows.ids[places])]
        return RowPass(PutMultipliers(self.model, rows.ids[places], rows.multipliers[places]), where)

    def _measured(self, found: Magnitudes) -> None:
        """Know what rounding can change; bounds are weights here, so C is in them."""
        self._rounding = Rounding.of_rows(found, self.space, 1.0)
        self.certificate.scale = self._rounding.weight
        self._longest = math.sqrt(found.square)

    def _point(self, w: Float64Array, b: float) -> Float64Array:
        """Weights and bias in the coordinates of the space."""
        own = w if self.space.scale is None else w / self.space.scale
        return np.append(own, b) if self.space.dimension > len(w) else own

    def _offer_primal(self, w: Float64Array, fixed: float) -> Generator[Request, Any, None]:
        """P at some weights, whose scores are in the row vector; with the b that is best for them."""
        model = self.model
        b = yield from of_rows(self._bias_of(fixed), self.rows)
        sums: Float64Array = yield RowPass(LossesAt(model.losses, 0.0, (b, 0.0)), self.rows)
        value = self._primal(w, b, float(sums[0]))
        if self.certificate.offer_primal(*value):
            self.state.best, self.state.best_b = w, b
            self.certificate.n_support = int(sums[1])
            yield RowPass(CopyScores(model.scores, model.best), self.rows)

    def _primal(self, w: Float64Array, b: float, loss: float) -> tuple[float, float]:
        """P where the losses sum up to ``loss`` times C, and a bound of its rounding."""
        assert self._rounding is not None
        rounding, point = self._rounding, self._point(w, b)
        error = rounding.losses(rounding.scores(point), rounding.rows + 8.0, rounding.products(point))
        half = 0.5 * (self.space.inner(w, w) + self.space.penalized_bias * b * b)
        return half + self.model.C * loss, rounding.primal(1.0, point, error)

    def _bias_of(self, fixed: float) -> Generator[Request, Any, float]:
        """The bias of P: a fixed threshold, or without penalty the middle of the best ones for the scores."""
        if not self.free_bias:
            return fixed
        wanted = [(0.0, self._targets.falling)]
        [(low, high)] = yield from weighted_quantiles(self.model.losses, 0.0, wanted, self._targets.n_rows)
        return 0.5 * low + 0.5 * high

    def _bound(self, found: Examined) -> tuple[float, float]:
        """D at the multipliers that a read began with, and a bound of its rounding."""
        assert self._rounding is not None
        rounding, w = self._rounding, found.weights
        linear, total = float(found.sums[ALPHA]), float(found.sums[TOTAL])
        box = 1.01 * (1.0 + self._longest * math.sqrt(2.0 * max(self.certificate.upper, 0.0)))
        value = linear - 0.5 * (self.space.inner(w, w) + self.space.penalized_bias * total * total)
        if self.free_bias:
            value -= box * abs(total)
        point = self._point(w, 0.0 if self.free_bias else total)
        return value, rounding.dual(linear, 1.0, 1, point, rounding.rows + 8.0, box)

    def _check_saved(self) -> Steps:
        """Before a resumed run goes on: find P and D again by a read that is not counted.

        What cannot be true is refused; a state that is as the solver saved it does not change.
        """
        state, certificate = self.state, self.certificate
        found = Examined(np.zeros(len(state.w)))
        for each in self.rounds:
            position = Position(each.position.before, each.position.own, each.position.total + 1)
            check = replace(self._pass(each, position, state.best, measure=True), now=None)
            found.add((yield check))
        self._measured(found.magnitudes)
        self._refuse_outside(found)
        sums = yield RowPass(LossesAt(self.model.losses, 0.0, (state.best_b, 0.0)), self.rows)
        primal, error = self._primal(state.best, state.best_b, float(sums[0]))
        if not abs(primal - certificate.primal) <= error + certificate.primal_rounding:
            raise self._damage(f"it says that P is {certificate.primal!r}, and it is {primal!r}")
        dual, error = self._bound(found)
        if not certificate.lower <= dual + error:
            raise self._damage(f"it says that D is {certificate.dual!r}, and it is {dual!r}")
        yield RowPass(CopyScores(self.model.scores, self.model.best), self.rows)
        certificate.reopen(self.stopping)

    def _refuse_outside(self, found: Examined) -> None:
        if found.sums[OUTSIDE] and self._origin is not None:
            raise self._damage(f"{int(found.sums[OUTSIDE])} multipliers are outside their bounds")

    def _damage(self, what: str) -> DamageError:
        return DamageError(
            f"the checkpoint in {self._origin} does not fit the data: {what}; start the run again"
        )


def _single(request: Request) -> Generator[Request, Any, Any]:
    return (yield request)
