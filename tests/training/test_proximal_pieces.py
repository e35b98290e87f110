"""Training by proximal steps in pieces: the same bits however many threads work on them."""

from __future__ import annotations

import os

import pytest
from helpers.train_data import bits, make_store, store_rows

from ooc_svm import train
from ooc_svm.engine import crew
from ooc_svm.solvers.streamed_smo import proximal

PROBLEMS = [
    {},
    {"scale": "std", "bias": "free"},
    {"loss": "squared-hinge", "resident": 0.3},
    {"problem": "svr", "C": [0.1, 1.0]},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("store") / "s", *store_rows(), block_rows=100)


@pytest.fixture
def helped(monkeypatch):
    """Steps of little data are in pieces; gives whether others helped, each time that they could have."""
    found, original = [], crew.ThreadCrew.help

    def help_in(self):
        found.append(original(self))
        return found[-1]

    monkeypatch.setattr(proximal, "PIECE_ELEMENTS", 500)
    monkeypatch.setattr(proximal, "FEW_ROWS", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(crew.ThreadCrew, "help", help_in)
    return found


@pytest.mark.parametrize("options", PROBLEMS, ids=str)
def test_no_bit_by_the_threads(store, options, helped):
    options = {"C": 30.0, "tol": 1e-6} | options
    alone = train(store, threads=1, **options)
    assert alone.report["converged"]
    for threads in (2, 3, 8):
        assert bits(train(store, threads=threads, **options)) == bits(alone)


def test_others_help(store, helped):
    for _ in range(10):  # on a machine that others use as well, they may come too late
        train(store, C=100.0, tol=1e-8, threads=2)
        if any(helped):
            return
    pytest.fail("no thread took a piece")
