"""Memory for rows in pages of the usual size.

NumPy asks for huge pages. They serve what is looked up in no order, as weights are; rows are read from one
end to the other. Where the host of a virtual machine takes back what is free, to touch a huge page takes four
times as long as its memory in small pages, which made a training take up to a third longer.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

# Less than this NumPy leaves as it is.
_LEAST_BYTES = 4 << 20


def row_room(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Make an array like `numpy.empty` does; what is not written to takes no memory.

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
