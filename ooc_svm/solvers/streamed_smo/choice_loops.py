"""Loops over rows that tell which are kept, and which are those of a round.

The best rows are those of the highest levels of priority, of which there are 2^16: of a level the first ones.
To count what each level takes is five times as fast as to sort.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.losses.functions import FREE_PRIORITY
from ooc_svm.ops.compiled import compiled, inlined

HIGHEST_PRIORITY = 4.0
_STEPS, _LEVELS = 16383.0, 1 << 16


@inlined
def _level(priority):  # type: ignore[no-untyped-def]
    """0 for the highest priority; more for lower ones."""
    below = HIGHEST_PRIORITY - priority
    return int(min(below, HIGHEST_PRIORITY) * _STEPS) if below > 0.0 else 0


@compiled
def best_that_fit(priority, sizes, eligible, room, most):  # type: ignore[no-untyped-def]
    """Which of the eligible rows are kept: by falling level, as long as they have room.

    ``priority``: float64, shape (m,).
    ``sizes`` (int64, shape (m,)): the room that each row takes.
    ``eligible``: bool, shape (m,).
    ``room``, ``most``: of all rows that are kept together, and their number.
    """
    kept = eligible.copy()
    total = count = 0
    for i in range(len(sizes)):
        if eligible[i]:
            total += sizes[i]
            count += 1
    if total <= room and count <= most:
        return kept
    taken, numbers = np.zeros(_LEVELS, np.int64), np.zeros(_LEVELS, np.int64)
    for i in range(len(sizes)):
        if eligible[i]:
            level = _level(priority[i])
            taken[level] += sizes[i]
            numbers[level] += 1
    last = 0
    while taken[last] <= room and numbers[last] <= most:
        room -= taken[last]
        most -= numbers[last]
        last += 1
    for i in range(len(sizes)):
        if eligible[i]:
            level = _level(priority[i])
            if level == last:
                # The first row that has no room ends it: smaller ones that follow are worth no more.
                room = room - sizes[i] if sizes[i] <= room and most > 0 else -1
                most -= 1
                kept[i] = room >= 0
            elif level > last:
                kept[i] = False
    return kept


@compiled
def claim(own, priority, least, weight, bound_weight, squarings, worth, wanted):  # type: ignore[no-untyped-def]
    """Note which rows a model wants, and add to their worth to all: a norm of order ``2**squarings``.

    ``own`` (int64, shape (m,)): numbers of the rows; -1 for those that have left meanwhile.
    ``priority`` (float64, shape (m,)): and the lowest of a row that is wanted, ``least``.
    ``weight``, ``bound_weight``: what the priority is multiplied by, of a free row and of others.
    ``worth``, ``wanted``: float64 and bool, of all rows; changed. ``worth`` is a sum of powers.

    Returns which rows are wanted, and what each is worth to the model.
    """
    is_wanted, own_worth = np.empty(len(own), np.bool_), np.empty(len(own))
    for i in range(len(own)):
        of = (weight if priority[i] >= FREE_PRIORITY else bound_weight) * priority[i]
        is_wanted[i], own_worth[i] = own[i] >= 0 and priority[i] >= least, of
        if is_wanted[i]:
            for _ in range(squarings):
                of *= of
            worth[own[i]] += of
            wanted[own[i]] = True
    return is_wanted, own_worth


@compiled
def kept_of(own, is_wanted, kept):  # type: ignore[no-untyped-def]
    """Which of a model's rows are both wanted and kept."""
    found = np.empty(len(own), np.bool_)
    for i in range(len(own)):
        found[i] = is_wanted[i] and kept[own[i]]
    return found


@inlined
def _last_begun(starts, row):  # type: ignore[no-untyped-def]
    """Number of the last of the ranges that begins with this row or before it; -1: none does.

    Numba takes several times as long to compile its own `searchsorted`.
    """
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        if starts[middle] <= row:
            low = middle + 1
        else:
            high = middle
    return low - 1


@compiled
def inside_ranges(ids, starts, stops, steps):  # type: ignore[no-untyped-def]
    """Which of the row numbers are in one of the ranges.

    ``starts``, ``stops``, ``steps`` (int64, shape (k,)): by rising start; ranges that overlap end together.
    """
    found, last, near = np.zeros(len(ids), np.bool_), len(starts) - 1, -1
    for i in range(len(ids)):
        # Most rows have come next to others of their block.
        if (near >= 0 and ids[i] < starts[near]) or (near < last and ids[i] >= starts[near + 1]):
            near = _last_begun(starts, ids[i])
        k = near
        while k >= 0 and ids[i] < stops[k] and not found[i]:
            found[i] = steps[k] == 1 or (ids[i] - starts[k]) % steps[k] == 0
            k -= 1
    return found
