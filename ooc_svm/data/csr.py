"""Sparse matrices of callers as CSR, checked before compiled functions use them."""

from __future__ import annotations

from typing import Any

import numpy as np

REAL = "biuf"
"""Kinds of the types of real numbers: bool, integers, floats."""


def csr_of_sparse(matrix: Any) -> Any:
    """A sparse matrix of any format as CSR; its ids are checked before compiled functions use them."""
    from scipy import sparse

    check_form(matrix)
    checked = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}.get(matrix.format)
    if checked is not None:
        matrix = checked(matrix)
        matrix.check_format(full_check=True)
    elif matrix.format == "coo":
        for ids, size in zip((matrix.row, matrix.col), matrix.shape, strict=True):
            if ids.shape != matrix.data.shape or (len(ids) and not 0 <= ids.min() <= ids.max() < size):
                raise ValueError("its ids are not those of its shape")
    csr = sparse.csr_array(floats_of(matrix))
    if matrix.format != "csr":
        csr.check_format(full_check=True)
    return csr


def check_form(matrix: Any) -> None:
    """Raise ValueError unless there are two dimensions and real numbers."""
    if len(matrix.shape) != 2:
        raise ValueError(f"its shape is {matrix.shape}, not of two dimensions")
    if matrix.dtype.kind not in REAL:
        raise ValueError(f"its type is {matrix.dtype}")


def floats_of(array: Any) -> Any:
    """An array of float32 or float64: sums of duplicates do not overflow as those of integers do."""
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
