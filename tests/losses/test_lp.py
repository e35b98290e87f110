"""The L_p hinge loss where its numbers are extreme, against 80 bits; other tests of it: `test_losses`."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from helpers import losses
from helpers.thinning import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ooc_svm.losses.hinge import Hinge
from ooc_svm.losses.lp import LpHinge, lp_hinge
from ooc_svm.losses.squared_hinge import SquaredHinge

LONG = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(LONG).eps > 2e-19, reason="no floats of 80 bits here")

POWERS = st.sampled_from([1.0 + 2.0**-52, 1.0 + 1e-9, 1.0 + 1e-3, 1.01, 1.2, 1.5, 1.9, 2.0 - 2.0**-52])
COSTS = st.sampled_from([1e-8, 1.0, 7.0, 1e8])
SIGNS = st.sampled_from([-1.0, 1.0])
SLACKS = st.one_of(
    st.sampled_from([0.0, 1e-9, 1.0, 1e6]), st.floats(1e-6, 4.0), st.floats(1e-6, 1e6)
).flatmap(lambda size: st.sampled_from([-size, size]))
CURVATURES = st.sampled_from([0.0, 1e-9, 0.3, 1.0, 80.0, 1e6, 1e12])
UNIT = 2.0**-53


def fitting(p, slack, c):
    """The multiplier that fits a slack, and the slack that it fits then: roundings move that."""
    alpha = p * c * max(slack, 0.0) ** (p - 1.0)
    share = LONG(alpha) / (LONG(p) * LONG(c))
    return alpha, (np.exp(np.log(share) / (LONG(p) - 1)) if alpha > 0.0 else LONG(0))


def distance(p, u, a, c):
    """``c (u^p - a^p - p a^(p - 1) (u - a))`` in 80 bits, by the integral of the slope beside the tangent."""
    p, k, c = LONG(p), LONG(p) - 1, LONG(c)
    if u <= 0:
        return c * a**k * (k * a - p * u)
    if a == 0:
        return c * u**p
    nodes, weights = np.polynomial.legendre.leggauss(40)
    # In logarithms, where the slope's difference is one of exponentials.
    lower, width = np.log(a), np.log(LONG(u) / a)
    steps = min(max(int(np.ceil(abs(width))), 1), 40)
    total, edges = LONG(0), np.linspace(LONG(0), LONG(1), steps + 1)
    for begin, end in pairwise(edges):
        y = width * (begin + (end - begin) * (nodes.astype(LONG) + 1) / 2)
        slope = a**k * np.expm1(k * y) * np.exp(lower + y)
        total += (weights.astype(LONG) * slope).sum() * width * (end - begin) / 2
    return p * c * total


@given(POWERS, SLACKS, SLACKS, SIGNS, COSTS)
@settings(deadline=None, max_examples=examples(600))
def test_the_gap_has_its_digits(p, slack, fitted, t, c):
    assume(fitted >= 0.0)
    r = t * slack
    alpha, a = fitting(p, fitted, c)
    found = losses.row_gap(LpHinge(p), t * alpha, r, t, c)
    exact = distance(p, LONG(slack), a, c)
    # A rounding of alpha changes the gap by its derivative, the difference of the slacks, and where that is 0
    # by its curvature, a / ((p - 1) alpha).
    error = 16 * UNIT * (abs(LONG(slack) - a) * LONG(alpha) + abs(exact))
    error += (16 * UNIT) ** 2 * LONG(alpha) * a / (2 * LONG(p - 1.0))
    assert found >= 0.0
    assert abs(found - exact) <= error + 1e-9 * abs(exact) + 1e-290


def test_next_to_the_optimum_the_gap_has_its_digits():
    """The difference of the losses has none left there."""
    c, u, p = 3.0, 0.7, 1.3
    for change in (1e-3, 1e-6, 1e-9):
        alpha = p * c * u ** (p - 1.0) * (1.0 + change)
        # The curvature of l* at alpha is u / ((p - 1) alpha).
        expected = 0.5 * (change * alpha) ** 2 * u / ((p - 1.0) * alpha)
        found = losses.row_gap(LpHinge(p), alpha, u, 1.0, c)
        assert found == pytest.approx(expected, rel=4.0 * change + 1e-6)


@given(POWERS, SLACKS, SLACKS, SIGNS, COSTS, CURVATURES)
@settings(deadline=None, max_examples=examples(1000))
def test_a_step_ends_where_the_row_is_stationary(p, slack, fitted, t, c, curvature):
    alpha, _ = fitting(p, fitted, c)
    new = t * losses.dual_step(LpHinge(p), t * alpha, t * slack, t, c, curvature)
    goal = LONG(slack) + LONG(curvature) * LONG(alpha)
    assert 0.0 <= new < math.inf
    if goal <= 0:
        assert new == 0.0
        return
    # The equation ``x + curvature p c x^k = goal``, both of whose terms grow, holds between near multipliers.
    scale, k = LONG(p) * LONG(c), LONG(p) - 1

    def left(at):
        return np.exp(np.log(at / scale) / k) + LONG(curvature) * at if at > 0 else LONG(0)

    error = LONG(1e-13)
    goal_error = 8 * UNIT * (abs(LONG(slack)) + LONG(curvature) * LONG(alpha))
    assert left(LONG(new) * (1 - error)) <= goal + goal_error
    assert left(LONG(new) * (1 + error)) >= goal - goal_error


@given(POWERS, SLACKS, SLACKS, SIGNS, COSTS)
@settings(deadline=None, max_examples=examples(500))
def test_gains_and_parabolas(p, one, other, t, c):
    assume(one >= 0.0 and other >= 0.0)
    loss = LpHinge(p)
    (alpha, a), (end, b) = fitting(p, one, c), fitting(p, other, c)
    gain = losses.gain(loss, t * alpha, t * end, t, c)

    def conjugate(at, slack):
        return (LONG(p) - 1) / LONG(p) * LONG(at) * slack

    exact = LONG(end) - LONG(alpha) - (conjugate(end, b) - conjugate(alpha, a))
    sizes = (LONG(alpha) + LONG(end)) * (1 + max(a, b))
    assert abs(gain - exact) <= 64 * UNIT * sizes
    linear, bend = losses.parabola(loss, t * alpha, t * end, t, c)
    assert bend >= 0.0
    assert linear - 0.5 * bend == pytest.approx(gain, rel=1e-12, abs=16 * UNIT * float(sizes))
    for theta in (LONG(0.1), LONG(0.5), LONG(0.9)):
        at = alpha + theta * (LONG(end) - LONG(alpha))
        slack = np.exp(np.log(at / (LONG(p) * LONG(c))) / (LONG(p) - 1)) if at > 0 else LONG(0)
        there = at - LONG(alpha) - (conjugate(at, slack) - conjugate(alpha, a))
        assert theta * linear - theta * theta * bend / 2 <= there + 64 * UNIT * sizes


@given(POWERS, SLACKS, SIGNS, COSTS)
@settings(deadline=None, max_examples=examples(300))
def test_values_and_magnitudes(p, slack, t, c):
    loss, u = LpHinge(p), LONG(slack)
    exact = LONG(c) * u ** LONG(p) if u > 0 else LONG(0)
    assert losses.value(loss, t * slack, t, c) == pytest.approx(float(exact), rel=1e-13)
    alpha, a = fitting(p, slack, c)
    conjugate = (LONG(p) - 1) / LONG(p) * LONG(alpha) * a
    magnitude = losses.magnitude(loss, t * alpha, t, c)
    assert abs(losses.conjugate(loss, t * alpha, t, c) - conjugate) <= 8 * UNIT * magnitude + 1e-300
    # So does a change of the last bit of alpha.
    for near in (np.nextafter(alpha, 0.0), np.nextafter(alpha, math.inf)):
        moved = losses.conjugate(loss, t * near, t, c) - losses.conjugate(loss, t * alpha, t, c)
        assert abs(moved) <= 8 * UNIT * max(magnitude, losses.magnitude(loss, t * near, t, c)) + 1e-300


def test_rows_that_cost_nothing_and_infinite_curvatures():
    loss = LpHinge(1.3)
    for t in (-1.0, 1.0):
        assert losses.value(loss, 3.0 * t, t, 0.0) == 0.0
        assert losses.row_gap(loss, 0.0, 3.0 * t, t, 0.0) == 0.0
        assert losses.dual_step(loss, 0.0, 3.0 * t, t, 0.0, 1.0) == 0.0
        assert losses.parabola(loss, 0.0, 0.0, t, 0.0) == (0.0, 0.0)
    assert math.isnan(losses.dual_step(loss, 0.0, 1.0, 1.0, 1.0, math.inf))


def test_the_ends_are_the_hinge_and_its_square():
    assert lp_hinge(1) == Hinge()
    assert isinstance(lp_hinge(1.0), Hinge)
    assert isinstance(lp_hinge(2), SquaredHinge)
    assert lp_hinge(1.25) == LpHinge(1.25)
