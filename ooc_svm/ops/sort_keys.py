"""Scores as unsigned integers of the same order, counted, gathered and merged by range.

A score travels as its 64 bits (``scores.view(np.uint64)``); its key is those bits turned so that keys order
as scores do, -0.0 and 0.0 being one key. A target is positive where it is above 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Targets = npt.NDArray[np.int8]

_SIGN = np.uint64(1 << 63)
_EXPONENT = np.uint64(0x7FF << 52)


@compiled
def order_key(bits: np.uint64) -> np.uint64:
    """The key of one score: negative numbers have all bits turned, the others the sign bit alone."""
    if bits > _SIGN:
        return ~bits
    return bits | _SIGN


def scores_of_keys(keys: Keys) -> npt.NDArray[np.float64]:
    """The scores that keys stand for (0.0 for both zeros)."""
    return np.where(keys >= _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


@compiled
def first_invalid(bits: Keys, targets: Targets) -> int:
    """Place of the first score that is not finite or target that is neither 1 nor -1; -1 if there is none."""
    for i in range(len(bits)):
        if (bits[i] & _EXPONENT) == _EXPONENT or (targets[i] != 1 and targets[i] != -1):
            return i
    return -1


@compiled
def count_keys(
    bits: Keys,
    targets: Targets,
    low: np.uint64,
    high: np.uint64,
    shift: np.uint64,
    positives: Counts,
    negatives: Counts,
    smallest: Keys,
    largest: Keys,
) -> None:
    """Count the keys between `low` and `high` (inclusive) in bins ``(key - low) >> shift``.

    Parameters
    ----------
    bits : ndarray of uint64, shape (n,)
    targets : ndarray of int8, shape (n,)
    low, high, shift : uint64
    positives, negatives : ndarray of int64, shape (bins,)
        Rows of each class, added to.
    smallest, largest : ndarray of uint64, shape (bins,)
        Range of the keys in each bin, widened.
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

    Returns
    -------
    front, back : int
        Where the next of each would go; what does not fit between them is left out.
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
    """Merge sorted keys of the positives and negatives, equal ones into one group.

    Parameters
    ----------
    upper, lower : ndarray of uint64, sorted
        Keys of the positive and of the negative rows.
    i, j : int
        Where to go on in them.
    keys, positives, negatives : ndarrays of uint64, int64, int64, one length
        The groups: key, and rows of each class.

    Returns
    -------
    count : int
        Groups made; fewer than there is room for only at the end.
    i, j : int
        Where to go on.
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
