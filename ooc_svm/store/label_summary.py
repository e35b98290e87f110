"""What the labels of a store look like, gathered in one stream over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array

MOST_COUNTED = 1000
"""Above this number of distinct labels only minimum, maximum and mean are kept."""


@dataclass(frozen=True)
class LabelSummary:
    """The labels of all rows in short.

    Attributes
    ----------
    counts : dict of float to int, or None
        Rows of each label, ascending by label; None where there are more than 1000 distinct labels.
    minimum, maximum, mean : float
        NaN where there are no rows.
    """

    counts: dict[float, int] | None
    minimum: float
    maximum: float
    mean: float

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; counts are a list of pairs, since JSON keys are text."""
        counts = None if self.counts is None else [[label, n] for label, n in self.counts.items()]
        return {"counts": counts, "min": self.minimum, "max": self.maximum, "mean": self.mean}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> LabelSummary:
        """Back from `to_json`; raises KeyError, TypeError or ValueError where the record is malformed."""
        counts = record["counts"]
        if counts is not None:
            counts = {float(label): int(n) for label, n in counts}
        return cls(counts, float(record["min"]), float(record["max"]), float(record["mean"]))


class LabelGatherer:
    """Builds a `LabelSummary` and counts runs of equal labels, piece by piece.

    The mean is a sum over the pieces as they come: feed pieces of a fixed length for the same bits.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_runs = 0
        self._counts: dict[float, int] | None = {}
        self._minimum = np.inf
        self._maximum = -np.inf
        self._total = 0.0
        self._last = np.nan

    def add(self, labels: Float64Array) -> None:
        """Take the labels of the next rows (finite)."""
        if not len(labels):
            return
        self.n_rows += len(labels)
        self.n_runs += int(np.count_nonzero(labels[1:] != labels[:-1])) + bool(labels[0] != self._last)
        self._last = float(labels[-1])
        self._minimum = min(self._minimum, float(labels.min()))
        self._maximum = max(self._maximum, float(labels.max()))
        self._total += float(labels.sum())
        if self._counts is not None:
            for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
                key = float(label) + 0.0  # -0.0 and 0.0 are one label
                self._counts[key] = self._counts.get(key, 0) + int(count)
            if len(self._counts) > MOST_COUNTED:
                self._counts = None

    def summary(self) -> LabelSummary:
        """The summary of all labels added so far."""
        if not self.n_rows:
            return LabelSummary({}, np.nan, np.nan, np.nan)
        counts = None if self._counts is None else dict(sorted(self._counts.items()))
        return LabelSummary(counts, self._minimum, self._maximum, self._total / self.n_rows)
