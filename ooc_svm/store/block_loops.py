"""Where blocks of rows end: the loop over the row pointers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

Int64Array = npt.NDArray[np.int64]


@compiled
def cut(
    starts: Int64Array, chunk_elements: int, limits: Int64Array, state: Int64Array, cuts: Int64Array
) -> int:
    """Write the rows before which a block ends to ``cuts``; return their number.

    ``limits``: chunks in a block, rows of a full block, rows of the largest block. ``state``: rows in the
    open block, chunk in which it starts, chunk in which the row before starts; updated.
    """
    rows, first, last = state[0], state[1], state[2]
    count = 0
    for i in range(len(starts)):
        chunk = starts[i] // chunk_elements
        full = chunk > last and (chunk - first >= limits[0] or rows >= limits[1])
        if full or rows >= limits[2]:
            cuts[count] = i
            count += 1
            rows = 0
            first = chunk
        rows += 1
        last = chunk
    state[0], state[1], state[2] = rows, first, last
    return count
