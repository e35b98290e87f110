"""Text many bytes at a time: where its digits end, and the numbers they write. Compiled, without branches.

A branch that is misguessed costs more than all the digits of a number, and in real data the lengths of
numbers cannot be guessed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import inlined
from ooc_svm.ops.intrinsics import byte_mask, load_bytes

ByteArray = npt.NDArray[np.uint8]

# Unsigned constants: mixed with signed integers they would turn into doubles.
ONE, TWO, EIGHT, TEN = (np.uint64(k) for k in (1, 2, 8, 10))
_16, _32, _63 = (np.uint64(k) for k in (16, 32, 63))
_ASCII_ZEROS = np.uint64(0x3030303030303030)
_PAIRS = np.uint64(0x000000FF000000FF)
_HUNDREDS = np.uint64(100 + (1000000 << 32))
_UNITS = np.uint64(1 + (10000 << 32))

mask_other_than_digits = byte_mask(ord("0"), ord("9"), outside=True)
# Blanks and controls.
mask_separators = byte_mask(0, ord(" "))


@inlined
def load_digits(buffer: ByteArray, position: np.uint64) -> np.uint64:
    """Eight bytes from a position as a word for `join_digits`: digits are turned into 0 to 9."""
    return np.uint64(load_bytes(buffer, position) ^ _ASCII_ZEROS)


@inlined
def join_digits(word: np.uint64, n_digits: np.uint64) -> np.uint64:
    """Number that the first `n_digits` (0 to 8) digits of a word of `load_digits` write.

    With any other count the result means nothing, but nothing fails: callers may check the count later.
    """
    # By 64 - 8 n_digits bits, in two steps: a shift by 64 is not defined.
    half = (_32 - (n_digits << TWO)) & _63
    word = word << half << half
    word = word * TEN + (word >> EIGHT)
    return np.uint64(((word & _PAIRS) * _HUNDREDS + ((word >> _16) & _PAIRS) * _UNITS) >> _32)
