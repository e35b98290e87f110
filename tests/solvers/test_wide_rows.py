"""Dense rows of more columns than there are rows, which are solved by a factor of their products."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from helpers.streamed_data import options_of, reference, value_of
from helpers.train_data import bits
from scipy import sparse

from ooc_svm import train
from ooc_svm.solvers.streamed_smo import gram_factor, resident_rows
from ooc_svm.solvers.streamed_smo.gram_factor import factor_bytes, factor_rows
from ooc_svm.solvers.streamed_smo.proximal import MOST_COLUMNS, MOST_OF_DENSE
from ooc_svm.solvers.streamed_smo.resident_rows import has_factor, has_proximal_steps

LINEAR = {"kernel": "poly", "degree": 1, "gamma": 1.0}  # x.z, for the solvers of kernels


@pytest.fixture(scope="module")
def rows():
    """Logarithms of counts: rows have most of their length in common. With classes, and a value of each."""
    rng = np.random.default_rng(0)
    X = np.log1p(np.exp(rng.normal(6.0, 2.0, (1, 5000)) + rng.normal(0.0, 1.0, (40, 5000))))
    s = X[:, :5].sum(axis=1) + rng.normal(size=40)
    s = (s - s.mean()) / s.std()
    return sparse.csr_array(X), np.where(s > 0.0, 1.0, -1.0), s, np.digitize(s, [-0.5, 0.5])


def csr(X):
    """The CSR arrays as compiled functions take them."""
    X = sparse.csr_array(X)
    X.sort_indices()
    return X.indptr.astype(np.uint64), X.indices.astype(np.uint32), X.data


def lower(factor):
    """L as a dense matrix."""
    m = len(factor.indptr) - 1
    L = sparse.csr_array((factor.values, factor.indices.astype(np.int64), factor.indptr), (m, m)).toarray()
    assert not np.triu(L, 1).any()
    return L


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("piece", [1, 50, 10**6])
def test_rows_of_the_factor_have_the_products_of_the_rows(piece, ones, scaled, monkeypatch):
    monkeypatch.setattr(gram_factor, "PIECE_ELEMENTS", piece)
    rng = np.random.default_rng(1)
    X = sparse.random_array((9, 31), density=0.3, format="csr", rng=rng)
    X.data = np.ones(X.nnz) if ones else rng.standard_normal(X.nnz)
    scale2 = rng.uniform(0.5, 2.0, 31) if scaled else None
    indptr, indices, values = csr(X)
    factor = factor_rows((indptr, indices, None if ones else values), 31, scale2)
    expected = X.toarray() * (1.0 if scale2 is None else scale2) @ X.toarray().T
    np.testing.assert_allclose(factor.products, expected, rtol=1e-13, atol=1e-13)
    L = lower(factor)
    np.testing.assert_allclose(L @ L.T, expected, rtol=1e-12, atol=1e-12)
    scores = rng.standard_normal(9)
    np.testing.assert_allclose(L @ factor.vector(scores), scores, rtol=1e-10)


@pytest.mark.parametrize("unit", [1e-140, 1.0, 1e140])
def test_rows_that_follow_from_others_have_a_factor_too(unit):
    """Products of 60 rows of rank 40, some of zeros, some twice, are not positive definite."""
    rng = np.random.default_rng(2)
    X = unit * rng.standard_normal((60, 40)) @ rng.standard_normal((40, 300))
    X[[3, 17]], X[40:50] = 0.0, X[:10]
    factor = factor_rows(csr(X), 300, None)
    L, K = lower(factor), X @ X.T
    norms = np.sqrt(np.diag(K))
    assert (np.abs(L @ L.T - K) <= 1e-9 * np.outer(norms, norms) + 1e-299).all()


@pytest.mark.parametrize("common", [1e5, 1e8])
def test_rows_that_rounding_leaves_little_of_their_own_have_no_factor(common):
    X = np.random.default_rng(2).standard_normal((60, 300)) + common
    assert (factor_rows(csr(X), 300, None) is None) == (common > 1e7)


def test_rows_whose_products_are_not_finite_have_no_factor():
    with np.errstate(over="ignore", invalid="ignore"):
        assert factor_rows(csr(np.full((3, 300), 1e200)), 300, None) is None


@pytest.mark.parametrize("n_rows", [10, 400])
def test_the_plan_knows_what_a_factor_takes(n_rows):
    matrix = csr(np.random.default_rng(3).standard_normal((n_rows, 700)))
    factor_rows(matrix, 700, None)  # loads what it calls
    tracemalloc.start()
    try:
        factor = factor_rows(matrix, 700, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(factor.products) == n_rows
    assert peak <= factor_bytes(n_rows) + 20_000


def test_a_factor_is_for_rows_that_it_makes_no_longer():
    assert has_factor(1000, 300 * 1000, 300)
    assert not has_factor(1000, 1000 * 1000, 1000)  # as many rows as columns
    assert not has_factor(257, 100 * 257, 100)  # few columns, whose systems are small
    assert has_factor(4096, 300 * 150, 300)
    assert not has_factor(4096, 300 * 150 - 1, 300)  # sparse rows
    assert has_factor(10**6, 300 * 250_000, 300)
    assert not has_factor(10**6, 300 * 250_000 - 1, 300)
    assert not has_factor(10**5, 5000 * 10**5, 5000)


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


def test_one_factor_serves_all_models_and_threads_change_no_bit(rows, monkeypatch):
    found = []

    def count(*arguments):
        found.append(1)
        return factor_rows(*arguments)

    monkeypatch.setattr(resident_rows, "factor_rows", count)
    X, classes = rows[0], rows[3]
    one = train(X, classes, threads=1, progress=lambda _: None)
    assert one.report["converged"]
    assert len(found) == 1
    for threads in (2, 3):
        assert bits(train(X, classes, threads=threads, progress=lambda _: None)) == bits(one)


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_the_best_point_of_separable_data_is_clear_of_edges(rows, bias):
    """Rows at a margin of 1 would leave P as uncertain as C times the rounding of all their scores."""
    X, y = rows[:2]
    problem = {"loss": "hinge", "bias": bias, "C": 1e5}
    model = train(X, y, **options_of(**problem), tol=1e-7, progress=lambda _: None)
    row = model.report["models"][0]
    assert row["converged"]
    assert row["rounding"] <= 1e-8 * row["primal"]
    assert row["primal"] == pytest.approx(
        value_of(X, y, model.weights[0], model.bias[0], **problem), rel=1e-9
    )


@pytest.mark.parametrize("bias", ["penalized", "free"])
def test_what_a_factor_solves_is_certified_as_far_as_without(rows, bias, monkeypatch):
    X, y = rows[:2]
    options = {"bias": bias, "C": 10.0, "tol": 1e-9, "progress": lambda _: None}
    ours = train(X, y, **options).report["models"][0]
    assert ours["converged"]
    monkeypatch.setattr(resident_rows, "MOST_FACTORED", 0)
    other = train(X, y, **options, time_limit=20.0).report["models"][0]
    assert ours["dual"] - ours["rounding"] <= other["primal"] + other["rounding"]
    assert other["dual"] - other["rounding"] <= ours["primal"] + ours["rounding"]


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_rows_with_nearly_all_in_common_are_solved_as_they_are(bias):
    """A column of times in seconds."""
    X = np.random.default_rng(4).standard_normal((300, 1000))
    y = np.where(X[:, :3].sum(axis=1) > 0.0, 1.0, -1.0)
    X[:, 5] = 1.6e9 + 1e7 * X[:, 5]
    row = train(X, y, bias=bias, max_passes=40, progress=lambda _: None).report["models"][0]
    assert row["relative_gap"] <= 0.1


def test_rows_that_are_not_all_held_have_no_factor(rows, monkeypatch):
    monkeypatch.setattr(resident_rows, "factor_rows", None)
    model = train(rows[0], rows[1], resident=0.5, C=0.01, progress=lambda _: None)
    assert model.report["models"][0]["relative_gap"] <= 1e-3


def test_the_columns_that_steps_may_have_follow_from_how_dense_rows_are():
    quarter = (MOST_COLUMNS + 2 + 3) // 4
    assert has_proximal_steps(MOST_COLUMNS + 1, 1, 100)
    assert has_proximal_steps(MOST_COLUMNS + 2, 100 * quarter, 100)
    assert not has_proximal_steps(MOST_COLUMNS + 2, 100 * (quarter - 1), 100)
    assert not has_proximal_steps(MOST_OF_DENSE + 2, 100 * (MOST_OF_DENSE + 2), 100)
