"""A row vector of unknown length, to which entries are appended."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import SLICE_ROWS
from ooc_svm.rowvectors.vector import DiskVector, MemoryVector, RowVector
from ooc_svm.system.folders import default_scratch_folder

# Maximum number of rows of a segment. Shorter segments double in length, so that there are few files; longer
# ones would reserve much unused space.
_LARGEST_SEGMENT = 1 << 26


class GrowingVector(RowVector):
    """A row vector to which entries are appended. A context manager.

    It consists of segments, in memory until the memory is used up, then on disk: in `scratch_dir`, by default
    that of `default_scratch_folder`. The first segment has `first_rows` rows.
    """

    def __init__(
        self,
        dtype: npt.DTypeLike,
        memory_bytes: int,
        scratch_dir: Path | None = None,
        *,
        first_rows: int = SLICE_ROWS,
    ) -> None:
        super().__init__(0, dtype)
        self._memory_bytes = memory_bytes
        self._folder = default_scratch_folder() if scratch_dir is None else scratch_dir
        self._segments: list[RowVector] = []
        self._starts: list[int] = []
        self._next_rows = max(first_rows, 1)

    @property
    def in_memory(self) -> bool:
        """Whether all segments are in memory."""
        return all(segment.in_memory for segment in self._segments)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of the segments that are in memory."""
        return sum(segment.nbytes for segment in self._segments if segment.in_memory)

    def append(self, array: npt.NDArray[Any]) -> None:
        """Append entries; raises as `write` does."""
        while len(array):
            free = self._starts[-1] + self._segments[-1].n_rows - self.n_rows if self._segments else 0
            if free == 0:
                self._add_segment()
                continue
            head, array = array[:free], array[free:]
            self._segments[-1].write(self.n_rows - self._starts[-1], head)
            self.n_rows += len(head)
            self.nbytes = self.n_rows * self.dtype.itemsize

    def close(self) -> None:
        """Release the entries; closing again has no effect."""
        for segment in self._segments:
            segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _add_segment(self) -> None:
        n_rows = self._next_rows
        segment: RowVector
        if self.bytes_in_memory + n_rows * self.dtype.itemsize <= self._memory_bytes:
            segment = MemoryVector(n_rows, self.dtype)
        else:
            segment = DiskVector(n_rows, self.dtype, self._folder)
        self._segments.append(segment)
        self._starts.append(self.n_rows)
        self._next_rows = min(2 * n_rows, max(_LARGEST_SEGMENT, n_rows))

    def _segments_of(self, start: int, stop: int) -> list[tuple[RowVector, int, int, int]]:
        """Segments with the rows ``start .. stop``: (segment, its first row, from, to)."""
        found = []
        place = bisect_right(self._starts, start) - 1
        while start < stop:
            first, segment = self._starts[place], self._segments[place]
            end = min(stop, first + segment.n_rows)
            found.append((segment, first, start, end))
            start, place = end, place + 1
        return found

    def _read(self, start: int, stop: int, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        found = self._segments_of(start, stop)
        if len(found) == 1:
            segment, first, _, _ = found[0]
            return segment.read(start - first, stop - first, out)
        entries = np.empty(stop - start, self.dtype) if out is None else out[: stop - start]
        for segment, first, begin, end in found:
            target = entries[begin - start : end - start]
            target[:] = segment.read(begin - first, end - first, target)
        return entries

    def _write(self, start: int, array: npt.NDArray[Any]) -> None:
        for segment, first, begin, end in self._segments_of(start, start + len(array)):
            segment.write(begin - first, array[begin - start : end - start])
