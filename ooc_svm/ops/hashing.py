"""Random keys of rows: hashes of 64 bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

Keys = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio's fraction in 64 bits: an odd factor that spreads numbers over all of them."""

_FACTOR_1, _FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ONE, _27, _30, _31 = np.uint64(1), np.uint64(27), np.uint64(30), np.uint64(31)


@compiled
def mix(z: np.uint64) -> np.uint64:
    """The finalizer of splitmix64: a bijection of 64 bits."""
    z = (z ^ (z >> _30)) * _FACTOR_1
    z = (z ^ (z >> _27)) * _FACTOR_2
    return z ^ (z >> _31)


@compiled
def row_keys(seed: np.uint64, start: np.uint64, out: Keys) -> None:
    """Random keys of the rows ``start``, ``start + 1``, ...: the output of splitmix64 of each number.

    Different rows have different keys for the same seed, since all steps are bijections.
    """
    origin = mix(seed)
    for i in range(len(out)):
        out[i] = mix(origin + (start + np.uint64(i) + _ONE) * GOLDEN)


@compiled
def mix_keys(numbers: Keys, out: Keys) -> None:
    """Keys that are spread over all 64 bits; different numbers have different keys."""
    for i in range(len(out)):
        out[i] = mix(numbers[i])
