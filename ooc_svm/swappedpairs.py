"""Swapped pairs of rows that are read from row vectors, counted in bounded memory.

The grades are cut into **bands** and the scores into **spans**, each of as many rows as fit the memory, or of
one value. Two rows of one band are counted with that band alone in memory. Rows of different bands are
compared by the numbers of their bands, of which there are few: inside a span in memory, and between spans by
how many rows of each band were seen in lower ones. So every pair is counted once, whatever the number of
grades, and the vectors are read once for each band and each span.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ooc_svm.paircounts import pairs_of_sizes
from ooc_svm.rankings import ROW_BYTES, Rankings
from ooc_svm.rows import Float64Array, Int64Array
from ooc_svm.rowvectors import SLICE_ROWS, RowVector, row_slices
from ooc_svm.ties import ScoreRange, score_ranges

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
    """

    def __init__(self, scores: RowVector, grades: RowVector, memory_bytes: int) -> None:
        self._scores, self._grades = scores, grades
        self._scan_bytes = memory_bytes // 4
        self._most_rows = max(memory_bytes // 2 // ROW_BYTES, _FEWEST_ROWS)
        self._slice_rows = min(max(self._scan_bytes // ROW_BYTES, _FEWEST_ROWS), SLICE_ROWS)
        self.swapped = self.tied = 0
        self._count_inside_bands(bands := self._ranges(grades))
        self._count_across_bands(np.array([band.high for band in bands]))

    def _ranges(self, vector: RowVector) -> list[ScoreRange]:
        return list(score_ranges(vector, self._most_rows, self._scan_bytes))

    def _count_inside_bands(self, bands: list[ScoreRange]) -> None:
        for band in bands:
            if band.low < band.high:
                scores, grades = zip(*self._rows(band, by_grade=True), strict=True)
                self._count(np.concatenate(scores), np.concatenate(grades))

    def _count_across_bands(self, tops: Float64Array) -> None:
        """Count pairs of rows of different bands, given the highest grade of each."""
        lower = np.zeros(len(tops), np.int64)  # rows of each band whose scores are in lower spans
        for span in self._ranges(self._scores):
            rows = np.zeros(len(tops), np.int64)
            kept: list[tuple[Float64Array, Int64Array]] = []
            for scores, grades in self._rows(span, by_grade=False):
                bands = np.searchsorted(tops, grades)
                rows += np.bincount(bands, minlength=len(tops))
                if span.low < span.high:
                    kept.append((scores, bands))
            if kept:
                parts, numbers = zip(*kept, strict=True)
                self._count(np.concatenate(parts), np.concatenate(numbers).astype(np.float64))
            else:
                self.tied += pairs_of_sizes(rows.tolist())
            higher_bands = 0  # Python integers: products may pass 64 bits
            for band in range(len(tops) - 1, -1, -1):
                self.swapped += int(rows[band]) * higher_bands
                higher_bands += int(lower[band])
            lower += rows

    def _rows(self, wanted: ScoreRange, *, by_grade: bool) -> Iterator[tuple[Float64Array, Float64Array]]:
        """Scores and grades of the rows whose score, or grade, is in a range."""
        for start, stop in row_slices(self._scores.n_rows, self._slice_rows):
            scores, grades = self._scores.read(start, stop), self._grades.read(start, stop)
            keys = grades if by_grade else scores
            inside = (keys >= wanted.low) & (keys <= wanted.high)
            yield scores[inside], grades[inside]

    def _count(self, scores: Float64Array, grades: Float64Array) -> None:
        counts = Rankings(scores, grades, np.array([0, len(scores)])).pair_counts()
        self.swapped += int(counts.swapped[0])
        self.tied += int(counts.tied[0])
