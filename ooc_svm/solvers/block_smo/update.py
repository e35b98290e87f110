"""The passes of block SMO: the one over the data, and those over row vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array, RowBlock
from ooc_svm.losses.row_loops import losses_along
from ooc_svm.ops import gram
from ooc_svm.ops.kernels import in_precision
from ooc_svm.ops.rows import row_squares
from ooc_svm.ops.squares import squares_of
from ooc_svm.passes.base import WHOLE, Position, RowSlice, union
from ooc_svm.passes.gather import take_rows
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.block_smo import bound, set_loops
from ooc_svm.solvers.block_smo.bound import RowSizes
from ooc_svm.solvers.block_smo.candidates import Candidates, Choice
from ooc_svm.solvers.rounding import gamma

UNKNOWN = 1e300  # What a score is off by that is not known


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
    ones: bool = False  # Whether all values are 1, those of scaled columns too

    @property
    def v(self) -> str:
        """The multipliers."""
        return f"{self.name} v"

    @property
    def h(self) -> str:
        """The scores ``K v``."""
        return f"{self.name} h"

    @property
    def error(self) -> str:
        """What the scores are off by at most."""
        return f"{self.name} error"

    @property
    def aside(self) -> str:
        """1 where the scores of a row are not brought up to date in every read."""
        return f"{self.name} aside"

    @property
    def best_v(self) -> str:
        """The multipliers of the best point."""
        return f"{self.name} best v"

    @property
    def best_h(self) -> str:
        """The scores of the best point."""
        return f"{self.name} best h"

    @property
    def best_error(self) -> str:
        """What these are off by at most."""
        return f"{self.name} best error"

    def kernel_with_buffers(
        self, squares: Float64Array, set_indptr: npt.NDArray[Any], of_set: Float64Array, precision: str
    ) -> tuple[Any, tuple[Any, ...]]:
        """The kernel and the buffers that functions of `ooc_svm.ops.gram` take, for some rows and a set.

        ``squares``, ``of_set``: the squared norms of these.
        """
        kernel, dtype = None, np.dtype(precision)
        if self.ones:
            kernel = gram.table_of(self.kernel, float(squares.max(initial=0.0) + of_set.max(initial=0.0)))
        if kernel is not None:
            return kernel, gram.new_buffers(set_indptr, self.n_features, np.uint8)
        return in_precision(self.kernel, dtype), gram.new_buffers(set_indptr, self.n_features, dtype)

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
    n_aside: int = 0  # Rows that are set aside
    size: float = 0.0  # Sum of the multipliers' magnitudes, each multiplied by the size of its row

    def add(self, other: Found, choice: Choice) -> None:
        """Add what was found in other rows."""
        self.known_h += other.known_h
        self.candidates = choice.better_of(self.candidates, other.candidates)
        self.up, self.down = max(self.up, other.up), min(self.down, other.down)
        self.square, self.nonzeros = max(self.square, other.square), max(self.nonzeros, other.nonzeros)
        self.n_aside += other.n_aside
        self.size += other.size


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """Rows whose multipliers change."""

    numbers: Int64Array  # shape (m,)
    rows: RowBlock
    squares: Float64Array  # Squared norms
    change: Float64Array  # Of the multipliers, shape (m,); or several of them, shape (k, m)
    v: Float64Array  # The new multipliers

    @classmethod
    def of(
        cls,
        numbers: Int64Array,
        rows: RowBlock,
        change: Float64Array,
        v: Float64Array,
        scale2: Float64Array | None,
    ) -> Moved:
        """The rows with their squared norms; ``scale2``: squares of the columns' scales."""
        return cls(numbers, rows, squares_of(*rows.arrays, scale2), change, v)

    def by_direction(self) -> Moved:
        """The multipliers that grow, then the others, with two magnitudes of changes: shape (2, m)."""
        order = np.argsort(self.change < 0.0, kind="stable")
        numbers, rows, squares = self.numbers[order], take_rows(self.rows, order), self.squares[order]
        grown, v = self.change[order], self.v[order] if len(self.v) else self.v
        return Moved(numbers, rows, squares, np.maximum([grown, -grown], 0.0), v)


def add_kernel_values(
    model: KernelModel, precision: str, block: RowBlock,
    places: npt.NDArray[np.uint64], squares: Float64Array, moved: Moved, out: Float64Array,
) -> None:  # fmt: skip
    """``out += K change`` for some rows of a block; ``squares`` are theirs. Both may have several rows."""
    if not len(moved.numbers) or not len(places):
        return
    kernel, buffers = model.kernel_with_buffers(squares, moved.rows.indptr, moved.squares, precision)
    gram.add_values(
        *(kernel, *block.arrays, places, squares, *moved.rows.arrays, moved.squares, model.scale2),
        *(moved.change.reshape(-1, len(moved.numbers)), *buffers, out.reshape(-1, len(places))),
    )


@dataclass(frozen=True, slots=True)
class Aside:
    """Which rows are set aside: those that violate their condition only if their score moves by more."""

    margin: float
    late: Moved  # What has moved since these rows were brought up to date


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """Scores are computed again: those of rows with a multiplier have been by `SupportPass`."""

    reach: float  # Others are if they have a slope where their scores are off by so many times their error
    mirrored: Float64Array  # What the scores of the rows with a multiplier still lack
    errors: Float64Array  # What these are off by then


@dataclass(frozen=True, slots=True, eq=False)
class UpdatePass:
    """Scores follow the multipliers of some rows, and the most promising rows are offered.

    ``h += K change``, and v is set for the rows that have moved. Rows that are set aside follow in some
    reads only, by all that has moved meanwhile, and are chosen again there. A read is asked for in several
    passes, each of which visits its part of every block: they can be served at the same time.
    """

    model: KernelModel
    moved: Moved
    excluded: Int64Array  # Numbers of rows that are not to be offered, ascending
    choice: Choice  # Of the rows that are offered
    precision: str  # {"float32", "float64"}: of kernel values
    aside: Aside | None  # None: the rows that are set aside are left out
    rebuilt: Rebuilt | None = None  # None: scores follow
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
        return self.model.v, self.model.h, self.model.error, self.model.aside

    def empty(self) -> Found:
        return Found(np.zeros(len(self.excluded)))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Found) -> None:
        assert block is not None
        n_rows, at = rows.stop - rows.start, rows.start - block.start
        first, last = (n_rows * part // self.parts for part in (self.part, self.part + 1))
        if first == last:
            return
        own = rows.part(first, last)
        sizes, size = self._follow(block, at + first, own)
        found = self._offered(block, own)
        found.square, found.nonzeros, found.size = sizes.square, sizes.nonzeros, size
        partial.add(found, self.choice)

    def _follow(self, block: RowBlock, first: int, rows: RowSlice) -> tuple[RowSizes, float]:
        """Bring rows of a block, from the first one, up to date; returns their sizes and `Found.size`."""
        v, h, errors = (rows.vectors[name] for name in (self.model.v, self.model.h, self.model.error))
        squares, chosen = np.empty(len(v)), np.arange(first, first + len(v), dtype=np.uint64)
        row_squares(*block.arrays, self.model.scale2, chosen, squares)
        longest = int(np.diff(block.indptr[first : first + len(v) + 1]).max())
        sizes = RowSizes(float(squares.max()), longest, self.model.ones)
        for marks, moved in self._updates(rows):
            places = np.flatnonzero(marks)
            if self.rebuilt is not None:
                h[places] = errors[places] = 0.0
            added, added_errors = self._added(block, chosen[places], squares[places], moved, sizes)
            h[places] += added
            errors[places] += added_errors + gamma(1) * np.abs(h[places])
        numbers = self.moved.numbers
        here = np.flatnonzero((numbers >= rows.start) & (numbers < rows.stop))
        own = numbers[here] - rows.start
        v[own] = self.moved.v[here]
        if self.rebuilt is not None:
            h[own] += self.rebuilt.mirrored[here]
            errors[own] = self.rebuilt.errors[here]
        return sizes, float((np.abs(v) * bound.row_sizes(self.model.kernel, squares)).sum())

    def _added(
        self,
        block: RowBlock,
        places: npt.NDArray[np.uint64],
        squares: Float64Array,
        moved: Moved,
        sizes: RowSizes,
    ) -> tuple[Float64Array, Float64Array]:
        """``K change`` of some rows of a block, which have these sizes, and what it is off by at most."""
        model, precision = self.model, self.precision
        if not len(moved.numbers):
            return np.zeros(len(places)), np.zeros(len(places))
        longest = int(np.diff(moved.rows.indptr).max())
        square = max(sizes.square, float(moved.squares.max()))
        sizes = replace(sizes, square=square, nonzeros=max(sizes.nonzeros, longest))
        sums = np.zeros((moved.change.ndim, len(places)))
        add_kernel_values(model, precision, block, places, squares, moved, sums)
        if moved.change.ndim == 1:
            changes = moved.change, moved.squares
            return sums[0], bound.update_errors(model.kernel, sizes, precision, changes, squares)
        errors = bound.own_update_errors(model.kernel, sizes, precision, moved.change, sums.sum(axis=0))
        return sums[0] - sums[1], errors

    def _updates(self, rows: RowSlice) -> list[tuple[BoolArray, Moved]]:
        """Which rows follow which others."""
        if self.rebuilt is not None:
            v, h, t, costs = self.model.rows(rows)
            marks = np.empty(len(v), np.bool_)
            pivot = self.choice.pivot
            errors, reach = rows.vectors[self.model.error], self.rebuilt.reach
            set_loops.mark_losses(self.model.loss, v, h, pivot, errors, reach, t, costs, marks)
            # Also of rows that are held out.
            marks |= errors >= UNKNOWN
            return [(marks, self.moved)]
        aside = rows.vectors[self.model.aside] != 0.0
        found = [(~aside, self.moved)]
        return found if self.aside is None else [*found, (aside, self.aside.late)]

    def _offered(self, block: RowBlock, rows: RowSlice) -> Found:
        v, h, t, costs = self.model.rows(rows)
        up, down = np.empty((2, len(v)))
        set_loops.slopes(self.model.loss, v, h, t, costs, up, down)
        aside = rows.vectors[self.model.aside]
        if self.aside is None:
            up[aside != 0.0], down[aside != 0.0] = -np.inf, np.inf
        else:
            pivot, margin = self.choice.pivot, self.aside.margin
            aside[:] = (up < pivot - margin) & (down > pivot + margin)
        extremes = float(up.max()), float(down.min())
        here = slice(*np.searchsorted(self.excluded, (rows.start, rows.stop)))
        known, known_h = self.excluded[here] - rows.start, np.zeros(len(self.excluded))
        known_h[here] = h[known]
        up[known], down[known] = -np.inf, np.inf
        places = self.choice.places(np.arange(rows.start, rows.stop), up, down)
        taken = take_rows(block, places + (rows.start - block.start))
        own = v[places], h[places], t[places], costs[places], up[places], down[places]
        offered = Candidates(places + rows.start, *own, taken)
        return Found(known_h, offered, *extremes, n_aside=int(np.count_nonzero(aside)))

    def merge(self, left: Found, right: Found) -> Found:
        left.add(right, self.choice)
        return left


@dataclass(frozen=True, slots=True)
class OfModel:
    """What the rules on row vectors have in common."""

    model: KernelModel
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return union((self.model.targets.reads, (self.model.v, self.model.h, self.model.error)))


@dataclass(frozen=True, slots=True)
class LossesAt(OfModel):
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
class Sums(OfModel):
    """Rule on row vectors: what P and D at a bias, and their rounding, are made of: `set_loops.add_sums`."""

    bias: float
    sums_shape: ClassVar[tuple[int, ...]] = (set_loops.N_SUMS,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        v, h, t, costs = self.model.rows(rows)
        set_loops.add_sums(self.model.loss, v, h, rows.vectors[self.model.error], self.bias, t, costs, sums)


@dataclass(frozen=True, slots=True)
class KeepBest(OfModel):
    """Rule on row vectors: the point of the moment is the best one."""

    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.model.best_v, self.model.best_h, self.model.best_error

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        now = self.model.v, self.model.h, self.model.error
        for source, target in zip(now, self.writes, strict=True):
            rows.vectors[target][:] = rows.vectors[source]
