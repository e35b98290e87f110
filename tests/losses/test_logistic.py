"""The logistic loss where its numbers are extreme, against 80 bits; other tests of it: `test_losses`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import losses
from helpers.losses import make_loss
from helpers.thinning import examples
from hypothesis import given, settings
from hypothesis import strategies as st

LONG = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(LONG).eps > 2e-19, reason="no floats of 80 bits here")

LOSS = make_loss("logistic")
COSTS = st.sampled_from([1e-8, 1e-3, 1.0, 7.0, 1e8])
SIGNS = st.sampled_from([-1.0, 1.0])
MARGINS = st.one_of(
    st.sampled_from([0.0, 1e-9, 36.0, 37.5, 700.0, 746.0, 1e6]), st.floats(0.0, 50.0), st.floats(0.0, 1e6)
).flatmap(lambda size: st.sampled_from([-size, size]))
# Of c: next to 0, next to c, and in between.
SHARES = st.one_of(
    st.sampled_from([0.0, 1e-300, 1e-17, 0.5, 1.0 - 2.0**-53, 1.0]),
    st.floats(0.0, 1.0),
    st.floats(1e-12, 1.0).map(lambda x: 1.0 - x * 1e-3),
)
UNIT = 2.0**-53


def plus(x):
    """``log(1 + exp(x))`` in 80 bits."""
    return np.logaddexp(LONG(0), LONG(x))


def entropy(alpha, c):
    """``c H(alpha / c)`` in 80 bits."""
    less = min(LONG(alpha), LONG(c) - LONG(alpha))
    if less <= 0:
        return LONG(0)
    share = less / LONG(c)
    return -less * np.log(share) - (LONG(c) - less) * np.log1p(-share)


def own_error(alpha, c):
    """What the rounding of a difference of two entropies near by, in 80 bits, is at most."""
    return 16 * np.finfo(LONG).eps * (abs(entropy(alpha, c)) + abs(LONG(alpha)))


def row(share, margin, t, c):
    """A multiplier and a residual of a row, with the margin that the residual stands for."""
    r = t - t * margin
    return t * min(share * c, c), r, 1 - LONG(t) * LONG(r)


@given(SHARES, MARGINS, SIGNS, COSTS)
@settings(deadline=None, max_examples=examples(1000))
def test_the_gap_is_the_divergence_to_the_last_digits(share, margin, t, c):
    v, r, m = row(share, margin, t, c)
    alpha = LONG(t * v)
    found = losses.row_gap(LOSS, v, r, t, c)
    exact = LONG(c) * plus(-m) - entropy(alpha, c) + m * alpha
    assert found >= 0.0
    # A rounding of u changes the gap by c |a - p|, and one of alpha by c a times the difference of logits.
    p = LONG(c) * np.exp(-plus(m))
    error = abs(alpha - p) * (1 + abs(m)) + abs(exact)
    assert abs(found - exact) <= 16 * UNIT * error + 64 * np.finfo(LONG).eps * c * (1 + abs(m)) + 1e-290


def test_next_to_the_optimum_the_gap_has_its_digits():
    """The difference of the losses has none left there."""
    c, u = 3.0, 0.7
    p = c / (1.0 + math.exp(-u))
    for change in (1e-3, 1e-6, 1e-9):
        v, r = p + change * c, 1.0 + u
        d = v - c / (1.0 + math.exp(-u))
        expected = d * d * c / (2.0 * p * (c - p))
        assert losses.row_gap(LOSS, v, r, 1.0, c) == pytest.approx(expected, rel=2.0 * change)


@given(SHARES, MARGINS, SIGNS, COSTS)
@settings(deadline=None, max_examples=examples(500))
def test_values_conjugates_and_their_magnitudes(share, margin, t, c):
    v, r, m = row(share, margin, t, c)
    loss = LONG(c) * plus(-m)
    near = loss + losses.slope(LOSS, r, t, c) * t * abs(r)
    assert abs(losses.value(LOSS, r, t, c) - loss) <= 8 * UNIT * near + 1e-300
    assert losses.slope(LOSS, r, t, c) * t >= 0.0
    alpha = LONG(t * v)
    conjugate = alpha - entropy(alpha, c)
    magnitude = losses.magnitude(LOSS, v, t, c)
    assert abs(losses.conjugate(LOSS, v, t, c) - conjugate) <= 4 * UNIT * magnitude + 1e-300
    # A change of the last bit of v moves the term by no more either.
    for near in (np.nextafter(t * v, 0.0), np.nextafter(t * v, np.inf)):
        if 0.0 <= near <= c:
            moved = entropy(near, c) - entropy(alpha, c)
            assert abs(moved) <= 4 * UNIT * (magnitude + abs(v)) + 1e-300


@given(SHARES, SHARES, SIGNS, COSTS)
@settings(deadline=None, max_examples=examples(500))
def test_a_gain_is_exact_beside_its_parts(one, other, t, c):
    v, new = t * min(one * c, c), t * min(other * c, c)
    exact = entropy(t * new, c) - entropy(t * v, c)
    found = losses.gain(LOSS, v, new, t, c)
    error = 16 * UNIT * (abs(exact) + 2 * abs(new - v)) + own_error(t * v, c)
    assert abs(found - exact) <= error + 1e-290


@given(SHARES, MARGINS, SIGNS, COSTS, st.sampled_from([0.0, 1e-9, 0.3, 1.0, 80.0, 1e6, 1e12]))
@settings(deadline=None, max_examples=examples(1000))
def test_a_step_ends_where_the_row_is_stationary(share, margin, t, c, curvature):
    v, r, m = row(share, margin, t, c)
    new = losses.dual_step(LOSS, v, r, t, c, curvature)
    alpha, end = LONG(t * v), LONG(t * new)
    assert 0.0 <= end <= c

    def gain(at):
        change = at - alpha
        return entropy(at, c) - entropy(alpha, c) - m * change - LONG(curvature) * change * change / 2

    # The dual is concave: no point near by is better, by more than the digits of the step and of c. The end
    # has digits of its own.
    best = gain(end)
    scale = abs(best) + UNIT * (c + abs(m) * c) + LONG(curvature) * (end - alpha) ** 2 * UNIT
    best += LONG(curvature) * (UNIT * end) ** 2
    for factor in (0.5, 0.999, 1.001, 2.0):
        for at in (end * factor, c - (c - end) * factor):
            if 0 <= at <= c:
                assert gain(LONG(at)) <= best + 1e-9 * scale + 4 * UNIT * c


@given(st.floats(0.01, 0.99), st.floats(-3.0, 3.0), SIGNS, st.floats(0.0, 11.0))
@settings(deadline=None, max_examples=examples(500))
def test_no_step_leaves_a_row_further_from_being_stationary(share, off, t, digits):
    """An error of the multiplier that is next to nothing moves the score far where c |x|^2 is huge."""
    scale = 10.0**digits
    u = math.log(share / (1.0 - share)) + off
    new = losses.dual_step(LOSS, t * share, t * (1.0 + u), t, 1.0, scale)
    end = LONG(t * new)
    left = LONG(u) - LONG(scale) * (end - LONG(share)) - np.log(end / (1 - end))
    assert abs(left) <= 0.6 * abs(off) + 16 * UNIT * (scale + 100.0)


def test_no_number_comes_of_an_infinite_curvature():
    assert math.isnan(losses.dual_step(LOSS, 0.0, 1.0, 1.0, 1.0, math.inf))


def test_rows_that_cost_nothing():
    for t in (-1.0, 1.0):
        assert losses.value(LOSS, 3.0, t, 0.0) == 0.0
        assert losses.row_gap(LOSS, 0.0, 3.0, t, 0.0) == 0.0
        assert losses.dual_step(LOSS, 0.0, 3.0, t, 0.0, 1.0) == 0.0
        assert losses.parabola(LOSS, 0.0, 0.0, t, 0.0) == (0.0, 0.0)


@given(SHARES, SHARES, SIGNS, COSTS)
@settings(deadline=None, max_examples=examples(500))
def test_the_parabola_is_finite_and_no_larger_than_what_it_stands_for(one, other, t, c):
    v, new = t * min(one * c, c), t * min(other * c, c)
    linear, quadratic = losses.parabola(LOSS, v, new, t, c)
    alpha, end = LONG(t * v), LONG(t * new)
    assert quadratic >= 0.0
    # Rounding of a row is a share of this.
    assert quadratic <= 4.0 * abs(new - v) * (1.0 + 1e-9) + 1e-300
    for theta in (0.1, 0.5, 0.9, 1.0):
        exact = entropy(alpha + theta * (end - alpha), c) - entropy(alpha, c)
        error = 32 * UNIT * (abs(exact) + 2 * abs(end - alpha)) + own_error(alpha, c) + 1e-290
        assert theta * linear - theta * theta * quadratic / 2 <= exact + error
