"""Platt's algorithm with kernels: independent optima, certificates, bits, resumed runs, odd input."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.streamed_data import make_rows
from helpers.train_data import answers, bits, make_store
from scipy import sparse
from sklearn.svm import SVC

from ooc_svm import train
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError
from ooc_svm.model.file import load_model, save_model
from ooc_svm.ops.kernels import Gaussian
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.rounding import gamma
from ooc_svm.solvers.smo import kernel as kernel_module
from ooc_svm.solvers.smo import smo_loops
from ooc_svm.solvers.smo import solver as smo_solver
from ooc_svm.solvers.smo.examine_pass import SIZE, TOTAL, Examined
from ooc_svm.solvers.smo.objective import KernelObjective
from ooc_svm.solvers.smo.rows import OUTPUT, HeldRows, Y
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training import engines
from ooc_svm.training.checkpoint import CHECKPOINT_FILE

KERNELS = [
    {"kernel": "rbf", "gamma": 0.3},
    {"kernel": "poly", "gamma": 0.2, "coef0": 1.0, "degree": 3},
    {"kernel": "linear"},
]
FEW = {"chunk_elements": 4000, "chunk_rows": 650, "block_rows": 650}
MANY = {"chunk_elements": 50, "chunk_rows": 25, "block_chunks": 2, "block_rows": 25}
N = 400


@pytest.fixture(scope="module")
def rows():
    matrix, labels, _ = make_rows()
    return sparse.csr_array(matrix[:N]), labels[:N]


@pytest.fixture(scope="module")
def stores(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return {name: make_store(folder / name, *rows, **cut) for name, cut in (("few", FEW), ("many", MANY))}


def smo(data, *arguments, **options):
    return train(data, *arguments, solver="smo", **options)


def gram(x, z, kernel, gamma=0.0, coef0=0.0, degree=1):
    products = x @ z.T
    if kernel == "rbf":
        return np.exp(-gamma * ((x[:, None, :] - z[None, :, :]) ** 2).sum(axis=2))
    if kernel == "poly":
        return (gamma * products + coef0) ** degree
    return np.tanh(gamma * products + coef0) if kernel == "sigmoid" else products


def assert_certified(model, matrix, labels, numbers, *, C, tol, bias="free", omega=None, number=0):
    """P from the model's own support vectors; D is below the optimum, which LIBSVM finds."""
    omega = np.ones(len(labels)) if omega is None else omega
    x, row = matrix.toarray(), model.report["models"][number]
    functions = model.functions
    v = functions.coefficients[number]
    z = sparse.csr_array(
        (
            np.ones(len(functions.vectors.indices))
            if functions.vectors.values is None
            else functions.vectors.values.astype(float),
            functions.vectors.indices,
            functions.vectors.indptr,
        ),
        shape=(functions.vectors.n_rows, x.shape[1]),
    ).toarray()
    b = functions.bias[number]
    extra = 0.5 * b * b if bias == "penalized" else 0.0
    scores = gram(x, z, **numbers) @ v + b
    losses = C * omega @ np.maximum(0.0, 1.0 - labels * scores)
    P = 0.5 * v @ gram(z, z, **numbers) @ v + extra + losses
    assert row["converged"]
    assert row["relative_gap"] <= tol
    assert row["primal"] == pytest.approx(P, rel=1e-9)
    K = gram(x, x, **numbers) + (1.0 if bias == "penalized" else 0.0)
    best = optimum(K, labels, C * omega, bias)
    assert row["dual"] - row["rounding"] <= best * (1 + 1e-9)
    assert best * (1 - 1e-6) <= row["primal"]
    np.testing.assert_allclose(model.decision_function(matrix).ravel(), scores, atol=1e-9)
    return v


def optimum(K, y, c, bias):
    """The optimal value: by LIBSVM with a free bias, by coordinate ascent where each is alone.

    After each sweep over the rows those between their bounds are moved to where all their slopes are 0, or as
    far on the way as the first of them gets to a bound.
    """
    kept = c > 0.0
    K, y, c = K[np.ix_(kept, kept)], y[kept], c[kept]
    if bias == "free":
        machine = SVC(kernel="precomputed", C=1.0, tol=1e-8).fit(K, y, sample_weight=c)
        v = np.zeros(len(y))
        v[machine.support_] = machine.dual_coef_.ravel()
        return np.abs(v).sum() - 0.5 * v @ K @ v
    alpha = np.zeros(len(y))
    Q = y[:, None] * K * y
    slope = -np.ones(len(y))
    for _ in range(3000):
        before = alpha.copy()
        for i in range(len(y)):
            new = np.clip(alpha[i] - slope[i] / max(Q[i, i], 1e-12), 0.0, c[i])
            slope += Q[i] * (new - alpha[i])
            alpha[i] = new
        if np.abs(alpha - before).max() < 1e-10:
            break
        free = np.flatnonzero((alpha > 0.0) & (alpha < c))
        way = np.linalg.lstsq(Q[np.ix_(free, free)], -slope[free])[0]
        room = np.where(way > 0.0, c[free] - alpha[free], -alpha[free])
        share = min(1.0, (room[way != 0.0] / way[way != 0.0]).min(initial=1.0))
        alpha[free] = np.clip(alpha[free] + share * way, 0.0, c[free])
        slope = Q @ alpha - 1.0
    else:
        raise AssertionError("the optimum was not found")
    return alpha.sum() - 0.5 * alpha @ Q @ alpha


class TestReference:
    @pytest.mark.parametrize("tol", [1e-3, 1e-6])
    @pytest.mark.parametrize("numbers", KERNELS[:2])
    def test_the_optimum_of_libsvm(self, stores, rows, numbers, tol):
        for name in ("few", "many"):
            model = smo(stores[name], C=2.0, bias="free", tol=tol, **numbers)
            assert_certified(model, *rows, numbers, C=2.0, tol=tol)
        if tol == 1e-6:
            machine = SVC(C=2.0, tol=1e-7, **numbers).fit(rows[0].toarray(), rows[1])
            assert model.bias[0] == pytest.approx(machine.intercept_[0], abs=2e-3)
            alpha = np.abs(machine.dual_coef_.ravel())
            row = model.report["models"][0]
            assert row["bound_support"] == pytest.approx((alpha > 2.0 - 1e-6).sum(), abs=2)

    @pytest.mark.parametrize("bias", ["none", "penalized"])
    def test_a_fixed_threshold(self, stores, rows, bias):
        numbers = KERNELS[0]
        model = smo(stores["few"], C=0.5, bias=bias, tol=1e-5, **numbers)
        assert_certified(model, *rows, numbers, C=0.5, tol=1e-5, bias=bias)

    def test_weights_and_several_models(self, rows):
        numbers, omega = KERNELS[0], np.random.default_rng(2).integers(0, 3, N) * 0.7
        costs = (0.3, 3.0)
        model = smo(*rows, sample_weight=omega, C=costs, bias="free", class_weight={1: 2.0}, **numbers)
        weights = omega * np.where(rows[1] == 1.0, 2.0, 1.0)
        for number, C in enumerate(costs):
            assert_certified(
                replace(model, selected=number), *rows, numbers, C=C, tol=1e-3, omega=weights, number=number
            )

    def test_binary_rows_and_scaled_columns(self, rows):
        matrix = rows[0].copy()
        matrix.data = np.ones(matrix.nnz)
        model = smo(matrix, rows[1], bias="free", **KERNELS[0])
        assert model.report["value_type"] == "ones"
        assert model.functions.vectors.values is None
        assert_certified(model, matrix, rows[1], KERNELS[0], C=1.0, tol=1e-3)
        scaled = smo(rows[0], rows[1], bias="free", scale="maxabs", **KERNELS[0])
        factors = 1.0 / np.abs(rows[0].toarray()).max(axis=0)
        inside = smo(sparse.csr_array(rows[0] @ np.diag(factors)), rows[1], bias="free", **KERNELS[0])
        one, two = (model.report["models"][0] for model in (scaled, inside))
        assert max(one["dual"], two["dual"]) <= min(one["primal"], two["primal"]) * (1 + 1e-9)

    def test_the_linear_kernel_is_the_linear_model(self, rows):
        """A polynomial of degree 1 without a constant, and weights that are kept."""
        one = smo(*rows, bias="free", tol=1e-6).report["models"][0]
        other = smo(*rows, bias="free", tol=1e-6, kernel="poly", gamma=1.0, degree=1).report["models"][0]
        assert one["dual"] <= other["primal"] + other["rounding"]
        assert other["dual"] <= one["primal"] + one["rounding"]


OPTIONS = {"C": [0.5, 4.0], "bias": "free", "tol": 1e-6, "max_passes": 5, **KERNELS[0]}


def everything(model):
    return model.functions.coefficients.tobytes() + model.functions.bias.tobytes()


@pytest.mark.parametrize("blocks", ["few", "many"])
def test_the_same_bits_everywhere(stores, blocks, monkeypatch):
    models = [smo(stores[blocks], threads=t, **OPTIONS) for t in (1, 3)]
    models.append(smo(stores[blocks], engine="dask", threads=2, **OPTIONS))
    models += [smo(stores[blocks], **(OPTIONS | {"C": C})) for C in OPTIONS["C"]]
    divide = engines.divide
    sizes = {"cache_bytes": 0, "row_vector_bytes": 0}
    monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), **sizes))
    models.append(smo(stores[blocks], **OPTIONS))
    whole, three, cluster, first, second, on_disk = models
    assert everything(whole) == everything(three) == everything(cluster) == everything(on_disk)
    assert answers(whole.report) == answers(cluster.report) == answers(on_disk.report)
    assert answers(whole.report)[:2] == [*answers(first.report)[:1], *answers(second.report)[:1]]


class Stop(Exception):
    """Ends a run from its progress callback."""


@pytest.mark.parametrize("passes", [1, 3])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(stores, tmp_path, monkeypatch, passes):
    monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", np.inf)

    def progress(event):
        if event.kind == "pass" and event.passes == passes + 1:
            raise Stop

    with pytest.raises(Stop):
        smo(stores["few"], checkpoint=tmp_path, progress=progress, **OPTIONS)
    resumed = smo(stores["few"], checkpoint=tmp_path, resume=True, **OPTIONS)
    whole = smo(stores["few"], **OPTIONS)
    assert everything(resumed) == everything(whole)
    assert answers(resumed.report) == answers(whole.report)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("0/certificate/primal", lambda P: P * 0.9),
        ("0/certificate/dual", lambda D: D + 50.0),
        ("0/best_b", lambda b: b + 0.1),
        ("0/held/indices", lambda ids: ids + 40),
        ("0/held/known", lambda known: known * np.nan),
    ],
)
def test_a_state_that_no_run_wrote(stores, tmp_path, name, change):
    options = OPTIONS | {"C": 1.0, "max_passes": 3, "checkpoint": tmp_path}
    smo(stores["few"], **options)
    for place in (0, 1):
        path = tmp_path / f"checkpoint-{place}.state"
        if path.exists():
            content, arrays = read_arrays(path, CHECKPOINT_FILE)
            arrays[name] = change(arrays[name])
            with path.open("wb") as file:
                write_arrays(file, CHECKPOINT_FILE, content, arrays)
    with pytest.raises(DamageError):
        smo(stores["few"], **(options | {"max_passes": 9, "resume": True}))


def test_the_model_file_keeps_the_expansion(rows, tmp_path):
    model = smo(*rows, bias="free", **KERNELS[1])
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert bits_of_scores(again, rows) == bits_of_scores(model, rows)


def bits_of_scores(model, rows):
    return model.decision_function(rows[0]).tobytes()


class TestOddInput:
    def test_a_sigmoid_kernel_ends(self, rows):
        """It is not positive semi-definite: some steps have no minimum inside, ``eta < 0``."""
        numbers = {"kernel": "sigmoid", "gamma": 1.0, "coef0": -1.0}
        model = smo(*rows, bias="free", max_passes=40, **numbers)
        row = model.report["models"][0]
        assert row["stop_reason"] in ("certified", "max-passes")
        assert row["dual"] <= row["primal"] + row["rounding"]
        assert [hint["code"] for hint in model.report["hints"]].count("indefinite-kernel") == 1

    def test_duplicate_rows(self, rows):
        matrix = sparse.csr_array(sparse.vstack([rows[0][:60]] * 4))
        labels = np.concatenate([rows[1][:60]] * 3 + [-rows[1][:60]])
        model = smo(matrix, labels, bias="free", **KERNELS[0])
        assert_certified(model, matrix, labels, KERNELS[0], C=1.0, tol=1e-3)

    def test_rows_of_very_different_length(self):
        rng = np.random.default_rng(0)
        dense = np.where(rng.random((120, 900)) < 0.002, rng.random((120, 900)), 0.0)
        dense[::20] = rng.random((6, 900))
        labels = rng.choice([-1.0, 1.0], 120)
        model = smo(sparse.csr_array(dense), labels, bias="free", kernel="rbf", gamma=0.05)
        assert_certified(
            model, sparse.csr_array(dense), labels, {"kernel": "rbf", "gamma": 0.05}, C=1.0, tol=1e-3
        )

    def test_a_polynomial_that_overflows(self, rows):
        with pytest.raises(InputError, match="non-finite objective in pass"):
            smo(sparse.csr_array(rows[0] * 1e60), rows[1], kernel="poly", gamma=1.0, degree=9, bias="free")

    def test_support_vectors_that_do_not_fit(self, rows, monkeypatch):
        monkeypatch.setattr("ooc_svm.solvers.smo.plan.HELD_PART", 0.0)
        monkeypatch.setattr("ooc_svm.solvers.smo.plan.LEAST_HELD", 10)
        with pytest.raises(MemoryBudgetError, match=r"the support vectors have .* allow more"):
            smo(*rows, bias="free", **KERNELS[0])

    def test_the_cache_is_brought_up_to_date(self, rows, monkeypatch):
        """Outputs in memory are those of the support vectors."""
        seen = []
        arrays_of, make_consistent = kernel_module.KernelSmo._arrays, kernel_module.KernelSmo._make_consistent

        def compare(self, rows, outputs):
            held, own = self.state.held, np.arange(len(rows.ids))
            others = HeldRows.joined([held.chosen(~np.isin(held.ids, rows.ids)), rows])
            v = np.stack([others.known[:, Y] * others.multipliers] * 2)
            exact = self._expansion(others.block, others.squares(None), v).scores(rows.block, own)[0]
            seen.append(np.abs(outputs - exact).max())

        def before_steps(self, rows):
            kernel, arrays = arrays_of(self, rows)
            compare(self, rows, arrays[9])
            return kernel, arrays

        def after_passes(self, rows):
            make_consistent(self, rows)
            compare(self, rows, rows.known[:, OUTPUT])

        monkeypatch.setattr(kernel_module.KernelSmo, "_arrays", before_steps)
        monkeypatch.setattr(kernel_module.KernelSmo, "_make_consistent", after_passes)
        smo(*rows, bias="free", C=5.0, tol=1e-5, **KERNELS[0])
        assert len(seen) > 20
        assert max(seen) < 1e-9


@pytest.mark.parametrize("bias", ["none", "penalized"])
def test_the_allowance_of_a_bound_is_that_of_its_sums(bias):
    """Half the square of ``y.alpha``, of a penalized bias, is off by ``|y.alpha|`` times what that is."""
    rng, n = np.random.default_rng(4), 20_000
    v = 1e4 * rng.random(n) * np.where(rng.random(n) < 0.9, 1.0, -1.0)
    found = Examined(np.empty(0))
    size, total = float(np.cumsum(np.abs(v))[-1]), float(np.cumsum(v)[-1])
    found.sums[[SIZE, TOTAL]] = size, total
    penalized = bias == "penalized"
    space = LinearSpace(1, penalized_bias=penalized)
    objective = KernelObjective(Magnitudes(np.empty(0), 1.0, 1.0, 1, n), Gaussian(1.0), space, 1.0)
    value, allowance = objective.dual(found, 1.0)
    exact = math.fsum(np.abs(v)) - 0.5 * penalized * Fraction(math.fsum(v)) ** 2
    assert abs(Fraction(value) - Fraction(exact)) <= allowance
    assert allowance <= 1.1 * gamma(2 * n) * size * (1.0 + size + penalized * abs(total))


def test_columns_are_numbered_in_the_memory_that_is_planned(monkeypatch):
    """Of long rows of ones, whose nonzeros take the least: no sort of them."""
    rng, peaks = np.random.default_rng(3), []
    matrix = sparse.csr_array((rng.random((300, 400)) < 0.8).astype(float))
    arrays_of = kernel_module.KernelSmo._arrays

    def measured(self, rows):
        tracemalloc.start()
        try:
            kernel, arrays = arrays_of(self, rows)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # With little for each row and column.
        peaks.append(peak / (12 * len(rows.indices) + 300 * (len(rows.ids) + 400)))
        columns, places = np.unique(rows.indices, return_inverse=True)
        np.testing.assert_array_equal(arrays[1], places)
        assert arrays[1].dtype == np.uint32
        assert len(arrays[-2]) == len(columns)
        return kernel, arrays

    monkeypatch.setattr(kernel_module.KernelSmo, "_arrays", measured)
    smo(matrix, np.where(rng.random(300) < 0.5, 1.0, -1.0), kernel="rbf", gamma=0.01, max_passes=2)
    assert max(peaks) < 1.0


def test_several_classes(rows):
    labels = np.digitize(make_rows()[2][:N], [1.0, 3.0]).astype(float)
    model = smo(rows[0], labels, bias="free", **KERNELS[0])
    for number, label in enumerate(model.positive):
        t = np.where(labels == label, 1.0, -1.0)
        row = model.report["models"][number]
        best = optimum(gram(rows[0].toarray(), rows[0].toarray(), **KERNELS[0]), t, np.ones(N), "free")
        assert row["dual"] <= best * (1 + 1e-9)
        assert best * (1 - 1e-6) <= row["primal"]
    assert (model.predict(rows[0]) == labels).mean() > 0.7
    assert bits(smo(*rows)) == bits(smo(*rows))


def test_passes_over_a_few_rows_are_made_in_one_call(monkeypatch):
    """Each was a call of its own, which takes far longer than the pass and was no work of the limit."""
    made, calls, arrays = [], [], kernel_module.KernelSmo._arrays
    loop = smo_loops.pass_until_consistent
    monkeypatch.setattr(kernel_module.KernelSmo, "_arrays", lambda *own: made.append(own) or arrays(*own))
    monkeypatch.setattr(smo_loops, "pass_until_consistent", lambda *own: calls.append(own) or loop(*own))
    monkeypatch.setattr(smo_solver, "CALLS", 2)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 2)), np.where(rng.normal(size=20) > 0.0, 1.0, -1.0)
    report = smo(x, y, kernel="rbf", C=1e5, tol=1e-9, bias="free", max_passes=8).report
    assert len(made) <= 2 * report["passes"]
    assert 0 < len(calls) <= report["passes"] * (smo_solver.CALLS + 1)
