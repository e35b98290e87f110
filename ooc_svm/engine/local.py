"""The engine of one machine: threads that compute, threads that read ahead, and a cache of decoded blocks.

Each computing thread takes whole segments. While it works on a block the next one is being read and decoded,
so that at most ``BLOCKS_A_THREAD`` decoded blocks a thread are alive, and as many again as the threads for
what comes behind a part of the data. A thread that has nothing else to do takes work of a solver, or other
passes over a block that is being visited, or takes part in a work. Every second pass over all of the data
takes the segments in reverse order, which finds the most recent blocks still in the system's page cache.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ooc_svm.data.source import Source
from ooc_svm.engine.base import Engine, Stream, Work
from ooc_svm.engine.block_cache import BlockCache
from ooc_svm.engine.crew import ThreadCrew
from ooc_svm.engine.merge import MergeTree
from ooc_svm.passes.base import StridedRange
from ooc_svm.passes.crew import Alone, Crew
from ooc_svm.passes.together import help_one
from ooc_svm.rowvectors.collection import RowVectors

BLOCKS_A_THREAD = 2
"""Decoded blocks alive for each computing thread: the one it works on and the one being read."""

_IDLE_SECONDS = 0.002
"""Time after which a thread looks again for a work that can be helped."""


class Stopped(Exception):
    """A thread ends because another one failed."""


@dataclass(slots=True)
class _Works:
    """The works of solvers that go on during a stream, for the threads that help; it keeps no rows."""

    helps: Sequence[Callable[[], bool]]
    left: int  # Works that have not ended
    seats: Iterator[int]  # Of threads that may help: no more than there are processors for
    all_done: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)  # Of those that helped
    failures: list[BaseException] = field(default_factory=list)


@dataclass(slots=True)
class _Progress:
    """How far a stream is, shared by the computing threads."""

    stream: Stream
    trees: list[MergeTree]
    claims: Iterator[int]
    works: _Works
    done: int
    total: int
    prefetched: set[int] = field(default_factory=set)
    """Blocks that were read ahead for this stream and that no thread has acquired yet."""
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


class LocalEngine(Engine):
    """Streams a source through passes with several threads; a context manager.

    ``threads``: threads that compute, and as many that read.
    ``cache_bytes``: memory for pinned blocks.
    ``blocks``: those that may be pinned; by default all.
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
        self._most_helpers = min(threads, len(os.sched_getaffinity(0))) - 1
        self._blocks = BlockCache(source, threads, cache_bytes, self.counters, blocks)
        self._prefetched: list[int] = []
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    @property
    def pinned(self) -> frozenset[int]:
        """Numbers of the blocks that stay in memory once they are read."""
        return self._blocks.pinned

    def close(self) -> None:
        """Release threads and caches; source and vectors stay open."""
        self._workers.shutdown(cancel_futures=True)
        self._blocks.close()

    def crew(self) -> Crew:
        """The threads that have nothing else to do."""
        return ThreadCrew() if self.threads > 1 else Alone()

    def prefetch(self, blocks: Sequence[int]) -> None:
        """Begin to read what the next stream begins with, no more blocks than there are threads."""
        self._prefetch(blocks[: self.threads])

    def _stream(self, stream: Stream) -> list[Any]:
        return [tree.total for tree in self.merged(stream, range(len(stream.rows.segments)))]

    def merged(self, stream: Stream, segments: Sequence[int]) -> list[MergeTree]:
        """What can be merged of some segments of a stream, for each of its passes."""
        position = stream.position
        backwards = stream.data and position.begins and position.ends and self.counters.passes % 2 == 1
        trees = [MergeTree(len(stream.rows.segments), request.merge) for request in stream.passes]
        progress = _Progress(
            stream,
            trees,
            iter(reversed(segments) if backwards else segments),
            _Works(stream.helps, len(stream.works), iter(range(self._most_helpers))),
            position.before,
            stream.end,
        )
        if stream.data:
            progress.prefetched, self._prefetched = set(self._prefetched), []
        here = {part.block for segment in stream.rows.segments for part in segment}
        ahead = stream.prefetch[: self.threads]
        # A block that is needed again right away is acquired before its last user can release it.
        self._prefetch(index for index in ahead if index in here)
        futures = self._submit(progress, min(self.threads, len(segments)))
        try:
            self._prefetch(index for index in ahead if index not in here)
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            progress.stop.set()
            progress.works.all_done.set()
            if not all(future.done() for future in futures):
                for stop in stream.stops:
                    stop()
            wait(futures)
            for index in progress.prefetched:
                self._blocks.release(index)
        self.counters.visiting_seconds += sum(progress.works.seconds)
        for failure in (*(future.exception() for future in futures), *progress.works.failures):
            if failure is not None and not isinstance(failure, Stopped):
                raise failure
        return trees

    def _submit(self, progress: _Progress, n_visitors: int) -> list[Future[None]]:
        """Begin to visit segments and to do the solvers' work.

        One thread visits segments from the start: blocks are read before any work is done. The others work
        first, since a work is one long task, and segments fill up what is left.
        """
        works = progress.stream.works
        tasks = [partial(self._timed, progress, works.pop(0)) for _ in range(len(works))]
        tasks += [partial(self._visit_segments, progress)] * n_visitors
        if self.threads > 1 and n_visitors:
            tasks.insert(0, tasks.pop())
        futures = [self._in_context(partial(self._then_help, progress.works, task)) for task in tasks]
        for _ in range(self.threads - len(tasks)):
            self._offer_help(progress.works)
        return futures

    def _in_context(self, task: Work) -> Future[None]:
        """Give a task to a thread, which warns of no overflow where this one does not."""
        return self._workers.submit(copy_context().run, task)

    def _then_help(self, works: _Works, task: Work) -> None:
        """Do a task; its thread helps with what is left."""
        try:
            task()
        finally:
            self._offer_help(works)

    def _offer_help(self, works: _Works) -> None:
        if works.helps and next(works.seats, None) is not None:
            self._workers.submit(self._help, works)

    def _help(self, works: _Works) -> None:
        """Help a work; what waits for a thread comes before the next time."""
        if works.all_done.is_set():
            return
        try:
            began = time.perf_counter()
            if help_one(works.helps):
                works.seconds.append(time.perf_counter() - began)
            else:
                works.all_done.wait(_IDLE_SECONDS)
        except BaseException as error:
            works.failures.append(error)
        else:
            self._workers.submit(self._help, works)

    def _prefetch(self, blocks: Iterable[int]) -> None:
        for index in blocks:
            if index not in self._prefetched:
                self._blocks.acquire(index)
                self._prefetched.append(index)

    def _acquire(self, progress: _Progress, index: int) -> None:
        """Acquire a block; if it was read ahead for this stream, that use of it ends."""
        self._blocks.acquire(index)
        with progress.lock:
            prefetched = index in progress.prefetched
            progress.prefetched.discard(index)
        if prefetched:
            self._blocks.release(index)

    def _at_once(self, tasks: Sequence[Work]) -> None:
        """Do tasks that have nothing to do with each other, a task of one thread."""
        if self.threads == 1 or len(tasks) == 1:
            super()._at_once(tasks)
            return
        left = iter(tasks)
        futures = [self._in_context(partial(_do_all, left)) for _ in range(min(self.threads, len(tasks)))]
        try:
            wait(futures)
        finally:
            _leave_out(left)
            wait(futures)
        for future in futures:
            future.result()

    def _begin(self, task: Work) -> Work:
        """Offer a task to a thread that has nothing else to do; if none begins it, it is done at the end."""
        # The queue keeps what is cancelled: it must not keep the rows.
        waiting = [task]
        begun = self._workers.submit(lambda: waiting.pop()())

        def end() -> None:
            if begun.cancel():
                waiting.pop()()
            else:
                begun.result()

        return end

    def _timed(self, progress: _Progress, work: Work) -> None:
        began = time.perf_counter()
        try:
            work()
        finally:
            finished = time.perf_counter()
            with progress.lock:
                self.counters.visiting_seconds += finished - began
                progress.works.left -= 1
                if not progress.works.left:
                    progress.works.all_done.set()

    def _visit_segments(self, progress: _Progress) -> None:
        """One computing thread: claim segments until none is left."""
        stream, segments = progress.stream, progress.stream.rows.segments
        upcoming: deque[tuple[int, StridedRange]] = deque()
        claimed = self._claimed(progress)
        if stream.data and self.source.blocks_ahead:
            claimed = self._announced(claimed)
        partials: list[Any] = []
        try:
            while True:
                while len(upcoming) < BLOCKS_A_THREAD and (following := next(claimed, None)) is not None:
                    if stream.data:
                        self._acquire(progress, following[1].block)
                    upcoming.append(following)
                if not upcoming:
                    return
                segment, part = upcoming[0]
                if part is segments[segment][0]:
                    partials = [request.empty() for request in stream.passes]
                self._serve(progress, part, partials)
                upcoming.popleft()
                if stream.data:
                    self._blocks.release(part.block)
                if part is segments[segment][-1]:
                    self._add(progress, segment, partials)
        finally:
            for _, part in upcoming:
                if stream.data:
                    self._blocks.release(part.block)

    def _announced(self, claimed: Iterator[tuple[int, StridedRange]]) -> Iterator[tuple[int, StridedRange]]:
        """The same ranges, whose blocks are announced some ranges before, as many as the source wants."""
        waiting: deque[tuple[int, StridedRange]] = deque()
        for each in claimed:
            self._blocks.announce(each[1].block)
            waiting.append(each)
            if len(waiting) > self.source.blocks_ahead:
                yield waiting.popleft()
        yield from waiting

    def _claimed(self, progress: _Progress) -> Iterator[tuple[int, StridedRange]]:
        """Segment numbers and ranges of the segments this thread takes, one segment after another."""
        stream = progress.stream
        while True:
            with progress.lock:
                segment = next(progress.claims, None)
            if segment is None:
                return
            if not stream.rows.segments[segment]:
                self._add(progress, segment, [request.empty() for request in stream.passes])
            for part in stream.rows.segments[segment]:
                yield segment, part

    def _add(self, progress: _Progress, segment: int, partials: list[Any]) -> None:
        with progress.lock:
            for tree, sums in zip(progress.trees, partials, strict=True):
                tree.add(segment, sums)

    def _serve(self, progress: _Progress, part: StridedRange, partials: list[Any]) -> None:
        if progress.stop.is_set():
            raise Stopped
        stream = progress.stream
        began = time.perf_counter()
        block = self._blocks.get(part.block) if stream.data else None
        ready = time.perf_counter()
        self.visit(stream.passes, block, part, partials)
        finished = time.perf_counter()
        with progress.lock:
            progress.done += 1
            self.counters.waiting_seconds += ready - began
            self.counters.visiting_seconds += finished - ready
            if self.on_block is not None and stream.data:
                self.on_block(progress.done, progress.total)


def _do_all(tasks: Iterator[Work]) -> None:
    """Do the tasks that no other thread does; where one fails, those that are left are not begun."""
    try:
        for task in tasks:
            task()
    finally:
        _leave_out(tasks)


def _leave_out(tasks: Iterator[Work]) -> None:
    for _ in tasks:
        pass
