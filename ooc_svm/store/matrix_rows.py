"""A matrix in memory as rows that a writer of stores takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ooc_svm.data.blocks import Float64Array, LabelledRows
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.data.matrix import MatrixSource, MatrixSpan
from ooc_svm.data.zeros import without_zeros
from ooc_svm.errors import InputError, UsageError, parameter


class RowsOfMatrix(NamedTuple):
    """Rows with their weights, the number of columns, and the names of these where the matrix has names."""

    labelled: LabelledRows
    weights: Float64Array | None
    n_columns: int
    names: FeatureNames | None


def rows_of_matrix(matrix: Any, labels: Any, qid: Any, weight: Any, dtype: str) -> RowsOfMatrix:
    """The rows of a matrix without zeros, duplicates summed; values too small for ``dtype`` are zeros.

    Labels are 0 where there are none. Values beyond the range of ``dtype`` stay as they are, for the store to
    refuse them. InputError as `MatrixSource` raises it, and for labels that are text or an indicator matrix.
    """
    source = MatrixSource(matrix, labels, weight, qids=qid, names=("matrix", "weight"), may_skip=False)
    if source.label_sets is not None:
        raise InputError(
            f"{parameter('labels')} are an indicator matrix; give one number a row: with "
            f"{parameter('label_sets', True)} the place of its set among {parameter('label_names')}"
        )
    if source.label_names is not None:
        raise InputError(
            f"{parameter('labels')} are text; give one number a row: with {parameter('named_labels', True)} "
            f"the place of its name among {parameter('label_names')}"
        )
    n_rows = source.n_rows
    source.blocks = [MatrixSpan(0, n_rows, source.n_nonzeros, 0)]
    block = source.read_block(0)
    if block.values is not None:
        own = without_zeros(0, block.indptr, block.indices, block.values, dtype)
        block = own if own.values is None or np.isfinite(own.values).all() else block
    qids = source.read_qids(0, n_rows) if source.has_qid else None
    weights = source.read_weights(0, n_rows) if source.has_weight else None
    labelled = LabelledRows(block, source.read_labels(0, n_rows), qids)
    return RowsOfMatrix(labelled, weights, source.n_features, FeatureNames.of_frame(matrix))


def refuse_own(**given: Any) -> None:
    """Refuse columns that were given with `LabelledRows`, which have them; raises UsageError."""
    for name, column in given.items():
        if column is not None:
            raise UsageError(f"LabelledRows have labels and qids of their own; leave {parameter(name)} out")
