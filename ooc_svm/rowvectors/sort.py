"""Columns of rows dealt out to parts, and sorted by score, wherever the columns lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError
from ooc_svm.ops import parts
from ooc_svm.rowvectors.score_ranges import ScoreRange, score_ranges
from ooc_svm.rowvectors.vector import RowVector, row_slices

# Sign, exponent and six bits more: a bin is 1/64 of a power of two wide.
_BIN_BITS = 18
_BIN_SHIFT = np.uint64(64 - _BIN_BITS)

Columns = Sequence[RowVector]
Places = Callable[[int, int], Int64Array]


def deal(
    sources: Columns, targets: Columns, start: int, stop: int, sizes: Int64Array, part_of: Places, rows: int
) -> Int64Array:
    """Copy rows so that those of one part lie together, in their old order.

    Parameters
    ----------
    sources, targets : sequences of RowVector, in pairs of one dtype
    start, stop : int
        The rows; they keep that range.
    sizes : ndarray of int64, shape (n_parts,)
        Rows of each part.
    part_of : callable
        Of a range of rows; gives their parts (int64).
    rows : int
        Held in memory at a time.

    Returns
    -------
    ndarray of int64, shape (n_parts + 1,)
        The bounds of the parts.
    """
    bounds = np.concatenate(([0], np.cumsum(sizes))) + start
    move = _scatter if all(target.in_memory for target in targets) else _write_pieces
    next_places = bounds[:-1].copy()
    for first, last in row_slices(stop - start, rows):
        move(sources, targets, start + first, start + last, part_of(start + first, start + last), next_places)
    return bounds


def _scatter(
    sources: Columns, targets: Columns, start: int, stop: int, chosen: Int64Array, next_places: Int64Array
) -> None:
    """Put a slice of rows straight into their places in memory."""
    places = np.empty(stop - start, np.int64)
    parts.place(chosen, next_places, places)
    for source, target in zip(sources, targets, strict=True):
        parts.scatter(places, 0, source.read(start, stop), target.read(0, target.n_rows))


def _write_pieces(
    sources: Columns, targets: Columns, start: int, stop: int, chosen: Int64Array, next_places: Int64Array
) -> None:
    """Bring the rows of each part together in memory, then write them with one call a part and column."""
    sizes = np.bincount(chosen, minlength=len(next_places))
    ends = np.cumsum(sizes)
    places = np.empty(stop - start, np.int64)
    parts.place(chosen, ends - sizes, places)
    for source, target in zip(sources, targets, strict=True):
        values = source.read(start, stop)
        pieces = np.empty_like(values)
        parts.scatter(places, 0, values, pieces)
        for part in np.flatnonzero(sizes).tolist():
            target.write(int(next_places[part]), pieces[ends[part] - sizes[part] : ends[part]])
    next_places += sizes


def check_finite(scores: Float64Array, first_row: int = 0) -> None:
    """Refuse a score that has no place in an order.

    Raises
    ------
    InputError
        For the first one that is not finite.
    """
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

    The scores are cut into ranges by counting, the rows are dealt out to the ranges, and each range is sorted
    where it lies. More rows of one score than fit the memory are a range that needs no sorting.

    Parameters
    ----------
    sources, targets : sequences of RowVector, in pairs of one dtype
        The first are the scores (float64).
    best : int
        Rows that are sorted fastest together.
    most : int
        Rows that may be sorted in memory at a time.
    rows : int
        Dealt out at a time.
    memory_bytes : int
        For counting.

    Raises
    ------
    InputError
        For a score that is not finite.
    """
    scores = sources[0]
    if scores.n_rows <= best:
        _sort_at_once(sources, targets)
        return
    ranges = list(score_ranges(scores, most, memory_bytes, min(best, most)))
    highs = np.array([part.high for part in ranges])
    bins = np.arange(1 << _BIN_BITS, dtype=np.uint64)
    first = np.searchsorted(_keys(highs) >> _BIN_SHIFT, bins).astype(np.int32)

    def range_of(start: int, stop: int) -> Int64Array:
        found = np.empty(stop - start, np.int64)
        piece = scores.read(start, stop)
        parts.find_ranges(piece.view(np.uint64), piece, _BIN_SHIFT, first, highs, found)
        return found

    sizes = np.array([part.rows for part in ranges], np.int64)
    bounds = deal(sources, targets, 0, scores.n_rows, sizes, range_of, rows).tolist()
    for part, start, stop in zip(ranges, bounds[:-1], bounds[1:], strict=True):
        if part.low < part.high:
            order = _order(targets[0].read(start, stop), part)
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


def _order(scores: Float64Array, part: ScoreRange) -> Int64Array:
    """Stable order of the scores of a range: by numbers that hold both key and place, where they can."""
    low, high = _keys(np.array([part.low, part.high])).tolist()
    place_bits = (part.rows - 1).bit_length()
    dropped = max((high - low).bit_length() + place_bits - 64, 0)
    packed = np.empty(part.rows, np.uint64)
    parts.pack_keys(scores.view(np.uint64), np.uint64(low), np.uint64(dropped), np.uint64(place_bits), packed)
    packed.sort()
    packed &= np.uint64((1 << place_bits) - 1)
    order = packed.view(np.int64)
    if dropped and not parts.is_ascending(scores[order]):
        return np.argsort(scores, kind="stable")
    return order


def _keys(scores: Float64Array) -> npt.NDArray[np.uint64]:
    keys = np.empty(len(scores), np.uint64)
    parts.score_keys(scores.view(np.uint64), keys)
    return keys
