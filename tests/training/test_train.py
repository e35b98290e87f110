"""Training as a whole: the same answer everywhere, the right answer, and what it tells."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.problems_data import objective
from helpers.train_data import answers, bits, linear_svc, make_anndata, make_store, store_rows
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from ooc_svm import plan, train, tune
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.errors import InputError, Interrupted, UsageError
from ooc_svm.model.file import load_model, save_model
from ooc_svm.options import TrainOptions
from ooc_svm.store import open_store
from ooc_svm.training import engines, preparation
from ooc_svm.training.data import open_data
from ooc_svm.training.execute import execute
from ooc_svm.training.prepare import prepare
from ooc_svm.training.progress import Progress

SOLVERS = ["ocas", "cutting-plane", "streamed-smo", "smo"]
FASTER = ["ocas", "streamed-smo"]

# Several groups of cuts where there are cuts.
GROUPED = {"ocas": {"cut_groups": 2}, "cutting-plane": {"cut_groups": 2}, "streamed-smo": {}, "smo": {}}

# Of CLI.md: what every report has.
REPORT_KEYS = {
    "problem",
    "loss",
    "solver",
    "kernel",
    "tol",
    "n_rows",
    "n_features",
    "n_nonzeros",
    "passes",
    "bytes_read",
}
REPORT_KEYS |= {"seconds", "peak_memory_bytes", "converged", "stop_reason", "models", "history"}
MODEL_KEYS = {
    "label",
    "C",
    "primal",
    "dual",
    "gap",
    "relative_gap",
    "rounding",
    "absolute",
    "passes",
    "bias",
    "n_support",
    "converged",
}
HISTORY_KEYS = {"pass", "seconds", "bytes_read", "primal", "dual", "relative_gap"}


@pytest.fixture(scope="module")
def rows():
    return store_rows()


@pytest.fixture(scope="module")
def weights(rows):
    """Weights of the rows; a third of them is 0."""
    return np.random.default_rng(3).integers(0, 3, len(rows[1])) * 0.7


@pytest.fixture(scope="module")
def store(tmp_path_factory, rows):
    return make_store(tmp_path_factory.mktemp("rows") / "s", *rows)


@pytest.fixture(scope="module")
def weighted_store(tmp_path_factory, rows, weights):
    return make_store(tmp_path_factory.mktemp("weighted") / "s", *rows, weights=weights)


@pytest.fixture(scope="module")
def three_classes():
    """Rows of the labels 1, 2 and 5."""
    matrix, _ = store_rows(360, 30, seed=4)
    rng = np.random.default_rng(4)
    scores = matrix @ rng.normal(size=(30, 3)) + 0.5 * rng.normal(size=(360, 3))
    return matrix, np.array([1.0, 2.0, 5.0])[scores.argmax(axis=1)]


def assert_certified(model, matrix, labels, *, C=1.0, bias=True, omega=None, number=0):
    """The certificate encloses LIBLINEAR's optimum, and the weights have the primal value it names."""
    row = model.report["models"][number]
    coef, intercept = linear_svc(matrix, labels, C, bias=bias, weights=omega)
    omega = 1.0 if omega is None else omega
    best = objective(matrix, labels, coef, C, omega, intercept) + 0.5 * intercept**2
    w, b = model.weights[number], model.bias[number]
    assert row["converged"]
    assert row["primal"] == pytest.approx(objective(matrix, labels, w, C, omega, b) + 0.5 * b**2, rel=1e-9)
    assert row["gap"] == pytest.approx(
        row["primal"] - row["dual"] + row["rounding"], rel=1e-9, abs=1e-15 * best
    )
    assert row["gap"] == pytest.approx(row["relative_gap"] * row["primal"], rel=1e-9, abs=1e-15)
    assert row["relative_gap"] <= model.options["tol"]
    assert row["dual"] <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= row["primal"] <= best + row["gap"] + 1e-9 * best


class TestSameBits:
    @pytest.mark.parametrize(
        ("problem", "solver"),
        [*(("svc", solver) for solver in SOLVERS), ("roc-area", "ocas"), ("roc-area", "cutting-plane")],
    )
    def test_alone_and_in_company(self, weighted_store, problem, solver, few_held):
        """Whatever else is trained in the same reads, a model's bits are its own, if it shares no rows."""
        own = {"resident": 0.3} if solver == "streamed-smo" else {}
        own |= GROUPED[solver] if problem == "svc" else {}
        options = {"problem": problem, "solver": solver, "tol": 1e-3, "max_passes": 40, **own}
        costs = [0.3, 1.0, 2.0, 5.0, 9.0]
        together = train(weighted_store, C=costs, **options)
        alone = [train(weighted_store, C=C, **options) for C in costs]
        if solver == "streamed-smo":  # whose models share the rows in memory: they agree within their gaps
            for one, other in zip(
                together.report["models"], (m.report["models"][0] for m in alone), strict=True
            ):
                assert one["converged"]
                assert one["dual"] - one["rounding"] <= other["primal"]
                assert other["dual"] - other["rounding"] <= one["primal"]
            return
        assert together.weights.tobytes() == b"".join(model.weights.tobytes() for model in alone)
        assert together.report["models"] == [model.report["models"][0] for model in alone]

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_store_and_matrix_of_the_same_blocks(self, weighted_store, rows, weights, solver):
        options = TrainOptions(solver=solver, bias="penalized", scale="maxabs", **GROUPED[solver])
        opened = open_store(weighted_store)
        assert len(opened.blocks) > 10
        data = open_data(opened, None, None, options)
        matrix = MatrixSource(*rows, weights, spans=opened.blocks)
        out_of_core = execute(prepare(data, options), None)
        in_memory = execute(prepare(replace(data, source=matrix), options), None)
        assert bits(out_of_core) == bits(in_memory)
        assert answers(out_of_core.report) == answers(in_memory.report)
        assert out_of_core.report["bytes_read"] > 0 == in_memory.report["bytes_read"]

    @pytest.mark.parametrize(
        "options", [{"solver": "streamed-smo"}, {"solver": "ocas"}, {"kernel": "rbf", "gamma": 0.1}]
    )
    def test_a_matrix_on_any_number_of_threads(self, rows, monkeypatch, options):
        matrix, labels = rows
        alone = train(matrix, labels, threads=2, **options)
        for limit in ("SHORT_ELEMENTS", "SHORT_KERNEL_ROWS"):
            monkeypatch.setattr(preparation, limit, 0)
        for threads in (1, 2, 4):
            model = train(matrix, labels, threads=threads, **options)
            assert (model.report["computing_seconds"] > 0.0) == (threads > 1)
            assert model.decision_function(matrix).tobytes() == alone.decision_function(matrix).tobytes()
            assert answers(model.report) == answers(alone.report)

    @pytest.mark.parametrize(("solver", "n_models"), [("streamed-smo", 3), ("streamed-smo", 2), ("ocas", 3)])
    def test_a_matrix_on_several_threads_where_models_have_work_for_them(
        self, rows, monkeypatch, solver, n_models
    ):
        matrix, labels = rows
        options = {"solver": solver, "C": [0.1, 1.0, 10.0][:n_models]}
        alone = train(matrix, labels, threads=1, **options)
        monkeypatch.setattr(preparation, "SHORT_ELEMENTS", 3 * matrix.nnz)
        model = train(matrix, labels, threads=2, **options)
        several = solver == "streamed-smo" and n_models == 3
        assert (model.report["computing_seconds"] > 0.0) == several
        assert bits(model) == bits(alone)
        # Folds train models, too.
        if several:
            kept = tune(matrix, labels, C=1.0, folds=2, threads=2).report
            assert kept["computing_seconds"] > 0.0

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_any_number_of_threads(self, weighted_store, solver):
        models = [train(weighted_store, solver=solver, threads=t, **GROUPED[solver]) for t in (1, 2, 4)]
        assert len({bits(model) for model in models}) == 1
        assert answers(models[0].report) == answers(models[1].report) == answers(models[2].report)

    @pytest.mark.parametrize("solver", FASTER)
    def test_any_cache_and_row_vectors_on_disk(self, weighted_store, monkeypatch, solver):
        divide = engines.divide
        models = []
        for cache, vectors in ((0, 0), (3000, 10**6), (10**9, 10**6)):
            sizes = {"cache_bytes": cache, "row_vector_bytes": vectors}
            monkeypatch.setattr(engines, "divide", lambda *a, s=sizes, **k: replace(divide(*a, **k), **s))
            models.append(train(weighted_store, solver=solver, tol=1e-9, max_passes=12))
        assert len({bits(model) for model in models}) == 1
        none, some, whole = (model.report["bytes_read"] for model in models)
        assert none > some > whole > 0
        assert none == whole * models[0].report["passes"]

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_any_number_of_processors(self, solver):
        """A linear algebra library shares long products out, and adds in another order then."""
        matrix, labels = store_rows(1500, 30_000, density=2e-3)
        models = []
        for processors in (1, 2, 4):
            with threadpool_limits(processors, user_api="blas"):
                models.append(train(matrix, labels, solver=solver, max_passes=8))
        assert len({bits(model) for model in models}) == 1

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_more_memory_than_needed(self, store, solver):
        models = [train(store, solver=solver, memory=memory) for memory in ("365MB", "1GB")]
        assert bits(models[0]) == bits(models[1])

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_twice(self, rows, solver):
        assert bits(train(*rows, solver=solver)) == bits(train(*rows, solver=solver))

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_the_saved_model_is_the_model(self, weighted_store, tmp_path, solver):
        model = train(weighted_store, solver=solver, bias="penalized", scale="std", max_passes=5)
        save_model(model, tmp_path / "m")
        loaded = load_model(tmp_path / "m")
        assert bits(loaded) == bits(model)
        assert loaded.report == json.loads(json.dumps(model.report))

    @pytest.mark.parametrize("solver", FASTER)
    def test_other_blocks_give_another_answer_within_the_gap(self, rows, store, tmp_path, solver):
        coarse = make_store(tmp_path / "coarse", *rows, chunk_elements=1000, chunk_rows=200, block_rows=200)
        assert len(open_store(coarse).blocks) < len(open_store(store).blocks)
        first, second = (train(path, solver=solver).report["models"][0] for path in (store, coarse))
        assert first["dual"] <= second["primal"]
        assert second["dual"] <= first["primal"]


class TestReference:
    @pytest.mark.parametrize("bias", ["none", "penalized"])
    @pytest.mark.parametrize("solver", SOLVERS)
    def test_liblinear(self, store, rows, solver, bias):
        model = train(store, solver=solver, bias=bias, C=0.5, tol=1e-4)
        assert model.report["bytes_read"] > 0
        assert_certified(model, *rows, C=0.5, bias=bias == "penalized")
        assert (model.bias[0] != 0.0) == (bias == "penalized")

    @pytest.mark.parametrize("solver", FASTER)
    @pytest.mark.parametrize("class_weight", ["balanced", {1: 5.0, -1: 0.3}, {1.0: 4}])
    def test_class_weight(self, store, rows, class_weight, solver):
        matrix, labels = rows
        model = train(store, solver=solver, class_weight=class_weight, tol=1e-4)
        if class_weight == "balanced":
            omega = np.where(labels > 0, 150.0 / (labels > 0).sum(), 150.0 / (labels < 0).sum())
        else:
            omega = np.where(labels > 0, class_weight[1], class_weight.get(-1, 1.0))
        assert_certified(model, matrix, labels, omega=omega)

    @pytest.mark.parametrize("solver", FASTER)
    def test_row_weights_of_stores_and_matrices(self, weighted_store, rows, weights, solver):
        labels = rows[1]
        omega = weights * np.where(labels > 0, 2.0, 1.0)
        for data in ((weighted_store,), rows):
            extra = {"sample_weight": weights} if data is rows else {}
            model = train(*data, solver=solver, class_weight={1: 2.0}, tol=1e-4, **extra)
            assert_certified(model, *rows, omega=omega)

    @pytest.mark.parametrize("solver", FASTER)
    def test_rows_without_weight_are_as_good_as_absent(self, rows, weights, solver):
        matrix, labels = rows
        kept = weights > 0
        options = {"solver": solver, "tol": 1e-4}
        there = train(matrix[kept], labels[kept], sample_weight=weights[kept], **options)
        without = there.report["models"][0]
        model = train(matrix, labels, sample_weight=weights, **options)
        assert model.report["models"][0]["primal"] == pytest.approx(without["primal"], rel=2e-4)
        assert model.report["n_rows"] == len(labels)

    @pytest.mark.parametrize("solver", FASTER)
    @pytest.mark.parametrize("scale", ["maxabs", "std"])
    @pytest.mark.parametrize("bias", ["none", "penalized"])
    def test_scale_is_training_on_scaled_columns(self, store, rows, scale, bias, solver):
        matrix, labels = rows
        dense = matrix.toarray()
        factors = 1.0 / (np.abs(dense).max(axis=0) if scale == "maxabs" else dense.std(axis=0))
        model = train(store, solver=solver, scale=scale, bias=bias, tol=1e-4)
        np.testing.assert_allclose(model.scale, factors, rtol=1e-12)
        inside = replace(model, functions=replace(model.functions, weights=model.weights / factors))
        assert_certified(inside, dense * factors, labels, bias=bias == "penalized")
        assert model.report["passes"] == model.report["models"][0]["passes"] + 1

    def test_the_read_for_the_scale_is_not_one_of_the_passes(self, store):
        events = []
        model = train(store, scale="maxabs", tol=1e-12, max_passes=3, progress=events.append)
        assert [event.passes for event in events if event.kind == "pass"] == [1, 2, 3]
        assert [row["pass"] for row in model.report["history"]] == [1, 2, 3]
        assert model.report["passes"] == 4
        notes = [event.message for event in events if event.kind == "note"]
        assert "one read comes first, for the scale of the columns" in notes
        scaling = [event for event in events if event.kind == "block" and event.models_running == 0]
        assert {event.primal for event in scaling} == {None}

    def test_columns_without_spread_keep_their_unit(self, rows):
        matrix, labels = rows
        constant = np.tile([0.0, 0.1, 2.5], (300, 1))
        dense = np.hstack([matrix.toarray(), constant])
        for scale, expected in (("maxabs", [1.0, 10.0, 0.4]), ("std", [1.0, 1.0, 1.0])):
            assert train(dense, labels, scale=scale).scale[-3:].tolist() == expected

    @pytest.mark.parametrize("solver", FASTER)
    def test_all_values_one(self, tmp_path, solver):
        matrix, labels = store_rows(ones=True)
        path = make_store(tmp_path / "s", matrix, labels)
        assert open_store(path).value_type == "ones"
        assert_certified(train(path, solver=solver, tol=1e-4), matrix, labels)

    @pytest.mark.parametrize("solver", FASTER)
    def test_float32(self, tmp_path, rows, solver):
        path = make_store(tmp_path / "s", rows[0].astype(np.float32), rows[1], dtype="float32")
        model = train(path, solver=solver, tol=1e-4)
        assert_certified(model, rows[0].astype(np.float32).astype(np.float64), rows[1])

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_rows_without_features(self, solver):
        labels = np.array([1.0, 1.0, 1.0, -1.0])
        for shape in ((4, 3), (4, 0)):
            model = train(np.zeros(shape), labels, C=2.0, solver=solver, bias="none")
            assert (model.weights == 0.0).all()
            assert model.report["models"][0]["primal"] == model.report["models"][0]["dual"] == 8.0
        options = {"bias": "penalized", "tol": 1e-6, "solver": solver}
        biased = train(np.zeros((4, 3)), labels, C=2.0, **options)
        assert biased.bias[0] == pytest.approx(1.0, abs=1e-3)  # 1/2 b^2 + 2 (3 max(0, 1 - b) + 1 + b)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_a_store_without_features(self, tmp_path, solver):
        path = make_store(tmp_path / "s", store_rows(n_features=1)[0][:, :0], store_rows()[1])
        assert train(path, solver=solver, bias="none").report["models"][0]["primal"] == 300.0

    @pytest.mark.parametrize("problem", ["svc", "nu-svc", "svr", "nu-svr", "ordinal", "roc-area", "ranking"])
    def test_no_weight_at_all(self, rows, tmp_path, problem):
        matrix, labels = rows
        weights, qids = np.zeros(300), np.arange(300) // 10
        columns = {"qid": qids} if problem == "ranking" else {}
        message = (
            r"all rows have a weight of 0, so that there is nothing to train on; give some a weight above 0"
        )
        store = make_store(tmp_path / "s", matrix, labels, weights=weights, qids=qids)
        with pytest.raises(InputError, match=message):
            train(matrix, labels, problem=problem, sample_weight=weights, **columns)
        for function in (train, plan):
            with pytest.raises(InputError, match=message):
                function(store, problem=problem)

    def test_no_class_with_a_weight(self, rows):
        message = "class_weight gives all classes a weight of 0, so that there is nothing to train on"
        for problem in ("svc", "nu-svc"):
            with pytest.raises(UsageError, match=message):
                train(*rows, class_weight={1: 0, -1: 0}, problem=problem)
        assert train(*rows, class_weight={1: 0, -1: 1}).report["converged"]

    def test_nu_of_a_class_without_a_weight(self, rows):
        message = "all rows of a class have a weight of 0, and nu is at most .*; give rows of it a weight"
        for options in ({"class_weight": {1: 0}}, {"sample_weight": (rows[1] < 0).astype(float)}):
            with pytest.raises(InputError, match=message):
                train(*rows, problem="nu-svc", **options)


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (2, 20), (4, 3), (10, 30), (40, 100)])
def test_a_handful_of_rows(shape, even, loss, bias):
    """All of them are held, so that a few reads do; also where one of them is most of the data."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=shape)
    labels = np.sign(matrix[:, 0])
    if not even:
        matrix[1:, 1:] = 0.0
    labels[:2] = 1.0, -1.0
    report = train(matrix, labels, loss=loss, bias=bias).report
    assert report["converged"]
    assert report["resident"] == 1.0
    assert report["passes"] <= 8


class TestClasses:
    @pytest.mark.parametrize("solver", SOLVERS)
    def test_the_larger_of_two_labels_is_positive(self, rows, solver):
        matrix, labels = rows
        model = train(matrix, np.where(labels > 0, 7.0, 3.0), solver=solver)
        assert (model.positive, model.negative, model.classes) == ([7.0], 3.0, (3.0, 7.0))
        assert bits(model) == bits(train(matrix, labels, solver=solver))
        other = train(matrix, labels, positive=-1, solver=solver)
        assert bits(other) != bits(model)
        np.testing.assert_allclose(other.weights, -model.weights, atol=1e-9)

    def test_several_positive_labels(self, three_classes):
        matrix, labels = three_classes
        model = train(matrix, labels, positive=[1, 5], tol=1e-4)
        assert (model.positive, model.negative, model.n_models) == ([1.0], 2.0, 1)
        assert model.options["positive"] == [1.0, 5.0]
        assert_certified(model, matrix, np.where(labels == 2, -1.0, 1.0))

    @pytest.mark.parametrize("positive", [-1, 0, 1])
    def test_the_two_answers_of_one_label_against_several_differ(self, rows, positive):
        matrix, labels = rows
        labels = np.where(np.arange(300) % 3 == 0, 0.0, labels)
        model = train(matrix, labels, positive=positive, max_passes=3)
        assert model.positive == [float(positive)]
        assert model.negative not in (None, float(positive))

    def test_balanced_weighs_the_two_sides(self, three_classes):
        matrix, labels = three_classes
        model = train(matrix, labels, positive=5, class_weight="balanced", tol=1e-4)
        y = np.where(labels == 5, 1.0, -1.0)
        omega = 180.0 / np.where(y > 0, (y > 0).sum(), (y < 0).sum())
        assert_certified(model, matrix, y, omega=omega)

    @pytest.mark.parametrize("solver", FASTER)
    @pytest.mark.parametrize("class_weight", [None, "balanced", {2: 3.0}])
    def test_one_against_the_rest(self, three_classes, class_weight, solver):
        matrix, labels = three_classes
        model = train(matrix, labels, tol=1e-4, class_weight=class_weight, solver=solver)
        assert (model.positive, model.negative) == ([1.0, 2.0, 5.0], None)
        for k, label in enumerate(model.positive):
            y = np.where(labels == label, 1.0, -1.0)
            omega = None
            if class_weight == "balanced":
                omega = 180.0 / np.where(y > 0, (y > 0).sum(), (y < 0).sum())
            elif class_weight is not None:
                omega = np.where(labels == 2, 3.0, 1.0)
            assert_certified(model, matrix, y, omega=omega, number=k)

    def test_the_classes_of_scikit_learn(self, three_classes):
        matrix, labels = three_classes
        ours = np.array([1.0, 2.0, 5.0])[
            (matrix @ train(matrix, labels, bias="none", tol=1e-6).weights.T).argmax(axis=1)
        ]
        svm = LinearSVC(loss="hinge", fit_intercept=False, tol=1e-8, max_iter=10**6, random_state=0)
        theirs = OneVsRestClassifier(svm).fit(matrix, labels).predict(matrix)
        assert (ours == theirs).mean() > 0.98
        assert (ours == labels).mean() == pytest.approx((theirs == labels).mean(), abs=0.01)

    @pytest.mark.parametrize("solver", FASTER)
    def test_classes_and_costs_share_their_reads(self, three_classes, tmp_path, solver):
        matrix, labels = three_classes
        path = make_store(tmp_path / "s", matrix, labels)
        model = train(path, C=[0.01, 1.0], memory="345MB", threads=1, solver=solver)
        rows = model.report["models"]
        assert [(row["label"], row["C"]) for row in rows] == [(c, C) for C in (0.01, 1.0) for c in "125"]
        assert model.report["passes"] == max(row["passes"] for row in rows)
        assert len({row["passes"] for row in rows}) > 1
        for number, row in enumerate(rows):
            y = np.where(labels == int(row["label"]), 1.0, -1.0)
            assert_certified(model, matrix, y, C=row["C"], number=number)

    def test_names_of_an_anndata_store(self, tmp_path, three_classes):
        matrix, labels = three_classes
        names = np.array(["B", "NK", "T"])[np.searchsorted([1, 2, 5], labels)]
        path = make_anndata(tmp_path / "a", matrix, cell_type=names, label=labels)
        every = train(path, label="cell_type", tol=1e-4, class_weight={"NK": 3.0})
        assert [row["label"] for row in every.report["models"]] == ["B", "NK", "T"]
        assert every.label_names == ("B", "NK", "T")
        numbered = train(path, class_weight={2: 3.0}, tol=1e-4)
        assert bits(every) == bits(numbered)
        assert numbered.label_names is None
        one = train(path, label="cell_type", positive=["T", "B"], class_weight={"NK": 2.0}, tol=1e-4)
        y = np.where(names == "NK", -1.0, 1.0)
        assert_certified(one, matrix, y, omega=np.where(names == "NK", 2.0, 1.0))
        with pytest.raises(InputError, match=r"no row has the label 'mast'; the labels are 'B', 'NK', 'T'"):
            train(path, label="cell_type", positive="mast")
        with pytest.raises(InputError, match=r"no column obs/celltype .*'cell_type'"):
            train(path, label="celltype")


class TestLimitsAndReports:
    @pytest.mark.usefixtures("few_held")
    @pytest.mark.parametrize("solver", SOLVERS)
    def test_max_passes(self, store, rows, solver):
        model = train(store, solver=solver, bias="none", max_passes=3, tol=1e-9)
        report = model.report
        assert (report["passes"], report["converged"], report["stop_reason"]) == (3, False, "max-passes")
        row = report["models"][0]
        assert row["dual"] <= objective(*rows, linear_svc(*rows)[0], 1.0) <= row["primal"]
        assert row["primal"] == pytest.approx(objective(*rows, model.weights[0], 1.0), rel=1e-9)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_time_limit(self, store, solver):
        report = train(store, solver=solver, time_limit=1e-9).report
        assert (report["passes"], report["converged"], report["stop_reason"]) == (1, False, "time-limit")

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_report(self, store, rows, solver):
        report = train(store, solver=solver, C=(0.1, 1.0), bias="penalized").report
        assert set(report) >= REPORT_KEYS
        assert all(set(row) >= MODEL_KEYS for row in report["models"])
        assert all(set(row) == HISTORY_KEYS for row in report["history"])
        assert json.loads(json.dumps(report, allow_nan=False)) == report
        assert (report["problem"], report["loss"], report["kernel"]) == ("svc", "hinge", "linear")
        assert report["solver"] == solver
        assert (report["n_rows"], report["n_features"], report["n_nonzeros"]) == (300, 40, rows[0].nnz)
        history = report["history"]
        assert [row["pass"] for row in history] == list(range(1, report["passes"] + 1))
        for name in ("seconds", "bytes_read"):
            assert all(a[name] <= b[name] for a, b in pairwise(history))
        assert history[-1]["relative_gap"] <= 1e-3
        assert report["seconds"] >= history[-1]["seconds"]
        assert report["bytes_read"] == history[-1]["bytes_read"]

    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("options", [{}, {"scale": "std", "bias": "penalized"}, {"problem": "roc-area"}])
    def test_numbers_are_plain(self, rows, solver, options):
        """A float of numpy is not what a report is said to hold, and prints in another way."""
        if options.get("problem") == "roc-area" and solver in ("streamed-smo", "smo"):
            pytest.skip("no solver of pairs")

        def leaves(value):
            if isinstance(value, dict):
                value = list(value.values())
            return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list) else [value]

        report = train(*rows, solver=solver, max_passes=4, **options).report
        assert {type(leaf) for leaf in leaves(report)} <= {str, int, float, bool, type(None)}

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_history_only_improves(self, rows, solver):
        history = train(*rows, solver=solver, tol=1e-5).report["history"]
        primal, dual = (np.array([row[name] for row in history]) for name in ("primal", "dual"))
        assert (np.diff(primal) <= 1e-12 * primal[0]).all()
        assert (np.diff(dual) >= 0).all()
        assert (dual <= primal).all()

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_progress(self, store, monkeypatch, solver):
        monkeypatch.setattr("ooc_svm.training.progress.BLOCK_INTERVAL", 0.0)
        seen: list[Progress] = []
        options = {"solver": solver, "threads": 2, "C": (0.1, 1.0), "memory": "1GB"}
        report = train(store, progress=seen.append, **options).report
        passes = [event for event in seen if event.kind == "pass"]
        assert [event.passes for event in passes] == list(range(1, report["passes"] + 1))
        for event, row in zip(passes, report["history"], strict=True):
            told = (event.primal, event.dual, event.relative_gap, event.bytes_read)
            assert told == (row["primal"], row["dual"], row["relative_gap"], row["bytes_read"])
        n_blocks = len(open_store(store).blocks)
        blocks = [event for event in seen if event.kind == "block"]
        first = [event for event in blocks if event.passes == 0]
        assert [event.blocks_done for event in first] == list(range(1, n_blocks + 1))
        assert {event.n_blocks for event in blocks} == {n_blocks}
        assert all(event.primal is event.relative_gap is None for event in first)
        assert (blocks[0].models_running, passes[-1].models_running) == (2, 0)
        assert len(blocks) == n_blocks * report["passes"]

    def test_an_error_of_the_callback_ends_the_run(self, store):
        class Enough(Exception):
            pass

        def progress(event):
            if event.kind == "pass":
                raise Enough

        with pytest.raises(Enough):
            train(store, progress=progress)

    @pytest.mark.usefixtures("few_held")
    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("with_checkpoint", [False, True])
    def test_interruption(self, store, tmp_path, monkeypatch, with_checkpoint, solver):
        asked = []
        monkeypatch.setattr("ooc_svm.system.signals.stop_requested", lambda: 15 if len(asked) == 3 else None)
        options = {"solver": solver, "tol": 1e-6}
        options |= {"checkpoint": tmp_path / "c"} if with_checkpoint else {}
        message = "go on with resume=True" if with_checkpoint else "there is no checkpoint"
        with pytest.raises(Interrupted, match=rf"after 3 passes; {message}") as caught:
            train(store, progress=lambda event: asked.append(1) if event.kind == "pass" else None, **options)
        assert caught.value.exit_code == 143
        report = caught.value.model.report
        assert (report["passes"], report["converged"], report["stop_reason"]) == (3, False, "signal")
        if with_checkpoint:
            asked.clear()
            resumed = train(store, resume=True, **options)
            assert bits(resumed) == bits(train(store, solver=solver, tol=1e-6))
