"""The engine of one machine: threads that compute, threads that read ahead, and a cache of decoded blocks.

Each computing thread takes whole segments. While it works on a block the next one is being read and decoded,
so that at most ``BLOCKS_A_THREAD`` decoded blocks a thread are alive. A cyclic scan defeats a
least-recently-used cache, so a fixed, evenly spread part of the blocks is pinned, and every second pass takes
the segments in reverse, which finds the most recent ones still in the system's page cache.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from ooc_svm.engine.base import Engine, MergeTree
from ooc_svm.passes import Pass
from ooc_svm.rows import RowBlock
from ooc_svm.rowvectors import RowVectors
from ooc_svm.source import Source

BLOCKS_A_THREAD = 2
"""Decoded blocks alive for each computing thread: the one it works on and the one being read."""


class Stopped(Exception):
    """A worker ends because another one failed."""


@dataclass(slots=True)
class _Stream:
    """One stream over the data, shared by the computing threads."""

    passes: Sequence[Pass]
    segments: Sequence[range]
    data: bool
    trees: list[MergeTree]
    claims: Iterator[int]
    n_blocks: int
    done: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


class LocalEngine(Engine):
    """Streams a source through passes with several threads; a context manager.

    Parameters
    ----------
    source : Source
    vectors : RowVectors
    threads : int
        Threads that compute, and as many that read.
    cache_bytes : int
        Memory for pinned blocks.
    """

    def __init__(
        self, source: Source, vectors: RowVectors, *, threads: int = 1, cache_bytes: int = 0
    ) -> None:
        super().__init__(source, vectors)
        self._threads = threads
        self._pinned = pinned_blocks([span.nbytes for span in source.blocks], cache_bytes)
        self._cache: dict[int, RowBlock] = {}
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="read")
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    def close(self) -> None:
        """End the threads and let the cache go."""
        self._workers.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)
        self._cache.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stream(self, passes: Sequence[Pass], segments: Sequence[range], data: bool) -> list[Any]:
        backwards = data and self.counters.passes % 2 == 1
        order = reversed(range(len(segments))) if backwards else iter(range(len(segments)))
        trees = [MergeTree(len(segments), request.merge) for request in passes]
        stream = _Stream(passes, segments, data, trees, iter(order), len(self.source.blocks))
        futures = [self._workers.submit(self._work, stream) for _ in range(min(self._threads, len(segments)))]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stream.stop.set()
            wait(futures)
        failures = [f.exception() for f in futures]
        for failure in failures:
            if failure is not None and not isinstance(failure, Stopped):
                raise failure
        return [tree.total for tree in trees]

    def _work(self, stream: _Stream) -> None:
        """One computing thread: claim segments until none is left."""
        upcoming: deque[tuple[int, int, Future[RowBlock] | RowBlock | None]] = deque()
        blocks = self._claimed(stream)
        partials: list[Any] = []
        buffers: dict[int, Any] = {}
        try:
            while True:
                while len(upcoming) < BLOCKS_A_THREAD:
                    claimed = next(blocks, None)
                    if claimed is None:
                        break
                    segment, index = claimed
                    upcoming.append((segment, index, self._fetch(index, buffers) if stream.data else None))
                if not upcoming:
                    return
                segment, index, coming = upcoming.popleft()
                if index == stream.segments[segment].start:
                    partials = [request.empty() for request in stream.passes]
                self._serve(stream, index, coming, partials)
                self._give_back(index, buffers)
                if index == stream.segments[segment].stop - 1:
                    with stream.lock:
                        for tree, partial in zip(stream.trees, partials, strict=True):
                            tree.add(segment, partial)
        finally:
            for _, index, coming in upcoming:
                if isinstance(coming, Future):
                    wait([coming])
                self._give_back(index, buffers)

    def _claimed(self, stream: _Stream) -> Iterator[tuple[int, int]]:
        """Segment and block numbers of the segments this thread takes, one segment after another."""
        while True:
            with stream.lock:
                segment = next(stream.claims, None)
            if segment is None:
                return
            for index in stream.segments[segment]:
                yield segment, index

    def _serve(
        self, stream: _Stream, index: int, coming: Future[RowBlock] | RowBlock | None, partials: list[Any]
    ) -> None:
        if stream.stop.is_set():
            raise Stopped
        began = time.perf_counter()
        block = coming.result() if isinstance(coming, Future) else coming
        ready = time.perf_counter()
        self.visit(stream.passes, block, self.source.blocks[index], partials)
        finished = time.perf_counter()
        with stream.lock:
            stream.done += 1
            self.counters.waiting_seconds += ready - began
            self.counters.visiting_seconds += finished - ready
            if isinstance(coming, Future):
                self.counters.blocks_read += 1
                self.counters.bytes_read += self.source.block_stored_bytes(index)
            if self.on_block is not None and stream.data:
                self.on_block(stream.done, stream.n_blocks)

    def _fetch(self, index: int, buffers: dict[int, Any]) -> Future[RowBlock] | RowBlock:
        cached = self._cache.get(index)
        if cached is not None:
            return cached
        if index in self._pinned:
            return self._readers.submit(self._read_and_pin, index)
        try:
            buffers[index] = self._free.get_nowait()
        except queue.Empty:
            buffers[index] = self.source.new_buffers()
        return self._readers.submit(self.source.read_block, index, buffers[index])

    def _read_and_pin(self, index: int) -> RowBlock:
        block = self.source.read_block(index)
        self._cache[index] = block
        return block

    def _give_back(self, index: int, buffers: dict[int, Any]) -> None:
        if index in buffers:
            self._free.put(buffers.pop(index))


def pinned_blocks(sizes: Sequence[int], cache_bytes: int) -> frozenset[int]:
    """Numbers of the blocks that are kept decoded: an evenly spread share that fits."""
    total = sum(sizes)
    if total <= cache_bytes:
        return frozenset(range(len(sizes)))
    pinned: set[int] = set()
    passed = used = 0
    for index, size in enumerate(sizes):
        passed += size
        if used + size <= cache_bytes * passed // total:
            pinned.add(index)
            used += size
    return frozenset(pinned)
