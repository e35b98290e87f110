"""Memory for rows, for which no huge pages are asked.

NumPy asks for them. They serve what is looked up in no order, as weights are; the elements of a row lie side
by side. Where the host of a virtual machine takes back what is free, to touch a huge page takes four times as
long as its memory in small pages, which made a training take up to a third longer.

This memory goes back to the system when it is free: what is needed again and again is from `numpy.empty`, see
`ooc_svm.system.malloc`.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

# Less than this NumPy leaves as it is.
_LEAST_BYTES = 4 << 20


def row_room(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Make an array of n elements; what is not written to takes no memory.

    Raises
    ------
    MemoryError
        The system has none.
    """
    n_bytes = n * np.dtype(dtype).itemsize
    if n_bytes < _LEAST_BYTES:
        return np.empty(n, dtype)
    try:
        return np.frombuffer(mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype)
    except OSError as error:
        raise MemoryError(f"no memory for an array of {n_bytes:,} bytes") from error


def fitted(array: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """The first n elements of an array, which is used no more: a copy if they are few of it."""
    if 4 * n >= 3 * len(array):
        return array[:n]
    shorter = row_room(n, array.dtype)
    shorter[:] = array[:n]
    return shorter
