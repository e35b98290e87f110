"""Kernel functions as numbers: which one is meant follows from the type.

A kernel is a NamedTuple, a plain argument of a compiled function (`ooc_svm.ops.kernel_values`): Numba
compiles every loop apart for each kernel. Nothing here needs Numba, so that a model is read without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Linear(NamedTuple):
    """``k(x, z) = x.z``; for tests and comparisons, a linear model needs no kernel."""

    one: Any = 1.0  # Factor of the product: a tuple without numbers has no type for Numba


class Polynomial(NamedTuple):
    """``k(x, z) = (gamma x.z + coef0)^degree``."""

    gamma: Any
    coef0: Any
    degree: int


class Gaussian(NamedTuple):
    """``k(x, z) = exp(-gamma |x - z|^2)``."""

    gamma: Any


class Sigmoid(NamedTuple):
    """``k(x, z) = tanh(gamma x.z + coef0)``, which is not positive semi-definite for many data."""

    gamma: Any
    coef0: Any


def in_precision(kernel: Any, dtype: npt.DTypeLike) -> Any:
    """The same kernel with numbers of this type, in which its values are then computed."""
    convert = np.dtype(dtype).type
    return type(kernel)(*(number if isinstance(number, int) else convert(number) for number in kernel))
