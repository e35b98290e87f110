"""Rows of a matrix in memory, as reading text would give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, LabelledRows, RowBlock
from ooc_svm.data.matrix import MatrixSource, qid_column
from ooc_svm.errors import InputError
from ooc_svm.text.reader import TextCounts


class MatrixRows:
    """Blocks of a matrix as text would give them: without explicit zeros, and counted.

    Parameters
    ----------
    source : MatrixSource
    qids : ndarray of int64, shape (n_rows,), or None
    weights : ndarray of float64, shape (n_rows,), or None

    Attributes
    ----------
    counts : TextCounts
        Of the blocks given so far; there are no lines.
    """

    def __init__(self, source: MatrixSource, qids: Int64Array | None, weights: Float64Array | None) -> None:
        self.counts = TextCounts(n_features=source.n_features)
        self._source = source
        self._qids = qids
        self._weights = weights

    def pieces(self, read: Callable[[int], None]) -> Iterator[tuple[LabelledRows, Float64Array | None]]:
        """Rows and their weights; `read` is told the bytes of all blocks given so far."""
        done = 0
        for index, span in enumerate(self._source.blocks):
            block = self._source.read_block(index)
            rows = _without_zeros(block)
            part = slice(span.start, span.stop)
            labels = self._source.read_labels(span.start, span.stop)
            self.counts.rows += rows.n_rows
            self.counts.nonzeros += len(rows.indices)
            self.counts.explicit_zeros += len(block.indices) - len(rows.indices)
            qids = None if self._qids is None else self._qids[part]
            yield LabelledRows(rows, labels, qids), None if self._weights is None else self._weights[part]
            done += span.nbytes
            read(done)


def _without_zeros(block: RowBlock) -> RowBlock:
    if block.values is None or block.values.all():
        return block
    stored = block.values != 0
    before = np.zeros(len(stored) + 1, np.int64)
    np.cumsum(stored, out=before[1:])
    return RowBlock(block.start, before[block.indptr], block.indices[stored], block.values[stored])


def read_column(column: Any, name: str, n_rows: int) -> Any:
    """A column of one number a row, in the type of the store; raises InputError."""
    if column is None:
        return None
    if name == "qid":
        return qid_column(column, n_rows)
    array = np.asarray(column)
    if array.shape != (n_rows,):
        raise InputError(f"{n_rows} rows but {name} of shape {array.shape}; one {name} a row is needed")
    if array.dtype.kind not in "iufb":
        raise InputError(f"{name} has the type {array.dtype}; numbers are needed")
    return array.astype(np.float64)
