"""Chosen rows of a block, in any order."""

from __future__ import annotations

import numpy as np

from ooc_svm.data.blocks import Int64Array, RowBlock
from ooc_svm.ops.rows import gather_rows


def take_rows(block: RowBlock, places: Int64Array) -> RowBlock:
    """Copies of some rows of a block, in this order."""
    lengths = np.diff(block.indptr)[places]
    indptr = np.zeros(len(places) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    indices = np.empty(indptr[-1], block.indices.dtype)
    values = None if block.values is None else np.empty(indptr[-1], block.values.dtype)
    taken = RowBlock(0, indptr, indices, values)
    gather_rows(*block.arrays, places.view(np.uint64), *taken.arrays)
    return taken
