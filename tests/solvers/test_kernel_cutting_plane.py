"""Cutting planes of kernel models: LIBSVM's optimum of four problems, bits, resumed runs, the heuristic."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.streamed_data import make_rows
from helpers.train_data import answers, make_store
from scipy import sparse
from sklearn.svm import SVC, SVR, NuSVC, NuSVR

from ooc_svm import train
from ooc_svm.errors import DamageError, InputError, UsageError
from ooc_svm.ops.kernels import Gaussian
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.kernel_cutting_plane import plan
from ooc_svm.solvers.kernel_cutting_plane.solver import KernelCuttingPlane
from ooc_svm.solvers.smo.objective import KernelObjective, KernelPoint
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training import engines
from ooc_svm.training.checkpoint import CHECKPOINT_FILE

RBF = {"kernel": "rbf", "gamma": 0.3}
CUT = {"chunk_elements": 50, "chunk_rows": 25, "block_chunks": 2, "block_rows": 25}
N, EPS = 250, 0.15
PROBLEMS = [
    {"problem": "svc", "C": 0.5},
    {"problem": "svr", "C": 0.5, "epsilon": EPS},
    {"problem": "nu-svc", "nu": 0.4},
    {"problem": "nu-svr", "C": 0.5, "nu": 0.4},
]


@pytest.fixture(scope="module")
def rows():
    matrix, labels, values = make_rows()
    return sparse.csr_array(matrix[:N]), labels[:N], values[:N]


@pytest.fixture(scope="module")
def stores(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    targets = {"c": rows[1], "r": rows[2]}
    return {f"sv{kind}": make_store(folder / kind, rows[0], t, **CUT) for kind, t in targets.items()}


def cut(data, *arguments, **options):
    return train(data, *arguments, solver="kernel-cutting-plane", bias="free", **(RBF | options))


def kernel_matrix(x, z, gamma=0.3):
    return np.exp(-gamma * ((x[:, None, :] - z[None, :, :]) ** 2).sum(axis=2))


def optimum(K, t, problem, C=1.0, nu=0.5, epsilon=EPS):
    """The optimal value, of LIBSVM's multipliers; NuSVC gives them divided by the margin."""
    machine = {
        "svc": SVC(C=C, kernel="precomputed", tol=1e-8),
        "svr": SVR(C=C, epsilon=epsilon, kernel="precomputed", tol=1e-8),
        "nu-svc": NuSVC(nu=nu, kernel="precomputed", tol=1e-8),
        "nu-svr": NuSVR(C=C, nu=nu, kernel="precomputed", tol=1e-8),
    }[problem].fit(K, t)
    v = np.zeros(len(t))
    v[machine.support_] = machine.dual_coef_.ravel()
    if problem == "nu-svc":
        v *= nu / np.abs(v).sum()
        return -0.5 * v @ K @ v
    charge = {"svc": 0.0, "svr": epsilon, "nu-svr": 0.0}[problem] * np.abs(v).sum()
    return t @ v - charge - 0.5 * v @ K @ v


def value(model, x, t, problem, C=1.0, nu=0.5, epsilon=EPS):
    """P from the model's own support vectors and what the report says of the free parameters."""
    f, row = model.functions, model.report["models"][0]
    z = np.zeros((f.vectors.n_rows, x.shape[1]))
    for i in range(len(z)):
        own = slice(f.vectors.indptr[i], f.vectors.indptr[i + 1])
        z[i, f.vectors.indices[own]] = f.vectors.values[own]
    v, scores = f.coefficients[0], kernel_matrix(x, z) @ f.coefficients[0] + f.bias[0]
    norm = 0.5 * v @ kernel_matrix(z, z) @ v
    n = len(t)
    if problem == "svc":
        return norm + C * np.maximum(0.0, 1.0 - t * scores).sum()
    if problem == "svr":
        return norm + C * np.maximum(0.0, np.abs(t - scores) - epsilon).sum()
    if problem == "nu-svc":
        return norm - nu * row["rho"] + np.maximum(0.0, row["rho"] - t * scores).sum() / n
    outside = np.maximum(0.0, np.abs(t - scores) - row["epsilon"]).sum()
    return norm + C * (nu * n * row["epsilon"] + outside)


def target(rows, problem):
    return rows[1] if problem["problem"].endswith("svc") else rows[2]


class TestReference:
    @pytest.mark.parametrize("problem", PROBLEMS)
    @pytest.mark.parametrize("tol", [1e-2, 1e-4])
    def test_the_optimum_of_libsvm(self, rows, problem, tol):
        x, t = rows[0].toarray(), target(rows, problem)
        model = cut(rows[0], t, tol=tol, **problem)
        row, best = model.report["models"][0], optimum(kernel_matrix(x, x), t, **problem)
        assert row["converged"]
        assert row["relative_gap"] <= tol
        size = abs(best)
        assert row["dual"] - row["rounding"] <= best + 1e-6 * size
        assert row["primal"] >= best - 1e-6 * size
        assert row["primal"] == pytest.approx(value(model, x, t, **problem), rel=1e-7, abs=1e-9)

    @pytest.mark.parametrize("problem", PROBLEMS[:2])
    def test_sparser_cuts_lead_to_the_same_optimum(self, rows, problem):
        x, t = rows[0].toarray(), target(rows, problem)
        best = optimum(kernel_matrix(x, x), t, **problem)
        models = [cut(rows[0], t, sparse_cuts=own, **problem).report["models"][0] for own in (False, True)]
        for row in models:
            assert row["converged"]
            assert row["dual"] - row["rounding"] <= best * (1 + 1e-6)
            assert row["primal"] >= best * (1 - 1e-6)
        mean = [row["kernel_columns"] / row["passes"] for row in models]
        assert mean[1] < mean[0]

    def test_few_slots_for_cuts(self, rows, monkeypatch):
        """Cuts without a multiplier go, and where all have one they are combined."""
        monkeypatch.setattr(plan, "MAX_CUTS", 6)
        x = rows[0].toarray()
        row = cut(*rows[:2], C=0.5, tol=0.02, max_passes=300).report["models"][0]
        best = optimum(kernel_matrix(x, x), rows[1], "svc", C=0.5)
        assert row["dual"] - row["rounding"] <= best * (1 + 1e-6) <= row["primal"] * (1 + 2e-6)

    def test_weights_and_other_kernels(self, rows):
        omega = np.random.default_rng(4).integers(0, 3, N) * 0.5
        numbers = {"kernel": "poly", "gamma": 0.2, "coef0": 1.0, "degree": 2}
        model = cut(*rows[:2], sample_weight=omega, class_weight={1: 2.0}, C=0.2, **numbers)
        c = 0.2 * omega * np.where(rows[1] > 0, 2.0, 1.0)
        kept = c > 0
        x = rows[0].toarray()[kept]
        K = (0.2 * x @ x.T + 1.0) ** 2
        machine = SVC(C=1.0, kernel="precomputed", tol=1e-8).fit(K, rows[1][kept], sample_weight=c[kept])
        v = np.zeros(len(x))
        v[machine.support_] = machine.dual_coef_.ravel()
        best, row = np.abs(v).sum() - 0.5 * v @ K @ v, model.report["models"][0]
        assert row["dual"] - row["rounding"] <= best * (1 + 1e-6) <= row["primal"] * (1 + 2e-6)


def everything(model):
    return model.functions.coefficients.tobytes() + model.functions.bias.tobytes()


@pytest.mark.parametrize("problem", [PROBLEMS[0] | {"sparse_cuts": True}, PROBLEMS[3]])
def test_the_same_bits_everywhere(stores, problem, monkeypatch):
    store, options = stores[problem["problem"][-3:]], problem | {"max_passes": 6}
    models = [cut(store, threads=t, **options) for t in (1, 3)]
    models.append(cut(store, engine="dask", threads=2, **options))
    divide = engines.divide
    sizes = {"cache_bytes": 0, "row_vector_bytes": 0}
    monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), **sizes))
    models.append(cut(store, **options))
    assert len({everything(model) for model in models}) == 1
    assert len({str(answers(model.report)) for model in models}) == 1


def test_rows_of_a_cut_in_parts(rows, monkeypatch):
    whole = cut(*rows[:2]).report["models"][0]
    monkeypatch.setattr(plan, "SUPPORT_PART", 1e-7)
    model = cut(*rows[:2])
    parts = model.report["models"][0]
    assert model.report["parts"] > 1
    assert parts["converged"]
    assert parts["dual"] <= whole["primal"] + whole["rounding"]
    assert whole["dual"] <= parts["primal"] + parts["rounding"]
    assert model.report["passes"] == parts["passes"]


class Stop(Exception):
    """Ends a run from its progress callback."""


@pytest.mark.parametrize("problem", [PROBLEMS[1], PROBLEMS[2]])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(stores, problem, tmp_path, monkeypatch):
    monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", np.inf)
    store, options = stores[problem["problem"][-3:]], problem | {"max_passes": 9}

    def progress(event):
        if event.kind == "pass" and event.passes == 5:
            raise Stop

    with pytest.raises(Stop):
        cut(store, checkpoint=tmp_path, progress=progress, **options)
    resumed = cut(store, checkpoint=tmp_path, resume=True, **options)
    whole = cut(store, **options)
    assert everything(resumed) == everything(whole)
    assert answers(resumed.report) == answers(whole.report)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("0/certificate/primal", lambda P: P * 0.9),
        ("0/certificate/dual", lambda D: D + 50.0),
        ("0/cuts/beta", lambda beta: beta * 1.5),
        ("0/cuts/gram", lambda G: G[1:]),
        ("0/cuts/slots", lambda slots: slots * 0),
    ],
)
def test_a_state_that_no_run_wrote(stores, tmp_path, name, change):
    options = PROBLEMS[0] | {"max_passes": 4, "checkpoint": tmp_path}
    cut(stores["svc"], **options)
    for place in (0, 1):
        path = tmp_path / f"checkpoint-{place}.state"
        if path.exists():
            content, arrays = read_arrays(path, CHECKPOINT_FILE)
            arrays[name] = change(arrays[name])
            with path.open("wb") as file:
                write_arrays(file, CHECKPOINT_FILE, content, arrays)
    with pytest.raises(DamageError):
        cut(stores["svc"], **(options | {"max_passes": 9, "resume": True}))


class TestBadInput:
    def test_nu_that_is_too_large(self, rows):
        with pytest.raises(InputError, match="nu is"):
            cut(*rows[:2], problem="nu-svc", nu=0.99)

    def test_kernels_that_are_not_positive_semi_definite(self, rows):
        for numbers in ({"kernel": "sigmoid"}, {"kernel": "poly", "coef0": -1.0}):
            with pytest.raises(UsageError, match="not positive semi-definite"):
                cut(*rows[:2], **numbers)

    def test_options_that_do_not_go_together(self, rows):
        with pytest.raises(UsageError, match="sparse_cuts is not for problem 'nu-svc'"):
            cut(*rows[:2], problem="nu-svc", sparse_cuts=True)
        with pytest.raises(UsageError, match="kernel 'linear'"):
            cut(*rows[:2], kernel="linear", gamma=None)
        with pytest.raises(UsageError, match="bias"):
            train(*rows[:2], solver="kernel-cutting-plane", **RBF)


def test_a_score_is_off_by_what_smo_counts():
    """Of rows so large that the rounding of a kernel's argument is all that matters."""
    kernel, square, nonzeros, n_rows = Gaussian(1.0), 1e12, 100, 10
    cuts = SimpleNamespace(n_cuts=4)
    state = SimpleNamespace(square=square, nonzeros=nonzeros, cuts=cuts)
    own = KernelCuttingPlane._score_error(SimpleNamespace(kernel=kernel, state=state, n_rows=n_rows), 3.0)
    found = Magnitudes(np.empty(0), 1.0, square, nonzeros, n_rows)
    others = KernelObjective(found, kernel, LinearSpace(1), 1.0).scores(KernelPoint(0.0, 3.0))
    assert own == pytest.approx(others, rel=1e-6)
