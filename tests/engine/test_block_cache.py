"""The cache of decoded blocks: what is read when, into which buffers, and what is left when a read fails."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest

from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.matrix import MatrixSpan
from ooc_svm.engine.base import Counters
from ooc_svm.engine.block_cache import BlockCache, pinned_blocks

LONG = 20.0
"""Seconds after which what should have happened long ago counts as failed."""


class Failure(Exception):
    pass


class SlowSource:
    """Blocks of ten rows that hold their own number, in the buffers given; reads wait at a gate."""

    def __init__(self, n_blocks):
        self.blocks = [MatrixSpan(10 * k, 10 * k + 10, 10, 100) for k in range(n_blocks)]
        self.n_rows, self.n_features, self.n_nonzeros = 10 * n_blocks, 5, 10 * n_blocks
        self.buffers_made = 0
        self.reads = [0] * n_blocks
        self.began = [threading.Event() for _ in range(n_blocks)]
        self.gate = threading.Event()
        self.gate.set()
        self.broken = set()
        self._lock = threading.Lock()

    def block_stored_bytes(self, index):
        return 7

    def new_buffers(self):
        self.buffers_made += 1
        return np.full(10, -1, dtype=np.int32)

    def read_block(self, index, buffers=None):
        with self._lock:
            self.reads[index] += 1
        self.began[index].set()
        assert self.gate.wait(LONG)
        if index in self.broken:
            raise Failure(index)
        indices = np.empty(10, dtype=np.int32) if buffers is None else buffers
        indices[:] = index
        return RowBlock(10 * index, np.arange(11), indices, None)


@contextmanager
def caching(source, readers=2, cache_bytes=0):
    cache = BlockCache(source, readers, cache_bytes, Counters())
    try:
        yield cache
    finally:
        source.gate.set()
        cache.close()


def reading_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("read")]


def test_a_block_is_read_once_while_it_is_in_use():
    source = SlowSource(3)
    with caching(source) as cache:
        for _ in range(3):
            cache.acquire(1)
        blocks = [cache.get(1) for _ in range(3)]
        assert all(block is blocks[0] for block in blocks)
        assert blocks[0].start == 10
        cache.release(1)
        cache.release(1)
        cache.acquire(1)
        assert cache.get(1) is blocks[0]
        cache.release(1)
        assert source.reads == [0, 1, 0]
        cache.release(1)
        cache.acquire(1)
        cache.get(1)
        assert source.reads == [0, 2, 0]


def test_reading_begins_when_a_block_is_acquired():
    source = SlowSource(2)
    source.gate.clear()
    with caching(source) as cache:
        cache.acquire(0)
        cache.acquire(1)
        assert source.began[0].wait(LONG)
        assert source.began[1].wait(LONG)
        source.gate.set()
        assert cache.get(1).indices.tolist() == [1] * 10


def test_buffers_are_used_again_but_not_while_in_use():
    source = SlowSource(20)
    with caching(source, readers=1) as cache:
        cache.acquire(0)
        first = cache.get(0)
        for index in range(1, 20):
            cache.acquire(index)
            assert cache.get(index).indices.tolist() == [index] * 10
            cache.release(index)
        assert first.indices.tolist() == [0] * 10
        assert source.buffers_made == 2


def test_buffers_of_a_block_that_is_still_being_read_are_not_free():
    source = SlowSource(2)
    source.gate.clear()
    with caching(source) as cache:
        cache.acquire(0)
        assert source.began[0].wait(LONG)
        leaving = threading.Thread(target=cache.release, args=(0,))
        leaving.start()
        cache.acquire(1)
        assert source.buffers_made == 2
        source.gate.set()
        leaving.join(LONG)
        assert not leaving.is_alive()
        assert cache.get(1).indices.tolist() == [1] * 10


def test_pinned_blocks_are_read_once_for_ever_and_own_their_arrays():
    source = SlowSource(6)
    pinned = pinned_blocks([span.nbytes for span in source.blocks], 200)
    assert len(pinned) == 2
    counters = Counters()
    cache = BlockCache(source, 2, 200, counters)
    for _ in range(5):
        for index in range(6):
            cache.acquire(index)
            assert cache.get(index).indices.tolist() == [index] * 10
            cache.release(index)
    cache.close()
    assert source.reads == [1 if index in pinned else 5 for index in range(6)]
    assert source.buffers_made == 1
    assert counters.blocks_read == sum(source.reads)
    assert counters.bytes_read == 7 * sum(source.reads)


@pytest.mark.parametrize(("cache_bytes", "count"), [(0, 0), (99, 0), (100, 1), (350, 3), (599, 5), (600, 6)])
def test_what_is_pinned_fits_and_is_spread_evenly(cache_bytes, count):
    pinned = sorted(pinned_blocks([100] * 6, cache_bytes))
    assert len(pinned) == count
    if count > 1:
        gaps = np.diff(pinned)
        assert gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize("cache_bytes", [0, 10**6])
def test_a_failed_read_reaches_every_get_and_is_tried_again(cache_bytes):
    source = SlowSource(3)
    source.broken = {1}
    with caching(source, cache_bytes=cache_bytes) as cache:
        cache.acquire(1)
        cache.acquire(1)
        for _ in range(2):
            with pytest.raises(Failure):
                cache.get(1)
        cache.release(1)
        cache.release(1)
        source.broken = set()
        cache.acquire(1)
        assert cache.get(1).indices.tolist() == [1] * 10
        assert source.reads[1] == 2


def test_no_thread_is_left_behind():
    source = SlowSource(8)
    source.broken = {0}
    before = reading_threads()
    with caching(source, readers=3) as cache:
        source.gate.clear()
        for index in range(8):
            cache.acquire(index)
        assert len(reading_threads()) == len(before) + 3
        source.gate.set()
        with pytest.raises(Failure):
            cache.get(0)
    assert reading_threads() == before
    assert sum(source.reads) <= 8


def test_reads_not_begun_are_given_up_at_the_end():
    source = SlowSource(8)
    source.gate.clear()
    cache = BlockCache(source, 1, 0, Counters())
    for index in range(8):
        cache.acquire(index)
    assert source.began[0].wait(LONG)
    closing = threading.Thread(target=cache.close)
    closing.start()
    while cache._readers._work_queue.qsize() > 1:
        closing.join(0.001)
    source.gate.set()
    closing.join(LONG)
    assert not closing.is_alive()
    assert sum(source.reads) == 1


@pytest.mark.parametrize("cache_bytes", [0, 300])
def test_many_threads_see_the_blocks_they_acquired(cache_bytes):
    source = SlowSource(7)
    wrong = []
    with caching(source, readers=3, cache_bytes=cache_bytes) as cache:

        def work(seed):
            rng = np.random.default_rng(seed)
            for first, second in rng.integers(0, 7, (300, 2)).tolist():
                cache.acquire(first)
                cache.acquire(second)
                for index in (first, second):
                    block = cache.get(index)
                    if (block.indices != index).any() or block.start != 10 * index:
                        wrong.append(index)
                    cache.release(index)

        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(LONG)
        assert not any(worker.is_alive() for worker in workers)
    assert wrong == []
    assert source.buffers_made <= 8
