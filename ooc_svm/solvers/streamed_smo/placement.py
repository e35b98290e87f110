"""Where the data lies: a number and a row that are taken from all targets and rows, for fewer steps.

A bias that is free makes up for both, so that the problem stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Pass, Position, RowSet, Segment
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.grid_minimum import lowest
from ooc_svm.solvers.streamed_smo.dual import ClassCosts, DualModel, LossesAlong, TargetSums
from ooc_svm.solvers.streamed_smo.rounds import MIN_ROWS, Round, opening
from ooc_svm.solvers.streamed_smo.sweep import COST, NORM, NormPass

RHO = 0.1  # rho of a free bias, as a share of the mean squared norm of a row
# Squared norm of the mean row, as a share of the mean squared norm, from which on it is taken from the rows.
MEAN_SHARE = 0.5
# Least share of the mean squared norm that is left then: it is a difference.
NORM_LEFT = 1e-13

CENTER_TOLERANCE = 1e-3  # Of the search for the center, as a share of the losses there


def place_targets(model: DualModel, rows: RowSet) -> Generator[Pass, Any, tuple[float, float]]:
    """Center and unit of the targets: the best b without features, and their mean distance from it.

    The center is 0 unless b is free; classes are at a distance of 1 from 0 as they are.
    """
    if model.targets.in_margins:
        return 0.0, 1.0
    # They do not follow from C, nor do their last digits.
    model = replace(model, C=1.0)
    center, (cost, total, size, _) = 0.0, (yield RowPass(TargetSums(model), rows))
    if model.free_bias and cost > 0.0:
        mean = float(total / cost)
        centered = replace(model, center=mean)
        spread = float((yield RowPass(TargetSums(centered), rows))[2] / cost)

        def losses(b: Float64Array) -> Generator[Pass, Any, Float64Array]:
            points = np.column_stack([np.zeros(len(b)), b])
            found: Float64Array = yield RowPass(LossesAlong(centered, model.best, points), rows)
            return found

        best = (yield from lowest(losses, -spread, spread, CENTER_TOLERANCE))[0] if spread > 0.0 else 0.0
        center = mean + best
        size = (yield RowPass(TargetSums(replace(model, center=center)), rows))[2]
    if not (size > 0.0 and math.isfinite(size / cost)):
        return center, 1.0
    # Loops multiply by its inverse, which has to be finite.
    return center, float(max(size / cost, np.finfo(float).tiny))


def count_with_cost(model: DualModel, rows: RowSet) -> Generator[Pass, Any, int]:
    """Number of rows that cost something: the others have no multiplier to be found."""
    return int((yield RowPass(TargetSums(model), rows))[3])


def log_odds(model: DualModel, rows: RowSet) -> Generator[Pass, Any, float]:
    """Logarithm of the classes' odds, by cost: the bias of a logistic model without features."""
    positive, negative = (yield RowPass(ClassCosts(model), rows)).tolist()
    if not (positive > 0.0 and negative > 0.0):
        return math.inf if positive > 0.0 else -math.inf
    return math.log(positive) - math.log(negative)


def _first_rows(rows: RowSet) -> RowSet:
    """The first range of a lane, and those of the next lanes where these are a few rows."""
    segments: list[Segment] = []
    n_rows = 0
    for segment in rows.segments:
        own = segment[:1] if n_rows < MIN_ROWS else ()
        segments.append(own)
        n_rows += sum(part.n_rows for part in own)
    return RowSet(tuple(segments))


def place_rows(
    model: DualModel, rounds: Sequence[Round], rows: RowSet
) -> Generator[Pass, Any, tuple[float, Float64Array]]:
    """``rho`` and, where rows are far from the origin, the mean row in units of the data, else an empty one.

    Both follow from the first rows, which are read next anyway; any others would do.
    """
    space, nothing = model.space, np.empty(0)
    if not model.free_bias:
        return float(space.penalized_bias), nothing
    first = _first_rows(rounds[0].rows)
    # A part of a read: no read ends with it.
    part = Position(0, first.n_ranges, first.n_ranges + 1)
    found = yield NormPass(model, True, first, part, opening(rounds))
    costs = float((yield RowPass(TargetSums(model), rows))[0])
    cost, norm, mean = float(found.sums[COST]), float(found.sums[NORM]), nothing
    if cost > 0.0:
        norm /= cost
        mean = found.columns / cost if space.scale2 is None else found.columns / cost * space.scale2
        mean_norm = space.inner(mean, mean)
        if mean_norm < MEAN_SHARE * norm:
            mean = nothing
        else:
            norm = max(norm - mean_norm, NORM_LEFT * norm)
    # With a small C all multipliers together are small, and have to move b all the same.
    return max(RHO * norm, 1.0 / costs if costs > 0.0 else 0.0), mean
