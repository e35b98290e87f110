"""Sums over rows in the order of their scores, rows of equal scores together.

A **run** is the rows of one query that have equal scores. Runs come in ascending order, so the rows that are
ranked higher than a run are those still left after it. What a run adds follows from the number of its rows
and the sum of their gains, never from their order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@compiled
def tie_runs(
    scores: Floats, gains: Floats, starts: Integers, rows: Integers, sums: Floats, run_starts: Integers
) -> int:
    """Set `rows` and `sums` to the rows of each run and their gains, added in the order of the rows.

    Query g is the rows ``starts[g] <= i < starts[g + 1]``, scores ascending; its runs become
    ``run_starts[g] <= r < run_starts[g + 1]``. Returns the number of runs.
    """
    run = -1
    for g in range(len(starts) - 1):
        run_starts[g] = run + 1
        for i in range(starts[g], starts[g + 1]):
            if i == starts[g] or scores[i] != scores[i - 1]:
                run += 1
                rows[run] = 0
                sums[run] = 0.0
            rows[run] += 1
            sums[run] += gains[i]
    run_starts[len(starts) - 1] = run + 1
    return run + 1


@compiled
def discounted_gain(rows: Integers, sums: Floats, discounts: Floats) -> float:
    """Discounted cumulative gain of a query: the gains of its first ranks, divided by their discounts.

    Rows of a run have the mean of its gains each. The highest run is the last; the lowest ones may be missing
    where they are not ranked. Entry j of `discounts`, shape (k + 1,), is the sum of the discounts of the
    first j ranks; ranks from k on do not count.
    """
    k = len(discounts) - 1
    end = rows.sum()
    total = 0.0
    for r in range(len(rows)):
        start = end - rows[r]
        if start < k:
            total += sums[r] / rows[r] * (discounts[min(end, k)] - discounts[start])
        end = start
    return total


@compiled
def discounted_gains(
    rows: Integers, sums: Floats, run_starts: Integers, discounts: Floats, out: Floats
) -> None:
    """`discounted_gain` of each query; see `tie_runs`."""
    for g in range(len(out)):
        first, last = run_starts[g], run_starts[g + 1]
        out[g] = discounted_gain(rows[first:last], sums[first:last], discounts)


@compiled
def add_precisions(
    rows: Integers, relevant: Floats, rows_left: int, relevant_left: float, total: float
) -> float:
    """Add to `total`, for each relevant row, the precision of the rows ranked as high as itself or higher.

    `rows` and `relevant` count those of each run, `rows_left` and `relevant_left` those of these and all
    higher runs.
    """
    for r in range(len(rows)):
        total += relevant[r] * (relevant_left / rows_left)
        rows_left -= rows[r]
        relevant_left -= relevant[r]
    return total


@compiled
def precision_sums(rows: Integers, relevant: Floats, run_starts: Integers, out: Floats) -> None:
    """`add_precisions` of each query, beginning at 0; see `tie_runs`."""
    for g in range(len(out)):
        first, last = run_starts[g], run_starts[g + 1]
        own, hits = rows[first:last], relevant[first:last]
        out[g] = add_precisions(own, hits, own.sum(), hits.sum(), 0.0)
