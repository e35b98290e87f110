"""Rows in the order of their scores, equal scores together, in bounded memory.

Metrics that depend on the order of the scores need no sorted copy: only, for each distinct score in order,
how many rows of either class have it. The range of the scores is cut where counting says that each part fits
the memory; the parts are gathered by one read of the vectors each and sorted in place, both classes apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError, StorageError
from ooc_svm.ops.sort_keys import count_keys, first_invalid, gather_keys, merge_keys, scores_of_keys
from ooc_svm.rowvectors.vector import SLICE_ROWS, RowVector, row_slices
from ooc_svm.rowvectors.views import ConstantVector

_KEY_LIMIT = 2**64 - 1
# Less than this makes no sense of any share of the memory.
_SMALLEST = 64
# Sign, exponent and six bits more: a bin is 1/64 of a power of two wide.
_MOST_BINS = 1 << 18
_BIN_BYTES = 32
_ROW_BYTES = 8 + 1
_GROUP_BYTES = 24 + 24


@dataclass(frozen=True, slots=True)
class TieGroups:
    """Distinct scores in ascending order and the rows that have them.

    Attributes
    ----------
    scores : ndarray of float64, shape (n_groups,)
    positives, negatives : ndarray of int64, shape (n_groups,)
        Rows of each class with that score.
    """

    scores: Float64Array
    positives: Int64Array
    negatives: Int64Array


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The rows with scores from `low` to `high`.

    Attributes
    ----------
    low, high : float
        Scores that occur.
    rows : int
    """

    low: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True)
class _Span:
    """Keys from `low` to `high` (both occur) and the rows that have them, which no other span has."""

    low: int
    high: int
    positives: int
    negatives: int

    @property
    def rows(self) -> int:
        return self.positives + self.negatives


def sorted_groups(scores: RowVector, targets: RowVector, memory_bytes: int) -> Iterator[TieGroups]:
    """Every distinct score once, in ascending order, with its rows of each class.

    Reads the vectors once to check, once to count and once for every ``memory_bytes / 16`` rows or so; where
    scores crowd together, once more for each crowd that does not fit.

    Parameters
    ----------
    scores : RowVector of float64
    targets : RowVector of int8
        1 or -1.
    memory_bytes : int
        What this may use beside the vectors (a few kilobytes are always used).

    Yields
    ------
    TieGroups
        Of any number of groups; -0.0 and 0.0 are equal.

    Raises
    ------
    InputError
        For a score that is not finite or another target.
    """
    if scores.dtype != np.float64 or targets.dtype != np.int8 or scores.n_rows != targets.n_rows:
        raise TypeError(
            f"{scores.n_rows} scores of {scores.dtype} and {targets.n_rows} targets of {targets.dtype}; "
            "they must be as many, float64 and int8"
        )
    scan = _Scan(scores, targets, memory_bytes)
    for span in scan.spans():
        if span.low == span.high:
            yield TieGroups(
                scores_of_keys(np.array([span.low], np.uint64)),
                np.array([span.positives]),
                np.array([span.negatives]),
            )
        else:
            yield from scan.sort(span)


def score_ranges(
    scores: RowVector, most_rows: int, memory_bytes: int, enough_rows: int | None = None
) -> Iterator[ScoreRange]:
    """Ranges that cover all scores, ascending, each of at most so many rows or of one score.

    Reads and raises as `sorted_groups` does, but for the sorting.

    Parameters
    ----------
    scores : RowVector of float64
    most_rows : int
    memory_bytes : int
        What this may use beside the vector (a few kilobytes are always used).
    enough_rows : int, optional
        Ranges are not joined to more rows than these (without it: `most_rows`).
    """
    one_class = ConstantVector(scores.n_rows, np.int8, 1)
    for span in _Scan(scores, one_class, memory_bytes, most_rows, enough_rows).spans():
        low, high = scores_of_keys(np.array([span.low, span.high], np.uint64)).tolist()
        yield ScoreRange(low, high, span.rows)


class _Scan:
    """Reads of the two vectors and the buffers for them; half of the memory is for the keys of one span."""

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
        self._group_slots = min(max(share // _GROUP_BYTES, _SMALLEST), SLICE_ROWS)
        n_rows = scores.n_rows
        self._score_buffer = np.empty(min(self._slice_rows, n_rows))
        self._target_buffer = np.empty(min(self._slice_rows, n_rows), np.int8)
        self._keys: npt.NDArray[np.uint64] | None = None

    def spans(self) -> Iterator[_Span]:
        """All keys in ascending order, in spans that fit the memory or are one key."""
        self.check()
        spans = self.divide(0, _KEY_LIMIT)
        while spans:
            span = spans.pop()
            if span.low == span.high or span.rows <= self.capacity:
                yield span
            else:
                spans.extend(self.divide(span.low, span.high))

    def _slices(self) -> Iterator[tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.int8]]]:
        for start, stop in row_slices(self._scores.n_rows, self._slice_rows):
            scores = self._scores.read(start, stop, self._score_buffer)
            targets = self._targets.read(start, stop, self._target_buffer)
            yield start, scores.view(np.uint64), targets

    def check(self) -> None:
        """Refuse what has no place in an order."""
        for start, bits, targets in self._slices():
            place = first_invalid(bits, targets)
            if place >= 0:
                raise InputError(
                    f"row {start + place} has the score {float(bits.view(np.float64)[place])!r} "
                    f"and the target {int(targets[place])}; scores must be finite and targets 1 or -1"
                )

    def divide(self, low: int, high: int) -> list[_Span]:
        """The spans of the keys from `low` to `high`, the lowest last; what does not fit is a single bin."""
        shift = max((high - low).bit_length() - self._bin_bits, 0)
        n_bins = ((high - low) >> shift) + 1
        positives, negatives = np.zeros(n_bins, np.int64), np.zeros(n_bins, np.int64)
        smallest, largest = np.full(n_bins, _KEY_LIMIT, np.uint64), np.zeros(n_bins, np.uint64)
        edges = np.uint64(low), np.uint64(high), np.uint64(shift)
        for _, bits, targets in self._slices():
            count_keys(bits, targets, *edges, positives, negatives, smallest, largest)
        spans: list[_Span] = []
        for place in np.flatnonzero(positives + negatives).tolist():
            span = _Span(
                int(smallest[place]), int(largest[place]), int(positives[place]), int(negatives[place])
            )
            if spans and spans[-1].rows + span.rows <= self._enough:
                last = spans.pop()
                span = _Span(
                    last.low, span.high, last.positives + span.positives, last.negatives + span.negatives
                )
            spans.append(span)
        return spans[::-1]

    def sort(self, span: _Span) -> Iterator[TieGroups]:
        """The groups of a span that fits the memory."""
        if self._keys is None:
            self._keys = np.empty(min(self.capacity, self._scores.n_rows), np.uint64)
        gathered = self._keys[: span.rows]
        front, back = 0, len(gathered)
        edges = np.uint64(span.low), np.uint64(span.high)
        for _, bits, targets in self._slices():
            front, back = gather_keys(bits, targets, *edges, gathered, front, back)
        if front != span.positives or back != front:
            raise StorageError("the scores changed while they were read; run again")
        upper, lower = gathered[:front], gathered[front:]
        upper.sort()
        lower.sort()
        keys = np.empty(min(self._group_slots, span.rows), np.uint64)
        i = j = 0
        while i < len(upper) or j < len(lower):
            positives, negatives = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
            count, i, j = merge_keys(upper, lower, i, j, keys, positives, negatives)
            yield TieGroups(scores_of_keys(keys[:count]), positives[:count], negatives[:count])
