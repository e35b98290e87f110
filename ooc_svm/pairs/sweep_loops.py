"""Pairs of rows counted by sweeps over sorted scores (Joachims 2006, Algorithm 2).

Rows with ranks y and scores s; a pair (i, j) has ``y_i > y_j`` and is active while ``s_i - s_j < margin``.
One side of the count is one sweep: rows in ascending order of their scores, and ahead of each row those whose
scores are less than the margin above its own have been inserted into a tree by their rank; how many of them
have a higher rank is one look into the tree. The other side is the same sweep of the mirrored rows
(descending, ranks reversed). The paper keeps a counter a rank, O(R n) for R ranks; the tree makes that
O(n log R), and is that array of counters while there are few ranks.

A tree of ranks has 8 children a node. Level l is an array over ``rank >> 3 l``; an entry sums what was
inserted below its siblings with a larger number. So a look reads one entry a level, and an insertion adds to
a part of one node (one cache line) a level.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled

_BITS = np.uint64(3)
_REST = np.uint64(7)
_ONE = np.uint64(1)
_FANOUT = 8


def tree_size(n_ranks: int) -> int:
    """Entries of the tree of so many ranks."""
    bits, rest = int(_BITS), int(_REST)
    entries = (n_ranks + rest) >> bits
    size = entries << bits
    while entries > 1:
        entries = (entries + rest) >> bits
        size += entries << bits
    return size


@compiled
def insert(tree, n_ranks, rank, amount):  # type: ignore[no-untyped-def]
    """Add `amount` (of the tree's type) at `rank` (uint64, as `n_ranks`)."""
    nothing = amount - amount
    first = np.uint64(0)
    nodes = n_ranks
    while True:
        node = rank >> _BITS
        start, child = first + (node << _BITS), np.uint32(rank & _REST)
        # All of the node, so that it is one operation on a vector without a branch.
        for k in range(_FANOUT):
            tree[start + np.uint64(k)] += amount if np.uint32(k) < child else nothing
        nodes = (nodes + _REST) >> _BITS
        if nodes <= _ONE:
            return
        first += nodes << _BITS
        rank = node


@compiled
def above(tree, n_ranks, rank):  # type: ignore[no-untyped-def]
    """Sum of what was inserted at ranks higher than `rank` (uint64, as `n_ranks`)."""
    total = tree[rank]
    first = np.uint64(0)
    nodes = n_ranks
    while True:
        nodes = (nodes + _REST) >> _BITS
        if nodes <= _ONE:
            return total
        first += nodes << _BITS
        rank >>= _BITS
        total += tree[first + rank]


@compiled
def sweep(  # type: ignore[no-untyped-def]
    scores, ranks, rows, weights, q, is_last, own_scores, own_ranks, own_weights, k, out,
    direction, low, shift, n_ranks, groups, group, margin, tree,
):  # fmt: skip
    """Add to each row the weight of the rows of higher rank (lower, going down) in active pairs with it.

    Two windows move over the sorted rows, one after the other: of those being inserted and of those being
    counted. Where a window ends before the other is done, the caller moves it and calls again.

    Parameters
    ----------
    scores, ranks, rows, weights : ndarrays, one length
        The window to insert, scores ascending: float64, int32, uint32 or int64, float64 or None (count).
    q : int
        Rows of it inserted so far, from its beginning (end, going down).
    is_last : bool
        Whether no rows to insert follow this window.
    own_scores, own_ranks, own_weights : ndarrays of float64, int32, float64 (or None), one length
        The window to count for.
    k : int
        Rows of it done so far.
    out : ndarray of uint32 or int64, or of float64 with weights
        Added to, in the places of the window to count for.
    direction : int
        1: from low scores to high, higher ranks are summed; -1: the other way, lower ranks are.
    low, shift, n_ranks : int
        The tree is over ``(rank - low) >> shift``, which is below `n_ranks`.
    groups, group : int
        Only rows whose number leaves the remainder `group` are inserted.
    margin : float
    tree : ndarray of out's type, shape (tree_size(n_ranks),)
        All zero at the beginning of a sweep.

    Returns
    -------
    q, k : int
    """
    up = direction > 0
    size, last = np.uint64(n_ranks), np.uint64(n_ranks - 1)
    end, own_end = np.uint64(len(scores)), np.uint64(len(own_scores))
    q, k = np.uint64(q), np.uint64(k)
    while k < own_end:
        i = k if up else own_end - _ONE - k
        while q < end:
            j = q if up else end - _ONE - q
            if (scores[j] - own_scores[i] if up else own_scores[i] - scores[j]) >= margin:
                break
            if groups == 1 or rows[j] % groups == group:
                digit = np.uint64((ranks[j] - low) >> shift)
                if weights is None:
                    insert(tree, size, digit if up else last - digit, np.uint32(1))
                else:
                    insert(tree, size, digit if up else last - digit, weights[j])
            q += _ONE
        if q == end and not is_last:
            break
        digit = np.uint64((own_ranks[i] - low) >> shift)
        total = above(tree, size, digit if up else last - digit)
        if own_weights is None:
            out[i] += total
        else:
            out[i] += own_weights[i] * total
        k += _ONE
    return np.int64(q), np.int64(k)


@compiled
def count_small(scores, ranks, starts, weights, most, first_row, margin, plus, minus):  # type: ignore[no-untyped-def]
    """Count the active pairs inside groups of few adjacent rows by looking at all of them.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
    ranks : ndarray of int32, shape (n,)
    starts : ndarray of int64, shape (n_groups + 1,)
    weights : ndarray of float64, shape (n_groups,), or None
        What each pair of a group weighs.
    most : int
        Groups of more rows are left out.
    first_row : int
        Number of the first row.
    margin : float
    plus : ndarray of int64, or of float64 with weights, shape (n,)
        Zeros; gets the weight of the pairs in which the row is the higher one.
    minus : ndarray of the same type, shape (n, cut groups)
        Zeros; gets the weight of those in which it is the lower one, by the cut group of the higher one.
    """
    cut_groups = minus.shape[1]
    flat = minus.ravel()
    for g in range(len(starts) - 1):
        start, stop = starts[g], starts[g + 1]
        if stop - start > most:
            continue
        own_scores, own_ranks = scores[start:stop], ranks[start:stop]
        for i in range(stop - start):
            score, rank = own_scores[i], own_ranks[i]
            up = np.int64(0)
            # Products of truth values and arrays without gaps: the loop becomes operations on vectors.
            if cut_groups == 1:
                down = flat[start:stop]
                for j in range(stop - start):
                    active = np.int64(own_ranks[j] < rank) * np.int64(score - own_scores[j] < margin)
                    up += active
                    down[j] += active
            else:
                column = (first_row + start + i) % cut_groups
                for j in range(stop - start):
                    active = np.int64(own_ranks[j] < rank) * np.int64(score - own_scores[j] < margin)
                    up += active
                    minus[start + j, column] += active
            plus[start + i] = up
        if weights is not None:
            for i in range(start, stop):
                plus[i] *= weights[g]
                for group in range(cut_groups):
                    minus[i, group] *= weights[g]


@compiled
def dots(counts, vectors, first, step, out):  # type: ignore[no-untyped-def]
    """``out[v]``: the sum of ``counts[i] vectors[v, i]`` over ``i = first, first + step, ...``.

    Parameters
    ----------
    counts : ndarray of int64 or float64, shape (n,)
    vectors : ndarray of float64, shape (n_vectors, n)
    first, step : int
    out : ndarray of float64, shape (n_vectors,)
        Products are added in four interleaved sums.
    """
    n, step = np.uint64(len(counts)), np.uint64(step)
    for v in range(len(vectors)):
        vector = vectors[v]
        s0 = s1 = s2 = s3 = 0.0
        i = np.uint64(first)
        j, k, m = i + step, i + step + step, i + step + step + step
        while m < n:
            s0 += np.float64(counts[i]) * vector[i]
            s1 += np.float64(counts[j]) * vector[j]
            s2 += np.float64(counts[k]) * vector[k]
            s3 += np.float64(counts[m]) * vector[m]
            i, j, k, m = m + step, m + step + step, m + step + step + step, m + step * np.uint64(4)
        while i < n:
            s0 += np.float64(counts[i]) * vector[i]
            i += step
        out[v] = (s0 + s1) + (s2 + s3)
