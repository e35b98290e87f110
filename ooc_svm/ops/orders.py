"""Pairs of rows counted from sorted scores (Joachims 2006, Algorithm 2).

Rows with ranks y and scores s; a pair (i, j) has ``y_i > y_j`` and is active while ``s_i - s_j < margin``.
One side of the count is one sweep: rows in ascending order of their scores, and ahead of each row the rows
whose scores are less than the margin above its own have been inserted into a tree by their rank; how many of
them have a higher rank is one look into the tree. The other side is the same sweep of the mirrored rows
(scores negated, ranks and order reversed). The paper keeps a counter a rank, O(R n) for R ranks; the tree
makes that O(n log R), and is that counter array while there are few ranks.

A tree of ranks has 16 children a node. Level l is an array over ``rank >> 4 l``; an entry sums what was
inserted below its siblings with a larger number. So a look reads one entry a level, and an insertion adds to
a part of one node (a cache line or two) a level.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled

_BITS = 4
_FANOUT = 1 << _BITS


@compiled
def tree_size(n_ranks):  # type: ignore[no-untyped-def]
    """Entries of the tree of so many ranks."""
    size = 0
    entries = n_ranks
    while True:
        entries = (entries + _FANOUT - 1) >> _BITS
        size += entries << _BITS
        if entries <= 1:
            return size


@compiled
def insert(tree, n_ranks, rank, amount):  # type: ignore[no-untyped-def]
    """Add `amount` at `rank`."""
    first = 0
    entries = n_ranks
    while True:
        node = rank >> _BITS
        start = first + (node << _BITS)
        for k in range(start, first + rank):
            tree[k] += amount
        entries = (entries + _FANOUT - 1) >> _BITS
        first += entries << _BITS
        if entries <= 1:
            return
        rank = node


@compiled
def above(tree, n_ranks, rank):  # type: ignore[no-untyped-def]
    """Sum of what was inserted at higher ranks."""
    first = 0
    entries = n_ranks
    total = tree[rank]
    while True:
        entries = (entries + _FANOUT - 1) >> _BITS
        if entries <= 1:
            return total
        first += entries << _BITS
        rank >>= _BITS
        total += tree[first + rank]


@compiled
def sweep(scores, ranks, n_ranks, weights, rows, groups, group, margin, tree, out):  # type: ignore[no-untyped-def]
    """For each row, sum over the rows of a cut group that have a higher rank and form an active pair with it.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,), ascending
    ranks : ndarray of int32, shape (n,)
    n_ranks : int
    weights : ndarray of float64, shape (n,), or None
        Of the rows in this order; None counts.
    rows : ndarray of int64, shape (n,)
        Number of each row.
    groups, group : int
        Rows whose number leaves the remainder `group` are summed over.
    margin : float
    tree : ndarray of out's dtype, shape (tree_size(n_ranks),)
        All zero.
    out : ndarray of int64 or float64, shape (n,)
    """
    n = len(scores)
    q = 0
    for k in range(n):
        while q < n and scores[q] - scores[k] < margin:
            if groups == 1 or rows[q] % groups == group:
                if weights is None:
                    insert(tree, n_ranks, ranks[q], 1)
                else:
                    insert(tree, n_ranks, ranks[q], weights[q])
            q += 1
        total = above(tree, n_ranks, ranks[k])
        if weights is not None:
            total *= weights[k]
        out[k] = total


@compiled
def add_sums(scores, plus, minus, first_row, margin, sums):  # type: ignore[no-untyped-def]
    """Add loss and weight of the active pairs of some rows, by cut group.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
    plus : ndarray of int64 or float64, shape (n,)
    minus : ndarray of int64 or float64, shape (n, groups)
    first_row : int
        Number of the first row.
    margin : float
    sums : ndarray of float64, shape (4, groups)
        Loss and active weight, and below them what rounding has lost of each (compensated summation).
    """
    groups = sums.shape[1]
    for i in range(len(scores)):
        own = (first_row + i) % groups
        _add(sums, 0, own, np.float64(plus[i]) * (margin - scores[i]))
        _add(sums, 1, own, np.float64(plus[i]))
        for g in range(groups):
            _add(sums, 0, g, np.float64(minus[i, g]) * scores[i])


@compiled
def _add(sums, line, g, term):  # type: ignore[no-untyped-def]
    """Add a term after Neumaier: what the sum cannot hold goes into the line two below."""
    old = sums[line, g]
    new = old + term
    if abs(old) >= abs(term):
        sums[line + 2, g] += (old - new) + term
    else:
        sums[line + 2, g] += (term - new) + old
    sums[line, g] = new
