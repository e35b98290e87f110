"""Pairs of rows of different rank: their number, and which of them a score vector leaves active.

The pairs are ``(i, j)`` with ``y_i > y_j``; at scores s a pair is active while ``s_i - s_j < margin``. Its
loss is then ``margin - (s_i - s_j)`` (Joachims 2006, OP4 with the margin 1). The counts

    plus_i  = #{j : y_j < y_i, s_i - s_j < margin}      minus_j = #{i : y_i > y_j, s_i - s_j < margin}

are the coefficients of the cut, ``sum_i (plus_i - minus_i) x_i``. Differences are those of float64, rounded:
exact for margin 0, and one predicate for both sides, so that both count the same pairs. With row weights a
pair weighs ``omega_i omega_j`` and counts become sums of weights, added in the order of (score, row). A pair
belongs to the slack block of its higher row: the number of that row modulo the number of slack blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError
from ooc_svm.pairs import sweep_loops
from ooc_svm.pairs.lookup import TwoRanks, can_look_up
from ooc_svm.pairs.sweep import PairSweep
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import MemoryVector

Ranks = npt.NDArray[np.int32]
Counts = npt.NDArray[Any]

# Largest number of pairs that counts of 64 bits can hold.
MOST_PAIRS = 2**63 - 1
# Largest number of rows of a query that is counted pair by pair; with more rows, sorting is faster.
_SMALL = 1024


def rank_labels(labels: npt.NDArray[Any]) -> tuple[Ranks, int]:
    """Dense ranks (int32) of finite labels, and their number.

    The rank is 0 for the lowest label, equal for equal labels.
    """
    distinct, ranks = np.unique(labels, return_inverse=True)
    return ranks.astype(np.int32), len(distinct)


def check_trainable(pairs: int) -> None:
    """Raise InputError if there are no pairs, or more than counts of 64 bits can hold."""
    if pairs == 0:
        raise InputError(
            "no two rows that can be compared have different labels; give data with several ranks"
        )
    if pairs > MOST_PAIRS:
        raise InputError(
            f"there are {pairs} pairs of rows, more than 2^63 - 1; train on a sample of the rows"
        )


def count_pairs(
    scores: Float64Array,
    ranks: Ranks,
    n_ranks: int,
    plus: Int64Array,
    minus: Int64Array,
    *,
    first_row: int = 0,
    margin: float = 1.0,
    threads: int = 1,
) -> None:
    """Count the active pairs of every row in memory; all rows are one query, with finite scores.

    Sets `plus`, shape (n,), to the active pairs in which the row is the higher one and `minus`, shape (n,
    n_slacks), to those in which it is the lower one, by slack block. Ranks are below `n_ranks`, see
    `rank_labels`; `first_row` is the number of the first row. The number of threads does not change the
    result.
    """
    wrap, n_rows, n_slacks = MemoryVector.wrap, len(scores), minus.shape[1]
    if can_look_up(n_rows, n_ranks, weighted=False):
        found = TwoRanks(wrap(scores), wrap(ranks), n_slacks, first_row, margin, threads)
        for target, counts in zip([plus, *minus.T], [found.plus, *found.minus], strict=True):
            target[:] = counts.read(0, n_rows)
        return
    with RowVectors(n_rows, 2**63) as scratch:
        sweep = PairSweep(wrap(scores), wrap(ranks), n_ranks, None, n_slacks, scratch, n_rows, threads)
        sweep.count(margin, first_row, wrap(plus), [wrap(column) for column in minus.T])


def count_in_queries(
    scores: Float64Array,
    ranks: Ranks,
    starts: Int64Array,
    plus: Counts,
    minus: Counts,
    *,
    weights: Float64Array | None = None,
    first_row: int = 0,
    margin: float = 1.0,
) -> None:
    """Count the active pairs of every row as `count_pairs` does; only rows of one query make pairs.

    Query q is the rows ``starts[q] <= i < starts[q + 1]`` of the arrays; other rows get zeros. Ranks are
    compared inside a query only; they need not be dense there. With `weights` (n_queries,), those of each
    pair of a query, `plus` and `minus` are float64. `first_row` is the number of the first row, which decides
    its slack block.
    """
    plus[:] = 0
    minus[:] = 0
    sweep_loops.count_small(scores, ranks, starts, weights, _SMALL, first_row, margin, plus, minus)
    for query in np.flatnonzero(np.diff(starts) > _SMALL).tolist():
        rows = slice(int(starts[query]), int(starts[query + 1]))
        own, n_ranks = rank_labels(ranks[rows])
        up, down = np.empty(len(own), np.int64), np.empty((len(own), minus.shape[1]), np.int64)
        count_pairs(scores[rows], own, n_ranks, up, down, first_row=first_row + rows.start, margin=margin)
        plus[rows] = up if weights is None else up * weights[query]
        minus[rows] = down if weights is None else down * weights[query]


@dataclass(frozen=True, slots=True)
class SliceSums:
    """The share of some adjacent rows in sums over the active pairs, by slack block.

    `active`, shape (n_slacks,), is the weight of the pairs whose higher row is one of these rows. `dots`,
    shape (n_slacks, 2, n_vectors), are for each row vector v ``sum_i plus_i v_i`` and ``sum_j minus_j v_j``.
    """

    active: Float64Array
    dots: Float64Array


def slice_sums(vectors: Float64Array, plus: Counts, minus: Sequence[Counts], first_row: int) -> SliceSums:
    """Sums over some adjacent rows, from their counts and the row vectors (n_vectors, rows)."""
    n_slacks = len(minus)
    active, dots = np.empty(n_slacks), np.empty((n_slacks, 2, len(vectors)))
    for slack, column in enumerate(minus):
        first = (slack - first_row) % n_slacks
        active[slack] = plus[first::n_slacks].sum()
        sweep_loops.dots(plus, vectors, first, n_slacks, dots[slack, 0])
        sweep_loops.dots(np.ascontiguousarray(column), vectors, 0, 1, dots[slack, 1])
    return SliceSums(active, dots)


def add_slices(slices: Sequence[SliceSums]) -> tuple[Float64Array, Float64Array]:
    """Add the sums of slices, without rounding.

    Returns the weight of the active pairs of each slack block, shape (n_slacks,), and the weighted sums of
    ``v_j - v_i`` over these pairs ``(i, j)``, shape (n_slacks, n_vectors).
    """
    active, dots = np.stack([own.active for own in slices]), np.stack([own.dots for own in slices])
    signed = np.concatenate([-dots[:, :, 0], dots[:, :, 1]])
    return np.array([math.fsum(column) for column in active.T]), np.apply_along_axis(math.fsum, 0, signed)
