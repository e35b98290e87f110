"""A dense matrix as the three arrays of CSR rows: every entry is a stored value, zeros among them.

Only the values are on the disk. Rows are read in whole bands of chunks, as far as these are not larger than a
block should be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.metadata import ArrayInfo


@dataclass(frozen=True)
class DensePointers:
    """Row pointers of rows of `width` values each."""

    width: int

    def announce(self, start: int, stop: int) -> None:
        """Nothing is on the disk."""

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """See `ooc_svm.store.chunk_files.Elements`."""
        out[:] = np.arange(start, stop, dtype=np.int64) * self.width


@dataclass(frozen=True)
class DenseIds:
    """Column ids of rows of `width` values each."""

    width: int

    def announce(self, start: int, stop: int) -> None:
        """Nothing is on the disk."""

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """See `ooc_svm.store.chunk_files.Elements`."""
        np.remainder(np.arange(start, stop, dtype=np.int64), self.width, out=out, casting="unsafe")


class DenseValues:
    """The values of a matrix, row after row."""

    def __init__(self, chunks: EncodedChunks, info: ArrayInfo) -> None:
        assert info.grid is not None
        self._chunks, self._info, self._grid = chunks, info, info.grid

    def _bands(self, first: int, last: int) -> range:
        """The bands of chunks with the rows ``first <= row < last``."""
        return range(first // self._grid.chunk_rows, -(-last // self._grid.chunk_rows))

    def announce(self, start: int, stop: int) -> None:
        """See `ooc_svm.store.chunk_files.Elements`."""
        width, size = self._grid.columns, self._grid.across * self._info.chunk
        bands = self._bands(start // width, -(-stop // width))
        self._chunks.announce(bands.start * size, bands.stop * size)

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """See `ooc_svm.store.chunk_files.Elements`."""
        width = self._grid.columns
        first, last = start // width, -(-stop // width)
        if (start, stop) == (first * width, last * width):
            self.read_rows(first, last, out.reshape(last - first, width))
            return
        rows = np.empty((last - first, width), out.dtype)
        self.read_rows(first, last, rows)
        out[:] = rows.reshape(-1)[start - first * width : stop - first * width]

    def read_rows(self, first: int, last: int, out: npt.NDArray[Any]) -> None:
        """Decode the rows ``first <= row < last`` into a matrix."""
        grid = self._grid
        for band in self._bands(first, last):
            begin, end = max(first, band * grid.chunk_rows), min(last, (band + 1) * grid.chunk_rows)
            for column in range(grid.across):
                chunk = self._chunks.decoded(band * grid.across + column)
                values = chunk.reshape(grid.chunk_rows, grid.chunk_columns, order=grid.order)
                left = column * grid.chunk_columns
                right = min(left + grid.chunk_columns, grid.columns)
                inside = values[begin - band * grid.chunk_rows : end - band * grid.chunk_rows, : right - left]
                out[begin - first : end - first, left:right] = inside


def dense_blocks(info: ArrayInfo, block_elements: int) -> tuple[Int64Array, Int64Array]:
    """First rows and first values of blocks of about so many values, and the end; bands stay whole."""
    assert info.grid is not None
    grid = info.grid
    length = max(block_elements // grid.columns, 1)
    if length > grid.chunk_rows:
        length -= length % grid.chunk_rows
    rows = np.append(np.arange(0, grid.rows, length, dtype=np.int64), grid.rows)
    return rows, rows * grid.columns


def band_sizes(info: ArrayInfo, sizes: Int64Array) -> tuple[ArrayInfo, Int64Array]:
    """An array of bands for the values of whole rows, and the bytes of the files of each."""
    assert info.grid is not None
    length = info.grid.chunk_rows * info.grid.columns
    bands = replace(
        info, length=info.grid.rows * info.grid.columns, chunk=length, inner_chunk=length, grid=None
    )
    return bands, sizes.reshape(-1, info.grid.across).sum(axis=1)
