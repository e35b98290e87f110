"""Between the coordinates a solver works in and those of the data: column scales, biases, free parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array


@dataclass(frozen=True, slots=True)
class LinearSpace:
    """The space of a linear model's parameters.

    Columns are scaled by folding the scale into the weights (``x_ij scale_j w_j``): the data is never
    copied. A penalised bias is the weight of a feature that is 1 in every row (LIBLINEAR's ``-B 1``); it
    comes behind the weights and takes part in ``|w|^2``. Free parameters take no part in it and come last: a
    bias without penalty, then what else a problem has.
    """

    n_features: int
    scale: Float64Array | None = None  # shape (n_features,)
    penalized_bias: bool = False
    n_free: int = 0  # Free parameters
    # Squares of the columns' scales; None without scaling. A row adds ``x_ij scale2_j`` to weights in units
    # of the data, whose squared norm is ``sum_j w_j^2 / scale2_j``
    scale2: Float64Array | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale2", None if self.scale is None else self.scale**2)

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return self.n_penalized + self.n_free

    @property
    def n_penalized(self) -> int:
        """Number of parameters that take part in ``|w|^2``."""
        return self.n_features + self.penalized_bias

    def penalized(self, w: Float64Array) -> Float64Array:
        """The parameters that take part in ``|w|^2``."""
        return w[: self.n_penalized]

    def free(self, w: Float64Array) -> Float64Array:
        """The others."""
        return w[self.n_penalized :]

    def inner(self, u: Float64Array, v: Float64Array) -> float:
        """Inner product of two weight vectors in units of the data, without a penalised bias."""
        return float(u @ v) if self.scale2 is None else float((u / self.scale2) @ v)

    def norm(self, w: Float64Array) -> float:
        """Norm of a weight vector in units of the data."""
        return math.sqrt(self.inner(w, w))

    def without(self, w: Float64Array, features: npt.NDArray[np.bool_]) -> Float64Array:
        """The same parameters but for the weights of some features, which are 0."""
        pruned = w.copy()
        pruned[: self.n_features][features] = 0.0
        return pruned

    def to_data(self, w: Float64Array) -> tuple[Float64Array, float]:
        """Weights in data units, shape (n_features,), and the intercept, of parameters ``w``."""
        weights = w[: self.n_features]
        if self.scale is not None:
            weights = weights * self.scale
        return weights, float(w[self.n_features]) if self.penalized_bias or self.n_free else 0.0

    def from_data(
        self, row_sums: Float64Array, coefficient_sums: Float64Array, free: Sequence[Float64Array] = ()
    ) -> Float64Array:
        """Sums of rows in this space.

        ``row_sums``, shape (n_features, groups), are weighted sums of the rows of the data;
        ``coefficient_sums``, shape (groups,), are sums of their weights; ``free``, each of shape (groups,),
        the coordinates of the free parameters. Returns shape (groups, dimension).
        """
        sums = np.empty((row_sums.shape[1], self.dimension))
        sums[:, : self.n_features] = row_sums.T
        if self.scale is not None:
            sums[:, : self.n_features] *= self.scale
        if self.penalized_bias:
            sums[:, self.n_features] = coefficient_sums
        for k, own in enumerate(free):
            sums[:, self.n_penalized + k] = own
        return sums
