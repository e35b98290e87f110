"""Whether a saved state is that of a run on these data: a read that finds everything again that bounds need.

A checkpoint may come from anywhere, and a bound is worth what it was computed from. So multipliers have to be
inside their bounds, the resident rows have to be those of the data, and the scores those of the weights. P
and D are then found from them. A state that is as the solver saved it does not change.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import Overlap, Pass, Position, RowSet, RowSlice
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.rounding import UNIT
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.best_point import primal_value
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import (
    N_ROW_SUMS,
    CopiedRows,
    NormPass,
    Residency,
    RowSums,
    add_steps,
    copy_rows,
)

# Relative error of a multiplier's bound: by as much may rounding have put it outside.
OUTSIDE = 16.0 * UNIT


@dataclass(slots=True)
class Found:
    """What some rows have come to."""

    w: Float64Array  # shape (n_features,): sum of ``v_i x_i`` over the rows that are not resident
    sums: Float64Array  # shape (dual_loops.N_SUMS,): see `dual_loops.count_before`
    outside: int  # Multipliers outside their bounds
    # Largest difference of a score at the best point from the row's product, as a multiple of ``(m + 2) |x|``
    difference: float
    # Resident rows and their targets, as the data have them
    resident: list[tuple[CopiedRows, Float64Array]]


@dataclass(frozen=True, slots=True)
class SavedPass:
    """The check of the rows of a round."""

    model: DualModel
    best: Float64Array  # shape (n_features,): weights of the best point
    theta: float  # The share of the round's last steps that was taken
    residency: Residency
    rows: RowSet
    position: Position
    prefetch: tuple[int, ...] = ()
    needs_data: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.step, self.model.best, *self.model.targets.reads)

    def empty(self) -> Found:
        return Found(np.zeros(len(self.best)), np.zeros(dual_loops.N_SUMS), 0, 0.0, [])

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Found) -> None:
        assert block is not None
        model, residency = self.model, self.residency
        dual = rows.vectors[model.dual].copy()
        add_steps(dual, rows.vectors[model.step], self.theta, residency, rows)
        targets, marks = model.targets_and_costs(rows), residency.marks(rows)
        held = marks != 0
        dual[held] = 0.0
        partial.outside += dual_loops.count_outside(model.loss, dual, targets, OUTSIDE)
        dual_loops.count_before(model.loss, dual, targets, marks, partial.sums)
        own = rows.places_in(block)
        coefficients = np.zeros(block.n_rows)
        coefficients[own] = dual
        row_ops.add_rows(*block.arrays, model.space.scale2, coefficients, partial.w)
        scores, squares = np.empty((2, len(own)))
        row_ops.scores(*block.arrays, *rows.piece_of(block), self.best, scores)
        difference = np.abs(scores - rows.vectors[model.best])
        row_ops.row_squares(*block.arrays, model.space.scale2, own, squares)
        length = (np.diff(block.indptr)[own] + 2.0) * np.sqrt(squares)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(difference == 0.0, 0.0, difference / length)
        # A score that is no number is as far as can be.
        partial.difference = max(partial.difference, float(np.nan_to_num(ratio, nan=np.inf).max(initial=0.0)))
        if held.any():
            partial.resident.append((copy_rows(block, own[held]), targets[held]))

    def merge(self, left: Found, right: Found) -> Found:
        left.w += right.w
        left.sums += right.sums
        left.outside += right.outside
        left.difference = max(left.difference, right.difference)
        left.resident += right.resident
        return left


def check_rounds(
    model: DualModel,
    best: Float64Array,
    rounds: Sequence[Round],
    taken: Iterable[tuple[float, Residency]],
    found: Found,
) -> Generator[Overlap, Any, tuple[Found, Float64Array]]:
    """Read the data once, in a read that is not counted: what is found, and the sums of `NormPass`.

    ``best``: the weights of the best point. ``taken``: of each round the share of its last steps that was
    taken, and which of its rows are resident. ``found``: what was found before, which is added to.
    """
    norms = RowSums(np.zeros(N_ROW_SUMS), np.empty(0))
    for each, (theta, residency) in zip(rounds, taken, strict=True):
        place = each.rows, each.position.uncounted, each.prefetch
        check = SavedPass(model, best, theta, residency, *place)
        part, own_norms = yield Overlap((check, NormPass(model, False, *place)))
        norms.add(own_norms.sums)
        found = check.merge(found, part)
    return found, norms.sums


def find_again(
    model: DualModel, state: SmoState, rounds: Sequence[Round], rows: RowSet, origin: str
) -> Generator[Overlap | Pass, Any, Found]:
    """Read the data once, in a read that is not counted; sums over all rows, resident ones included.

    The sums that rounding follows from are put into the state. DamageError, with the checkpoint ``origin``,
    if a part of the state cannot be that of a run on these data.
    """
    multipliers, working_set, certificate = (
        state.multipliers,
        state.multipliers.working_set,
        state.certificate,
    )
    found = Found(working_set.sum_of_rows(model), working_set.sums_before(model), 0, 0.0, [])
    resident = working_set.ids
    taken = (
        (theta, multipliers.residency(each, resident, each.inside(multipliers.returned)))
        for each, theta in zip(rounds, multipliers.thetas.tolist(), strict=True)
    )
    found, state.rounding.rows = yield from check_rounds(model, state.best, rounds, taken, found)
    primal, rounding = yield from primal_value(model, state, rows)
    wrong = _false_part(model, state, found)
    if wrong is not None:
        raise Certificate.does_not_fit(origin, wrong)
    if math.isfinite(certificate.primal):
        certificate.check_primal(primal, rounding, origin)
    certificate.primal_rounding = max(certificate.primal_rounding, rounding)
    return found


def _false_part(model: DualModel, state: SmoState, found: Found) -> str | None:
    """What is not as the data have it; None if nothing is."""
    working_set = state.multipliers.working_set
    outside = dual_loops.count_outside(model.loss, working_set.dual, working_set.targets, OUTSIDE)
    if found.outside + outside:
        return f"{found.outside + outside} multipliers are outside their bounds"
    if not model.free_bias and state.center:
        return "it has a center and no bias"
    n_resident = sum(len(rows.ids) for rows, _ in found.resident)
    if n_resident != len(working_set.ids) or not all(working_set.holds(*part) for part in found.resident):
        return "its resident rows are other ones"
    scores = state.rounding.scores + 2.0 * UNIT * model.space.norm(state.best)
    if not found.difference <= scores:
        return "the scores in it are not those of its weights"
    return None
