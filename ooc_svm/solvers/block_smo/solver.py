"""Block SMO: the dual of a kernel model in working sets of thousands of rows, one read of the data for each.

    repeat
        working set: half of the last one (rows that moved and are free), the rest violators
        steps of two multipliers inside of the set, to a small share of the violation
        one read: h += K change; the same read finds the next violators

Rows that are far from violating their condition are set aside: their scores follow in every fourth read at
the latest, by all that has changed meanwhile. P and D are known where all rows have followed.

No kernel value is kept but those of the set. With a penalized bias the kernel is ``k + 1``; there, and
without a bias, steps are of one multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.errors import InputError, parameter
from ooc_svm.passes.base import UNCOUNTED, WHOLE, Overlap, Position, Steps
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.base import KeptScores, KernelExpansion, Sample, Solver
from ooc_svm.solvers.block_smo import bound, set_loops
from ooc_svm.solvers.block_smo.bound import RowSizes, Values
from ooc_svm.solvers.block_smo.candidates import Choice
from ooc_svm.solvers.block_smo.check import check_state, comparison
from ooc_svm.solvers.block_smo.start import (
    BestPoint,
    IntoBounds,
    Shrink,
    SupportScores,
    UnknownScores,
    balanced,
)
from ooc_svm.solvers.block_smo.state import BlockSmoState
from ooc_svm.solvers.block_smo.support import Mirrored, add_support_values, gather_support
from ooc_svm.solvers.block_smo.update import (
    Aside,
    Found,
    KeepBest,
    KernelModel,
    LossesAt,
    Moved,
    Rebuilt,
    Sums,
    UpdatePass,
)
from ooc_svm.solvers.definite import indefinite_hints, is_definite
from ooc_svm.solvers.stopping import CERTIFIED, LANDMARKS, STALLED, Stopping

Requests = Generator[Any, Any, Any]  # What a part of the steps asks for, and what it comes to

# Passes that a read is asked for in, at most: so many threads can work on one block. A pass over fewer rows
# takes no longer than what comes with it.
PARTS, PART_ROWS = 8, 4096
SET_STEPS = (0.1, 1.0)  # Time of the steps inside of a set, as a multiple of that of the passes
BIASES = 17  # Biases that P is computed at, where it is free
HELPS = 0.1  # Rounding that a computation in float64 leaves at most, where it is worth its two reads
# Reads in which rounding was more than the gap, after which float64 is worth what it takes, too: where that
# is no more than the run has taken so far, or where it has been no use to go on.
HIDDEN_READS = 30
IDLE_READS = 40  # After which the gap without rounding should have fallen
EXACT_COST = 2.5  # Of a kernel value in float64, as a multiple of one in float32
# Curvature below 0, as a share of the largest kernel value, that no rounding explains; of a
# definite kernel any is rounding, where rows are far from 0.
NEGATIVE = 1e-5
NONE_KEPT, NONE_MOVED = np.empty(0, np.int64), np.empty(0)
# A row is set aside if it violates its condition only where its score moves by more than this share of the
# violation of the moment.
ASIDE_SHARE = 0.5
LEAST_ASIDE = 0.1  # Of the rows: with fewer set aside, all are brought up to date in every read
PARTIAL_READS = 3  # Reads that rows are set aside in, one after another
# Of the violation of all rows: where it has fallen to that, rows set aside are due; earlier, where that leads
# to the gap that is asked for.
SETTLED = 0.1
TINY_GAP = 1e-300  # Not 0
BACKLOG = 4  # Rows that moved since all were brought up to date, as a multiple of those of a working set
# Scores of rows without a multiplier are rebuilt if these have a slope where they are off by so many times
# their error: the best bias will be another one.
REACH = 3.0


@dataclass(slots=True, eq=False)
class BlockSmo(Solver):
    """The solver of one model."""

    model: KernelModel
    bias: str  # {"free", "penalized", "none"}
    stopping: Stopping
    state: BlockSmoState
    size: int  # Rows of a working set
    n_rows: int
    support_bytes: int  # What support vectors may take in memory
    row_bytes: float  # Of a row in memory, on the average
    nonzeros_a_row: int
    seed: int = 0
    only_begins: bool = False  # Whether a run ends where the points that it begins with are known
    _origin: str | None = None  # The checkpoint that the state came from

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        model = self.model
        names = model.v, model.h, model.error, model.aside, model.best_v, model.best_h, model.best_error
        return dict.fromkeys(names, np.float64)

    def solution(self) -> KernelExpansion:
        precision = bound.precision_of_predictions(self.model.kernel, self.sizes)
        return KernelExpansion(self.model.best_v, self.state.best_bias, precision)

    def kept_scores(self) -> KeptScores:
        return KeptScores(self.model.best_h, self.model.best_h, offset=self.state.best_bias)

    def is_sound(self) -> bool:
        state = self.state
        numbers = [state.total, state.best_bias, state.pivot]
        sound = bool(np.isfinite([*numbers, state.square]).all()) and state.square >= 0.0
        working = state.working
        known = not len(working.numbers) or 0 <= working.numbers.min() <= working.numbers.max() < self.n_rows
        sound = sound and known and working.is_sound(self.model.n_features)
        return (
            sound
            and state.certificate.is_sound()
            and state.backlog.is_sound(self.model.n_features, self.n_rows)
        )

    def metadata(self, n_rows: int) -> dict[str, float]:
        """Part of the report: kernel values for each row, steps, and scores computed in float64."""
        return {
            "kernel_values_a_row": self.state.values / n_rows,
            "steps": self.state.steps,
            "exact_scores": float(self.state.exact),
        }

    @property
    def _parts(self) -> int:
        """Passes that a read is asked for in."""
        return min(max(self.n_rows // PART_ROWS, 1), PARTS)

    @property
    def _all_parts(self) -> list[tuple[int, int]]:
        """Each of them, and their number."""
        return [(part, self._parts) for part in range(self._parts)]

    @property
    def sizes(self) -> RowSizes:
        """The sizes of the rows, after the first read."""
        return RowSizes(self.state.square, self.state.nonzeros, self.model.ones)

    @property
    def _pivot(self) -> float:
        """The bias against which slopes are judged."""
        return self.state.total if self.bias == "penalized" else self.state.pivot

    @property
    def precision(self) -> str:
        """In which kernel values are computed while multipliers are searched."""
        return bound.precision_for(self.model.kernel, self.sizes)

    def distrust(self, origin: str) -> None:
        self._origin = origin

    def hints(self) -> dict[str, str]:
        return indefinite_hints(self.model.kernel)

    @property
    def refines_values(self) -> bool:
        return self.certificate.stop_reason != STALLED

    def steps(self) -> Steps:
        state = self.state
        if self._origin is not None:
            yield from self._check_saved(self._origin)
        if state.certificate.stop_reason == LANDMARKS and not self.only_begins:
            state.certificate.stop_reason = None
        while state.certificate.stop_reason is None:
            kept, n_first, hidden = NONE_KEPT, 0, False
            if state.begins:
                found = yield from self._first_read()
            elif state.waits_for_exact:
                found = yield from self._exact_read()
            else:
                kept, n_first, found = yield from self._read()
            if not state.partial:
                hidden = yield from self._measure(found)
            elif state.hidden:
                state.hidden += 1
            self._require_bound()
            state.certificate.record(self.stopping, moves=self._comes_nearer)
            if self.only_begins and state.certificate.stop_reason != CERTIFIED:
                state.certificate.stop_reason = LANDMARKS
            if hidden and state.certificate.stop_reason != CERTIFIED:
                state.waits_for_exact, state.working = 1, state.working.emptied()
            elif not self.only_begins and state.certificate.stop_reason != CERTIFIED:
                # Also at a limit: a run that goes on from there is one that was never stopped.
                self._solve(kept, n_first, found)

    def _read(self) -> Requests:
        """Rows follow the steps of the working set; the rows of it that may stay, and what was found."""
        state, working = self.state, self.state.working
        kept, n_first = working.kept(self.model, self.size, self._pivot, ASIDE_SHARE * state.violation)
        places, rows, numbers = working.changes()
        change = (working.v - working.before)[places]
        moved = self._moved(numbers, rows, change, working.v[places])
        # A checkpoint is written before the read, so that the state changes after it.
        backlog = state.backlog.joined(numbers, rows, change)
        whole = self._all_are_due(backlog.n_rows)
        aside = None
        if whole:
            aside, backlog = self._aside(backlog.numbers, backlog.rows, backlog.change), backlog.emptied()
        excluded, offered = np.sort(working.numbers[kept]), self.size - n_first
        found = yield from self._update(moved, excluded, self.precision, aside, offered=offered)
        state.partial = 0 if whole else state.partial + 1
        state.backlog = backlog
        self._count(moved)
        working.settle(kept, found.known_h)
        return kept, n_first, found

    def _all_are_due(self, n_moved: int) -> bool:
        """Whether the next read brings the rows set aside up to date, too; ``n_moved``: in the backlog."""
        state = self.state
        return (
            state.n_aside < LEAST_ASIDE * self.n_rows
            or state.partial >= PARTIAL_READS
            or state.violation <= state.due_violation
            or n_moved + self.size > BACKLOG * self.size
        )

    def _aside(self, numbers: Int64Array, rows: RowBlock, change: Float64Array) -> Aside:
        """Which rows are set aside from here on, and what those until now have missed."""
        late = self._moved(numbers, rows, change, NONE_MOVED)
        return Aside(ASIDE_SHARE * self.state.violation, late)

    def _moved(self, numbers: Int64Array, rows: RowBlock, change: Float64Array, v: Float64Array) -> Moved:
        """Rows that move, as an update takes them."""
        moved = Moved.of(numbers, rows, change, v, self.model.scale2)
        return moved.by_direction() if bound.has_own_share(self.model.kernel, self.precision) else moved

    def _exact_read(self) -> Requests:
        """Compute scores again, with values of float64; the rows are fetched by a read of its own.

        Those of rows that have neither a multiplier nor a slope, wherever their scores are in their error,
        add nothing to P and D as they are.
        """
        state, model = self.state, self.model
        sums = yield RowPass(Sums(model, 0.0))
        moved = yield from self._support(model, int(sums[set_loops.SUPPORT]))
        mirrored = yield from add_support_values(model, moved, self._parts)
        errors = self._support_errors(moved, mirrored)
        rebuilt = Rebuilt(REACH, mirrored.sums, errors)
        late = state.backlog
        aside = self._aside(late.numbers, late.rows, late.change)
        found = yield from self._update(moved, NONE_KEPT, "float64", aside, rebuilt)
        state.values += len(moved.v) * (self.n_rows - 0.5 * len(moved.v))
        state.waits_for_exact = state.hidden = 0
        state.exact += 1
        return found

    def _first_read(self) -> Requests:
        """Find P of the point of landmarks and the scores of the multipliers that a run begins with.

        Values of the kernel are of float64, since all that is known later is a sum that begins here. If there
        are two reads, that for P is not counted.
        """
        state, model, point = self.state, self.model, BestPoint.of(self.model)
        yield RowPass(IntoBounds(model))
        sums = yield RowPass(Sums(model, 0.0))
        if self.bias == "free":
            yield RowPass(balanced(model, sums))
        moved = yield from self._support(model, int(sums[set_loops.SUPPORT]))
        state.total, mirrored = float(moved.v.sum()), None
        if self.only_begins:
            mirrored = yield from add_support_values(model, moved, self._parts)
        found = yield from self._read_point(point)
        if mirrored is None:
            found = yield from self._update(moved, NONE_KEPT, "float64", None)
            self._count(moved)
        else:
            yield from self._find_dual(moved, mirrored)
        state.begins = 0
        return found

    def _read_point(self, point: BestPoint) -> Requests:
        """Find P of the point of landmarks, and take it for the best value."""
        state, choice = self.state, Choice(1, 0.0, 0)
        moved = yield from self._support(point, state.begins)
        position = WHOLE if self.only_begins else UNCOUNTED
        passes = [
            UpdatePass(point, moved, NONE_KEPT, choice, "float64", None, None, *part, position)
            for part in self._all_parts
        ]
        found = yield from self._together(passes, choice)
        state.square, state.nonzeros = found.square, found.nonzeros
        sums = yield RowPass(Sums(point, state.best_bias))
        largest = bound.largest_value(self.model.kernel, self.sizes)
        values = bound.values(sums, state.best_bias, self.bias, 0.0, largest, self.n_rows)
        if not state.certificate.offer_primal(values.primal, values.primal_rounding):
            raise InputError(
                f"the scores of the landmarks overflow; scale the columns ({parameter('scale', 'maxabs')})"
            )
        state.certificate.n_support, state.unbounded = values.support, 1
        return found

    def _find_dual(self, moved: Moved, mirrored: Mirrored) -> Requests:
        """Settle the scores of the rows with a multiplier, and find the share of these that is best.

        D needs no others. Should the run ever go on, it begins with finding them.
        """
        errors = self._support_errors(moved, mirrored)
        yield RowPass(SupportScores(self.model, moved.numbers, mirrored.sums, errors))
        self.state.values += 0.5 * float(len(moved.v)) ** 2
        yield from self._shrink()
        yield RowPass(UnknownScores(self.model))
        self.state.waits_for_exact = 1

    def _support_errors(self, moved: Moved, mirrored: Mirrored) -> Float64Array:
        """What the scores of the rows with a multiplier are off by, where they are sums of float64 values."""
        changes, kernel = (moved.v, moved.squares), self.model.kernel
        return bound.update_errors(kernel, self.sizes, "float64", changes, moved.squares, mirrored.additions)

    def _shrink(self) -> Requests:
        """Multiply all multipliers by the share of them that is best for D.

        They are those of the features' kernel: the rest of the kernel counts in ``v.K.v`` alone, so that less
        of them is better. D is a parabola along them, and two of its values tell where it is largest.
        """
        largest, found = bound.largest_value(self.model.kernel, self.sizes), list[float]()
        for share in (1.0, 0.5):
            if share < 1.0:
                yield RowPass(Shrink(self.model, share, 0.0))
            sums = yield RowPass(Sums(self.model, 0.0))
            found.append(bound.values(sums, 0.0, self.bias, 0.0, largest, self.n_rows).dual)
        curvature = 4.0 * found[1] - 2.0 * found[0]
        slope = found[0] + curvature
        best = min(max(0.5 * slope / curvature, 0.0), 1.0) if curvature > 0.0 else 1.0
        error = bound.scaling_error(largest, 2.0 * float(sums[set_loops.ABS_V]))
        yield RowPass(Shrink(self.model, 2.0 * best, error))

    def _support(self, model: KernelModel, count: int) -> Requests:
        """The rows that a model has multipliers of, ``count`` or so, as those that move to these from 0."""
        support = yield from self._gather((model.v,), count)
        v = support.vectors[model.v]
        return Moved.of(support.numbers, support.rows, v, v, model.scale2)

    def _gather(self, names: tuple[str, ...], count: int) -> Requests:
        """The rows with a multiplier in one of some row vectors, ``count`` or so."""
        return gather_support(names, count, int(self.row_bytes * count), self.support_bytes)

    def _check_saved(self, origin: str) -> Steps:
        """Before a resumed run goes on: refuse a state that is none of these data."""
        model, state = self.model, self.state
        names = model.v, model.best_v
        support = yield from self._gather(names, state.certificate.n_support)
        found = yield comparison(model, state, support)
        weight = max(float(np.abs(support.vectors[name]).sum()) for name in names)
        check_state(model, state, found, weight, self.bias, self.n_rows, self.precision, origin)
        state.certificate.scale = float(found.now[set_loops.AT_ZERO])
        state.certificate.reopen(self.stopping)

    def _update(
        self,
        moved: Moved,
        excluded: Int64Array,
        precision: str,
        aside: Aside | None,
        rebuilt: Rebuilt | None = None,
        offered: int | None = None,
    ) -> Requests:
        """One read, in several passes; as many rows as a working set has are offered, or fewer."""
        count, state, pivot = max((offered or self.size) // 2, 1), self.state, self._pivot
        choice = Choice(count, pivot, self.seed + state.certificate.passes)
        # The read for the rows has begun an exact one: no checkpoint is written where scores are half made.
        position = WHOLE if rebuilt is None else Position(1, 1, 2)
        passes = [
            UpdatePass(self.model, moved, excluded, choice, precision, aside, rebuilt, *part, position)
            for part in self._all_parts
        ]
        found = yield from self._together(passes, choice)
        state.square, state.nonzeros = found.square, found.nonzeros
        state.violation = found.up - found.down
        if self.bias != "free":
            state.violation = max(found.up - pivot, pivot - found.down)
        if aside is not None:
            state.n_aside = found.n_aside
        return found

    def _together(self, passes: list[UpdatePass], choice: Choice) -> Requests:
        """What the passes of one read have found."""
        found, *others = yield Overlap(tuple(passes))
        for other in others:
            found.add(other, choice)
        return found

    def _count(self, moved: Moved) -> None:
        """Count the kernel values of an update."""
        state = self.state
        state.values += float(len(moved.numbers)) * (self.n_rows - (state.n_aside if state.partial else 0))

    def _measure(self, found: Found) -> Requests:
        """P, D and the best point, by passes over row vectors; whether rounding alone hides a small gap."""
        state, certificate = self.state, self.state.certificate
        bias = yield from self._best_bias(found)
        sums = yield RowPass(Sums(self.model, bias))
        largest = bound.largest_value(self.model.kernel, self.sizes)
        values = bound.values(sums, bias, self.bias, 0.0, largest, self.n_rows)
        state.pivot, state.total = bias, float(sums[set_loops.V])
        certificate.scale = float(sums[set_loops.AT_ZERO])
        # Where values of the kernel overflow, no bound will ever say anything.
        dual = values.dual if math.isfinite(largest) else math.nan
        certificate.offer_dual(dual, values.dual_rounding)
        # A model of landmarks is kept for being small.
        if not self.only_begins and certificate.offer_primal(values.primal, values.primal_rounding):
            state.best_bias, certificate.n_support, state.unbounded = bias, values.support, 0
            yield RowPass(KeepBest(self.model))
        # The gap falls with the violation, at least as fast.
        share = self.stopping.tol * max(abs(values.primal), abs(values.dual)) / max(values.gap, TINY_GAP)
        state.due_violation = state.violation * max(SETTLED, share)
        return self._hides(values, found.size)

    @property
    def _comes_nearer(self) -> bool:
        """Whether the gap without rounding still falls."""
        return self.state.certificate.passes - self.state.nearest < IDLE_READS

    def _hides(self, values: Values, size: float) -> bool:
        """Whether rounding hides a small gap, or for long what is reached, and float64 would tell.

        ``size``: see `Found`. The slopes of the losses are about the multipliers' magnitudes.
        """
        state, rounding = self.state, values.primal_rounding + values.dual_rounding
        state.hidden = state.hidden + 1 if rounding > values.gap else 0
        if values.gap < state.nearest_gap:
            state.nearest_gap, state.nearest = values.gap, state.certificate.passes
        small = self.stopping.certifies(values.primal, values.dual)
        left = bound.kernel_error(self.model.kernel, self.sizes, "float64")
        helps = left * 2.0 * size * size < HELPS * rounding
        cost = EXACT_COST * values.support * (self.n_rows - 0.5 * values.support)
        worth = cost <= state.values or not self._comes_nearer
        return helps and (small or (worth and state.hidden >= HIDDEN_READS))

    def _best_bias(self, found: Found) -> Requests:
        """The sum of the multipliers, if it is penalized; the best of some between the extreme slopes."""
        if self.bias != "free":
            return self.state.total if self.bias == "penalized" else 0.0
        low, high = sorted((found.down, found.up))
        if not (math.isfinite(low) and math.isfinite(high)):
            # All multipliers are at bounds on one side.
            low = high = low if math.isfinite(low) else high if math.isfinite(high) else 0.0
        biases = np.append(np.linspace(low, high, BIASES), 0.5 * (low + high))
        losses = yield RowPass(LossesAt(self.model, tuple(biases.tolist())))
        return float(biases[int(np.argmin(losses))])

    def _solve(self, kept: Int64Array, n_first: int, found: Found) -> None:
        """Choose the next working set and solve it."""
        state, working = self.state, self.state.working
        working.replace(kept, n_first, found.candidates, self.size, self.n_rows)
        shift = state.total if self.bias == "penalized" else 0.0
        steps, least = working.solve(self.model, shift, self.bias, self.precision)
        self._require_curvature(least)
        state.steps += steps
        state.values += float(working.n_rows) ** 2
        state.total += float((working.v - working.before).sum())
        if self.bias == "free" and math.isfinite(bias := working.bias(self.model)):
            state.pivot = bias

    def sample(self) -> Sample:
        """An update by a whole working set of made-up rows."""
        m, length = self.size, max(self.nonzeros_a_row, 1)
        columns = np.linspace(0, max(self.model.n_features - 1, 0), length).astype(np.int32)
        values = None if self.state.working.ones else np.ones(m * length, self.state.working.values.dtype)
        rows = RowBlock(0, np.arange(m + 1, dtype=np.int64) * length, np.tile(columns, m), values)
        moved = Moved(
            np.arange(m, dtype=np.int64) - m, rows, np.full(m, float(length)), np.ones(m), np.ones(m)
        )
        update = UpdatePass(self.model, moved, NONE_KEPT, Choice(m // 2, 0.0, 0), "float32", None)
        return Sample((), (update,), sweeps=SET_STEPS)

    def _require_bound(self) -> None:
        certificate = self.state.certificate
        if certificate.lower > certificate.upper and not is_definite(self.model.kernel):
            raise _indefinite(f"D = {certificate.dual:.6g} is above P = {certificate.primal:.6g}")

    def _require_curvature(self, least: float) -> None:
        kernel = self.model.kernel
        if not is_definite(kernel) and least < -NEGATIVE * bound.largest_value(kernel, self.sizes):
            raise _indefinite(f"a curvature is {least:.3g}")


def _indefinite(why: str) -> InputError:
    return InputError(
        f"the kernel is not positive semi-definite on these rows ({why}), so no bound holds; choose other "
        f"numbers ({parameter('gamma')}, {parameter('coef0')}) or {parameter('kernel', 'rbf')}"
    )
