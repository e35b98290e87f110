"""Values as a store has them: in its type, and without those that are 0 in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array, RowBlock


def cast_values(values: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Values in the type of the store; those beyond its range become infinite, those too small 0."""
    with np.errstate(over="ignore"):  # what overflows is found by the rules of rows
        return values.astype(dtype, copy=False)


def without_zeros(
    start: int, indptr: Int64Array, ids: npt.NDArray[Any], values: npt.NDArray[Any], dtype: npt.DTypeLike
) -> RowBlock:
    """CSR rows with values in the type of the store, without those that are 0 in this type.

    A value such as 1e-50 is 0 in float32: it is dropped as well, as it is from text.
    """
    cast = cast_values(values, dtype)
    kept = cast != 0
    if not kept.all():
        before = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=before[1:])
        indptr, ids, cast = before[indptr], ids[kept], cast[kept]
    return RowBlock(start, indptr, ids.astype(np.int32, copy=False), cast)
