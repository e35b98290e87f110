"""Blocks of a store that is being made, decoded, for a reader in the same process.

Reading a block again takes time even from the system's cache: it is decompressed and checked, into memory
that is touched for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int32Array, Int64Array, RowBlock, Values
from ooc_svm.data.pages import fitted, row_room
from ooc_svm.store.layout import BLOCK_CHUNKS, CHUNK_ELEMENTS

# Elements of most blocks; memory that is not written to takes none.
_USUAL_ELEMENTS = (BLOCK_CHUNKS + 1) * CHUNK_ELEMENTS


POINTER_BYTES = 8
"""Bytes of a row in its block apart from its elements."""


class HeldBlocks:
    """The first blocks of a store, as many as fit in ``most_bytes``, the one that is being filled included.

    The last row pointer of each block is not counted. ``dtype`` is that of values; ``row_bytes`` are what
    each row takes apart from its elements, with what is held of it elsewhere. ``has_values`` says whether
    some values are not 1.
    """

    def __init__(self, most_bytes: int, dtype: npt.DTypeLike, row_bytes: int) -> None:
        self._most_bytes, self._row_bytes = most_bytes, row_bytes
        self._value_bytes = np.dtype(dtype).itemsize
        self._blocks: list[RowBlock] = []
        self._open: _OpenBlock | None = _OpenBlock(0)  # None when no more fits
        self._n_rows = self._nbytes = 0
        self.has_values = False

    def _nbytes_of(self, rows: RowBlock) -> int:
        """Bytes of rows: without values they get some if later ones have them."""
        return self._row_bytes * rows.n_rows + (4 + self._value_bytes) * len(rows.indices)

    def has_room(self, rows: RowBlock) -> bool:
        """Whether the next rows fit."""
        return self._open is not None and self._nbytes + self._nbytes_of(rows) <= self._most_bytes

    def append(self, rows: RowBlock, values: Values | None, starts: Sequence[int]) -> None:
        """Append rows, copied, where they fit; if they do not, no others are.

        ``values`` are those of the rows as they are stored. ``starts`` are the first rows of the blocks known
        so far, those before too.
        """
        if self._open is None or not self.has_room(rows):
            self._open = None
            return
        self._nbytes += self._nbytes_of(rows)
        self.has_values |= values is not None
        begin = 0
        for start in starts[len(self._blocks) + 1 :]:
            end = start - self._n_rows
            self._open.extend(rows.indptr, rows.indices, values, begin, end)
            self._blocks.append(self._open.block())
            self._open, begin = _OpenBlock(start), end
        self._open.extend(rows.indptr, rows.indices, values, begin, rows.n_rows)
        self._n_rows += rows.n_rows

    def stop(self) -> list[RowBlock]:
        """Hold no more rows, nor those of the block that is being filled; all rows so far, in blocks."""
        blocks = list(self._blocks)
        if self._open is not None and self._open.start < self._n_rows:
            blocks.append(self._open.block())
        self._open = None
        return blocks

    def hand_over(self, value_dtype: npt.DTypeLike | None) -> list[RowBlock]:
        """The first blocks of the store, which is complete; all of them where they fitted.

        They are no longer held here. ``value_dtype`` is that of the store, None where all values are 1.
        """
        blocks, self._blocks = self.stop(), []
        return [_with_values(block, value_dtype) for block in blocks]


class _OpenBlock:
    """A block whose rows come in; ``start`` is the first of them."""

    def __init__(self, start: int) -> None:
        self.start = start
        self._ends: list[Int64Array] = [np.zeros(1, np.int64)]
        self._indices: Int32Array = row_room(_USUAL_ELEMENTS, np.int32)
        self._values: Values | None = None
        self._n_elements = 0

    def extend(
        self, indptr: Int64Array, indices: Int32Array, values: Values | None, begin: int, end: int
    ) -> None:
        """Append the rows ``begin <= i < end`` of some."""
        first, stop = int(indptr[begin]), int(indptr[end])
        before, after = self._n_elements, self._n_elements + stop - first
        self._ends.append(indptr[begin + 1 : end + 1] + (before - first))
        self._indices = _filled(self._indices, before, indices[first:stop])
        if values is not None and self._values is None:
            self._values = row_room(len(self._indices), values.dtype)
            self._values[:before] = 1
        if self._values is not None:
            own = np.ones(after - before, self._values.dtype) if values is None else values[first:stop]
            self._values = _filled(self._values, before, own)
        self._n_elements = after

    def block(self) -> RowBlock:
        """The block; nothing is appended any more."""
        n, values = self._n_elements, self._values
        fitted_values = None if values is None else fitted(values, n)
        return RowBlock(self.start, np.concatenate(self._ends), fitted(self._indices, n), fitted_values)


def _filled(array: npt.NDArray[Any], start: int, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array with a part from ``start`` on; a longer copy of it where the part is not within it."""
    stop = start + len(part)
    if stop > len(array):
        longer = row_room(max(stop, 2 * len(array)), array.dtype)
        longer[:start] = array[:start]
        array = longer
    array[start:stop] = part
    return array


def _with_values(block: RowBlock, dtype: npt.DTypeLike | None) -> RowBlock:
    """The block as a store of this type of values has it."""
    if dtype is None or block.values is not None:
        return block
    return RowBlock(block.start, block.indptr, block.indices, np.ones(len(block.indices), dtype))
