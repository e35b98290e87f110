"""Which pairs of rows are active: the request, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ooc_svm.data.blocks import Float64Array

SUMMED_ROWS = 1 << 15  # Rows whose losses are added one after another; the sums of these are added exactly


@dataclass(frozen=True, slots=True)
class PairRows:
    """Which rows make pairs, as names of row vectors: those of different rank, in one query.

    Attributes
    ----------
    ranks : str
        int32; equal for equal labels, larger for larger ones.
    n_ranks : int
    weight : str or None
        float64; a pair weighs the product of the weights of its rows, inside queries the weight of its query.
    query_starts : str or None
        uint8, 1 at the first row of each query (rows of equal qid); None where all rows are one query.
    """

    ranks: str
    n_ranks: int
    weight: str | None = None
    query_starts: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors."""
        return tuple(name for name in (self.ranks, self.weight, self.query_starts) if name is not None)


@dataclass(frozen=True, slots=True)
class Pairs:
    """All pairs of the data; `total` is the sum of their weights, m."""

    rows: PairRows
    total: float


@dataclass(frozen=True, slots=True)
class PairSlope:
    """Result of a `PairPass`: sums over the active pairs, those whose scores differ by less than 1.

    `loss` is the sum of their weights times ``1 - (s_i - s_j)``; `slope` is its derivative with respect to t.
    `offsets`, shape (n_slacks,), is the sum of their weights by the slack block of the higher row, and
    `n_rows` counts the rows that are in an active pair.
    """

    loss: float
    slope: float
    offsets: Float64Array
    n_rows: int


@dataclass(frozen=True, slots=True)
class PairPass:
    """The active pairs at the scores ``start + t (end - start)``; `start` and `end` are names of row vectors.

    Which pairs are active depends on all scores at once: this is answered from whole row vectors, not block
    by block. `coefficients` names row vectors, one for each slack block, that are set to the weight of each
    row in the cut: the weight of the active pairs in which it is the higher row, less that of those in which
    it is the lower one. A pair belongs to the slack block of its higher row: its number modulo the number of
    slack blocks. Without coefficients there is one slack block and no vector is written.
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


@dataclass(frozen=True, slots=True)
class SwappedPairs:
    """The share of the pairs in the wrong order at the scores ``start + t (end - start)``, ties counted half.

    Weights do not count: each pair is as much as any other. NaN if there is no pair.

    Attributes
    ----------
    rows : PairRows
    start, end : str
    t : float
    marks : str or None
        Row vector; rows whose entry is not `mark` make no pair. All rows of a query have the same. None: all
        rows make pairs.
    mark : int
    """

    rows: PairRows
    start: str
    end: str
    t: float
    marks: str | None = None
    mark: int = 1

    def serve(self, vectors: Any, memory_bytes: int, threads: int) -> float:
        """Count the pairs; see `ooc_svm.passes.base.VectorRequest`."""
        from ooc_svm.pairs.active import swapped_share

        return swapped_share(self, vectors, memory_bytes, threads)
