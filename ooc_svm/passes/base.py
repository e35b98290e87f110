"""What a solver may ask of the data: passes, their partial results, and how two of them merge.

A pass is pure in each row block: it reads and writes that block's slice of the row vectors and adds to a
*partial* (the sums of one segment of the data). Partials of neighbouring segments merge in a fixed binary
tree, so a result has the same bits on any number of threads and on any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ooc_svm.data.blocks import RowBlock
from ooc_svm.pairs.request import PairPass

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
        return RowSlice(self.start + first, self.start + last, vectors)


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows ``range(start, stop, step)`` of a block."""

    block: int
    start: int
    stop: int
    step: int = 1

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(range(self.start, self.stop, self.step))


Segment = Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of the data that a pass visits, where that is not all of it.

    Attributes
    ----------
    segments : tuple of segments
        As many as a power of two; the pieces of each are visited one after another.
    ahead : tuple of int
        Blocks that the pass after this one begins with.
    before, of : int
        Pieces of the same read that come before this part, and of all its parts; 0 where this is all.
    """

    segments: tuple[Segment, ...]
    ahead: tuple[int, ...] = ()
    before: int = 0
    of: int = 0

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        return sum(len(segment) for segment in self.segments)

    @property
    def begins(self) -> bool:
        """Whether this is the first part of a read of the data."""
        return self.before == 0

    @property
    def ends(self) -> bool:
        """Whether this is the last part of a read of the data."""
        return self.before + self.n_pieces >= self.of


def rows_of(rounds: Sequence[Extent]) -> Extent:
    """All rows of a read in rounds: a segment for the rows of each segment of it, those taken first.

    The segment k of a round is the one k of as many as a round has; rounds that take rows in between those of
    an earlier one add none.
    """
    seen: set[tuple[int, int]] = set()
    segments: list[Segment] = []
    for extent in rounds:
        fresh = [tuple(p for p in segment if (p.block, p.stop) not in seen) for segment in extent.segments]
        seen.update((piece.block, piece.stop) for segment in fresh for piece in segment)
        if any(fresh):
            segments += [tuple(Piece(p.block, p.start, p.stop) for p in segment) for segment in fresh]
    missing = (1 << (len(segments) - 1).bit_length()) - len(segments)
    return Extent((*segments, *(((),) * missing)))


class WholeData:
    """What most passes have in common: they visit all the data, and nothing goes on beside them."""

    extent: ClassVar[None] = None
    meanwhile: ClassVar[None] = None
    beside: ClassVar[None] = None


class Pass(Protocol):
    """One request of a solver.

    Attributes
    ----------
    needs_data : bool
        Whether the blocks of the matrix are needed; if not, only row vectors are read.
    reads, writes : tuple of str
        Names of the row vectors that are read, and of those that are changed.
    extent : Extent or None
        The part of the data that is visited; None is all of it, in segments that the engine cuts.
    meanwhile : callable or None
        Work of the solver that may go on while the data is visited; done when the answer comes.
    beside : callable or None
        Work on a block's rows (not asked for without a block) that needs nothing of `visit` and leaves alone
        what that reads and writes: it may go on at the same time.
    """

    @property
    def extent(self) -> Extent | None: ...

    @property
    def meanwhile(self) -> Callable[[], None] | None: ...

    @property
    def beside(self) -> Callable[[RowBlock, RowSlice], None] | None: ...

    @property
    def needs_data(self) -> bool: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...

    @property
    def partial_nbytes(self) -> int:
        """Bytes of one partial."""

    def empty(self) -> Any:
        """A partial of no rows."""

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Any) -> None:
        """Add a block's rows to the partial (``block`` is None if the pass needs no data)."""

    def merge(self, left: Any, right: Any) -> Any:
        """The partial of two neighbouring segments; may reuse ``left``."""


Request = Pass | PairPass
"""What a solver may yield."""


def union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Each name once, in the order they come."""
    return tuple(dict.fromkeys(name for group in names for name in group))
