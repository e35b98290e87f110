"""Rows in memory, with what sequential minimal optimization knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int32Array, Int64Array, RowBlock, Values
from ooc_svm.ops import rows as row_ops


@dataclass(slots=True)
class HeldRows:
    """Some rows of the data, m of them, as a CSR matrix of their own."""

    values: Values  # shape (nonzeros,); empty where every stored value is 1
    all_ones: bool = field(metadata={"saved": False})  # Whether there are no values
    ids: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))  # shape (m,): row numbers
    indptr: Int64Array = field(default_factory=lambda: np.zeros(1, np.int64))  # shape (m + 1,)
    indices: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))
    # shape (m, 4): classes, bounds, multipliers, outputs without the threshold
    known: Float64Array = field(default_factory=lambda: np.empty((0, 4)))

    @classmethod
    def of_block(cls, block: RowBlock, own: Int64Array, known: Float64Array) -> HeldRows:
        """Copies of some of a block's rows."""
        indptr = np.zeros(len(own) + 1, np.int64)
        np.cumsum(block.indptr[own + 1] - block.indptr[own], out=indptr[1:])
        indices = np.empty(indptr[-1], np.int32)
        values = None if block.values is None else np.empty(indptr[-1], block.values.dtype)
        row_ops.gather_rows(
            *block.arrays, own, row_ops.unsigned(indptr), row_ops.unsigned(indices), values
        )  # fmt: skip
        ones = values is None
        return cls(np.empty(0) if values is None else values, ones, block.start + own, indptr, indices, known)

    @classmethod
    def joined(cls, parts: Sequence[HeldRows]) -> HeldRows:
        """The rows of all parts, one after another; at least one part."""
        ends = np.cumsum([0, *(len(part.indices) for part in parts)])
        pointers = [part.indptr[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
        return cls(
            np.concatenate([part.values for part in parts]),
            parts[0].all_ones,
            np.concatenate([part.ids for part in parts]),
            np.concatenate([np.zeros(1, np.int64), *pointers]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.known for part in parts]),
        )

    @property
    def arrays(self) -> tuple[Values, Values, Values | None]:
        """Row pointers, column ids and values as compiled functions take them."""
        values = None if self.all_ones else self.values
        return row_ops.unsigned(self.indptr), row_ops.unsigned(self.indices), values

    @property
    def n_elements(self) -> int:
        """Nonzeros and rows together."""
        return len(self.indices) + len(self.ids)

    @property
    def multipliers(self) -> Float64Array:
        """Multiplier of each row, shape (m,), a view."""
        return self.known[:, 2]

    @property
    def is_free(self) -> BoolArray:
        """Whether the multiplier of each row is at no bound, shape (m,)."""
        free: BoolArray = (self.multipliers > 0.0) & (self.multipliers < self.known[:, 1])
        return free

    def chosen(self, wanted: BoolArray) -> HeldRows:
        """Copies of the rows that are wanted."""
        block = RowBlock(0, self.indptr, self.indices, None if self.all_ones else self.values)
        own = np.flatnonzero(wanted)
        found = HeldRows.of_block(block, own, self.known[own])
        found.ids = self.ids[own]
        return found

    def is_sound(self, n_features: int) -> bool:
        """Whether the parts fit each other; saved ones may come from anywhere."""
        m, lengths = len(self.ids), np.diff(self.indptr)
        n_values = 0 if self.all_ones else len(self.indices)
        return (
            self.indptr.shape == (m + 1,)
            and self.known.shape == (m, 4)
            and len(self.values) == n_values
            and int(self.indptr[0]) == 0
            and int(self.indptr[-1]) == len(self.indices)
            and bool((lengths >= 0).all())
            and bool(((self.indices >= 0) & (self.indices < n_features)).all())
            and bool(np.isfinite(self.known).all())
        )
