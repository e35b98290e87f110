"""Streamed SMO on well-known data sets: how many reads it takes, and that its optimum is LIBLINEAR's.

``OOC_SVM_DATA`` names a folder with adult/a9a.bz2, web/w8a.bz2, ijcnn1/ijcnn1.tst.bz2 and
covtype/covtype.multiclass.bz2 (the LIBSVM collection).
"""

from __future__ import annotations

import bz2
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

import ooc_svm

pytestmark = [pytest.mark.realdata, pytest.mark.timeout(600)]

A9A, W8A, IJCNN1 = "adult/a9a.bz2", "web/w8a.bz2", "ijcnn1/ijcnn1.tst.bz2"
COVTYPE = "covtype/covtype.multiclass.bz2"
SOME_OF_COVTYPE = "every sixth row of covtype"
BINARY = {name: {"positive": 1.0, "scale": "maxabs"} for name in (COVTYPE, SOME_OF_COVTYPE)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Converts a data set when it is first asked for."""
    folder = tmp_path_factory.mktemp("real")
    made = {}

    def store(name):
        part = name == SOME_OF_COVTYPE
        source = Path(os.environ.get("OOC_SVM_DATA", "")) / (COVTYPE if part else name)
        if "OOC_SVM_DATA" not in os.environ or not source.exists():
            pytest.skip(f"OOC_SVM_DATA names no folder with {source}")
        if name not in made:
            made[name] = folder / f"{name.replace('/', ' ')}.zarr"
            if part:
                with bz2.open(source, "rb") as lines:
                    rows = islice(lines, 0, None, 6)
                    source = folder / "some rows.svm"
                    source.write_bytes(b"".join(rows))
            ooc_svm.convert(source, made[name])
        return made[name]

    return store


@pytest.mark.parametrize(
    ("name", "C", "resident", "bias", "most"),
    [
        (A9A, 0.05, 0.1, "none", 3),
        (A9A, 1.0, 0.1, "none", 4),
        (A9A, 8.0, 0.1, "none", 5),
        (A9A, 32.0, 0.1, "none", 6),
        (W8A, 1.0, 0.1, "none", 4),
        (IJCNN1, 1.0, 0.1, "none", 4),
        (COVTYPE, 1.0, 0.1, "none", 5),
        (COVTYPE, 1.0, 0.02, "none", 15),
        (A9A, 0.05, 0.1, "free", 4),
        (A9A, 1.0, 0.1, "free", 5),
        (A9A, 8.0, 0.1, "free", 6),
        (W8A, 1.0, 0.1, "free", 6),
        (IJCNN1, 1.0, 0.1, "free", 4),
    ],
)
def test_reads_to_a_certified_gap(stores, name, C, resident, bias, most):
    options = {"C": C, "resident": resident, "bias": bias, **BINARY.get(name, {})}
    report = ooc_svm.train(stores(name), **options).report
    [found] = report["models"]
    assert found["converged"]
    assert found["relative_gap"] <= 1e-3
    assert found["passes"] <= most


@pytest.mark.parametrize("p", [1.0, 1.2, 1.5, 2.0])
@pytest.mark.parametrize(("name", "most"), [(A9A, 4), (W8A, 4), (IJCNN1, 5), (SOME_OF_COVTYPE, 5)])
def test_reads_for_each_power_of_the_slack(stores, name, most, p):
    options = {"resident": 0.1, "tol": 1e-3, **BINARY.get(name, {})}
    report = ooc_svm.train(stores(name), solver="streamed-smo", loss="lp", p=p, **options).report
    assert report["converged"]
    assert report["passes"] <= most


@pytest.mark.parametrize("bias", ["none", "free"])
@pytest.mark.parametrize(
    ("name", "C", "most", "most_to_four_digits"),
    [(A9A, 0.05, 3, 4), (A9A, 1.0, 5, 7), (A9A, 8.0, 7, 11), (W8A, 1.0, 3, 4), (IJCNN1, 1.0, 4, 5)],
)
def test_reads_of_the_logistic_loss(stores, name, C, most, most_to_four_digits, bias):
    for tol, reads in ((1e-3, most), (1e-4, most_to_four_digits)):
        options = {"C": C, "resident": 0.1, "bias": bias, "tol": tol}
        [found] = ooc_svm.train(stores(name), loss="logistic", **options).report["models"]
        assert found["converged"]
        # A free bias takes one read more at most.
        assert found["passes"] <= reads + (bias == "free")


@pytest.mark.parametrize("bias", ["none", "free"])
@pytest.mark.parametrize(("name", "C"), [(A9A, 1.0), (A9A, 32.0), (W8A, 1.0), (IJCNN1, 1.0), (COVTYPE, 1.0)])
def test_a_gap_of_a_millionth_is_reached(stores, name, C, bias):
    options = {"C": C, "bias": bias, "tol": 1e-6, **BINARY.get(name, {})}
    [found] = ooc_svm.train(stores(name), **options).report["models"]
    assert found["converged"]
    assert found["relative_gap"] <= 1e-6


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
@pytest.mark.parametrize("name", [A9A, W8A, IJCNN1])
def test_the_optimum_is_that_of_liblinear(stores, name, loss):
    store = ooc_svm.open_store(stores(name))
    blocks = [store.read_block(index) for index in range(len(store.blocks))]
    parts = [
        sparse.csr_matrix(
            (np.ones(len(b.indices)) if b.values is None else b.values, b.indices, b.indptr),
            (b.n_rows, store.n_features),
        )
        for b in blocks
    ]
    matrix = sparse.vstack(parts, format="csr").astype(np.float64)
    labels = store.read_labels(0, store.n_rows)
    peer = LinearSVC(
        C=0.1, loss=loss.replace("-", "_"), dual=True, fit_intercept=False, tol=1e-6, max_iter=100_000
    ).fit(matrix, labels)
    w = peer.coef_[0]
    short = np.maximum(0.0, 1.0 - labels * (matrix @ w))
    optimum = 0.5 * w @ w + 0.1 * (short if loss == "hinge" else short**2).sum()
    [found] = ooc_svm.train(store, C=0.1, loss=loss, tol=1e-4).report["models"]
    assert found["dual"] <= optimum * (1 + 1e-9)
    assert found["primal"] <= optimum * (1 + 1e-4) * (1 + 1e-9)
