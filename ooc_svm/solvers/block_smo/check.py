"""Whether a saved state of block SMO is one of these data: its scores are computed again, in float64.

A bound would follow from whatever scores and rows a checkpoint has. So a resumed run first compares them with
the data, by two reads that are not counted. A state as the solver saved it does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.ops.rows import row_squares
from ooc_svm.passes.base import UNCOUNTED, Position, RowSlice, union
from ooc_svm.passes.gather import GatheredRows, join_rows, take_rows
from ooc_svm.solvers.block_smo import bound, set_loops
from ooc_svm.solvers.block_smo.bound import RowSizes, Values
from ooc_svm.solvers.block_smo.state import BlockSmoState
from ooc_svm.solvers.block_smo.update import KernelModel, Moved, add_kernel_values
from ooc_svm.solvers.certificate import Certificate


@dataclass(frozen=True, slots=True, eq=False)
class SavedRows:
    """Rows of a checkpoint, in the order of their numbers, and the multipliers that it says they have."""

    numbers: Int64Array
    rows: RowBlock
    v: Float64Array | None = None

    def differ(self, block: RowBlock, rows: RowSlice, v: Float64Array) -> bool:
        """Whether those among some rows of the data are other ones."""
        here = np.arange(*np.searchsorted(self.numbers, (rows.start, rows.stop)))
        numbers = self.numbers[here]
        saved, own = take_rows(self.rows, here), take_rows(block, numbers - block.start)
        if self.v is not None and not np.array_equal(self.v[here], v[numbers - rows.start]):
            return True
        pairs = zip(saved.arrays, own.arrays, strict=True)
        return not all(np.array_equal(a, b) for a, b in pairs if a is not None and b is not None)


@dataclass(slots=True)
class Compared:
    """What a comparison found."""

    # Sums of the point of the moment, and of the best one
    now: Float64Array = field(default_factory=lambda: np.zeros(set_loops.N_SUMS))
    best: Float64Array = field(default_factory=lambda: np.zeros(set_loops.N_SUMS))
    excess: float = 0.0  # What a score is further from what it is than its error says
    n_outside: int = 0  # Multipliers outside of their bounds
    n_other: int = 0  # Parts of blocks of which saved rows are other ones
    square: float = 0.0  # Of `RowSizes`
    nonzeros: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ComparePass:
    """Compare scores with those computed from the multipliers, and saved rows with those of the data."""

    model: KernelModel
    # As three changes: the multipliers of now, those that rows set aside have followed, the best ones
    points: Moved
    biases: tuple[float, float]  # Of now and of the best point
    saved: tuple[SavedRows, ...]
    bounded: tuple[str, ...]  # Row vectors whose multipliers have bounds
    rows: ClassVar[None] = None
    position: ClassVar[Position] = UNCOUNTED
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        model = self.model
        names = model.v, model.h, model.error, model.aside, model.best_v, model.best_h, model.best_error
        return union((model.targets.reads, names))

    def empty(self) -> Compared:
        return Compared()

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Compared) -> None:
        assert block is not None
        model, vectors, n = self.model, rows.vectors, rows.stop - rows.start
        chosen, squares = np.arange(n, dtype=np.uint64) + np.uint64(rows.start - block.start), np.empty(n)
        row_squares(*block.arrays, model.scale2, chosen, squares)
        exact = np.zeros((len(self.points.change), n))
        add_kernel_values(model, "float64", block, chosen, squares, self.points, exact)
        v, h, t, costs = model.rows(rows)
        boxes = np.empty((4, n))
        set_loops.fill_boxes(model.loss, t, costs, boxes)
        for own in (vectors[name] for name in self.bounded):
            partial.n_outside += int(np.count_nonzero(~((own >= boxes[0]) & (own <= boxes[1]))))
        followed = np.where(vectors[model.aside] != 0.0, exact[1], exact[0])
        points = (h, followed, model.error), (vectors[model.best_h], exact[2], model.best_error)
        for scores, true, error in points:
            partial.excess = _largest(partial.excess, np.maximum(np.abs(scores - true) - vectors[error], 0.0))
        none = np.zeros(n)
        sums = (
            (v, exact[0], self.biases[0], partial.now),
            (vectors[model.best_v], exact[2], self.biases[1], partial.best),
        )
        for own, scores, bias, found in sums:
            set_loops.add_sums(model.loss, own, scores, none, bias, t, costs, found)
        partial.n_other += sum(each.differ(block, rows, v) for each in self.saved)
        lengths = np.diff(block.indptr)[chosen.view(np.int64)]
        partial.square = max(partial.square, float(squares.max(initial=0.0)))
        partial.nonzeros = max(partial.nonzeros, int(lengths.max(initial=0)))

    def merge(self, left: Compared, right: Compared) -> Compared:
        left.now += right.now
        left.best += right.best
        left.n_outside += right.n_outside
        left.n_other += right.n_other
        for name in ("excess", "square", "nonzeros"):
            setattr(left, name, _largest(getattr(left, name), getattr(right, name)))
        return left


def _largest(known: Any, found: Any) -> Any:
    """The largest magnitude; what is no number counts as infinite."""
    most = np.max(np.abs(found), initial=known)
    return most.item() if np.isfinite(most) else np.inf


def comparison(model: KernelModel, state: BlockSmoState, found: GatheredRows) -> ComparePass:
    """The pass for a state, given the rows of the data that have a multiplier, now or at the best point."""
    working, backlog = state.working, state.backlog
    both = join_rows([part for part in (found.rows, backlog.rows) if part.n_rows])
    numbers = np.concatenate([found.numbers, backlog.numbers])
    v, best = found.vectors[model.v], found.vectors[model.best_v]
    none = np.zeros(backlog.n_rows)
    changes = np.array([np.concatenate(each) for each in ((v, none), (v, -backlog.change), (best, none))])
    points = Moved.of(numbers, both, changes, np.empty(0), model.scale2)
    places = np.argsort(working.numbers)
    own = SavedRows(working.numbers[places], take_rows(working.rows, places), working.before[places])
    saved = own, SavedRows(backlog.numbers, backlog.rows)
    bounded = (model.v,) if state.unbounded else (model.v, model.best_v)
    return ComparePass(model, points, (state.pivot, state.best_bias), saved, bounded)


def check_state(
    model: KernelModel,
    state: BlockSmoState,
    found: Compared,
    weight: float,
    kind: str,
    n_rows: int,
    precision: str,
    origin: str,
) -> None:
    """DamageError, with the checkpoint ``origin``, if a part of a state cannot be true.

    ``weight``: the sum of the magnitudes of all multipliers. ``kind``: of the bias.
    """
    sizes, certificate = RowSizes(found.square, found.nonzeros, model.ones), state.certificate
    fine, coarse = (
        bound.largest_update_error(model.kernel, sizes, each, weight, n_rows)
        for each in ("float64", precision)
    )
    largest = bound.largest_value(model.kernel, sizes)

    def of(sums: Float64Array, bias: float) -> Values:
        return bound.values(sums, bias, kind, fine, largest, n_rows)

    if found.n_outside:
        raise Certificate.does_not_fit(origin, f"{found.n_outside} multipliers are outside their bounds")
    if found.n_other:
        raise Certificate.does_not_fit(origin, "rows that it holds are other ones")
    if not found.excess <= fine:
        raise Certificate.does_not_fit(origin, f"a score is off by {found.excess:.3g} more than it says")
    best, now = of(found.best, state.best_bias), of(found.now, state.pivot)
    certificate.check_primal(best.primal, best.primal_rounding, origin)
    # Steps in the precision of the search can lose that much of D.
    certificate.check_dual(now.dual, now.dual_rounding + coarse * weight, origin)
