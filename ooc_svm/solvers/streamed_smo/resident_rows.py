"""Rows held in memory, once for all models of a run: a compact CSR matrix of their own.

Where there are many columns, those of the rows here have numbers of their own: those of the first rows by how
many elements they have, later ones in the order in which they first come. Columns that many rows have lie
side by side, so that their weights are nearer to a processor while the rows are moved again and again, which
takes half of the time. Columns that have about as many elements keep their order, so that the weights are
brought there and back nearly one after another (61 M nonzeros in 2^20 columns: 0.15 s, and 0.4 s if all are
in the order in which they come). No sum changes by that.

The elements of long rows lie in parts, see `ooc_svm.solvers.streamed_smo.team_loops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import BoolArray, Float64Array, Int32Array, Int64Array, Values
from ooc_svm.data.pages import row_room
from ooc_svm.errors import parameter
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.crew import Alone, Crew
from ooc_svm.solvers.base import LONG_ROW
from ooc_svm.solvers.streamed_smo import proximal, team_loops
from ooc_svm.solvers.streamed_smo.dense_system import system_bytes
from ooc_svm.solvers.streamed_smo.gram_factor import GramFactor, factor_bytes, factor_rows
from ooc_svm.solvers.streamed_smo.rounds import Round
from ooc_svm.solvers.streamed_smo.sweep import CopiedRows

NO_LIMIT = 1 << 62
LARGE_SPREAD = 100.0  # Factor between the sizes of the columns above which a hint is given
_SAMPLE = 1 << 18  # Number of elements from which the spread of the columns is estimated

# Nonzeros that each part of a row has at least, on average: with fewer, threads wait for each other rather
# than work.
LEAST_PART = LONG_ROW // 2

PARTS = (1, 2, 4, 8, 16)

SHORT_ROW = 64  # Nonzeros of a row whose squares are added to a matrix in the time of a few sweeps

# Rows up to which a factor takes not too much memory, and for each so many of which it takes the time of a
# sweep.
MOST_FACTORED, SWEEP_ROWS = 4096, 50


def are_long(n_nonzeros: int, n_rows: int) -> bool:
    """Whether rows are so long that a product with all of them takes as long as many steps."""
    return n_nonzeros >= LONG_ROW * max(n_rows, 1)


def is_narrow(dimension: int) -> bool:
    """Whether columns are so few that a proximal step takes no longer than some ten sweeps."""
    return dimension <= proximal.MOST_DIRECT


def has_shared_steps(dimension: int, n_elements: int, n_rows: int) -> bool:
    """Whether threads share proximal steps that take no longer than a few sweeps: of many short rows."""
    in_pieces = proximal.count_pieces(n_elements) > 1
    return is_narrow(dimension) and in_pieces and n_elements <= SHORT_ROW * n_rows


def most_columns(dimension: int, n_nonzeros: int, n_rows: int) -> int:
    """The number of columns up to which there are proximal steps; a bias may be one more."""
    is_dense = n_nonzeros >= proximal.DENSE * dimension * n_rows
    return proximal.MOST_OF_DENSE if is_dense else proximal.MOST_COLUMNS


def has_proximal_steps(dimension: int, n_nonzeros: int, n_rows: int) -> bool:
    """Whether columns are not too many for proximal steps."""
    return dimension <= most_columns(dimension, n_nonzeros, n_rows) + 1


def has_factor(dimension: int, n_nonzeros: int, n_rows: int) -> bool:
    """Whether rows that are all held are solved by a factor: it has no more elements than they have."""
    is_wide = dimension > max(n_rows, proximal.MOST_DIRECT + 1)
    is_dense = n_nonzeros >= proximal.DENSE * dimension * n_rows
    are_few = n_rows <= MOST_FACTORED and n_rows * n_rows <= 2 * n_nonzeros
    return is_wide and are_few and (is_dense or dimension <= proximal.MOST_COLUMNS + 1)


def factor_sweeps(n_rows: int) -> float:
    """The sweeps that take the time of a factor."""
    return max(n_rows, SWEEP_ROWS) / SWEEP_ROWS


def proximal_bytes(
    dimension: int, n_nonzeros: int, n_rows: int, *, by_factor: bool = False
) -> tuple[int, int]:
    """Bytes of a proximal step for each row that is solved, and those of its vectors and its systems.

    ``by_factor``: whether rows have one, unless rounding hides what they are.
    """
    # One column may be the bias.
    pieces, nbytes = proximal.count_pieces(n_nonzeros + n_rows), 0
    if has_proximal_steps(dimension, n_nonzeros, n_rows):
        direct = dimension <= proximal.MOST_DIRECT + 1
        nbytes = _vector_bytes(dimension, pieces) + (0 if direct else system_bytes(dimension))
    if by_factor:
        nbytes = max(nbytes, _vector_bytes(n_rows, pieces) + factor_bytes(n_rows))
    return (56 if nbytes else 0), nbytes


def _vector_bytes(dimension: int, pieces: int) -> int:
    """Bytes of the vectors of a step, and of what is put together for few columns."""
    vectors = 8 * (11 + 2 * pieces) * dimension
    if dimension <= proximal.MOST_DIRECT + 1:
        vectors += 8 * (1 + pieces + 2 * (pieces > 1)) * (dimension + 1) ** 2
    return vectors


def count_parts(dimension: int, n_nonzeros: int, n_rows: int) -> int:
    """The number of parts of each row, from which bits follow; 1: rows are not divided.

    Those that proximal steps may solve are not: these save more than threads do (10,000 dense rows of 768
    columns, C = 100: 3.5 to 5 s of the processors, and no end within 15 s without them).
    """
    if has_proximal_steps(dimension, n_nonzeros, n_rows):
        return 1
    return max(parts for parts in PARTS if parts == 1 or n_nonzeros >= parts * LEAST_PART * max(n_rows, 1))


@dataclass(slots=True)
class ResidentRows:
    """Rows, without what models know of them."""

    capacity: int = field(metadata={"saved": False})  # Nonzeros and rows together that are held at most
    values: Values  # Empty where every stored value is 1
    all_ones: bool = field(metadata={"saved": False})  # Whether there are no values
    ids: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # shape (m,): row numbers
    indptr: Int64Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))  # shape (m + 1,)
    indices: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    # Rows of all models together, each of which has something of its own of a row
    most_pairs: int = field(default=NO_LIMIT, metadata={"saved": False})
    # The lowest worth that was kept when there was no room for all rows, else 0; rows below it need not be
    # candidates
    cutoff: float = field(default=0.0, metadata={"saved_as": "least"})
    # shape (k,): squared norms of the first rows; those that came since `measure` have none yet
    squares: Float64Array = field(default_factory=lambda: np.empty(0), metadata={"saved": False})
    # Parts of each row; and where they are in the first rows, as many as have squares
    n_parts: int = field(default=1, metadata={"saved": False})
    cuts: npt.NDArray[np.uint32] = field(
        default_factory=lambda: np.empty((0, 0), np.uint32), metadata={"saved": False}
    )
    # Columns up to which there are proximal steps
    most_columns: int = field(default=proximal.MOST_COLUMNS, metadata={"saved": False})
    # Whether rows are solved by a factor
    by_factor: bool = field(default=False, metadata={"saved": False})
    # Number of columns if they get numbers here, else 0; and the column of each number
    n_numbered: int = field(default=0, metadata={"saved": False})
    columns: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    crew: Callable[[], Crew] = field(default=Alone, metadata={"saved": False})  # Makes one for each model
    _numbers: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))  # Of each column
    _indices_room: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    _values_room: Values = field(default_factory=lambda: np.empty(0))
    # Row numbers, a round, and those of the rows that are in it: each model of a run asks for them
    _last: tuple[Int64Array, Round, Int64Array] | None = field(
        default=None, init=False, metadata={"saved": False}
    )

    # The ids of rows, and their factor
    _factor: tuple[Int64Array, GramFactor | None] | None = field(
        default=None, init=False, metadata={"saved": False}
    )

    @property
    def matrix(self) -> tuple[Values, Values, Values | None]:
        """The rows' CSR arrays as compiled functions take them."""
        values = None if self.all_ones else self.values
        return row_ops.unsigned(self.indptr), row_ops.unsigned(self.indices), values

    @property
    def sizes(self) -> Int64Array:
        """Room that each row takes, shape (m,)."""
        sizes: Int64Array = np.diff(self.indptr) + 1
        return sizes

    @overload
    def own(self, vector: Float64Array, out: Float64Array | None = None) -> Float64Array: ...

    @overload
    def own(self, vector: None) -> None: ...

    def own(self, vector: Float64Array | None, out: Float64Array | None = None) -> Float64Array | None:
        """A vector of all columns, if there is one, as the rows here number them.

        That is a copy, in ``out`` where that is given, or the vector itself.
        """
        if vector is None or not (len(self.columns) or out is not None):
            return vector
        if out is None:
            return vector.take(self.columns)
        if len(self.columns):
            return np.take(vector, self.columns, out=out, mode="clip")  # "raise" makes another copy
        out[:] = vector
        return out

    def give_back(self, own: Float64Array, vector: Float64Array) -> None:
        """Bring what `own` gave, and was changed, back to the vector."""
        if own is not vector:
            vector[self.columns if len(self.columns) else slice(None)] = own

    def find(self, ids: Int64Array) -> Int64Array:
        """The place of each of some rows; -1 for those that are not here."""
        if not len(ids) or not len(self.ids):
            return np.full(len(ids), -1)
        order = np.argsort(self.ids, kind="stable")  # They are in ascending runs, which it merges
        found = order[np.minimum(np.searchsorted(self.ids, ids, sorter=order), len(order) - 1)]
        return np.where(self.ids[found] == ids, found, -1)

    def inside(self, of: Round) -> Int64Array:
        """The numbers of the rows here that a round has."""
        last = self._last
        if last is None or last[0] is not self.ids or last[1] is not of:
            self._last = last = self.ids, of, of.those_inside(self.ids)
        return last[2]

    def measure(self, scale2: Float64Array | None) -> None:
        """Take the squared norms of the rows that have come since the last time, and put them in parts."""
        new = np.arange(len(self.squares), len(self.ids))
        if self.n_parts > 1:
            cuts = np.empty((len(new), self.n_parts + 1), np.uint32)
            team_loops.part_rows(*self.matrix, len(self.squares), cuts)
            self.cuts = np.concatenate([self.cuts.reshape(-1, self.n_parts + 1), cuts])
        squares = np.empty(len(new))
        row_ops.row_squares(*self.matrix, self.own(scale2), new, squares)
        self.squares = np.concatenate([self.squares, squares])

    def factor(self, n_columns: int, scale2: Float64Array | None) -> GramFactor | None:
        """The factor of the rows, kept until there are other rows; see `factor_rows`.

        Threads that need it at the same time each find the same.
        """
        known = self._factor
        if known is None or not np.array_equal(known[0], self.ids):
            self._factor = known = self.ids, factor_rows(self.matrix, n_columns, scale2)
        return known[1]

    def n_solved(self, n_columns: int) -> int:
        """The number of columns of the rows that are solved."""
        return len(self.ids) if self.by_factor else n_columns

    def scores(self, w: Float64Array) -> Float64Array:
        """Products of all rows with a vector."""
        scores = np.empty(len(self.ids))
        row_ops.scores(*self.matrix, np.uint64(0), np.uint64(1), w, scores)
        return scores

    def drop(self, kept: BoolArray) -> None:
        """Keep some rows only, in their order."""
        if not kept.all():
            stay = np.flatnonzero(kept)
            size = row_ops.compact_rows(*self.matrix, kept)
            self.indptr = np.concatenate([[0], np.cumsum(np.diff(self.indptr).take(stay))])
            self.indices, self.values = self.indices[:size], self.values[:size]
            self.ids = self.ids.take(stay)
            measured = stay[: np.searchsorted(stay, len(self.squares))]
            self.squares = self.squares.take(measured)
            self.cuts = self.cuts[measured] if len(self.cuts) else self.cuts
        self._make_room()

    def append(self, parts: Sequence[tuple[CopiedRows, Int64Array, Int64Array]]) -> None:
        """Take copies of rows: which of each list, and the places that they come to, all after those here."""
        n, before = len(self.ids), len(self.indices)
        ids, sizes = np.empty((2, sum(len(chosen) for _, chosen, _ in parts)), np.int64)
        if not len(ids):
            return
        for rows, chosen, place in parts:
            ids[place - n], sizes[place - n] = rows.ids[chosen], np.diff(rows.indptr)[chosen]
        self.ids = np.concatenate([self.ids, ids])
        self.indptr = np.concatenate([self.indptr, before + np.cumsum(sizes)])
        self._use(int(self.indptr[-1]))
        for rows, chosen, place in parts:
            row_ops.gather_rows(
                row_ops.unsigned(rows.indptr), row_ops.unsigned(rows.indices), rows.values,
                row_ops.unsigned(chosen), row_ops.unsigned(self.indptr.take(place)),
                row_ops.unsigned(self.indices), None if self.all_ones else self.values,
            )  # fmt: skip
        # A run of an older release has rows whose columns have none.
        if self.n_numbered and (len(self.columns) or before == 0):
            self._number(self.indices[before:])

    def joined(self, rows: CopiedRows, chosen: Int64Array) -> ResidentRows:
        """These rows and some others, as rows of their own."""
        room = len(self.ids) + len(self.indices) + len(rows.ids) + len(rows.indices)
        both = replace(self, capacity=room, _numbers=np.empty(0, dtype=np.int32))
        both.drop(np.ones(len(self.ids), dtype=np.bool_))
        both.append([(rows, chosen, len(self.ids) + np.arange(len(chosen)))])
        return both

    def holds(self, rows: CopiedRows) -> bool:
        """Whether some rows are here, the same to the last bit."""
        own = self.find(rows.ids)
        if (own < 0).any() or not np.array_equal(np.diff(self.indptr)[own], np.diff(rows.indptr)):
            return False
        indices = np.empty_like(rows.indices)
        values = None if rows.values is None else np.empty_like(rows.values)
        row_ops.gather_rows(
            *self.matrix,
            row_ops.unsigned(own),
            row_ops.unsigned(rows.indptr),
            row_ops.unsigned(indices),
            values,
        )
        wanted = rows.indices
        if len(self.columns):
            numbers = np.full(1 + max(self.columns.max(), wanted.max(initial=0)), -1, dtype=np.int32)
            numbers[self.columns] = np.arange(len(self.columns), dtype=np.int32)
            wanted = numbers.take(wanted)
        here = self._in_parts(rows.indptr, indices, values)
        there = self._in_parts(rows.indptr, wanted, rows.values)
        same = np.array_equal(here[0], there[0])
        return same and (values is None or np.array_equal(np.asarray(here[1]), np.asarray(there[1])))

    def column_spread(self, n_features: int) -> float:
        """How the sizes of the columns differ, a twentieth of them left out on each side.

        The first elements are enough to tell.
        """
        if self.all_ones or not len(self.indices):
            return 1.0
        indptr, indices, values = self.matrix
        some = indptr[: np.searchsorted(self.indptr, _SAMPLE) + 1]
        largest = np.zeros(len(self.columns) or n_features)
        row_ops.largest_magnitudes(some, indices, values, None, largest)
        used = np.sort(largest[largest > 0.0])
        if not len(used):  # every value is 0
            return 1.0
        outside = len(used) // 20
        return float(used[-1 - outside] / used[outside])

    def hints(self, n_features: int, *, scaled: bool, has_bias: bool) -> dict[str, str]:
        """What a user should know of the columns, by a short code."""
        spread, found = self.column_spread(n_features), {}
        if spread > LARGE_SPREAD and not scaled:
            found["column-sizes"] = (
                f"the columns differ in size by a factor of {spread:.0e}: that takes many passes; "
                f"{parameter('scale', 'maxabs')} or std trains on columns of one size"
            )
        if not has_bias and self.is_one_sided():
            found["no-bias"] = (
                "no feature is ever negative, and without a bias only planes through the origin divide the "
                f"rows, which all lie on one side of it; {parameter('bias', 'penalized')} or free adds one"
            )
        return found

    def is_one_sided(self) -> bool:
        """Whether no value is negative; the first elements are enough to tell."""
        return len(self.indices) > 0 and (self.all_ones or float(self.values[:_SAMPLE].min()) >= 0.0)

    def is_whole(self) -> bool:
        """Whether the parts fit each other; saved rows may come from anywhere."""
        m, size = len(self.ids), len(self.indices)
        if len(self.indptr) != m + 1 or len(self.values) != (0 if self.all_ones else size):
            return False
        return bool(self.indptr[0] == 0 and self.indptr[-1] == size and (np.diff(self.indptr) >= 0).all())

    def is_sound(self, n_features: int) -> bool:
        """Whether they are whole, have room, and no other columns than the data."""
        fits = self.is_whole() and len(self.indices) + len(self.ids) <= self.capacity
        n_own = len(self.columns) or n_features
        fits = fits and bool(((self.indices >= 0) & (self.indices < n_own)).all())
        inside = bool(((self.columns >= 0) & (self.columns < n_features)).all())
        return fits and inside and len(np.unique(self.columns)) == len(self.columns)

    def _number(self, indices: Int32Array) -> None:
        """Give columns their numbers, in place."""
        ids = row_ops.unsigned(indices)
        if not len(self.columns):
            self.columns, self._numbers = self._by_size(ids), np.empty(0, np.int32)
        known = len(self.columns)
        if len(self._numbers) != self.n_numbered:
            self._numbers = np.full(self.n_numbered, -1, dtype=np.int32)
            self._numbers[self.columns] = np.arange(known, dtype=np.int32)
        new = np.empty(min(len(indices), self.n_numbered - known), dtype=np.int32)
        if count := row_ops.number_columns(ids, self._numbers, known, new):
            self.columns = np.concatenate([self.columns, new[:count]])

    def _by_size(self, ids: npt.NDArray[Any]) -> Int32Array:
        """The columns that some elements are in, those of many elements first, else in their order."""
        counts, found = np.zeros(self.n_numbered, np.int32), np.empty(self.n_numbered, np.int32)
        found = np.sort(found[: row_ops.count_columns(ids, counts, found)])
        columns = np.empty_like(found)
        row_ops.order_by_size(counts, found, columns)
        return columns

    def _in_parts(
        self, indptr: Int64Array, indices: Int32Array, values: Values | None
    ) -> tuple[Int32Array, Values | None]:
        """The elements of some rows in the order that they have here: copies, if rows have parts."""
        if self.n_parts == 1:
            return indices, values
        indices, values = indices.copy(), None if values is None else values.copy()
        cuts = np.empty((len(indptr) - 1, self.n_parts + 1), np.uint32)
        team_loops.part_rows(row_ops.unsigned(indptr), row_ops.unsigned(indices), values, 0, cuts)
        return indices, values

    def _make_room(self) -> None:
        """Room for all rows that may come, made once: the system gives memory to what is used."""
        if len(self._indices_room) != self.capacity:
            size = len(self.indices)
            self._indices_room = row_room(self.capacity, np.int32)
            self._indices_room[:size] = self.indices
            self._values_room = row_room(0 if self.all_ones else self.capacity, self.values.dtype)
            self._values_room[:size] = self.values
            self._use(size)

    def _use(self, size: int) -> None:
        self.indices = self._indices_room[:size]
        self.values = self._values_room[:size]
