"""Small stores for the tests: random CSR rows, written in batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.store import Store, StoreWriter

SMALL = {"chunk_elements": 7, "chunk_rows": 5, "block_chunks": 2, "block_rows": 6}


def random_rows(seed, n_rows=30, n_features=20, density=0.3, ones=False, dtype=np.float32):
    """A CSR matrix with empty rows, and labels -1 or 1."""
    rng = np.random.default_rng(seed)
    matrix = sp.random(n_rows, n_features, density, format="csr", random_state=rng, dtype=dtype)
    matrix.sort_indices()
    if ones:
        matrix.data[:] = 1
    return matrix, rng.choice([-1.0, 1.0], n_rows)


def from_lengths(lengths, n_features, ones=False):
    """A matrix whose rows have the given numbers of elements."""
    rng = np.random.default_rng(len(lengths))
    indices = [np.sort(rng.choice(n_features, length, replace=False)) for length in lengths]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    data = np.ones(indptr[-1], np.float32) if ones else rng.random(indptr[-1], np.float32) + 0.5
    return sp.csr_matrix(
        (data, np.concatenate([*indices, []]).astype(np.int32), indptr), (len(lengths), n_features)
    )


def labelled(matrix, labels, start=0, stop=None, qids=None):
    """Rows of a matrix as a writer takes them."""
    part = matrix[start:stop]
    rows = RowBlock(start, part.indptr.astype(np.int64), part.indices.astype(np.int32), part.data)
    return LabelledRows(rows, labels[start:stop], None if qids is None else qids[start:stop])


def in_batches(matrix, labels, qids=None, batches=(11,), weights=None):
    """All rows as a writer takes them, with their weights, in batches of the given lengths, over and over."""
    start, turn = 0, 0
    while start < matrix.shape[0]:
        stop = start + batches[turn % len(batches)]
        yield labelled(matrix, labels, start, stop, qids), None if weights is None else weights[start:stop]
        start, turn = stop, turn + 1


def write_store(path: Path, matrix, labels, qids=None, batches=(11,), weights=None, **options) -> None:
    """Write a store in batches of the given lengths, over and over."""
    options = {"n_features": matrix.shape[1]} | SMALL | options
    with StoreWriter(path, **options) as writer:
        for rows, weight in in_batches(matrix, labels, qids, batches, weights):
            writer.append(rows, weight=weight)
        writer.commit()


def read_all(store: Store) -> sp.csr_matrix:
    """The matrix of a store, read block by block into the same buffers."""
    buffers = store.new_buffers()
    parts = [sp.csr_matrix((0, store.n_features))]
    row = 0
    for span in store.blocks:
        block = store.read_block(span.index, buffers)
        assert (block.start, block.stop) == (row, span.stop) == (span.start, span.stop)
        assert len(block.indices) == span.n_nonzeros
        assert block.nbytes == span.nbytes
        row = span.stop
        values = np.ones(len(block.indices)) if block.values is None else block.values
        content = (values.copy(), block.indices.copy(), block.indptr.copy())
        parts.append(sp.csr_matrix(content, shape=(block.n_rows, store.n_features)))
    assert row == store.n_rows
    return sp.vstack(parts, format="csr")


def assert_same_block(block: RowBlock, other: RowBlock) -> None:
    """The same rows, in arrays of the same types."""
    assert block.start == other.start
    for array, wanted in zip(block.arrays, other.arrays, strict=True):
        np.testing.assert_array_equal(array, wanted)
        assert getattr(array, "dtype", None) == getattr(wanted, "dtype", None)


def assert_same(matrix: sp.csr_matrix, expected: sp.csr_matrix, *, drop_zeros: bool = False) -> None:
    """The same elements in the same order, not only the same matrix; but for zeros if they are dropped."""
    if drop_zeros:
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    assert matrix.shape == expected.shape
    np.testing.assert_array_equal(matrix.indptr, expected.indptr)
    np.testing.assert_array_equal(matrix.indices, expected.indices)
    np.testing.assert_array_equal(matrix.data, expected.data)
