"""Small problems that several tests share."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse

from ooc_svm.data.matrix import MatrixSource, MatrixSpan
from ooc_svm.losses.hinge import Hinge
from ooc_svm.problems.targets import ClassTargets
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.cutting_plane.row_oracle import RowCutOracle, RowLosses
from ooc_svm.solvers.space import LinearSpace

SIGN = np.array([-1.0, 1.0])


def noisy_rows(n_rows=300, n_features=40, density=0.2, seed=0, ones=False):
    """Rows with a noisy linear rule; some rows are empty."""
    rng = np.random.default_rng(seed)
    matrix = sparse.random_array((n_rows, n_features), density=density, rng=rng, format="csr")
    matrix.data = np.ones_like(matrix.data) if ones else rng.normal(size=matrix.nnz)
    matrix = sparse.csr_array(sparse.diags_array((rng.random(n_rows) > 0.05) * 1.0) @ matrix)
    matrix.eliminate_zeros()
    rule = matrix @ rng.normal(size=n_features) + 0.5 * rng.normal(size=n_rows)
    return matrix, np.where(rule > 0, 1.0, -1.0)


def cut_rows(matrix, n_blocks, seed=0):
    """Spans of uneven blocks."""
    rng = np.random.default_rng(seed)
    edges = np.unique([0, *rng.integers(0, matrix.shape[0], n_blocks - 1), matrix.shape[0]])
    pointers = matrix.indptr
    return [MatrixSpan(int(a), int(b), int(pointers[b] - pointers[a]), 8) for a, b in pairwise(edges)]


def hinge_oracle(n_features, C=1.0, *, groups=1, weighted=False, class_weight=(1.0, 1.0), **space):
    """The oracle of hinge losses; class 1 is positive."""
    targets = ClassTargets(SIGN, np.array(class_weight), row_weight="weight" if weighted else None)
    return RowCutOracle(RowLosses(targets, Hinge()), C, LinearSpace(n_features, **space), groups)


def row_vectors(labels, oracle, weights=None, memory_bytes=1 << 30):
    """The row vectors that an oracle of hinge losses works on."""
    vectors = RowVectors(len(labels), memory_bytes)
    vectors.create("codes", np.uint16).write(0, (labels > 0).astype(np.uint16))
    if weights is not None:
        vectors.create("weight", np.float64).write(0, weights)
    for name, dtype in oracle.vectors.items():
        vectors.create(name, dtype)
    return vectors


def objective(matrix, labels, w, C, weights=1.0, b=0.0):
    """1/2 |w|^2 + C sum of weighted hinge losses."""
    losses = np.maximum(0.0, 1.0 - labels * (matrix @ w + b))
    return 0.5 * w @ w + C * (weights * losses).sum()


def nu_svc_loss(margins, nu, weights=1.0):
    """The losses of nu-svc at the best rho, by its definition: one of these margins, or 0."""
    omega = np.broadcast_to(weights, margins.shape)
    return min((omega * np.maximum(0, r - margins)).sum() / omega.sum() - nu * r for r in [0, *margins])


__all__ = [
    "SIGN",
    "MatrixSource",
    "cut_rows",
    "hinge_oracle",
    "noisy_rows",
    "nu_svc_loss",
    "objective",
    "row_vectors",
]
