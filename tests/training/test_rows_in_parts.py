"""Training on rows in parts: the same optimum, and the same bits however many threads work on them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.train_data import bits, make_store, store_rows
from scipy import sparse

from ooc_svm import train
from ooc_svm.solvers.base import LONG_ROW
from ooc_svm.solvers.streamed_smo import plan, proximal, resident_rows, team
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE, state_path

pytestmark = pytest.mark.usefixtures("few_held")

PROBLEMS = [{}, {"scale": "std", "bias": "free"}, {"problem": "svr", "C": 0.1}]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    blocks = {"chunk_elements": 4000, "chunk_rows": 100, "block_rows": 100}
    return make_store(tmp_path_factory.mktemp("store") / "s", *store_rows(n_features=300), **blocks)


@pytest.fixture
def parted(monkeypatch):
    """Rows of a few nonzeros have parts; gives the number of solves that others helped."""
    helped = []
    original = team.Team.help

    def help_in(self):
        found = original(self)
        helped.append(found)
        return found

    monkeypatch.setattr(resident_rows, "LEAST_PART", 4)
    for name in ("MOST_COLUMNS", "MOST_OF_DENSE"):  # with so few columns there were steps in place of parts
        monkeypatch.setattr(proximal, name, -1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(team.Team, "help", help_in)
    return helped


def value(model):
    return model.report["models"][0]["dual"]


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("options", PROBLEMS, ids=str)
def test_same_optimum_and_no_bit_by_the_threads(store, options, numbered, monkeypatch, request):
    tol = 1e-3
    whole = train(store, tol=tol, **options)
    request.getfixturevalue("parted")
    if numbered:
        monkeypatch.setattr(plan, "MANY_COLUMNS", 0)
    alone = train(store, tol=tol, threads=1, **options)
    assert alone.report["converged"]
    assert value(alone) == pytest.approx(value(whole), rel=2 * tol)
    for threads in (2, 3, 8):
        assert bits(train(store, tol=tol, threads=threads, **options)) == bits(alone)


def test_rows_of_ones(tmp_path):
    blocks = {"chunk_elements": 4000, "chunk_rows": 100, "block_rows": 100}
    rng = np.random.default_rng(2)
    matrix = sparse.random_array((400, 3 * LONG_ROW), density=0.4, format="csr", rng=rng)
    matrix.data[:] = 1.0
    matrix.sort_indices()
    labels = np.sign(matrix @ rng.standard_normal(3 * LONG_ROW))
    store = make_store(tmp_path / "s", matrix, labels, **blocks)
    alone, others = (train(store, C=0.01, tol=1e-5, threads=threads) for threads in (1, 3))
    assert alone.report["converged"]
    assert bits(others) == bits(alone)


def test_others_help(store, parted):
    for _ in range(10):  # on a machine that others use as well, they may come too late
        train(store, tol=1e-8, threads=2)
        if any(parted):
            return
    raise AssertionError("no thread has helped")


def test_none_helps_with_rows_that_have_no_parts(store, monkeypatch):
    monkeypatch.setattr(team.Team, "help", None)
    assert train(store, threads=3).report["converged"]


def test_a_resumed_run_goes_on_with_the_same_bits(store, parted, tmp_path):
    whole = train(store, tol=1e-6)
    for passes in (1, 3):
        train(store, tol=1e-6, max_passes=passes, checkpoint=tmp_path / str(passes))
        assert bits(train(store, tol=1e-6, checkpoint=tmp_path / str(passes), resume=True)) == bits(whole)


def test_a_run_of_an_older_release_goes_on_without_parts(store, tmp_path, request):
    whole = train(store, tol=1e-6)
    train(store, tol=1e-6, max_passes=2, checkpoint=tmp_path)
    for place in (0, 1):
        path = state_path(tmp_path, place)
        content, arrays = read_arrays(path, CHECKPOINT_FILE)
        del content["facts"]["parameters"]["parts"]
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)
    request.getfixturevalue("parted")
    assert bits(train(store, tol=1e-6, checkpoint=tmp_path, resume=True)) == bits(whole)


def test_many_models_have_parts_too(store, parted):
    C = (0.1, 1.0, 10.0)
    alone, others = (train(store, C=C, tol=1e-4, threads=threads) for threads in (1, 3))
    assert [model["converged"] for model in alone.report["models"]] == [True] * 3
    np.testing.assert_array_equal(alone.weights, others.weights)


def test_memory_for_the_cuts_is_planned(store, request):
    def planned():
        return train(store, threads=1, max_passes=1).report

    without = planned()
    request.getfixturevalue("parted")
    assert planned()["resident"] <= without["resident"]
