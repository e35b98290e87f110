"""The one loop that drives solvers, and how the partial sums of a pass are put together."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.source import Source, Span
from ooc_svm.pairs.active import count_active_pairs
from ooc_svm.pairs.request import PairPass, PairSlope
from ooc_svm.passes.base import Extent, Pass, Piece, Request, RowSlice, Segment
from ooc_svm.passes.fuse import fuse, split
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.system.memory import peak_memory

MIN_SEGMENTS, MAX_SEGMENTS = 4, 64

Steps = Generator[Request, Any, None]


class Solver(Protocol):
    """An algorithm as a generator of passes; all it knows is in its state."""

    def steps(self) -> Steps:
        """Yield passes until done; each yield is answered with the pass's result."""


@dataclass(slots=True)
class Counters:
    """What a run has cost so far.

    Attributes
    ----------
    passes : int
        Reads of the whole data.
    blocks_read, bytes_read : int
        Blocks fetched from storage (not from the cache), and their stored bytes.
    waiting_seconds, visiting_seconds : float
        Time the computing threads waited for blocks, and time they worked on them.
    """

    passes: int = 0
    blocks_read: int = 0
    bytes_read: int = 0
    waiting_seconds: float = 0.0
    visiting_seconds: float = 0.0


class Engine(ABC):
    """Runs solvers over a source of row blocks.

    Parameters
    ----------
    source : Source
    vectors : RowVectors
        The row vectors that passes read and write.

    Attributes
    ----------
    sorting_bytes : int
        Memory for counting pairs, which sorts the rows; what does not fit goes to scratch files.
    threads : int
        Threads that compute in this process.
    """

    def __init__(self, source: Source, vectors: RowVectors) -> None:
        self.source = source
        self.vectors = vectors
        self._all_rows = Extent(cut_segments(source.blocks, source.n_features))
        self.sorting_bytes = 1 << 62
        self.threads = 1
        self.counters = Counters()
        self.on_block: Callable[[int, int], None] | None = None
        """Called with the number of blocks done and of all blocks, from any thread."""
        self.on_note: Callable[[str], None] | None = None
        """Called with what a user should know."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the engine holds beside its arguments."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fill(self, fill: Callable[[RowVectors, Source], None]) -> None:
        """Make the row vectors that come from the data."""
        fill(self.vectors, self.source)

    def peak_memory(self) -> int:
        """Largest resident size of a process so far, in bytes."""
        return peak_memory()

    @abstractmethod
    def _stream(self, passes: Sequence[Pass], extent: Extent, data: bool) -> list[Any]:
        """Results of passes that share one stream over an extent, once all that goes on beside it is done."""

    def stream(self, requests: Sequence[Request]) -> list[Any]:
        """Serve several requests; passes that need the same part of the data share one read of it."""
        answers: list[Any] = [None] * len(requests)
        passes: dict[int, Pass] = {}
        for place, request in enumerate(requests):
            if isinstance(request, PairPass):
                answers[place] = self._count_pairs(request)
            else:
                passes[place] = request
        kinds = dict.fromkeys((request.needs_data, request.extent) for request in passes.values())
        for data, extent in sorted(kinds, key=lambda kind: kind[0]):
            places = [i for i, r in passes.items() if (r.needs_data, r.extent) == (data, extent)]
            alike = [passes[i] for i in places]
            fused = fuse(alike)
            part = self._all_rows if extent is None else extent
            results = self._stream([p for p, _ in fused], part, data)
            self.counters.passes += data and part.ends
            for i, answer in zip(places, split(alike, fused, results), strict=True):
                answers[i] = answer
        return answers

    def _count_pairs(self, request: PairPass) -> PairSlope:
        began = time.perf_counter()
        counted = count_active_pairs(request, self.vectors, self.sorting_bytes, self.threads)
        self.counters.visiting_seconds += time.perf_counter() - began
        return counted

    def run(self, solvers: Sequence[Solver], between: Callable[[], None] | None = None) -> None:
        """Drive solvers to their end, all of them on the same reads of the data.

        Parameters
        ----------
        solvers : sequence of Solver
        between : callable, optional
            Called before every read of the data, when each solver's state is complete.
        """
        running: dict[int, Steps] = {}
        waiting: dict[int, Request] = {}

        def advance(number: int, answer: Any) -> None:
            try:
                waiting[number] = running[number].send(answer)
            except StopIteration:
                del running[number]

        for number, solver in enumerate(solvers):
            running[number] = solver.steps()
            advance(number, None)
        while waiting:
            quick = [number for number, request in waiting.items() if not request.needs_data]
            if not quick and between is not None and all(_begins(p) for p in waiting.values()):
                between()
            served = quick or list(waiting)
            answers = self.stream([waiting.pop(number) for number in served])
            for number, answer in zip(served, answers, strict=True):
                advance(number, answer)

    def _begin(self, task: Callable[[], None]) -> Callable[[], None]:
        """Begin what may go on at the same time; what is returned ends it."""
        return task

    def visit(
        self, passes: Sequence[Pass], block: RowBlock | None, piece: Piece, partials: list[Any]
    ) -> None:
        """Serve rows of one block to several passes, with their slices of the row vectors."""
        names = dict.fromkeys(name for request in passes for name in (*request.reads, *request.writes))
        first = self.vectors.place(piece.start) if names else 0
        whole = {name: self.vectors[name].read(first, first + piece.stop - piece.start) for name in names}
        every = {name: entries[:: piece.step] for name, entries in whole.items()}
        rows = RowSlice(piece.start, piece.stop, every, piece.step)
        with ExitStack() as besides:
            for request in passes:
                if request.beside is not None and block is not None:
                    besides.callback(self._begin(partial(request.beside, block, rows)))
            for request, sums in zip(passes, partials, strict=True):
                request.visit(block, rows, sums)
        for name in dict.fromkeys(name for request in passes for name in request.writes):
            if not self.vectors[name].in_memory:
                self.vectors[name].write(first, whole[name])


def _begins(request: Request) -> bool:
    return isinstance(request, PairPass) or request.extent is None or request.extent.begins


def cut_segments(blocks: Sequence[Span], n_features: int) -> tuple[Segment, ...]:
    """Cut the blocks into runs whose sums are kept apart and merged in a fixed tree.

    The number of runs is a power of two that depends on the data alone, never on the machine or on what else
    is computed in the same read: fewer where a vector of weights is large beside the data, since each run
    zeroes and merges such vectors. Runs of a coarser cut are made of whole runs of a finer one, so that rows
    can be given away in runs of any cut; ``n_features`` 0 gives the finest.
    """
    if not blocks:
        return ()
    sizes = np.array([span.n_nonzeros + (span.stop - span.start) for span in blocks], dtype=np.int64)
    total = int(sizes.sum())
    worth = total // (4 * n_features) if n_features else total
    wanted = min(max(worth, MIN_SEGMENTS), MAX_SEGMENTS, len(blocks))
    count = 1 << (wanted.bit_length() - 1)
    finest = 1 << (min(MAX_SEGMENTS, len(blocks)).bit_length() - 1)
    middles = np.cumsum(sizes) - sizes // 2
    owner = np.minimum(middles * finest // max(total, 1), finest - 1)
    edges = np.searchsorted(owner, np.arange(finest + 1))
    # No segment is empty, however uneven the blocks are.
    ahead = np.arange(finest + 1)
    edges = np.minimum(np.maximum.accumulate(edges - ahead) + ahead, len(blocks) - finest + ahead)
    pieces = tuple(Piece(index, span.start, span.stop) for index, span in enumerate(blocks))
    return tuple(pieces[a:b] for a, b in pairwise(edges[:: finest // count].tolist()))


class MergeTree:
    """Merges the partials of segments pairwise in a fixed binary tree, in whatever order they come.

    Parameters
    ----------
    n_segments : int
        A power of two.
    merge : callable
        ``merge(left, right)`` of two neighbours.
    """

    def __init__(self, n_segments: int, merge: Callable[[Any, Any], Any]) -> None:
        self._n_segments = n_segments
        self._merge = merge
        self._nodes: dict[tuple[int, int], Any] = {}

    def add(self, place: int, partial: Any, width: int = 1) -> None:
        """Put in the partial of a segment, or of ``width`` of them from ``place * width`` on, and merge."""
        while width < self._n_segments:
            sibling = self._nodes.pop((width, place ^ 1), None)
            if sibling is None:
                break
            partial = self._merge(sibling, partial) if place & 1 else self._merge(partial, sibling)
            width, place = 2 * width, place >> 1
        self._nodes[width, place] = partial

    @property
    def nodes(self) -> dict[tuple[int, int], Any]:
        """What is merged so far, by (width, place)."""
        return self._nodes

    @property
    def total(self) -> Any:
        """The merged partial of all segments."""
        return self._nodes[self._n_segments, 0]
