"""P and D of the points of a run, with bounds of their rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.ops.kernel_values import EXP_ULPS
from ooc_svm.ops.kernels import Gaussian, Polynomial, Sigmoid
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.rounding import FEW, Rounding, gamma
from ooc_svm.solvers.smo.examine_pass import SIZE, SQUARE, TOTAL, Examined
from ooc_svm.solvers.space import LinearSpace


class LinearObjective:
    """Of weights; bounds of multipliers are the weights of the rows here, and C is in them."""

    def __init__(self, found: Magnitudes, space: LinearSpace, C: float) -> None:
        self._space, self._C = space, C
        self._rounding = Rounding.of_rows(found, space, 1.0)
        self.scale = self._rounding.weight  # What the losses amount to where all scores are 0
        self._longest = math.sqrt(found.square)

    def scores(self, w: Float64Array) -> float:
        """What the scores of a point are off by together, weighted by the bounds of the multipliers."""
        return self._rounding.scores(self._point(w, 0.0))

    def primal(self, w: Float64Array, b: float, loss: float) -> tuple[float, float]:
        """P where the losses sum up to ``loss`` times C, and a bound of its rounding."""
        rounding, space, point = self._rounding, self._space, self._point(w, b)
        error = rounding.losses(rounding.scores(point), rounding.rows + FEW, rounding.products(point))
        half = 0.5 * (space.inner(w, w) + space.penalized_bias * b * b)
        return half + self._C * loss, rounding.primal(1.0, point, error)

    def dual(self, found: Examined, upper: float) -> tuple[float, float]:
        """D at the multipliers of a read, and a bound of its rounding; P of an optimum is at most ``upper``.

        A free bias is charged with what ``y.alpha`` is off from 0, times the largest that b can be.
        """
        rounding, space, w = self._rounding, self._space, found.weights
        linear, total = float(found.sums[SIZE]), float(found.sums[TOTAL])
        box = farthest_bias(self._longest, upper)
        value = linear - 0.5 * (space.inner(w, w) + space.penalized_bias * total * total)
        value -= space.n_free * box * abs(total)
        point = self._point(w, space.penalized_bias * total)
        return value, rounding.dual(linear, 1.0, 1, point, rounding.rows + FEW, box)

    def _point(self, w: Float64Array, b: float) -> Float64Array:
        """Weights and bias in the coordinates of the space."""
        own = w if self._space.scale is None else w / self._space.scale
        return np.append(own, b) if self._space.dimension > len(w) else own


@dataclass(frozen=True, slots=True)
class KernelPoint:
    """A point ``sum_i v_i phi(x_i)``: its squared norm, and the sum of ``|v_i|``."""

    square: float
    size: float


class KernelObjective:
    """Of kernel expansions; likewise.

    A kernel value is off by at most ``gamma(m + 8) M + gamma(2 u) K``, M being what its argument's rounding
    is a share of, m the nonzeros of the longest row, u the ulps of an exponential and K the largest kernel
    value; a score is a sum of n of them, so it is off by at most
    ``e = sum_i |v_i| (gamma(m + 8) M + gamma(2 u + n + 8) K)``. All losses together are then off by at most
    ``sum_i c_i e``, and the squared norm, a sum of ``v_i s_i``, by ``sum_i |v_i| e``.
    """

    def __init__(self, found: Magnitudes, kernel: Any, space: LinearSpace, C: float) -> None:
        self._space, self._C, self._n = space, C, found.rows
        self.scale = found.weight
        self._largest, argument = largest_values(kernel, found.square)
        self._value_error = gamma(found.nonzeros + 8) * argument
        self._value_error += gamma(2.0 * EXP_ULPS + found.rows + FEW) * self._largest

    def scores(self, point: KernelPoint) -> float:
        """Likewise."""
        return point.size * self._value_error * self.scale

    def primal(self, point: KernelPoint, b: float, loss: float) -> tuple[float, float]:
        """P where the losses sum up to ``loss`` times C, and a bound of its rounding."""
        half = 0.5 * (point.square + self._space.penalized_bias * b * b)
        value = half + self._C * loss
        of_scores = point.size * self._value_error * (self.scale + point.size)
        reach = self.scale * (1.0 + abs(b) + point.size * self._largest) + half
        return value, of_scores + gamma(self._n + FEW) * reach

    def dual(self, found: Examined, upper: float) -> tuple[float, float]:
        """D at the multipliers of a read, and a bound of its rounding; see `LinearObjective.dual`."""
        size, total, square = (float(found.sums[k]) for k in (SIZE, TOTAL, SQUARE))
        box = farthest_bias(math.sqrt(self._largest), upper)
        value = size - 0.5 * (square + self._space.penalized_bias * total * total)
        value -= self._space.n_free * box * abs(total)
        of_scores = size * self._value_error * size
        # A half of total^2 is off by |total| times what the sum is off by.
        bias = self._space.penalized_bias * abs(total) + self._space.n_free * box
        reach = size * (1.0 + size * self._largest + bias)
        return value, of_scores + gamma(self._n + FEW) * reach


def farthest_bias(longest: float, upper: float) -> float:
    """Of an optimum, whose value is at most P, the bias is among the ``y_i - s_i``, or no farther from 0."""
    return 1.01 * (1.0 + longest * math.sqrt(2.0 * max(upper, 0.0)))


def largest_values(kernel: Any, square: float) -> tuple[float, float]:
    """The largest kernel value of rows whose squared norms are at most ``square``.

    And the largest magnitude that the rounding of its argument is a share of, times the slope there.
    """
    if isinstance(kernel, Gaussian):
        return 1.0, 1.0 + 4.0 * float(kernel.gamma) * square
    inner = float(kernel.gamma) * square + abs(float(kernel.coef0))
    if isinstance(kernel, Polynomial):
        with np.errstate(over="ignore"):  # the certificate reports it
            largest = float(np.power(inner, kernel.degree))
        return largest, kernel.degree * largest
    assert isinstance(kernel, Sigmoid)
    return 1.0, 1.0 + inner
