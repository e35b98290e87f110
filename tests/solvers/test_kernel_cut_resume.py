"""Bounds of kernel cutting planes that a resumed run finds again; ends of runs that depend on them."""

from __future__ import annotations

from dataclasses import replace

import google_crc32c
import numpy as np
import pytest
from helpers.streamed_data import make_rows
from scipy import sparse
from sklearn.svm import SVR, NuSVR

from ooc_svm import train
from ooc_svm.errors import DamageError
from ooc_svm.solvers.base import DataSize
from ooc_svm.solvers.kernel_cutting_plane import master, plan, solver
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE

N = 200
SVR_1 = {"problem": "svr", "C": 1.0, "epsilon": 0.1, "gamma": 1.0}
NU_SVR = {"problem": "nu-svr", "C": 1.0, "nu": 0.6}
SVC_1 = {"problem": "svc", "C": 1.0}
NU_SVC = {"problem": "nu-svc", "nu": 0.4}


@pytest.fixture(scope="module")
def rows():
    matrix, labels, values = make_rows()
    return sparse.csr_array(matrix[:N]), labels[:N], values[:N]


def cut(rows, **options):
    x, labels, values = rows
    t = labels if options["problem"].endswith("svc") else values
    kernel = {"kernel": "rbf", "gamma": 0.3}
    return train(x, t, solver="kernel-cutting-plane", bias="free", **(kernel | options))


def everything(model):
    return model.functions.coefficients.tobytes() + model.functions.bias.tobytes()


def assert_same(one, other):
    assert everything(one) == everything(other)
    assert one.report["models"] == other.report["models"]
    assert one.report["passes"] == other.report["passes"]


def optimum(rows, problem, C, nu=None, epsilon=0.0):
    """The optimal value, of LIBSVM's multipliers."""
    x, t = rows[0].toarray(), rows[2]
    K = np.exp(-0.3 * ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2))
    numbers = {"C": C, "kernel": "precomputed", "tol": 1e-9}
    machine = SVR(epsilon=epsilon, **numbers) if problem == "svr" else NuSVR(nu=nu, **numbers)
    machine.fit(K, t)
    v = np.zeros(N)
    v[machine.support_] = machine.dual_coef_.ravel()
    return t @ v - epsilon * np.abs(v).sum() - 0.5 * v @ K @ v


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("nu", [0.3, 0.6, 0.9])
def test_a_tube_costs_nothing_where_the_multipliers_are_small(rows, nu, tol):
    """The mix of cuts has a smaller size than each of them, which takes nothing off D."""
    problem = NU_SVR | {"nu": nu}
    row, best = cut(rows, tol=tol, max_passes=150, **problem).report["models"][0], optimum(rows, **problem)
    assert row["converged"]
    assert row["dual"] - row["rounding"] <= best * (1 + 1e-7)
    assert row["primal"] >= best * (1 - 1e-7)


def test_the_optimum_of_another_solver(rows):
    """With a kernel of inner products, a linear solver finds the same optimum."""
    problem = {"problem": "nu-svr", "C": 0.2, "nu": 0.5, "tol": 1e-4, "max_passes": 150}
    own = cut(rows, **problem, kernel="poly", gamma=1.0, coef0=0.0, degree=1).report["models"][0]
    other = train(rows[0], rows[2], solver="ocas", bias="free", **problem).report["models"][0]
    assert own["converged"]
    assert other["converged"]
    assert own["dual"] - own["rounding"] <= other["primal"] + other["rounding"]
    assert other["dual"] - other["rounding"] <= own["primal"] + own["rounding"]


class TestResumed:
    @pytest.mark.parametrize("passes", [8, 9, 10, 14])
    @pytest.mark.parametrize("problem", [SVR_1, NU_SVR | {"nu": 0.9}])
    def test_a_best_bound_that_is_not_the_one_of_the_moment(self, rows, problem, passes, tmp_path):
        """D of the cuts may fall, and the best one is that of multipliers that are kept."""
        cut(rows, max_passes=passes, tol=1e-4, checkpoint=tmp_path, **problem)
        resumed = cut(rows, max_passes=20, tol=1e-4, checkpoint=tmp_path, resume=True, **problem)
        assert_same(resumed, cut(rows, max_passes=20, tol=1e-4, **problem))

    @pytest.mark.parametrize("passes", [6, 7, 8, 11])
    def test_few_slots_for_cuts(self, rows, passes, tmp_path, monkeypatch):
        monkeypatch.setattr(plan, "MAX_CUTS", 4)
        monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", np.inf)

        def progress(event):
            if event.kind == "pass" and event.passes == passes:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            cut(rows, max_passes=20, tol=1e-4, checkpoint=tmp_path, progress=progress, **SVR_1)
        resumed = cut(rows, max_passes=20, tol=1e-4, checkpoint=tmp_path, resume=True, **SVR_1)
        assert_same(resumed, cut(rows, max_passes=20, tol=1e-4, **SVR_1))

    def test_an_optimum_of_0_that_is_certified_stays_so(self, tmp_path):
        """Labels that have nothing to do with the rows: the hulls of the classes meet."""
        rng = np.random.default_rng(1)
        data = sparse.csr_array(rng.normal(size=(120, 3))), np.where(rng.random(120) < 0.5, 1.0, -1.0), None
        options = {"problem": "nu-svc", "nu": 0.8, "kernel": "poly", "degree": 1, "gamma": 1.0, "coef0": 0.0}
        options |= {"tol": 1e-3, "max_passes": 200, "checkpoint": tmp_path}
        whole = cut(data, **options)
        row = whole.report["models"][0]
        assert row["converged"]
        assert row["relative_gap"] > options["tol"]  # The end is that of an optimum of 0
        assert_same(cut(data, resume=True, **options), whole)

    @pytest.mark.parametrize(
        ("problem", "function"), [(SVC_1, "solve_master"), (NU_SVC, "solve_free_master")]
    )
    def test_a_master_problem_that_a_time_limit_came_before(
        self, rows, problem, function, tmp_path, monkeypatch
    ):
        """It is solved before the next cut is taken."""
        # First: what a warm-up solves is not to be counted.
        whole = cut(rows, max_passes=12, tol=1e-4, **problem)
        solve, calls = getattr(master, function), []

        def late(*arguments, **options):
            calls.append(1)
            solution = solve(*arguments, **options)
            return replace(solution, in_time=False) if len(calls) == 7 else solution

        with monkeypatch.context() as patch:
            patch.setattr(master, function, late)
            cut(rows, max_passes=7, tol=1e-4, checkpoint=tmp_path, **problem)
        resumed = cut(rows, max_passes=12, tol=1e-4, checkpoint=tmp_path, resume=True, **problem)
        assert calls[6:] == [1]
        assert_same(resumed, whole)

    def test_the_check_takes_no_more_memory_than_a_cut(self, rows, tmp_path, monkeypatch):
        cut(rows, max_passes=40, tol=1e-6, checkpoint=tmp_path, **SVR_1)
        join, sizes = solver.join_gathered, []

        def measured(parts, vectors):
            found = join(parts, vectors)
            # The parts, what they are joined to, and the coefficients
            sizes.append(2 * found.nbytes + 8 * len(vectors) * len(found.numbers))
            return found

        monkeypatch.setattr(solver, "join_gathered", measured)
        cut(rows, max_passes=40, tol=1e-6, checkpoint=tmp_path, resume=True, **SVR_1)
        size = DataSize(N, rows[0].nnz, rows[0].shape[1], 1, 8)
        assert len(sizes) > 5
        assert max(sizes) <= plan._rows_nbytes(size) * 1.1  # Some parts have more rows than others


class TestStatesThatNoRunWrote:
    def saved(self, rows, folder):
        """The newest state; the one before it is removed."""
        cut(rows, max_passes=6, checkpoint=folder, **SVR_1)
        found = [(path, *read_arrays(path, CHECKPOINT_FILE)) for path in folder.glob("checkpoint-*.state")]
        newest = max(found, key=lambda each: each[1]["pass"])
        for path, _, _ in found:
            if path != newest[0]:
                path.unlink()
        return newest

    def write(self, path, content, arrays):
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)

    def resume(self, rows, folder):
        cut(rows, max_passes=9, checkpoint=folder, resume=True, **SVR_1)

    @pytest.mark.parametrize(
        ("change", "message"), [(0.5, "it says that D is"), (50.0, "outside their bounds")]
    )
    def test_multipliers_that_do_not_give_the_bound(self, rows, tmp_path, change, message):
        path, content, arrays = self.saved(rows, tmp_path)
        vectors = path.with_suffix(".vectors")
        entries = np.frombuffer(vectors.read_bytes(), np.float64).reshape(-1, N).copy()
        entries[content["vectors"]["names"].index("model0/bound")] *= change
        vectors.write_bytes(entries.tobytes())
        content["vectors"]["crc32c"] = google_crc32c.value(entries.tobytes())
        self.write(path, content, arrays)
        with pytest.raises(DamageError, match=message):
            self.resume(rows, tmp_path)

    @pytest.mark.parametrize(
        ("reason", "message"),
        [(None, "has no history of its passes"), ("certified", "does not fit the data")],
    )
    def test_one_without_a_pass_that_has_cuts_to_solve_for(self, rows, tmp_path, reason, message):
        path, content, arrays = self.saved(rows, tmp_path)
        content["texts"]["0/certificate/stop_reason"] = reason
        changes = {"certificate/history": [], "certificate/dual": -np.inf}
        changes |= {"certificate/passes": 0, "cuts/unsolved": 1}
        for name, value in changes.items():
            arrays[f"0/{name}"] = np.asarray(value, arrays[f"0/{name}"].dtype)
        self.write(path, content, arrays)
        with pytest.raises(DamageError, match=message):
            self.resume(rows, tmp_path)

    def test_one_of_a_release_that_kept_no_multipliers_of_the_bound(self, rows, tmp_path):
        path, content, arrays = self.saved(rows, tmp_path)
        vectors = path.with_suffix(".vectors")
        names = content["vectors"]["names"]
        entries = np.frombuffer(vectors.read_bytes(), np.float64).reshape(-1, N)
        entries = np.delete(entries, names.index("model0/bound"), axis=0)
        vectors.write_bytes(entries.tobytes())
        names.remove("model0/bound")
        content["vectors"]["crc32c"] = google_crc32c.value(entries.tobytes())
        del arrays["0/cuts/mixed"]
        self.write(path, content, arrays)
        with pytest.raises(DamageError, match="has other row vectors than this run; start it again"):
            self.resume(rows, tmp_path)
