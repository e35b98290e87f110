"""Rows in memory, with what sequential minimal optimization knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int32Array, Int64Array, RowBlock, Values
from ooc_svm.ops.squares import squares_of
from ooc_svm.passes.gather import join_rows, take_rows

# What is known of a row: class, bound, multiplier, output without the threshold; the multiplier when the read
# began, and the one that the row vector has.
Y, C, ALPHA, OUTPUT, START, STORED = range(6)
N_KNOWN = 6


@dataclass(slots=True)
class HeldRows:
    """Some rows of the data, m of them, as a CSR matrix of their own."""

    values: Values  # shape (nonzeros,); empty where every stored value is 1
    all_ones: bool = field(metadata={"saved": False})  # Whether there are no values
    ids: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))  # shape (m,): row numbers
    indptr: Int64Array = field(default_factory=lambda: np.zeros(1, np.int64))  # shape (m + 1,)
    indices: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))
    known: Float64Array = field(default_factory=lambda: np.empty((0, N_KNOWN)))  # shape (m, N_KNOWN)

    @classmethod
    def of_block(cls, block: RowBlock, ids: Int64Array, known: Float64Array) -> HeldRows:
        """The rows of a block, which have these numbers in the data."""
        ones = block.values is None
        values = np.empty(0) if block.values is None else block.values
        return cls(values, ones, ids, block.indptr, block.indices, known)

    @classmethod
    def joined(cls, parts: Sequence[HeldRows]) -> HeldRows:
        """The rows of all parts, one after another; at least one part."""
        rows = join_rows([part.block for part in parts])
        ids, known = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "known"))
        return cls.of_block(rows, ids, known)

    @property
    def block(self) -> RowBlock:
        """The rows alone."""
        return RowBlock(0, self.indptr, self.indices, None if self.all_ones else self.values)

    @property
    def multipliers(self) -> Float64Array:
        """Multiplier of each row, shape (m,), a view."""
        return self.known[:, ALPHA]

    @property
    def is_free(self) -> BoolArray:
        """Whether the multiplier of each row is at no bound, shape (m,)."""
        free: BoolArray = (self.multipliers > 0.0) & (self.multipliers < self.known[:, C])
        return free

    @property
    def is_ahead(self) -> BoolArray:
        """Whether the row vector has another multiplier than the row, shape (m,)."""
        ahead: BoolArray = self.multipliers != self.known[:, STORED]
        return ahead

    @property
    def sizes(self) -> Int64Array:
        """Nonzeros of each row and one, shape (m,)."""
        sizes: Int64Array = np.diff(self.indptr) + 1
        return sizes

    def chosen(self, wanted: BoolArray) -> HeldRows:
        """Copies of the rows that are wanted."""
        own = np.flatnonzero(wanted)
        return HeldRows.of_block(take_rows(self.block, own), self.ids[own], self.known[own])

    def squares(self, scale2: Float64Array | None) -> Float64Array:
        """``x.x`` of each row, shape (m,)."""
        return squares_of(*self.block.arrays, scale2)

    def is_sound(self, n_features: int) -> bool:
        """Whether the parts fit each other; saved ones may come from anywhere."""
        m, lengths = len(self.ids), np.diff(self.indptr)
        n_values = 0 if self.all_ones else len(self.indices)
        return (
            self.indptr.shape == (m + 1,)
            and self.known.shape == (m, N_KNOWN)
            and len(self.values) == n_values
            and int(self.indptr[0]) == 0
            and int(self.indptr[-1]) == len(self.indices)
            and bool((lengths >= 0).all())
            and bool(((self.indices >= 0) & (self.indices < n_features)).all())
            and bool(np.isfinite(self.known).all() and np.isfinite(self.values).all())
        )
