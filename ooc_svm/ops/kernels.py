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


class GaussianOfFullRows(Gaussian):
    """The same, computed from the differences of all columns: for rows that have most of them.

    Where columns are far from 0, the squares of rows are much larger than their distance: float32 loses the
    distance in ``x.x + z.z - 2 x.z``, but not in the differences.
    """


class OfWholeNumbers(NamedTuple):
    """A kernel of rows whose values are all 1: a table, of ``norms (x.x + z.z) + products x.z``.

    That is ``|x - z|^2`` for the Gaussian kernel, and ``x.z`` for others: whole numbers both.
    """

    table: npt.NDArray[np.float64]
    norms: int
    products: int


class Sigmoid(NamedTuple):
    """``k(x, z) = tanh(gamma x.z + coef0)``, which is not positive semi-definite for many data."""

    gamma: Any
    coef0: Any


# Share of the columns that rows have, from which on those that they lack cost less than they save.
FULL = 0.75


def for_rows(kernel: Any, n_nonzeros: int, n_entries: int, value_type: str, scaled: bool) -> Any:
    """The way to compute a kernel that suits some rows.

    ``n_nonzeros``, ``n_entries``: of all rows, and with those that are 0. ``scaled``: whether columns are.

    Values of float64 would be rounded before the differences are taken.
    """
    full = n_nonzeros >= FULL * n_entries and value_type == "float32" and not scaled
    return GaussianOfFullRows(*kernel) if full and type(kernel) is Gaussian else kernel


def in_precision(kernel: Any, dtype: npt.DTypeLike) -> Any:
    """The same kernel with numbers of this type, in which its values are then computed."""
    convert = np.dtype(dtype).type
    return type(kernel)(*(number if isinstance(number, int) else convert(number) for number in kernel))
