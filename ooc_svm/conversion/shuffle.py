"""Rows in random order in bounded memory.

Every row gets a key of 64 bits made from the seed and its number (splitmix64), and rows leave in the order of
their keys. No two rows share a key, so the order follows from the seed alone: not from the memory, the
threads, or the pieces in which the rows came.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ooc_svm.conversion.external_sort import Piece, RowSorter, numbered, with_keys
from ooc_svm.data.blocks import Float64Array, LabelledRows
from ooc_svm.ops.hashing import row_keys


class Shuffler:
    """Takes rows, and gives them back in random order.

    Parameters
    ----------
    folder : Path
        For the files; they are removed as they are used up.
    seed : int
        From 0 to 2^64 - 1.
    memory : int
        Bytes to use; a row that takes more is held all the same.
    expected_bytes : int, optional
        What all rows take, roughly.
    """

    def __init__(self, folder: Path, seed: int, memory: int, expected_bytes: int | None = None) -> None:
        self._seed = np.uint64(seed)
        self._sorter = RowSorter(folder, "rows", memory, expected_bytes)

    @property
    def divisions(self) -> int:
        """How often rows that were put aside together had to be divided again."""
        return self._sorter.divisions

    def add(self, labelled: LabelledRows, weights: Float64Array | None = None) -> None:
        """Take rows; ``labelled.rows.start`` is the number of the first in the whole data.

        Raises
        ------
        StorageError
            Writing to the folder failed.
        """
        keys = np.empty(labelled.rows.n_rows, np.uint64)
        row_keys(self._seed, np.uint64(labelled.rows.start), keys)
        self._sorter.add(with_keys(labelled, weights, keys))

    def drain(self) -> Iterator[Piece]:
        """All rows in their new order, in pieces, each with the weights if there are any; once.

        Raises
        ------
        StorageError
            Reading or writing in the folder failed.
        """
        yield from numbered(self._sorter.drain())
