"""Training on sets of labels: each model against scikit-learn, its certificate, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.label_data import LABELS, make_labels
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

import ooc_svm
from ooc_svm.errors import InputError, UsageError
from ooc_svm.store import open_store

TOL = 1e-4


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The rows, and a store of them."""
    folder = tmp_path_factory.mktemp("labels")
    made = make_labels()
    assert (made.Y.sum(axis=1) == 0).any()
    assert (made.Y.sum(axis=1) > 1).any()
    ooc_svm.convert(made.write(folder / "a.svm"), folder / "a.zarr", labels="sets")
    return made, folder / "a.zarr", folder / "a.svm"


def primal(model, k, X, y, cost):
    scores = X @ model.weights[k] + model.bias[k]
    losses = np.maximum(0.0, 1.0 - np.where(y, scores, -scores))
    return 0.5 * (model.weights[k] @ model.weights[k] + model.bias[k] ** 2) + (cost * losses).sum()


def costs_of(y, class_weight):
    if class_weight == "balanced":
        return np.where(y, len(y) / (2 * y.sum()), len(y) / (2 * (~y).sum()))
    return np.ones(len(y))


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("solver", ["streamed-smo", "ocas"])
def test_each_label_against_scikit_learn(data, solver, class_weight):
    made, store, _ = data
    model = ooc_svm.train(store, C=3.0, solver=solver, tol=TOL, class_weight=class_weight)
    assert model.multilabel
    assert model.label_names == tuple(LABELS)
    assert model.classes_.tolist() == LABELS
    for k, row in enumerate(model.report["models"]):
        y = made.Y[:, k]
        cost = 3.0 * costs_of(y, class_weight)
        own = primal(model, k, made.X, y, cost)
        assert own == pytest.approx(row["primal"], rel=1e-9)
        reference = LinearSVC(
            C=3.0, loss="hinge", class_weight=class_weight, tol=1e-7, max_iter=10**6, random_state=0
        )
        reference.fit(made.X, y)
        w, b = reference.coef_[0], reference.intercept_[0]
        best = 0.5 * (w @ w + b * b)
        best += (cost * np.maximum(0.0, 1.0 - np.where(y, 1, -1) * (made.X @ w + b))).sum()
        assert row["label"] == LABELS[k]
        assert row["dual"] <= best * (1 + 1e-9)
        assert own <= best * (1 + 1.1 * TOL)
        assert row["rows"] == y.sum()


def test_predictions_of_one_vs_rest(data):
    made, store, text = data
    model = ooc_svm.train(store, C=1.0, tol=1e-6)
    Y = MultiLabelBinarizer(classes=LABELS).fit_transform(made.sets())
    assert np.array_equal(Y, made.Y)
    other = OneVsRestClassifier(LinearSVC(C=1.0, loss="hinge", tol=1e-8, max_iter=10**6, random_state=0))
    other.fit(made.X, Y)
    scores = other.decision_function(made.X)
    np.testing.assert_allclose(model.decision_function(store), scores, atol=2e-2)
    sure = np.abs(scores) > 2e-2
    for rows in (store, text, made.X):
        found = ooc_svm.predict(model, rows)
        assert found.dtype == np.int8
        assert np.array_equal(found[sure], other.predict(made.X)[sure])


@pytest.mark.parametrize(
    "engine_options", [{"threads": 1}, {"threads": 2}, {"resident": 0.1}, {"resident": 1.0}]
)
def test_a_label_equals_the_same_classes_trained_alone(data, tmp_path, engine_options):
    """The model of a label is that of two classes, rows with the label and without."""
    made, store, _ = data
    many = ooc_svm.train(
        store, C=1.0, solver="ocas" if "threads" in engine_options else "streamed-smo", **(engine_options)
    )
    for k in (0, 3):
        alone = ooc_svm.train(store, C=1.0, positive=LABELS[k], solver=many.solver, **engine_options)
        assert alone.classes_.tolist() == [LABELS[k]]
        two = ooc_svm.train(made.X, np.where(made.Y[:, k], 1, -1), C=1.0, solver=many.solver)
        if many.solver == "ocas":
            assert np.array_equal(alone.weights[0], many.weights[k])
        best = two.report["models"][0]["primal"]
        for model, place in ((many, k), (alone, 0)):
            assert model.report["models"][place]["primal"] == pytest.approx(best, rel=2e-3)


def test_text_is_trained_on_directly(data):
    _, store, text = data
    from_store = ooc_svm.train(store, C=0.5)
    from_text = ooc_svm.train(text, labels="sets", C=0.5)
    assert from_text.weights.tobytes() == from_store.weights.tobytes()
    assert from_text.label_names == from_store.label_names


def test_several_costs_and_weights_by_label(data):
    made, store, _ = data
    model = ooc_svm.train(store, C=[0.1, 1.0], tol=TOL, class_weight={"cat": 3.0, 10: 2.0})
    assert model.n_models == 2 * len(LABELS)
    weights = {"cat": 3.0, "10": 2.0}
    for k, (C, label) in enumerate(zip(model.C, 2 * LABELS, strict=True)):
        y = made.Y[:, k % len(LABELS)]
        cost = C * np.where(y, weights.get(label, 1.0), 1.0)
        assert primal(model, k, made.X, y, cost) == pytest.approx(
            model.report["models"][k]["primal"], rel=1e-9
        )
    assert model.decision_function(store).shape == (len(made.X), len(LABELS))


def test_rows_held_out_measure_the_quality(data):
    made, store, _ = data
    model = ooc_svm.train(store, C=[0.001, 1.0], validation=0.3)
    found = model.report["validation"]
    assert set(found) == {"n_rows", "C", "micro-f1"}
    from sklearn.metrics import f1_score

    from ooc_svm.data.folds import HeldOut

    source = open_store(store)
    held = HeldOut(0.3, 0).mask(source, 0, source.n_rows)
    predicted = model.predict(made.X[held], C=found["C"])
    assert found["n_rows"] == held.sum()
    expected = f1_score(made.Y[held], predicted, average="micro")
    assert found["micro-f1"] == pytest.approx(expected)
    [_, last] = model.report["quality"]
    trained = model.predict(made.X[~held], C=1.0)
    assert last["micro-f1"] == pytest.approx(f1_score(made.Y[~held], trained, average="micro"))
    assert last["macro-f1"] == pytest.approx(f1_score(made.Y[~held], trained, average="macro"))


def test_validation_on_another_store(data, tmp_path):
    _, store, _ = data
    other = make_labels(seed=5)
    ooc_svm.convert(other.write(tmp_path / "b.svm"), tmp_path / "b.zarr", labels="sets")
    model = ooc_svm.train(store, C=1.0, validation=tmp_path / "b.zarr")
    assert model.report["validation"]["micro-f1"] == ooc_svm.evaluate(model, tmp_path / "b.zarr")["micro-f1"]
    (tmp_path / "c.svm").write_text("1 1:1\n2 1:1\n3 2:1\n")
    ooc_svm.convert(tmp_path / "c.svm", tmp_path / "c.zarr")
    with pytest.raises(InputError, match="has no sets of labels, which the model predicts"):
        ooc_svm.train(store, validation=tmp_path / "c.zarr")


@pytest.mark.parametrize("metric", [None, "jaccard", "hamming-loss", "macro-f1", "subset-accuracy"])
def test_folds(data, metric):
    _, store, _ = data
    model = ooc_svm.tune(store, C=[0.01, 1.0], folds=3, metric=metric)
    tuning = model.report["tuning"]
    assert tuning["metric"] == (metric or "micro-f1")
    values = {each["C"]: each["mean"] for each in tuning["values"]}
    best = min if metric == "hamming-loss" else max
    assert tuning["C"] == best(values, key=values.get)
    assert len(tuning["models"]) == 2 * 3 * len(LABELS)
    assert all(0.0 <= value <= 1.0 for each in tuning["values"] for value in each["values"])


def test_the_value_of_a_fold_is_that_of_a_model_trained_without_it(data):
    from sklearn.metrics import f1_score

    from ooc_svm.data.folds import Folds
    from ooc_svm.options import TrainOptions
    from ooc_svm.problems.multilabel import MULTILABEL
    from ooc_svm.training.data import open_data

    made, store, _ = data
    model = ooc_svm.tune(store, C=1.0, folds=3, tol=1e-5)
    opened = open_data(store, None, None, TrainOptions())
    classes = MULTILABEL.fold_classes(opened.labels, TrainOptions())
    assert sorted(number for own in classes for number in own) == sorted(opened.labels.counts)
    folds = Folds.of_labels(opened.labels.counts, classes, 3, 0)
    numbers = np.concatenate([own for _, own in folds.numbers(opened.source)])
    found = model.report["tuning"]["values"][0]["values"]
    for fold in range(3):
        own = numbers == fold
        predicted = np.column_stack(
            [
                LinearSVC(C=1.0, loss="hinge", tol=1e-8, max_iter=10**6, random_state=0)
                .fit(made.X[~own], made.Y[~own, k])
                .predict(made.X[own])
                for k in range(len(LABELS))
            ]
        )
        assert found[fold] == pytest.approx(f1_score(made.Y[own], predicted, average="micro"), abs=0.02)


@pytest.mark.usefixtures("few_held")
def test_stopped_and_resumed(data, tmp_path):
    _, store, _ = data
    options = {"C": 5.0, "resident": 0.1, "checkpoint": tmp_path / "state"}
    stopped = ooc_svm.train(store, **options, max_passes=2)
    assert not stopped.report["converged"]
    whole = ooc_svm.train(store, C=5.0, resident=0.1)
    resumed = ooc_svm.train(store, **options, resume=True)
    assert resumed.weights.tobytes() == whole.weights.tobytes()


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("1 1:1\n1,2 1:1\n", {}, InputError, "all rows have the label '1', of which nothing can be learned"),
        (" 1:1\n 2:1\n", {}, InputError, "no row has a label"),
        (
            "1 1:1\n2 1:1\n",
            {"positive": "cat"},
            InputError,
            "no row has the label 'cat'; the labels are '1', '2'",
        ),
        ("1 1:1\n2 1:1\n", {"positive": 7}, InputError, "no row has the label '7'"),
        ("1 1:1\n2 1:1\n", {"class_weight": {"x": 2}}, InputError, "no row has the label 'x'"),
        ("1 1:1\n2 1:1\n", {"problem": "svr"}, InputError, "sets of labels, which are for problem='svc'"),
        (
            "1 1:1\n2 1:1\n",
            {"problem": "roc-area"},
            InputError,
            "sets of labels, which are for problem='svc'",
        ),
        ("1 qid:1 1:1\n2 qid:1 1:1\n", {"problem": "ranking"}, InputError, "sets of labels, which are for"),
        ("1 1:1\n2 2:1\n" + "3 1:1\n" * 20, {"validation": 0.9}, InputError, "holds all rows of the label"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_trained(tmp_path, text, options, error, message):
    (tmp_path / "a.svm").write_text(text)
    ooc_svm.convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="sets")
    with pytest.raises(error, match=message):
        ooc_svm.train(tmp_path / "a.zarr", **options)


@pytest.mark.filterwarnings("ignore")
def test_a_label_of_all_rows_is_left_out_by_naming_the_others(tmp_path):
    (tmp_path / "a.svm").write_text("1,2 1:1\n1 2:1\n1,3 3:1\n1,2 1:1\n" * 5)
    model = ooc_svm.train(tmp_path / "a.svm", labels="sets", positive=["2", "3"])
    assert model.classes_.tolist() == ["2", "3"]
    assert ooc_svm.predict(model, np.eye(3)).tolist() == [[1, 0], [0, 0], [0, 1]]


@pytest.mark.filterwarnings("ignore")
def test_folds_that_a_label_has_too_few_rows_for(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n2 2:1\n" * 20 + "cat 3:1\n" * 2)
    ooc_svm.convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="sets")
    with pytest.raises(InputError, match=r"folds=3 needs as many rows with the label cat.*there are 2"):
        ooc_svm.tune(tmp_path / "a.zarr", folds=3, C=1.0)
    with pytest.raises(UsageError, match="accuracy is no metric for sets of labels: of sets, jaccard"):
        ooc_svm.tune(tmp_path / "a.zarr", folds=2, C=1.0, metric="accuracy")


def test_memory_counts_the_sets(data):
    from ooc_svm.options import TrainOptions
    from ooc_svm.training.prepare import open_prepared

    _, store, _ = data
    prepared = open_prepared(store, None, None, None, TrainOptions())
    sets = prepared.data.labels.sets
    assert sets.nbytes > sets.members.nbytes + 300 * len(sets.names)
    without = open_prepared(np.eye(3), [1, 2, 1], None, None, TrainOptions()).workload.program_bytes
    assert prepared.workload.program_bytes == without + sets.nbytes


@pytest.mark.parametrize(("class_weight", "given"), [(None, True), ("balanced", False)])
@pytest.mark.filterwarnings("ignore")
def test_a_rare_label_gives_a_hint(tmp_path, class_weight, given):
    (tmp_path / "a.svm").write_text("1 1:1\n2 2:1\n" * 20 + "cat 3:1\n" * 2)
    model = ooc_svm.train(tmp_path / "a.svm", labels="sets", class_weight=class_weight)
    hints = {hint["code"]: hint["message"] for hint in model.report["hints"]}
    assert ("imbalance" in hints) == given
    if given:
        assert "the label of fewest rows has 2 of 42" in hints["imbalance"]


@pytest.mark.parametrize("solver", ["streamed-smo", "ocas"])
def test_a_cluster_gives_the_same_bits(data, solver):
    _, store, _ = data
    options = {"C": 1.0, "solver": solver, "class_weight": "balanced", "validation": 0.2, "max_passes": 4}
    here = ooc_svm.train(store, **options)
    there = ooc_svm.train(store, **options, engine="dask", threads=2)
    assert there.weights.tobytes() == here.weights.tobytes()
    assert there.report["validation"] == here.report["validation"]
    assert there.report["quality"] == here.report["quality"]
