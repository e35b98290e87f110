"""Rows that are to be put in another order."""

from __future__ import annotations

import itertools

import numpy as np

from ooc_svm.data.blocks import LabelledRows, RowBlock


def make_rows(seed, n_rows, ones=False):
    """Rows of 0 to 9 elements; the label is the number of the row."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 10, n_rows)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    indices = np.concatenate([np.sort(rng.choice(50, length, replace=False)) for length in lengths])
    values = None if ones else rng.random(len(indices), np.float32) + 1
    return indptr.astype(np.int64), indices.astype(np.int32), values


def blocks_of(indptr, indices, values, cuts):
    for start, stop in itertools.pairwise(cuts):
        inside = slice(indptr[start], indptr[stop])
        rows = RowBlock(
            start,
            indptr[start : stop + 1] - indptr[start],
            indices[inside],
            None if values is None else values[inside],
        )
        yield LabelledRows(rows, np.arange(start, stop, dtype=float), np.arange(start, stop) * 3)
