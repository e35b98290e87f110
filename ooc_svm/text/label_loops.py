"""Names of classes, or sets of labels, as labels: tokens of the text, packed into numbers, and then numbered.

A packed token is ``start * TOKEN_LENGTHS + length``, which float64 holds exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

LONGEST_NAME = np.uint64(255)
"""Limit of the length of a name, in bytes."""

LONGEST_SET = np.uint64(2**16 - 1)
"""Limit of the length of a set of labels, in bytes."""

TOKEN_LENGTHS = np.uint64(2**16)
"""Larger than any length of a token."""

TOO_MANY = -1
"""What `number_tokens` returns where there are more different tokens than places for them."""

_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@compiled
def _hash(buffer: npt.NDArray[np.uint8], start: int, length: int) -> np.uint64:
    """FNV-1a of the bytes of a token."""
    found = _BASIS
    for k in range(start, start + length):
        found = (found ^ np.uint64(buffer[k])) * _PRIME
    return found ^ (found >> np.uint64(32))


@compiled
def _equal(buffer: npt.NDArray[np.uint8], start: int, other: int, length: int) -> bool:
    k = 0
    while k < length and buffer[start + k] == buffer[other + k]:
        k += 1
    return k == length


@compiled
def number_tokens(
    buffer: npt.NDArray[np.uint8],
    tokens: npt.NDArray[np.float64],
    firsts: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int32],
) -> int:
    """Replace packed tokens by numbers from 0, in the order in which different ones appear.

    `firsts` gets the packed token that is the first of each number; `slots` has a power of two of entries,
    more than `firsts`, all -1. Returns how many numbers there are, or `TOO_MANY`.
    """
    n, lengths = 0, np.int64(TOKEN_LENGTHS)
    for i in range(len(tokens)):
        packed = np.int64(tokens[i])
        start, length = packed // lengths, packed % lengths
        slot = np.int64(_hash(buffer, start, length) & np.uint64(len(slots) - 1))
        while True:
            number = slots[slot]
            if number < 0:
                if n == len(firsts):
                    return TOO_MANY
                firsts[n], slots[slot] = packed, n
                number = n
                n += 1
                break
            first = firsts[number]
            if first % lengths == length and _equal(buffer, start, first // lengths, length):
                break
            slot = (slot + 1) & (len(slots) - 1)
        tokens[i] = number
    return n
