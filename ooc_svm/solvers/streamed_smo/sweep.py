"""Passes of the dual solver: rounds of dual coordinate steps, and the scores of all rows.

All lanes of a round begin with the same weights; each moves its rows, in a random order that follows from
the seed, with a copy of the weights of its own, and keeps the rows best worth holding in memory.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, RowBlock, Values
from ooc_svm.ops import rows as row_ops
from ooc_svm.ops.hashing import GOLDEN
from ooc_svm.passes.base import Fused, Position, RowSet, RowSlice
from ooc_svm.passes.gather import take_rows
from ooc_svm.solvers.streamed_smo import choice_loops, dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.effort import FEWEST_FUSED, MOST_FUSED

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Copies of some rows; models that are swept as one share them."""

    ids: Int64Array  # shape (m,): row numbers
    # CSR arrays; ``values`` is None where every stored value is 1
    indptr: Int64Array
    indices: Int32Array
    values: Values | None


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """Rows that a working set may take, with what its model knows of them."""

    ids: Int64Array  # shape (m,): row numbers
    copies: CopiedRows  # Other models may have the same
    # shape (m,): place of each row among the copies; -1: it is resident already, for some model
    places: Int64Array
    targets: Float64Array  # shape (m, 2): target and cost
    # shape (m,): multipliers before their lane, what the lane wants to add, and what the row is worth keeping
    dual: Float64Array
    step: Float64Array
    priority: Float64Array

    def rescaled(self, ratio: float) -> CandidateRows:
        """The same rows, their costs and multipliers times a ratio."""
        targets = self.targets * [1.0, ratio]
        return replace(self, targets=targets, dual=self.dual * ratio, step=self.step * ratio)


@dataclass(frozen=True, slots=True)
class Residency:
    """Of the rows of a round: those that the working set holds, held at the read's start, or gave back."""

    # Row numbers
    now: Int64Array
    at_start: Int64Array
    returned: Int64Array
    multipliers: Float64Array  # Of the returned rows
    anywhere: Int64Array  # Rows that are resident for any model

    def marks(self, rows: RowSlice) -> npt.NDArray[np.uint8]:
        """The mark of each row."""
        numbers = range(rows.start, rows.stop, rows.step)
        marks = np.zeros(len(numbers), dtype=np.uint8)
        for ids, bit in ((self.now, dual_loops.HELD), (self.at_start, dual_loops.HELD_AT_START)):
            marks[places(ids, rows)[1]] |= bit
        return marks


@dataclass(slots=True)
class LaneSums:
    """What the lanes of a round come back with."""

    w: Float64Array  # shape (n_features,): the weights that all began with, plus what each lane added
    # shape (n_features,) or (0,): sum of ``v_i x_i`` over the rows not held at the read's start, before their
    # steps
    rebuilt: Float64Array
    sums: Float64Array  # shape (N_SUMS,)
    candidates: list[CandidateRows]  # The rows best worth keeping, in the order of the lanes

    @classmethod
    def without_steps(cls, w: Float64Array) -> LaneSums:
        """What comes back where no row is moved."""
        return cls(w, np.empty(0), np.zeros(dual_loops.N_SUMS), [])


class Piece(NamedTuple):
    """What a model knows of some rows, as `dual_loops.sweep` takes it."""

    targets: Float64Array  # shape (m, 2)
    marks: npt.NDArray[np.uint8]
    # shape (m,); the priority is found by the steps
    dual: Float64Array
    step: Float64Array
    priority: Float64Array


@dataclass(frozen=True, slots=True)
class SweepPass:
    """The dual steps of one round."""

    model: DualModel
    w: Float64Array  # shape (n_features,): in units of the data
    mean: Float64Array | None  # See `dual_loops`
    rebuild: bool  # Whether the sums of the multipliers before the steps are wanted
    bias: Float64Array  # shape (3,): see `dual_loops`
    unit: float  # Of residuals
    theta: float  # The share of this round's last steps that was taken
    residency: Residency
    visits: int  # Times that each row is moved
    seed: np.uint64
    # Nonzeros and rows together that the candidates of a lane may have, and how many they may be
    room: tuple[int, int]
    min_priority: float  # Of a candidate
    rows: RowSet  # A segment for each lane
    position: Position
    prefetch: tuple[int, ...] = ()
    needs_data: ClassVar[bool] = True
    fewest: ClassVar[int] = FEWEST_FUSED
    most: ClassVar[int] = MOST_FUSED

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.writes, *self.model.targets.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.step)

    def empty(self) -> LaneSums:
        rebuilt = np.zeros(len(self.w) if self.rebuild else 0)
        return LaneSums(self.w.copy(), rebuilt, np.zeros(dual_loops.N_SUMS), [])

    @property
    def kind(self) -> Hashable | None:
        """Sweeps over the same rows in the same order, with weights as they are.

        The models are of one company, so that the same rows are resident.
        """
        if self.mean is not None:
            return None
        loss, scale, before = self.model.loss, self.model.space.scale, self.position.before
        # Losses are tuples: those without numbers are equal, whatever their type.
        return type(loss), loss, id(scale), self.rebuild, self.visits, int(self.seed), before

    @staticmethod
    def fuse(parts: Sequence[SweepPass]) -> Fused:
        """One pass over the rows for all of them."""
        from ooc_svm.solvers.streamed_smo.many import ManySweeps  # it is made of these

        many = ManySweeps(tuple(parts))
        return Fused(many, many.split)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: LaneSums) -> None:
        assert block is not None
        piece = self.piece(rows, partial)
        dual_loops.sweep(
            self.model.loss, *block.arrays, *rows.piece_of(block), self.visits,
            seed_of(self.seed, rows.start), self.model.space.scale2, self.mean, partial.w, partial.rebuilt,
            self.bias_of(partial), self.unit, *piece, partial.sums,
        )  # fmt: skip
        offer_best([self], block, rows, [piece], [partial])

    def piece(self, rows: RowSlice, partial: LaneSums) -> Piece:
        """What the steps of some rows need and change, the last round's steps taken."""
        dual, step = rows.vectors[self.model.dual], rows.vectors[self.model.step]
        add_steps(dual, step, self.theta, self.residency, rows)
        targets, marks = self.model.targets_and_costs(rows), self.residency.marks(rows)
        if self.rebuild:
            dual_loops.count_before(self.model.loss, dual, targets, marks, partial.sums)
        return Piece(targets, marks, dual, step, np.empty(len(dual)))

    def best(self, rows: RowSlice, sizes: Int64Array, piece: Piece) -> Int64Array:
        """The rows best worth keeping, after the steps, ascending; ``sizes``: the room that each takes."""
        priority = piece.priority
        # Rows that cost nothing have no multiplier to be found.
        priority[piece.targets[:, 1] == 0.0] = -1.0
        in_lane = self._rows_of_lane(rows.start)
        room, most = (part * len(priority) // in_lane for part in self.room)
        eligible = (priority >= self.min_priority) & (sizes <= room)
        return np.flatnonzero(choice_loops.best_that_fit(priority, sizes, eligible, room, most))

    def bias_of(self, lane: LaneSums) -> Float64Array:
        """The bias of a lane: it follows from the lane's own steps since its start."""
        bias, moved = self.bias.copy(), lane.sums[dual_loops.MOVED]
        bias[dual_loops.B] += bias[dual_loops.RHO] * moved - lane.sums[dual_loops.MOMENT]
        bias[dual_loops.TOTAL] += moved
        return bias

    def _rows_of_lane(self, start: int) -> int:
        """Rows of the lane that has a range which begins at this row."""
        lanes = self.rows.segments
        return next(
            sum(part.n_rows for part in lane) for lane in lanes if any(part.start == start for part in lane)
        )

    def merge(self, left: LaneSums, right: LaneSums) -> LaneSums:
        dual_loops.add_change(left.w, 1.0, self.w, right.w)
        left.rebuilt += right.rebuilt
        left.sums += right.sums
        left.candidates += right.candidates
        return left


@dataclass(frozen=True, slots=True)
class ScorePass:
    """Scores of the rows of a round with a reference, into the row vector of the newest scores."""

    model: DualModel
    reference: Float64Array
    rows: RowSet
    position: Position
    prefetch: tuple[int, ...] = ()
    needs_data: ClassVar[bool] = True
    fewest: ClassVar[int] = FEWEST_FUSED
    most: ClassVar[int] = MOST_FUSED
    reads: ClassVar[tuple[str, ...]] = ()

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.newest,)

    @property
    def kind(self) -> Hashable | None:
        """Scores of the same rows."""
        return self.position.before

    @staticmethod
    def fuse(parts: Sequence[ScorePass]) -> Fused:
        """One pass over the rows for all of them."""
        from ooc_svm.solvers.streamed_smo.many import ManyScores  # it is made of these

        many = ManyScores(tuple(parts))
        return Fused(many, many.split)

    def empty(self) -> Float64Array:
        return np.empty(0)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        assert block is not None
        newest = rows.vectors[self.model.newest]
        row_ops.scores(*block.arrays, *rows.piece_of(block), self.reference, newest)

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        return left


@dataclass(slots=True)
class RowSums:
    """Sums over rows, by their costs c: what the bias and the rounding follow from."""

    sums: Float64Array  # shape (N_ROW_SUMS,)
    columns: Float64Array  # shape (n_features,) or (0,): ``sum_i c_i x_i``

    def add(self, sums: Float64Array) -> None:
        """Add those of other rows."""
        self.sums[:LONGEST] += sums[:LONGEST]
        self.sums[LONGEST] = max(self.sums[LONGEST], sums[LONGEST])


# With m for the nonzeros of a row: ``sum c``, ``sum c |x|^2``, ``sum c (m + 2)^2 |x|^2``, and the largest
# ``(m + 2) |x|``
COST, NORM, LENGTH, LONGEST = range(4)
N_ROW_SUMS = 4


@dataclass(frozen=True, slots=True)
class NormPass:
    """Sums of costs and squared norms of some rows, and of the rows themselves if they are wanted."""

    model: DualModel
    with_columns: bool
    rows: RowSet
    position: Position
    prefetch: tuple[int, ...] = ()
    needs_data: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return self.model.targets.reads

    def empty(self) -> RowSums:
        n_columns = self.model.space.n_features if self.with_columns else 0
        return RowSums(np.zeros(N_ROW_SUMS), np.zeros(n_columns))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: RowSums) -> None:
        assert block is not None
        own = rows.places_in(block)
        squares, (_, cost) = np.empty(len(own)), self.model.target_costs(rows)
        row_ops.row_squares(*block.arrays, self.model.space.scale2, own, squares)
        with np.errstate(over="ignore"):  # the certificate reports it
            lengths = (np.diff(block.indptr)[own] + 2.0) ** 2 * squares
            partial.sums[:LONGEST] += [cost.sum(), cost @ squares, cost @ lengths]
            partial.sums[LONGEST] = max(partial.sums[LONGEST], math.sqrt(lengths.max(initial=0.0)))
        if self.with_columns:
            coefficients = np.zeros(block.n_rows)
            coefficients[own] = cost
            row_ops.add_rows(*block.arrays, None, coefficients, partial.columns)

    def merge(self, left: RowSums, right: RowSums) -> RowSums:
        left.add(right.sums)
        left.columns += right.columns
        return left


def offer_best(
    passes: Sequence[SweepPass],
    block: RowBlock,
    rows: RowSlice,
    pieces: Sequence[Piece],
    lanes: Sequence[LaneSums],
) -> None:
    """Let each model offer the rows best worth keeping, after the steps; rows are copied once for all."""
    own = rows.places_in(block)
    is_new = np.ones(len(own), dtype=np.bool_)
    is_new[places(passes[0].residency.anywhere, rows)[1]] = False
    sizes = np.where(is_new, block.indptr[own + 1] - block.indptr[own] + 1, 1)
    chosen = [each.best(rows, sizes, piece) for each, piece in zip(passes, pieces, strict=True)]
    is_copied = np.zeros(len(own), dtype=np.bool_)
    for each in chosen:
        is_copied[each] = True
    is_copied &= is_new
    copies, place = copy_rows(block, own[is_copied]), np.where(is_copied, np.cumsum(is_copied) - 1, -1)
    for best, piece, lane in zip(chosen, pieces, lanes, strict=True):
        if len(best):
            taken = piece.targets.take(best, axis=0), piece.dual[best], piece.step[best], piece.priority[best]
            lane.candidates.append(CandidateRows(block.start + own[best], copies, place[best], *taken))


def copy_rows(block: RowBlock, own: Int64Array) -> CopiedRows:
    """Copies of some of a block's rows."""
    rows = take_rows(block, own)
    return CopiedRows(block.start + own, rows.indptr, rows.indices, rows.values)


def distinct(candidates: Sequence[CandidateRows]) -> list[CopiedRows]:
    """The copies of all of them, each once, as they come first."""
    return list({id(part.copies): part.copies for part in candidates}.values())


def add_steps(
    dual: Float64Array, step: Float64Array, theta: float, residency: Residency, rows: RowSlice
) -> None:
    """Bring multipliers of a round up to date, in place: the last steps, and rows that were given back."""
    dual += theta * step
    back, place = places(residency.returned, rows)
    dual[place] = residency.multipliers[back]


def places(ids: Int64Array, rows: RowSlice) -> tuple[npt.NDArray[np.bool_], Int64Array]:
    """Which of the row numbers are among the rows, and where."""
    inside = (ids >= rows.start) & (ids < rows.stop)
    if rows.step > 1:
        inside &= (ids - rows.start) % rows.step == 0
    return inside, (ids[inside] - rows.start) // rows.step


def seed_of(*numbers: int | np.uint64) -> np.uint64:
    """A 64-bit seed that changes with each of the numbers."""
    seed = 0
    for number in numbers:
        seed = (seed ^ int(number)) * int(GOLDEN) + 0xD1B54A32D192ED03 & _MASK
        seed ^= seed >> 32
    return np.uint64(seed)
