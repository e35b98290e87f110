"""Platt's sequential minimal optimization: independent optima, the same bits everywhere, reads counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.streamed_data import assert_certified, make_rows, make_stores, make_weights
from helpers.train_data import answers, bits, make_store
from scipy import sparse
from sklearn.svm import SVC

from ooc_svm import train
from ooc_svm.errors import InputError, UsageError
from ooc_svm.solvers.smo import plan, smo_loops
from ooc_svm.solvers.smo.solver import Smo
from ooc_svm.store import Store, open_store
from ooc_svm.training import engines

BIASES = ("none", "penalized", "free")


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


def smo(data, *arguments, **options):
    return train(data, *arguments, solver="smo", **options)


class TestReference:
    @pytest.mark.parametrize("tol", [1e-3, 1e-7])
    @pytest.mark.parametrize("bias", BIASES)
    def test_the_optimum_of_an_independent_solver(self, stores, rows, bias, tol):
        problem = {"bias": bias, "C": 0.4}
        stored = stores["svc", "many" if tol == 1e-3 else "few"]
        for data, omega in ((rows[:2], None), ((stored,), make_weights())):
            model = smo(*data, tol=tol, **problem)
            assert_certified(model, *rows[:2], tol=tol, omega=omega, loss="hinge", **problem)
            assert (model.bias[0] != 0.0) == (bias != "none")

    @pytest.mark.parametrize("bias", BIASES)
    def test_the_optimum_of_the_other_solvers(self, stores, bias):
        models = [
            train(stores["svc", "few"], solver=solver, bias=bias, C=2.0, tol=1e-5).report["models"][0]
            for solver in ("smo", "streamed-smo", "ocas")
        ]
        assert max(row["dual"] for row in models) <= min(row["primal"] + row["rounding"] for row in models)

    @pytest.mark.parametrize("bias", BIASES)
    def test_classes_weights_and_scaled_columns(self, rows, bias):
        labels = np.digitize(rows[2], [1.0, 3.0]).astype(float)
        matrix = sparse.csr_array(rows[0] @ np.diag(np.logspace(-2.0, 2.0, 30)))
        model = smo(matrix, labels, bias=bias, scale="maxabs", class_weight={1: 3.0}, C=[0.1, 1.0])
        factors = 1.0 / np.abs(matrix.toarray()).max(axis=0)
        inside = replace(model, functions=replace(model.functions, weights=model.weights / factors))
        scaled = sparse.csr_array(matrix @ np.diag(factors))
        for number, label in enumerate([0.0, 1.0, 2.0] * 2):
            t, omega = np.where(labels == label, 1.0, -1.0), np.where(labels == 1.0, 3.0, 1.0)
            C = (0.1, 1.0)[number // 3]
            problem = {"loss": "hinge", "bias": bias, "C": C, "omega": omega}
            assert_certified(inside, scaled, t, tol=1e-3, number=number, **problem)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_binary_rows_without_a_look_at_values(self, rows, dtype):
        matrix = rows[0].copy()
        matrix.data = np.ones(matrix.nnz, dtype)
        model = smo(matrix, rows[1], bias="free", tol=1e-5)
        assert model.report["value_type"] == "ones"
        assert_certified(model, matrix, rows[1], tol=1e-5, loss="hinge", bias="free")

    def test_support_vectors_at_the_bound_and_off_it(self, rows):
        model = smo(rows[0], rows[1], bias="free", C=0.4, tol=1e-7)
        machine = SVC(kernel="linear", C=0.4, tol=1e-6).fit(rows[0].toarray(), rows[1])
        alpha = np.abs(machine.dual_coef_.ravel())
        row = model.report["models"][0]
        assert row["bound_support"] == pytest.approx((alpha >= 0.4 * (1 - 1e-9)).sum(), abs=2)
        assert row["non_bound_support"] == pytest.approx((alpha < 0.4 * (1 - 1e-9)).sum(), abs=4)
        assert model.bias[0] == pytest.approx(machine.intercept_[0], abs=1e-3)
        assert row["kkt_tolerance"] < 1e-3
        assert row["steps"] > row["non_bound_support"]


class TestSteps:
    """The compiled loops on rows in memory, against their definitions."""

    @staticmethod
    def arrays(x, y, alpha, c=1.0):
        m, d = x.shape
        indptr = np.arange(m + 1, dtype=np.uint64) * np.uint64(d)
        indices = np.tile(np.arange(d, dtype=np.uint32), m)
        w = x.T @ (y * alpha)
        squares = (x * x).sum(axis=1)
        rows = (
            *(indptr, indices, x.ravel(), None, squares, squares, y, np.full(m, c), alpha),
            *(x @ w, w, np.zeros(d), np.empty((2, 0))),
        )
        run = np.zeros(smo_loops.N_NUMBERS)
        run[smo_loops.PAIRS] = 1.0
        return rows, run

    @pytest.mark.parametrize("seed", range(20))
    def test_a_joint_step_is_the_best_of_a_grid(self, seed):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(6, 4)), rng.choice([-1.0, 1.0], 6)
        alpha = rng.choice([0.0, 0.3, 0.7, 1.0], 6)
        before, total = alpha.copy(), y @ alpha
        rows, run = self.arrays(x, y, alpha)
        run[smo_loops.B] = rng.normal()
        Q = (y[:, None] * x) @ (y[:, None] * x).T
        i1, i2 = 1, 4
        moved = smo_loops.take_step(None, rows, run, i1, i2, 1e-9)
        assert y @ alpha == pytest.approx(total, abs=1e-14)
        steps = np.linspace(-1.0, 1.0, 4001)
        points = np.tile(before, (len(steps), 1))
        points[:, i2] += steps
        points[:, i1] -= y[i1] * y[i2] * steps
        points = points[((points >= -1e-12) & (points <= 1.0 + 1e-12)).all(axis=1)]
        values = 0.5 * np.einsum("ki,ij,kj->k", points, Q, points) - points.sum(axis=1)
        own = 0.5 * alpha @ Q @ alpha - alpha.sum()
        assert own <= values.min() + 1e-9
        assert moved == (not np.array_equal(alpha, before))
        np.testing.assert_allclose(rows[10], x.T @ (y * alpha), atol=1e-12)
        for k in np.flatnonzero((alpha > 0.0) & (alpha < 1.0)):
            assert rows[9][k] == pytest.approx(x[k] @ rows[10], abs=1e-12)
        for k in (i1, i2):
            if moved and 0.0 < alpha[k] < 1.0:
                assert y[k] * (x[k] @ rows[10] + run[smo_loops.B]) == pytest.approx(1.0, abs=1e-9)

    def test_rows_that_are_the_same_end_at_a_bound(self):
        """``eta = 0``: equation 19. Both classes on one point: the errors differ, the kernels do not."""
        x, y, alpha = np.ones((2, 3)), np.array([1.0, -1.0]), np.array([0.2, 0.2])
        rows, run = self.arrays(x, y, alpha)
        assert smo_loops.take_step(None, rows, run, 0, 1, 1e-6)
        assert alpha.tolist() == [1.0, 1.0]
        assert not smo_loops.take_step(None, rows, run, 0, 1, 1e-6)
        assert not smo_loops.take_step(None, rows, run, 1, 1, 1e-6)

    def test_the_scratch_is_zero_again(self):
        x, y, alpha = np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.zeros(4)
        rows, run = self.arrays(x, y, alpha)
        changed, last = smo_loops.examine_rows(None, rows, run, 0, False, 1e-3, 1e-6, np.uint64(0), 1e9)
        assert (changed > 0, last) == (True, 4)
        assert not rows[11].any()


KINDS = [{"bias": "free", "C": 4.0}, {"bias": "penalized", "C": [0.1, 2.0], "scale": "std"}]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("blocks", ["few", "many"])
class TestSameBits:
    def test_threads_cache_and_row_vectors_on_disk(self, stores, blocks, options, monkeypatch):
        options = options | {"tol": 1e-5, "max_passes": 4}
        models = [smo(stores["svc", blocks], threads=t, **options) for t in (1, 3)]
        divide = engines.divide
        for cache, vectors in ((0, 0), (0, 20_000)):
            sizes = {"cache_bytes": cache, "row_vector_bytes": vectors}
            monkeypatch.setattr(engines, "divide", lambda *a, s=sizes, **k: replace(divide(*a, **k), **s))
            models.append(smo(stores["svc", blocks], **options))
        assert len({bits(model) for model in models}) == 1
        assert len({str(answers(model.report)) for model in models}) == 1

    def test_on_a_cluster(self, stores, blocks, options):
        options = options | {"tol": 1e-5, "max_passes": 3}
        here = smo(stores["svc", blocks], **options)
        there = smo(stores["svc", blocks], engine="dask", threads=2, **options)
        assert bits(there) == bits(here)
        assert answers(there.report) == answers(here.report)


def test_a_seed_is_a_parameter(stores):
    one, again, other = (smo(stores["svc", "few"], bias="free", seed=seed) for seed in (0, 0, 5))
    assert bits(one) == bits(again)
    assert one.report["models"][0]["dual"] <= other.report["models"][0]["primal"]


def test_each_block_is_fetched_once_a_pass(stores, monkeypatch):
    fetched: Counter[int] = Counter()
    read_block = Store.read_block

    def counted(self, index, buffers=None):
        fetched[index] += 1
        return read_block(self, index, buffers)

    divide = engines.divide
    monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), cache_bytes=0))
    monkeypatch.setattr(Store, "read_block", counted)
    for name in ("few", "many"):
        store = open_store(stores["svc", name])
        for threads in (1, 3):
            fetched.clear()
            report = smo(store, threads=threads, C=(0.1, 1.0), bias="free").report
            assert report["passes"] == max(row["passes"] for row in report["models"]) > 2
            assert set(fetched.values()) == {report["passes"]}
            assert len(fetched) == len(store.blocks)


@pytest.mark.parametrize("bias", ["none", "free"])
def test_little_room_for_rows_takes_longer_and_ends_at_the_same_optimum(rows, bias, monkeypatch):
    held: list[int] = []
    hold = Smo._hold

    def counted(self, rows):
        hold(self, rows)
        own = self.state.held
        held.append(int(own.sizes[~own.is_ahead].sum()) - self.capacity)

    monkeypatch.setattr(Smo, "_hold", counted)
    monkeypatch.setattr(plan, "LEAST_HELD", 12)
    monkeypatch.setattr(plan, "HELD_PART", 0.0)
    model = smo(rows[0], rows[1], bias=bias, C=0.4)
    assert_certified(model, *rows[:2], tol=1e-3, loss="hinge", bias=bias, C=0.4)
    assert max(held) <= 0


class TestBadInput:
    def test_one_class_at_no_cost(self, rows):
        """A free bias then costs nothing."""
        model = smo(rows[0], rows[1], bias="free", class_weight={-1: 0.0})
        assert model.report["models"][0]["primal"] <= 1e-9 * 1300

    def test_duplicate_rows(self, rows):
        """Of every row four copies, one of them of the other class."""
        matrix = sparse.csr_array(sparse.vstack([rows[0][:100]] * 4))
        labels = np.concatenate([rows[1][:100]] * 3 + [-rows[1][:100]])
        for bias in BIASES:
            model = smo(matrix, labels, bias=bias)
            assert_certified(model, matrix, labels, tol=1e-3, loss="hinge", bias=bias)

    def test_labels_in_runs(self, rows, tmp_path):
        order = np.argsort(rows[1], kind="stable")
        store = make_store(tmp_path / "s", sparse.csr_array(rows[0][order]), rows[1][order])
        model = smo(store, bias="free")
        assert_certified(model, rows[0][order], rows[1][order], tol=1e-3, loss="hinge", bias="free")

    def test_values_that_overflow(self, rows):
        with pytest.raises(InputError, match="non-finite objective in pass 1"):
            smo(rows[0] * 1e200, rows[1], bias="free")

    @pytest.mark.parametrize("options", [{"problem": "svr"}, {"loss": "squared-hinge"}, {"resident": 0.1}])
    def test_what_the_report_does_not_have(self, rows, options):
        with pytest.raises(UsageError, match="smo"):
            smo(rows[0], rows[1], **options)


def test_steps_between_two_reads_end_at_a_time_limit(rows, monkeypatch):
    """Also within a pass."""
    ends, loop = [], smo_loops.pass_until_consistent

    def counted(*arguments):
        ends.append(loop(*arguments))
        return ends[-1]

    smo(*rows[:2], C=1.0, bias="free")  # What is compiled takes no time any more
    monkeypatch.setattr(smo_loops, "pass_until_consistent", counted)
    monkeypatch.setattr("ooc_svm.solvers.smo.solver.WORK_A_CALL", 1e3)
    smo(*rows[:2], C=1.0, bias="free", max_passes=1)
    assert len(ends) > 2
    ends.clear()
    assert smo(*rows[:2], C=1.0, bias="free", time_limit=1e-9).report["stop_reason"] == "time-limit"
    assert len(ends) <= 1


def test_parts_of_a_pass_have_the_bits_of_the_whole(rows, monkeypatch):
    whole = smo(*rows[:2], C=1.0, bias="free", kernel="rbf")
    monkeypatch.setattr("ooc_svm.solvers.smo.solver.WORK_A_CALL", 1e3)
    monkeypatch.setattr("ooc_svm.solvers.smo.solver.CALLS", 800_000)  # as much work between two reads
    assert bits_of(smo(*rows[:2], C=1.0, bias="free", kernel="rbf"), rows) == bits_of(whole, rows)


def bits_of(model, rows):
    return model.decision_function(rows[0]).tobytes()
