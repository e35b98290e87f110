"""The lower bound of a state: D at feasible multipliers near by, what it is made of, and the farthest b."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Overlap, Pass, RowSet
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.foresight import Foresight
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.saved_state import find_again
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import COST, LONGEST

# What many steps leave in w is of no account where D is off by at most this share of the gap wanted.
RESIDUE = 1e-3


def dual_value(space: LinearSpace, w: Float64Array, linear: float, total: float) -> float:
    """D at multipliers with these weights, this linear part and this sum."""
    penalty = total * total if space.penalized_bias else 0.0
    return linear - 0.5 * (space.inner(w, w) + penalty)


def lower_bound(model: DualModel, state: SmoState, n_rows: int, log_odds: float) -> tuple[float, float]:
    """D at the multipliers of a state, those of a free bias made to sum up to 0.

    What resident rows cannot take up of the sum is charged with the largest b that an optimum may have.
    ``log_odds``: see `farthest_bias`.

    Returns the value, and a bound of its rounding. The state knows what it consists of.
    """
    multipliers, space = state.multipliers, model.space
    w, linear, rounding = state.w, multipliers.linear, replace(state.rounding)
    rest, charged = 0.0, 0.0
    if model.free_bias:
        w = w.copy()
        gain, rest, sums = multipliers.working_set.absorb(model, multipliers.total, w)
        if rest > rounding.total(n_rows):
            charged, rest = rest * farthest_bias(model, state, log_odds), 0.0
        linear += gain
        rounding.moved(sums, 0.0)
    bound = dual_value(space, w, linear, multipliers.total) - charged
    state.feasible = np.array([linear - charged, 2.0 * (linear - charged - bound)])
    if model.free_bias and (bound <= 0.0 or not math.isfinite(log_odds)):
        # Multipliers of one class alone sum up to 0 only where all of them are 0.
        return 0.0, 0.0
    b = slope_of_sum(model, state)
    return bound, rounding.dual(space.norm(w), b, (n_rows, space.n_features)) + abs(b) * rest


def slope_of_sum(model: DualModel, state: SmoState) -> float:
    """What D changes by with the sum of the multipliers, but for the sign: the bias that they stand for."""
    space = model.space
    return state.multipliers.total if space.penalized_bias else float(state.bias(space)[dual_loops.B])


def farthest_bias(model: DualModel, state: SmoState, log_odds: float) -> float:
    """Of an optimum, whose value is at most P, the bias is no farther from 0.

    Of classes it lies among the ``t_i - w.x_i``; where every row has a loss, among the ``w.x_i`` and the
    logarithm of the classes' odds. Of values, it is limited by the mean loss.
    """
    rows, upper = state.rounding.rows, max(state.certificate.upper, 0.0)
    weights = math.sqrt(2.0 * upper)
    if model.targets.in_margins:
        return (1.0 if model.has_end else abs(log_odds)) + float(rows[LONGEST]) * weights
    loss = upper / float(rows[COST])
    length = math.sqrt(state.rounding.mean_square)
    residual = float(model.loss.epsilon) + max(loss, math.sqrt(loss))
    return state.unit + residual + length * weights


@dataclass(slots=True)
class Rebuild:
    """What a read that is under way has found of the multipliers that it began with."""

    w: Float64Array  # shape (n_features,): sum of ``v_i x_i`` over the rows that were held or have been met
    # What the state had at the read's start, with the norm of w
    before: Float64Array
    norm: float
    linear: float
    total: float
    sums: Float64Array  # Of the multipliers of the rows that were held, see `SmoRounding.start`

    @classmethod
    def begin(cls, model: DualModel, state: SmoState, stopping: Stopping, n_rows: int) -> Rebuild | None:
        """At a read's start; None if nothing is to be gained. The state stays as it is."""
        if not has_residue(model, state, stopping, n_rows):
            return None
        multipliers, working_set = state.multipliers, state.multipliers.working_set
        norm, sums = model.space.norm(state.w), working_set.sums_before(model)
        w = working_set.sum_of_rows(model)
        return cls(w, state.w, norm, multipliers.linear, multipliers.total, sums)

    def end(self, state: SmoState) -> None:
        """All rows have been met: only what has changed since the read's start is as it was."""
        self.w -= self.before
        self.w += state.w
        state.w = self.w
        moves = state.rounding.moves
        state.multipliers.linear += float(moves[dual_loops.WAS_LINEAR]) - self.linear
        state.multipliers.total += float(moves[dual_loops.WAS_TOTAL]) - self.total


def has_residue(model: DualModel, state: SmoState, stopping: Stopping, n_rows: int) -> bool:
    """Whether there is something in w or in the sums that the multipliers do not account for.

    Many small steps leave a residue, and larger ones on the way a larger one. Where D is no parabola, the
    sums only know of a part of what lanes have gained, and those of a free bias have to answer to it.
    """
    multipliers, space, lower = state.multipliers, model.space, state.certificate.lower
    # Also where w is 0 again: the sums may have a residue.
    if not (state.w.any() or multipliers.linear != 0.0 or multipliers.total != 0.0):
        return False
    if model.free_bias or not model.is_parabola:
        return True
    b = slope_of_sum(model, state)
    error = state.rounding.dual(space.norm(state.w), b, (n_rows, space.n_features))
    return not (error < math.inf and stopping.certifies(lower + error / RESIDUE, lower))


def begin_read(
    model: DualModel, state: SmoState, stopping: Stopping, rounds: Sequence[Round], n_rows: int
) -> tuple[Rebuild | None, Foresight | None]:
    """What a read that begins is to find out, apart from P: of its rounds either all make steps, or some may.

    The state stays as it is: a checkpoint may still be written. What changes does so in `read_began`.
    """
    rebuild = Rebuild.begin(model, state, stopping, n_rows)
    foresight = Foresight.at_start(model, state, stopping, rounds)
    return rebuild, foresight if rebuild is None else None


def read_began(state: SmoState, rebuild: Rebuild | None) -> None:
    """The first round of a read is done: no checkpoint is of its start any more."""
    state.rests = 0
    if rebuild is not None:
        # Rounding is counted from the read's start on.
        state.rounding.start(rebuild.sums, rebuild.norm)


def check_saved(
    model: DualModel,
    state: SmoState,
    stopping: Stopping,
    place: tuple[Sequence[Round], RowSet, str],
    log_odds: float,
) -> Generator[Overlap | Pass, Any, None]:
    """Before a resumed run goes on: find P and D again, and refuse what cannot be true.

    ``place``: the rounds of a read, all rows, and the checkpoint. A state that is as the solver saved it does
    not change.
    """
    rounds, rows, origin = place
    found = yield from find_again(model, state, rounds, rows, origin)
    certificate = state.certificate
    again = replace(
        state,
        w=found.w,
        rounding=replace(state.rounding),
        multipliers=replace(
            state.multipliers,
            linear=float(found.sums[dual_loops.WAS_LINEAR]),
            total=float(found.sums[dual_loops.WAS_TOTAL]),
        ),
    )
    again.rounding.start(found.sums, model.space.norm(found.w))
    bound, rounding = lower_bound(model, again, rows.n_rows, log_odds)
    # Not counted: saved by a release that did not know of rounding. A bound of 0 has none.
    counted = certificate.dual_rounding > 0.0 or 0.0 in (rounding, certificate.dual)
    if not (counted and certificate.lower <= bound + rounding):
        certificate.dual, certificate.dual_rounding = bound, rounding
    certificate.scale = state.scale
    certificate.amend(stopping)
