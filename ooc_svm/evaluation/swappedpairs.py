"""Swapped pairs of rows that are read from row vectors, counted in bounded memory.

The grades are cut into **bands** and the scores into **spans**, each of as many rows as fit the memory, or of
one value. Two rows of one band are counted with that band alone in memory. Rows of different bands are
compared by the numbers of their bands, of which there are few: inside a span in memory, and between spans by
how many rows of each band were seen in lower ones. So every pair is counted once, whatever the number of
grades, and rows are dealt out twice, by band and by span.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.evaluation.rankings import ROW_BYTES, Rankings
from ooc_svm.pairs.counts import pairs_of_sizes
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.score_ranges import ScoreRange, score_ranges
from ooc_svm.rowvectors.sort import partition
from ooc_svm.rowvectors.vector import RowVector, row_slices

_FEWEST_ROWS = 64


class SwappedPairs:
    """Pairs of different grades in the wrong order.

    Parameters
    ----------
    scores, grades : RowVector of float64
        Finite.
    memory_bytes : int
        What this may use beside the vectors (a few kilobytes are always used).

    Attributes
    ----------
    swapped : int
        Pairs in which the lower grade has the higher score.
    tied : int
        Pairs of different grades and equal scores.

    Raises
    ------
    StorageError
        If scratch files of the size of both vectors cannot be made, written or read.
    """

    def __init__(self, scores: RowVector, grades: RowVector, memory_bytes: int) -> None:
        self._scores, self._grades = scores, grades
        self._most_rows = max(memory_bytes // ROW_BYTES, _FEWEST_ROWS)
        self.swapped = self.tied = 0
        bands, spans = (list(score_ranges(keys, self._most_rows, memory_bytes)) for keys in (grades, scores))
        with RowVectors(scores.n_rows, 0) as scratch:
            dealt = scratch.create("scores", np.float64), scratch.create("grades", np.float64)
            for band, start, stop in self._deal(grades, bands, dealt):
                if band.low < band.high:
                    self._count(dealt[0].read(start, stop), dealt[1].read(start, stop))
            tops = np.array([band.high for band in bands])
            lower = np.zeros(len(bands), np.int64)  # rows of each band whose scores are in lower spans
            for span, start, stop in self._deal(scores, spans, dealt):
                rows = self._count_span(span, dealt, start, stop, tops)
                self._count_between(rows, lower)
                lower += rows

    def _deal(
        self, keys: RowVector, ranges: list[ScoreRange], targets: tuple[RowVector, RowVector]
    ) -> Iterator[tuple[ScoreRange, int, int]]:
        """Bring the rows of each range together; the ranges and their places, ascending."""
        tops, sizes = np.array([each.high for each in ranges]), np.array([each.rows for each in ranges])
        bounds = partition(
            (self._scores, self._grades),
            targets,
            0,
            keys.n_rows,
            sizes,
            lambda start, stop: np.searchsorted(tops, keys.read(start, stop)),
            self._most_rows,
        ).tolist()
        return zip(ranges, bounds[:-1], bounds[1:], strict=True)

    def _count_span(
        self, span: ScoreRange, dealt: tuple[RowVector, RowVector], start: int, stop: int, tops: Float64Array
    ) -> Int64Array:
        """Count pairs of rows of different bands inside a span; its rows of each band."""
        rows = np.zeros(len(tops), np.int64)
        for first, last in row_slices(stop - start, self._most_rows):
            bands = np.searchsorted(tops, dealt[1].read(start + first, start + last))
            rows += np.bincount(bands, minlength=len(tops))
            if span.low < span.high:  # then it is all of the span
                self._count(dealt[0].read(start, stop), bands.astype(np.float64))
        if span.low == span.high:
            self.tied += pairs_of_sizes(rows.tolist())
        return rows

    def _count_between(self, rows: Int64Array, lower: Int64Array) -> None:
        """Count pairs of rows of a span, and of lower spans with a higher band."""
        above = 0  # Python integers: products may pass 64 bits
        for here, below in zip(rows[::-1].tolist(), lower[::-1].tolist(), strict=True):
            self.swapped += here * above
            above += below

    def _count(self, scores: Float64Array, grades: Float64Array) -> None:
        counts = Rankings(scores, grades, np.array([0, len(scores)])).pair_counts()
        self.swapped += int(counts.swapped[0])
        self.tied += int(counts.tied[0])
