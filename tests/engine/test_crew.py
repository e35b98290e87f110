"""Threads that take pieces of a loop."""

from __future__ import annotations

import threading

import pytest
from helpers.crews import LONG, helpers

from ooc_svm.engine.crew import ThreadCrew
from ooc_svm.passes.crew import Alone


@pytest.mark.parametrize("n_helpers", [0, 1, 3])
def test_each_piece_is_done_once(n_helpers):
    crew, done = ThreadCrew(), []
    with helpers(crew, n_helpers):
        crew.begin()
        for n_pieces in (0, 1, 2, 50) * 10:
            done.clear()
            crew.each(done.append, range(n_pieces))
            assert sorted(done) == list(range(n_pieces))
        crew.end()


def test_a_helper_takes_pieces():
    """Each waits for the other, so that one alone would not come to an end."""
    crew, both = ThreadCrew(), threading.Barrier(2)
    with helpers(crew, 1) as counts:
        crew.begin()
        for _ in range(5):
            crew.each(lambda piece: both.wait(LONG), range(2))
        crew.end()
    assert 1 <= counts[0] <= 5


def test_none_helps_where_there_is_no_loop():
    crew = ThreadCrew()
    assert not crew.help()
    crew.begin()
    assert not crew.help()
    crew.each(lambda piece: None, range(3))
    assert not crew.help()
    crew.end()
    assert not crew.help()


@pytest.mark.parametrize("fails", ["leader", "helper"])
def test_a_failure_is_that_of_the_loop(fails):
    crew, both, leader = ThreadCrew(), threading.Barrier(2), threading.current_thread()

    def work(piece: int) -> None:
        both.wait(LONG)
        if (threading.current_thread() is leader) == (fails == "leader"):
            raise ValueError(fails)

    with helpers(crew, 1):
        crew.begin()
        with pytest.raises(ValueError, match=fails):
            crew.each(work, range(2))
        crew.end()
    assert not crew.help()


def test_one_alone_does_all():
    crew, done = Alone(), []
    crew.begin()
    crew.each(done.append, range(5))
    crew.end()
    assert done == list(range(5))
    assert not crew.help()
