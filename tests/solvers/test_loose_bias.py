"""A penalized bias of rows with many columns: fewer steps, true bounds, and the same bits in any case."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.losses import LOSSES, is_regression, plain_losses
from helpers.streamed_data import EPS, options_of
from helpers.train_data import answers, bits, make_store
from scipy import sparse

from ooc_svm import train
from ooc_svm.solvers.streamed_smo import effort, solver, state

N_ROWS, N_COLUMNS = 1500, 5000
WITH_END = [loss for loss in LOSSES if loss != "logistic"]


def texts(n_columns=N_COLUMNS, seed=3):
    """Rows of length 1 with few columns of many, as texts have, and scores by a noisy rule."""
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.pareto(0.8, (N_ROWS, 25)), n_columns - 1).astype(np.int64)
    x = sparse.coo_array((np.ones(ids.size), (np.repeat(np.arange(N_ROWS), 25), ids.ravel())))
    x = sparse.csr_array(x, shape=(N_ROWS, n_columns))
    x.data[:] = rng.random(x.nnz) + 0.2
    x = sparse.csr_array(sparse.diags_array(1.0 / np.sqrt((x * x).sum(axis=1))) @ x)
    x.sort_indices()
    return x, x @ rng.normal(size=n_columns) + 0.3 * rng.normal(size=N_ROWS)


def targets_of(loss, scores):
    return scores + 2.0 if is_regression(loss) else np.where(scores > 0.4, 1.0, -1.0)


def trained(loss, *, x=None, **options):
    rows, scores = texts() if x is None else x
    return train(rows, targets_of(loss, scores), **options_of(loss, **{"bias": "penalized", **options}))


def steps(model):
    row = model.report["models"][0]
    assert row["converged"]
    return row["row_visits"]


def primal(loss, model, C):
    """P written out."""
    x, scores = texts()
    w, b = model.weights.ravel(), float(model.bias[0])
    t, width = targets_of(loss, scores), EPS if is_regression(loss) else 0.0
    return 0.5 * (w @ w + b * b) + plain_losses(loss, t, x @ w + b, np.full(N_ROWS, C), width).sum()


@pytest.fixture
def tight(monkeypatch):
    """A bias that is the sum of the multipliers at any time, as that of few columns is."""

    def tighten():
        monkeypatch.setattr(state, "LOOSE", math.inf)

    return tighten


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("loss", WITH_END)
def test_it_takes_fewer_steps(loss, streamed, request, tight):
    if streamed:
        request.getfixturevalue("few_held")
    options = {"C": 10.0, **({"resident": 0.3} if streamed else {})}
    without = steps(trained(loss, bias="none", **options))
    loose = steps(trained(loss, **options))
    tight()
    # The bias is one more feature that all rows have.
    assert loose <= 0.9 * steps(trained(loss, **options))
    assert loose <= 1.5 * without


# With a cost of 100 this loss takes a hundred reads, with or without a loose bias.
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("loss", "C"),
    [(loss, C) for loss in LOSSES for C in (0.003, 1.0, 10.0 if loss == "epsilon-insensitive" else 100.0)],
)
def test_the_bounds_are_true(loss, C, streamed, request, tight):
    """P is that of the model, and those of a bias that is the sum of the multipliers meet them."""
    if streamed:
        request.getfixturevalue("few_held")
    options = {"C": C, "tol": 1e-5, **({"resident": 0.3} if streamed else {}), "max_passes": 200}
    model = trained(loss, **options)
    row = model.report["models"][0]
    assert row["converged"]
    assert row["primal"] == pytest.approx(primal(loss, model, C), rel=1e-9)
    tight()
    other = trained(loss, **options).report["models"][0]
    assert other["converged"]
    assert max(row["dual"], other["dual"]) <= min(row["primal"], other["primal"]) * (1 + 1e-12)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
@pytest.mark.parametrize("C", [0.01, 0.1, 1.0])
def test_it_takes_hardly_more_with_a_small_cost(loss, C, streamed, monkeypatch, request, tight):
    """Where a read has few rounds, too: b has to go far with each, and there are few steps to be saved."""
    options = {"C": C, "tol": 1e-4}
    if streamed:
        request.getfixturevalue("few_held")
        monkeypatch.setattr(effort, "EFFORTS", dict.fromkeys(effort.EFFORTS, effort.EFFORTS[20_000_000]))
        options["resident"] = 0.3
    loose = trained(loss, **options)
    tight()
    whole = trained(loss, **options)
    assert loose.report["passes"] <= whole.report["passes"] + 1
    assert steps(loose) <= 1.75 * steps(whole)


@pytest.mark.parametrize(("length", "C"), [(0.3, 0.1), (0.1, 0.3)])
def test_it_goes_all_the_way_where_no_row_moves(length, C):
    """All multipliers are at their bounds, where the bias would not come to their sum by shares of it."""
    x, scores = texts()
    t = np.where(scores > np.median(scores), 1.0, -1.0)
    options = {"bias": "penalized", "C": C, "tol": 1e-6, "max_passes": 50}
    assert steps(train(length * x, t, **options)) <= 12.0


@pytest.mark.parametrize("kind", ["few columns", "every row has a loss", "no bias", "free"])
def test_where_it_saves_no_steps_no_bit_changes(kind, tight):
    loss = "logistic" if kind == "every row has a loss" else "hinge"
    options = {"bias": {"no bias": "none", "free": "free"}.get(kind, "penalized")}
    x = texts(4000) if kind == "few columns" else None
    loose = trained(loss, x=x, **options)
    tight()
    assert bits(loose) == bits(trained(loss, x=x, **options))


CUT = {"chunk_elements": 4000, "chunk_rows": 100, "block_rows": 100}


@pytest.fixture
def store(tmp_path):
    x, scores = texts()
    return make_store(tmp_path / "s", x, targets_of("hinge", scores), **CUT)


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("C", [5.0, [0.5, 1.0, 2.0, 4.0]], ids=["one", "path"])
def test_on_threads_and_after_a_stop(store, C, tmp_path):
    options = {"bias": "penalized", "C": C, "tol": 1e-6, "resident": 0.2}
    whole = train(store, threads=1, **options)
    assert whole.report["converged"]
    assert whole.report["passes"] > 3
    assert bits(train(store, threads=2, **options)) == bits(whole)
    for number in range(1, whole.report["passes"] + 1):
        saved = {"checkpoint": tmp_path / "c", "max_passes": number, "resume": number > 1}
        part = train(store, threads=1 + number % 2, **saved, **options)
    assert bits(part) == bits(whole)
    assert answers(part.report)[1:] == answers(whole.report)[1:]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_path_of_costs_is_certified(streamed, request):
    if streamed:
        request.getfixturevalue("few_held")
    costs = [0.1, 0.3, 1.0, 3.0, 10.0]
    together = trained("hinge", C=costs, tol=1e-5, **({"resident": 0.3} if streamed else {}))
    for row, C in zip(together.report["models"], costs, strict=True):
        alone = trained("hinge", C=C, tol=1e-5).report["models"][0]
        assert row["converged"]
        assert max(row["dual"], alone["dual"]) <= min(row["primal"], alone["primal"]) * (1 + 1e-12)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_warm_start_goes_on_with_another_cost(store, streamed, request, tmp_path):
    if streamed:
        request.getfixturevalue("few_held")
    options = {"bias": "penalized", "tol": 1e-5, **({"resident": 0.3} if streamed else {})}
    train(store, C=1.0, checkpoint=tmp_path / "state", **options)
    warm = train(store, C=2.0, warm_start=tmp_path / "state", **options).report["models"][0]
    cold = train(store, C=2.0, **options).report["models"][0]
    assert warm["converged"]
    assert warm["passes"] <= cold["passes"]
    assert max(warm["dual"], cold["dual"]) <= min(warm["primal"], cold["primal"]) * (1 + 1e-12)


@pytest.mark.usefixtures("few_held")
def test_a_run_of_an_older_release_goes_on(store, tmp_path, tight, monkeypatch):
    """Its bias is the sum of the multipliers, and stays that."""
    options = {"bias": "penalized", "tol": 1e-5, "C": 5.0, "resident": 0.3}
    with monkeypatch.context() as patch:
        patch.setattr(state, "LOOSE", math.inf)
        whole = train(store, **options)
        train(store, checkpoint=tmp_path / "c", max_passes=2, **options)
    assert bits(train(store, checkpoint=tmp_path / "c", resume=True, **options)) == bits(whole)


@pytest.mark.usefixtures("few_held")
def test_the_last_read_is_foreseen_with_what_the_bias_adds(monkeypatch, store):
    """Half of the square of what the multipliers sum up to beyond it."""
    seen, begin = [], solver.begin_read

    def watched(model, own, *others):
        rebuild, foresight = begin(model, own, *others)
        if foresight is not None:
            b, _, total = own.bias(model.space)
            seen.append((foresight.apart, 0.5 * (total - b) ** 2))
        return rebuild, foresight

    monkeypatch.setattr(solver, "begin_read", watched)
    train(store, bias="penalized", C=5.0, resident=0.3)
    assert seen
    assert max(apart for apart, _ in seen) > 0.0
    for apart, expected in seen:
        assert apart == expected
