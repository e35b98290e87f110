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
with, D that of the same multipliers with w summed again from the rows. With a free bias, P takes the b that
is best for the scores, and D is charged with what rounding has left of ``y.alpha``, times the largest b that
an optimum can have.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import BoolArray, Float64Array
from ooc_svm.passes.base import Overlap, Request, RowSet, Steps, rows_of
from ooc_svm.passes.of_rows import of_rows
from ooc_svm.passes.rowwise import CopyScores, RowPass
from ooc_svm.solvers.base import KeptScores, Sample, Solver
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.quantile import weighted_quantiles
from ooc_svm.solvers.cutting_plane.row_rules import LossesAt, TargetPass, TargetSums
from ooc_svm.solvers.smo import examine_pass, smo_loops
from ooc_svm.solvers.smo.examine_pass import (
    Examined,
    ExaminePass,
    PutMultipliers,
    Scorer,
    ScoresApart,
    SmoModel,
)
from ooc_svm.solvers.smo.rows import ALPHA, OUTPUT, STORED, C, HeldRows, Y
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.rounds import Round

KKT_TOLERANCE = 1e-3  # The paper's: of outputs on the margin, which are 1
FINER = 0.25  # The tolerance becomes so many times as large when a read has changed nothing

# The paper's eps, the least change of a multiplier that is progress, as a share of the tolerance. With a
# larger one steps of the first second choice are refused, and trying all others takes most time (measured).
PROGRESS = 1e-3

# Elements that one call of a compiled loop goes through: a fraction of a second, after which an interrupt is
# seen. Between two reads there are so many calls at least, and so many times the elements of the data.
WORK_A_CALL, CALLS, WORK_A_READ = 1e7, 80, 50.0


@dataclass(slots=True)
class SmoState:
    """Everything the solver knows between two reads, besides the row vectors."""

    held: HeldRows  # The rows at no bound; with a kernel all support vectors
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
            self.run.shape == (smo_loops.N_NUMBERS,)
            and bool(np.isfinite(self.run).all())
            and 0.0 < self.tol <= KKT_TOLERANCE
            and self.certificate.is_sound()
            and self.held.is_sound(n_features)
        )


@dataclass(slots=True, eq=False)
class Smo(Solver):
    """The solver of one model; what a point is, weights or an expansion, is left to its two kinds."""

    model: SmoModel
    space: LinearSpace  # With the free bias, if there is one
    stopping: Stopping
    state: Any  # SmoState, with what a kind keeps besides
    rounds: Sequence[Round]  # One read of the data
    capacity: int  # Nonzeros and rows together that are kept in memory between two rounds
    n_nonzeros: int  # Of the data
    seed: int = 0
    _targets: TargetSums = field(default_factory=TargetSums)
    _objective: Any = None  # See `ooc_svm.solvers.smo.objective`; known after the first read
    _origin: str | None = None  # The checkpoint that the state came from
    _changed: int = 0  # Rows that the last read has led to progress with
    rows: RowSet = field(init=False)
    """All rows, in the order of the read: passes over row vectors run where its rows are."""

    def __post_init__(self) -> None:
        self.rows = rows_of([each.rows for each in self.rounds])

    @abstractmethod
    def _begin_read(self) -> Steps:
        """The point of the moment becomes that of the beginning of a read."""

    @abstractmethod
    def _scorer(self) -> Scorer:
        """The points that a read began with and of the moment."""

    @abstractmethod
    def _arrays(self, rows: HeldRows) -> tuple[Any, Any]:
        """The kernel and the rows in memory as compiled loops take them, outputs filled."""

    @abstractmethod
    def _stays(self, rows: HeldRows) -> BoolArray:
        """Which rows are kept in memory between two rounds."""

    @abstractmethod
    def _end_read(self, found: Examined) -> Any:
        """Take the sums of the read; the point that it began with."""

    @abstractmethod
    def _keep_best(self, point: Any) -> Steps:
        """Take the point of the beginning of the read for the best one."""

    @abstractmethod
    def _make_objective(self, found: Examined) -> Any:
        """P and D, with their rounding."""

    @abstractmethod
    def _saved_points(self) -> Generator[Any, Any, tuple[Any, Examined]]:
        """Of a saved state the best point, scores of it in the row vector, and sums over the multipliers."""

    @property
    def is_definite(self) -> bool:
        """Whether D is a bound for all points; if not, P and D are those of the same multipliers."""
        return True

    @property
    def free_bias(self) -> bool:
        """Whether multipliers move in pairs."""
        return self.space.n_free > 0

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        return dict.fromkeys((self.model.multipliers, self.model.best), np.float64)

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return {self.model.scores: np.float64}

    def is_sound(self) -> bool:
        sound: bool = self.state.is_sound(self.space.n_features)
        return sound

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
        return Sample((), (self._pass(self.rounds[0]),), sweeps=(1.0, 20.0))

    def steps(self) -> Steps:
        """The main routine."""
        certificate, run = self.certificate, self.state.run
        run[smo_loops.OFFSET], run[smo_loops.PAIRS] = self.space.penalized_bias, self.free_bias
        self._targets = yield from of_rows(_single(TargetPass(self.model.losses)), self.rows)
        if self._origin is not None:
            yield from self._check_saved()
        while certificate.stop_reason is None:
            best_b = yield from self._read()
            if not self.stopping.certifies(certificate.upper, certificate.lower):
                yield from self._pass_over_held_rows()
                if not self._changed:
                    self.state.tol *= FINER
                    self._move_threshold(best_b)
            else:  # A run that goes on finds D again by the row vector
                yield from self._put(self.state.held, self.state.held.is_ahead, self.rows)
            certificate.record(self.stopping)

    def _pass(self, each: Round, *, measure: bool = False) -> ExaminePass:
        """The pass of a round."""
        state, held = self.state, self.state.held
        left_out = np.sort(held.ids[held.is_free | held.is_ahead])
        return ExaminePass(
            self.model, self._scorer(), float(state.run[smo_loops.B]), state.tol, left_out, measure,
            each.rows, each.position, each.prefetch,
        )  # fmt: skip

    def _read(self) -> Generator[Any, Any, float]:
        """One pass over all rows; P and D of the point that it begins with, whose best bias is returned."""
        state, b = self.state, float(self.state.run[smo_loops.B])
        yield from self._begin_read()
        found, self._changed, measure = self._nothing(), 0, self._objective is None
        for each in self.rounds:
            part: Examined = yield self._pass(each, measure=measure)
            found.add(part)
            if part.violators:
                yield from self._optimize(each, part.violators)
        if measure:
            self._know(found)
        self._refuse_outside(found)
        point = self._end_read(found)
        if not self.free_bias:
            # Many small steps leave a residue.
            total = self.space.penalized_bias * float(found.sums[examine_pass.TOTAL])
            state.run[smo_loops.B] += total - b
        state.n_free, state.n_bound = found.sums[[examine_pass.FREE, examine_pass.BOUND]].tolist()
        b, loss, n_support = yield from self._best_bias(b)
        certificate = self.certificate
        if not self.is_definite:
            certificate.primal, certificate.primal_rounding = np.inf, 0.0
        if certificate.offer_primal(*self._objective.primal(point, b, loss)):
            state.best_b, certificate.n_support = b, n_support
            yield from self._keep_best(point)
            yield RowPass(CopyScores(self.model.scores, self.model.best), self.rows)
        offer = certificate.offer_dual if self.is_definite else certificate.set_dual
        offer(*self._objective.dual(found, certificate.upper))
        return b

    def _move_threshold(self, b: float) -> None:
        """Take about the best bias for the threshold, if it is free.

        Where no multiplier is between its bounds, the threshold is not theirs: all rows that violate their
        condition may be of one kind then, of which no two can move together. At the best bias they are of
        both kinds, or one of a kind is on the edge: in turn a little to each side of it.
        """
        if self.free_bias:
            side = 2.0 if self.certificate.passes % 2 else -2.0
            self.state.run[smo_loops.B] = b + side * self.state.tol

    def _nothing(self) -> Examined:
        return Examined(np.zeros(self._scorer().n_weights))

    def _know(self, found: Examined) -> None:
        """Know what P and D are made of."""
        self._objective = self._make_objective(found)
        self.certificate.scale = self._objective.scale

    def _optimize(self, each: Round, violators: Sequence[HeldRows]) -> Steps:
        """Optimize the rows that a round has brought, and keep those that stay."""
        held = self.state.held
        here = held.is_free
        rows = HeldRows.joined([held.chosen(here), *violators])
        n_held = int(here.sum())
        changed: list[int] = []
        yield Overlap((), lambda: changed.append(self._examine(rows, n_held)))
        self._changed += changed[0]
        brought = np.arange(len(rows.ids)) >= n_held
        yield from self._put(rows, brought & rows.is_ahead, each.rows)
        again = np.isin(held.ids, rows.ids)
        kept = HeldRows.joined([held.chosen(~again), rows])
        self._hold(kept)

    def _hold(self, rows: HeldRows) -> None:
        """Keep the rows that stay, the first ones if there is no room for all; none that has to be put."""
        stays, ahead = self._stays(rows), rows.is_ahead
        fits = np.cumsum(np.where(stays, rows.sizes, 0)) <= self.capacity
        self.state.held = rows.chosen(ahead | (stays & fits))

    def _pass_over_held_rows(self) -> Steps:
        """Passes over the rows at no bound until they are consistent."""
        held = self.state.held
        free = held.is_free
        if free.any():
            rows = held.chosen(free)
            yield Overlap((), lambda: self._make_consistent(rows))
            held = HeldRows.joined([held.chosen(~free), rows])
        yield from self._put(held, held.is_ahead, self.rows)
        self._hold(held)

    def _make_consistent(self, rows: HeldRows) -> None:
        run = self.state.run
        end = run[smo_loops.WORK] + max(CALLS * WORK_A_CALL, WORK_A_READ * self.n_nonzeros)
        deadline = self.stopping.deadline
        kernel, arrays = self._arrays(rows)
        first, changed = 0, 0
        while True:
            changed, first = smo_loops.pass_until_consistent(
                kernel, arrays, run, first, changed, self.state.tol, PROGRESS * self.state.tol,
                np.uint64(self.seed), WORK_A_CALL, end,
            )  # fmt: skip
            is_whole = first == len(rows.ids)
            late = deadline is not None and time.monotonic() >= deadline
            if late or (is_whole and (changed == 0 or run[smo_loops.WORK] >= end)):
                break
            if is_whole:
                first, changed = 0, 0
        rows.known[:, ALPHA], rows.known[:, OUTPUT] = arrays[8], arrays[9]

    def _examine(self, rows: HeldRows, first: int) -> int:
        """One pass over rows in memory from the first one; returns how many have led to progress."""
        state, changed, seed = self.state, 0, np.uint64(self.seed)
        kernel, arrays = self._arrays(rows)
        while first < len(rows.ids):
            found, first = smo_loops.examine_rows(
                kernel, arrays, state.run, first, False, state.tol, PROGRESS * state.tol, seed,
                WORK_A_CALL,
            )  # fmt: skip
            changed += found
        rows.known[:, ALPHA], rows.known[:, OUTPUT] = arrays[8], arrays[9]
        return changed

    def _put(self, rows: HeldRows, chosen: BoolArray, where: RowSet) -> Steps:
        """Write multipliers to where the rows are."""
        places = np.flatnonzero(chosen)
        if len(places):
            places = places[np.argsort(rows.ids[places])]
            v = rows.known[places, Y] * rows.known[places, ALPHA]
            yield RowPass(PutMultipliers(self.model, rows.ids[places], v), where)
            rows.known[places, STORED] = rows.known[places, ALPHA]

    def _best_bias(self, fixed: float) -> Generator[Request, Any, tuple[float, float, int]]:
        """A bias, the losses at the scores of the read with it, and the rows that have one.

        The bias is a fixed threshold, or without penalty the middle of the best ones.
        """
        b, losses = fixed, self.model.losses
        if self.free_bias:
            wanted = [(0.0, self._targets.falling)]
            quantiles = weighted_quantiles(losses, 0.0, wanted, self._targets.n_rows)
            [(low, high)] = yield from of_rows(quantiles, self.rows)
            b = 0.5 * low + 0.5 * high
        sums: Float64Array = yield RowPass(LossesAt(losses, 0.0, (b, 0.0)), self.rows)
        return b, float(sums[0]), int(sums[1])

    def _score_again(self, scorer: Scorer) -> Generator[Any, Any, Examined]:
        """A read that is not counted: the scores of a point into the row vector, and the sums."""
        found = Examined(np.zeros(scorer.n_weights))
        for each in self.rounds:
            no_rows = np.empty(0, np.int64)
            place = each.rows, each.position.uncounted, each.prefetch
            found.add((yield ExaminePass(self.model, scorer, 0.0, np.inf, no_rows, True, *place)))
        return found

    def _check_saved(self) -> Steps:
        """Before a resumed run goes on: find P and D again by reads that are not counted.

        What cannot be true is refused; a state that is as the solver saved it does not change.
        """
        certificate, best_b = self.certificate, self.state.best_b
        point, found = yield from self._saved_points()
        self._refuse_outside(found)
        sums = yield RowPass(LossesAt(self.model.losses, 0.0, (best_b, 0.0)), self.rows)
        primal, error = self._objective.primal(point, best_b, float(sums[0]))
        certificate.check_primal(primal, error, self._origin)
        dual, error = self._objective.dual(found, certificate.upper)
        certificate.check_dual(dual, error, self._origin)
        # The scores kept were summed in another order, so they stay: their bits tell in what is made of them.
        apart = yield RowPass(ScoresApart(self.model), self.rows)
        if not float(apart[0]) <= 2.0 * self._objective.scores(point):
            raise Certificate.does_not_fit(self._origin, "the scores in it are not those of its best point")
        certificate.reopen(self.stopping)

    def _refuse_outside(self, found: Examined) -> None:
        """Multipliers outside their bounds can only come from a checkpoint."""
        n_outside = int(found.sums[examine_pass.OUTSIDE])
        if n_outside and self._origin is not None:
            raise Certificate.does_not_fit(self._origin, f"{n_outside} multipliers are outside their bounds")


def columns_of(rows: HeldRows) -> tuple[Float64Array, ...]:
    """Classes, bounds, multipliers and outputs of rows as arrays of their own."""
    return tuple(np.ascontiguousarray(rows.known[:, k]) for k in (Y, C, ALPHA, OUTPUT))


def _single(request: Request) -> Generator[Request, Any, Any]:
    return (yield request)
