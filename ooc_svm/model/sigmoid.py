"""Platt's sigmoid: the log-odds of a class as a line in the score, fitted to counts of scores.

Source: J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood
methods" (1999); the steps are those of H.-T. Lin, C.-J. Lin and R. Weng, "A note on Platt's probabilistic
outputs for support vector machines" (2007), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array

_MOST_STEPS = 100
_LEAST_STEP = 2.0**-40  # Of a Newton step; shorter ones change nothing
_GRADIENT = 1e-12  # Of a row, at which the likelihood is as large as it gets
_RIDGE = 1e-12  # Added to the second derivatives, as a share of the rows


class Sigmoid(NamedTuple):
    """Of a score s, ``log(p / (1 - p)) = slope s + offset``; the slope is not negative."""

    slope: float
    offset: float

    def log_odds(self, scores: Float64Array) -> Float64Array:
        """Logarithms of ``p / (1 - p)``, finite for all scores; shape (n,)."""
        with np.errstate(over="ignore"):
            odds: Float64Array = self.slope * scores + self.offset
        largest = np.finfo(np.float64).max
        return np.clip(odds, -largest, largest)

    @classmethod
    def fit(cls, scores: Float64Array, negatives: Float64Array, positives: Float64Array) -> Sigmoid:
        """The sigmoid of the largest likelihood, of bins of rows with about the same score.

        Where a falling one would be the best, it is the constant: the scores do not tell the classes apart.

        Parameters
        ----------
        scores : ndarray of float64, shape (bins,)
            Of the rows of each bin, ascending.
        negatives, positives : ndarray of float64, shape (bins,)
            How many rows of each class a bin has, or their weights.

        Returns
        -------
        Sigmoid
        """
        rows, hits = negatives + positives, targets_of(negatives, positives)
        share = hits.sum() / rows.sum()
        base = cls(0.0, math.log(share / (1.0 - share)))
        size = float(np.abs(scores).max())
        if size == 0.0:
            return base
        scaled = scores / size
        centre = float(rows @ scaled / rows.sum())
        spread = math.sqrt(float(rows @ (scaled - centre) ** 2 / rows.sum()))
        unit = spread * size
        if spread <= np.finfo(np.float64).eps or unit < np.finfo(np.float64).tiny:
            return base
        slope, offset = _newton((scaled - centre) / spread, rows, hits, base.offset)
        if slope <= 0.0 or not math.isfinite(slope / unit):
            return base
        return cls(slope / unit, offset - slope * centre / spread)

    @staticmethod
    def arrays_of(maps: Sequence[Sigmoid]) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a file."""
        return {"sigmoids": np.array(maps, np.float64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Sigmoid]:
        """The maps from the arrays of a file; KeyError, ValueError where these are none."""
        numbers = arrays["sigmoids"]
        if numbers.dtype != np.float64 or numbers.ndim != 2 or numbers.shape[1] != 2:
            raise ValueError("the sigmoids are no pairs of numbers")
        return [cls(*pair) for pair in numbers.tolist()]

    def check(self) -> None:
        """Raise ValueError for a number that is not finite, or a slope below 0."""
        if not (math.isfinite(self.slope) and math.isfinite(self.offset) and self.slope >= 0.0):
            raise ValueError(f"a sigmoid has the slope {self.slope} and the offset {self.offset}")

    def to_json(self) -> dict[str, Any]:
        """As in the report."""
        return {"slope": self.slope, "offset": self.offset}


def targets_of(negatives: Float64Array, positives: Float64Array) -> Float64Array:
    """The sum of the targets of the rows of each bin, shape (bins,).

    Platt's targets are those of a rule of succession, ``(n + 1) / (n + 2)`` for n positive rows and
    ``1 / (n + 2)`` for n negative ones, in place of 1 and 0: no probability is 0 or 1.
    """
    upper = (positives.sum() + 1.0) / (positives.sum() + 2.0)
    lower = 1.0 / (negatives.sum() + 2.0)
    sums: Float64Array = negatives * lower + positives * upper
    return sums


def _newton(x: Float64Array, rows: Float64Array, hits: Float64Array, offset: float) -> tuple[float, float]:
    """Slope and offset that maximise ``sum hits z - rows log(1 + e^z)``, ``z = slope x + offset``.

    Newton steps, halved until the value falls by a share of what the slope promises.
    """
    slope, n_rows = 0.0, float(rows.sum())
    value = _loss(offset, x, rows, hits, slope)
    for _ in range(_MOST_STEPS):
        p, q = probabilities_of(slope * x + offset), probabilities_of(-(slope * x + offset))
        errors, curvature = rows * p - hits, rows * p * q
        gradient = np.array([errors @ x, errors.sum()])
        if np.abs(gradient).max() <= _GRADIENT * n_rows:
            break
        mixed = curvature @ x
        hessian = np.array([[curvature @ (x * x), mixed], [mixed, curvature.sum()]])
        step = -np.linalg.solve(hessian + _RIDGE * n_rows * np.eye(2), gradient)
        promised, length = float(gradient @ step), 1.0
        while length >= _LEAST_STEP:
            tried = slope + length * step[0], offset + length * step[1]
            found = _loss(tried[1], x, rows, hits, tried[0])
            if found < value + 1e-4 * length * promised:
                break
            length *= 0.5
        else:
            break
        slope, offset, value = float(tried[0]), float(tried[1]), found
    return slope, offset


def probabilities_of(odds: Float64Array) -> Float64Array:
    """``1 / (1 + exp(-z))`` of log-odds z, without overflow."""
    p: Float64Array = np.exp(np.minimum(odds, 0.0)) / (1.0 + np.exp(-np.abs(odds)))
    return p


def _loss(offset: float, x: Float64Array, rows: Float64Array, hits: Float64Array, slope: float) -> float:
    z = slope * x + offset
    return float((rows * (np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))) - hits * z).sum())
