"""Dense rows of more columns than there are rows: their products with each other, and steps by these."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.streamed_data import options_of, reference, value_of
from helpers.train_data import bits
from scipy import sparse

from ooc_svm import train
from ooc_svm.solvers.streamed_smo import dense_system, resident_rows
from ooc_svm.solvers.streamed_smo.dense_system import row_products
from ooc_svm.solvers.streamed_smo.proximal import MOST_COLUMNS, MOST_OF_DENSE
from ooc_svm.solvers.streamed_smo.resident_rows import has_proximal_steps

LINEAR = {"kernel": "poly", "degree": 1, "gamma": 1.0}  # x.z, for the solvers of kernels


@pytest.fixture(scope="module")
def rows():
    """Logarithms of counts: rows have most of their length in common. With classes, and a value of each."""
    rng = np.random.default_rng(0)
    X = np.log1p(np.exp(rng.normal(6.0, 2.0, (1, 5000)) + rng.normal(0.0, 1.0, (40, 5000))))
    s = X[:, :5].sum(axis=1) + rng.normal(size=40)
    s = (s - s.mean()) / s.std()
    return sparse.csr_array(X), np.where(s > 0.0, 1.0, -1.0), s, np.digitize(s, [-0.5, 0.5])


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("piece", [1, 50, 10**6])
def test_products_of_rows(piece, ones, scaled, monkeypatch):
    monkeypatch.setattr(dense_system, "PIECE_ELEMENTS", piece)
    rng = np.random.default_rng(1)
    X = sparse.random_array((9, 31), density=0.3, format="csr", rng=rng)
    X.data = np.ones(X.nnz) if ones else rng.standard_normal(X.nnz)
    X.sort_indices()
    scale2 = rng.uniform(0.5, 2.0, 31) if scaled else None
    matrix = X.indptr.astype(np.uint64), X.indices.astype(np.uint32), None if ones else X.data
    expected = X.toarray() * (1.0 if scale2 is None else scale2) @ X.toarray().T
    np.testing.assert_allclose(row_products(matrix, 31, scale2), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic", "epsilon-insensitive"])
def test_rows_that_are_much_alike_take_few_steps(rows, loss, bias, C):
    """With steps of one multiplier at a time many of these came to no end."""
    X, y, s, _ = rows
    t, problem = s if loss == "epsilon-insensitive" else y, {"loss": loss, "bias": bias, "C": C}
    options = {**options_of(**problem), "progress": lambda _: None}
    model = train(X, t, **options, max_passes=4)
    row = model.report["models"][0]
    assert row["converged"]
    assert row["row_visits"] <= 700
    assert row["primal"] == pytest.approx(
        value_of(X, t, model.weights[0], model.bias[0], **problem), rel=1e-9
    )
    if loss == "logistic":
        assert row["dual"] <= value_of(X, t, *reference(X, t, **problem), **problem)
        return
    other = train(X, t, **options, **LINEAR).report["models"][0]
    assert other["relative_gap"] <= 2e-3  # Rounding leaves it no less where C is 100.
    assert row["dual"] - row["rounding"] <= other["primal"] + other["rounding"]
    assert other["dual"] - other["rounding"] <= row["primal"] + row["rounding"]


def test_products_serve_all_models_and_threads_change_no_bit(rows, monkeypatch):
    found = []

    def count(*arguments):
        found.append(1)
        return row_products(*arguments)

    monkeypatch.setattr(resident_rows, "row_products", count)
    X, classes = rows[0], rows[3]
    one = train(X, classes, threads=1, progress=lambda _: None)
    assert one.report["converged"]
    assert len(found) == 1
    for threads in (2, 3):
        assert bits(train(X, classes, threads=threads, progress=lambda _: None)) == bits(one)


def test_the_columns_that_steps_may_have_follow_from_how_dense_rows_are():
    quarter = (MOST_COLUMNS + 2 + 3) // 4
    assert has_proximal_steps(MOST_COLUMNS + 1, 1, 100)
    assert has_proximal_steps(MOST_COLUMNS + 2, 100 * quarter, 100)
    assert not has_proximal_steps(MOST_COLUMNS + 2, 100 * (quarter - 1), 100)
    assert not has_proximal_steps(MOST_OF_DENSE + 2, 100 * (MOST_OF_DENSE + 2), 100)
