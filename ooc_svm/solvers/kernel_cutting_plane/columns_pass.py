"""The product of the kernel matrix with cuts: ``g = K h``, of the columns where h is not 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.ops import gram
from ooc_svm.ops.rows import row_squares
from ooc_svm.ops.squares import squares_of
from ooc_svm.passes.base import WHOLE, Position, RowSlice
from ooc_svm.passes.columns import Magnitudes

PRECISION = "float64"  # Of kernel values: P and D are of the kernel itself then


@dataclass(frozen=True, slots=True)
class PartOfRows:
    """Choice of rows to gather: every k-th of those that have an entry other than 0 in a row vector."""

    reads: tuple[str, ...]
    part: int
    parts: int

    def __call__(self, rows: RowSlice) -> Int64Array:
        marks = np.logical_or.reduce([rows.vectors[name] != 0 for name in self.reads])
        places: Int64Array = np.flatnonzero(marks)
        own: Int64Array = places[(rows.start + rows.step * places) % self.parts == self.part]
        return own


@dataclass(slots=True)
class ColumnSums:
    """The sizes of the rows, and how far stored products are from those found, each at most."""

    magnitudes: Magnitudes = field(default_factory=lambda: Magnitudes(np.empty(0)))
    differences: Float64Array = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True)
class ColumnsPass:
    """``g_k = sum_j coefficients[k, j] k(x, z_j)`` of all rows, for some rows z of the data.

    Attributes
    ----------
    kernel : NamedTuple
        See `ooc_svm.ops.kernels`.
    support : RowBlock
        The rows z.
    coefficients : ndarray of float64, shape (K, m)
    to : tuple of str
        Row vectors of the products.
    added : bool
        Whether they are added to what is there.
    checked : bool
        Whether nothing is written, and what is there is compared.
    """

    kernel: Any
    support: RowBlock
    coefficients: Float64Array
    n_features: int
    scale2: Float64Array | None
    to: tuple[str, ...]
    added: bool = False
    checked: bool = False
    position: Position = WHOLE
    rows: ClassVar[None] = None
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return self.to

    @property
    def writes(self) -> tuple[str, ...]:
        return () if self.checked else self.to

    def empty(self) -> ColumnSums:
        return ColumnSums(differences=np.zeros(len(self.to)))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: ColumnSums) -> None:
        assert block is not None
        first, last, n = rows.start - block.start, rows.stop - block.start, rows.stop - rows.start
        near, far = np.empty(n), squares_of(*self.support.arrays, self.scale2)
        own = np.arange(first, last, dtype=np.uint64)
        row_squares(*block.arrays, self.scale2, own, near)
        out = np.zeros((len(self.to), n))
        buffers = gram.new_buffers(self.support.indptr, self.n_features, PRECISION)
        gram.add_values(
            self.kernel, *block.arrays, own, near, *self.support.arrays, far, self.scale2,
            self.coefficients, *buffers, out,
        )  # fmt: skip
        for k, name in enumerate(self.to):
            if self.checked:
                difference = float(np.abs(out[k] - rows.vectors[name]).max(initial=0.0))
                partial.differences[k] = max(partial.differences[k], difference)
            elif self.added:
                rows.vectors[name][:] += out[k]
            else:
                rows.vectors[name][:] = out[k]
        found, lengths = partial.magnitudes, np.diff(block.indptr[first : last + 1])
        found.square = max(found.square, float(near.max(initial=0.0)))
        found.nonzeros = max(found.nonzeros, int(lengths.max(initial=0)))
        found.rows += n

    def merge(self, left: ColumnSums, right: ColumnSums) -> ColumnSums:
        own, other = left.magnitudes, right.magnitudes
        own.square, own.nonzeros = max(own.square, other.square), max(own.nonzeros, other.nonzeros)
        own.rows += other.rows
        left.differences = np.maximum(left.differences, right.differences)
        return left
