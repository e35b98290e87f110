"""Scores as unsigned integers of the same order: counted, gathered and merged by range, and sorted.

A score is passed as its 64 bits (``scores.view(np.uint64)``). Its key is those bits, changed so that keys
order as scores do; -0.0 and 0.0 have the same key. A target is positive where it is above 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Targets = npt.NDArray[np.int8]
Places = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

_SIGN = np.uint64(1 << 63)
_EXPONENT = np.uint64(0x7FF << 52)


@compiled
def order_key(bits: np.uint64) -> np.uint64:
    """The key of one score: all bits of a negative number are flipped, of other numbers only the sign bit."""
    if bits > _SIGN:
        return ~bits
    return bits | _SIGN


def scores_of_keys(keys: Keys) -> Scores:
    """The scores of some keys (0.0 for both zeros)."""
    return np.where(keys >= _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


@compiled
def first_invalid(bits: Keys, targets: Targets) -> int:
    """Place of the first score that is not finite or target that is neither 1 nor -1; -1 if there is none."""
    for i in range(len(bits)):
        if (bits[i] & _EXPONENT) == _EXPONENT or (targets[i] != 1 and targets[i] != -1):
            return i
    return -1


@compiled
def count_keys(bits, targets, low, high, shift, positives, negatives, smallest, largest):  # type: ignore[no-untyped-def]
    """Count the keys between `low` and `high` (inclusive) in bins ``(key - low) >> shift``.

    The rows of each class are added to `positives` and `negatives`, one entry a bin; the range of the keys in
    each bin, `smallest` and `largest`, is widened.
    """
    for i in range(len(bits)):
        key = order_key(bits[i])
        if key < low or key > high:
            continue
        place = (key - low) >> shift
        if targets[i] > 0:
            positives[place] += 1
        else:
            negatives[place] += 1
        smallest[place] = min(smallest[place], key)
        largest[place] = max(largest[place], key)


@compiled
def gather_keys(
    bits: Keys, targets: Targets, low: np.uint64, high: np.uint64, keys: Keys, front: int, back: int
) -> tuple[int, int]:
    """Copy the keys between `low` and `high`: positives up from `front`, negatives down from `back`.

    Returns where the next of each would go; what does not fit between them is left out.
    """
    for i in range(len(bits)):
        key = order_key(bits[i])
        if key < low or key > high or front >= back:
            continue
        if targets[i] > 0:
            keys[front] = key
            front += 1
        else:
            back -= 1
            keys[back] = key
    return front, back


@compiled
def merge_keys(
    upper: Keys, lower: Keys, i: int, j: int, keys: Keys, positives: Counts, negatives: Counts
) -> tuple[int, int, int]:
    """Merge sorted keys of positives (`upper`, from i) and negatives (`lower`, from j) to tie runs.

    Sets the key of each run of equal keys, and its rows of each class. Returns the number of tie runs
    written, which are fewer than ``len(keys)`` only at the end, and the i and j to continue from.
    """
    count = 0
    while count < len(keys) and (i < len(upper) or j < len(lower)):
        if j == len(lower) or (i < len(upper) and upper[i] <= lower[j]):
            key = upper[i]
        else:
            key = lower[j]
        first_i, first_j = i, j
        while i < len(upper) and upper[i] == key:
            i += 1
        while j < len(lower) and lower[j] == key:
            j += 1
        keys[count] = key
        positives[count] = i - first_i
        negatives[count] = j - first_j
        count += 1
    return count, i, j


@compiled
def score_keys(bits: Keys, keys: Keys) -> None:
    """Compute the keys of some scores."""
    for i in range(len(bits)):
        keys[i] = order_key(bits[i])


@compiled
def find_ranges(
    bits: Keys, scores: Scores, shift: np.uint64, first: Any, highs: Scores, ranges: Places
) -> None:
    """Find the range that holds each score; `bits` are the bits of the scores.

    The bin of a key is ``key >> shift``. `first` (int32) is for each bin the first range that does not end in
    a lower bin; `highs` are the highest scores of the ranges, ascending.
    """
    for i in range(len(bits)):
        place = first[order_key(bits[i]) >> shift]
        while scores[i] > highs[place]:
            place += 1
        ranges[i] = place


@compiled
def assign_places(buckets: Any, next_places: Places, places: Any) -> None:
    """Give each row the next place of its bucket; `next_places` is increased by the rows of each bucket.

    Buckets and places are of any integer type; `places` may be `buckets` itself.
    """
    for i in range(len(buckets)):
        bucket = buckets[i]
        places[i] = next_places[bucket]
        next_places[bucket] += 1


@compiled
def pack_keys(bits: Keys, low: np.uint64, dropped: np.uint64, place_bits: np.uint64, packed: Keys) -> None:
    """Pack the key of each row, less `low` and without its lowest bits, above the place of the row."""
    for i in range(len(bits)):
        packed[i] = ((order_key(bits[i]) - low) >> dropped) << place_bits | np.uint64(i)


@compiled
def is_ascending(scores: Scores) -> bool:
    """Whether no score is below the one before it."""
    for i in range(1, len(scores)):  # noqa: SIM110  (compiled)
        if scores[i] < scores[i - 1]:
            return False
    return True


@compiled
def scatter(places: Any, first: int, values: Any, out: Any) -> None:
    """``out[places - first] = values``."""
    for i in range(len(places)):
        out[np.uint64(places[i]) - np.uint64(first)] = values[i]
