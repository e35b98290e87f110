"""Small linear problems with a dual, and their values written out plainly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from helpers.losses import box_of, is_regression, make_loss, plain_conjugates, plain_losses
from helpers.problems_data import SIGN, noisy_rows
from scipy import sparse

from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import WHOLE
from ooc_svm.problems.targets import ClassTargets, ValueTargets
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.sweep import Residency, ScorePass, SweepPass

ONES = np.ones(2)
NOBODY = (*np.empty((3, 0), dtype=np.int64), np.empty(0), np.empty(0, dtype=np.int64))


@dataclass
class DualData:
    """Rows, targets and costs of one problem.

    ``box`` is the dual written out: target, bounds and damping of each row.
    """

    loss: str
    matrix: object
    t: np.ndarray
    cost: np.ndarray
    box: np.ndarray
    eps: float
    rho: float = 0.0
    scale2: np.ndarray | None = None

    @property
    def functions(self):
        """The loss as compiled functions take it."""
        return make_loss(self.loss, self.eps)

    @property
    def targets(self):
        """Target and cost of each row, as compiled functions take them."""
        return np.column_stack([self.t, self.cost])

    @property
    def scaled(self):
        """The dense matrix with its columns scaled."""
        dense = self.matrix.toarray()
        return dense if self.scale2 is None else dense * np.sqrt(self.scale2)

    @property
    def squares(self):
        """Squared norms of the rows, in the scaled space."""
        scale2 = np.ones(self.matrix.shape[1]) if self.scale2 is None else self.scale2
        return self.matrix.multiply(self.matrix) @ scale2

    def weights(self, v):
        """``sum_i v_i x_i`` in units of the data."""
        w = self.matrix.T @ v
        return w if self.scale2 is None else w * self.scale2

    def dual(self, v):
        """D, with a penalised bias of the given rho."""
        return (
            self.linear(v) - 0.5 * (self.scaled.T @ v) @ (self.scaled.T @ v) - 0.5 * self.rho * v.sum() ** 2
        )

    def linear(self, v):
        return float((self.t * v - plain_conjugates(self.loss, v, self.t, self.cost, self.eps)).sum())

    def primal(self, v):
        """P at the weights and the bias of the multipliers."""
        w, b = self.scaled.T @ v, self.rho * v.sum()
        loss = plain_losses(self.loss, self.t, self.scaled @ w + b, self.cost, self.eps).sum()
        return 0.5 * w @ w + 0.5 * self.rho * v.sum() ** 2 + loss

    def random_multipliers(self, rng):
        """Feasible multipliers, many of them 0 and many at a bound."""
        ends = np.where(np.isfinite(self.box[:, 1:3]), self.box[:, 1:3], np.sign(self.box[:, 1:3]) * 3.0)
        ends[np.isnan(ends)] = 0.0
        inner = ends[:, 0] + rng.random(len(self.t)) * (ends[:, 1] - ends[:, 0])
        kind = rng.integers(0, 4, len(self.t))
        return np.select([kind == 0, kind == 1, kind == 2], [np.zeros(len(self.t)), *ends.T], inner)

    def arrays(self, dtype=np.float64):
        """The rows as compiled functions take them; ``dtype`` None: without values."""
        values = None if dtype is None else self.matrix.data.astype(dtype)
        indptr, indices = self.matrix.indptr.astype(np.int64), self.matrix.indices.astype(np.int32)
        return row_ops.unsigned(indptr), row_ops.unsigned(indices), values


def dual_data(
    loss, *, n_rows=300, n_features=40, C=0.5, eps=0.1, rho=0.0, scaled=False, ones=False, density=0.2, seed=0
):
    """A problem with some rows without features and some of weight 0."""
    matrix, labels = noisy_rows(n_rows, n_features, density, seed, ones)
    rng = np.random.default_rng(seed + 1)
    weight = rng.integers(0, 4, n_rows) * 0.5
    t = labels
    if is_regression(loss):
        t = matrix @ rng.normal(size=n_features) + 0.3 * rng.normal(size=n_rows)
    box = np.array([box_of(loss, *row) for row in zip(t, C * weight, strict=True)])
    scale2 = (0.2 + rng.random(n_features)) ** 2 if scaled else None
    width = eps if is_regression(loss) else 0.0
    return DualData(loss, matrix, t, C * weight, box, width, rho, scale2)


def centered(data, mean):
    """The same problem on rows less a mean, all of them dense; ``mean`` is in units of the data."""
    rows = data.matrix.toarray() - mean
    return replace(data, matrix=sparse.csr_array(rows))


def mean_weights(data, mean):
    """A mean row as the solver keeps it, like weights: in units of the data, times the squares of scales."""
    return None if mean is None else mean if data.scale2 is None else mean * data.scale2


def bias_of(data, mean, w, total, b):
    """Compiled functions' ``bias`` where the rows less the mean see the bias b, with rho's part in it."""
    if mean is None:
        return np.array([b, data.rho, total])
    square = float(mean @ mean_weights(data, mean))
    return np.array([b + square * total - w @ mean, data.rho + square, total])


def spread_columns(data, every):
    """The same problem with its columns so far apart in a wider matrix."""
    narrow = data.matrix
    parts, shape = (
        (narrow.data, narrow.indices * every, narrow.indptr),
        (narrow.shape[0], every * narrow.shape[1]),
    )
    return replace(data, matrix=type(narrow)(parts, shape=shape))


def dual_model(data, name="model", *, free_bias=False):
    """The model of some data as solvers see it; the costs are row weights."""
    classes, values = ClassTargets(SIGN, ONES, row_weight="weight"), ValueTargets(row_weight="weight")
    scale = None if data.scale2 is None else np.sqrt(data.scale2)
    space = LinearSpace(data.matrix.shape[1], scale, data.rho > 0.0)
    targets = values if is_regression(data.loss) else classes
    return DualModel(targets, data.functions, 1.0, space, free_bias, name)


def dual_vectors(data, models, *, memory_bytes=1 << 30, seed=0):
    """Row vectors of some models; multipliers feasible, steps to feasible ones."""
    vectors = RowVectors(len(data.t), memory_bytes)
    vectors.create("codes", np.uint16).write(0, (data.t > 0).astype(np.uint16))
    vectors.create("target", np.float64).write(0, data.t)
    vectors.create("weight", np.float64).write(0, data.cost)
    rng = np.random.default_rng(seed)
    for model in models:
        for vector in model.row_vectors:
            vectors.create(vector, np.float64)
        v = data.random_multipliers(rng)
        vectors[model.dual].write(0, v)
        vectors[model.step].write(0, data.random_multipliers(rng) - v)
        vectors[model.newest].write(0, np.full(len(v), -7.0))
    return vectors


def read_all(vectors, name):
    """A copy of a whole row vector."""
    return vectors[name].read(0, vectors.n_rows).copy()


def _weights(model):
    """The weights that a round begins with, and those that its rows are scored with."""
    return 0.1 * np.random.default_rng(3).normal(size=(2, model.space.n_features))


def sweep_pass(
    model, rows, position=WHOLE, prefetch=(), *, rebuild=True, theta=0.6, held=None, room=10**9,
    most=10**9, seed=5, min_priority=0.0, mean=None, unit=1.0,
):  # fmt: skip
    """The dual steps of a round, from some weights."""
    bias = np.array([0.1, 0.4 if model.space.penalized_bias else 0.0, 0.0 if mean is None else 0.7])
    return SweepPass(
        model, _weights(model)[0], mean, rebuild, bias, unit, theta, held or Residency(*NOBODY), 1, seed,
        (room, most), min_priority, rows, position, prefetch,
    )  # fmt: skip


def score_pass(model, rows, position=WHOLE, prefetch=()):
    """The scores of the rows of a round, with some weights."""
    return ScorePass(model, _weights(model)[1], rows, position, prefetch)


def held_rows(n_rows, seed=0):
    """Some rows that are held, were held at the start, or have come back with new multipliers."""
    rng = np.random.default_rng(seed)
    now, at_start = (np.sort(rng.choice(n_rows, n_rows // 5, replace=False)) for _ in range(2))
    free = np.setdiff1d(np.arange(n_rows), now)
    back, multipliers = rng.permutation(free)[: n_rows // 10], 0.01 * np.arange(n_rows // 10)
    return Residency(now, at_start, back, multipliers, now)
