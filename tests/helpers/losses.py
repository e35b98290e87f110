"""Losses by their definitions, and the functions of `ooc_svm.losses` for calls from plain Python."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from numba import njit
from scipy.special import entr

from ooc_svm.catalog import LOSSES as ENTRIES
from ooc_svm.catalog import load
from ooc_svm.losses import functions

LOSSES = tuple(ENTRIES)
# Their conjugates are parabolas between two bounds, with a kink at 0 at most.
QUADRATIC = tuple(name for name in LOSSES if name not in ("logistic", "lp"))
POWER = 1.5  # Of the loss lp
SMALL = st.one_of(st.sampled_from([0.0, 0.1, -0.1, 1.0, -1.0]), st.floats(-4, 4, width=32))


def is_regression(loss):
    return loss.endswith("insensitive")


def is_squared(loss):
    return loss.startswith("squared")


def power_of(loss):
    """The power of a slack in the loss."""
    return 2 if is_squared(loss) else POWER if loss == "lp" else 1


def make_loss(name, eps=0.0):
    """The loss as compiled functions take it."""
    kind = load(ENTRIES[name].home)
    if name == "lp":
        return kind(POWER)
    return kind(eps) if is_regression(name) else kind()


def plain_losses(loss, t, scores, cost, eps=0.0):
    """The losses by their definitions; ``cost`` is C times the weights."""
    if loss == "logistic":
        return cost * np.logaddexp(0.0, -t * scores)
    size = np.abs(t - scores) - eps if is_regression(loss) else 1.0 - t * scores
    return cost * np.maximum(0.0, size) ** power_of(loss)


def plain_conjugates(loss, v, t, cost, eps=0.0):
    """The conjugates by their definitions, of multipliers inside their bounds."""
    if loss == "logistic":
        # Rounding may have put a multiplier outside of its bounds.
        share = np.clip(np.divide(t * v, cost, out=np.zeros_like(t * v), where=cost > 0.0), 0.0, 1.0)
        return t * v - cost * (entr(share) + entr(1.0 - share))
    if loss == "lp":
        share = np.divide(t * v, POWER * cost, out=np.zeros_like(t * v), where=cost > 0.0)
        return (POWER - 1.0) * cost * np.maximum(share, 0.0) ** (POWER / (POWER - 1.0))
    damping = np.divide(0.5, cost, out=np.zeros_like(v), where=(cost > 0.0) & is_squared(loss))
    return eps * np.abs(v) + 0.5 * damping * v * v


def box_of(loss, t, cost):
    """Target, bounds and damping of the multiplier of a row, the last where the conjugate is a parabola."""
    if cost == 0.0:
        return t, 0.0, 0.0, 0.0
    end, damping = (np.inf, 0.5 / cost) if is_squared(loss) else (cost, 0.0)
    end = np.inf if loss == "lp" else end
    low, high = (-end, end) if is_regression(loss) else (0.0, end) if t > 0.0 else (-end, 0.0)
    return t, low, high, damping


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


class Row:
    """One row: its loss, target and cost, and its dual written out; with a feasible multiplier."""

    def __init__(self, name, t, cost, eps, v):
        self.name, self.t, self.cost, self.eps, self.v = name, t, cost, eps, v
        _, self.low, self.high, self.damping = box_of(name, t, cost)
        self.loss, self.own = make_loss(name, eps), (t, cost)

    def __repr__(self):
        return f"Row({self.name!r}, {self.t}, {self.cost}, {self.eps}, {self.v})"

    def conjugate_at(self, v):
        """The conjugate of a multiplier by its definition."""
        own = (np.array([x]) for x in (v, self.t, self.cost))
        return plain_conjugates(self.name, *own, self.eps).item()

    def loss_at(self, r):
        """The loss at a residual by its definition."""
        return plain_losses(self.name, self.t, self.t - r, self.cost, self.eps)

    def residual(self, d):
        """A residual, and what of it is left beside the damping."""
        r = d + self.damping * self.v
        return r, r - self.damping * self.v


@st.composite
def rows(draw, names=LOSSES):
    """Rows of these losses; many multipliers are at a bound or 0."""
    name = draw(st.sampled_from(names))
    t = draw(SMALL) if is_regression(name) else draw(st.sampled_from([-1.0, 1.0]))
    cost = draw(st.sampled_from([0.0, 0.25, 1.0, 7.0]))
    eps = draw(st.sampled_from([0.0, 0.1, 0.5])) if is_regression(name) else 0.0
    _, low, high, _ = box_of(name, t, cost)
    ends = [end for end in (low, high) if math.isfinite(end)]
    inner = st.floats(max(low, -9.0), min(high, 9.0), allow_subnormal=False)
    return Row(name, t, cost, eps, draw(st.one_of(st.sampled_from([0.0, *ends]), inner)))


@njit
def value(loss, r, t, c):
    return functions.value(loss, r, t, c)


@njit
def slope(loss, r, t, c):
    return functions.slope(loss, r, t, c)


@njit
def bounds(loss, t, c):
    return functions.bounds(loss, t, c)


@njit
def conjugate(loss, v, t, c):
    return functions.conjugate(loss, v, t, c)


@njit
def magnitude(loss, v, t, c):
    return functions.magnitude(loss, v, t, c)


@njit
def row_gap(loss, v, r, t, c):
    return functions.row_gap(loss, v, r, t, c)


@njit
def dual_step(loss, v, r, t, c, curvature):
    return functions.dual_step(loss, v, r, t, c, curvature)


@njit
def violation(loss, v, r, t, c):
    return functions.violation(loss, v, r, t, c, functions.row_gap(loss, v, r, t, c))


@njit
def is_free(loss, v, t, c):
    return functions.is_free(loss, v, t, c)


@njit
def gain(loss, v, new, t, c):
    return functions.gain(loss, v, new, t, c)


@njit
def parabola(loss, v, new, t, c):
    return functions.parabola(loss, v, new, t, c)


@njit
def parabola_end(loss, v, new):
    return functions.parabola_end(loss, v, new)


@njit
def breakpoint(loss):
    return functions.breakpoint(loss)


@njit
def pieces(loss):
    return functions.pieces(loss)


@njit
def piece_sign(loss, p, t):
    return functions.piece_sign(loss, p, t)


@njit
def priority(loss, v, stationarity, t, c):
    return functions.priority(loss, v, stationarity, t, c)
