"""Scales of the columns, folded into the weights: the data are never copied."""

from __future__ import annotations

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.errors import InputError, parameter
from ooc_svm.passes.columns import ColumnPass, ColumnSums


def column_scale(engine: Engine, kind: str, index_base: int) -> Float64Array | None:
    """Factors of the columns, from one read of the data; None without scaling.

    InputError for a column whose spread cannot be divided by.
    """
    if kind == "none":
        return None
    sums: ColumnSums = engine.stream([ColumnPass(engine.source.n_features)])[0]
    with np.errstate(over="ignore", invalid="ignore"):
        spread = sums.largest if kind == "maxabs" else sums.deviation(engine.source.n_rows)
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
