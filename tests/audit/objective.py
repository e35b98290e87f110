"""P and D of one model from their definitions, in floats of 80 bits. Nothing here is shared with the package.

Every problem is a sum of hinges: of units ``u_k = max(0, g_k - a_k.w - f_k b)`` with costs ``c_k``,

    P(w, b) = 1/2 |w|^2 + sum_k c_k u_k        or with u_k^2; a penalised bias adds 1/2 b^2.

Those of `PowerObjective` are ``c_k u_k^p``. The losses of `LogisticObjective` are ``c_k log(1 + exp(u_k))``,
u_k being as it is, with g = 0. A row of a
classifier is one unit (a = y x, f = y, g = 1), one of a regressor is two (a = x and -x,
g = z - eps and -z - eps), and a pair of rows is one (a = x_i - x_j, f = 0, g = 1). The nu problems have a
width h more, see `NuObjective`. Columns with a scale are multiplied by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

LONG = np.longdouble
ZERO = LONG(0)


@dataclass(frozen=True)
class Rows:
    """The data as a user has them; ``matrix`` is a CSR array of float64 or float32."""

    matrix: sparse.csr_array
    labels: np.ndarray
    weights: np.ndarray | None = None
    qid: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return self.matrix.shape[0]


@dataclass(frozen=True)
class Objective:
    """One model's problem: a list of hinge units on rows, or on pairs of rows.

    ``first`` (and ``second``, for pairs) are rows of ``matrix``; unit k has the score
    ``sign_k (x_first + b)`` or ``x_first - x_second``, its own ``goal`` g and ``cost`` c.
    """

    matrix: sparse.csr_array  # of LONG, unscaled
    first: np.ndarray
    second: np.ndarray | None
    sign: np.ndarray
    goal: np.ndarray
    cost: np.ndarray
    squared: bool
    bias: str  # {"none", "penalized", "free"}
    scale: np.ndarray | None = None

    def scores(self, w):
        return self.matrix @ np.asarray(w, LONG)

    def sizes(self, w):
        """Sums of the magnitudes that scores are added up from."""
        return abs(self.matrix) @ abs(np.asarray(w, LONG))

    def of(self, row):
        """The same for the model of a row of the report, which may tell more than w and b."""
        return self

    def best_for(self, w, near=0.0):
        """The problem with what else a model has, and the bias, both the best for these weights."""
        return self, self.best_bias(w, near)

    def excess(self, w, b):
        """The units ``g - a.w - f b``, before the hinge."""
        s = self.scores(w)
        if self.second is not None:
            return self.goal - (s[self.first] - s[self.second])
        return self.goal - self.sign * (s[self.first] + LONG(b))

    def norm2(self, w, b):
        """What is penalised: ``|w|^2``, of the scaled columns, and b^2 of a penalised bias."""
        w = np.asarray(w, LONG)
        w = w if self.scale is None else w / np.asarray(self.scale, LONG)
        return (w * w).sum() + (LONG(b) ** 2 if self.bias == "penalized" else LONG(0))

    def losses(self, excess):
        u = np.maximum(excess, LONG(0))
        return (self.cost * (u * u if self.squared else u)).sum()

    def primal(self, w, b=0.0):
        """P of weights in units of the data."""
        return LONG(0.5) * self.norm2(w, b) + self.losses(self.excess(w, b))

    def rounding(self, w, b=0.0):
        """How far the losses may be off here: residuals are differences of goals, scores and the bias."""
        s = self.sizes(w)
        s = s[self.first] + (LONG(0) if self.second is None else s[self.second])
        error = 4 * np.finfo(LONG).eps * (abs(self.goal) + s + abs(LONG(b)))
        u = np.maximum(self.excess(w, b) + error, LONG(0))
        each = np.minimum(u, error) * (2 * u if self.squared else LONG(1))
        return (self.cost * each).sum()

    def of_rows(self, alpha):
        """The multipliers of the rows, from those of the units."""
        rows = np.zeros(self.matrix.shape[0], LONG)
        np.add.at(rows, self.first, self.sign * alpha)
        if self.second is not None:
            np.add.at(rows, self.second, -alpha)
        return rows

    def square(self, multipliers):
        """The squared norm of the sum of the rows times their multipliers."""
        matrix = self.matrix
        if self.second is not None or self.bias == "free":
            # What the rows have in common cancels, but for rounding that rows far from 0 would show.
            matrix = matrix.toarray()
            matrix = matrix - matrix.mean(axis=0)
        w = matrix.T @ multipliers
        w = w if self.scale is None else w * np.asarray(self.scale, LONG)
        return (w * w).sum()

    def dual(self, alpha):
        """D of multipliers of the units; the caller sees to it that they are feasible."""
        alpha, goal = np.asarray(alpha, LONG), self.goal
        rows = self.of_rows(alpha)
        if self.bias == "free":
            # The multipliers cancel, but for rounding that large goals would show.
            goal = goal - self.sign * np.median(goal * self.sign)
        value = (goal * alpha).sum() - LONG(0.5) * self.square(rows)
        if self.bias == "penalized":
            value -= LONG(0.5) * rows.sum() ** 2
        if self.squared:
            held = self.cost > 0
            value -= (alpha[held] ** 2 / (4 * self.cost[held])).sum()
        return value

    def best_bias(self, w, near=0.0):
        """The b of a free bias that minimises P for these weights: the root of a slope that only grows."""
        if self.bias != "free":
            return LONG(near)
        s = self.scores(w)[self.first]
        kinks = np.unique((self.goal * self.sign - s)[self.cost > 0])
        if not len(kinks):
            return LONG(near)

        def slope(b):
            excess = self.goal - self.sign * (s + b)
            held = excess > 0
            each = self.sign[held] * self.cost[held]
            return -(each * 2 * excess[held]).sum() if self.squared else -each.sum()

        low, high = 0, len(kinks) - 1
        # The slope just above a kink grows with it: find the first kink above which it is not negative.
        while low < high:
            middle = (low + high) // 2
            between = (kinks[middle] + kinks[middle + 1]) / 2
            if slope(between) >= 0:
                high = middle
            else:
                low = middle + 1
        if not self.squared:
            return kinks[low]
        # Between two kinks the slope is a line.
        side = -1 if slope(kinks[low]) >= 0 else 1
        other = kinks[min(max(low + side, 0), len(kinks) - 1)]
        here, there = slope(kinks[low]), slope(other)
        if here == there:
            return kinks[low]
        return kinks[low] - here * (other - kinks[low]) / (there - here)


class SmoothObjective(Objective):
    """The same with losses that have a derivative everywhere."""

    def slopes(self, excess):
        """Derivatives of the losses: multipliers that fit them."""
        raise NotImplementedError

    def bends(self, excess):
        """Second derivatives of the losses."""
        raise NotImplementedError

    def best_bias(self, w, near=0.0):
        if self.bias != "free":
            return LONG(near)
        s = self.scores(w)[self.first]

        def slope(b):
            return -(self.sign * self.slopes(self.goal - self.sign * (s + b))).sum()

        low, high = LONG(-1), LONG(1)
        for _ in range(60):
            if slope(low) <= 0:
                break
            low *= 2
        for _ in range(60):
            if slope(high) >= 0:
                break
            high *= 2
        for _ in range(130):
            middle = (low + high) / 2
            low, high = (low, middle) if slope(middle) >= 0 else (middle, high)
        return (low + high) / 2


@dataclass(frozen=True)
class PowerObjective(SmoothObjective):
    """The same with the losses ``c u^p``, of a p between 1 and 2."""

    p: np.longdouble = ZERO

    def losses(self, excess):
        return (self.cost * np.maximum(excess, LONG(0)) ** self.p).sum()

    def slopes(self, excess):
        return self.cost * self.p * np.maximum(excess, LONG(0)) ** (self.p - 1)

    def bends(self, excess):
        # Without an end at u = 0, which a step would not leave.
        u = np.maximum(excess, LONG(1e-9))
        return np.where(excess > 0, self.cost * self.p * (self.p - 1) * u ** (self.p - 2), LONG(0))

    def rounding(self, w, b=0.0):
        s = self.sizes(w)
        error = 4 * np.finfo(LONG).eps * (abs(self.goal) + s[self.first] + abs(LONG(b)))
        u = np.maximum(self.excess(w, b) + error, LONG(0))
        return (self.cost * (u**self.p - np.maximum(u - 2 * error, LONG(0)) ** self.p)).sum()

    def dual(self, alpha):
        alpha, held = np.asarray(alpha, LONG), self.cost > 0
        share = alpha[held] / (self.p * self.cost[held])
        conjugate = (self.p - 1) * (self.cost[held] * share ** (self.p / (self.p - 1))).sum()
        return super().dual(alpha) - conjugate


class LogisticObjective(SmoothObjective):
    """The same with logistic losses."""

    def losses(self, excess):
        return (self.cost * np.logaddexp(LONG(0), excess)).sum()

    def slopes(self, excess):
        e = np.exp(-abs(excess))
        return self.cost * np.where(excess >= 0, 1, e) / (1 + e)

    def bends(self, excess):
        alpha = self.slopes(excess)
        return alpha * (1 - np.divide(alpha, self.cost, out=np.zeros_like(alpha), where=self.cost > 0))

    def rounding(self, w, b=0.0):
        error = 4 * np.finfo(LONG).eps * (self.sizes(w)[self.first] + abs(LONG(b)))
        return (self.cost * error).sum() + 4 * np.finfo(LONG).eps * self.losses(self.excess(w, b))

    def dual(self, alpha):
        alpha = np.clip(np.asarray(alpha, LONG), 0, self.cost)
        less = np.minimum(alpha, self.cost - alpha)
        share = np.divide(less, self.cost, out=np.zeros_like(less), where=less > 0)
        held = share > 0
        logs = np.log(np.where(held, share, 1))
        entropy = -less * logs - (self.cost - less) * np.log1p(-share)
        return entropy.sum() + super().dual(alpha)


@dataclass(frozen=True)
class NuObjective(Objective):
    """A problem with a width h of a price: ``P(w, b, h) = 1/2 |w|^2 + price h + sum_k c_k u_k``, h >= 0.

    The units are ``max(0, g_k - a_k.w - f_k b - h)``, of a regressor's tube, and ``+ h``, of a margin, whose
    price is negative: ``side`` is 1 or -1. The bias is free.
    """

    price: np.longdouble = ZERO
    side: int = 1
    h: np.longdouble = ZERO

    @property
    def held(self):
        """What the multipliers of the units of a sign sum up to, at the optimum."""
        return self.side * self.price / 2

    def sizes(self, w):
        """Sums of the magnitudes that scores are added up from."""
        return abs(self.matrix) @ abs(np.asarray(w, LONG))

    def of(self, row):
        return replace(self, h=LONG(row["rho" if self.side < 0 else "epsilon"]))

    def excess(self, w, b):
        return super().excess(w, b) - self.side * self.h

    def primal(self, w, b=0.0):
        return super().primal(w, b) + self.price * self.h

    def best_for(self, w, near=0.0):
        """With v for ``f b +- h`` of the units of a sign: of each the value above which `held` is left."""
        free = replace(self, h=LONG(0)).excess(w, LONG(0))
        up, down = (_quantile(free[own], self.cost[own], self.held) for own in (self.sign > 0, self.sign < 0))
        return replace(self, h=max(self.side * (up + down) / 2, LONG(0))), (up - down) / 2


def _quantile(values, weights, above):
    """The smallest of the values above which there is no more than this weight."""
    held = weights > 0
    order = np.argsort(-values[held])
    values, total = values[held][order], np.cumsum(weights[held][order])
    return values[min(int(np.searchsorted(total, above * (1 - 1e-15))), len(values) - 1)]


def make_objectives(rows: Rows, options: dict, scale=None) -> list[tuple[float | None, float, Objective]]:
    """The models of a training with these options, in their order: positive label, C and problem."""
    costs = options.get("C", 1.0)
    costs = list(costs) if np.ndim(costs) else [costs]
    problem = options.get("problem", "svc")
    build = {"svc": _classes, "svr": _values}.get(problem.removeprefix("nu-"), _pairs)
    return [(label, C, each) for C in costs for label, each in build(rows, options, LONG(C), scale)]


def _long(matrix):
    return sparse.csr_array(matrix).astype(LONG)


def _row_weights(rows):
    return np.ones(rows.n_rows, LONG) if rows.weights is None else np.asarray(rows.weights, LONG)


def _classes(rows, options, C, scale):
    labels, weights, matrix = np.asarray(rows.labels), _row_weights(rows), _long(rows.matrix)
    known, given = np.unique(labels), options.get("class_weight")
    positive = np.ravel(options.get("positive", ()))
    sides = [positive] if len(positive) else [known[1:]] if len(known) == 2 else [[one] for one in known]
    for side in sides:
        inside = np.isin(labels, side)
        if given == "balanced":
            n = LONG(len(labels))
            own = np.where(inside, n / (2 * inside.sum()), n / (2 * (~inside).sum()))
        else:
            own = np.array([(given or {}).get(float(label), 1.0) for label in labels], LONG)
        sign = np.where(inside, LONG(1), LONG(-1))
        yield float(sorted(side)[0]), _of_classes(matrix, sign, C * weights * own, options, scale)


def _of_classes(matrix, sign, cost, options, scale):
    """The problem of one class against others."""
    loss, p = options.get("loss", "hinge"), options.get("p", 1.5)
    if loss == "lp" and p in (1, 2):
        loss = "hinge" if p == 1 else "squared-hinge"
    rows, ones = np.arange(len(sign)), np.ones(len(sign), LONG)
    if options.get("problem") == "nu-svc":
        nu, shares = LONG(options.get("nu", 0.5)), cost / cost.sum()
        return NuObjective(matrix, rows, None, sign, 0 * ones, shares, False, "free", scale, -nu, -1)
    more = options.get("bias", "penalized"), scale
    if loss == "lp":
        return PowerObjective(matrix, rows, None, sign, ones, cost, False, *more, LONG(p))
    if loss == "logistic":
        return LogisticObjective(matrix, rows, None, sign, 0 * ones, cost, False, *more)
    return Objective(matrix, rows, None, sign, ones, cost, loss == "squared-hinge", *more)


def _values(rows, options, C, scale):
    z, cost, n = np.asarray(rows.labels, LONG), C * _row_weights(rows), rows.n_rows
    by_nu, ones = options["problem"] == "nu-svr", np.ones(n, LONG)
    eps = LONG(0 if by_nu else options.get("epsilon", 0.1))
    squared = options.get("loss", "epsilon-insensitive").startswith("squared")
    units = (
        _long(rows.matrix), np.tile(np.arange(n), 2), None, np.concatenate([ones, -ones]),
        np.concatenate([z - eps, -z - eps]), np.tile(cost, 2), squared,
    )  # fmt: skip
    if by_nu:
        yield None, NuObjective(*units, "free", scale, LONG(options.get("nu", 0.5)) * cost.sum())
    else:
        yield None, Objective(*units, options.get("bias", "penalized"), scale)


def _pairs(rows, options, C, scale):
    labels, weights = np.asarray(rows.labels, np.float64), _row_weights(rows)
    problem = options["problem"]
    if problem == "roc-area":
        named = np.ravel(options.get("positive", ()))
        labels = np.isin(labels, named if len(named) else [labels.max()]).astype(np.float64)
    if problem == "ranking":
        first, second = [], []
        for query in np.unique(rows.qid):
            of = np.flatnonzero(rows.qid == query)
            i, j = np.nonzero(labels[of][:, None] > labels[of][None, :])
            first.append(of[i])
            second.append(of[j])
        first, second = np.concatenate(first), np.concatenate(second)
        omega = weights[first]
    else:
        first, second = np.nonzero(labels[:, None] > labels[None, :])
        omega = weights[first] * weights[second]
    ones = np.ones(len(first), LONG)
    yield (
        None,
        Objective(
            _long(rows.matrix), first, second, ones, ones, C * omega / omega.sum(), False, "none", scale
        ),
    )
