"""P of a kernel expansion, in floats of 80 bits, and the linear problem that has the same optimum."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from audit.objective import LONG, NuObjective, Objective
from scipy import sparse

LOST = 1e-13  # Share of the largest eigenvalue below which one is rounding


@dataclass(frozen=True)
class Expansion:
    """Kernel values of the rows with the vectors z, of these with each other, of rows with themselves."""

    cross: np.ndarray  # shape (n, m)
    own: np.ndarray  # shape (m, m)
    squares: np.ndarray  # shape (n,)


def kernel_values(first, second, options):
    """``k(x, z)`` of two dense matrices of LONG."""
    gamma, products = LONG(options["gamma"]), first @ second.T
    if options["kernel"] == "rbf":
        squares = [(rows * rows).sum(axis=1) for rows in (first, second)]
        distances = squares[0][:, None] + squares[1][None, :] - 2 * products
        return np.exp(-gamma * np.maximum(distances, LONG(0)))
    inner = gamma * products + LONG(options.get("coef0", 0.0))
    return np.tanh(inner) if options["kernel"] == "sigmoid" else inner ** options.get("degree", 3)


def expansion_of(model, rows, options):
    """Of a model of these rows."""
    z, scale = model.functions.vectors, model.functions.scale
    values = np.ones(len(z.indices)) if z.values is None else z.values
    vectors = sparse.csr_array((values, z.indices, z.indptr), shape=(z.n_rows, rows.matrix.shape[1]))
    dense, vectors = _dense(rows.matrix, scale), _dense(vectors, scale)
    cross, own = kernel_values(dense, vectors, options), kernel_values(vectors, vectors, options)
    return Expansion(cross, own, np.diag(kernel_values(dense, dense, options)))


def of_all_rows(objective, rows, options, scale):
    """The problem with a coefficient for each row."""
    dense = _dense(rows.matrix, scale)
    values = kernel_values(dense, dense, options)
    return with_expansion(objective, Expansion(values, values, np.diag(values)))


def in_features(objective, rows, options, scale):
    """The linear problem on rows with the same inner products; None where the kernel has none."""
    dense = _dense(rows.matrix, scale)
    sizes, directions = np.linalg.eigh(kernel_values(dense, dense, options).astype(np.float64))
    if sizes[0] < -LOST * len(sizes) * sizes[-1] or sizes[-1] == 0.0:
        return None
    held = sizes > LOST * sizes[-1]
    features = directions[:, held] * np.sqrt(sizes[held])
    return replace(objective, matrix=sparse.csr_array(features.astype(LONG)), scale=None)


def with_expansion(objective, expanded):
    """The problem of an expansion: weights are the coefficients of its vectors."""
    kind = _ByNu if isinstance(objective, NuObjective) else _Plain
    parts = {name: getattr(objective, name) for name in type(objective).__dataclass_fields__}
    return kind(**parts, expanded=expanded)


def _dense(matrix, scale):
    dense = matrix.toarray().astype(LONG)
    return dense if scale is None else dense * np.asarray(scale, LONG)


class Expanded(Objective):
    """What the problems of expansions have in common."""

    def scores(self, w):
        return self.expanded.cross @ np.asarray(w, LONG)

    def sizes(self, w):
        return abs(self.expanded.cross) @ abs(np.asarray(w, LONG))

    def norm2(self, w, b):
        w = np.asarray(w, LONG)
        return w @ self.expanded.own @ w + (LONG(b) ** 2 if self.bias == "penalized" else LONG(0))

    def square(self, multipliers):
        # No less than it is: what the values of the kernel lose may be all of it, and D would be no bound.
        size = abs(multipliers) @ abs(self.expanded.own) @ abs(multipliers)
        lost = 16 * len(multipliers) * np.finfo(LONG).eps * size
        return multipliers @ self.expanded.own @ multipliers + lost


@dataclass(frozen=True)
class _Plain(Expanded):
    expanded: Expansion | None = None


@dataclass(frozen=True)
class _ByNu(Expanded, NuObjective):
    expanded: Expansion | None = None
