"""A matrix in memory as a source of row blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock, tiles
from ooc_svm.data.source import Span
from ooc_svm.errors import InputError

# Maximum number of elements and of rows of a block.
BLOCK_ELEMENTS = 1 << 20
BLOCK_ROWS = 1 << 17

# Maximum number of features: column ids are int32.
LARGEST_FEATURE_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MatrixSpan:
    """A block of a matrix in memory."""

    start: int
    stop: int
    n_nonzeros: int
    nbytes: int


class MatrixSource:
    """A CSR matrix in memory (scipy sparse or 2-d ndarray) as a source of row blocks.

    Labels, weights (of each row's loss) and qids (group numbers) have one entry a row. `spans` are the row
    ranges of the blocks; by default about a million stored values each. InputError if shapes do not match,
    values are not finite, labels are not numbers or group numbers are not integers.
    """

    def __init__(
        self,
        matrix: Any,
        labels: Any,
        weights: Any = None,
        spans: Sequence[Span] | None = None,
        qids: Any = None,
    ) -> None:
        csr = _checked_csr(matrix)
        values = csr.data if csr.data.dtype in (np.float32, np.float64) else csr.data.astype(np.float64)
        if not np.isfinite(values).all():
            raise InputError("the matrix has values that are not finite; remove or replace them first")
        self._labels = _column("labels", labels, csr.shape[0])
        self.has_weight = weights is not None
        self._weights = _column("weights", weights, csr.shape[0]) if self.has_weight else np.empty(0)
        self.has_qid = qids is not None
        self._qids = qid_column(qids, csr.shape[0]) if self.has_qid else np.empty(0, np.int64)
        self.n_rows, self.n_features = int(csr.shape[0]), int(csr.shape[1])
        self.n_nonzeros = int(csr.nnz)
        self._indptr: Int64Array = csr.indptr.astype(np.int64)
        self._indices = csr.indices.astype(np.int32)
        self._values = None if len(values) and (values == 1).all() else values
        self.value_type = "ones" if self._values is None else str(values.dtype)
        self.blocks: Sequence[Span] = self._cut() if spans is None else spans

    @property
    def id(self) -> str:
        """Hash of the content."""
        digest = hashlib.sha256(f"{self.n_rows} {self.n_features} {self.value_type}".encode())
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


def _checked_csr(matrix: Any) -> Any:
    """The matrix as valid CSR with ascending ids, as compiled functions need it."""
    from scipy import sparse

    try:
        csr = sparse.csr_array(matrix)
        csr.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"not a valid matrix: {str(error)[:200]}; give rows of numbers") from error
    if csr.ndim != 2 or csr.data.dtype.kind not in "biuf":
        raise InputError(
            f"a matrix of shape {csr.shape} and type {csr.data.dtype} cannot be used; "
            "two dimensions and real numbers are needed"
        )
    if csr.shape[1] > LARGEST_FEATURE_COUNT:
        raise InputError(f"{csr.shape[1]} features; at most {LARGEST_FEATURE_COUNT} are possible")
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _column(name: str, entries: Any, n_rows: int) -> Float64Array:
    try:
        column = np.asarray(entries, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the {name} are not numbers: {str(error)[:100]}; give one number a row") from error
    if column.shape != (n_rows,):
        raise InputError(f"{n_rows} rows but {name} of shape {column.shape}; one entry a row is needed")
    if not np.isfinite(column).all():
        raise InputError(f"the {name} have values that are not finite; remove those rows or mend the values")
    return column


def qid_column(qids: Any, n_rows: int) -> Int64Array:
    """Group numbers, one a row, as int64; raises InputError."""
    array = np.asarray(qids)
    if array.shape != (n_rows,):
        raise InputError(f"{n_rows} rows but qid of shape {array.shape}; one qid a row is needed")
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and array.max(initial=0) >= 2**63):
        raise InputError(f"qid has the type {array.dtype}; whole numbers below 2^63 are needed")
    return array.astype(np.int64)
