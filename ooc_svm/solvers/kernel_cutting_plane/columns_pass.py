"""The product of the kernel matrix with cuts: ``g = K h``, of the columns where h is not 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.ops import gram
from ooc_svm.ops.rows import row_squares
from ooc_svm.ops.squares import squares_of
from ooc_svm.passes.base import WHOLE, Position, RowSlice
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.base import PRECISION


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


@dataclass(frozen=True, slots=True)
class ColumnsPass:
    """``g_k = sum_j coefficients[k, j] k(x, z_j)`` of all rows, for some rows z of the data.

    The answer is the sizes of the rows.

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
    """

    kernel: Any
    support: RowBlock
    coefficients: Float64Array
    n_features: int
    scale2: Float64Array | None
    to: tuple[str, ...]
    added: bool = False
    position: Position = WHOLE
    rows: ClassVar[None] = None
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return self.to

    @property
    def writes(self) -> tuple[str, ...]:
        return self.to

    def empty(self) -> Magnitudes:
        return Magnitudes(np.empty(0))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Magnitudes) -> None:
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
            if self.added:
                rows.vectors[name][:] += out[k]
            else:
                rows.vectors[name][:] = out[k]
        lengths = np.diff(block.indptr[first : last + 1])
        partial.square = max(partial.square, float(near.max(initial=0.0)))
        partial.nonzeros = max(partial.nonzeros, int(lengths.max(initial=0)))
        partial.rows += n

    def merge(self, left: Magnitudes, right: Magnitudes) -> Magnitudes:
        left.square, left.nonzeros = max(left.square, right.square), max(left.nonzeros, right.nonzeros)
        left.rows += right.rows
        return left
