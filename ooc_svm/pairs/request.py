"""Which pairs of rows are active: what is asked for, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ooc_svm.data.blocks import Float64Array


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
class Pairs:
    """All pairs of the data: the rows they are made of, and the sum of their weights, m."""

    rows: PairRows
    total: float


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

    Which pairs are active depends on all scores at once: this is answered from whole row vectors, not block by
    block.

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

    def serve(self, vectors: Any, memory_bytes: int, threads: int) -> PairSlope:
        """Count the pairs; see `ooc_svm.passes.base.VectorRequest`."""
        from ooc_svm.pairs.active import count_active_pairs

        return count_active_pairs(self, vectors, memory_bytes, threads)
