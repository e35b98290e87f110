"""The one loop that drives solvers, and what all engines have in common."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.source import Source
from ooc_svm.engine.merge import cut_segments
from ooc_svm.passes.base import (
    WHOLE,
    Overlap,
    Pass,
    Position,
    Request,
    RowSet,
    RowSlice,
    Steps,
    StridedRange,
    is_long,
    is_pass,
    is_vector_request,
    union,
)
from ooc_svm.passes.crew import Alone, Crew
from ooc_svm.passes.fuse import fuse, split
from ooc_svm.passes.together import in_turn, passes_over_data, requests_of, served_first
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.system.memory import peak_memory

Work = Callable[[], None]


class Solver(Protocol):
    """An algorithm as a generator of requests; all it knows is in its state."""

    def steps(self) -> Steps:
        """Yield requests until done; each yield is answered with the request's result."""


@dataclass(slots=True)
class Counters:
    """What a run has cost so far."""

    passes: int = 0  # Reads of the whole data
    # Blocks fetched from storage (not from the cache), and their stored bytes
    blocks_read: int = 0
    bytes_read: int = 0
    # Time the computing threads waited for blocks, and time they worked on them
    waiting_seconds: float = 0.0
    visiting_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stream:
    """Passes that share one stream over some rows, and what goes on meanwhile."""

    passes: Sequence[Pass]
    rows: RowSet
    data: bool  # Whether blocks of the matrix are read
    position: Position = WHOLE  # In a read of the data
    prefetch: tuple[int, ...] = ()  # Blocks that the next stream begins with
    # Work of solvers; each is taken out of the list when it is begun
    works: list[Work] = field(default_factory=list)
    stops: Sequence[Work] = ()  # Each makes one of the works end soon
    helps: Sequence[Callable[[], bool]] = ()  # Each takes part in one of the works, see `Overlap`

    @property
    def end(self) -> int:
        """Strided ranges of its read, as progress tells them: those before it and its own at least."""
        return max(self.position.total, self.position.before + self.rows.n_ranges)


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
        Memory for requests that sort the rows; what does not fit goes to scratch files.
    threads : int
        Threads that compute in this process.
    """

    def __init__(self, source: Source, vectors: RowVectors) -> None:
        self.source = source
        self.vectors = vectors
        self._all_rows = RowSet(cut_segments(source.blocks, source.n_features))
        self.sorting_bytes = 1 << 62
        self.threads = 1
        self.counters = Counters()
        self.on_block: Callable[[int, int], None] | None = None
        """Called with the number of blocks done and of all blocks, from any thread."""
        self.on_note: Callable[[str], None] | None = None  # Called with what a user should know

    @abstractmethod
    def close(self) -> None:
        """Release threads and caches; source and vectors stay open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        # What is told of the run knows the engine.
        self.on_block = self.on_note = None

    def fill(self, fill: Callable[[RowVectors, Source], object]) -> None:
        """Make the row vectors that come from the data."""
        fill(self.vectors, self.source)

    def crew(self) -> Crew:
        """Threads of this engine, for the solves of one model."""
        return Alone()

    def peak_memory(self) -> int:
        """Largest resident size of a process so far, in bytes."""
        return peak_memory()

    @abstractmethod
    def _stream(self, stream: Stream) -> list[Any]:
        """The result of each pass of a stream, once all work that goes on meanwhile is done."""

    def stream(self, requests: Sequence[Request]) -> list[Any]:
        """Serve several requests; passes over the same rows share one read of them."""
        answers: list[Any] = self.serve([Overlap(tuple(requests))])[0]
        return answers

    def serve(self, waiting: Sequence[Request | Overlap]) -> list[Any]:
        """Serve what several solvers wait for, and do their work meanwhile; an answer for each."""
        groups = [requests_of(each) for each in waiting]
        overlaps = [each for each in waiting if isinstance(each, Overlap)]
        once = {each.first: _Once(each.first) for each in overlaps if each.first is not None}
        works = [
            each.work if each.first is None else partial(_after, once[each.first], each.work)
            for each in sorted(overlaps, key=lambda each: each.expected, reverse=True)
            if each.work is not None
        ]
        prefetch = tuple(dict.fromkeys(block for each in overlaps for block in each.prefetch))
        stops = [each.stop for each in overlaps if each.stop is not None]
        helps = [each.help for each in overlaps if each.help is not None]
        requests = [request for group in groups for request in group]
        answers = iter(self._answers(requests, works, stops, helps, prefetch))
        found = [[next(answers) for _ in group] for group in groups]
        return [
            own if isinstance(each, Overlap) else own[0] for each, own in zip(waiting, found, strict=True)
        ]

    def _answers(
        self,
        requests: Sequence[Request],
        works: list[Work],
        stops: Sequence[Work],
        helps: Sequence[Callable[[], bool]],
        prefetch: tuple[int, ...],
    ) -> list[Any]:
        answers: list[Any] = [None] * len(requests)
        passes: dict[int, Pass] = {}
        for place, request in enumerate(requests):
            if is_pass(request):
                passes[place] = request
            elif is_vector_request(request):
                began = time.perf_counter()
                answers[place] = request.serve(self.vectors, self.sorting_bytes, self.threads)
                self.counters.visiting_seconds += time.perf_counter() - began
        # Work goes on while blocks are read, if any are: they come last.
        kinds = sorted(
            dict.fromkeys((request.needs_data, request.rows) for request in passes.values()),
            key=lambda kind: kind[0],
        )
        if works and not kinds:
            self._stream(Stream((), RowSet(((),)), False, WHOLE, prefetch, works, stops, helps))
        for number, (data, rows) in enumerate(kinds, 1):
            places = [i for i, r in passes.items() if (r.needs_data, r.rows) == (data, rows)]
            alike = [passes[i] for i in places]
            fused = fuse(alike)
            own, helping = (works, helps) if number == len(kinds) else ([], ())
            # Of several passes some may be no counted read.
            main = next((request for request in alike if request.position.ends), alike[0])
            position, ahead = main.position, main.prefetch
            part = self._all_rows if rows is None else rows
            results = self._stream(
                Stream([each.request for each, _ in fused], part, data, position, ahead, own, stops, helping)
            )
            self.counters.passes += data and position.ends
            for i, answer in zip(places, split(fused, results), strict=True):
                answers[i] = answer
        return answers

    def run(self, solvers: Sequence[Solver], between: Callable[[], None] | None = None) -> None:
        """Drive solvers to their end, all of them on the same reads of the data.

        Parameters
        ----------
        solvers : sequence of Solver
        between : callable, optional
            Called before every read of the data, when each solver's state is complete.
        """
        running = dict(enumerate(solver.steps() for solver in solvers))
        waiting: dict[int, Request | Overlap] = {}
        answers: dict[int, Any] = dict.fromkeys(running)

        def advance(number: int) -> None:
            # Answers may be large: each lives no longer than its solver needs it.
            try:
                waiting[number] = running[number].send(answers.pop(number))
            except StopIteration:
                del running[number]

        for number in list(running):
            advance(number)
        while waiting:
            # Those that went on at the same time wait in any order.
            served = sorted(served_first(waiting))
            reading = [each for number in served for each in passes_over_data(waiting[number])]
            if reading and all(each.position.begins for each in reading) and between is not None:
                between()
            apart = all(isinstance(each, Overlap) and each.apart for each in map(waiting.get, served))
            requests = (waiting.pop(number) for number in served)
            answers.update(zip(served, self.serve([*requests]), strict=True))
            tasks = [partial(advance, number) for number in served]
            (self._at_once if apart else in_turn)(tasks)

    def _at_once(self, tasks: Sequence[Work]) -> None:
        """Do tasks that have nothing to do with each other."""
        in_turn(tasks)

    def _begin(self, task: Work) -> Work:
        """Begin what may go on at the same time; what is returned ends it."""
        return task

    def visit(
        self, passes: Sequence[Pass], block: RowBlock | None, part: StridedRange, partials: list[Any]
    ) -> None:
        """Serve rows of one block to several passes, with their slices of the row vectors.

        Passes that change no row vector of another one may be served at the same time.
        """
        changed = union(request.writes for request in passes)
        names = union((*(request.reads for request in passes), changed))
        first = self.vectors.place(part.start) if names else 0
        whole = {name: self.vectors[name].read(first, first + part.stop - part.start) for name in names}
        every = {name: entries[:: part.step] for name, entries in whole.items()}
        rows = RowSlice(part.start, part.stop, every, part.step)
        visits = [partial(p.visit, block, rows, sums) for p, sums in zip(passes, partials, strict=True)]
        with ExitStack() as others:
            for request, visit in zip(passes[1:], visits[1:], strict=True):
                others.callback(self._begin(visit) if is_long(request, part.n_rows) else visit)
            visits[0]()
        for name in changed:
            if not self.vectors[name].in_memory:
                self.vectors[name].write(first, whole[name])


class _Once:
    """A task that is done by the thread that comes first; the others wait for its end."""

    def __init__(self, task: Work) -> None:
        self._task, self._lock, self._done = task, threading.Lock(), False

    def __call__(self) -> None:
        with self._lock:
            if not self._done:
                self._task()
            self._done = True


def _after(first: Work, work: Work) -> None:
    first()
    work()
