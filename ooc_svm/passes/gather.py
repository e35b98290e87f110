"""Chosen rows of the data as a CSR of their own, with entries of row vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ooc_svm.data.blocks import Int64Array, RowBlock, Values
from ooc_svm.data.take import take_rows as take_rows
from ooc_svm.passes.base import WHOLE, Position, RowSet, RowSlice, union


class RowChoice(Protocol):
    """Which rows are wanted."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors that this follows from."""

    def __call__(self, rows: RowSlice) -> Int64Array:
        """Places of the wanted rows of a slice, counted from its start."""


@dataclass(frozen=True, slots=True)
class NonzeroRows:
    """The rows that have an entry other than 0 in one of some row vectors."""

    reads: tuple[str, ...]

    def __call__(self, rows: RowSlice) -> Int64Array:
        marks = [rows.vectors[name] != 0 for name in self.reads]
        return np.flatnonzero(np.logical_or.reduce(marks))


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """The rows with these numbers in the whole data, int64 and ascending."""

    numbers: Int64Array
    reads: ClassVar[tuple[str, ...]] = ()

    def __call__(self, rows: RowSlice) -> Int64Array:
        first, last = np.searchsorted(self.numbers, (rows.start, rows.stop))
        inside = self.numbers[first:last] - rows.start
        places: Int64Array = inside[inside % rows.step == 0] // rows.step
        return places


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Rows of the data, ascending.

    Attributes
    ----------
    numbers : ndarray of int64, shape (m,)
        Of the rows in the whole data.
    rows : RowBlock
        The rows; `RowBlock.start` is 0.
    vectors : mapping of str to ndarray, shape (m,)
        Their entries of the row vectors that were asked for.
    """

    numbers: Int64Array
    rows: RowBlock
    vectors: Mapping[str, Values]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.numbers.nbytes + self.rows.nbytes + sum(each.nbytes for each in self.vectors.values())


def join_rows(parts: Sequence[RowBlock]) -> RowBlock:
    """The rows of several blocks, one after another; of no blocks no rows, whose values are 1."""
    if not parts:
        return RowBlock(0, np.zeros(1, np.int64), np.empty(0, np.int32), None)
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    values = [part.values for part in parts if part.values is not None]
    indices = np.concatenate([part.indices for part in parts])
    return RowBlock(0, indptr, indices, np.concatenate(values) if values else None)


@dataclass(frozen=True, slots=True)
class GatherPass:
    """Copies of chosen rows; the answer is a list of `GatheredRows` for `join_gathered`.

    ``vectors``: names of the row vectors whose entries are wanted as well.
    """

    choice: RowChoice
    vectors: tuple[str, ...] = ()
    position: Position = WHOLE
    rows: RowSet | None = None
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return union((self.choice.reads, self.vectors))

    def empty(self) -> list[GatheredRows]:
        return []

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: list[GatheredRows]) -> None:
        assert block is not None
        places = self.choice(rows)
        if len(places):
            numbers = rows.start + rows.step * places
            entries = {name: rows.vectors[name][places] for name in self.vectors}
            partial.append(GatheredRows(numbers, take_rows(block, numbers - block.start), entries))

    def merge(self, left: list[GatheredRows], right: list[GatheredRows]) -> list[GatheredRows]:
        return left + right


def join_gathered(parts: Sequence[GatheredRows], vectors: Sequence[str] = ()) -> GatheredRows:
    """All gathered rows as one; ``vectors`` as in the pass."""
    numbers = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
    entries = {
        name: np.concatenate([np.empty(0), *(part.vectors[name] for part in parts)]) for name in vectors
    }
    return GatheredRows(numbers, join_rows([part.rows for part in parts]), entries)
