"""Small linear problems with a dual, and their values written out plainly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from helpers.problems_data import SIGN, noisy_rows

from ooc_svm.losses import loops
from ooc_svm.ops import rows as row_ops
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.cutting_plane.row_oracle import Targets
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.streamed_smo.dual import ClassTargets, DualProblem, ValueTargets, names, row_vectors
from ooc_svm.solvers.streamed_smo.sweep import Held, SweepPass

LOSSES = ("hinge", "squared-hinge", "epsilon-insensitive", "squared-epsilon-insensitive")
ONES = np.ones(2)
NOBODY = (*np.empty((3, 0), dtype=np.int64), np.empty(0))


def is_regression(loss):
    return loss.endswith("insensitive")


def is_squared(loss):
    return loss.startswith("squared")


def plain_losses(loss, t, scores, cost, eps=0.0):
    """The losses by their definitions; ``cost`` is C times the weights."""
    size = np.abs(t - scores) - eps if is_regression(loss) else 1.0 - t * scores
    return cost * np.maximum(0.0, size) ** (2 if is_squared(loss) else 1)


@dataclass
class DualData:
    """Rows, targets, costs and boxes of one problem."""

    loss: str
    matrix: object
    t: np.ndarray
    cost: np.ndarray
    box: np.ndarray
    eps: float
    rho: float = 0.0
    metric: np.ndarray | None = None

    @property
    def scaled(self):
        """The dense matrix with its columns scaled."""
        dense = self.matrix.toarray()
        return dense if self.metric is None else dense * np.sqrt(self.metric)

    @property
    def squares(self):
        """Squared norms of the rows, in the scaled space."""
        metric = np.ones(self.matrix.shape[1]) if self.metric is None else self.metric
        return self.matrix.multiply(self.matrix) @ metric

    def weights(self, v):
        """``sum_i v_i x_i`` in units of the data."""
        w = self.matrix.T @ v
        return w if self.metric is None else w * self.metric

    def dual(self, v):
        """D, with a penalised bias of the given rho."""
        return (
            self.linear(v) - 0.5 * (self.scaled.T @ v) @ (self.scaled.T @ v) - 0.5 * self.rho * v.sum() ** 2
        )

    def linear(self, v):
        return float((self.t * v - self.eps * np.abs(v) - 0.5 * self.box[:, 3] * v * v).sum())

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
    box = np.empty((n_rows, 4))
    loops.boxes(t, C * weight, is_regression(loss), is_squared(loss), box)
    metric = (0.2 + rng.random(n_features)) ** 2 if scaled else None
    width = eps if is_regression(loss) else 0.0
    return DualData(loss, matrix, t, C * weight, box, width, rho, metric)


def spread_columns(data, every):
    """The same problem with its columns so far apart in a wider matrix."""
    narrow = data.matrix
    parts, shape = (
        (narrow.data, narrow.indices * every, narrow.indptr),
        (narrow.shape[0], every * narrow.shape[1]),
    )
    return replace(data, matrix=type(narrow)(parts, shape=shape))


def best_multiplier(v, d, curvature, low, high, eps):
    """The best of all points where ``d u - eps |v + u| - curvature u^2 / 2`` can have its maximum.

    The first of equals, with the multiplier itself before all others.
    """

    def value(new):
        return d * (new - v) - eps * abs(new) - 0.5 * curvature * (new - v) ** 2

    points = [v, low, high, 0.0]
    if curvature > 0.0:
        points += [v + (d - eps) / curvature, v + (d + eps) / curvature]
    return max((p for p in points if low <= p <= high and np.isfinite(p)), key=value)


def dual_problem(data, name="model"):
    """The problem of some data as solvers see it; the costs are row weights."""
    regression = is_regression(data.loss)
    classes = ClassTargets(Targets("codes", SIGN, ONES, "weight"))
    targets = ValueTargets("value", "weight") if regression else classes
    scale = None if data.metric is None else np.sqrt(data.metric)
    space = LinearSpace(data.matrix.shape[1], scale, data.rho > 0.0)
    return DualProblem(targets, 1.0, space, regression, is_squared(data.loss), data.eps, name=name)


def dual_vectors(data, problems, *, memory_bytes=1 << 30, seed=0):
    """Row vectors of some problems; multipliers feasible, steps to feasible ones."""
    vectors = RowVectors(len(data.t), memory_bytes)
    vectors.create("codes", np.uint16).write(0, (data.t > 0).astype(np.uint16))
    vectors.create("value", np.float64).write(0, data.t)
    vectors.create("weight", np.float64).write(0, data.cost)
    rng = np.random.default_rng(seed)
    for problem in problems:
        for vector, dtype in row_vectors(problem).items():
            vectors.create(vector, dtype)
        dual, step, newest, _ = names(problem)
        v = data.random_multipliers(rng)
        vectors[dual].write(0, v)
        vectors[step].write(0, data.random_multipliers(rng) - v)
        vectors[newest].write(0, np.full(len(v), -7.0))
    return vectors


def read_all(vectors, name):
    """A copy of a whole row vector."""
    return vectors[name].read(0, vectors.n_rows).copy()


def sweep_pass(
    problem, extent, *, scored=True, rebuild=True, theta=0.6, held=None, room=10**9, seed=5, **more
):
    """A round from some weights."""
    rng = np.random.default_rng(3)
    w, reference = 0.1 * rng.normal(size=(2, problem.space.n_features))
    bias = np.array([0.1, 0.4 if problem.space.penalized_bias else 0.0])
    return SweepPass(
        problem, w, reference if scored else np.empty(0), rebuild, bias, theta, held or Held(*NOBODY), seed,
        room, more.get("least", 0.0), extent, more.get("meanwhile"),
    )  # fmt: skip


def held_rows(n_rows, seed=0):
    """Some rows that are held, were held at the start, or have come back with new multipliers."""
    rng = np.random.default_rng(seed)
    now, at_start = (np.sort(rng.choice(n_rows, n_rows // 5, replace=False)) for _ in range(2))
    free = np.setdiff1d(np.arange(n_rows), now)
    return Held(now, at_start, rng.permutation(free)[: n_rows // 10], 0.01 * np.arange(n_rows // 10))
