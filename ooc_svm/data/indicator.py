"""Sets of labels as an indicator matrix: 1 where a row has a label, a column for each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.csr import check_form, csr_of_sparse, floats_of
from ooc_svm.data.label_sets import EMPTY_SET, MAX_LABELS, MAX_SETS, SEPARATOR, LabelSets
from ooc_svm.errors import InputError, parameter


def is_indicator(labels: Any) -> bool:
    """Whether labels are a matrix: sparse, or dense with at least two columns."""
    if hasattr(labels, "tocsr"):
        return True
    if isinstance(labels, list | tuple):
        # Each row is a sequence; text is none.
        first = labels[0] if labels else None
        return (
            isinstance(first, list | tuple | np.ndarray) and getattr(first, "ndim", 1) == 1 and len(first) > 1
        )
    shape = tuple(getattr(labels, "shape", ()))
    return len(shape) == 2 and shape[1] > 1


def indicator_sets(
    indicator: Any, n_rows: int, columns: Sequence[str] | None = None
) -> tuple[Float64Array, LabelSets]:
    """The number of the set of each row, and the sets, of all labels: numbered as they appear.

    Parameters
    ----------
    indicator : array_like or sparse matrix of shape (n_rows, n_labels)
        0 and 1.
    n_rows : int
    columns : sequence of str, optional
        The labels of the columns, in the order of sets; by default their numbers, from 0.

    Returns
    -------
    numbers : ndarray of float64, shape (n_rows,)
    sets : LabelSets

    Raises
    ------
    InputError
        The matrix has another shape or other entries, or there are too many labels or sets.
    """
    csr = _checked(indicator)
    n_labels = csr.shape[1] if columns is None else len(columns)
    if csr.shape != (n_rows, n_labels):
        raise InputError(
            f"{parameter('labels')} are a matrix of {csr.shape[0]} rows and {csr.shape[1]} columns; here it "
            f"needs {n_rows} rows and {n_labels} columns, one for each label"
        )
    if n_labels > MAX_LABELS:
        raise InputError(f"{parameter('labels')} have {n_labels} columns; at most {MAX_LABELS} are possible")
    names = tuple(map(str, range(n_labels))) if columns is None else tuple(columns)
    numbers: dict[bytes, int] = {}
    sets, indptr, indices = np.empty(n_rows), csr.indptr.tolist(), csr.indices.astype(np.int32)
    for row in range(n_rows):
        own = indices[indptr[row] : indptr[row + 1]].tobytes()
        sets[row] = numbers.setdefault(own, len(numbers))
    if len(numbers) > MAX_SETS:
        raise InputError(
            f"{parameter('labels')} have {len(numbers)} different sets; at most {MAX_SETS} are possible: "
            "leave out labels of few rows"
        )
    members = (np.frombuffer(own, np.int32).tolist() for own in numbers)
    texts = [SEPARATOR.join(names[k] for k in own) or EMPTY_SET for own in members]
    return sets, LabelSets.of(texts, "the indicator matrix", names)


def _checked(indicator: Any) -> Any:
    """The matrix as CSR of its ones, with ascending ids."""
    from scipy import sparse

    try:
        is_sparse = sparse.issparse(indicator)
        # The caller's own arrays stay as they are.
        csr: Any = csr_of_sparse(indicator).copy() if is_sparse else sparse.csr_array(_numbers(indicator))
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(
            f"{parameter('labels')} are not a valid matrix: {str(error)[:100]}; give 0 and 1, a column for "
            "each label"
        ) from error
    csr.sum_duplicates()
    csr.eliminate_zeros()
    wrong = csr.data != 1
    if wrong.any():
        place = int(np.argmax(wrong))
        row = int(np.searchsorted(csr.indptr, place, side="right")) - 1
        raise InputError(
            f"{parameter('labels')} are a matrix, which says by 0 and 1 what labels a row has, and has "
            f"{csr.data[place]:g} in row {row}, column {csr.indices[place]}, from 0; give one label a row, "
            "or 0 and 1 alone"
        )
    return csr


def _numbers(entries: Any) -> Any:
    """A dense matrix of numbers."""
    array = np.asarray(entries)
    check_form(array)
    return floats_of(array)
