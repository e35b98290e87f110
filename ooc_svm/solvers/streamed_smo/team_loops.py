"""Long rows that several threads work on together, with the bits of one.

The elements of a row lie in parts by their columns, and each thread of a team has some of the parts: it alone
reads and changes the weights of their columns, which stay in its own cache. One thread, the leader, decides
on the steps. It hands out a ticket for each row: the change of the row before, which is still to be added to
the weights, and the row whose product is wanted. Each thread does both for its parts, and the leader sums up
the products, part after part. So nothing depends on who has which parts: others, the helpers, come and go
between two tickets, and a leader alone has all.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.atomics import SPINS, add_release, load_acquire, store_release, wait_a_moment
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.intrinsics import prefetch
from ooc_svm.ops.rows import add_row, dot

# Columns side by side are of one part: those of two cache lines, since processors fetch pairs of them. A row
# has no more elements in them, so that its parts are about as long.
LOG_COLUMNS = 4

# Places in the words of a team: lines of the leader's, one for what helpers wish, then some of each helper's.
LINE = 32
TICKET, ADDED, CHANGE, NEXT, LATER, FAR, OWN = range(7)  # OWN: the leader has the parts before this one
WISHES, SEEN, SOLVE = LINE, LINE + 16, LINE + 17  # Wishes so far; those granted; the solve's number, or 0
HELPERS = 2 * LINE
# In a helper's lines: the solve that it wishes to take part in, or `TO_LEAVE`; the first ticket that it does,
# `NOT_YET` or `LET_GO`; its parts; whether it was late. In others the last ticket that it has done, and the
# products of its parts, where the leader has its own; and looks of the leader that waited for it.
WISH, SINCE, FIRST, LAST, LATE = range(5)
DONE, PRODUCTS, WAITED = 8, 9, 28
TO_LEAVE = -1
NOT_YET, LET_GO = 0, -1

NO_ROW = -1

# Nonzeros that a helper works on for each look of a leader that waits for it, if it is of use: a look takes
# about as long.
WORTH = 20


@compiled
def part_rows(indptr, indices, values, first, cuts):  # type: ignore[no-untyped-def]
    """Put the elements of the rows from ``first`` on in parts, in place; those of a part keep their order.

    ``cuts`` (uint32, shape (m, parts + 1)): where the parts of each row begin and end in it (out); the number
        of parts is a power of two.
    """
    n_parts = cuts.shape[1] - 1
    mask, shift = np.uint64(n_parts - 1), np.uint64(LOG_COLUMNS)
    longest = np.int64(0)
    for i in range(len(cuts)):
        longest = max(longest, np.int64(indptr[first + i + 1] - indptr[first + i]))
    ids = np.empty(longest, indices.dtype)
    numbers = np.empty(0 if values is None else longest)
    at = np.empty(n_parts + 1, np.int64)
    for i in range(len(cuts)):
        p, n = indptr[first + i], np.int64(indptr[first + i + 1] - indptr[first + i])
        at[:] = 0
        for q in range(n):
            ids[q] = indices[p + np.uint64(q)]
            if values is not None:
                numbers[q] = values[p + np.uint64(q)]
            at[((np.uint64(ids[q]) >> shift) & mask) + np.uint64(1)] += 1
        for part in range(n_parts):
            at[part + 1] += at[part]
        for part in range(n_parts + 1):
            cuts[i, part] = at[part]
        for q in range(n):
            own = (np.uint64(ids[q]) >> shift) & mask
            to = p + np.uint64(at[own])
            indices[to] = ids[q]
            if values is not None:
                values[to] = numbers[q]
            at[own] += 1


@inlined
def prefetch_elements(indices, values, p, end):  # type: ignore[no-untyped-def]
    """Ask for elements that lie side by side."""
    while p < end:
        prefetch(indices, p)
        if values is not None:
            prefetch(values, p)
            if values.itemsize == 8:
                prefetch(values, p + np.uint64(8))
        p += np.uint64(16)


@inlined
def _work(  # type: ignore[no-untyped-def]
    indptr, indices, values, cuts, scale2, w, numbers, added, change, row, later, far, first, last, out
):  # fmt: skip
    """What a ticket asks for, in some parts; their products go to ``numbers`` from ``out`` on."""
    if later != NO_ROW:
        prefetch(indptr, np.uint64(far))
        prefetch(cuts, np.uint64(far) * np.uint64(cuts.shape[1]))
        start = indptr[np.uint64(later)]
        p, end = start + cuts[np.uint64(later), first], start + cuts[np.uint64(later), last]
        prefetch_elements(indices, values, p, end)
    for part in range(first, last):
        if change != 0.0:
            i = np.uint64(added)
            p, end = indptr[i] + cuts[i, part], indptr[i] + cuts[i, part + 1]
            add_row(indices, values, scale2, w, p, end, change)
        if row != NO_ROW:
            i = np.uint64(row)
            p, end = indptr[i] + cuts[i, part], indptr[i] + cuts[i, part + 1]
            numbers[out + part - first] = dot(indices, values, w, p, end)


@inlined
def _ticket(  # type: ignore[no-untyped-def]
    indptr, indices, values, cuts, scale2, w, words, numbers, added, change, row, later, far
):  # fmt: skip
    """Hand out a ticket, do the leader's part of it and wait for the others; the product that is wanted."""
    n_parts, part, ticket = cuts.shape[1] - 1, words[OWN], words[TICKET] + 1
    words[ADDED], words[NEXT], words[LATER], words[FAR], numbers[CHANGE] = added, row, later, far, change
    store_release(words, TICKET, ticket)
    _work(
        indptr, indices, values, cuts, scale2, w, numbers, added, change, row, later, far, 0, part, PRODUCTS
    )
    total = 0.0
    for own in range(part):
        total += numbers[PRODUCTS + own]
    line = HELPERS
    while part < n_parts:
        if words[line + SINCE] > 0:
            looks = 0
            while load_acquire(words, line + DONE) != ticket:
                wait_a_moment(looks)
                looks += 1
            words[line + WAITED] += looks
            # It may have no processor.
            if looks > SPINS:
                words[line + LATE] = 1
                words[SEEN] = -1
            while part < words[line + LAST]:
                total += numbers[line + PRODUCTS + part - words[line + FIRST]]
                part += 1
        line += LINE
    return total


@compiled
def _share_out(words, n_parts):  # type: ignore[no-untyped-def]
    """Let those go that want to or were late, and give the parts to the others.

    No ticket is under way. A change that is still to be added is added by those that have the parts then.
    """
    solve = words[SOLVE]
    words[SEEN] = load_acquire(words, WISHES)
    n_threads = 1
    for line in range(HELPERS, len(words), LINE):
        since = words[line + SINCE]
        wanted = solve != 0 and load_acquire(words, line + WISH) == solve
        if since == NOT_YET and wanted:
            # The helper looks for its parts when it sees the ticket.
            store_release(words, line + SINCE, words[TICKET] + 1)
            n_threads += 1
        elif since > 0 and wanted and not words[line + LATE]:
            n_threads += 1
        elif since > 0:
            store_release(words, line + SINCE, LET_GO)
    words[OWN], k = n_parts // n_threads, 1
    for line in range(HELPERS, len(words), LINE):
        if words[line + SINCE] > 0:
            words[line + FIRST] = n_parts * k // n_threads
            k += 1
            words[line + LAST] = n_parts * k // n_threads


@compiled
def open_solve(words, n_parts, number):  # type: ignore[no-untyped-def]
    """Begin the solve of a number, without helpers yet; 0: the last one has ended, and they may go."""
    store_release(words, SOLVE, number)
    _share_out(words, n_parts)


@inlined
def product(  # type: ignore[no-untyped-def]
    indptr, indices, values, cuts, scale2, w, words, numbers, added, change, row, later, far
):  # fmt: skip
    """``x.w`` of a row, after ``w += change x`` of the row ``added``.

    ``cuts``: see `part_rows`.
    ``words`` (int64), ``numbers`` (float64): the words of the team, in the same memory.
    ``later``, ``far``: rows whose products are wanted soon.
    """
    if load_acquire(words, WISHES) != words[SEEN]:
        _share_out(words, cuts.shape[1] - 1)
    return _ticket(
        indptr, indices, values, cuts, scale2, w, words, numbers, np.int64(added), change, np.int64(row),
        np.int64(later), np.int64(far),
    )  # fmt: skip


@compiled
def add_rest(indptr, indices, values, cuts, scale2, w, words, numbers, added, change):  # type: ignore[no-untyped-def]
    """``w += change x`` of the row ``added``, no product being wanted next."""
    _ticket(
        indptr, indices, values, cuts, scale2, w, words, numbers, np.int64(added), change, NO_ROW, NO_ROW,
        NO_ROW,
    )  # fmt: skip


@compiled
def help_out(  # type: ignore[no-untyped-def]
    indptr, indices, values, cuts, scale2, w, words, numbers, solve, line, most
):  # fmt: skip
    """Take part in a solve for so many rows at most; whether that was of use.

    The first arguments are those of `product`. ``line``: of this helper in the words.
    """
    words[line + SINCE], words[line + LATE], words[line + WAITED] = NOT_YET, 0, 0
    store_release(words, line + WISH, solve)
    add_release(words, WISHES, 1)
    looks = 0
    while load_acquire(words, line + SINCE) == NOT_YET and load_acquire(words, SOLVE) == solve:
        wait_a_moment(looks)
        looks += 1
    ticket, n_rows, n_elements = load_acquire(words, line + SINCE), 0, np.int64(0)
    while ticket > 0:
        looks = 0
        while load_acquire(words, TICKET) < ticket and load_acquire(words, line + SINCE) != LET_GO:
            wait_a_moment(looks)
            looks += 1
        # Once more: the ticket may be one of those that stay.
        if load_acquire(words, line + SINCE) == LET_GO:
            break
        row, first, last = words[NEXT], words[line + FIRST], words[line + LAST]
        _work(
            indptr, indices, values, cuts, scale2, w, numbers, words[ADDED], numbers[CHANGE], row,
            words[LATER], words[FAR], first, last, line + PRODUCTS,
        )  # fmt: skip
        if row != NO_ROW:
            n_elements += np.int64(cuts[row, last]) - np.int64(cuts[row, first])
        store_release(words, line + DONE, ticket)
        ticket += 1
        n_rows += 1
        if n_rows == most:
            store_release(words, line + WISH, TO_LEAVE)
            add_release(words, WISHES, 1)
    store_release(words, line + WISH, TO_LEAVE)
    return words[line + LATE] == 0 and WORTH * words[line + WAITED] <= n_elements
