"""Training with streamed SMO: independent optima, the same bits everywhere, and reads counted."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.killed_runs import large_effort
from helpers.losses import LOSSES, is_regression
from helpers.streamed_data import (
    CLASSES,
    EPS,
    FEW,
    KINDS,
    VALUES,
    assert_certified,
    make_rows,
    make_stores,
    make_weights,
    options_of,
    problem_of,
    value_of,
)
from helpers.train_data import answers, bits, make_store
from scipy import sparse

from ooc_svm import train
from ooc_svm.errors import InputError
from ooc_svm.solvers.streamed_smo import effort, plan, solver
from ooc_svm.solvers.streamed_smo.effort import effort_for
from ooc_svm.solvers.streamed_smo.rounds import MIN_ROWS, cut_rounds
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.store import Store, open_store
from ooc_svm.training import engines

pytestmark = pytest.mark.usefixtures("few_held")


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def weights():
    return make_weights()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("lanes", [1, 4])
def test_the_stores_are_cut_in_both_ways(stores, lanes):
    for problem in ("svc", "svr"):
        few, many = (open_store(stores[problem, name]).blocks for name in ("few", "many"))
        assert 1 < len(few) < 4 < 40 < len(many)
        steps = [
            {part.step for each in cut_rounds(blocks, 20, lanes) for s in each.rows.segments for part in s}
            for blocks in (few, many)
        ]
        assert min(steps[0]) > 1
        assert steps[1] == {1}


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
    @pytest.mark.parametrize("loss", LOSSES)
    def test_data_of_some_size_are_solved_at_once(self, stores, rows, weights, monkeypatch, loss, bias):
        monkeypatch.setattr(effort, "EFFORTS", {0: effort.EFFORTS[2_000_000]})
        for name in ("is_narrow", "has_proximal_steps"):
            monkeypatch.setattr(plan, name, lambda *shape: False)
        problem = {"loss": loss, "bias": bias, "C": 0.4}
        model = train(stores[problem_of(loss), "many"], tol=1e-5, resident=1.0, **options_of(**problem))
        assert model.report["rounds"] == 1
        t = rows[2] if is_regression(loss) else rows[1]
        assert_certified(model, rows[0], t, tol=1e-5, omega=weights, **problem)

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
        path = make_store(tmp_path / "s", matrix, labels, **FEW)
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
        model = train(stores["svc", "few"], bias=bias, loss=loss, class_weight=class_weight)
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
        inside = replace(model, functions=replace(model.functions, weights=model.weights / factors))
        scaled = rows[0] @ np.diag(factors)
        problem = {"loss": loss, "bias": bias, "omega": weights}
        assert_certified(inside, sparse.csr_array(scaled), t, tol=1e-3, **problem)
        assert model.report["passes"] == model.report["models"][0]["passes"] + 1

    def test_the_rows_with_a_loss_are_counted(self, rows):
        matrix, labels, values = rows
        model = train(matrix, labels, bias="free", tol=1e-6)
        margins = labels * (matrix @ model.weights[0] + model.bias[0])
        # The best bias puts a row on the margin, and rounding on either side of it.
        inside = [(margins < 1.0 + side * 1e-9).sum() for side in (-1.0, 1.0)]
        assert inside[0] <= model.report["models"][0]["n_support"] <= inside[1] <= inside[0] + 2
        model = train(matrix, values, **options_of(VALUES[0], bias="free"))
        distances = np.abs(values - matrix @ model.weights[0] - model.bias[0])
        outside = [(distances > EPS + side * 1e-9).sum() for side in (1.0, -1.0)]
        assert outside[0] <= model.report["models"][0]["n_support"] <= outside[1] <= outside[0] + 2


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("blocks", ["few", "many"])
class TestSameBits:
    @pytest.fixture
    def store(self, stores, options, blocks, monkeypatch):
        """A store; with many blocks it is worked on as large data are, with more lanes and less solving."""
        if blocks == "many":
            monkeypatch.setattr(effort, "EFFORTS", {0: large_effort()})
        return stores[options["problem"], blocks]

    def test_threads(self, store, options):
        models = [train(store, threads=t, **options) for t in (1, 2, 3)]
        assert bits(models[0]) == bits(models[1]) == bits(models[2])
        assert answers(models[0].report) == answers(models[1].report) == answers(models[2].report)

    def test_cache_and_row_vectors_on_disk(self, store, options, monkeypatch):
        divide = engines.divide
        models = []
        for cache, vectors in ((0, 0), (10**9, 10**9), (0, 20_000)):
            sizes = {"cache_bytes": cache, "row_vector_bytes": vectors}
            monkeypatch.setattr(engines, "divide", lambda *a, s=sizes, **k: replace(divide(*a, **k), **s))
            models.append(train(store, **options))
        assert len({bits(model) for model in models}) == 1
        assert len({str(answers(model.report)) for model in models}) == 1
        none, whole = (model.report["bytes_read"] for model in models[:2])
        passes = models[0].report["passes"]
        opened = open_store(store)
        # With a free bias the first blocks of some lanes once more, for the norms of `MIN_ROWS` rows.
        largest = max(opened.block_stored_bytes(index) for index in range(len(opened.blocks)))
        fewest = min(span.stop - span.start for span in opened.blocks[:-1])
        more = math.ceil(MIN_ROWS / fewest) * largest
        assert passes > 2
        assert whole * passes <= none <= whole * passes + more * (options["bias"] == "free")

    def test_memory_with_the_same_resident_rows(self, store, options):
        models = [train(store, memory=m, resident=0.07, threads=1, **options) for m in ("350MB", "2GB")]
        assert bits(models[0]) == bits(models[1])
        assert models[0].report["resident"] == pytest.approx(0.07, abs=1e-3)

    def test_a_seed_is_a_parameter(self, store, options):
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

    divide = engines.divide
    monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), cache_bytes=0))
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


def test_the_fewer_rows_are_held_the_more_rounds():
    shares = (1.0, 0.1, 0.05, 0.02, 0.001, 0.0)
    few, more, most = ([effort_for(n, share) for share in shares] for n in (10**6, 6 * 10**7, 10**9))
    assert [own.rounds for own in few] == [1, 20, 25, 62, 100, 100]
    assert [own.rounds for own in more] == [3, 5, 10, 20, 20, 20]
    assert [own.rounds for own in most] == [3, 5, 10, 20, 20, 20]
    assert {own.lanes for own in few + more} == {1}
    assert {own.lanes for own in most} == {2}
    assert effort_for(6 * 10**7, 1.0, lanes=8).lanes == 8
    # Where most free rows are resident, these are solved less often.
    assert [effort_for(10**6, share).rounds for share in (0.5, 0.3, 0.24)] == [5, 5, 20]
    assert [effort_for(6 * 10**7, share).rounds for share in (0.5, 0.4, 0.3)] == [3, 3, 5]


@pytest.mark.parametrize("near", [solver.NEAR, np.inf])
def test_reads_that_end_far_from_the_gap_wanted_end_with_less_solving(stores, monkeypatch, near):
    monkeypatch.setattr(solver, "NEAR", near)
    models = []
    for share in (0.01, 10.0):
        own = replace(effort_for(10**6, 0.1), early_share=share, last_share=0.01)
        monkeypatch.setattr(effort, "EFFORTS", {0: own})
        models.append(train(stores["svc", "many"], C=1.0, resident=0.1, max_passes=2, tol=1e-5))
    fine, coarse = (model.report["models"][0]["row_visits"] for model in models)
    assert (coarse < fine) == (bits(models[0]) != bits(models[1])) == np.isfinite(near)


@pytest.mark.parametrize(("limit", "stop_reason"), [(None, "certified"), (2, "max-passes")])
def test_the_read_that_certifies_ends_without_solving(stores, monkeypatch, limit, stop_reason):
    solved: list[bool] = []
    solve = StreamedSmo._solve_working_set

    def counted(self, last=False):
        if self.n_nonzeros > 600:  # not what is compiled before
            solved.append(last)
        solve(self, last)

    monkeypatch.setattr(StreamedSmo, "_solve_working_set", counted)
    report = train(stores["svc", "few"], C=1.0, max_passes=limit).report
    assert report["stop_reason"] == stop_reason
    assert sum(solved) == report["passes"] - (limit is None)
