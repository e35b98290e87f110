"""Rows of equal qid put together in bounded memory, groups in the order of their first rows.

Rows are sorted twice, by group and then by the first row of their group, which is known by then; the rows of
a group keep their order. So no table of groups is needed, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ooc_svm.conversion.external_sort import KEY_BITS, Piece, RowSorter, numbered, with_keys
from ooc_svm.data.blocks import Float64Array, LabelledRows
from ooc_svm.errors import InputError
from ooc_svm.ops.hashing import mix_keys

_NUMBER = "number"


class Grouper:
    """Takes rows, and gives them back group by group.

    Parameters
    ----------
    folder : Path
        For the files; they are removed as they are used up.
    memory : int
        Bytes to use; a row that takes more is held all the same.
    expected_bytes : int, optional
        What all rows take, roughly.
    """

    def __init__(self, folder: Path, memory: int, expected_bytes: int | None = None) -> None:
        self._folder, self._memory = folder, memory // 2
        self._groups = RowSorter(folder, "groups", self._memory, expected_bytes)

    def add(self, labelled: LabelledRows, weights: Float64Array | None = None) -> None:
        """Take rows; ``labelled.rows.start`` is the number of the first in the whole data.

        Raises
        ------
        InputError
            The rows have no qid.
        StorageError
            Writing to the folder failed.
        """
        if labelled.qids is None:
            raise InputError("--group puts rows of equal qid together, and these have none: leave it out")
        rows = labelled.rows
        # Spread, so that buckets of keys are of one size whatever the qids.
        keys = np.empty(rows.n_rows, np.uint64)
        mix_keys(labelled.qids.view(np.uint64), keys)
        keyed = with_keys(labelled, weights, keys)
        keyed.columns[_NUMBER] = np.arange(rows.start, rows.stop, dtype=np.uint64)
        self._groups.add(keyed)

    def drain(self) -> Iterator[Piece]:
        """All rows in their new order, in pieces, each with the weights if there are any; once.

        Raises
        ------
        StorageError
            Reading or writing in the folder failed.
        """
        groups = self._groups
        sorter = RowSorter(self._folder, "rows", self._memory, groups.nbytes)
        # The bits of row numbers in front: buckets are made by the first bits of a key.
        shift = np.uint64(KEY_BITS - max(groups.n_rows - 1, 1).bit_length())
        key = first = np.uint64(0)
        begun = False
        for piece in groups.drain():
            columns = dict(piece.columns)
            numbers = columns.pop(_NUMBER)
            heads = np.empty(piece.n_rows, np.bool_)
            heads[0] = not begun or piece.keys[0] != key
            np.not_equal(piece.keys[1:], piece.keys[:-1], out=heads[1:])
            firsts = np.concatenate([[first], numbers[heads]])[np.cumsum(heads)]
            key, first, begun = piece.keys[-1], firsts[-1], True
            sorter.add(replace(piece, keys=firsts << shift, columns=columns))
        yield from numbered(sorter.drain())
