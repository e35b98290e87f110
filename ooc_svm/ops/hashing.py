"""Random keys of rows and numbers, and CSR rows gathered in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled

Keys = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
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

    Parameters
    ----------
    seed, start : uint64
    out : ndarray of uint64, shape (n_rows,)
    """
    origin = mix(seed)
    for i in range(len(out)):
        out[i] = mix(origin + (start + np.uint64(i) + _ONE) * _GOLDEN)


@compiled
def mix_keys(numbers: Keys, out: Keys) -> None:
    """Keys that are spread over all 64 bits; different numbers have different keys.

    Parameters
    ----------
    numbers, out : ndarrays of uint64, one length
    """
    for i in range(len(out)):
        out[i] = mix(numbers[i])


@compiled
def gather_rows(
    indptr: npt.NDArray[np.uint64],
    indices: npt.NDArray[np.uint32],
    values: Any,
    order: npt.NDArray[np.int64],
    out_indptr: npt.NDArray[np.uint64],
    out_indices: npt.NDArray[np.uint32],
    out_values: Any,
) -> None:
    """Copy the rows ``order[0]``, ``order[1]``, ... one after another.

    Parameters
    ----------
    indptr, indices, values : CSR rows (uint64, uint32, float or None)
    order : ndarray of int64, shape (m,)
    out_indptr : ndarray of uint64, shape (m + 1,)
        Holds the row pointers of the rows to come, from 0.
    out_indices, out_values : ndarrays with room for the elements (uint32, float or None)
    """
    for k in range(len(order)):
        p, end = indptr[order[k]], indptr[order[k] + 1]
        q = out_indptr[k]
        while p < end:
            out_indices[q] = indices[p]
            if values is not None:
                out_values[q] = values[p]
            p += _ONE
            q += _ONE
