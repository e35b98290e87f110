"""Distinct scores in order, with their rows of each class, in bounded memory.

Metrics that depend on the order of the scores need no sorted copy of them, only the tie runs: for each
distinct score in order, the number of rows of either class that have it. Counting divides the scores into
ranges that fit the memory; each range is gathered by one read of the vectors and sorted, both classes apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import SLICE_ROWS, Float64Array, Int64Array, row_slices
from ooc_svm.errors import InputError, StorageError
from ooc_svm.ops.sort_keys import count_keys, first_invalid, gather_keys, merge_keys, scores_of_keys
from ooc_svm.rowvectors.vector import RowVector
from ooc_svm.rowvectors.views import ConstantVector

_KEY_LIMIT = 2**64 - 1
# Smallest number of rows, bins or runs in a buffer, whatever the memory.
_SMALLEST = 64
# Maximum number of bins: with sign, exponent and six bits more, a bin is 1/64 of a power of two wide.
_MOST_BINS = 1 << 18
# Bytes of memory for each bin, row and tie run.
_BIN_BYTES = 32
_ROW_BYTES = 8 + 1
_RUN_BYTES = 24 + 24


@dataclass(frozen=True, slots=True)
class TieRuns:
    """Distinct scores in ascending order, and for each the number of its rows of either class (int64)."""

    scores: Float64Array
    positives: Int64Array
    negatives: Int64Array


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The `rows` rows with scores from `low` to `high`, both of which are scores of rows."""

    low: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True)
class _KeyRange:
    """The rows with keys from `low` to `high`, both of which are keys of rows."""

    low: int
    high: int
    positives: int
    negatives: int

    @property
    def rows(self) -> int:
        return self.positives + self.negatives


def sorted_ties(scores: RowVector, targets: RowVector, memory_bytes: int) -> Iterator[TieRuns]:
    """Every distinct score once, in ascending order, with its rows of each class, in any number of tie runs.

    Reads the vectors (float64, and targets 1 or -1 as int8) once to check, once to count and about once for
    every ``memory_bytes / 16`` rows; once more for each dense range of scores that does not fit. A few
    kilobytes are always used. -0.0 and 0.0 are equal. InputError if a score is not finite or a target is
    neither 1 nor -1.
    """
    if scores.dtype != np.float64 or targets.dtype != np.int8 or scores.n_rows != targets.n_rows:
        raise TypeError(
            f"{scores.n_rows} scores of {scores.dtype} and {targets.n_rows} targets of {targets.dtype}; "
            "they must be as many, float64 and int8"
        )
    scan = _Scan(scores, targets, memory_bytes)
    for own in scan.ranges():
        if own.low == own.high:
            score = scores_of_keys(np.array([own.low], np.uint64))
            yield TieRuns(score, np.array([own.positives]), np.array([own.negatives]))
        else:
            yield from scan.sort(own)


def score_ranges(
    scores: RowVector, most_rows: int, memory_bytes: int, enough_rows: int | None = None
) -> Iterator[ScoreRange]:
    """Ranges that cover all scores, ascending, each of at most `most_rows` rows or of one score.

    Reads and raises as `sorted_ties` does, without the reads for sorting. Ranges are not merged to more than
    `enough_rows` rows, by default `most_rows`.
    """
    one_class = ConstantVector(scores.n_rows, np.int8, 1)
    for own in _Scan(scores, one_class, memory_bytes, most_rows, enough_rows).ranges():
        low, high = scores_of_keys(np.array([own.low, own.high], np.uint64)).tolist()
        yield ScoreRange(low, high, own.rows)


class _Scan:
    """Reads the two vectors; half of the memory is for the keys of one range."""

    def __init__(
        self,
        scores: RowVector,
        targets: RowVector,
        memory_bytes: int,
        capacity: int | None = None,
        enough: int | None = None,
    ) -> None:
        self._scores, self._targets = scores, targets
        self.capacity = max(memory_bytes // 2 // 8, _SMALLEST) if capacity is None else capacity
        self._enough = self.capacity if enough is None else enough
        share = memory_bytes // 8
        self._bin_bits = min(max(share // _BIN_BYTES, _SMALLEST), _MOST_BINS).bit_length() - 1
        self._slice_rows = min(max(share // _ROW_BYTES, _SMALLEST), SLICE_ROWS)
        self._buffered_runs = min(max(share // _RUN_BYTES, _SMALLEST), SLICE_ROWS)
        n_rows = scores.n_rows
        self._score_buffer = np.empty(min(self._slice_rows, n_rows))
        self._target_buffer = np.empty(min(self._slice_rows, n_rows), np.int8)
        self._keys: npt.NDArray[np.uint64] | None = None

    def ranges(self) -> Iterator[_KeyRange]:
        """Ranges that cover all keys, ascending, each of which fits the memory or is one key."""
        self.check()
        ranges = self.divide(0, _KEY_LIMIT)
        while ranges:
            own = ranges.pop()
            if own.low == own.high or own.rows <= self.capacity:
                yield own
            else:
                ranges.extend(self.divide(own.low, own.high))

    def _slices(self) -> Iterator[tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.int8]]]:
        for start, stop in row_slices(self._scores.n_rows, self._slice_rows):
            scores = self._scores.read(start, stop, self._score_buffer)
            targets = self._targets.read(start, stop, self._target_buffer)
            yield start, scores.view(np.uint64), targets

    def check(self) -> None:
        """Raise InputError for a score that is not finite or another target."""
        for start, bits, targets in self._slices():
            place = first_invalid(bits, targets)
            if place >= 0:
                raise InputError(
                    f"row {start + place} has the score {float(bits.view(np.float64)[place])!r} "
                    f"and the target {int(targets[place])}; scores must be finite and targets 1 or -1"
                )

    def divide(self, low: int, high: int) -> list[_KeyRange]:
        """Ranges of the keys from `low` to `high`, descending; a range that does not fit is a single bin."""
        shift = max((high - low).bit_length() - self._bin_bits, 0)
        n_bins = ((high - low) >> shift) + 1
        positives, negatives = np.zeros(n_bins, np.int64), np.zeros(n_bins, np.int64)
        smallest, largest = np.full(n_bins, _KEY_LIMIT, np.uint64), np.zeros(n_bins, np.uint64)
        edges = np.uint64(low), np.uint64(high), np.uint64(shift)
        for _, bits, targets in self._slices():
            count_keys(bits, targets, *edges, positives, negatives, smallest, largest)
        ranges: list[_KeyRange] = []
        for place in np.flatnonzero(positives + negatives).tolist():
            first, last = int(smallest[place]), int(largest[place])
            upper, lower = int(positives[place]), int(negatives[place])
            if ranges and ranges[-1].rows + upper + lower <= self._enough:
                before = ranges.pop()
                first, upper, lower = before.low, before.positives + upper, before.negatives + lower
            ranges.append(_KeyRange(first, last, upper, lower))
        return ranges[::-1]

    def sort(self, own: _KeyRange) -> Iterator[TieRuns]:
        """The tie runs of a range that fits the memory."""
        if self._keys is None:
            self._keys = np.empty(min(self.capacity, self._scores.n_rows), np.uint64)
        gathered = self._keys[: own.rows]
        front, back = 0, len(gathered)
        edges = np.uint64(own.low), np.uint64(own.high)
        for _, bits, targets in self._slices():
            front, back = gather_keys(bits, targets, *edges, gathered, front, back)
        if front != own.positives or back != front:
            raise StorageError("the scores changed while they were read; run again")
        upper, lower = gathered[:front], gathered[front:]
        upper.sort()
        lower.sort()
        keys = np.empty(min(self._buffered_runs, own.rows), np.uint64)
        i = j = 0
        while i < len(upper) or j < len(lower):
            positives, negatives = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
            count, i, j = merge_keys(upper, lower, i, j, keys, positives, negatives)
            yield TieRuns(scores_of_keys(keys[:count]), positives[:count], negatives[:count])
