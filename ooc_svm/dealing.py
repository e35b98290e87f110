"""Columns of rows dealt out to parts, and sorted by score, wherever the columns lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.ops import parts
from ooc_svm.rows import Float64Array, Int64Array
from ooc_svm.rowvectors import SLICE_ROWS, AnyArray, RowVector, row_slices

_KEY_LIMIT = 2**64 - 1
# Sign, exponent and six bits more: a bin is 1/64 of a power of two wide.
_MOST_BINS = 1 << 18
Columns = Sequence[RowVector]
Places = Callable[[int, int], Int64Array]


class RowNumbers(RowVector):
    """The vector 0, 1, 2, ..., which needs no place."""

    @property
    def in_memory(self) -> bool:
        """Always true."""
        return True

    def close(self) -> None:
        """Nothing to give up."""

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return np.arange(start, stop, dtype=self.dtype)

    def _write(self, start: int, array: AnyArray) -> None:
        raise TypeError("row numbers are not written")


def deal(
    sources: Columns, targets: Columns, start: int, stop: int, sizes: Int64Array, part_of: Places, rows: int
) -> Int64Array:
    """Copy rows so that those of one part lie together, in their old order.

    Parameters
    ----------
    sources, targets : sequences of RowVector, in pairs of one dtype
    start, stop : int
        The rows; they keep that range.
    sizes : ndarray of int64, shape (n_parts,)
        Rows of each part.
    part_of : callable
        Of a range of rows; gives their parts (int64).
    rows : int
        Held in memory at a time.

    Returns
    -------
    ndarray of int64, shape (n_parts + 1,)
        The bounds of the parts.
    """
    bounds = np.concatenate(([0], np.cumsum(sizes))) + start
    move = _scatter if all(target.in_memory for target in targets) else _write_pieces
    next_places = bounds[:-1].copy()
    for first, last in row_slices(stop - start, rows):
        move(sources, targets, start + first, start + last, part_of(start + first, start + last), next_places)
    return bounds


def _scatter(
    sources: Columns, targets: Columns, start: int, stop: int, chosen: Int64Array, next_places: Int64Array
) -> None:
    """Put a slice of rows straight into their places in memory."""
    places = np.empty(stop - start, np.int64)
    parts.place(chosen, next_places, places)
    for source, target in zip(sources, targets, strict=True):
        parts.scatter(places, 0, source.read(start, stop), target.read(0, target.n_rows))


def _write_pieces(
    sources: Columns, targets: Columns, start: int, stop: int, chosen: Int64Array, next_places: Int64Array
) -> None:
    """Bring the rows of each part together in memory, then write them with one call a part and column."""
    sizes = np.bincount(chosen, minlength=len(next_places))
    ends = np.cumsum(sizes)
    places = np.empty(stop - start, np.int64)
    parts.place(chosen, ends - sizes, places)
    for source, target in zip(sources, targets, strict=True):
        values = source.read(start, stop)
        pieces = np.empty_like(values)
        parts.scatter(places, 0, values, pieces)
        for part in np.flatnonzero(sizes).tolist():
            target.write(int(next_places[part]), pieces[ends[part] - sizes[part] : ends[part]])
    next_places += sizes


@dataclass(frozen=True, slots=True)
class _Span:
    """All rows with keys from `low` to `high`."""

    low: int
    high: int
    rows: int


def sort_by_score(sources: Columns, targets: Columns, *, best: int, most: int, rows: int) -> None:
    """Copy rows in ascending order of (score, row).

    The range of the keys is cut into spans by counting, the rows are dealt out to the spans, and each span is
    sorted where it lies. Equal scores beyond what fits the memory are a span that needs no sorting.

    Parameters
    ----------
    sources, targets : sequences of RowVector, in pairs of one dtype
        The first are the scores (float64, finite).
    best : int
        Rows that are sorted fastest together.
    most : int
        Rows that may be sorted in memory at a time.
    rows : int
        Dealt out at a time.
    """
    scores = sources[0]
    cutter = _Cutter(scores, min(best, most), most)
    spans = cutter.spans()
    if not spans:
        return
    sizes = np.array([span.rows for span in spans])
    bounds = deal(sources, targets, 0, scores.n_rows, sizes, cutter.finder(spans), rows)
    for span, start, stop in zip(spans, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if span.low < span.high and span.rows > 1:
            order = _order(targets[0].read(start, stop), span)
            for column in targets:
                column.write(start, column.read(start, stop)[order])


def _order(scores: Float64Array, span: _Span) -> Int64Array:
    """Stable order of the scores of a span: one sort of numbers that hold both key and place, if it can be."""
    place_bits = (span.rows - 1).bit_length()
    dropped = max((span.high - span.low).bit_length() + place_bits - 64, 0)
    packed = np.empty(span.rows, np.uint64)
    parts.pack_keys(
        scores.view(np.uint64), np.uint64(span.low), np.uint64(dropped), np.uint64(place_bits), packed
    )
    packed.sort()
    packed &= np.uint64((1 << place_bits) - 1)
    order = packed.view(np.int64)
    if dropped and not parts.is_ascending(scores[order]):
        return np.argsort(scores, kind="stable")
    return order


class _Cutter:
    """Cuts the range of the keys of a score vector into spans of some rows."""

    def __init__(self, scores: RowVector, best: int, most: int) -> None:
        self._scores, self._best, self._most = scores, best, most
        self._bin_bits = min(max(most, 64), _MOST_BINS).bit_length() - 1
        self._slice_rows = min(SLICE_ROWS, most)
        self._low, self._high = _KEY_LIMIT, 0
        for bits in self._slices():
            # What a compiled function returns is an int of Python, and would come back signed.
            low, high = np.uint64(self._low), np.uint64(self._high)
            self._low, self._high = parts.key_range(bits, low, high)

    def _slices(self) -> Iterator[npt.NDArray[np.uint64]]:
        for start, stop in row_slices(self._scores.n_rows, self._slice_rows):
            yield self._scores.read(start, stop).view(np.uint64)

    def spans(self) -> list[_Span]:
        """Spans that hold all rows, ascending."""
        return self._cut(self._low, self._high) if self._low <= self._high else []

    def _shift(self, low: int, high: int) -> int:
        return max((high - low).bit_length() - self._bin_bits, 0)

    def _cut(self, low: int, high: int) -> list[_Span]:
        shift = self._shift(low, high)
        counts = np.zeros(((high - low) >> shift) + 1, np.int64)
        for bits in self._slices():
            parts.count_bins(bits, np.uint64(low), np.uint64(high), np.uint64(shift), counts)
        spans: list[_Span] = []
        for place in np.flatnonzero(counts).tolist():
            first, rows = low + (place << shift), int(counts[place])
            last = min(first + (1 << shift) - 1, high)
            if rows > self._most and first < last:
                spans.extend(self._cut(first, last))
            elif spans and spans[-1].rows + rows <= self._best:
                spans[-1] = _Span(spans[-1].low, last, spans[-1].rows + rows)
            else:
                spans.append(_Span(first, last, rows))
        return spans

    def finder(self, spans: list[_Span]) -> Places:
        """The function that finds the spans of a range of rows."""
        shift = self._shift(self._low, self._high)
        highest = np.array([span.high for span in spans], np.uint64)
        bins = np.arange(((self._high - self._low) >> shift) + 1, dtype=np.uint64)
        first = np.searchsorted(highest, (bins << np.uint64(shift)) + np.uint64(self._low))

        def find(start: int, stop: int) -> Int64Array:
            places = np.empty(stop - start, np.int64)
            bits = self._scores.read(start, stop).view(np.uint64)
            parts.find_spans(bits, np.uint64(self._low), np.uint64(shift), first, highest, places)
            return places

        return find
