"""A matrix in memory as a source of row blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock, tiles
from ooc_svm.data.csr import REAL, check_form, csr_of_sparse, floats_of
from ooc_svm.data.indicator import indicator_sets, is_indicator
from ooc_svm.data.label_sets import LabelSets
from ooc_svm.data.limits import INEXACT, LARGEST_FEATURE_COUNT
from ooc_svm.data.source import NothingAhead, Span
from ooc_svm.errors import InputError, parameter, shown

# Maximum number of elements and of rows of a block.
BLOCK_ELEMENTS = 1 << 20
BLOCK_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class MatrixSpan:
    """A block of a matrix in memory."""

    start: int
    stop: int
    n_nonzeros: int
    nbytes: int


class MatrixSource(NothingAhead):
    """A CSR matrix in memory (scipy sparse or 2-d ndarray) as a source of row blocks.

    Labels, weights (of each row's loss) and qids (group numbers) have one entry a row; labels that are None
    are 0. Labels that are text have names: they are positions in `label_names`. Labels may be an indicator
    matrix, whose columns stand for `label_columns` or for numbers from 0: `label_sets` are the sets of labels
    then. `spans` are the row ranges of the blocks; by default about a million stored values each. `names` are
    those of matrix and weights in messages. With `skip_unlabelled`, rows without a label (NaN, None, empty
    text) are left out; `n_unlabelled` is their number. `may_skip` says whether the caller has a parameter for
    that, which messages may name. InputError if shapes do not match, values are not finite, labels are
    neither numbers nor text, weights are negative, or group numbers are not integers of at least 0.
    """

    label_names: tuple[str, ...] | None
    label_sets: LabelSets | None

    def __init__(
        self,
        matrix: Any,
        labels: Any,
        weights: Any = None,
        spans: Sequence[Span] | None = None,
        qids: Any = None,
        *,
        names: tuple[str, str] = ("matrix", "weights"),
        skip_unlabelled: bool = False,
        may_skip: bool = True,
        label_columns: Sequence[str] | None = None,
    ) -> None:
        matrix_name, weights_name = names
        csr = _checked_csr(matrix, matrix_name)
        n_rows, self.n_unlabelled = csr.shape[0], 0
        has_sets = labels is not None and is_indicator(labels)
        if skip_unlabelled and labels is not None and not has_sets:
            csr, labels, weights, qids = _labelled_rows(csr, labels, (weights_name, weights), ("qid", qids))
            self.n_unlabelled = n_rows - csr.shape[0]
        values = csr.data
        self._labels, self.label_names, self.label_sets = np.zeros(csr.shape[0]), None, None
        if has_sets:
            self._labels, self.label_sets = indicator_sets(labels, csr.shape[0], label_columns)
            self.label_names = self.label_sets.names
        elif labels is not None:
            self._labels, self.label_names = label_column(labels, csr.shape[0], may_skip=may_skip)
        self.has_weight = weights is not None
        self._weights = np.empty(0)
        if self.has_weight:
            self._weights = weight_column(weights_name, weights, csr.shape[0])
        self.has_qid = qids is not None
        self._qids = qid_column(qids, csr.shape[0]) if self.has_qid else np.empty(0, np.int64)
        self.n_rows, self.n_features = int(csr.shape[0]), int(csr.shape[1])
        self.n_nonzeros = int(csr.nnz)
        self._indptr: Int64Array = csr.indptr.astype(np.int64)
        self._indices = csr.indices.astype(np.int32)
        self._values = None if len(values) and (values == 1).all() else values
        self.value_type = "ones" if self._values is None else str(values.dtype)
        self.blocks: Sequence[Span] = self._cut() if spans is None else spans

    @cached_property
    def id(self) -> str:
        """Hash of the content as it is when this is first asked for."""
        digest = hashlib.sha256(f"{self.n_rows} {self.n_features} {self.value_type}".encode())
        if self.label_sets is not None:
            digest.update("\n".join((*self.label_sets.labels, *self.label_sets.names)).encode())
        columns = (self._labels, self._weights, *((self._qids,) if self.has_qid else ()))
        for array in (self._indptr, self._indices, self._values, *columns):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _cut(self) -> list[Span]:
        spans: list[Span] = []
        for start, stop in tiles(self._indptr, BLOCK_ELEMENTS, BLOCK_ROWS):
            nnz = int(self._indptr[stop] - self._indptr[start])
            spans.append(MatrixSpan(start, stop, nnz, 8 * (stop - start) + 12 * nnz))
        return spans

    def block_stored_bytes(self, index: int) -> int:
        """Always 0: the matrix is in memory."""
        return 0

    def new_buffers(self) -> None:
        """Return None: blocks are views of the matrix."""

    def read_block(self, index: int, buffers: Any = None) -> RowBlock:
        """The rows of a block, as views."""
        span = self.blocks[index]
        first, last = int(self._indptr[span.start]), int(self._indptr[span.stop])
        indptr = self._indptr[span.start : span.stop + 1] - first
        values = None if self._values is None else self._values[first:last]
        return RowBlock(span.start, indptr, self._indices[first:last], values)

    def read_labels(self, start: int, stop: int) -> Float64Array:
        """Labels of the rows ``start <= i < stop``."""
        return self._labels[start:stop]

    def read_qids(self, start: int, stop: int) -> Int64Array:
        """Group numbers of the rows ``start <= i < stop``."""
        return self._qids[start:stop]

    def read_weights(self, start: int, stop: int) -> Float64Array:
        """Weights of the rows ``start <= i < stop``."""
        return self._weights[start:stop]


def _checked_csr(matrix: Any, name: str) -> Any:
    """The matrix as valid CSR of float32 or float64 with ascending ids, as compiled functions need it."""
    from scipy import sparse

    try:
        csr = csr_of_sparse(matrix) if sparse.issparse(matrix) else sparse.csr_array(_dense(matrix))
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(
            f"{parameter(name)} is not a valid matrix: {str(error)[:200]}; give rows of real numbers"
        ) from error
    if csr.shape[1] > LARGEST_FEATURE_COUNT:
        raise InputError(
            f"{parameter(name)} has {csr.shape[1]} columns; at most {LARGEST_FEATURE_COUNT} are possible"
        )
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    finite = np.isfinite(csr.data)
    if not finite.all():
        place = int(np.argmin(finite))
        row = int(np.searchsorted(csr.indptr, place, side="right")) - 1
        raise InputError(
            f"{parameter(name)} has values that are not finite: {csr.data[place]} in row {row}, column "
            f"{csr.indices[place]}, from 0; remove or replace them first"
        )
    return csr


def _dense(matrix: Any) -> npt.NDArray[Any]:
    array = _array(matrix)
    if array.dtype == object and hasattr(matrix, "iloc"):
        array = _of_frame(matrix)
    check_form(array)
    floats: npt.NDArray[Any] = floats_of(array)
    return floats


def _of_frame(frame: Any) -> npt.NDArray[Any]:
    """The numbers of a data frame whose columns are of several types, or may lack entries."""
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in REAL:
            raise ValueError(f"its column {shown(name)} is of type {dtype}")
    numbers: npt.NDArray[Any] = frame.to_numpy(np.float64, na_value=np.nan)
    return numbers


def _array(entries: Any) -> npt.NDArray[Any]:
    """Any sequence as an array, of numbers where it has them as objects; TypeError, ValueError for none."""
    if np.ma.is_masked(entries):
        raise ValueError("some entries are masked")
    array = np.asarray(entries)
    if array.dtype == object and all(isinstance(each, (Real, np.bool_)) for each in array.flat):
        array = np.array(array.tolist()).reshape(array.shape)
    return array


def _column(name: str, entries: Any, n_rows: int) -> npt.NDArray[Any]:
    """An array with one entry a row."""
    try:
        array = _array(entries)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(_no_numbers(name, str(error)[:100])) from error
    if array.shape != (n_rows,):
        raise InputError(
            f"{n_rows} rows but {parameter(name)} of shape {array.shape}; one entry a row is needed"
        )
    return array


def _entries(name: str, entries: Any, n_rows: int) -> npt.NDArray[Any]:
    """An array with one real number a row."""
    array = _column(name, entries, n_rows)
    if array.dtype.kind not in REAL and n_rows:
        other = next((each for each in array.tolist() if not isinstance(each, Real)), array[0])
        raise InputError(_no_numbers(name, f"{shown(other)} of type {array.dtype}"))
    return array


def _no_numbers(name: str, found: str) -> str:
    return f"{parameter(name)} are not numbers: {found}; give one number a row"


def _labelled_rows(csr: Any, labels: Any, *columns: tuple[str, Any]) -> tuple[Any, ...]:
    """The rows that have a label, with their labels and their entries in other columns."""
    array = _column("labels", labels, csr.shape[0])
    if array.dtype.kind in "OTU":
        array = _as_objects(labels)
        kept = np.array([not is_missing(each) for each in array], bool)
    else:
        array = _entries("labels", labels, csr.shape[0])
        kept = ~np.isnan(array.astype(np.float64))
    given = [None if own is None else _entries(name, own, csr.shape[0])[kept] for name, own in columns]
    return csr[kept], array[kept], *given


def is_missing(label: Any) -> bool:
    """Whether a label is none: empty text, not a number, or what pandas has in its place."""
    if isinstance(label, str):
        return label == ""
    # Of pandas' own missing value it cannot be said whether it is equal to anything.
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


def label_column(
    labels: Any, n_rows: int, *, may_skip: bool = True
) -> tuple[Float64Array, tuple[str, ...] | None]:
    """Labels, one a row, and their names where they are text, sorted: a label is a position in these.

    `may_skip`: whether the caller has the parameter ``unlabelled``, which a message may name. InputError for
    what is neither numbers nor text.
    """
    array = _column("labels", labels, n_rows)
    # Of a list, NumPy makes text of a number next to text.
    is_text = array.dtype.kind == "U" and isinstance(labels, np.ndarray)
    if not is_text and array.dtype.kind in "OTU" and n_rows:
        array = _as_objects(labels)
        texts = [isinstance(each, str) for each in array]
        is_text = any(texts)
        if is_text and not all(texts):
            row = texts.index(False)
            raise InputError(
                f"{parameter('labels')} are text, but that of row {row}, from 0, is {shown(array[row])}; "
                "give text for each row, or leave such rows out"
            )
    if not is_text:
        return number_column("labels", labels, n_rows, may_skip=may_skip), None
    names, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.float64), tuple(map(str, names))


def _as_objects(entries: Any) -> npt.NDArray[Any]:
    """The items of a sequence as they are."""
    if hasattr(entries, "dtype"):
        return _array(entries).astype(object)
    array = np.empty(len(entries), object)
    array[:] = list(entries)
    return array


def exact_numbers(name: str, given: npt.NDArray[Any], first: int = 0) -> Float64Array:
    """Numbers as float64; InputError, with the ``name`` of the column, for what is no number.

    It is raised as well for integers that float64 does not tell apart. ``first``: place of the first of these
    numbers in the column.
    """
    if given.dtype.kind not in REAL and len(given):
        raise InputError(f"{name} must be numbers or text, not of the type {given.dtype}")
    column = given.astype(np.float64)
    if given.dtype.kind in "iu" and len(given) and float(np.abs(column).max()) >= INEXACT:
        row = int(np.argmax(np.abs(column)))
        raise InputError(
            f"{name} has an integer of {INEXACT:,} or more, {given[row]} in place {first + row}, from 0, "
            "beyond which float64 does not tell integers apart; give classes as text, values as floats"
        )
    return column


def number_column(name: str, entries: Any, n_rows: int, *, may_skip: bool = False) -> Float64Array:
    """Finite numbers, one a row; raises InputError. `may_skip`: see `label_column`."""
    column = exact_numbers(parameter(name), _entries(name, entries, n_rows))
    finite = np.isfinite(column)
    if not finite.all():
        row = int(np.argmin(finite))
        if name == "labels" and np.isnan(column[row]):
            way = f" ({parameter('unlabelled', 'skip')})" if may_skip else ""
            raise InputError(
                f"{np.count_nonzero(np.isnan(column))} of {n_rows} {parameter(name)} are missing (NaN), the "
                f"first in row {row}, from 0; leave such rows out{way}"
            )
        raise InputError(
            f"{parameter(name)} have values that are not finite: {column[row]} in row {row}, from 0; "
            "remove those rows or mend the values"
        )
    return column


def weight_column(name: str, weights: Any, n_rows: int) -> Float64Array:
    """Weights of rows, not negative; raises InputError."""
    column = number_column(name, weights, n_rows)
    if column.min(initial=0.0) < 0.0:
        row = int(np.argmin(column))
        raise InputError(
            f"row {row} has the negative weight {column[row]} in {parameter(name)}; weights are 0 or more"
        )
    return column


def qid_column(qids: Any, n_rows: int) -> Int64Array:
    """Group numbers, one a row, as int64; raises InputError."""
    array = _entries("qid", qids, n_rows)
    if array.dtype.kind not in "iu" and n_rows:
        raise InputError(
            f"{parameter('qid')} has the type {array.dtype}, as {array[0]}; integers from 0 on are needed"
        )
    if n_rows and not 0 <= int(array.min()) <= int(array.max()) < 2**63:
        row = int(np.argmin(array) if array.min() < 0 else np.argmax(array))
        raise InputError(
            f"row {row} has {array[row]} in {parameter('qid')}; integers from 0 to 2^63 - 1 are needed"
        )
    return array.astype(np.int64)
