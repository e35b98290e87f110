"""Blocks of consecutive rows in CSR form: what readers make and every computation takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive rows of the data matrix.

    Attributes
    ----------
    start : int
        Number of the first row in the whole data.
    indptr : ndarray of int64, shape (n_rows + 1,)
        Row pointers, from 0.
    indices : ndarray of int32, shape (nnz,)
        Column ids from 0, strictly increasing in each row.
    values : ndarray of float32 or float64, shape (nnz,), or None
        None says that every stored value is 1.
    """

    start: int
    indptr: Int64Array
    indices: Int32Array
    values: Values | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def stop(self) -> int:
        """Number of the row after the last one."""
        return self.start + self.n_rows

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.indptr.nbytes + self.indices.nbytes + (0 if self.values is None else self.values.nbytes)


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """A block of rows with what stands beside them.

    Attributes
    ----------
    rows : RowBlock
    labels : ndarray of float64, shape (n_rows,)
    qids : ndarray of int64, shape (n_rows,), or None
        Group numbers, where the input has them.
    """

    rows: RowBlock
    labels: Float64Array
    qids: Int64Array | None = None
