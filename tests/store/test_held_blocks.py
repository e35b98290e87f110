"""Blocks that are held are those that are read, however rows come in and whatever fits."""

from __future__ import annotations

import os
import weakref

import numpy as np
import pytest
from helpers.store_data import SMALL, assert_same_block, from_lengths, in_batches, random_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.store import held_blocks, open_store
from ooc_svm.store.held_store import HeldRows

EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(held_blocks, "_USUAL_ELEMENTS", 3)  # arrays grow


def write(path, matrix, batches, most_bytes, **options):
    """Write a store; the blocks that are held, and those that are read."""
    options |= {"n_features": matrix.shape[1], "overwrite": True}
    with HeldRows(path, most_bytes=most_bytes, write_always=True, **options) as rows:
        for batch in in_batches(matrix, np.zeros(matrix.shape[0]), batches=batches):
            rows.append(*batch)
        rows.commit()
    store, made = open_store(path), rows.store()
    held = [span.index for span in made.blocks if made.block_stored_bytes(span.index) == 0]
    assert held == list(range(len(held)))
    read = [store.read_block(span.index) for span in store.blocks]
    return store, [made.read_block(index) for index in held], read


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=30),
    batches=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    ones=st.integers(0, 30),
    chunk=st.integers(1, 20),
    block_rows=st.integers(1, 9),
    dtype=st.sampled_from(["float32", "float64"]),
    most_bytes=st.one_of(st.just(EVERYTHING), st.integers(0, 4000)),
)
def test_they_are_the_blocks_that_are_read(
    tmp_path, lengths, batches, ones, chunk, block_rows, dtype, most_bytes
):
    matrix = from_lengths(lengths, 40).astype(dtype)
    matrix.data[: matrix.indptr[min(ones, len(lengths))]] = (
        1  # what comes first has no values, or nothing has
    )
    sizes = {"chunk_elements": chunk, "chunk_rows": 5, "block_chunks": 2, "block_rows": block_rows}
    _, blocks, read = write(tmp_path / "s", matrix, batches, most_bytes, dtype=dtype, **sizes)
    assert len(blocks) <= len(read)
    assert len(blocks) == len(read) or most_bytes < EVERYTHING
    assert sum(block.nbytes - 8 for block in blocks) <= most_bytes
    for block, other in zip(blocks, read, strict=False):
        assert_same_block(block, other)
        assert fills(block.indices)
        assert block.values is None or fills(block.values)


def fills(array):
    """Whether there is little unused room behind the elements."""
    room = len(array) if array.base is None else len(array.base)
    return 4 * len(array) >= 3 * room


def test_a_store_gives_those_that_it_holds_and_reads_the_others(tmp_path):
    matrix, _ = random_rows(0, 40)
    store, blocks, read = write(tmp_path / "s", matrix, (11,), EVERYTHING, **SMALL)
    assert len(blocks) == len(read) > 6
    store.hold(blocks[:5])
    store.hold_only({1, 3, 6})
    before = store.bytes_read
    for number in (1, 3):
        block = store.read_block(number, store.new_buffers())
        assert block is blocks[number]
        assert store.block_stored_bytes(number) == 0
    assert store.bytes_read == before
    gone = [weakref.ref(block.indices) for block in blocks]
    del blocks, block
    assert [number for number, array in enumerate(gone) if array() is not None] == [1, 3]
    for number in (0, 2, 4, 5, 6):
        assert_same_block(store.read_block(number), read[number])
        assert store.block_stored_bytes(number) > 0
    assert store.bytes_read > before


def test_blocks_of_another_store_are_not_held(tmp_path):
    matrix, _ = random_rows(0, 40)
    store, _, _ = write(tmp_path / "s", matrix, (11,), 0, chunk_elements=7, block_rows=6)
    _, blocks, _ = write(tmp_path / "t", matrix, (11,), EVERYTHING, chunk_elements=9, block_rows=6)
    with pytest.raises(AssertionError):
        store.hold(blocks)
