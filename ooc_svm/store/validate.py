"""The rules every block of rows must keep before any other compiled function sees it.

Numba does not test bounds: a column id outside the weights would be written to whatever lies there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int32Array, Int64Array, RowBlock, Values
from ooc_svm.errors import InputError

Array = npt.NDArray[Any]

_REASONS = {
    1: "its row pointers decrease or leave the block",
    2: "its column ids are not strictly increasing",
    3: "its column ids are outside 0 .. n_features - 1",
    4: "it has a value that is not finite",
}

POINTERS, UNSORTED, OUTSIDE, NOT_FINITE = _REASONS


class RuleError(Exception):
    """The first row of a block that breaks a rule: its number inside the block, and that of the element.

    ``reason`` is one of `POINTERS`, `UNSORTED`, `OUTSIDE`, `NOT_FINITE`; ``position`` is -1 for `POINTERS`.
    """

    def __init__(self, row: int, reason: int, position: int) -> None:
        super().__init__(_REASONS[reason])
        self.row, self.reason, self.position = row, reason, position


def check_rows(indptr: Int64Array, indices: Int32Array, values: Values | None, n_features: int) -> None:
    """Check CSR rows, with row pointers from 0, by the rules; takes about 0.4 ns an element.

    Raises RuleError for the first row that breaks a rule. Column ids must be below ``n_features`` (they are
    compared as unsigned integers).
    """
    from ooc_svm.store.validate_loops import check_ids, check_pointers, first_offence, not_finite

    row = int(check_pointers(indptr, len(indices)))
    if row >= 0 or (values is not None and len(values) != len(indices)):
        raise RuleError(max(row, 0), POINTERS, -1)
    ids: Array = indices.view(np.uint32)
    pointers = indptr.view(np.uint64)
    limit = np.uint32(n_features)
    if check_ids(pointers, ids, limit) and (values is None or not not_finite(values)):
        return
    row, reason, position = first_offence(pointers, ids, values, limit)
    raise RuleError(int(row), int(reason), int(position))


def check_sorted(indptr: Int64Array, indices: Int32Array, values: Values | None, n_features: int) -> None:
    """`check_rows` of rows of other writers: where a row is not sorted, all are sorted first, in place."""
    try:
        check_rows(indptr, indices, values, n_features)
    except RuleError as offence:
        if offence.reason != UNSORTED:
            raise
        sort_rows(indptr, indices, values)
        check_rows(indptr, indices, values, n_features)


def refusal(path: Any, block: RowBlock, values: Values, offence: RuleError) -> InputError:
    """The error for rows of another writer that are not damaged; they were sorted if that was needed."""
    column = f"column {block.indices[offence.position]}, from 0"
    what = f"the value {values[offence.position]} in {column}, not finite; remove or replace it first"
    if offence.reason == UNSORTED:
        what = f"{column}, twice; call sum_duplicates() of the matrix first"
    return InputError(f"row {block.start + offence.row}, from 0, of {path} has {what}")


def sort_rows(indptr: Int64Array, indices: Int32Array, values: Values | None) -> None:
    """Sort the elements of every row by column id, in place."""
    from ooc_svm.store import validate_loops

    validate_loops.sort_rows(indptr, indices, values)
