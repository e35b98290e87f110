"""Blocks of consecutive rows in CSR form: the output of readers and the input of every computation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive rows of the data matrix.

    Attributes
    ----------
    start : int
        Number of the first row in the whole data.
    indptr : ndarray of int64, shape (n_rows + 1,)
        Row pointers, from 0.
    indices : ndarray of int32, shape (nnz,)
        Column ids from 0, strictly increasing in each row.
    values : ndarray of float32 or float64, shape (nnz,), or None
        None if every stored value is 1.
    """

    start: int
    indptr: Int64Array
    indices: Int32Array
    values: Values | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def stop(self) -> int:
        """Number of the row after the last one."""
        return self.start + self.n_rows

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.indptr.nbytes + self.indices.nbytes + (0 if self.values is None else self.values.nbytes)

    @property
    def arrays(self) -> tuple[Values, Values, Values | None]:
        """Row pointers, column ids and values as compiled functions take them (`ooc_svm.ops.rows`)."""
        return self.indptr.view(np.uint64), self.indices.view(np.uint32), self.values


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """A block of rows with their labels, and their group numbers if the input has them."""

    rows: RowBlock
    labels: Float64Array
    qids: Int64Array | None = None


def tiles(
    indptr: Int64Array,
    max_elements: int,
    max_rows: int | None = None,
    query_starts: npt.NDArray[np.uint8] | None = None,
) -> Iterator[tuple[int, int]]:
    """Divide rows into tiles ``(first, last)`` that fit a core's cache.

    A tile has at most `max_elements` stored values (only a single row may have more) and `max_rows` rows, by
    default as many. With `query_starts` (uint8, 1 at the first row of each query) tiles are whole queries,
    and longer if a query is.
    """
    first, n_rows = 0, len(indptr) - 1
    while first < n_rows:
        reach = int(np.searchsorted(indptr, indptr[first] + max_elements, side="right")) - 1
        last = min(max(reach, first + 1), n_rows, first + (max_rows or max_elements))
        if query_starts is not None and last < n_rows:
            starts = np.flatnonzero(query_starts[first + 1 : last + 1])
            if len(starts):
                last = first + 1 + int(starts[-1])
            else:
                later = np.flatnonzero(query_starts[last + 1 :])
                last = last + 1 + int(later[0]) if len(later) else n_rows
        yield first, last
        first = last


# Number of rows at a time where a whole vector is streamed: half a megabyte of float64.
SLICE_ROWS = 1 << 16


def row_slices(n_rows: int, size: int = SLICE_ROWS) -> Iterator[tuple[int, int]]:
    """Ranges ``(start, stop)`` of at most `size` rows that cover ``0 .. n_rows`` in order."""
    for start in range(0, n_rows, size):
        yield start, min(start + size, n_rows)
