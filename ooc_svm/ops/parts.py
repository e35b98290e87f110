"""Rows dealt out to parts and sorted inside a part.

Scores travel as their 64 bits and are compared by the keys of `ooc_svm.ops.sort_keys`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.sort_keys import order_key

Keys = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]


@compiled
def score_keys(bits: Keys, keys: Keys) -> None:
    """The keys of some scores."""
    for i in range(len(bits)):
        keys[i] = order_key(bits[i])


@compiled
def find_ranges(
    bits: Keys, scores: Scores, shift: np.uint64, first: Any, highs: Scores, ranges: Places
) -> None:
    """The range that holds each score.

    Parameters
    ----------
    bits, scores : ndarrays of uint64 and of float64, shape (n,)
        The same.
    shift : uint64
        The bin of a key is ``key >> shift``.
    first : ndarray of int32, shape (bins,)
        For each bin, the first range that does not end in a lower one.
    highs : ndarray of float64, shape (n_ranges,), ascending
        Highest score of each range.
    ranges : ndarray of int64, shape (n,)
        Out.
    """
    for i in range(len(bits)):
        place = first[order_key(bits[i]) >> shift]
        while scores[i] > highs[place]:
            place += 1
        ranges[i] = place


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
