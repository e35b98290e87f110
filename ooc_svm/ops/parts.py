"""Rows dealt out to parts and sorted inside a part: keys counted in bins, stable orders, packed keys.

Scores travel as their 64 bits and are compared by the keys of `ooc_svm.ops.keys`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.keys import order_key

Keys = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@compiled
def key_range(bits: Keys, low: np.uint64, high: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The range `low` to `high`, widened to hold the keys of these scores."""
    for i in range(len(bits)):
        key = order_key(bits[i])
        low = min(low, key)
        high = max(high, key)
    return low, high


@compiled
def count_bins(bits: Keys, low: np.uint64, high: np.uint64, shift: np.uint64, counts: Places) -> None:
    """Count the keys between `low` and `high` (inclusive) in bins ``(key - low) >> shift``; adds."""
    for i in range(len(bits)):
        key = order_key(bits[i])
        if low <= key <= high:
            counts[(key - low) >> shift] += 1


@compiled
def find_spans(
    bits: Keys, low: np.uint64, shift: np.uint64, first: Places, highest: Keys, spans: Places
) -> None:
    """The span that holds each score.

    Parameters
    ----------
    bits : ndarray of uint64, shape (n,)
    low, shift : uint64
        The bin of a key is ``(key - low) >> shift``.
    first : ndarray of int64, shape (bins,)
        The span that holds the lowest key of each bin.
    highest : ndarray of uint64, shape (spans,), ascending
        Highest key of each span.
    spans : ndarray of int64, shape (n,)
        Out.
    """
    for i in range(len(bits)):
        key = order_key(bits[i])
        span = first[(key - low) >> shift]
        while key > highest[span]:
            span += 1
        spans[i] = span


@compiled
def place(parts: Places, next_places: Places, places: Places) -> None:
    """Give each row the next place of its part.

    Parameters
    ----------
    parts : ndarray of int64, shape (n,)
    next_places : ndarray of int64, shape (n_parts,)
        Moved on.
    places : ndarray of int64, shape (n,)
        Out.
    """
    for i in range(len(parts)):
        part = parts[i]
        places[i] = next_places[part]
        next_places[part] += 1


@compiled
def pack_keys(bits: Keys, low: np.uint64, dropped: np.uint64, place_bits: np.uint64, packed: Keys) -> None:
    """Key above `low`, without its lowest bits, in front of the place of the row."""
    for i in range(len(bits)):
        packed[i] = ((order_key(bits[i]) - low) >> dropped) << place_bits | np.uint64(i)


@compiled
def is_ascending(scores: npt.NDArray[np.float64]) -> bool:
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
