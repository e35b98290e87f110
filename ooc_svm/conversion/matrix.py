"""Matrices in memory as conversions read them: without explicit zeros, and counted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import plan_conversion
from ooc_svm.conversion.spill import WeightedRows
from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.data.matrix import MatrixSource, qid_column
from ooc_svm.errors import InputError
from ooc_svm.text.inputs import InputMetadata
from ooc_svm.text.reader import TextCounts


class LabelledMatrix(NamedTuple):
    """A matrix with its columns of one number a row: arguments of `ooc_svm.convert_matrix`."""

    matrix: Any
    labels: Any
    qid: Any
    weight: Any


class MatrixRows:
    """Rows of a matrix; an `ooc_svm.conversion.formats.InputRows`."""

    def __init__(
        self, data: LabelledMatrix, options: ConvertOptions, scratch: Path, progress: Callable[[int], None]
    ) -> None:
        self.plan = plan_conversion(options)
        self.reject_file: Path | None = None
        self._source = source = MatrixSource(data.matrix, data.labels)
        if options.features is not None and options.features < source.n_features:
            raise InputError(
                f"the matrix has {source.n_features} columns, but features is {options.features}: "
                "give as many or more, or leave it out"
            )
        self._qids = None if data.qid is None else qid_column(data.qid, source.n_rows)
        self._weights = None if data.weight is None else _weight_column(data.weight, source.n_rows)
        self._progress = progress
        self.counts = TextCounts(n_features=source.n_features)
        self.total_bytes: int | None = sum(span.nbytes for span in source.blocks)
        self.inputs = [InputMetadata("matrix", self.total_bytes, None, None)]

    def blocks(self) -> Generator[WeightedRows, None, None]:
        """The rows in order; the bytes of all blocks yielded so far are reported as progress."""
        done = 0
        for index, span in enumerate(self._source.blocks):
            block = self._source.read_block(index)
            rows = _without_zeros(block)
            own = slice(span.start, span.stop)
            labels = self._source.read_labels(span.start, span.stop)
            self.counts.rows += rows.n_rows
            self.counts.nonzeros += len(rows.indices)
            self.counts.explicit_zeros += len(block.indices) - len(rows.indices)
            qids = None if self._qids is None else self._qids[own]
            yield LabelledRows(rows, labels, qids), None if self._weights is None else self._weights[own]
            done += span.nbytes
            self._progress(done)


def _without_zeros(block: RowBlock) -> RowBlock:
    if block.values is None or block.values.all():
        return block
    stored = block.values != 0
    before = np.zeros(len(stored) + 1, np.int64)
    np.cumsum(stored, out=before[1:])
    return RowBlock(block.start, before[block.indptr], block.indices[stored], block.values[stored])


def _weight_column(column: Any, n_rows: int) -> Any:
    array = np.asarray(column)
    if array.shape != (n_rows,):
        raise InputError(f"{n_rows} rows but weight of shape {array.shape}; one weight a row is needed")
    if array.dtype.kind not in "iufb":
        raise InputError(f"weight has the type {array.dtype}; numbers are needed")
    return array.astype(np.float64)
