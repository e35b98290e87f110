"""The optimum by an interior point method, and how far it may be off: bounds of its own in 80-bit floats.

Mehrotra's steps on the units of an `Objective`, Newton's with smooth losses, with dense matrices: for small
data. Whatever its steps are
worth, P at its weights is not below the optimum, and D at its multipliers, made feasible, not above it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from audit.objective import LONG, NuObjective, Objective, PowerObjective, SmoothObjective
from scipy.linalg import cho_factor, cho_solve, qr

CLOSE = 1e-12  # Relative distance of the bounds that is close enough
MAX_CELLS = 4_000_000  # Units times features that are solved


@dataclass(frozen=True)
class Optimum:
    """Bounds of the optimum: ``dual <= P* <= primal``."""

    primal: np.longdouble
    dual: np.longdouble

    @property
    def error(self):
        return self.primal - self.dual


def optimum(objective: Objective, features: Objective | None = None) -> Optimum | None:
    """Bounds of the optimum; None where the problem is too large for this.

    ``features``: of a kernel's problem on all rows, the linear one that is solved in its place.
    """
    linear = features or objective
    n_units, n_features = len(linear.first), linear.matrix.shape[1]
    if n_units * min(n_units, n_features + 1) > MAX_CELLS or n_units * n_features > 5 * MAX_CELLS:
        return None
    nothing = np.zeros(n_features if features is None else objective.matrix.shape[0])
    best, b = objective.best_for(nothing)
    primal, dual = best.primal(nothing, b), LONG(-np.inf)
    if not isinstance(objective, NuObjective):
        dual = LONG(0)  # No P is less
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        points = _smooth_points if isinstance(objective, SmoothObjective) else _points
        for w, alpha in reversed(list(points(linear))):
            if not np.isfinite(w).all():
                continue
            dual = _larger(dual, objective.dual(_feasible(objective, alpha)))
            w = w if features is None else objective.of_rows(alpha)
            primal = _smaller(primal, _primal(objective, w, alpha))
            if primal - dual <= CLOSE * abs(primal):
                break
            primal = _smaller(primal, _primal(objective, _best_factor(objective, w, alpha) * w, alpha))
    return Optimum(primal, dual)


def _dense(objective):
    """Rows of the units in the solver's coordinates with a penalised bias; apart, what has no penalty."""
    matrix = np.asarray(objective.matrix.toarray(), LONG)
    if objective.scale is not None:
        matrix = matrix * np.asarray(objective.scale, LONG)
    centre = np.zeros(matrix.shape[1], LONG)
    if objective.bias == "free":
        held = np.zeros(len(matrix), LONG)
        np.add.at(held, objective.first, objective.cost)
        if held.sum() > 0:
            centre = (held[:, None] * matrix).sum(axis=0) / held.sum()
    rows = matrix - centre
    if objective.second is not None:
        return (rows[objective.first] - rows[objective.second]).astype(np.float64), None
    a = (objective.sign[:, None] * rows[objective.first]).astype(np.float64)
    f = objective.sign.astype(np.float64)
    if objective.bias == "penalized":
        return np.column_stack([a, f]), None
    if isinstance(objective, NuObjective):
        return a, np.column_stack([f, np.full(len(f), float(objective.side))])
    return a, (f[:, None] if objective.bias == "free" else None)


def _points(objective):
    """Weights and multipliers of the last iterations, in units of the data."""
    held = np.flatnonzero(objective.cost > 0)
    if not len(held):
        return
    a, f = _dense(objective)
    a, f = a[held], None if f is None else f[held]
    goal, cost = objective.goal[held], objective.cost[held]
    # One unit of length, and of the values.
    middle = LONG(0)
    if f is not None and (objective.sign != objective.sign[0]).any() and len(set(goal.tolist())) > 1:
        middle = np.median(objective.goal[held] * objective.sign[held])
    goal = goal - objective.sign[held] * middle if f is not None else goal
    length = np.sqrt((a * a).sum(axis=1).mean()) or 1.0
    unit = LONG(np.median(np.abs(goal))) or LONG(1)
    a = a / length
    g = (goal / unit).astype(np.float64)
    c = (cost * LONG(length) ** 2 / (LONG(1) if objective.squared else unit)).astype(np.float64)
    basis = None
    if a.shape[1] > len(a):
        basis, triangle = qr(a.T, mode="economic")
        a = triangle.T
    price = float(objective.price * LONG(length) ** 2 / unit) if isinstance(objective, NuObjective) else 0.0
    for theta, multipliers in _interior(a, f, g, c, objective.squared, price):
        w = theta if basis is None else basis @ theta
        w = np.asarray(w, LONG) * unit / LONG(length)
        alpha = np.zeros(len(objective.first), LONG)
        alpha[held] = np.asarray(multipliers, LONG) * unit / LONG(length) ** 2
        w = w[: objective.matrix.shape[1]]
        yield (w if objective.scale is None else w * np.asarray(objective.scale, LONG)), alpha


def _smooth_points(objective, steps=100):
    """Weights and multipliers of the last of Newton's steps, in units of the data."""
    a, f = _dense(objective)
    penalty = np.ones(a.shape[1] + (f is not None))
    if f is not None:
        a, penalty[-1] = np.column_stack([a, f]), 0.0
    theta, found = np.zeros(a.shape[1]), []

    def excess(at):
        return objective.goal - a @ at

    def value(at):
        return 0.5 * (penalty * at * at).sum() + objective.losses(excess(at))

    for _ in range(steps):
        alpha, bend = (each.astype(np.float64) for each in _derivatives(objective, excess(theta)))
        normal = a.T @ (bend[:, None] * a)
        ridge = 1e-15 * normal.diagonal().max() + 1e-300
        normal[np.diag_indices(len(normal))] += np.where(penalty > 0.0, penalty, ridge)
        try:
            step = cho_solve(cho_factor(normal), a.T @ alpha - penalty * theta)
        except (np.linalg.LinAlgError, ValueError):
            break
        t, before = 1.0, value(theta)
        while t > 1e-6 and not value(theta + t * step) <= before:
            t *= 0.5
        if t <= 1e-6:
            break
        theta = theta + t * step
        w = np.asarray(theta[: objective.matrix.shape[1]], LONG)
        w = w if objective.scale is None else w * np.asarray(objective.scale, LONG)
        found.append((w, objective.slopes(excess(theta))))
    yield from found[-6:]


def _derivatives(objective, excess):
    return objective.slopes(excess), objective.bends(excess)


@dataclass
class _Interior:
    """A point inside the bounds, for units of the rows `full` with `goals` g and costs c.

    ``s`` is the slack of ``full theta + held >= g``, where `held` is the excess xi of a hinge, whose cost is
    met by ``alpha + beta = c``, or ``alpha / 2c`` where it is squared.
    """

    full: np.ndarray
    goals: np.ndarray
    costs: np.ndarray
    squared: bool
    penalty: np.ndarray  # shape (columns,): 0 for a free bias and a width
    prices: np.ndarray  # shape (columns,): 0 but for a width
    theta: np.ndarray
    alpha: np.ndarray
    s: np.ndarray
    xi: np.ndarray  # Unused where squared
    beta: np.ndarray

    @classmethod
    def start(cls, a, f, g, c, squared, price):
        full = a if f is None else np.column_stack([a, f])
        penalty, prices = np.ones(full.shape[1]), np.zeros(full.shape[1])
        penalty[a.shape[1] :], prices[-1] = 0.0, price
        alpha = np.minimum(c, 1.0) if squared else 0.5 * c
        xi = np.maximum(g, 0.0) + 1.0
        s = (np.maximum(alpha / (2 * c) - g, 0.0) if squared else np.maximum(-g, 0.0)) + 1.0
        return cls(full, g, c, squared, penalty, prices, np.zeros(full.shape[1]), alpha, s, xi, c - alpha)

    @property
    def products(self):
        """The sum of all products of a multiplier and its slack; each is the same on the central path."""
        return self.alpha @ self.s + (0.0 if self.squared else self.beta @ self.xi)

    @property
    def mu(self):
        return self.products / ((1 if self.squared else 2) * len(self.alpha))

    @property
    def losses(self):
        return float(self.costs @ np.maximum(self.goals - self.full @ self.theta, 0.0))

    def factor(self):
        """The normal equations of a step: their weights and their Cholesky factor."""
        extra = 1.0 / (2 * self.costs) if self.squared else self.xi / self.beta
        weight = 1.0 / (self.s / self.alpha + extra)
        normal = self.full.T @ (weight[:, None] * self.full)
        ridge = 1e-15 * normal.diagonal().max()
        normal[np.diag_indices(len(normal))] += np.where(self.penalty > 0, self.penalty, ridge)
        return weight, cho_factor(normal)

    def moves(self, factored, mu_s, mu_x):
        """Changes of theta, alpha, xi and s towards such products."""
        weight, cholesky = factored
        held = self.alpha / (2 * self.costs) if self.squared else self.xi
        h = mu_s / self.alpha - self.s - (self.full @ self.theta + held - self.goals - self.s)
        if not self.squared:
            h = h - mu_x / self.beta + self.xi
        right = self.full.T @ (self.alpha + weight * h) - self.penalty * self.theta - self.prices
        step = cho_solve(cholesky, right)
        left = right - (self.penalty * step + self.full.T @ (weight * (self.full @ step)))
        step = step + cho_solve(cholesky, left)
        d_alpha = weight * (h - self.full @ step)
        d_xi = (mu_x - self.beta * self.xi + self.xi * d_alpha) / self.beta
        d_s = (mu_s - self.alpha * self.s - self.s * d_alpha) / self.alpha
        return step, d_alpha, d_xi, d_s

    def longest(self, moves):
        """The longest step along the changes that stays inside, 1 at most."""
        _, d_alpha, d_xi, d_s = moves
        pairs = [(self.alpha, d_alpha), (self.s, d_s)]
        if not self.squared:
            pairs += [(self.beta, -d_alpha), (self.xi, d_xi)]
        return min(1.0, *(0.9995 * (-x[dx < 0] / dx[dx < 0]).min(initial=np.inf) for x, dx in pairs))

    def moved(self, t, moves):
        step, d_alpha, d_xi, d_s = (t * change for change in moves)
        ends = {"theta": self.theta + step, "alpha": self.alpha + d_alpha, "s": self.s + d_s}
        return replace(self, **ends, beta=self.beta - d_alpha, xi=self.xi + d_xi)


def _interior(a, f, g, c, squared, price=0.0, steps=80):
    """Primal-dual interior point: weights and multipliers of the last steps."""
    point, found = _Interior.start(a, f, g, c, squared, price), []
    for _ in range(steps):
        try:
            factored = point.factor()
        except (np.linalg.LinAlgError, ValueError):
            break
        guess = point.moves(factored, 0.0, 0.0)
        after = point.moved(point.longest(guess), guess)
        centred = min(max((after.mu / point.mu) ** 3, 1e-10), 1.0) * point.mu
        _, d_alpha, d_xi, d_s = guess
        moves = point.moves(factored, centred - d_alpha * d_s, centred + d_alpha * d_xi)
        t = point.longest(moves)
        if not np.isfinite(moves[0]).all() or t < 1e-10:
            break
        point = point.moved(t, moves)
        found.append((point.theta[: a.shape[1]], point.alpha))
        if point.products <= 1e-15 * (0.5 * (point.penalty * point.theta**2).sum() + point.losses):
            break
    return found[-6:]


def _smaller(a, b):
    return min(a, b) if np.isfinite(b) else a


def _larger(a, b):
    return max(a, b) if np.isfinite(b) else a


def _primal(objective, w, alpha):
    """P at these weights, with the best bias or that of the multipliers, and what may be lost in rounding."""
    b = (objective.sign * np.asarray(alpha, LONG)).sum() if objective.bias == "penalized" else LONG(0)
    best, b = objective.best_for(w, b)
    return best.primal(w, b) + best.rounding(w, b)


def _best_factor(objective, w, alpha):
    """The factor of w near 1 that about minimises P, b moving along."""
    low, high = LONG(0.9999), LONG(1.0001)
    golden = (np.sqrt(LONG(5)) - 1) / 2
    for _ in range(12):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if _primal(objective, left * w, alpha) <= _primal(objective, right * w, alpha):
            high = right
        else:
            low = left
    return (low + high) / 2


def _feasible(objective, alpha):
    """The multipliers inside their bounds; of a free bias, those of the heavier side scaled down."""
    bounded = not (objective.squared or isinstance(objective, PowerObjective))
    alpha = np.clip(alpha, LONG(0), objective.cost if bounded else None)
    alpha = np.where(objective.cost > 0, alpha, LONG(0))
    if isinstance(objective, NuObjective):
        return _with_sums(objective, alpha)
    if objective.bias != "free":
        return alpha
    up, down = alpha[objective.sign > 0].sum(), alpha[objective.sign < 0].sum()
    if min(up, down) <= 0:
        return np.zeros_like(alpha)
    side = np.where(objective.sign > 0, min(LONG(1), down / up), min(LONG(1), up / down))
    # The sum is 0 but for the rounding of 80 bits.
    return alpha * side


def _with_sums(objective, alpha):
    """Those of the units of each sign sum up to what they do at the optimum."""
    alpha = alpha.copy()
    for own in (objective.sign > 0, objective.sign < 0):
        total, most = alpha[own].sum(), objective.cost[own].sum()
        if total > objective.held:
            alpha[own] *= objective.held / total
        elif most > total:
            alpha[own] += (objective.cost[own] - alpha[own]) * ((objective.held - total) / (most - total))
    return alpha
