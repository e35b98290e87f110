"""Two points of a run as a pass over the data needs them: of the beginning of a read, and of now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.ops import gram
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.base import PRECISION


@dataclass(frozen=True, slots=True)
class LinearScorer:
    """Weights in units of the data, shape (n_features,); the points are the same where ``now`` is None."""

    start: Float64Array
    now: Float64Array | None
    scale2: Float64Array | None

    @property
    def n_weights(self) -> int:
        return len(self.start)

    def scores(self, block: RowBlock, own: Int64Array) -> tuple[Float64Array, Float64Array]:
        start = np.empty(len(own))
        row_ops.row_scores(*block.arrays, own.view(np.uint64), self.start, start)
        if self.now is None:
            return start, start
        now = np.empty(len(own))
        row_ops.row_scores(*block.arrays, own.view(np.uint64), self.now, now)
        return start, now

    def add_rows(self, block: RowBlock, coefficients: Float64Array, weights: Float64Array) -> None:
        row_ops.add_rows(*block.arrays, self.scale2, coefficients, weights)

    def magnitudes(self, block: RowBlock, own: Int64Array, bounds: Float64Array) -> Magnitudes:
        found = row_magnitudes(block, own, bounds, self.scale2)
        weights, found.columns = np.zeros(block.n_rows), np.zeros(self.n_weights)
        weights[own] = bounds
        row_ops.add_magnitudes(*block.arrays, weights, found.columns)
        return found


@dataclass(frozen=True, slots=True)
class KernelScorer:
    """Kernel expansions over support vectors."""

    kernel: Any  # See `ooc_svm.ops.kernels`
    support: RowBlock
    squares: Float64Array  # shape (m,): of the support vectors
    coefficients: Float64Array  # shape (2, m): y alpha at the beginning of the read, and now
    n_features: int
    scale2: Float64Array | None
    n_weights: int = 0

    def scores(self, block: RowBlock, own: Int64Array) -> tuple[Float64Array, Float64Array]:
        near = np.empty(len(own))
        row_ops.row_squares(*block.arrays, self.scale2, own.view(np.uint64), near)
        out = np.zeros((2, len(own)))
        buffers = gram.new_buffers(self.support.indptr, self.n_features, PRECISION)
        gram.add_values(
            self.kernel, *block.arrays, own.view(np.uint64), near,
            *self.support.arrays, self.squares, self.scale2, self.coefficients, *buffers, out,
        )  # fmt: skip
        return out[0], out[1]

    def add_rows(self, block: RowBlock, coefficients: Float64Array, weights: Float64Array) -> None:
        """Nothing: a point of a kernel has no weights."""

    def magnitudes(self, block: RowBlock, own: Int64Array, bounds: Float64Array) -> Magnitudes:
        return row_magnitudes(block, own, bounds, self.scale2)


def row_magnitudes(
    block: RowBlock, own: Int64Array, bounds: Float64Array, scale2: Float64Array | None
) -> Magnitudes:
    """The sizes that are not of columns."""
    lengths, squares, n = np.diff(block.indptr)[own], np.empty(len(own)), len(own)
    row_ops.row_squares(*block.arrays, scale2, own.view(np.uint64), squares)
    largest = float(squares.max(initial=0.0))
    return Magnitudes(np.empty(0), float(bounds.sum()), largest, int(lengths.max(initial=0)), n, n)
