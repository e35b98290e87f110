"""The passes of block SMO: the one over the data, and those over row vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.losses.row_loops import losses_along, slope_sizes
from ooc_svm.ops import gram
from ooc_svm.ops.kernels import in_precision
from ooc_svm.ops.rows import row_squares
from ooc_svm.passes.base import WHOLE, Position, RowSlice, union
from ooc_svm.passes.gather import take_rows
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.block_smo import set_loops
from ooc_svm.solvers.block_smo.candidates import Candidates, Choice

N_SIZES = 4  # Sums of `slope_sizes`


@dataclass(frozen=True, slots=True)
class KernelModel:
    """One model, as the passes know it."""

    targets: RowTargets
    loss: Any  # See `ooc_svm.losses.functions`
    C: float
    kernel: Any  # See `ooc_svm.ops.kernels`
    n_features: int
    scale2: Float64Array | None  # Squares of the columns' scales
    name: str  # Row vectors are named after it

    @property
    def v(self) -> str:
        """The multipliers."""
        return f"{self.name} v"

    @property
    def h(self) -> str:
        """The scores ``K v``."""
        return f"{self.name} h"

    @property
    def best_v(self) -> str:
        """The multipliers of the best point."""
        return f"{self.name} best v"

    @property
    def best_h(self) -> str:
        """The scores of the best point."""
        return f"{self.name} best h"

    def rows(self, rows: RowSlice) -> tuple[Float64Array, Float64Array, Float64Array, Float64Array]:
        """Multipliers, scores, targets and costs of some rows."""
        t, weight = self.targets.values(rows.vectors)
        return rows.vectors[self.v], rows.vectors[self.h], t, self.C * weight


@dataclass(slots=True)
class Found:
    """What a pass found: candidates, the extreme slopes of all rows, and the sizes of the rows."""

    known_h: Float64Array  # Scores of the rows that are not offered, in the order of their numbers
    candidates: Candidates = field(default_factory=Candidates)
    up: float = -math.inf  # Largest slope upwards
    down: float = math.inf  # Smallest slope downwards
    square: float = 0.0  # Largest squared norm of a row
    nonzeros: int = 0  # Of the longest row

    def add(self, other: Found, choice: Choice) -> None:
        """Add what was found in other rows."""
        self.known_h += other.known_h
        self.candidates = choice.better_of(self.candidates, other.candidates)
        self.up, self.down = max(self.up, other.up), min(self.down, other.down)
        self.square, self.nonzeros = max(self.square, other.square), max(self.nonzeros, other.nonzeros)


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """Rows whose multipliers change, in the order of their numbers."""

    numbers: Int64Array  # shape (m,)
    rows: RowBlock
    squares: Float64Array  # Squared norms
    change: Float64Array  # Of the multipliers
    v: Float64Array  # The new multipliers


@dataclass(frozen=True, slots=True, eq=False)
class UpdatePass:
    """Scores follow the multipliers of some rows, and the most promising rows are offered.

    ``h += K change`` for all rows, and v is set for those that have moved. A read is asked for in
    several passes, each of which visits its part of every block: they can be served at the same time.
    """

    model: KernelModel
    moved: Moved
    excluded: Int64Array  # Numbers of rows that are not to be offered, ascending
    choice: Choice  # Of the rows that are offered
    precision: str  # {"float32", "float64"}: of kernel values
    rebuilt: bool = False  # Whether the scores are begun with 0
    part: int = 0
    parts: int = 1
    position: Position = WHOLE
    rows: ClassVar[None] = None
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return union((self.model.targets.reads, self.writes))

    @property
    def writes(self) -> tuple[str, ...]:
        return self.model.v, self.model.h

    def empty(self) -> Found:
        return Found(np.zeros(len(self.excluded)))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Found) -> None:
        assert block is not None
        n_rows, at = rows.stop - rows.start, rows.start - block.start
        first, last = (n_rows * part // self.parts for part in (self.part, self.part + 1))
        if first == last:
            return
        own, inside = (
            rows.part(first, last),
            RowBlock(0, block.indptr[at + first :], block.indices, block.values),
        )
        squares = np.empty(last - first)
        row_squares(*inside.arrays, self.model.scale2, np.arange(last - first, dtype=np.uint64), squares)
        self._follow(inside, own, squares)
        found = self._offered(block, own)
        found.square = float(squares.max())
        found.nonzeros = int(np.diff(block.indptr[at + first : at + last + 1]).max())
        partial.add(found, self.choice)

    def _follow(self, block: RowBlock, rows: RowSlice, squares: Float64Array) -> None:
        """Bring scores and multipliers of the first rows of a block up to date."""
        v, h = rows.vectors[self.model.v], rows.vectors[self.model.h]
        if self.rebuilt:
            h[:] = 0.0
        moved, dtype = self.moved, np.dtype(self.precision)
        if not len(moved.numbers):
            return
        gram.add_values(
            *(in_precision(self.model.kernel, dtype), *block.arrays, 0, len(h), squares),
            *(*moved.rows.arrays, moved.squares, self.model.scale2, moved.change.reshape(1, -1)),
            *(*gram.new_buffers(moved.rows.indptr, self.model.n_features, dtype), h.reshape(1, -1)),
        )
        here = slice(*np.searchsorted(moved.numbers, (rows.start, rows.stop)))
        v[moved.numbers[here] - rows.start] = moved.v[here]

    def _offered(self, block: RowBlock, rows: RowSlice) -> Found:
        v, h, t, costs = self.model.rows(rows)
        up, down = np.empty((2, len(v)))
        set_loops.slopes(self.model.loss, v, h, t, costs, up, down)
        extremes = float(up.max()), float(down.min())
        here = slice(*np.searchsorted(self.excluded, (rows.start, rows.stop)))
        known, known_h = self.excluded[here] - rows.start, np.zeros(len(self.excluded))
        known_h[here] = h[known]
        up[known], down[known] = -np.inf, np.inf
        places = self.choice.places(np.arange(rows.start, rows.stop), up, down)
        taken = take_rows(block, places + (rows.start - block.start))
        own = v[places], h[places], t[places], costs[places], up[places], down[places]
        offered = Candidates(places + rows.start, *own, taken)
        return Found(known_h, offered, *extremes)

    def merge(self, left: Found, right: Found) -> Found:
        left.add(right, self.choice)
        return left


@dataclass(frozen=True, slots=True)
class _OfModel:
    """What the rules on row vectors have in common."""

    model: KernelModel
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return union((self.model.targets.reads, (self.model.v, self.model.h)))


@dataclass(frozen=True, slots=True)
class LossesAt(_OfModel):
    """Rule on row vectors: the sums of the losses at several biases."""

    biases: tuple[float, ...]

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (len(self.biases),)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        _, h, t, costs = self.model.rows(rows)
        points = np.column_stack([np.zeros(len(self.biases)), self.biases])
        losses_along(self.model.loss, h, h, t, costs, points, sums)


@dataclass(frozen=True, slots=True)
class Sums(_OfModel):
    """Rule on row vectors: what P and D at a bias, and their rounding, are made of.

    Sums (N_SUMS + N_SIZES,): see `set_loops.add_sums` and `ooc_svm.losses.row_loops.slope_sizes`.
    """

    bias: float
    error: float  # Of the scores
    sums_shape: ClassVar[tuple[int, ...]] = (set_loops.N_SUMS + N_SIZES,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        v, h, t, costs = self.model.rows(rows)
        set_loops.add_sums(self.model.loss, v, h, t, costs, sums[: set_loops.N_SUMS])
        slope_sizes(self.model.loss, h, self.bias, self.error, t, costs, sums[set_loops.N_SUMS :])


@dataclass(frozen=True, slots=True)
class KeepBest(_OfModel):
    """Rule on row vectors: the point of the moment is the best one."""

    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.model.best_v, self.model.best_h

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        for source, target in ((self.model.v, self.model.best_v), (self.model.h, self.model.best_h)):
            rows.vectors[target][:] = rows.vectors[source]
