"""A run that a signal ends before one of its reads, or that has ended, goes on to the same bits.

A checkpoint is written when a solver has asked for a read and waits for it.
"""

from __future__ import annotations

import pytest
from helpers.stopped_runs import signal_at
from helpers.train_data import make_store, problem_rows

import ooc_svm
from ooc_svm.errors import Interrupted
from ooc_svm.model.kernel import KernelFunctions

# Before which reads runs are ended; scores are computed again from the fifteenth of the second on.
READS = {"": (2, 3, 4, 6, 9), "block-smo, classes": (2, 13, 14, 15, 16, 17, 18, 19, 20)}
RBF = {"kernel": "rbf", "gamma": 0.02}
CASES = {
    "streamed-smo": {"resident": 0.1, "bias": "free"},
    "streamed-smo, nu": {"solver": "streamed-smo", "problem": "nu-svc", "nu": 0.4, "scale": "maxabs"},
    "ocas": {"solver": "ocas", "bias": "free"},
    "ocas, nu": {"solver": "ocas", "problem": "nu-svc", "nu": 0.4, "scale": "maxabs"},
    "ocas, nu of values": {"solver": "ocas", "problem": "nu-svr", "nu": 0.4, "scale": "maxabs"},
    "cutting-plane": {"solver": "cutting-plane", "bias": "free", "scale": "std"},
    "smo": {"solver": "smo", "bias": "free"},
    "smo, classes": {"solver": "smo", "bias": "free", "problem": "three classes"},
    "smo, kernel": {"solver": "smo", "bias": "free", **RBF},
    "alm": {"solver": "alm", "loss": "squared-hinge"},
    "inexact-alm": {"solver": "inexact-alm", "loss": "lp", "p": 1.5},
    "block-smo": {"C": 100.0, "tol": 1e-8, "bias": "free", **RBF},
    "block-smo, classes": {"C": [1.0, 100.0], "tol": 1e-6, "problem": "three classes", **RBF},
    "kernel-cutting-plane": {"solver": "kernel-cutting-plane", "bias": "free", **RBF},
    "landmarks": {"landmarks": 40, "polish": True, **RBF},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder, cut = tmp_path_factory.mktemp("stores"), {"chunk_elements": 500, "block_chunks": 2}
    return {
        problem: make_store(folder / problem, *problem_rows(problem, 300, 20, noise=0.5), **cut)
        for problem in ("two classes", "three classes", "svr")
    }


def bits_of(model):
    functions = model.functions
    if isinstance(functions, KernelFunctions):
        vectors = [array for array in functions.vectors.arrays if array is not None]
        arrays = [*vectors, functions.coefficients, functions.bias]
    else:
        arrays = [model.weights, model.bias]
    history = [(row["primal"], row["dual"]) for row in model.report["history"]]
    return [array.tobytes() for array in arrays] + history


@pytest.mark.parametrize("name", CASES)
def test_goes_on_to_the_same_bits(stores, tmp_path, monkeypatch, name):
    monkeypatch.setattr("ooc_svm.solvers.block_smo.plan.SIZES", (64,))
    options = dict(CASES[name])
    problem = options.pop("problem", "svc")
    data = stores[{"svc": "two classes", "nu-svc": "two classes", "nu-svr": "svr"}.get(problem, problem)]
    if problem != "three classes":
        options["problem"] = problem

    def train(**more):
        return ooc_svm.train(data, progress=lambda _: None, **options, **more)

    expected, ended = bits_of(train()), 0
    for wanted in READS.get(name, READS[""]):
        folder = tmp_path / str(wanted)
        with signal_at(wanted) as asked:
            try:
                train(checkpoint=folder)
            except Interrupted:
                ended += 1
        assert bits_of(train(checkpoint=folder, resume=any(folder.rglob("*.state")))) == expected
        if len(asked) < wanted:
            break
    assert ended
