"""Training with streamed SMO: independent optima, the same bits everywhere, and what goes wrong."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dual_data import LOSSES, is_regression, is_squared, plain_losses
from scipy.optimize import minimize
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from train_data import answers, bits, make_store, store_rows

from ooc_svm import train
from ooc_svm.errors import InputError
from ooc_svm.solvers import streamed_smo
from ooc_svm.store import Store, open_store
from ooc_svm.sweeps import cut_rounds

module = sys.modules[train.__module__]

EPS = 0.15
CLASSES, VALUES = LOSSES[:2], LOSSES[2:]
# Fewer blocks than rounds: rounds of every so manieth row; more: rounds of whole blocks.
FEW = {"chunk_elements": 4000, "chunk_rows": 650, "block_rows": 650}
MANY = {"chunk_elements": 50, "chunk_rows": 25, "block_chunks": 2, "block_rows": 25}


def problem_of(loss):
    return "svr" if is_regression(loss) else "svc"


def options_of(loss, **options):
    """Options of a training with this loss."""
    own = {"epsilon": EPS} if is_regression(loss) else {}
    return {"problem": problem_of(loss), "loss": loss, **own, **options}


@pytest.fixture(scope="module")
def rows():
    """Rows for five rounds, 5 % of them without features; labels, and values to learn."""
    matrix, labels = store_rows(1300, 30, density=0.15)
    rng = np.random.default_rng(8)
    values = 2.0 + matrix @ rng.normal(size=30) + 0.3 * rng.normal(size=1300)
    return matrix, labels, values


@pytest.fixture(scope="module")
def weights():
    """Weights of the rows; a third of them is 0."""
    return np.random.default_rng(3).integers(0, 3, 1300) * 0.7


@pytest.fixture(scope="module")
def stores(tmp_path_factory, rows, weights):
    """Stores by problem and number of blocks, all with weights."""
    folder = tmp_path_factory.mktemp("stores")
    return {
        (problem, name): make_store(folder / f"{problem}-{name}", rows[0], t, weights=weights, **cut)
        for problem, t in (("svc", rows[1]), ("svr", rows[2]))
        for name, cut in (("few", FEW), ("many", MANY))
    }


@pytest.mark.parametrize("lanes", [1, 4])
def test_the_stores_are_cut_in_both_ways(stores, lanes):
    for problem in ("svc", "svr"):
        few, many = (open_store(stores[problem, name]).blocks for name in ("few", "many"))
        assert 1 < len(few) < 4 < 40 < len(many)
        steps = [
            {piece.step for extent in cut_rounds(blocks, 20, lanes) for s in extent.segments for piece in s}
            for blocks in (few, many)
        ]
        assert min(steps[0]) > 1
        assert steps[1] == {1}


def value_of(matrix, t, w, b, *, loss, C=1.0, omega=None, bias="none"):
    """P, from its definition."""
    cost = C * (np.ones(len(t)) if omega is None else omega)
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    return 0.5 * penalty + plain_losses(loss, t, matrix @ w + b, cost, EPS).sum()


def reference(matrix, t, *, loss, C=1.0, omega=None, bias="none"):
    """Weights and bias of an independent solver at the optimum."""
    kept = np.ones(len(t), dtype=bool) if omega is None else omega > 0
    x, t, omega = matrix[kept], t[kept], None if omega is None else omega[kept]
    if bias != "free":
        # Dual coordinate descent where there is nothing better, and a Newton method.
        ways = {"dual": True, "tol": 1e-7, "max_iter": 10**6, "random_state": 0}
        if is_squared(loss):
            ways = {"dual": False, "tol": 1e-10, "max_iter": 1000}
        ways |= {"loss": loss.replace("-", "_"), "C": C, "fit_intercept": bias != "none"}
        machine = LinearSVR(epsilon=EPS, **ways) if is_regression(loss) else LinearSVC(**ways)
        machine.fit(x, t, sample_weight=omega)
        return machine.coef_.ravel(), float(np.ravel(machine.intercept_)[0]) if bias != "none" else 0.0
    if is_squared(loss):
        return _smooth_optimum(x, t, loss, C if omega is None else C * omega)
    libsvm = {"kernel": "linear", "C": C, "tol": 1e-5, "cache_size": 500}
    machine = SVR(epsilon=EPS, **libsvm) if is_regression(loss) else SVC(**libsvm)
    machine.fit(x.toarray(), t, sample_weight=omega)
    return machine.coef_.ravel(), float(machine.intercept_[0])


def _smooth_optimum(x, t, loss, cost):
    def value(point):
        w, b = point[:-1], point[-1]
        s = x @ w + b
        if is_regression(loss):
            excess = np.maximum(0.0, np.abs(t - s) - EPS)
            slope = -2.0 * cost * excess * np.sign(t - s)
        else:
            slope = -2.0 * cost * np.maximum(0.0, 1.0 - t * s) * t
        losses = plain_losses(loss, t, s, cost, EPS).sum()
        return 0.5 * w @ w + losses, np.append(w + x.T @ slope, slope.sum())

    start = np.zeros(x.shape[1] + 1)
    limits = {"maxiter": 10_000, "maxfun": 10**6, "ftol": 1e-16, "gtol": 1e-8, "maxcor": 40}
    point = minimize(value, start, jac=True, method="L-BFGS-B", options=limits).x
    return point[:-1], float(point[-1])


def assert_certified(model, matrix, t, *, tol, number=0, **problem):
    """The certificate encloses the independent optimum; the weights have the primal value that it names."""
    row = model.report["models"][number]
    best = value_of(matrix, t, *reference(matrix, t, **problem), **problem)
    own = value_of(matrix, t, model.weights[number], model.bias[number], **problem)
    assert row["converged"]
    assert row["relative_gap"] <= tol
    assert row["primal"] == pytest.approx(own, rel=1e-9)
    assert row["gap"] == row["primal"] - row["dual"]
    assert row["dual"] <= best * (1 + 1e-10)
    # The reference is not exact either.
    assert row["primal"] >= best * (1 - 1e-6)
    assert best <= row["primal"] * (1 + 1e-6)


class TestReference:
    @pytest.mark.parametrize("tol", [1e-3, 1e-6])
    @pytest.mark.parametrize("bias", ["none", "penalized", "free"])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_the_optimum_of_an_independent_solver(self, stores, rows, weights, loss, bias, tol):
        t = rows[2] if is_regression(loss) else rows[1]
        problem = {"loss": loss, "bias": bias, "C": 0.4}
        stored = stores[problem_of(loss), "many" if tol == 1e-3 else "few"]
        for data, omega in (((rows[0], t), None), ((stored,), weights)):
            model = train(*data, tol=tol, resident=0.15, **options_of(**problem))
            assert_certified(model, rows[0], t, tol=tol, omega=omega, **problem)
            assert (model.bias[0] != 0.0) == (bias != "none")

    @pytest.mark.parametrize("bias", ["none", "penalized", "free"])
    def test_several_values_of_c(self, stores, rows, weights, bias):
        model = train(stores["svc", "few"], C=(0.01, 1.0, 30.0), bias=bias)
        assert [row["C"] for row in model.report["models"]] == [0.01, 1.0, 30.0]
        for number, C in enumerate((0.01, 1.0, 30.0)):
            problem = {"loss": "hinge", "bias": bias, "C": C, "omega": weights}
            assert_certified(model, *rows[:2], tol=1e-3, number=number, **problem)

    @pytest.mark.parametrize("loss", CLASSES)
    @pytest.mark.parametrize("bias", ["penalized", "free"])
    def test_several_classes(self, rows, tmp_path, loss, bias):
        matrix, _, values = rows
        labels = np.digitize(values, [1.0, 3.0]).astype(float) * 2.0
        path = make_store(tmp_path / "s", matrix, labels, **MANY)
        model = train(path, bias=bias, loss=loss, C=0.5)
        assert model.positive == [0.0, 2.0, 4.0]
        for number, label in enumerate(model.positive):
            t = np.where(labels == label, 1.0, -1.0)
            assert_certified(model, matrix, t, tol=1e-3, number=number, loss=loss, bias=bias, C=0.5)

    @pytest.mark.parametrize("bias", ["none", "free"])
    @pytest.mark.parametrize("loss", CLASSES)
    @pytest.mark.parametrize("class_weight", ["balanced", {1: 5.0, -1: 0.3}, {-1: 0.0}])
    def test_class_weights(self, stores, rows, weights, loss, bias, class_weight):
        matrix, labels, _ = rows
        if class_weight == "balanced":
            omega = np.where(labels > 0, 650.0 / (labels > 0).sum(), 650.0 / (labels < 0).sum())
        else:
            omega = np.where(labels > 0, class_weight.get(1, 1.0), class_weight[-1])
        model = train(stores["svc", "many"], bias=bias, loss=loss, class_weight=class_weight)
        if class_weight == {-1: 0.0} and bias == "free":
            # Nothing is lost by a bias of 1, and w of 0.
            assert model.report["models"][0]["primal"] <= 1e-9 * 1300
            return
        if class_weight == {-1: 0.0}:
            w = model.weights[0]
            own = value_of(matrix, labels, w, 0.0, loss=loss, omega=omega * weights)
            assert model.report["models"][0]["primal"] == pytest.approx(own, rel=1e-9)
            assert model.report["converged"]
            return
        assert_certified(model, matrix, labels, tol=1e-3, loss=loss, bias=bias, omega=omega * weights)

    @pytest.mark.parametrize("bias", ["none", "penalized", "free"])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_a_row_of_weight_0_is_as_good_as_absent(self, rows, weights, loss, bias):
        t, kept = rows[2] if is_regression(loss) else rows[1], weights > 0
        t = np.where(kept, t, -t)
        options = options_of(loss, bias=bias, tol=1e-4)
        there = train(rows[0], t, sample_weight=weights, **options).report["models"][0]
        absent = train(rows[0][kept], t[kept], sample_weight=weights[kept], **options).report["models"][0]
        assert there["dual"] <= absent["primal"]
        assert absent["dual"] <= there["primal"]
        assert there["n_support"] == pytest.approx(absent["n_support"], abs=20)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_negative_weights_are_refused(self, rows, weights, loss):
        t = rows[2] if is_regression(loss) else rows[1]
        wrong = weights.copy()
        wrong[77] = -0.1
        with pytest.raises(InputError, match=r"row 77 has the negative weight -0\.1"):
            train(rows[0], t, sample_weight=wrong, **options_of(loss))

    @pytest.mark.parametrize("scale", ["maxabs", "std"])
    @pytest.mark.parametrize("bias", ["none", "penalized", "free"])
    @pytest.mark.parametrize("loss", ["hinge", "squared-epsilon-insensitive"])
    def test_scale_is_training_on_scaled_columns(self, rows, stores, weights, scale, bias, loss):
        t = rows[2] if is_regression(loss) else rows[1]
        dense = rows[0].toarray()
        factors = 1.0 / (np.abs(dense).max(axis=0) if scale == "maxabs" else dense.std(axis=0))
        model = train(stores[problem_of(loss), "few"], scale=scale, **options_of(loss, bias=bias))
        np.testing.assert_allclose(model.scale, factors, rtol=1e-12)
        inside = replace(model, weights=model.weights / factors)
        scaled = rows[0] @ np.diag(factors)
        problem = {"loss": loss, "bias": bias, "omega": weights}
        assert_certified(inside, _sparse(scaled), t, tol=1e-3, **problem)
        assert model.report["passes"] == model.report["models"][0]["passes"] + 1

    def test_the_rows_with_a_loss_are_counted(self, rows):
        matrix, labels, values = rows
        model = train(matrix, labels, bias="free", tol=1e-6)
        inside = (labels * (matrix @ model.weights[0] + model.bias[0]) < 1.0).sum()
        assert model.report["models"][0]["n_support"] == inside
        model = train(matrix, values, **options_of(VALUES[0], bias="free"))
        outside = (np.abs(values - matrix @ model.weights[0] - model.bias[0]) > EPS).sum()
        assert model.report["models"][0]["n_support"] == outside


def _sparse(matrix):
    from scipy import sparse

    return sparse.csr_array(matrix)


@pytest.fixture(params=["thorough", "brisk"])
def effort(request, monkeypatch):
    """What is done for small data, and with more lanes and less solving for large data."""
    if request.param == "brisk":
        monkeypatch.setattr(streamed_smo, "BRISK_ELEMENTS", 0)
    return request.param


KINDS = [
    options_of("hinge", bias="free", C=4.0, tol=1e-5, max_passes=4),
    options_of("squared-hinge", bias="penalized", C=[0.1, 2.0], scale="std", tol=1e-5, max_passes=4),
    options_of("squared-epsilon-insensitive", bias="free", tol=1e-5, max_passes=4),
]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("blocks", ["few", "many"])
class TestSameBits:
    @pytest.fixture
    def store(self, stores, options, blocks):
        return stores[options["problem"], blocks]

    def test_threads(self, store, options, effort):
        models = [train(store, threads=t, **options) for t in (1, 2, 3)]
        assert bits(models[0]) == bits(models[1]) == bits(models[2])
        assert answers(models[0].report) == answers(models[1].report) == answers(models[2].report)

    def test_cache_and_row_vectors_on_disk(self, store, options, monkeypatch, effort):
        divide = module.divide
        models = []
        for cache, vectors in ((0, 0), (10**9, 10**9), (0, 10**9), (10**9, 20_000)):
            sizes = {"cache_bytes": cache, "row_vector_bytes": vectors}
            monkeypatch.setattr(module, "divide", lambda *a, s=sizes, **k: replace(divide(*a, **k), **s))
            models.append(train(store, **options))
        assert len({bits(model) for model in models}) == 1
        assert len({str(answers(model.report)) for model in models}) == 1
        none, whole = (model.report["bytes_read"] for model in models[:2])
        passes = models[0].report["passes"]
        opened = open_store(store)
        # With a free bias the first block once more, for the norms of its rows.
        more = max(opened.block_stored_bytes(index) for index in range(len(opened.blocks)))
        assert passes > 2
        assert whole * passes <= none <= whole * passes + more * (options["bias"] == "free")

    def test_memory_with_the_same_resident_rows(self, store, options):
        models = [train(store, memory=m, resident=0.07, threads=1, **options) for m in ("350MB", "2GB")]
        assert bits(models[0]) == bits(models[1])
        assert models[0].report["resident"] == pytest.approx(0.07, abs=1e-3)

    def test_a_seed_is_a_parameter(self, store, options, effort):
        first, again, other = (train(store, seed=seed, **options) for seed in (0, 0, 5))
        assert bits(first) == bits(again) != bits(other)
        for one, two in zip(first.report["models"], other.report["models"], strict=True):
            assert one["dual"] <= two["primal"]
            assert two["dual"] <= one["primal"]


def test_each_block_is_fetched_once_a_pass(stores, monkeypatch):
    fetched: Counter[int] = Counter()
    read_block = Store.read_block

    def counted(self, index, buffers=None):
        fetched[index] += 1
        return read_block(self, index, buffers)

    divide = module.divide
    monkeypatch.setattr(module, "divide", lambda *a, **k: replace(divide(*a, **k), cache_bytes=0))
    monkeypatch.setattr(Store, "read_block", counted)
    for name in ("few", "many"):
        store = open_store(stores["svc", name])
        stored = sum(store.block_stored_bytes(index) for index in range(len(store.blocks)))
        for threads in (1, 3):
            fetched.clear()
            report = train(store, threads=threads, C=(0.1, 1.0), bias="free", tol=1e-5).report
            passes = report["passes"]
            assert passes == max(row["passes"] for row in report["models"]) > 2
            # One block more, or a few: the norms of the first rows, for rho.
            assert set(fetched) == set(range(len(store.blocks)))
            assert fetched.most_common()[-1][1] == passes
            assert sum(fetched.values()) <= passes * len(store.blocks) + 1
            assert report["bytes_read"] == pytest.approx(passes * stored, abs=store.block_stored_bytes(0))
