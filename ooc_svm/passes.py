"""What a solver may ask of the data: passes, their partial results, and how two of them merge.

A pass is pure in each row block: it reads and writes that block's slice of the row vectors and adds to a
*partial* (the sums of one segment of the data). Partials of neighbouring segments merge in a fixed binary
tree, so a result has the same bits on any number of threads and on any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.ops import csr
from ooc_svm.rows import Float64Array, RowBlock

# Elements of one tile: scores and the sum of rows of a tile are computed while its rows are in the cache.
TILE_ELEMENTS = 1 << 18

# Variance of a column, as a share of its mean square, that counts as none.
LEAST_VARIANCE = 1e-10

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


@dataclass(frozen=True, slots=True)
class Slots:
    """Sums that rows are added to, some for each row.

    Attributes
    ----------
    numbers : ndarray of int32, shape (places, rows)
        One of the rule's slots for each place.
    weights : ndarray of float64, shape (places, rows), or None
        What the rows are added with, not at all where it is 0; None: 1.
    """

    numbers: npt.NDArray[np.int32]
    weights: Float64Array | None


class NoSlots:
    """What most rules have in common: rows are summed with coefficients alone."""

    n_slots: ClassVar[int] = 0


class RowRule(Protocol):
    """What a pass does with the scores of some rows: mathematics of one loss, rows alone."""

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...

    @property
    def sums_shape(self) -> tuple[int, ...]: ...

    @property
    def width(self) -> int:
        """Number of weighted sums of rows that are wanted."""

    @property
    def n_slots(self) -> int:
        """Number of sums of the rows that are put there."""

    def __call__(
        self, rows: RowSlice, scores: Float64Array, coefficients: Float64Array, sums: Float64Array
    ) -> Slots | None:
        """Fill ``coefficients`` (width, rows) from ``scores`` (rows,) and add to ``sums``."""


@dataclass(slots=True)
class LinearSums:
    """Result of a linear pass for each of its models.

    Attributes
    ----------
    vectors : ndarray of float64, shape (n_features, total width of the rules, groups)
        Sums of the rows, weighted with the rules' coefficients.
    sums : list of K ndarrays of float64
        The rules' own sums.
    tables : list of K ndarrays of float64, shape (slots of the rule, n_features)
        Sums of the rows in each slot.
    """

    vectors: Float64Array
    sums: list[Float64Array]
    tables: list[Float64Array]


@dataclass(frozen=True, slots=True)
class LinearPass(WholeData):
    """Scores of K weight vectors, a rule for each on its scores, and the weighted sums of the rows.

    Parameters
    ----------
    weights : ndarray of float64, shape (n_features, K)
    intercepts : ndarray of float64, shape (K,)
    rules : tuple of K RowRule
    groups : int
        Rows of the same number modulo ``groups`` are summed together.
    heads : str or None
        A row vector that is 1 where rows that belong together begin: rules see them at once where they are in
        one block.
    """

    weights: Float64Array
    intercepts: Float64Array
    rules: tuple[RowRule, ...]
    groups: int = 1
    heads: str | None = None
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        heads = () if self.heads is None else (self.heads,)
        return _union((*(rule.reads for rule in self.rules), heads))

    @property
    def writes(self) -> tuple[str, ...]:
        return _union(rule.writes for rule in self.rules)

    @property
    def width(self) -> int:
        """Number of weighted sums of rows, over all rules."""
        return sum(rule.width for rule in self.rules)

    @property
    def partial_nbytes(self) -> int:
        slots = sum(rule.n_slots for rule in self.rules)
        return 8 * len(self.weights) * self.width * self.groups + 8 * (len(self.weights) + 2) * slots

    def empty(self) -> LinearSums:
        d = len(self.weights)
        sums = [np.zeros(rule.sums_shape) for rule in self.rules]
        tables = [np.zeros((rule.n_slots, d)) for rule in self.rules]
        return LinearSums(np.zeros((d, self.width, self.groups)), sums, tables)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: LinearSums) -> None:
        assert block is not None
        indptr, indices = csr.unsigned(block.indptr), csr.unsigned(block.indices)
        K, width = len(self.rules), self.width
        for first, last in tiles(block, None if self.heads is None else rows.vectors[self.heads]):
            tile = rows.part(first, last)
            scores = np.empty((last - first, K))
            csr.scores(indptr, indices, block.values, first, last, self.weights, self.intercepts, scores)
            coefficients = np.zeros((width, last - first))
            at = 0
            for k, rule in enumerate(self.rules):
                own = coefficients[at : at + rule.width]
                slots = rule(tile, np.ascontiguousarray(scores[:, k]), own, partial.sums[k])
                if slots is not None:
                    into = slots.numbers, slots.weights, partial.tables[k]
                    csr.add_to_slots(indptr, indices, block.values, first, last, *into)
                at += rule.width
            if width:
                V = np.ascontiguousarray(coefficients.T)
                csr.add_rows(
                    indptr, indices, block.values, first, last, V, tile.start, self.groups, partial.vectors
                )

    def merge(self, left: LinearSums, right: LinearSums) -> LinearSums:
        left.vectors += right.vectors
        for a, b in zip(left.sums + left.tables, right.sums + right.tables, strict=True):
            a += b
        return left


@dataclass(frozen=True, slots=True)
class RowPass:
    """A rule on row vectors alone, by default of all rows; no block of the matrix is read."""

    rule: RowRule
    extent: Extent | None = None
    needs_data: ClassVar[bool] = False
    meanwhile: ClassVar[None] = None
    beside: ClassVar[None] = None

    @property
    def reads(self) -> tuple[str, ...]:
        return self.rule.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return self.rule.writes

    @property
    def partial_nbytes(self) -> int:
        return 8 * int(np.prod(self.rule.sums_shape))

    def empty(self) -> Float64Array:
        return np.zeros(self.rule.sums_shape)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        self.rule(rows, np.empty(0), np.empty((0, 0)), partial)

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        left += right
        return left


@dataclass(frozen=True, slots=True)
class PairRows:
    """Which rows make pairs, as names of row vectors: those of different rank, in one group.

    Attributes
    ----------
    ranks : str
        int32; equal for equal labels, larger for larger ones.
    n_ranks : int
    weight : str or None
        float64; a pair weighs the product of its rows' weights, inside groups the weight of its group.
    heads : str or None
        uint8, 1 at the first row of each group (rows of equal qid); None where all rows are one group.
    """

    ranks: str
    n_ranks: int
    weight: str | None = None
    heads: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors."""
        return tuple(name for name in (self.ranks, self.weight, self.heads) if name is not None)


@dataclass(frozen=True, slots=True)
class PairSlope:
    """Result of a `PairPass`: sums over the active pairs, those whose scores differ by less than 1.

    Attributes
    ----------
    active, loss : float
        Sums of their weights, and of the weights times ``1 - (s_i - s_j)``.
    slope : float
        Derivative of the loss with respect to t.
    offsets : ndarray of float64, shape (groups,)
        ``active`` by the cut group of the higher row.
    n_rows : int
        Rows that are in an active pair.
    """

    active: float
    loss: float
    slope: float
    offsets: Float64Array
    n_rows: int


@dataclass(frozen=True, slots=True)
class PairPass:
    """The active pairs at the scores ``start + t (end - start)``.

    Which pairs are active depends on all scores at once: an engine serves this from whole row vectors, not
    block by block as a `Pass`.

    Parameters
    ----------
    rows : PairRows
    start, end : str
    t : float
    coefficients : tuple of str
        Row vectors, one for each cut group, that get what each row weighs in the cut: the weight of the
        active pairs in which it is the higher row, less that of those in which it is the lower one. Pairs
        belong to the cut group of their higher row, its number modulo the number of groups. None are filled
        if this is empty.
    """

    rows: PairRows
    start: str
    end: str
    t: float
    coefficients: tuple[str, ...] = ()
    needs_data: ClassVar[bool] = False


class RowFinder(Protocol):
    """Picks items out of some rows."""

    @property
    def reads(self) -> tuple[str, ...]: ...

    def __call__(self, rows: RowSlice) -> Float64Array:
        """The items found in these rows, shape (items, fields)."""


@dataclass(frozen=True, slots=True)
class CollectPass(WholeData):
    """Items that a finder picks from the row vectors, in the order of the rows."""

    finder: RowFinder
    needs_data: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ()
    partial_nbytes: ClassVar[int] = 0

    @property
    def reads(self) -> tuple[str, ...]:
        return self.finder.reads

    def empty(self) -> list[Float64Array]:
        return []

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[Float64Array]) -> None:
        partial.append(self.finder(rows))

    def merge(self, left: list[Float64Array], right: list[Float64Array]) -> list[Float64Array]:
        return left + right


@dataclass(slots=True)
class ColumnSums:
    """Largest magnitude, sum and sum of squares of each column, ndarrays of shape (n_features,)."""

    largest: Float64Array
    total: Float64Array
    squares: Float64Array

    def deviation(self, n_rows: int) -> Float64Array:
        """Standard deviation of each column over all rows, those without a stored value included.

        0 where it is lost in the rounding of the sums: below a hundred thousandth of the column's magnitude.
        """
        mean_square = self.squares / n_rows
        variance = mean_square - (self.total / n_rows) ** 2
        return np.sqrt(np.where(variance <= LEAST_VARIANCE * mean_square, 0.0, variance))


@dataclass(frozen=True, slots=True)
class ColumnPass(WholeData):
    """Statistics of the columns, for scaling."""

    n_features: int
    needs_data: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def partial_nbytes(self) -> int:
        return 24 * self.n_features

    def empty(self) -> ColumnSums:
        return ColumnSums(*np.zeros((3, self.n_features)))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: ColumnSums) -> None:
        assert block is not None
        csr.column_statistics(
            csr.unsigned(block.indptr),
            csr.unsigned(block.indices),
            block.values,
            partial.largest,
            partial.total,
            partial.squares,
        )

    def merge(self, left: ColumnSums, right: ColumnSums) -> ColumnSums:
        np.maximum(left.largest, right.largest, out=left.largest)
        left.total += right.total
        left.squares += right.squares
        return left


Request = Pass | PairPass
"""What a solver may yield."""


def tiles(
    block: RowBlock, heads: npt.NDArray[np.uint8] | None = None, elements: int = TILE_ELEMENTS
) -> Iterator[tuple[int, int]]:
    """Cut a block's rows into runs of about ``elements`` stored values.

    Where ``heads`` are given, runs end before a row at which they are 1, however long that makes them.
    """
    first, n_rows = 0, block.n_rows
    while first < n_rows:
        reach = int(np.searchsorted(block.indptr, block.indptr[first] + elements, side="right")) - 1
        last = min(max(reach, first + 1), n_rows, first + elements)
        if heads is not None and last < n_rows:
            starts = np.flatnonzero(heads[first + 1 : last + 1])
            if len(starts):
                last = first + 1 + int(starts[-1])
            else:
                behind = np.flatnonzero(heads[last + 1 :])
                last = last + 1 + int(behind[0]) if len(behind) else n_rows
        yield first, last
        first = last


def _union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in names for name in group))
