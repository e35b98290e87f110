"""The logistic loss of a classifier: ``c log(1 + exp(-y s))``.

With the slack's excess ``u = y r - 1``, which is ``-y s``, and ``alpha = y v`` in [0, c],

    l(r)          = c log(1 + exp(u))            slope c sigma(u), sigma(u) = 1 / (1 + exp(-u))
    t v - l*(v)   = c H(alpha / c)               H(a) = -a log a - (1 - a) log(1 - a)
    gap           = c KL(alpha / c || sigma(u))  KL(a || p) = a log(a / p) + (1 - a) log((1 - a) / (1 - p))

(Yu, Huang and Lin 2011). Whatever can cancel is written as a sum of terms that are 0 or more, with
``c - alpha``, which is exact where it matters, for ``1 - alpha / c``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ooc_svm.losses import functions
from ooc_svm.losses.divergence import TINY, divergence
from ooc_svm.losses.functions import implements
from ooc_svm.ops.compiled import inlined

# Of a search for a root, where the error is the square of the last step; and Newton's first step from the
# score beyond which another start is nearer.
NEWTON_STEPS, SMALL_STEP, FAR = 24, 0.02, 1.0

# Rounding moves alpha by this share of c at least where it is near c, and the slope of the entropy, which is
# infinite at c, is less than the logarithm of that.
STEEPEST = 38.0


class Logistic(NamedTuple):
    """Every row has a loss, and the multiplier of each lies between its bounds."""


@inlined(error_model="numpy")
def _sigmoid(u):  # type: ignore[no-untyped-def]
    """``1 / (1 + exp(-u))``."""
    e = math.exp(-abs(u))
    return (1.0 if u >= 0.0 else e) / (1.0 + e)


@inlined
def _entropy(alpha, c):  # type: ignore[no-untyped-def]
    """``c H(alpha / c)``."""
    less = min(alpha, c - alpha)
    share = less / c if less > 0.0 else 0.0
    if not share > 0.0:
        return 0.0
    return -less * math.log(share) - (c - less) * math.log1p(-share)


@implements(Logistic)
def value(loss, r, t, c):  # type: ignore[no-untyped-def]
    """The larger of u and 0, and what is left of the logarithm."""
    u = t * r - 1.0
    return c * (max(u, 0.0) + math.log1p(math.exp(-abs(u)))) if c > 0.0 else 0.0


@implements(Logistic)
def slope(loss, r, t, c):  # type: ignore[no-untyped-def]
    """``c sigma(u)`` on the side of the class."""
    return t * (c * _sigmoid(t * r - 1.0))


@implements(Logistic)
def bounds(loss, t, c):  # type: ignore[no-untyped-def]
    """From 0 to c on the side of the class."""
    return (0.0, c) if t > 0.0 else (-c, 0.0)


@implements(Logistic)
def conjugate(loss, v, t, c):  # type: ignore[no-untyped-def]
    """``alpha - c H(alpha / c)``, which may be less than 0."""
    return t * v - _entropy(t * v, c)


@implements(Logistic)
def magnitude(loss, v, t, c):  # type: ignore[no-untyped-def]
    """Alpha, times the largest slope of the entropy that rounding meets near c, and a bound of the entropy.

    That is ``H(a) <= 2 log(2) sqrt(a (1 - a))``.
    """
    alpha = t * v
    return 1.4 * math.sqrt(max(alpha * (c - alpha), 0.0)) + (alpha if alpha < 0.5 * c else STEEPEST * alpha)


@implements(Logistic)
def row_gap(loss, v, r, t, c):  # type: ignore[no-untyped-def]
    """The divergences of alpha and of ``c - alpha`` from what they were if the row were stationary."""
    if not c > 0.0:
        return 0.0
    u, alpha = t * r - 1.0, t * v
    e = math.exp(-abs(u))
    less, more = c * e / (1.0 + e), c / (1.0 + e)
    near, far = (alpha, c - alpha) if u < 0.0 else (c - alpha, alpha)
    return divergence(near, less, c, -abs(u)) + divergence(far, more, c, 0.0)


@implements(Logistic)
def violation(loss, v, r, t, c, gap):  # type: ignore[no-untyped-def]
    """The row's gap: no row is consistent at a bound."""
    return gap


@implements(Logistic)
def priority(loss, v, stationarity, t, c):  # type: ignore[no-untyped-def]
    """A root of the gap, so that rows and values of C of all sizes are told apart."""
    return min(math.sqrt(math.sqrt(math.sqrt(math.sqrt(stationarity)))), 4.0)


@implements(Logistic)
def is_free(loss, v, t, c):  # type: ignore[no-untyped-def]
    """Every row that costs something."""
    return c > 0.0


@implements(Logistic)
def gain(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """Of a small change the entropy's slope times the change, less the divergences; else the difference."""
    alpha, end = t * v, t * new
    change, rest = end - alpha, c - alpha
    if not (alpha > TINY and abs(change) < 0.5 * min(alpha, rest)):
        return _entropy(end, c) - _entropy(alpha, c)
    slope = change * math.log(rest / alpha)
    return slope - divergence(end, alpha, alpha, 0.0) - divergence(c - end, rest, rest, 0.0)


@implements(Logistic)
def parabola(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """With the entropy's least curvature on the way: where it has more, it lies above the parabola."""
    alpha, end = t * v, t * new
    if not c > 0.0 or end == alpha:
        return 0.0, 0.0
    low, high = min(alpha, end), max(alpha, end)
    flattest = min(max(0.5 * c, low), high)
    change, bend = end - alpha, 0.0
    if 0.0 < flattest < c:
        bend = (change / flattest) * (change / (c - flattest)) * c
    return functions.gain(loss, v, new, t, c) + 0.5 * bend, bend


@implements(Logistic)
def parabola_end(loss, v, new):  # type: ignore[no-untyped-def]
    """There is no kink."""
    return new


@implements(Logistic)
def dual_step(loss, v, r, t, c, curvature):  # type: ignore[no-untyped-def]
    """``alpha = c sigma(x)`` with ``x + curvature c sigma(x) = u + curvature alpha``.

    It is solved on the side of 0 where the root is not above it and the left hand side is convex; on the
    other side for ``c - alpha``, whose equation is the same.
    """
    if curvature == np.inf:
        return np.nan
    if not c > 0.0:
        return 0.0
    u, alpha = t * r - 1.0, t * v
    ahead, behind = u + curvature * alpha, curvature * (c - alpha) - u
    if ahead <= behind:
        return t * (c * _sigmoid(_root(ahead, curvature * c, u)))
    return t * (c * _sigmoid(-_root(behind, curvature * c, -u)))


@implements(Logistic)
def step_slope(loss, v, t, c, curvature):  # type: ignore[no-untyped-def]
    """The curvature of the entropy is ``c / (alpha (c - alpha))``."""
    alpha = t * v
    spread = alpha * (c - alpha)
    return spread / (curvature * spread + c) if spread > 0.0 else 0.0


@inlined(error_model="numpy")
def _root(goal, scale, start):  # type: ignore[no-untyped-def]
    """The x that is 0 or less with ``x + scale sigma(x) = goal``; NaN if a number overflows."""
    x, off = min(start, 0.0), FAR
    # As `row_gap` has it, which a compiler sees: of the exponentials of a step one is computed less.
    e = math.exp(-abs(start)) if start < 0.0 else 1.0
    for k in range(NEWTON_STEPS):
        if k > 0:
            e = math.exp(x)
        p = e / (1.0 + e)
        left = goal - x - scale * p
        step = left / (1.0 + scale * p / (1.0 + e))
        if k == 0:
            if abs(step) > FAR:
                # Where sigma is like exp, goal - x is Lambert's function.
                x = min(goal - _lambert(math.log(scale) + goal), 0.0) if scale > 0.0 else goal
                continue
            off = abs(step)
        x = min(x + step, 0.0)
        # An error of x moves the score by that times scale sigma'. D becomes smaller if that leaves the row
        # further from being stationary than it was: by so much at least as x was off.
        if abs(step) <= SMALL_STEP and step * left <= off:
            break
    return x


@inlined(error_model="numpy")
def _lambert(x):  # type: ignore[no-untyped-def]
    """Roughly the w with ``w + log(w) = x``."""
    if x > 1.0:
        return x - math.log(x)
    e = math.exp(x)
    return e / (1.0 + e)
