"""The engine of one machine: threads that compute, threads that read ahead, and a cache of decoded blocks.

Each computing thread takes whole segments. While it works on a block the next one is being read and decoded,
so that at most ``BLOCKS_A_THREAD`` decoded blocks a thread are alive, and as many again as the threads for
what comes behind a part of the data. A thread that has nothing else to do takes what may go on beside a
visit. Every second pass over all of it takes the segments in reverse, which finds the most recent blocks
still in the system's page cache.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from ooc_svm.data.source import Source
from ooc_svm.engine.base import Engine, MergeTree
from ooc_svm.engine.block_cache import Feed
from ooc_svm.passes.base import Extent, Pass, Piece
from ooc_svm.rowvectors.collection import RowVectors

BLOCKS_A_THREAD = 2
"""Decoded blocks alive for each computing thread: the one it works on and the one being read."""


class Stopped(Exception):
    """A worker ends because another one failed."""


@dataclass(slots=True)
class _Stream:
    """One stream over an extent, shared by the computing threads."""

    passes: Sequence[Pass]
    extent: Extent
    data: bool
    trees: list[MergeTree]
    claims: Iterator[int]
    n_pieces: int
    done: int = 0
    due: set[int] = field(default_factory=set)
    """Blocks that were read ahead for this stream and that no thread has come for yet."""
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
    blocks : sequence of int, optional
        Those that may be pinned; by default all.
    """

    def __init__(
        self,
        source: Source,
        vectors: RowVectors,
        *,
        threads: int = 1,
        cache_bytes: int = 0,
        blocks: Sequence[int] | None = None,
    ) -> None:
        super().__init__(source, vectors)
        self.threads = threads
        self._feed = Feed(source, threads, cache_bytes, self.counters, blocks)
        self._ahead: list[int] = []
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    def close(self) -> None:
        """End the threads and let the cache go."""
        self._workers.shutdown(cancel_futures=True)
        self._feed.close()

    def read_ahead(self, blocks: Sequence[int]) -> None:
        """Begin to read what the next pass begins with, no more blocks than there are threads."""
        self._want_ahead(blocks[: self.threads])

    def _stream(self, passes: Sequence[Pass], extent: Extent, data: bool) -> list[Any]:
        trees = self.merged(passes, extent, data, range(len(extent.segments)))
        return [tree.total for tree in trees]

    def merged(
        self, passes: Sequence[Pass], extent: Extent, data: bool, segments: Sequence[int]
    ) -> list[MergeTree]:
        """What can be merged of some of an extent's segments, for each of the passes."""
        backwards = data and extent.begins and extent.ends and self.counters.passes % 2 == 1
        order = reversed(segments) if backwards else iter(segments)
        trees = [MergeTree(len(extent.segments), request.merge) for request in passes]
        stream = _Stream(passes, extent, data, trees, order, extent.of or extent.n_pieces, extent.before)
        if data:
            stream.due, self._ahead = set(self._ahead), []
        here = {piece.block for segment in extent.segments for piece in segment}
        ahead = extent.ahead[: self.threads]
        # A block that is needed again right away is wanted before anybody can leave it.
        self._want_ahead(index for index in ahead if index in here)
        # What a solver does meanwhile comes first: it is one long task, the segments fill up what is left.
        futures = [
            self._workers.submit(self._timed, request.meanwhile)
            for request in passes
            if request.meanwhile is not None
        ]
        futures += [self._workers.submit(self._work, stream) for _ in range(min(self.threads, len(segments)))]
        try:
            self._want_ahead(index for index in ahead if index not in here)
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stream.stop.set()
            wait(futures)
            for index in stream.due:
                self._feed.leave(index)
        failures = [f.exception() for f in futures]
        for failure in failures:
            if failure is not None and not isinstance(failure, Stopped):
                raise failure
        return trees

    def _want_ahead(self, blocks: Iterable[int]) -> None:
        for index in blocks:
            if index not in self._ahead:
                self._feed.want(index)
                self._ahead.append(index)

    def _want(self, stream: _Stream, index: int) -> None:
        """Want a block; if it was read ahead for this stream, that is done with."""
        self._feed.want(index)
        with stream.lock:
            due = index in stream.due
            stream.due.discard(index)
        if due:
            self._feed.leave(index)

    def _begin(self, task: Callable[[], None]) -> Callable[[], None]:
        """Offer it to a thread that has nothing else to do; if none has begun it, it is done in the end."""
        # The queue keeps what is cancelled: it must not keep the rows.
        waiting = [task]
        begun = self._workers.submit(lambda: waiting.pop()())

        def end() -> None:
            if begun.cancel():
                waiting.pop()()
            else:
                begun.result()

        return end

    def _timed(self, task: Callable[[], None]) -> None:
        began = time.perf_counter()
        task()
        self.counters.visiting_seconds += time.perf_counter() - began

    def _work(self, stream: _Stream) -> None:
        """One computing thread: claim segments until none is left."""
        segments = stream.extent.segments
        upcoming: deque[tuple[int, Piece]] = deque()
        pieces = self._claimed(stream)
        partials: list[Any] = []
        try:
            while True:
                while len(upcoming) < BLOCKS_A_THREAD:
                    claimed = next(pieces, None)
                    if claimed is None:
                        break
                    if stream.data:
                        self._want(stream, claimed[1].block)
                    upcoming.append(claimed)
                if not upcoming:
                    return
                segment, piece = upcoming[0]
                if piece is segments[segment][0]:
                    partials = [request.empty() for request in stream.passes]
                self._serve(stream, piece, partials)
                upcoming.popleft()
                if stream.data:
                    self._feed.leave(piece.block)
                if piece is segments[segment][-1]:
                    self._add(stream, segment, partials)
        finally:
            for _, piece in upcoming:
                if stream.data:
                    self._feed.leave(piece.block)

    def _claimed(self, stream: _Stream) -> Iterator[tuple[int, Piece]]:
        """Segment numbers and pieces of the segments this thread takes, one segment after another."""
        while True:
            with stream.lock:
                segment = next(stream.claims, None)
            if segment is None:
                return
            if not stream.extent.segments[segment]:
                self._add(stream, segment, [request.empty() for request in stream.passes])
            for piece in stream.extent.segments[segment]:
                yield segment, piece

    def _add(self, stream: _Stream, segment: int, partials: list[Any]) -> None:
        with stream.lock:
            for tree, partial in zip(stream.trees, partials, strict=True):
                tree.add(segment, partial)

    def _serve(self, stream: _Stream, piece: Piece, partials: list[Any]) -> None:
        if stream.stop.is_set():
            raise Stopped
        began = time.perf_counter()
        block = self._feed.take(piece.block) if stream.data else None
        ready = time.perf_counter()
        self.visit(stream.passes, block, piece, partials)
        finished = time.perf_counter()
        with stream.lock:
            stream.done += 1
            self.counters.waiting_seconds += ready - began
            self.counters.visiting_seconds += finished - ready
            if self.on_block is not None and stream.data:
                self.on_block(stream.done, stream.n_pieces)
