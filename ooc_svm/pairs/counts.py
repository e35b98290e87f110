"""Pairs of rows of different rank: how many there are and which of them a score vector leaves active.

The pairs are ``(i, j)`` with ``y_i > y_j``; at scores s a pair is active while ``s_i - s_j < margin``, and it
loses ``margin - (s_i - s_j)`` then (Joachims 2006, OP4 with the margin 1). The counts

    plus_i  = #{j : y_j < y_i, s_i - s_j < margin}      minus_j = #{i : y_i > y_j, s_i - s_j < margin}

are the coefficients of the cut, ``sum_i (plus_i - minus_i) x_i``. Differences are those of float64, rounded:
exact for margin 0, and one predicate for both sides, so that both count the same pairs. With row weights a
pair weighs ``omega_i omega_j`` and counts become sums of weights, added in the order of (score, row). Cut
groups divide the pairs by the number of their higher row.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError
from ooc_svm.pairs import sweep_loops
from ooc_svm.pairs.lookup import TwoRanks, can_look_up
from ooc_svm.pairs.sweep import ROW_BYTES, PairSweep
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import MemoryVector, RowVector, row_slices

Ranks = npt.NDArray[np.int32]
Counts = npt.NDArray[Any]

MOST_PAIRS = 2**63 - 1

_NO_LIMIT = 2**63
# Groups of so many rows are counted pair by pair: sorting them takes longer.
_SMALL = 1024


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums over the active pairs of each cut group.

    Attributes
    ----------
    loss : ndarray of float64, shape (groups,)
        Sum of the weights of active pairs times ``margin - (s_i - s_j)``; not divided by m.
    active : ndarray of float64, shape (groups,)
        Sum of their weights.
    """

    loss: Float64Array
    active: Float64Array


def rank_labels(labels: npt.NDArray[Any]) -> tuple[Ranks, int]:
    """Dense ranks of labels, and how many there are.

    Parameters
    ----------
    labels : ndarray, shape (n,)
        Finite.

    Returns
    -------
    ranks : ndarray of int32, shape (n,)
        0 for the lowest label, equal for equal labels.
    n_ranks : int
    """
    distinct, ranks = np.unique(labels, return_inverse=True)
    return ranks.astype(np.int32), len(distinct)


def pairs_of_sizes(sizes: Iterable[int]) -> int:
    """Pairs of rows of different rank, exactly, whatever their number.

    Parameters
    ----------
    sizes : iterable of int
        Rows of each rank.
    """
    rows = pairs = 0
    for size in sizes:
        pairs += rows * int(size)
        rows += int(size)
    return pairs


def check_trainable(pairs: int) -> None:
    """Refuse what counts of 64 bits cannot hold.

    Raises
    ------
    InputError
        If there are no pairs, or more than 2^63 - 1.
    """
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
    plus: Counts,
    minus: Counts,
    *,
    weights: Float64Array | None = None,
    first_row: int = 0,
    margin: float = 1.0,
    threads: int = 1,
) -> PairSums:
    """Count the active pairs of every row; all rows are one group.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
        Finite.
    ranks : ndarray of int32, shape (n,)
        From 0 to ``n_ranks - 1``; see `rank_labels`.
    n_ranks : int
    plus : ndarray of int64 (float64 with weights), shape (n,)
        Out: active pairs in which the row is the higher one.
    minus : ndarray of int64 (float64 with weights), shape (n,) or (n, groups)
        Out: active pairs in which the row is the lower one; with several columns, column g counts those whose
        higher row has a number that leaves the remainder g.
    weights : ndarray of float64, shape (n,), optional
    first_row : int
        Number of the first row.
    margin : float
    threads : int
        The result does not depend on them.

    Returns
    -------
    PairSums
    """
    wrap = MemoryVector.wrap
    own, out = (wrap(scores), wrap(ranks)), (wrap(plus), [wrap(column) for column in _columns(minus).T])
    if can_look_up(len(scores), n_ranks, weights is not None):
        found = TwoRanks(*own, len(out[1]), first_row, margin, threads)
        for start, stop in row_slices(len(scores)):
            out[0].write(start, found.plus.read(start, stop))
            for target, column in zip(out[1], found.minus, strict=True):
                target.write(start, column.read(start, stop))
    else:
        given = None if weights is None else wrap(weights)
        with RowVectors(len(scores), _NO_LIMIT) as scratch:
            sweep = PairSweep(*own, n_ranks, given, len(out[1]), scratch, len(scores), threads)
            sweep.count(margin, first_row, *out)
    return pair_sums(own[0], *out, first_row, margin)


def count_pairs_external(
    scores: RowVector,
    ranks: RowVector,
    n_ranks: int,
    plus: RowVector,
    minus: Sequence[RowVector],
    *,
    memory_bytes: int,
    scratch_dir: str | os.PathLike[str] | None = None,
    weights: RowVector | None = None,
    margin: float = 1.0,
) -> PairSums:
    """Count the active pairs of every row, in bounded memory; the same numbers as `count_pairs` gives.

    Rows are dealt out by score to parts that fit the memory and sorted there; the sweeps stream over them;
    with many ranks, rows are then dealt out by rank; and at last back by row. Each is one sequential read and
    write of 24 to 36 bytes a row and 8 more for each cut group beyond the first.

    Parameters
    ----------
    scores, ranks : RowVector of float64 and of int32
    n_ranks : int
    plus : RowVector of int64 (float64 with weights)
        Out.
    minus : sequence of RowVector of int64 (float64 with weights)
        Out: one a cut group.
    memory_bytes : int
        What this may use beside the vectors (some megabytes are always used).
    scratch_dir : path, optional
        See `ooc_svm.rowvectors.vector.RowVectors`.
    weights : RowVector of float64, optional
    margin : float

    Returns
    -------
    PairSums

    Raises
    ------
    StorageError
        If the scratch files cannot be made, written or read.
    """
    half = memory_bytes // 2
    with RowVectors(scores.n_rows, half, scratch_dir) as scratch:
        most = half // ROW_BYTES
        PairSweep(scores, ranks, n_ranks, weights, len(minus), scratch, most).count(margin, 0, plus, minus)
    return pair_sums(scores, plus, minus, 0, margin)


def count_in_groups(
    scores: Float64Array,
    ranks: Ranks,
    starts: Int64Array,
    plus: Counts,
    minus: Counts,
    *,
    weights: Float64Array | None = None,
    first_row: int = 0,
    margin: float = 1.0,
) -> PairSums:
    """Count the active pairs of every row, pairs being only inside groups of adjacent rows (queries).

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
    ranks : ndarray of int32, shape (n,)
        Compared inside a group only; they need not be dense there.
    starts : ndarray of int64, shape (n_groups + 1,)
        Group g is the rows ``starts[g] <= i < starts[g + 1]`` of the arrays; other rows get zeros.
    plus, minus : ndarrays
        Out: see `count_pairs`.
    weights : ndarray of float64, shape (n_groups,), optional
        What each pair of a group weighs; counts are then float64.
    first_row : int
        Number of the arrays' first row, which decides its cut group.
    margin : float

    Returns
    -------
    PairSums
        Over all groups.
    """
    columns = _columns(minus)
    plus[:] = 0
    columns[:] = 0
    sweep_loops.count_small(scores, ranks, starts, weights, _SMALL, first_row, margin, plus, columns)
    for group in np.flatnonzero(np.diff(starts) > _SMALL).tolist():
        rows = slice(int(starts[group]), int(starts[group + 1]))
        own, n_ranks = rank_labels(ranks[rows])
        up, down = np.empty(len(own), np.int64), np.empty((len(own), columns.shape[1]), np.int64)
        count_pairs(scores[rows], own, n_ranks, up, down, first_row=first_row + rows.start, margin=margin)
        plus[rows] = up if weights is None else up * weights[group]
        columns[rows] = down if weights is None else down * weights[group]
    wrap = MemoryVector.wrap
    return pair_sums(wrap(scores), wrap(plus), [wrap(column) for column in columns.T], first_row, margin)


@dataclass(frozen=True, slots=True)
class SliceSums:
    """What some adjacent rows add to sums over the active pairs, by cut group.

    Attributes
    ----------
    active : ndarray of float64, shape (groups,)
        Weight of the pairs of which the higher row is one of them.
    dots : ndarray of float64, shape (groups, 2, n_vectors)
        For some row vectors v: ``sum_i plus_i v_i`` and ``sum_j minus_j v_j``.
    """

    active: Float64Array
    dots: Float64Array


def slice_sums(vectors: Float64Array, plus: Counts, minus: Sequence[Counts], first_row: int) -> SliceSums:
    """Sums over some adjacent rows, from their counts and the row vectors (n_vectors, rows)."""
    groups = len(minus)
    active, dots = np.empty(groups), np.empty((groups, 2, len(vectors)))
    for group, column in enumerate(minus):
        first = (group - first_row) % groups
        active[group] = plus[first::groups].sum()
        sweep_loops.dots(plus, vectors, first, groups, dots[group, 0])
        sweep_loops.dots(np.ascontiguousarray(column), vectors, 0, 1, dots[group, 1])
    return SliceSums(active, dots)


def add_slices(slices: Sequence[SliceSums], vector: int, margin: float) -> PairSums:
    """Loss and weight of the active pairs of each cut group, from the sums over slices of fixed length.

    The loss is ``margin sum_i plus_i - sum_i plus_i v_i + sum_j minus_j v_j``, of the row vector of that
    number; sums of slices are added without rounding.
    """
    active, dots = np.stack([own.active for own in slices]), np.stack([own.dots for own in slices])
    total = np.array([math.fsum(parts) for parts in active.T])
    moved = [math.fsum(np.concatenate([-up, down])) for up, down in dots[..., vector].transpose(1, 2, 0)]
    return PairSums(margin * total + moved, total)


def pair_sums(
    scores: RowVector, plus: RowVector, minus: Sequence[RowVector], first_row: int, margin: float
) -> PairSums:
    """Loss and weight of the active pairs of each cut group, from the counts of all rows."""
    slices = []
    for start, stop in row_slices(scores.n_rows) if scores.n_rows else [(0, 0)]:
        counts = plus.read(start, stop), [column.read(start, stop) for column in minus]
        slices.append(slice_sums(scores.read(start, stop)[np.newaxis], *counts, first_row + start))
    return add_slices(slices, 0, margin)


def _columns(minus: Counts) -> Counts:
    return minus if minus.ndim == 2 else minus[:, np.newaxis]
