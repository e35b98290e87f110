"""Pairs of rows counted by sweeps over sorted scores (Joachims 2006, Algorithm 2).

Rows have ranks y and scores s; a pair (i, j) has ``y_i > y_j`` and is active while ``s_i - s_j < margin``.
One sweep counts one side: it visits the rows in ascending order of their scores, after it has inserted into
a tree, by rank, all rows whose scores are less than the margin above that of the visited row. The tree then
gives the number of those of higher rank. The other side is the same sweep of the mirrored rows (descending,
ranks reversed). The paper keeps one counter for each rank, O(R n) for R ranks; with the tree it is
O(n log R), and the tree is that array of counters where there are few ranks.

Each node of the tree has 8 children. Level l is an array over ``rank >> 3 l``; an entry is the sum of all
amounts inserted below its siblings with a larger number. So a look-up reads one entry of each level, and an
insertion adds to one node (one cache line) of each level.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled

_BITS = np.uint64(3)
_REST = np.uint64(7)
_ONE = np.uint64(1)
_FANOUT = 8


def tree_size(n_ranks: int) -> int:
    """Number of entries of the tree of `n_ranks` ranks."""
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
        # The whole node, so that this is one vector operation without a branch.
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
    direction, low, shift, n_ranks, n_slacks, slack, margin, tree,
):  # fmt: skip
    """Add to each row the weight of the rows of higher rank (lower, going down) in active pairs with it.

    Two windows move over the sorted rows: of those being inserted, and of those being visited. Where one ends
    before the other is done, the function returns; the caller moves that window and calls again.

    Parameters
    ----------
    scores, ranks, rows, weights : ndarrays, one length
        The window of inserted rows, scores ascending: float64, int32, uint32 or int64, float64 or None.
    q : int
        Rows of it inserted so far, from its start (from its end if `direction` is -1).
    is_last : bool
        Whether this is the last window to insert.
    own_scores, own_ranks, own_weights : ndarrays of float64, int32, float64 (or None), one length
        The window of visited rows.
    k : int
        Rows of it visited so far.
    out : ndarray of uint32 or int64, or of float64 with weights
        Added to, at the places of the visited rows.
    direction : int
        1: from low scores to high, sums over higher ranks; -1: from high to low, sums over lower ranks.
    low, shift, n_ranks : int
        The tree is over ``(rank - low) >> shift``, which is below `n_ranks`.
    n_slacks, slack : int
        Only rows whose number modulo `n_slacks` is `slack` are inserted.
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
            if n_slacks == 1 or rows[j] % n_slacks == slack:
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
    """Count the active pairs inside queries of few adjacent rows by comparing all of them.

    Queries of more than `most` rows are left out. `weights` (n_queries,) are those of each pair of a query,
    or None. `plus`, shape (n,), and `minus`, shape (n, n_slacks), are zeros of int64, or of float64 with
    weights, and become the weight of the pairs in which the row is the higher one, and by slack block the
    lower one.
    """
    n_slacks = minus.shape[1]
    flat = minus.ravel()
    for q in range(len(starts) - 1):
        start, stop = starts[q], starts[q + 1]
        if stop - start > most:
            continue
        own_scores, own_ranks = scores[start:stop], ranks[start:stop]
        for i in range(stop - start):
            score, rank = own_scores[i], own_ranks[i]
            up = np.int64(0)
            # Products of truth values, and contiguous arrays, so that the loop is vectorised.
            if n_slacks == 1:
                down = flat[start:stop]
                for j in range(stop - start):
                    active = np.int64(own_ranks[j] < rank) * np.int64(score - own_scores[j] < margin)
                    up += active
                    down[j] += active
            else:
                column = (first_row + start + i) % n_slacks
                for j in range(stop - start):
                    active = np.int64(own_ranks[j] < rank) * np.int64(score - own_scores[j] < margin)
                    up += active
                    minus[start + j, column] += active
            plus[start + i] = up
        if weights is not None:
            for i in range(start, stop):
                plus[i] *= weights[q]
                for slack in range(n_slacks):
                    minus[i, slack] *= weights[q]


@compiled
def dots(counts, vectors, first, step, out):  # type: ignore[no-untyped-def]
    """Set ``out[v]`` to the sum of ``counts[i] vectors[v, i]`` over ``i = first, first + step, ...``.

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
