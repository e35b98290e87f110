"""A run leaves nothing to the garbage collector, which may not look for long while memory runs full."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.train_data import make_store, store_rows

from ooc_svm import train, tune
from ooc_svm.training import division

TOLD: list = []  # What a run tells, which knows of it

KINDS = [
    {},
    {"C": (1.0, 2.0, 4.0), "bias": "none"},
    {"bias": "free"},
    {"solver": "ocas"},
    {"solver": "alm", "loss": "squared-hinge"},
    {"solver": "smo"},
    {"problem": "nu-svc", "solver": "streamed-smo"},
    {"problem": "svr"},
    {"problem": "ordinal"},
    {"kernel": "rbf"},
    {"kernel": "rbf", "solver": "kernel-cutting-plane", "bias": "free"},
    {"kernel": "rbf", "landmarks": 30},
    {"calibrate": "sigmoid"},
    {"prune": 0.1},
]


def left_behind(run) -> list[str]:
    """Kinds of objects of this package, and of arrays, that a run leaves behind in circles."""
    run()  # What it loads stays.
    gc.collect()
    gc.disable()
    try:
        run()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
        return [
            each.__name__ for each in kinds if each is np.ndarray or each.__module__.startswith("ooc_svm")
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_matrix_and_all_that_is_made_of_it_is_free_after_a_run(options):
    rows = np.random.default_rng(0).standard_normal((120, 6))
    labels = (rows[:, 0] > 0.1).astype(int)
    assert left_behind(lambda: train(rows, labels, tol=0.1, progress=TOLD.append, **options)) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_so_is_what_a_run_holds_of_a_store(tmp_path, threads):
    store = make_store(tmp_path / "store", *store_rows(200, 20))
    assert left_behind(lambda: train(store, C=(0.1, 1.0), threads=threads, progress=TOLD.append)) == []
    assert (
        left_behind(lambda: tune(store, C=(0.1, 1.0), folds=3, threads=threads, progress=TOLD.append)) == []
    )


@pytest.mark.parametrize("options", [{}, {"solver": "ocas"}], ids=str)
def test_so_is_each_batch_before_the_next(tmp_path, monkeypatch, options):
    store = make_store(tmp_path / "store", *store_rows(200, 20))
    monkeypatch.setattr("ooc_svm.training.execute.batches", lambda prepared: division.in_batches(prepared, 3))
    options = {"C": (0.1, 1.0, 10.0), "progress": TOLD.append} | options
    assert left_behind(lambda: train(store, **options)) == []
    assert left_behind(lambda: tune(store, folds=3, **options)) == []
