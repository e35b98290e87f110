"""The search for the place of the wanted nu, on shares that are known exactly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_svm.solvers.streamed_smo.nu_search import NuSearch

WANTED = 0.3
N_READS, WIDTH = 20, 1e-2


def straight(place):
    return 0.5 - 0.01 * place, 0.5 * place - 0.005 * place**2


def convex(place):
    return math.exp(-place), 1.0 - math.exp(-place)


def jump(place):
    """From 0.9 to 0.1 at 3."""
    return (0.9 if place <= 3.0 else 0.1), 0.9 * min(place, 3.0) + 0.1 * max(place - 3.0, 0.0)


def steps(place):
    """From 0.8 by 0.25 down, at each of three places."""
    corners = [k for k in (1.0, 2.0, 2.5) if k < place]
    return 0.8 - 0.25 * len(corners), 0.8 * place - sum(0.25 * (place - k) for k in corners)


def follow(shares, places):
    """Brackets of the wanted place: the pairs of places that it was between."""
    search, upper = NuSearch(0.0), math.inf
    for _ in range(N_READS):
        # The least that is known of the nu problem, and where lines below it say that it may be less.
        found = [(place, *shares(place)) for place in places]
        values = [WANTED * place - area for place, _, area in found]
        upper = min(upper, *values)
        for (place, share, _), value in zip(found, values, strict=True):
            away = (value - upper) / abs(share - WANTED)
            search.learn(*((place - away, math.inf) if share >= WANTED else (-math.inf, place + away)))
        more, less = found[0][1], found[1][1]
        if more >= WANTED > less:
            yield places
            mean = (found[1][2] - found[0][2]) / (places[1] - places[0])
            places = search.between(places, (more, less), mean, WANTED, 0.0)
        else:
            places = search.beyond(places, (more, less), WANTED)
        assert 0.0 <= places[0] < places[1]


@pytest.mark.parametrize("start", [(0.0, 10.0), (0.1, 0.2), (8.0, 9.0), (2.9, 2.99)])
@pytest.mark.parametrize(
    ("shares", "place"), [(straight, 20.0), (convex, -math.log(WANTED)), (jump, 3.0), (steps, 2.5)]
)
def test_the_two_close_in_on_the_place(shares, place, start):
    brackets = list(follow(shares, start))
    assert all(first <= place + 1e-12 and place <= second + 1e-12 for first, second in brackets)
    assert min(second - first for first, second in brackets) <= WIDTH


def test_a_jump_is_told_from_the_mean_of_the_shares():
    search = NuSearch(turns=1)
    mean = (jump(7.0)[1] - jump(1.0)[1]) / 6.0
    first, second = search.between((1.0, 7.0), (0.9, 0.1), mean, WANTED, 0.0)
    assert first < 3.0 < second
    assert second - first == pytest.approx(6.0 / 16)


@given(
    first=st.floats(-50, 50),
    width=st.floats(1e-3, 10),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    low=st.floats(-100, 0),
    high=st.floats(0, 100),
    misses=st.integers(0, 30),
)
def test_places_are_apart_and_not_where_nu_cannot_be(first, width, shares, low, high, misses):
    search = NuSearch(misses=misses)
    search.learn(low, high)
    places = first, first + width
    found = search.beyond(places, shares, WANTED)
    assert found[0] < found[1]
    assert found == places or low <= found[0] < found[1] <= high
