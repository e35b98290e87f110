"""Squared norms of all rows of a CSR matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.rows import row_squares


def squares_of(indptr: Any, indices: Any, values: Any, scale2: Any) -> npt.NDArray[np.float64]:
    """``x.x`` of each row, shape (n_rows,); the arguments are those of `ooc_svm.ops.rows.row_squares`."""
    squares = np.empty(len(indptr) - 1)
    row_squares(indptr, indices, values, scale2, np.arange(len(squares), dtype=np.uint64), squares)
    return squares
