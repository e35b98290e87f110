"""How good predicted values are: sums over rows in bounded memory, and the metrics of values."""

from __future__ import annotations

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.errors import InputError
from ooc_svm.evaluation.ranking_metrics import TwoTermSum


class ValueSums:
    """Sums over predicted values and targets. How the rows are cut into pieces shows in the last digits."""

    def __init__(self) -> None:
        self.n_rows = 0
        # Of the errors, and of the deviations of the targets from their mean.
        self.squares, self.magnitudes, self.squared_deviations = TwoTermSum(), TwoTermSum(), TwoTermSum()
        # Targets are counted from the first one: equal ones then deviate by nothing, and where they are
        # large next to their spread, no digits of the spread are lost.
        self._origin = self._mean = 0.0

    def add(self, values: Float64Array, targets: Float64Array) -> None:
        """Add more rows.

        InputError for a number that is not finite, or whose square is not; rows are numbered from 0 in the
        order they came.
        """
        if len(values) == 0:
            return
        check_finite("value", values, self.n_rows)
        check_finite("target", targets, self.n_rows)
        if self.n_rows == 0:
            self._origin = float(targets[0])
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.abs(values - targets)
            self.magnitudes.add(float(errors.sum()))
            self.squares.add(float((errors * errors).sum()))
            self._add_deviations(targets - self._origin)
        self.n_rows += len(values)
        if not np.isfinite([self.squares.value, self.squared_deviations.value]).all():
            raise InputError(
                "the squares of the errors or targets pass the range of float64; scale the targets"
            )

    def _add_deviations(self, targets: Float64Array) -> None:
        """Deviations of a piece from its own mean, and of the two means (Chan, Golub and LeVeque)."""
        n_new, n_rows = len(targets), self.n_rows + len(targets)
        mean = float(targets.mean())
        deviations = targets - mean
        difference = mean - self._mean
        self.squared_deviations.add(float((deviations * deviations).sum()))
        self.squared_deviations.add(difference * difference * (self.n_rows / n_rows) * n_new)
        self._mean += difference * (n_new / n_rows)


def mse(sums: ValueSums) -> float:
    """Mean squared error."""
    return sums.squares.value / sums.n_rows


def mae(sums: ValueSums) -> float:
    """Mean absolute error."""
    return sums.magnitudes.value / sums.n_rows


def r2(sums: ValueSums) -> float:
    """Coefficient of determination; where all targets are equal, 1 for no error at all and 0 otherwise."""
    errors, deviations = sums.squares.value, sums.squared_deviations.value
    if deviations == 0:
        return 1.0 if errors == 0 else 0.0
    return 1 - errors / deviations


def check_finite(what: str, numbers: Float64Array, first_row: int) -> None:
    """Refuse numbers that are not finite: InputError, which names the first such row."""
    finite = np.isfinite(numbers)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"row {first_row + row} has the {what} {float(numbers[row])!r}; metrics are for finite numbers: "
            "check the data and the model"
        )
