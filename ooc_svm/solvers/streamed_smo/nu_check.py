"""Whether the saved state of a nu problem is that of a run on these data: P and D are found again.

The multipliers that the best bound is at are a row vector, which is written whenever the bound rises: those
of the moment are no mix that gives it. See `ooc_svm.solvers.streamed_smo.saved_state`, by which the models of
the bracket are checked.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Overlap, Request, RowSet
from ooc_svm.passes.of_rows import of_rows
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.free_oracle import FreeCutOracle
from ooc_svm.solvers.rounding import FEW, UNIT, gamma
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.best_point import score_best
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.mix import loss_at, nu_of, primal_rounding
from ooc_svm.solvers.streamed_smo.rounding import SmoRounding
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.saved_state import Found, check_rounds
from ooc_svm.solvers.streamed_smo.sweep import LONGEST, Residency


@dataclass(frozen=True, slots=True)
class NuModel(DualModel):
    """A nu problem with the multipliers of its best bound, of which no steps are left to be taken.

    The scores are those of `FreeCutOracle`.
    """

    @property
    def step(self) -> str:
        return self.dual

    @property
    def newest(self) -> str:
        return f"{self.name}/previous"


def nu_model(oracle: FreeCutOracle) -> NuModel:
    """The model of a nu problem; its best scores are those of the oracle."""
    losses = oracle.losses
    return NuModel(losses.targets, losses.loss, oracle.C, oracle.space, True, losses.name)


@dataclass(frozen=True, slots=True)
class Value:
    """P at some weights and the best free parameters for them."""

    point: Float64Array
    scores: float  # What a row's score is off by at most, see `Mix.point`
    primal: float
    rounding: float


def value_at(
    oracle: FreeCutOracle,
    w: Float64Array,
    row_sums: Float64Array,
    rounds: Sequence[Round],
    rows: RowSet,
) -> Generator[Overlap | Request, Any, Value]:
    """Read the data once: P at w, whose scores are kept as those of the best point.

    ``row_sums``: see `ooc_svm.solvers.streamed_smo.sweep.NormPass`.
    """
    weights, _ = oracle.space.to_data(w)
    yield from score_best(nu_model(oracle), weights, rounds, rows)
    point, loss = yield from of_rows(oracle.settle(0.0, w, math.inf), rows)
    scores, own = gamma(FEW) * oracle.space.norm(weights), oracle.space.penalized(point)
    rounding = primal_rounding(oracle, row_sums, rows.n_rows, point, scores, loss)
    return Value(point, scores, 0.5 * float(own @ own) + oracle.C * loss, rounding)


@dataclass(slots=True)
class Again:
    """What a read of the data finds again: P, and D but for what the saved multipliers lack."""

    primal: float
    primal_rounding: float
    dual: float
    dual_rounding: float
    feasible: bool  # Whether the saved multipliers are those of the wanted nu


def check_again(
    oracle: FreeCutOracle,
    best: Float64Array,
    scores: float,
    upper: float,
    rounds: Sequence[Round],
    rows: RowSet,
    origin: str,
) -> Generator[Overlap | Request, Any, Again]:
    """Read the data once, in a read that is not counted.

    ``best``, ``scores``: the best point, and what the scores kept of it are off by, see `Mix.point`.
    ``upper``: what P of the best point is at most.
    DamageError, with the checkpoint ``origin``, if a part of it cannot be that of a run on these data.
    """
    model, (weights, _), n_rows = nu_model(oracle), oracle.solution(best), rows.n_rows
    found = Found(np.zeros(len(weights)), np.zeros(dual_loops.N_SUMS), 0, 0.0, [])
    no_rows = np.empty(0, np.int64)
    nothing = Residency(no_rows, no_rows, no_rows, np.empty(0), no_rows)
    taken = [(0.0, nothing)] * len(rounds)
    found, row_sums = yield from check_rounds(model, weights, rounds, taken, found)
    b, k = oracle.space.free(best).tolist()
    loss = yield from loss_at(oracle, best, rows)
    if found.outside:
        raise Certificate.does_not_fit(origin, f"{found.outside} multipliers are outside their bounds")
    if not found.difference <= scores + 4.0 * UNIT * oracle.space.norm(weights):
        raise Certificate.does_not_fit(origin, "the scores in it are not those of its weights")
    own = oracle.space.penalized(best)
    primal = 0.5 * float(own @ own) + oracle.C * loss
    again = Again(primal, primal_rounding(oracle, row_sums, n_rows, best, scores, loss), 0.0, 0.0, False)
    rounding = SmoRounding(row_sums)
    norm = oracle.space.norm(found.w)
    rounding.start(found.sums, norm)
    linear, size = float(found.sums[dual_loops.WAS_LINEAR]), float(found.sums[dual_loops.WAS_DISTANCE])
    again.dual = (0.0 if oracle.losses.targets.in_margins else linear) - 0.5 * norm * norm
    # The sum of the multipliers is worth the bias: no more than the largest that an optimum may have.
    oracle.largest_norm = float(row_sums[LONGEST])
    priced = gamma(n_rows + FEW) * (oracle.C * oracle.price * (oracle.origin + abs(k)) + abs(linear))
    error = rounding.dual(norm, b, (n_rows, len(weights))) + priced
    away = abs(float(found.sums[dual_loops.WAS_TOTAL]))
    again.dual, again.dual_rounding = oracle.in_box(upper, lambda box: (again.dual, error + away * box))
    wanted, few = nu_of(oracle) * oracle.C * oracle.targets.weight, gamma(2.0 * n_rows + FEW)
    if oracle.losses.targets.in_margins:
        again.feasible = size >= wanted * (1.0 - few)
    else:
        again.feasible = size <= wanted * (1.0 + few)
    return again
