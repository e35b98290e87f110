"""How rows are cut into blocks, and the buffers that blocks are read into.

A block is a range of rows. It normally starts with the first row of a chunk of ``X/indices`` and goes on for
some chunks; the part of its last row that reaches into the chunk where the next block starts (its
*tail*) is kept a second time in the manifest. So every chunk belongs to one block and is fetched once in a
stream over the data, and every block can be read on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int32Array, Int64Array, Values
from ooc_svm.data.pages import row_room
from ooc_svm.store.layout import BLOCK_ROWS_SLACK


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A block of rows, ``start <= i < stop``, without the rows; ``nbytes`` are those of the decoded block."""

    index: int
    start: int
    stop: int
    n_nonzeros: int
    nbytes: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class BlockBuffers:
    """Arrays to read blocks into, one after another, so that a stream over the data allocates little.

    A block that was read into buffers is a view of them and lasts until the next read into them. Buffers are
    for one reading thread at a time, and fit the largest block; without `value_dtype` all values are 1.
    """

    def __init__(self, n_rows: int, n_nonzeros: int, value_dtype: npt.DTypeLike | None) -> None:
        self.indptr: Int64Array = np.empty(n_rows + 1, np.int64)
        self.indices: Int32Array = row_room(n_nonzeros, np.int32)
        self.values: Values | None = None if value_dtype is None else row_room(n_nonzeros, value_dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        values = 0 if self.values is None else self.values.nbytes
        return self.indptr.nbytes + self.indices.nbytes + values


class BlockCutter:
    """Finds the blocks from the row pointers alone, while rows come in.

    A block ends at the chunk boundary at which it holds `block_chunks` chunks of ``X/indices`` or
    `block_rows` rows. With four times as many rows it ends anywhere: nearly all of its rows are empty then.
    """

    def __init__(self, chunk_elements: int, block_chunks: int, block_rows: int) -> None:
        self.chunk_elements = chunk_elements
        self._limits = np.array([block_chunks, block_rows, BLOCK_ROWS_SLACK * block_rows], np.int64)
        self._state = np.zeros(3, np.int64)
        self._n_rows = self._stop = 0
        self._rows, self._nonzeros = [0], [0]

    def add(self, starts: Int64Array, stop: int) -> list[tuple[int, int]]:
        """Add the next rows by the first element of each, and the element after the last.

        Elements are numbered in the whole data. Returns for each block that ended the elements of its tail
        (perhaps none). They end at the first element of a row given here, and may belong to the row before
        the first of these.
        """
        from ooc_svm.store.block_loops import cut

        if not len(starts):
            return []
        before = int(self._state[2])
        room = (stop - int(starts[0])) // self.chunk_elements + len(starts) // int(self._limits[2]) + 3
        cuts = np.empty(min(room, len(starts)), np.int64)
        count = cut(starts, self.chunk_elements, self._limits, self._state, cuts)
        tails = []
        for row in cuts[:count].tolist():
            end = int(starts[row])
            previous = int(starts[row - 1]) // self.chunk_elements if row else before
            boundary = end // self.chunk_elements * self.chunk_elements
            tails.append((boundary if end // self.chunk_elements > previous else end, end))
            self._rows.append(self._n_rows + row)
            self._nonzeros.append(end)
        self._n_rows += len(starts)
        self._stop = stop
        return tails

    @property
    def starts(self) -> Sequence[int]:
        """First rows of the blocks known so far."""
        return self._rows

    def finish(self) -> tuple[Int64Array, Int64Array]:
        """First rows and first elements of all blocks, each closed by the end of the data."""
        if self._n_rows:
            self._rows.append(self._n_rows)
            self._nonzeros.append(self._stop)
        return np.array(self._rows, np.int64), np.array(self._nonzeros, np.int64)
