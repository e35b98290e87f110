"""Values of kernel functions from inner products, many at once and vectorised.

All arithmetic is in the type of the products: float32, at two to three times the speed, or float64. The
exponential function is one of our own, because Numba calls that of the C library for each number. It is
that of base 2, whose range is reduced without rounding: ``2^x = 2^n 2^f`` with an integer n and
``|f| <= 1/2``. The polynomial p is ``(2^f - 1) / f`` at so many Chebyshev nodes of this interval that ``2^f``
changes by less than a tenth of its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ooc_svm.ops.compiled import inlined
from ooc_svm.ops.intrinsics import bits_of, fused, number_of_bits
from ooc_svm.ops.kernels import Gaussian, Linear, Polynomial, Sigmoid

EXP_ULPS = 2.0  # What a power of two is off by at most, in units of the last place; a tangent by twice that

# A number so large that adding it rounds to an integer, which is then in the last bits.
_ROUND_32, _ROUND_64 = np.float32(1.5 * 2.0**23), 1.5 * 2.0**52
# Arguments between which 2^n is a normal number.
_LEAST_32, _MOST_32, _LEAST_64, _MOST_64 = np.float32(-126.0), np.float32(127.0), -1022.0, 1023.0
# Coefficients of the polynomials, the first one that of the highest power.
_C32 = tuple(
    np.float32(c)
    for c in (
        1.545316294512069e-4, 1.3390863364671234e-3, 9.618082557277852e-3,
        5.550357114219078e-2, 2.4022650760568126e-1, 6.931471880262288e-1,
    )
)  # fmt: skip
_C64 = (
    4.4549605981865186e-10, 7.072585949269223e-9, 1.0178062445845774e-7, 1.321544258792169e-6,
    1.525273382983612e-5, 1.540353044173605e-4, 1.3333558146416936e-3, 9.618129107606888e-3,
    5.55041086648216e-2, 2.4022650695910097e-1, 6.931471805599453e-1,
)  # fmt: skip
_BIAS_32, _BIAS_64 = np.int32(127 << 23), np.int64(1023 << 52)
_SHIFT_32, _SHIFT_64 = np.int32(23), np.int64(52)
_ONE_32, _TWO_32 = np.float32(1.0), np.float32(2.0)
_LOG2E_32, _LOG2E_64 = np.float32(math.log2(math.e)), math.log2(math.e)


@inlined
def _parts_32(x):  # type: ignore[no-untyped-def]
    """``2^n`` and ``2^f - 1`` of a float32."""
    x = min(max(x, _LEAST_32), _MOST_32)
    t = x + _ROUND_32
    f = x - (t - _ROUND_32)
    p = fused(f, _C32[0], _C32[1])
    p = fused(f, p, _C32[2])
    p = fused(f, p, _C32[3])
    p = fused(f, p, _C32[4])
    p = fused(f, p, _C32[5])
    return number_of_bits(np.int32((bits_of(t) << _SHIFT_32) + _BIAS_32)), f * p


@inlined
def _parts_64(x):  # type: ignore[no-untyped-def]
    """``2^n`` and ``2^f - 1`` of a float64."""
    x = min(max(x, _LEAST_64), _MOST_64)
    t = x + _ROUND_64
    f = x - (t - _ROUND_64)
    p = fused(f, _C64[0], _C64[1])
    p = fused(f, p, _C64[2])
    p = fused(f, p, _C64[3])
    p = fused(f, p, _C64[4])
    p = fused(f, p, _C64[5])
    p = fused(f, p, _C64[6])
    p = fused(f, p, _C64[7])
    p = fused(f, p, _C64[8])
    p = fused(f, p, _C64[9])
    p = fused(f, p, _C64[10])
    return number_of_bits((bits_of(t) << _SHIFT_64) + _BIAS_64), f * p


def power_of_two(x):  # type: ignore[no-untyped-def]
    """``2^x``, in the type of x; between the smallest and the largest normal number."""
    raise NotImplementedError


def tangent(x):  # type: ignore[no-untyped-def]
    """``tanh(x)``, in the type of x, from ``e^2x - 1``."""
    raise NotImplementedError


# Without a test of divisors, which would keep loops from being vectorised.
_INLINE: Any = {"forceinline": True, "error_model": "numpy"}


@overload(power_of_two, strict=False, jit_options=_INLINE)
def _choose_power(x: Any) -> Any:
    def single(x):  # type: ignore[no-untyped-def]
        scale, p = _parts_32(x)
        return fused(scale, p, scale)

    def double(x):  # type: ignore[no-untyped-def]
        scale, p = _parts_64(x)
        return fused(scale, p, scale)

    return {types.float32: single, types.float64: double}.get(x)


@overload(tangent, strict=False, jit_options=_INLINE)
def _choose_tangent(x: Any) -> Any:
    # Where |x| is small n is 0, and 2^f - 1 keeps its digits.
    def single(x):  # type: ignore[no-untyped-def]
        scale, p = _parts_32(-_TWO_32 * _LOG2E_32 * abs(x))
        e = fused(scale, p, scale - _ONE_32)
        t = -e / (_TWO_32 + e)
        return t if x >= 0 else -t

    def double(x):  # type: ignore[no-untyped-def]
        scale, p = _parts_64(-2.0 * _LOG2E_64 * abs(x))
        e = fused(scale, p, scale - 1.0)
        t = -e / (2.0 + e)
        return t if x >= 0 else -t

    return {types.float32: single, types.float64: double}.get(x)


def apply(kernel, products, square, squares, base):  # type: ignore[no-untyped-def]
    """Turn inner products of a row with others into values of the kernel, in place.

    ``products``: ``x.z_l``, shape (m,).
    ``square``: ``x.x``; ``squares``: ``z_l.z_l``, shape (m,).
    ``base``: working space of shape (m,).

    All are of one type, and so are the numbers of the kernel (`ooc_svm.ops.kernels.in_precision`).
    """
    raise NotImplementedError


def _implements(kernel_type: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the one that `apply` is for this kernel; for use as a decorator."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def choose(kernel: Any, products: Any, square: Any, squares: Any, base: Any) -> Any:
            return function if getattr(kernel, "instance_class", None) is kernel_type else None

        overload(apply, strict=False, jit_options=_INLINE)(choose)
        return function

    return register


@_implements(Linear)
def _linear(kernel, products, square, squares, base):  # type: ignore[no-untyped-def]
    pass


@_implements(Gaussian)
def _gaussian(kernel, products, square, squares, base):  # type: ignore[no-untyped-def]
    # e^x = 2^(x log2(e))
    rate = kernel.gamma * products.dtype.type(_LOG2E_64)
    for k in range(len(products)):
        distance = (square + squares[k]) - (products[k] + products[k])
        products[k] = power_of_two(-rate * max(distance, distance - distance))


@_implements(Polynomial)
def _polynomial(kernel, products, square, squares, base):  # type: ignore[no-untyped-def]
    gamma, coef0 = kernel.gamma, kernel.coef0
    for k in range(len(products)):
        base[k] = fused(gamma, products[k], coef0)
        products[k] = base[k]
    for _ in range(1, kernel.degree):
        for k in range(len(products)):
            products[k] *= base[k]


@_implements(Sigmoid)
def _sigmoid(kernel, products, square, squares, base):  # type: ignore[no-untyped-def]
    gamma, coef0 = kernel.gamma, kernel.coef0
    for k in range(len(products)):
        products[k] = tangent(fused(gamma, products[k], coef0))


@inlined
def apply_to_distances(gamma, distances, added):  # type: ignore[no-untyped-def]
    """Turn squared distances, less a part that they have in common, into values of a Gaussian, in place."""
    rate = gamma * distances.dtype.type(_LOG2E_64)
    for k in range(len(distances)):
        distances[k] = power_of_two(-rate * (distances[k] + added))
