"""What rounding can have changed in P and D at most; see `ooc_svm.solvers.rounding` for its laws."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.rounding import FEW, UNIT, gamma, inner, inner_error
from ooc_svm.solvers.space import LinearSpace


@dataclass(frozen=True, slots=True)
class AlmRounding:
    """Bounds for one model: all rows have norms of at most ``longest``, the constant feature included."""

    space: LinearSpace
    sizes: Float64Array  # See `AlmState.sizes`
    largest: Float64Array  # See `AlmState.largest`

    @staticmethod
    def sizes_of(found: Magnitudes, space: LinearSpace) -> list[float]:
        """What is kept of the magnitudes of the data."""
        has_bias = bool(space.penalized_bias or space.n_free)
        longest = math.sqrt(found.square + has_bias) * (1.0 + gamma(found.nonzeros + 8))
        return [longest, float(found.nonzeros), float(found.rows), float(found.chain)]

    @property
    def longest(self) -> float:
        """Largest norm of a row."""
        return float(self.sizes[0])

    def scores(self, error: float, point: float, step: float, direction: float) -> float:
        """Error of scores, over the norm of the row, after a step: of scores that were off by ``error``.

        ``point``, ``direction``: norms.
        """
        own = abs(step) * direction
        return error + gamma(float(self.sizes[1]) + 3.0) * own + FEW * UNIT * (point + own)

    def primal(self, half: float, sums: Float64Array, error: float, dimension: int) -> float:
        """Of P, whose scores are off by ``error`` times the norm of the row.

        ``half``: ``|w|^2 / 2``. ``sums``: see `ooc_svm.losses.row_loops.slope_sizes`.
        """
        rows, magnitudes, slopes, losses = float(self.sizes[2]), *(float(each) for each in sums[1:])
        by_sums = (rows + FEW) * losses + (dimension + FEW) * half
        return error * self.longest * slopes + UNIT * (FEW * magnitudes + by_sums)

    def planes(self, norm: float, dimension: int, operations: float) -> float:
        """Of the heights of one plane of each group at a point of this norm; see `dual`."""
        size = float(self.largest[0]) * self.longest * norm + float(self.largest[1])
        return 2.0 * gamma(operations + dimension + 2) * size

    def dual(
        self, linear: float, total: float, n_cuts: int, w: Float64Array, operations: float, box: float
    ) -> float:
        """Of D of the cuts, which are two groups, each with coefficients that sum up to ``total`` at most.

        A plane is off by ``g sum_i |v_i| |x_i|`` in norm, so w by ``error``, and ``|w|^2 / 2`` by
        ``|w| error + error^2 / 2``; see `ooc_svm.solvers.rounding.Rounding.dual`.
        """
        own = self.space.penalized(w)
        square, g = inner(own, own), gamma(operations + n_cuts + 2)
        mass = g * 2.0 * total * float(self.largest[0])
        error = mass * self.longest
        planes = math.sqrt(square) * error + 0.5 * error * error
        rest = gamma(2 * n_cuts + 4) * (abs(linear) + square) + inner_error(len(w)) * square
        offsets = g * 2.0 * total * float(self.largest[1])
        return planes + rest + offsets + 2.0 * self.space.n_free * mass * box
