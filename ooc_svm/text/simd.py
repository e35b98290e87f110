"""Text many bytes at a time: where its digits end, and the numbers they write. Compiled, without branches.

A branch that is misguessed costs more than all the digits of a number, and in real data the lengths of
numbers cannot be guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

ByteArray = npt.NDArray[np.uint8]

WINDOW = 32
"""Bytes that a mask tells of."""

# Unsigned constants: mixed with signed integers they would turn into doubles.
ONE, TWO, EIGHT, TEN = (np.uint64(k) for k in (1, 2, 8, 10))
_16, _32, _63 = (np.uint64(k) for k in (16, 32, 63))
_ASCII_ZEROS = np.uint64(0x3030303030303030)
_PAIRS = np.uint64(0x000000FF000000FF)
_HUNDREDS = np.uint64(100 + (1000000 << 32))
_UNITS = np.uint64(1 + (10000 << 32))


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as `ooc_svm.ops.compiled.compiled` does, and put the code into every caller.

    A call counts references to the buffer with two atomic operations: more than a short number costs. A
    division does not test its divisor: every caller knows it.
    """
    return njit(nogil=True, cache=True, forceinline=True, error_model="numpy")(function)


def _load(context: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    """Load a value of an LLVM type from a position of a buffer, aligned or not; nothing is tested."""
    buffer = context.make_array(signature.args[0])(context, builder, arguments[0])
    address = builder.gep(buffer.data, [arguments[1]])
    return builder.load(builder.bitcast(address, kind.as_pointer()), align=1)


def _mask_of(test: str, first: int, last: int) -> Callable[..., Any]:
    """Code that makes a mask of the bytes of a window, those from `first` to `last` are ``<=``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(ir.IntType(8), WINDOW)
        window = _load(context, builder, signature, arguments, kind)
        distance = builder.sub(window, ir.Constant(kind, [first] * WINDOW))
        found = builder.icmp_unsigned(test, distance, ir.Constant(kind, [last - first] * WINDOW))
        return builder.zext(builder.bitcast(found, ir.IntType(WINDOW)), ir.IntType(64))

    return generate


def _mask_other_than_digits(_: Any, buffer: Any, position: Any) -> Any:
    """Mask of the `WINDOW` bytes from a position: bit k is set where byte k is no digit."""
    return types.uint64(buffer, types.uint64), _mask_of(">", ord("0"), ord("9"))


def _mask_separators(_: Any, buffer: Any, position: Any) -> Any:
    """Mask of the `WINDOW` bytes from a position: bit k is set where byte k is a blank or a control."""
    return types.uint64(buffer, types.uint64), _mask_of("<=", 0, ord(" "))


def _load_bytes(_: Any, buffer: Any, position: Any) -> Any:
    """Eight bytes from a position as one word, the first one lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(context, builder, signature, arguments, ir.IntType(64))

    return types.uint64(buffer, types.uint64), generate


def _count_trailing_zeros(_: Any, word: Any) -> Any:
    """Zero bits below the lowest set bit; 64 where there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


mask_other_than_digits: Any = intrinsic(_mask_other_than_digits)
mask_separators: Any = intrinsic(_mask_separators)
load_bytes: Any = intrinsic(_load_bytes)
count_trailing_zeros: Any = intrinsic(_count_trailing_zeros)


@inlined
def load_digits(buffer: ByteArray, position: np.uint64) -> np.uint64:
    """Eight bytes from a position as a word for `join_digits`: digits are turned into 0 to 9."""
    return np.uint64(load_bytes(buffer, position) ^ _ASCII_ZEROS)


@inlined
def join_digits(word: np.uint64, n_digits: np.uint64) -> np.uint64:
    """Number that the first `n_digits` (0 to 8) digits of a word of `load_digits` write.

    Any other count gives some number: who looks at the count afterwards may ask for it.
    """
    # By 64 - 8 n_digits bits, in two steps: a shift by 64 is not defined.
    half = (_32 - (n_digits << TWO)) & _63
    word = word << half << half
    word = word * TEN + (word >> EIGHT)
    return np.uint64(((word & _PAIRS) * _HUNDREDS + ((word >> _16) & _PAIRS) * _UNITS) >> _32)
