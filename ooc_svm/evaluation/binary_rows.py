"""Scored rows of two sides, positive and negative, whatever their labels are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, row_slices
from ooc_svm.data.classes import label_text
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.evaluation.label_codes import LabelCodes
from ooc_svm.evaluation.workspace import Workspace
from ooc_svm.prediction.scores import ScoredBlock, ScoredRows
from ooc_svm.rowvectors.vector import RowVector

# Bytes of a row (score and qid) that waits until both labels are known.
WAITING_BYTES = 16


class SidedRows(NamedTuple):
    """Scores, signs (int8, 1 or -1) and qids of rows in order.

    The arrays are valid until the next ones are taken.
    """

    scores: Float64Array
    signs: npt.NDArray[np.int8]
    qids: Int64Array | None


def labels_of(block: ScoredBlock) -> Float64Array:
    """Labels of a block; UsageError where the data have none."""
    if block.labels is None:
        raise UsageError(
            "the rows to evaluate have no labels; give labels with the matrix, or of AnnData name the column"
        )
    return block.labels


def rows_of_ranks(stream: ScoredRows, workspace: Workspace) -> Iterator[SidedRows]:
    """Rows of the higher rank are positive: those of the labels named for training, or of the larger label.

    Raises InputError if no labels are named, and there are not exactly two.
    """
    if not stream.decision.sides:
        yield from _rows_of_larger_label(stream, workspace)
        return
    codes = LabelCodes(list(stream.decision.sides), stream.rows.name, stream.rows.label_names)
    for block in stream:
        is_positive = codes.codes(labels_of(block)) >= 0
        yield SidedRows(block.scores[:, 0], _signs(is_positive), block.qids)


def _rows_of_larger_label(stream: ScoredRows, workspace: Workspace) -> Iterator[SidedRows]:
    """Rows of the larger of two labels are positive; rows wait until the second label occurs."""
    source = stream.rows.name
    known: list[float] = []
    scores, qids = workspace.vector(np.float64), workspace.vector(np.int64)
    for block in stream:
        labels = labels_of(block)
        before = known
        known = sorted({*known, *np.unique(labels).tolist()})
        if len(known) > 2:
            raise InputError(
                f"{source}: rows of two labels are to be compared, and there are {label_text(known[0])}, "
                f"{label_text(known[1])}, {label_text(known[2])}; leave the others out, or train with "
                f"the labels of the higher rank as {parameter('positive')}"
            )
        if len(known) < 2:
            scores.append(block.scores[:, 0])
            if block.qids is not None:
                qids.append(block.qids)
            continue
        if len(before) == 1:
            yield from _waiting_rows(scores, qids, before[0] == known[1])
            workspace.release(scores, qids)
        yield SidedRows(block.scores[:, 0], _signs(labels == known[1]), block.qids)
    if len(known) == 1:
        raise InputError(
            f"{source}: rows of two labels are to be compared, and all have the label "
            f"{label_text(known[0])}; evaluate on rows of both"
        )


def _waiting_rows(scores: RowVector, qids: RowVector, positive: bool) -> Iterator[SidedRows]:
    """The rows of the first label."""
    for start, stop in row_slices(scores.n_rows):
        numbers = qids.read(start, stop) if qids.n_rows else None
        yield SidedRows(scores.read(start, stop), _signs(np.full(stop - start, positive)), numbers)


def _signs(positive: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    return np.where(positive, np.int8(1), np.int8(-1))
