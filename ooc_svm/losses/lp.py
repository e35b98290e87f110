"""The L_p hinge loss of a classifier: ``c max(0, 1 - y s)^p`` (Nie et al. 2014), 1 <= p <= 2.

With the slack ``u = y r``, ``alpha = y v``, and the slack ``a`` that alpha fits,

    l(r)   = c max(0, u)^p             slope p c max(0, u)^k, k = p - 1
    x      = alpha / (p c) = a^k
    l*(v)  = k / p alpha a             slope a
    gap    = c (u^p - a^p - p a^k (u - a))                          of u above 0
           = c x (u (exp(z) - 1 - z) + k (u log(u / a) - (u - a)))  with z = log(u^k / x)

Both terms of the last line are 0 or more, and each has all its digits where p is next to 1 too. The gap is
what l* gains less than its tangent does, so that changes of l* are written by it. The losses of p = 1 and
p = 2 are the hinge and the squared hinge.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ooc_svm.losses import functions
from ooc_svm.losses.divergence import NEAR, divergence
from ooc_svm.losses.functions import FREE_PRIORITY, implements
from ooc_svm.losses.hinge import Hinge
from ooc_svm.losses.squared_hinge import SquaredHinge
from ooc_svm.ops.compiled import inlined

# Of a search for a root: the error is about the cube of the last step. Their number grows like log(1 / k).
HALLEY_STEPS, SMALL_STEP = 40, 1e-5

FAR = 600.0  # exp does not overflow up to here, even times a slack


class LpHinge(NamedTuple):
    """``l*(v) = (p - 1) c (y v / (p c))^q`` for ``y v >= 0``, with ``1 / p + 1 / q = 1``."""

    p: float


def lp_hinge(p: float) -> LpHinge | Hinge | SquaredHinge:
    """The loss of a power from 1 to 2."""
    return Hinge() if p == 1.0 else SquaredHinge() if p == 2.0 else LpHinge(float(p))


@inlined
def _slack(p, alpha, c):  # type: ignore[no-untyped-def]
    """The slack that a multiplier fits."""
    return math.pow(alpha / (p * c), 1.0 / (p - 1.0)) if alpha > 0.0 else 0.0


@inlined
def _excess(z):  # type: ignore[no-untyped-def]
    """``exp(z) - 1 - z`` of a z of 0.2 or less in magnitude."""
    terms = 1.0 + z / 6.0 * (1.0 + z / 7.0 * (1.0 + z / 8.0 * (1.0 + z / 9.0 * (1.0 + z / 10.0))))
    return 0.5 * z * z * (1.0 + z / 3.0 * (1.0 + z / 4.0 * (1.0 + z / 5.0 * terms)))


@inlined
def _distance(p, alpha, u, a, c):  # type: ignore[no-untyped-def]
    """The gap of a row with the slack u, whose multiplier fits the slack a."""
    if not alpha > 0.0:
        return c * math.pow(u, p) if u > 0.0 else 0.0
    k, x = p - 1.0, alpha / (p * c)
    if u <= 0.0:
        return c * x * (k * a - p * u)
    d = u - a
    if abs(d) <= NEAR * a:
        rest = divergence(u, a, 1.0, 0.0)
        return c * x * (u * _excess(k * (rest + d) / u) + k * rest)
    z = k * math.log(u) - math.log(x)
    # Where exp(z) may overflow, x is nothing next to u^k.
    return c * x * max(u * math.expm1(z) - k * d, 0.0) if z < FAR else c * math.pow(u, p)


@inlined
def _root(goal, scale, k):  # type: ignore[no-untyped-def]
    """Logarithm of the x above 0 with ``x + scale x^k = goal``, for a goal above 0; NaN if numbers overflow.

    With ``x = goal exp(y)`` it is the root of ``exp(y) + exp(bend + k y) - 1``, which is convex and grows.
    The search begins where one of the two terms is 1 and the other one at most.
    """
    size = math.log(goal)
    if not scale > 0.0:
        return size
    bend = math.log(scale) - (1.0 - k) * size
    start = min(0.0, -bend / k)
    y = start
    for _ in range(HALLEY_STEPS):
        first, second = math.exp(y), math.exp(bend + k * y)
        over, steep, bent = (first - 1.0) + second, first + k * second, first + k * k * second
        step = 2.0 * over * steep / (2.0 * steep * steep - over * bent)
        y = min(y - step, start)
        if abs(step) <= SMALL_STEP:
            break
    return size + y


@implements(LpHinge)
def value(loss, r, t, c):  # type: ignore[no-untyped-def]
    """The power of the slack."""
    u = t * r
    return c * math.pow(u, loss.p) if u > 0.0 and c > 0.0 else 0.0


@implements(LpHinge)
def slope(loss, r, t, c):  # type: ignore[no-untyped-def]
    """``p c u^k`` on the side of the class."""
    u = t * r
    return t * (loss.p * c * math.pow(u, loss.p - 1.0)) if u > 0.0 and c > 0.0 else 0.0


@implements(LpHinge)
def bounds(loss, t, c):  # type: ignore[no-untyped-def]
    """Without an end on the side of the class."""
    if not c > 0.0:
        return 0.0, 0.0
    return (0.0, np.inf) if t > 0.0 else (-np.inf, 0.0)


@implements(LpHinge)
def conjugate(loss, v, t, c):  # type: ignore[no-untyped-def]
    """``k / p alpha a``."""
    alpha = t * v
    return (loss.p - 1.0) / loss.p * alpha * _slack(loss.p, alpha, c) if c > 0.0 else 0.0


@implements(LpHinge)
def magnitude(loss, v, t, c):  # type: ignore[no-untyped-def]
    """Alpha times the slope of the conjugate there, which is ``p / k`` times the conjugate."""
    alpha = t * v
    return alpha * _slack(loss.p, alpha, c) if c > 0.0 else 0.0


@implements(LpHinge)
def row_gap(loss, v, r, t, c):  # type: ignore[no-untyped-def]
    """The distance of the slack from the one that v fits."""
    if not c > 0.0:
        return 0.0
    alpha = t * v
    return _distance(loss.p, alpha, t * r, _slack(loss.p, alpha, c), c)


@implements(LpHinge)
def dual_step(loss, v, r, t, c, curvature):  # type: ignore[no-untyped-def]
    """``alpha = p c x^k`` where the slack becomes x: ``x + curvature p c x^k = u + curvature alpha``."""
    if curvature == np.inf:
        return np.nan
    if not c > 0.0:
        return 0.0
    goal, scale = t * r + curvature * (t * v), loss.p * c
    if goal <= 0.0:
        return 0.0
    return t * (scale * math.exp((loss.p - 1.0) * _root(goal, curvature * scale, loss.p - 1.0)))


@implements(LpHinge)
def step_slope(loss, v, t, c, curvature):  # type: ignore[no-untyped-def]
    """The curvature of l* is ``a / (k alpha)``."""
    alpha = t * v
    if not (alpha > 0.0 and c > 0.0):
        return 0.0
    return 1.0 / (curvature + _slack(loss.p, alpha, c) / ((loss.p - 1.0) * alpha))


@implements(LpHinge)
def violation(loss, v, r, t, c, gap):  # type: ignore[no-untyped-def]
    """How far the slack is from the one that v fits, or is below 0."""
    if not c > 0.0:
        return -np.inf
    u, alpha = t * r, t * v
    return abs(u - _slack(loss.p, alpha, c)) if alpha > 0.0 else u


@implements(LpHinge)
def priority(loss, v, stationarity, t, c):  # type: ignore[no-untyped-def]
    """By violation, then the nearest the margin: nearly every row with a loss is off its bound.

    (To keep those first takes up to one read more.)
    """
    if stationarity > 0.0 or functions.is_free(loss, v, t, c):
        return FREE_PRIORITY + abs(stationarity) / (1.0 + abs(stationarity))
    return 1.0 / (1.0 - stationarity)


@implements(LpHinge)
def is_free(loss, v, t, c):  # type: ignore[no-untyped-def]
    """Off zero."""
    return t * v > 0.0 and c > 0.0


@implements(LpHinge)
def gain(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """The tangent's gain, less the distance of the new multiplier from the slack that v fits."""
    if not c > 0.0:
        return t * (new - v)
    a, end = _slack(loss.p, t * v, c), t * new
    return (1.0 - a) * (end - t * v) - _distance(loss.p, end, a, _slack(loss.p, end, c), c)


@implements(LpHinge)
def parabola(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """With the curvature at whose tangent in the smaller multiplier it meets l* in the larger one.

    The curvature of l* grows with the multiplier, so that the divided difference of second order is least
    there.
    """
    if not c > 0.0 or new == v:
        return 0.0, 0.0
    less, more = min(t * v, t * new), max(t * v, t * new)
    bend = 2.0 * _distance(loss.p, more, _slack(loss.p, less, c), _slack(loss.p, more, c), c)
    return functions.gain(loss, v, new, t, c) + 0.5 * bend, bend


@implements(LpHinge)
def parabola_end(loss, v, new):  # type: ignore[no-untyped-def]
    """There is no kink."""
    return new
