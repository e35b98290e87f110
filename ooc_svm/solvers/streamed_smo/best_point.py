"""The best point: P along the segment to the newest weights, and over the bias, by scores alone."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.losses.row_loops import OWN_ERROR
from ooc_svm.passes.base import Overlap, Pass, RowSet
from ooc_svm.passes.rowwise import CopyScores, RowPass
from ooc_svm.solvers.best_scores import LOSS, LossCount, SlopeSizes
from ooc_svm.solvers.grid_minimum import lowest
from ooc_svm.solvers.rounding import UNIT
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.streamed_smo.dual import DualModel, LossesAlong, MoveBest, StretchBest
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import ScorePass

CLEAR = 1.25  # How far a margin comes to lie off its edge, as a multiple of what rounding may have moved it


class Target(NamedTuple):
    """A point that the newest scores are of."""

    w: Float64Array
    b: float
    error: float  # Of a score, see `SmoRounding.scores`

    @classmethod
    def scored(cls, space: LinearSpace, w: Float64Array, b: float) -> Target:
        """One whose scores are the products with the rows."""
        return cls(w, b, UNIT * space.norm(w))


def score_best(
    model: DualModel, w: Float64Array, rounds: Sequence[Round], rows: RowSet
) -> Generator[Overlap | Pass, Any, None]:
    """One read of the data: the scores with w become those of the best point.

    ``rows``: those of all ``rounds``.
    """
    for each in rounds:
        yield ScorePass(model, w, each.rows, each.position, each.prefetch)
    yield RowPass(CopyScores(model.newest, model.best), rows)


def improve_best(
    model: DualModel,
    state: SmoState,
    rows: RowSet,
    towards: Target | None,
    tolerance: float,
) -> Generator[Pass, Any, None]:
    """Move the best point to the best one of the segment to some weights and bias, by exact values of P.

    ``towards``: None if there is no such point.
    ``tolerance``: of the search, see `lowest`.
    """
    space, rounding, certificate = model.space, state.rounding, state.certificate
    penalized = float(space.penalized_bias)

    def over_bias(b: Float64Array) -> Generator[Pass, Any, Float64Array]:
        points = np.column_stack([np.zeros(len(b)), b])
        losses: Float64Array = yield RowPass(LossesAlong(model, model.best, points), rows)
        return 0.5 * (space.inner(state.best, state.best) + penalized * b**2) + losses

    primal = certificate.primal
    if not math.isfinite(primal):
        primal = float((yield from over_bias(np.full(1, state.best_b)))[0])
    if towards is not None:
        change, change_b = towards.w - state.best, towards.b - state.best_b
        n0 = space.inner(state.best, state.best) + penalized * state.best_b * state.best_b
        n1 = 2 * (space.inner(state.best, change) + penalized * state.best_b * change_b)
        n2 = space.inner(change, change) + penalized * change_b * change_b

        def along(t: Float64Array) -> Generator[Pass, Any, Float64Array]:
            points = np.column_stack([t, state.best_b + t * change_b])
            losses: Float64Array = yield RowPass(LossesAlong(model, model.newest, points), rows)
            return 0.5 * (n0 + t * n1 + t**2 * n2) + losses

        t, found = yield from lowest(along, 0.0, 2.0, tolerance)
        norms = space.norm(state.best), space.norm(towards.w)
        scores = rounding.scores_at(t, *norms, towards.error)
        # Near the optimum a step may be long and gain less than it costs in digits.
        lost = (scores - rounding.scores) * rounding.per_score
        if found < primal - max(lost, 0.0):
            yield RowPass(MoveBest(model, t), rows)
            rounding.scores = scores
            state.best, primal = state.best + t * change, found
            state.best_b += t * change_b
    if model.free_bias:
        b, found = yield from lowest(
            over_bias, state.best_b - state.unit, state.best_b + state.unit, tolerance
        )
        if found < primal:
            state.best_b = b
    # P is that of the model as it is given away: a bias far from 0 has fewer digits than one near the center.
    state.best_b = (state.best_b + state.center) - state.center
    # Of the point itself: what the search has found is a difference of larger norms.
    certificate.primal, certificate.primal_rounding = yield from primal_value(model, state, rows)
    if model.targets.in_margins and certificate.primal_rounding > tolerance * certificate.primal:
        yield from _clear_edges(model, state, rows)


def _clear_edges(model: DualModel, state: SmoState, rows: RowSet) -> Generator[Pass, Any, None]:
    """Stretch the best point, if its P is better known then.

    At an optimum of separable data rows lie at a margin of 1 to the last digit: rounding might as well leave
    all of them a loss, which is much where C is large. A little further off none has one.
    """
    certificate, rounding = state.certificate, state.rounding
    per_score = rounding.per_score
    factor = 1.0 + CLEAR * (rounding.residual + OWN_ERROR * (2.0 + abs(state.best_b)))
    if not sum((yield from primal_value(model, state, rows, factor))) < certificate.upper:
        rounding.per_score = per_score
        return
    yield RowPass(StretchBest(model, factor), rows)
    state.best, state.best_b = factor * state.best, factor * state.best_b
    rounding.scores = factor * rounding.scores + UNIT * model.space.norm(state.best)
    certificate.primal, certificate.primal_rounding = yield from primal_value(model, state, rows)


def primal_value(
    model: DualModel, state: SmoState, rows: RowSet, factor: float = 1.0
) -> Generator[Pass, Any, tuple[float, float]]:
    """P at the best point times a factor, and a bound of its rounding."""
    b, rounding, space = factor * state.best_b, state.rounding, model.space
    half = 0.5 * (factor * factor * space.inner(state.best, state.best) + space.penalized_bias * b * b)
    sums = yield RowPass(SlopeSizes(model, b, rounding.residual, factor), rows)
    size = rows.n_rows, space.n_features
    return half + float(sums[LOSS]), rounding.primal(half, sums, b + state.center, size)


def count_support(model: DualModel, state: SmoState, rows: RowSet) -> Generator[Pass, Any, int]:
    """Number of rows with a loss at the best point."""
    counted = yield RowPass(LossCount(model, state.best_b), rows)
    return int(counted[0])
