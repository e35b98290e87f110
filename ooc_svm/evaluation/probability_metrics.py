"""How good the probabilities of classes are: sums over rows, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.evaluation.ranking_metrics import TwoTermSum

BINS = 15
"""Bins of equal width of the probability of the predicted class."""


class ProbabilitySums:
    """Sums over rows. How the rows are cut into pieces shows in the last digits."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.losses, self.squares = TwoTermSum(), TwoTermSum()
        # Of each bin: rows predicted right, less the probabilities of that
        self.excess = [TwoTermSum() for _ in range(BINS)]

    @staticmethod
    def measures_of(
        log_probabilities: Float64Array, actual: npt.NDArray[np.integer[Any]]
    ) -> tuple[Float64Array, Float64Array, Float64Array, Float64Array]:
        """What a row adds to the sums, each of shape (n,).

        ``log_probabilities``, shape (n, classes); ``actual``: the number of each row's class. Returned are
        minus the logarithm of the probability of that class; the squared distance of the probabilities from 1
        for it and 0 for others, of two classes half of that; the largest probability; and 1 where it is of
        that class.
        """
        rows, n_classes = np.arange(len(actual)), log_probabilities.shape[1]
        losses = -log_probabilities[rows, actual]
        shares = np.exp(log_probabilities)
        predicted: Int64Array = shares.argmax(axis=1)
        largest = shares[rows, predicted]
        shares[rows, actual] = np.expm1(-losses)  # 1 - p has no digits where p is 1
        squares = (shares * shares).sum(axis=1) * (0.5 if n_classes == 2 else 1.0)
        return losses, squares, largest, (predicted == actual).astype(np.float64)

    def add(
        self, losses: Float64Array, squares: Float64Array, shares: Float64Array, hits: Float64Array
    ) -> None:
        """Add more rows, see `measures_of`."""
        self.n_rows += len(losses)
        self.losses.add(float(losses.sum()))
        self.squares.add(float(squares.sum()))
        bins = np.minimum((shares * BINS).astype(np.int64), BINS - 1)
        for each, part in zip(self.excess, np.bincount(bins, hits - shares, BINS).tolist(), strict=True):
            each.add(part)


def log_loss(sums: ProbabilitySums) -> float:
    """Mean of minus the logarithm of the probability of the row's class."""
    return sums.losses.value / sums.n_rows


def brier_score(sums: ProbabilitySums) -> float:
    """Mean squared error of the positive class's probability; of several classes the sum over the classes."""
    return sums.squares.value / sums.n_rows


def calibration_error(sums: ProbabilitySums) -> float:
    """Mean distance of the share of rows predicted right from its mean probability, bin by bin."""
    return sum(abs(each.value) for each in sums.excess) / sums.n_rows
