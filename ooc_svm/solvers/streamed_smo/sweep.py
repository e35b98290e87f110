"""Sweep passes: rounds and lanes of dual coordinate steps, pure functions of rows, weights and multipliers.

One read of the data is cut into rounds, and each round into lanes. All lanes of a round begin with the same
weights; each moves its rows once, in a random order that follows from the seed, with a copy of its own, and
keeps the rows best worth holding in memory. Rounds and lanes belong to the algorithm, never to the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, RowBlock, Values
from ooc_svm.data.source import Span
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import Extent, Piece, RowSlice, Segment
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualProblem, names

# Rows of a lane below which rounds are not worth their overhead.
MIN_ROWS = 64

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows with what a dual solver knows of them.

    Attributes
    ----------
    ids : ndarray of int64, shape (m,)
        Row numbers.
    indptr, indices, values
        Their CSR arrays; ``values`` is None where every stored value is 1.
    box : ndarray of float64, shape (m, 4)
    dual, step, keys : ndarrays of float64, shape (m,)
        Multipliers before their lane, what the lane wants to add, and what the row is worth keeping.
    """

    ids: Int64Array
    indptr: Int64Array
    indices: Int32Array
    values: Values | None
    box: Float64Array
    dual: Float64Array
    step: Float64Array
    keys: Float64Array


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a round that the solver holds, held at the pass's start, or has given back since.

    Attributes
    ----------
    now, at_start, returned : ndarrays of int64
        Row numbers.
    multipliers : ndarray of float64
        Of the returned rows.
    """

    now: Int64Array
    at_start: Int64Array
    returned: Int64Array
    multipliers: Float64Array

    def marks(self, rows: RowSlice) -> npt.NDArray[np.uint8]:
        """The mark of each row."""
        numbers = range(rows.start, rows.stop, rows.step)
        marks = np.zeros(len(numbers), dtype=np.uint8)
        for ids, bit in ((self.now, dual_loops.HELD), (self.at_start, dual_loops.HELD_AT_START)):
            marks[places(ids, rows)[1]] |= bit
        return marks


@dataclass(slots=True)
class LaneSums:
    """What the lanes of a round come back with.

    Attributes
    ----------
    w : ndarray of float64, shape (n_features,)
        The weights that all began with, plus what each lane added.
    rebuilt : ndarray of float64, shape (n_features,) or (0,)
        Sum of ``v_i x_i`` over the rows not held at the pass's start, before their steps.
    sums : ndarray of float64, shape (N_SUMS,)
    best : list of Rows
        The rows best worth keeping, in the order of the lanes.
    """

    w: Float64Array
    rebuilt: Float64Array
    sums: Float64Array
    best: list[Rows]


@dataclass(frozen=True, slots=True)
class SweepPass:
    """One round.

    Parameters
    ----------
    problem : DualProblem
    w : ndarray of float64, shape (n_features,)
        In units of the data.
    reference : ndarray of float64, shape (n_features,) or (0,)
        Weights that all rows are scored with; none if empty.
    rebuild : bool
        Whether the sum of ``v_i x_i`` is wanted.
    bias : ndarray of float64, shape (2,)
        b and rho.
    theta : float
        The share of this round's last steps that was taken.
    held : Held
    seed : uint64
    room : int
        Nonzeros and rows together that a lane may bring back,
    least : float
        of rows with at least this key.
    extent : Extent
    meanwhile : callable or None
    """

    problem: DualProblem
    w: Float64Array
    reference: Float64Array
    rebuild: bool
    bias: Float64Array
    theta: float
    held: Held
    seed: np.uint64
    room: int
    least: float
    extent: Extent
    meanwhile: Callable[[], None] | None
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.writes, *self.problem.targets.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        dual, step, newest, _ = names(self.problem)
        return (dual, step, newest) if len(self.reference) else (dual, step)

    @property
    def partial_nbytes(self) -> int:
        return 8 * len(self.w) * (1 + self.rebuild)

    @property
    def beside(self) -> Callable[[RowBlock, RowSlice], None] | None:
        return self._score if len(self.reference) else None

    def empty(self) -> LaneSums:
        rebuilt = np.zeros(len(self.w) if self.rebuild else 0)
        return LaneSums(self.w.copy(), rebuilt, np.zeros(dual_loops.N_SUMS), [])

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: LaneSums) -> None:
        assert block is not None
        names_ = names(self.problem)
        dual, step = (rows.vectors[name] for name in names_[:2])
        n_rows = len(dual)
        dual += self.theta * step
        held = self.held
        back, place = places(held.returned, rows)
        dual[place] = held.multipliers[back]
        box, keys = self.problem.boxes(rows), np.empty(n_rows)
        # A lane's b follows from its own steps since its start.
        bias = self.bias.copy()
        bias[0] += bias[1] * partial.sums[dual_loops.MOVED]
        first = rows.start - block.start
        dual_loops.sweep(
            row_ops.unsigned(block.indptr), row_ops.unsigned(block.indices), block.values, np.uint64(first),
            np.uint64(rows.step), seed_of(self.seed, rows.start), self.problem.metric, partial.w,
            partial.rebuilt, bias, box, self.problem.epsilon, held.marks(rows), dual, step, keys,
            partial.sums,
        )  # fmt: skip
        own = first + rows.step * np.arange(n_rows)
        sizes = block.indptr[own + 1] - block.indptr[own] + 1
        chosen = _best_rows(keys, sizes, self.least, self.room * n_rows // self._rows_of_lane(rows.start))
        if len(chosen):
            taken = box[chosen], dual[chosen], step[chosen], keys[chosen]
            partial.best.append(_rows(block, own[chosen], taken))

    def _score(self, block: RowBlock, rows: RowSlice) -> None:
        """Score the rows with the reference: their steps need nothing of it."""
        out = rows.vectors[names(self.problem)[2]]
        first, every = np.uint64(rows.start - block.start), np.uint64(rows.step)
        arrays = row_ops.unsigned(block.indptr), row_ops.unsigned(block.indices), block.values
        row_ops.scores(*arrays, first, every, self.reference, out)

    def _rows_of_lane(self, start: int) -> int:
        """Rows of the lane that has a piece which begins at this row."""
        lanes = self.extent.segments
        return next(
            sum(piece.n_rows for piece in lane) for lane in lanes if any(p.start == start for p in lane)
        )

    def merge(self, left: LaneSums, right: LaneSums) -> LaneSums:
        dual_loops.add_change(left.w, 1.0, self.w, right.w)
        left.rebuilt += right.rebuilt
        left.sums += right.sums
        left.best += right.best
        return left


@dataclass(frozen=True, slots=True)
class NormPass:
    """Sum of the squared norms of a part of the rows, and their number: shape (2,)."""

    metric: Float64Array | None
    extent: Extent
    needs_data: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()
    meanwhile: ClassVar[None] = None
    beside: ClassVar[None] = None
    partial_nbytes: ClassVar[int] = 16

    def empty(self) -> Float64Array:
        return np.zeros(2)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        assert block is not None
        own = np.arange(rows.start - block.start, rows.stop - block.start, rows.step)
        squares = np.empty(len(own))
        arrays = row_ops.unsigned(block.indptr), row_ops.unsigned(block.indices), block.values
        row_ops.row_squares(*arrays, self.metric, own, squares)
        with np.errstate(over="ignore"):  # said by the certificate
            partial[0] += squares.sum()
        partial[1] += len(own)

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        left += right
        return left


@dataclass(frozen=True, slots=True)
class Interlude:
    """No rows are visited: the solver works, and the blocks that its next read begins with are read.

    Parameters
    ----------
    meanwhile : callable or None
    extent : Extent
        One segment without pieces, and the blocks ahead.
    """

    meanwhile: Callable[[], None] | None
    extent: Extent
    needs_data: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[None] = None
    partial_nbytes: ClassVar[int] = 0

    def empty(self) -> None:
        return None

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: None) -> None:
        raise AssertionError("there is nothing to visit")

    def merge(self, left: None, right: None) -> None:
        return None


def by_falling_key(keys: Float64Array) -> Int64Array:
    """Positions by falling key, those of nearly equal keys in their order.

    Keys lie between 0 and 4; 16 bits of them are sorted by radix, twelve times as fast as all.
    """
    levels = (np.clip(4.0 - keys, 0.0, 4.0) * 16383.0).astype(np.uint16)
    return np.argsort(levels, kind="stable")


def _best_rows(keys: Float64Array, sizes: Int64Array, least: float, room: int) -> Int64Array:
    """The rows by falling key that fit the room together, ascending; those with a negative key are held."""
    free = np.flatnonzero((keys >= least) & (sizes <= room))
    if sizes[free].sum() > room:
        free = free[by_falling_key(keys[free])]
        free = np.sort(free[np.cumsum(sizes[free]) <= room])
    return free


def _rows(
    block: RowBlock, own: Int64Array, taken: tuple[Float64Array, Float64Array, Float64Array, Float64Array]
) -> Rows:
    """Copies of some of a block's rows."""
    indptr = np.zeros(len(own) + 1, dtype=np.int64)
    np.cumsum(block.indptr[own + 1] - block.indptr[own], out=indptr[1:])
    indices = np.empty(indptr[-1], dtype=np.int32)
    values = None if block.values is None else np.empty(indptr[-1], dtype=block.values.dtype)
    row_ops.gather_rows(
        row_ops.unsigned(block.indptr), row_ops.unsigned(block.indices), block.values, own,
        row_ops.unsigned(indptr), row_ops.unsigned(indices), values,
    )  # fmt: skip
    return Rows(block.start + own, indptr, indices, values, *taken)


def places(ids: Int64Array, rows: RowSlice | Piece) -> tuple[npt.NDArray[np.bool_], Int64Array]:
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


def cut_rounds(blocks: Sequence[Span], n_rounds: int, n_lanes: int) -> list[Extent]:
    """Cut the data into rounds of lanes.

    With fewer blocks than rounds, the rounds of a block each take every so manieth row of it, so that they
    are alike however the rows are sorted, and its lanes a part of the block each. Otherwise lanes are runs of
    whole blocks, or of even parts of blocks.

    Parameters
    ----------
    blocks : sequence of Span
    n_rounds : int
        Wanted; there are fewer where there are not enough rows, a few more where blocks do not divide well.
    n_lanes : int
        A power of two.
    """
    n_rows = sum(span.stop - span.start for span in blocks)
    n_rounds = max(1, min(n_rounds, n_rows // (MIN_ROWS * n_lanes)))
    a_block = round(n_rounds / len(blocks))
    if a_block >= 1:
        parts = [_strided(index, span, a_block, n_lanes) for index, span in enumerate(blocks)]
        return _extents([part for of_block in parts for part in of_block], n_lanes)
    lanes = n_rounds * n_lanes
    a_block = max(1, round(lanes / len(blocks)))
    pieces: list[Piece] = []
    for index, span in enumerate(blocks):
        edges = np.linspace(span.start, span.stop, a_block + 1).astype(np.int64).tolist()
        pieces += [Piece(index, a, b) for a, b in pairwise(edges) if a < b]
    a_lane = max(1, round(len(pieces) / lanes))
    runs: list[Segment] = [tuple(pieces[i : i + a_lane]) for i in range(0, len(pieces), a_lane)]
    return _extents([tuple(runs[i : i + n_lanes]) for i in range(0, len(runs), n_lanes)], n_lanes)


def first_blocks(segments: Sequence[Segment], each: int = 1) -> tuple[int, ...]:
    """The blocks that the segments of a round begin with, so many of each segment."""
    pieces = [segment[k] for k in range(each) for segment in segments if k < len(segment)]
    return tuple(dict.fromkeys(piece.block for piece in pieces))


def opening(rounds: Sequence[Extent]) -> tuple[int, ...]:
    """What a read begins with, two blocks of each lane: for when nothing else is read."""
    return first_blocks(rounds[0].segments, 2)


def _strided(index: int, span: Span, n_rounds: int, n_lanes: int) -> list[tuple[Segment, ...]]:
    """Rounds of one block: each takes every ``n_rounds``-th row, its lanes a part of the block each."""
    edges = np.linspace(span.start, span.stop, n_lanes + 1).astype(np.int64).tolist()
    rounds = (
        tuple((Piece(index, a + r, b, n_rounds),) for a, b in pairwise(edges) if a + r < b)
        for r in range(n_rounds)
    )
    return [segments for segments in rounds if segments]


def _extents(rounds: Sequence[tuple[Segment, ...]], n_lanes: int) -> list[Extent]:
    total = sum(len(segment) for segments in rounds for segment in segments)
    extents: list[Extent] = []
    before = 0
    for number, segments in enumerate(rounds):
        # Nothing is read ahead past the end of a read, which may be the last one.
        behind = rounds[number + 1] if number + 1 < len(rounds) else ()
        ahead = first_blocks(behind)
        full = segments + ((),) * (n_lanes - len(segments))
        extents.append(Extent(full, ahead, before, total))
        before += extents[-1].n_pieces
    return extents
