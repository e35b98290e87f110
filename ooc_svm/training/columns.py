"""What follows from the columns of the data before training: scales, and the gamma of a kernel.

Scales are folded into weights and kernels: the data are never copied.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.errors import InputError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.passes.columns import ColumnPass, ColumnSums


def needs_columns(options: TrainOptions) -> str | None:
    """What a read before training is for, in words; None if none is needed."""
    needs = {
        "the scale of the columns": options.scale != "none",
        parameter("gamma"): options.kernel_numbers.get("gamma") == "scale",
    }
    return " and ".join(what for what, needed in needs.items() if needed) or None


def column_sums(engine: Engine) -> ColumnSums:
    """Statistics of the columns, from one read of the data that is not counted among those of training."""
    sums: ColumnSums = engine.stream([ColumnPass(engine.source.n_features)])[0]
    return sums


def column_scale(
    sums: ColumnSums | None, options: TrainOptions, n_rows: int, index_base: int
) -> Float64Array | None:
    """Factors of the columns; None without scaling.

    InputError for a column whose spread cannot be divided by.
    """
    if options.scale == "none":
        return None
    assert sums is not None
    with np.errstate(over="ignore", invalid="ignore"):
        spread = sums.largest if options.scale == "maxabs" else sums.deviation(n_rows)
        # A column without spread keeps its unit.
        scale: Float64Array = 1.0 / np.where(spread == 0.0, 1.0, spread)
        # Dual solvers work with the squares.
        impossible = ~np.isfinite(scale**2) | (scale**2 == 0.0)
    if impossible.any():
        column = int(np.argmax(impossible))
        raise InputError(
            f"the feature {column + index_base} has values too large or too small to be "
            f"divided by their spread, {spread[column]}; change it or choose another {parameter('scale')}"
        )
    return scale


def kernel_gamma(
    sums: ColumnSums | None, options: TrainOptions, n_rows: int, n_features: int, scale: Float64Array | None
) -> float | None:
    """The number that gamma stands for, with the meaning of scikit-learn; None for a kernel without gamma.

    "auto" is ``1 / n_features``, "scale" ``1 / (n_features variance)`` with the variance of all entries,
    scaled if columns are; 1 where that is 0. InputError if it is beyond the range of float64.
    """
    gamma = options.kernel_numbers.get("gamma")
    if not isinstance(gamma, str):
        return gamma
    wide = max(n_features, 1)
    if gamma == "auto":
        return 1.0 / wide
    assert sums is not None
    factors = np.ones(n_features) if scale is None else scale
    entries = float(n_rows) * wide
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(sums.total @ factors) / entries
        variance = max(float(sums.squares @ factors**2) / entries - mean * mean, 0.0)
        found = 1.0 / (wide * variance) if variance > 0.0 else 1.0
    if not 0.0 < found < np.inf:
        raise InputError(
            f"the variance of the data is {variance}, and no {parameter('gamma', 'scale')} follows from it; "
            f"scale the columns ({parameter('scale', 'maxabs')})"
        )
    return found
