"""Summary of the labels of a store, collected in one stream over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.label_sets import MAX_SETS

MOST_COUNTED = 1000
"""Number of distinct labels above which only minimum, maximum and mean are kept."""

# Labels come in runs if there are fewer of them than this share of what random order has; of so many rows.
_SORTED_SHARE, _FEWEST_ROWS_TO_JUDGE = 0.1, 1000

# Factor of labels whose sum passes the range of float64: that of any number of rows is then in it. A power of
# two, so that no digits are lost.
_SCALE = 2.0**-64


@dataclass(frozen=True)
class LabelSummary:
    """Summary of the labels of all rows; minimum, maximum and mean are NaN where there are no rows.

    ``counts`` has the rows of each label, ascending by label, or is None for more than 1000 distinct labels;
    sets of labels are counted always.
    """

    counts: dict[float, int] | None
    minimum: float
    maximum: float
    mean: float

    def ranked(self, ranks: Float64Array) -> LabelSummary:
        """The summary where each label, a place in `ranks`, is what stands there."""
        assert self.counts is not None
        counts = {float(ranks[int(label)]): n for label, n in self.counts.items()}
        total, n_rows = sum(label * n for label, n in counts.items()), sum(counts.values())
        return LabelSummary(dict(sorted(counts.items())), min(counts), max(counts), total / n_rows)

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


def runs_by_chance(counts: Mapping[float, int], n_runs: int) -> float | None:
    """Runs that labels in random order would have, if they come in far fewer: they are sorted, or nearly."""
    n = sum(counts.values())
    by_chance = 1 + (n - 1) * (1 - sum((count / n) ** 2 for count in counts.values()))
    return by_chance if n >= _FEWEST_ROWS_TO_JUDGE and n_runs < _SORTED_SHARE * by_chance else None


def label_ranks(names: Sequence[str]) -> Float64Array:
    """The place of each name among the sorted names: the label that stands for it."""
    ranks = np.empty(len(names))
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


class RunCounter:
    """Counts the runs of equal entries in a column."""

    def __init__(self) -> None:
        self.n_runs = 0
        self._last: Any = None

    def add(self, entries: npt.NDArray[Any]) -> None:
        """Take the next entries."""
        if len(entries):
            begins = self._last is None or entries[0] != self._last
            self.n_runs += int(np.count_nonzero(entries[1:] != entries[:-1])) + bool(begins)
            self._last = entries[-1]


class LabelCollector:
    """Builds a `LabelSummary`.

    The mean is a sum over ranges of a fixed length: it has the same bits however the labels are passed in.
    """

    def __init__(self, length: int, most_counted: int = MOST_COUNTED) -> None:
        self._length, self._most_counted = length, most_counted
        self._waiting: Float64Array = np.empty(0)
        self._n_rows = 0
        self._counts: dict[float, int] | None = {}
        self._minimum, self._maximum, self._total, self._scale = np.inf, -np.inf, 0.0, 1.0

    def add(self, labels: Float64Array) -> None:
        """Take the labels of the next rows (finite)."""
        labels = np.concatenate([self._waiting, labels])
        whole = len(labels) - len(labels) % self._length
        for start in range(0, whole, self._length):
            self._add_range(labels[start : start + self._length])
        self._waiting = labels[whole:]

    def _add_range(self, labels: Float64Array) -> None:
        self._n_rows += len(labels)
        self._minimum = min(self._minimum, float(labels.min()))
        self._maximum = max(self._maximum, float(labels.max()))
        self._add_to_total(labels)
        if self._counts is not None:
            for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
                key = float(label) + 0.0  # -0.0 and 0.0 are one label
                self._counts[key] = self._counts.get(key, 0) + int(count)
            if len(self._counts) > self._most_counted:
                self._counts = None

    def _add_to_total(self, labels: Float64Array) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            total = self._total + float((labels * self._scale).sum())
        if math.isfinite(total) or self._scale != 1.0:
            self._total = total
            return
        self._scale = _SCALE
        self._total *= _SCALE
        self._add_to_total(labels)

    def _mean(self) -> float:
        mean = self._total / self._n_rows
        if self._scale == 1.0:
            return mean
        return min(max(mean / self._scale, self._minimum), self._maximum)  # rounding may lead out of range

    def summary(self) -> LabelSummary:
        """Summary of all labels, none of which may be added after it."""
        if len(self._waiting):
            self._add_range(self._waiting)
        if not self._n_rows:
            return LabelSummary({}, np.nan, np.nan, np.nan)
        counts = None if self._counts is None else dict(sorted(self._counts.items()))
        return LabelSummary(counts, self._minimum, self._maximum, self._mean())


def most_counted(label_sets: bool) -> int:
    """Limit of the number of names of labels, or of sets of labels, that are counted."""
    return MAX_SETS if label_sets else MOST_COUNTED


def label_collector(length: int, label_sets: bool) -> LabelCollector:
    """A collector for labels, or for numbers of sets of labels."""
    return LabelCollector(length, most_counted(label_sets))
