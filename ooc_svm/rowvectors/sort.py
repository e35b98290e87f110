"""Columns of rows partitioned into buckets, and sorted by score, in memory or on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, row_slices
from ooc_svm.errors import InputError
from ooc_svm.ops import sort_keys
from ooc_svm.rowvectors.score_ranges import ScoreRange, score_ranges
from ooc_svm.rowvectors.vector import RowVector

# Leading bits of a key that select a bin: sign, exponent and six bits of the mantissa.
_BIN_BITS = 18
_BIN_SHIFT = np.uint64(64 - _BIN_BITS)

Columns = Sequence[RowVector]
BucketsOf = Callable[[int, int], Int64Array]


def partition(
    sources: Columns,
    targets: Columns,
    start: int,
    stop: int,
    sizes: Int64Array,
    buckets_of: BucketsOf,
    rows: int,
) -> Int64Array:
    """Copy rows so that those of one bucket are adjacent, in their old order.

    The rows ``start .. stop`` are copied to the same range. Sources and targets are in pairs of one dtype;
    `sizes` are the rows of each bucket. `buckets_of` takes the start and stop of a range of rows and returns
    their buckets (int64); `rows` rows are in memory at a time. Returns the bounds of the buckets, shape
    (n_buckets + 1,).
    """
    bounds = np.concatenate(([0], np.cumsum(sizes))) + start
    move = _scatter if all(target.in_memory for target in targets) else _write_buckets
    next_places = bounds[:-1].copy()
    for first, last in row_slices(stop - start, rows):
        own = start + first, start + last
        move(sources, targets, *own, buckets_of(*own), next_places)
    return bounds


def _scatter(
    sources: Columns, targets: Columns, start: int, stop: int, buckets: Int64Array, next_places: Int64Array
) -> None:
    """Copy some rows straight to their places in memory."""
    places = np.empty(stop - start, np.int64)
    sort_keys.assign_places(buckets, next_places, places)
    for source, target in zip(sources, targets, strict=True):
        sort_keys.scatter(places, 0, source.read(start, stop), target.read(0, target.n_rows))


def _write_buckets(
    sources: Columns, targets: Columns, start: int, stop: int, buckets: Int64Array, next_places: Int64Array
) -> None:
    """Partition some rows in memory, then write them with one call for each bucket and column."""
    sizes = np.bincount(buckets, minlength=len(next_places))
    ends = np.cumsum(sizes)
    places = np.empty(stop - start, np.int64)
    sort_keys.assign_places(buckets, ends - sizes, places)
    for source, target in zip(sources, targets, strict=True):
        values = source.read(start, stop)
        ordered = np.empty_like(values)
        sort_keys.scatter(places, 0, values, ordered)
        for bucket in np.flatnonzero(sizes).tolist():
            target.write(int(next_places[bucket]), ordered[ends[bucket] - sizes[bucket] : ends[bucket]])
    next_places += sizes


def check_finite(scores: Float64Array, first_row: int = 0) -> None:
    """Raise InputError for the first score that is not finite and so has no place in an order."""
    finite = np.isfinite(scores)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"row {first_row + row} has the score {float(scores[row])!r}; scores must be finite: "
            "check the data and the model"
        )


def sort_by_score(
    sources: Columns, targets: Columns, *, best: int, most: int, rows: int, memory_bytes: int
) -> None:
    """Copy rows in ascending order of (score, row).

    Counting divides the scores into ranges, the rows are partitioned by these ranges, and each range is
    sorted in place. Rows of one score that do not fit the memory are a range that needs no sorting. Sources
    and targets are in pairs of one dtype, the first of each the scores (float64). `best` is the number of
    rows that are fastest to sort together, `most` the maximum sorted in memory at a time, and `rows` are
    partitioned at a time; `memory_bytes` are for counting. InputError if a score is not finite.
    """
    scores = sources[0]
    if scores.n_rows <= best:
        _sort_at_once(sources, targets)
        return
    ranges = list(score_ranges(scores, most, memory_bytes, min(best, most)))
    highs = np.array([each.high for each in ranges])
    bins = np.arange(1 << _BIN_BITS, dtype=np.uint64)
    first = np.searchsorted(_keys(highs) >> _BIN_SHIFT, bins).astype(np.int32)

    def ranges_of(start: int, stop: int) -> Int64Array:
        found = np.empty(stop - start, np.int64)
        own = scores.read(start, stop)
        sort_keys.find_ranges(own.view(np.uint64), own, _BIN_SHIFT, first, highs, found)
        return found

    sizes = np.array([each.rows for each in ranges], np.int64)
    bounds = partition(sources, targets, 0, scores.n_rows, sizes, ranges_of, rows).tolist()
    for each, start, stop in zip(ranges, bounds[:-1], bounds[1:], strict=True):
        if each.low < each.high:
            order = _order(targets[0].read(start, stop), each)
            for column in targets:
                column.write(start, column.read(start, stop)[order])


def _sort_at_once(sources: Columns, targets: Columns) -> None:
    """Sort rows of which all columns fit the memory; much faster than counting where there are few."""
    n_rows = sources[0].n_rows
    scores = sources[0].read(0, n_rows)
    check_finite(scores)
    if n_rows:
        order = _order(scores, ScoreRange(float(scores.min()), float(scores.max()), n_rows))
        for source, target in zip(sources, targets, strict=True):
            target.write(0, source.read(0, n_rows)[order])


def _order(scores: Float64Array, own: ScoreRange) -> Int64Array:
    """Stable order of the scores of a range: where they fit, key and place are sorted as one integer."""
    low, high = _keys(np.array([own.low, own.high])).tolist()
    place_bits = (own.rows - 1).bit_length()
    dropped = max((high - low).bit_length() + place_bits - 64, 0)
    packed = np.empty(own.rows, np.uint64)
    shifts = np.uint64(dropped), np.uint64(place_bits)
    sort_keys.pack_keys(scores.view(np.uint64), np.uint64(low), *shifts, packed)
    packed.sort()
    packed &= np.uint64((1 << place_bits) - 1)
    order = packed.view(np.int64)
    if dropped and not sort_keys.is_ascending(scores[order]):
        return np.argsort(scores, kind="stable")
    return order


def _keys(scores: Float64Array) -> npt.NDArray[np.uint64]:
    keys = np.empty(len(scores), np.uint64)
    sort_keys.score_keys(scores.view(np.uint64), keys)
    return keys
