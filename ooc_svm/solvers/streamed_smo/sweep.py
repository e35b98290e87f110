"""Passes of the dual solver: rounds of dual coordinate steps, and the scores of all rows.

All lanes of a round begin with the same weights; each moves its rows once, in a random order that follows
from the seed, with a copy of the weights of its own, and keeps the rows best worth holding in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, RowBlock, Values
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import Position, RowSet, RowSlice, StridedRange
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """Rows that the working set may take, with what the dual solver knows of them."""

    ids: Int64Array  # shape (m,): row numbers
    # Their CSR arrays; ``values`` is None where every stored value is 1
    indptr: Int64Array
    indices: Int32Array
    values: Values | None
    targets: Float64Array  # shape (m, 2): target and cost
    # shape (m,): multipliers before their lane, what the lane wants to add, and what the row is worth keeping
    dual: Float64Array
    step: Float64Array
    priority: Float64Array


@dataclass(frozen=True, slots=True)
class Residency:
    """Of the rows of a round: those that the working set holds, held at the read's start, or gave back."""

    # Row numbers
    now: Int64Array
    at_start: Int64Array
    returned: Int64Array
    multipliers: Float64Array  # Of the returned rows

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


@dataclass(frozen=True, slots=True)
class SweepPass:
    """The dual steps of one round."""

    model: DualModel
    w: Float64Array  # shape (n_features,): in units of the data
    rebuild: bool  # Whether the sum of ``v_i x_i`` is wanted
    bias: Float64Array  # shape (2,): b and rho
    theta: float  # The share of this round's last steps that was taken
    residency: Residency
    seed: np.uint64
    room: int  # Nonzeros and rows together that the candidates of a lane may have
    min_priority: float  # Of a candidate
    rows: RowSet  # A segment for each lane
    position: Position
    prefetch: tuple[int, ...] = ()
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.writes, *self.model.targets.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.dual, self.model.step)

    def empty(self) -> LaneSums:
        rebuilt = np.zeros(len(self.w) if self.rebuild else 0)
        return LaneSums(self.w.copy(), rebuilt, np.zeros(dual_loops.N_SUMS), [])

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: LaneSums) -> None:
        assert block is not None
        dual, step = rows.vectors[self.model.dual], rows.vectors[self.model.step]
        n_rows = len(dual)
        dual += self.theta * step
        back, place = places(self.residency.returned, rows)
        dual[place] = self.residency.multipliers[back]
        targets, priority = np.column_stack(self.model.target_costs(rows)), np.empty(n_rows)
        # A lane's b follows from its own steps since its start.
        bias = self.bias.copy()
        bias[0] += bias[1] * partial.sums[dual_loops.MOVED]
        first = rows.start - block.start
        dual_loops.sweep(
            self.model.loss, *block.arrays, np.uint64(first), np.uint64(rows.step),
            seed_of(self.seed, rows.start), self.model.space.scale2, partial.w, partial.rebuilt, bias,
            targets, self.residency.marks(rows), dual, step, priority, partial.sums,
        )  # fmt: skip
        own = first + rows.step * np.arange(n_rows)
        sizes = block.indptr[own + 1] - block.indptr[own] + 1
        room = self.room * n_rows // self._rows_of_lane(rows.start)
        chosen = _best_rows(priority, sizes, self.min_priority, room)
        if len(chosen):
            taken = targets[chosen], dual[chosen], step[chosen], priority[chosen]
            partial.candidates.append(_candidates(block, own[chosen], taken))

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
    reads: ClassVar[tuple[str, ...]] = ()

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.model.newest,)

    def empty(self) -> Float64Array:
        return np.empty(0)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        assert block is not None
        first, step = np.uint64(rows.start - block.start), np.uint64(rows.step)
        row_ops.scores(*block.arrays, first, step, self.reference, rows.vectors[self.model.newest])

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        return left


@dataclass(frozen=True, slots=True)
class NormPass:
    """Sum of the squared norms of some rows, and their number: shape (2,)."""

    scale2: Float64Array | None
    rows: RowSet
    position: Position
    prefetch: tuple[int, ...] = ()
    needs_data: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()

    def empty(self) -> Float64Array:
        return np.zeros(2)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        assert block is not None
        own = np.arange(rows.start - block.start, rows.stop - block.start, rows.step)
        squares = np.empty(len(own))
        row_ops.row_squares(*block.arrays, self.scale2, own, squares)
        with np.errstate(over="ignore"):  # the certificate reports it
            partial[0] += squares.sum()
        partial[1] += len(own)

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        left += right
        return left


def by_falling_priority(priority: Float64Array) -> Int64Array:
    """Positions by falling priority, those of nearly equal ones in their order.

    Priorities lie between 0 and 4; 16 bits of them are sorted by radix, twelve times as fast as all.
    """
    levels = (np.clip(4.0 - priority, 0.0, 4.0) * 16383.0).astype(np.uint16)
    return np.argsort(levels, kind="stable")


def _best_rows(priority: Float64Array, sizes: Int64Array, least: float, room: int) -> Int64Array:
    """The rows of the highest priorities that fit the room together, ascending; a held row has -1."""
    free = np.flatnonzero((priority >= least) & (sizes <= room))
    if sizes[free].sum() > room:
        free = free[by_falling_priority(priority[free])]
        free = np.sort(free[np.cumsum(sizes[free]) <= room])
    return free


def _candidates(
    block: RowBlock, own: Int64Array, taken: tuple[Float64Array, Float64Array, Float64Array, Float64Array]
) -> CandidateRows:
    """Copies of some of a block's rows."""
    indptr = np.zeros(len(own) + 1, dtype=np.int64)
    np.cumsum(block.indptr[own + 1] - block.indptr[own], out=indptr[1:])
    indices = np.empty(indptr[-1], dtype=np.int32)
    values = None if block.values is None else np.empty(indptr[-1], dtype=block.values.dtype)
    row_ops.gather_rows(
        *block.arrays, own, row_ops.unsigned(indptr), row_ops.unsigned(indices), values
    )  # fmt: skip
    return CandidateRows(block.start + own, indptr, indices, values, *taken)


def places(ids: Int64Array, rows: RowSlice | StridedRange) -> tuple[npt.NDArray[np.bool_], Int64Array]:
    """Which of the row numbers are among the rows, and where."""
    inside = (ids >= rows.start) & (ids < rows.stop) & ((ids - rows.start) % rows.step == 0)
    return inside, (ids[inside] - rows.start) // rows.step


def seed_of(*numbers: int | np.uint64) -> np.uint64:
    """A 64-bit seed that changes with each of the numbers."""
    seed = 0
    for number in numbers:
        seed = (seed ^ int(number)) * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03 & _MASK
        seed ^= seed >> 32
    return np.uint64(seed)
