"""What models of a run do between two rounds, and their passes over row vectors, go on at the same time."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.streamed_data import FEW
from helpers.train_data import make_store
from scipy import sparse

import ooc_svm.passes.base
import ooc_svm.solvers.streamed_smo.state
from ooc_svm import train
from ooc_svm.engine.local import LocalEngine

pytestmark = pytest.mark.usefixtures("few_held")

COSTS = [2.0**k for k in range(-3, 3)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Rows of four classes that overlap, of two, and with values."""
    rng, folder = np.random.default_rng(7), tmp_path_factory.mktemp("stores")
    matrix = sparse.random(1200, 30, 0.3, "csr", rng=rng, data_rvs=rng.standard_normal)
    scores = matrix @ rng.normal(size=(30, 4)) + rng.normal(size=(1200, 4))
    values = scores[:, 0]
    labels = {"classes": np.argmax(scores, axis=1), "binary": np.where(values > 0.0, 1, -1), "svr": values}
    return {name: make_store(folder / name, matrix, own.astype(float), **FEW) for name, own in labels.items()}


@pytest.fixture
def at_once(monkeypatch):
    """Little is worth a thread; how many solvers went on at the same time, each time that some did."""
    found, go_on = [], LocalEngine._at_once

    def counted(engine, tasks):
        found.append(len(tasks))
        go_on(engine, tasks)

    monkeypatch.setattr(ooc_svm.passes.base, "LONG_VISIT", 0)
    monkeypatch.setattr(ooc_svm.solvers.streamed_smo.state, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(LocalEngine, "_at_once", counted)
    return found


def bits(model):
    """All that is learned, and what is certified of each model."""
    found = [
        (each["passes"], each["primal"], each["dual"], each["row_visits"]) for each in model.report["models"]
    ]
    return model.weights.tobytes(), np.asarray(model.bias).tobytes(), found


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("classes", {"bias": "penalized"}),
        ("classes", {"bias": "free", "scale": "std"}),
        ("binary", {"C": COSTS, "bias": "none"}),
        ("binary", {"C": COSTS, "bias": "free", "loss": "squared-hinge"}),
        ("binary", {"C": COSTS, "bias": "none", "resident": 1.0}),  # chains
        ("svr", {"C": COSTS, "bias": "free", "loss": "squared-epsilon-insensitive"}),
    ],
)
def test_the_bits_are_those_of_one_after_another(stores, request, problem, options):
    store, of = stores[problem], "svr" if problem == "svr" else "svc"
    options = {"problem": of, "resident": 0.1, **options}
    one = bits(train(store, threads=1, **options))
    at_once = request.getfixturevalue("at_once")
    for threads in (1, 3):
        at_once.clear()
        assert bits(train(store, threads=threads, **options)) == one
        # Rounds, and what comes before the first of each read.
        assert len(at_once) >= 4
        assert max(at_once) == (4 if problem == "classes" else len(COSTS))
