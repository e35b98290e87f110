"""What a solver may ask for: passes over the data, requests that row vectors answer, work meanwhile.

A pass is pure in each row block: it reads and writes that block's slice of the row vectors and adds to a
*partial* (the sums of one segment of the data). Partials of neighbouring segments merge in a fixed binary
tree, so a result has the same bits on any number of threads and on any engine. Requests are plain data: they
can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard

import numpy as np

from ooc_svm.data.blocks import Int64Array, RowBlock

Vectors = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowSlice:
    """Rows ``range(start, stop, step)`` with their part of each row vector, writable in place."""

    start: int
    stop: int
    vectors: Vectors
    step: int = 1

    def part(self, first: int, last: int) -> RowSlice:
        """The rows ``first <= i < last``, counted from this slice's start."""
        vectors = {name: vector[first:last] for name, vector in self.vectors.items()}
        start, stop = self.start + self.step * first, min(self.start + self.step * last, self.stop)
        return RowSlice(start, stop, vectors, self.step)

    def places_in(self, block: RowBlock) -> Int64Array:
        """Where the rows are in their block."""
        return np.arange(self.start - block.start, self.stop - block.start, self.step)

    def piece_of(self, block: RowBlock) -> tuple[np.uint64, np.uint64]:
        """The first row in the block, and the distance to the next, as compiled functions take them."""
        return np.uint64(self.start - block.start), np.uint64(self.step)


@dataclass(frozen=True, slots=True)
class StridedRange:
    """The rows ``range(start, stop, step)``, which lie in one block."""

    block: int
    start: int
    stop: int
    step: int = 1

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(range(self.start, self.stop, self.step))


Segment = Sequence[StridedRange]


@dataclass(frozen=True, slots=True)
class RowSet:
    """Some rows of the data.

    Attributes
    ----------
    segments : tuple of segments
        Their number is a power of two; the ranges of each are visited one after another.
    """

    segments: tuple[Segment, ...]

    @property
    def n_ranges(self) -> int:
        """Number of strided ranges."""
        return sum(len(segment) for segment in self.segments)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(part.n_rows for segment in self.segments for part in segment)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a pass stands in a read of the data, in strided ranges: those before it, its own, all."""

    before: int = 0
    own: int = 0
    total: int = 0

    @property
    def begins(self) -> bool:
        """Whether the read begins with this pass."""
        return self.before == 0

    @property
    def uncounted(self) -> Position:
        """The same place in a read that is not counted among those of a run: none ends with it."""
        return Position(self.before, self.own, self.total + 1)

    @property
    def ends(self) -> bool:
        """Whether the read ends with this pass."""
        return self.before + self.own >= self.total


WHOLE = Position()  # Of a pass that is a read of its own
UNCOUNTED = Position(0, 1, 1).uncounted  # Of a whole read


class WholeRead:
    """What most passes have in common: they visit all rows in a read of their own."""

    rows: ClassVar[None] = None
    position: ClassVar[Position] = WHOLE
    prefetch: ClassVar[tuple[int, ...]] = ()


class Pass(Protocol):
    """One request of a solver that is answered block by block.

    Attributes
    ----------
    needs_data : bool
        Whether the blocks of the matrix are needed; if not, only row vectors are read.
    reads, writes : tuple of str
        Names of the row vectors that are read, and of those that are changed.
    rows : RowSet or None
        The rows that are visited; None stands for all, in segments that follow from the data.
    position : Position
        Of the pass in a read of the data.
    prefetch : tuple of int
        Blocks that the next pass begins with: they can be read ahead.
    """

    @property
    def needs_data(self) -> bool: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...

    @property
    def rows(self) -> RowSet | None: ...

    @property
    def position(self) -> Position: ...

    @property
    def prefetch(self) -> tuple[int, ...]: ...

    def empty(self) -> Any:
        """A partial of no rows."""

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Any) -> None:
        """Add a block's rows to the partial (``block`` is None if the pass needs no data)."""

    def merge(self, left: Any, right: Any) -> Any:
        """The partial of two neighbouring segments; may reuse ``left``."""


LONG_VISIT = 1 << 15  # Rows whose visit takes longer than handing it to another thread


def is_long(request: Pass, n_rows: int) -> bool:
    """Whether a visit of so many rows takes longer than handing it to another thread.

    A pass over row vectors alone that computes for long says so: ``computes_long = True``.
    """
    return request.needs_data or n_rows >= LONG_VISIT or getattr(request, "computes_long", False)


ANY_NUMBER = 1 << 62  # Of passes that are served as one, at most


class Fusible(Pass, Protocol):
    """A pass that is cheaper served as one with others of its kind, which ask the same of other models.

    Attributes
    ----------
    fewest, most : int
        How many are served as one.
    """

    fewest: ClassVar[int]
    most: ClassVar[int]

    @property
    def kind(self) -> Hashable | None:
        """What those that can be served as one have in common; None: it is served alone."""

    @staticmethod
    def fuse(parts: Sequence[Any]) -> Fused:
        """Several of a kind as one."""


class Fused(NamedTuple):
    """One pass that serves several."""

    request: Pass
    split: Callable[[Any], Sequence[Any]]  # The result of each of them, from its own


class VectorRequest(Protocol):
    """One request that is answered from whole row vectors, not block by block."""

    def serve(self, vectors: Any, memory_bytes: int, threads: int) -> Any:
        """The answer.

        Parameters
        ----------
        vectors : RowVectors
        memory_bytes : int
            What may be used; the rest goes to scratch files.
        threads : int
        """


Request = Pass | VectorRequest


def is_vector_request(request: Request) -> TypeGuard[VectorRequest]:
    """Whether a request is answered from whole row vectors; `isinstance` of a protocol takes 10 us."""
    return hasattr(request, "serve")


def is_pass(request: Request) -> TypeGuard[Pass]:
    """Whether a request is answered block by block."""
    return not is_vector_request(request)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Requests, and work of the solver that goes on while they are answered.

    The answer is a list of their answers, when the work is done too.

    Attributes
    ----------
    requests : tuple of Request
    work : callable, optional
    prefetch : tuple of int
        Where there are no requests: blocks that the next pass begins with.
    first : callable, optional
        Done once, before the work of all solvers that wait with an equal one. Where there are no requests it
        waits until no solver has others that need no data: those that go on have come as far.
    stop : callable, optional
        Called by any thread when the result of the work is no longer needed: it ends soon, wherever it is.
    help : callable, optional
        Called again and again by threads that have nothing else to do, while the work goes on: takes part in
        it for some milliseconds, if that is possible at the moment, and returns whether it was.
    expected : float
        About how much the work is, in any unit: of several, what is most is begun first.
    apart : bool
        What the solver does with the answer, until it yields again, has nothing to do with other solvers:
        several may at the same time.
    """

    requests: tuple[Request, ...]
    work: Callable[[], None] | None = None
    prefetch: tuple[int, ...] = ()
    first: Callable[[], None] | None = None
    stop: Callable[[], None] | None = None
    help: Callable[[], bool] | None = None
    expected: float = 0.0
    apart: bool = False


Steps = Generator[Request | Overlap, Any, None]
"""A solver at work, which yields what it waits for."""


def rows_of(rounds: Sequence[RowSet]) -> RowSet:
    """All rows of a read in rounds: a segment for the rows of each segment of it, in the order of the read.

    Segment k of a round is one of as many as a round has; rounds that take rows in between those of an
    earlier one add none.
    """
    seen: set[tuple[int, int]] = set()
    segments: list[Segment] = []
    for rows in rounds:
        fresh = [tuple(p for p in segment if (p.block, p.stop) not in seen) for segment in rows.segments]
        seen.update((part.block, part.stop) for segment in fresh for part in segment)
        if any(fresh):
            segments += [tuple(StridedRange(p.block, p.start, p.stop) for p in segment) for segment in fresh]
    return RowSet(padded(segments))


def padded(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Segments, and as many without rows as make their number a power of two."""
    missing = (1 << (len(segments) - 1).bit_length()) - len(segments)
    return (*segments, *(((),) * missing))


def union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Each name once, in the order they come."""
    return tuple(dict.fromkeys(name for group in names for name in group))
