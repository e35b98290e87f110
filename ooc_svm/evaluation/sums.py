"""Floating sums that lose little."""

from __future__ import annotations


class TwoTermSum:
    """A sum whose second term keeps what rounding takes from the first (Neumaier)."""

    def __init__(self) -> None:
        self._sum = self._lost = 0.0

    def add(self, number: float) -> None:
        """Add a number."""
        total = self._sum + number
        larger, smaller = (self._sum, number) if abs(self._sum) >= abs(number) else (number, self._sum)
        self._lost += (larger - total) + smaller
        self._sum = total

    @property
    def value(self) -> float:
        """The sum of the numbers so far; not a number where they pass the range of float64."""
        return self._sum + self._lost
