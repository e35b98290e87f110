"""Estimators on data that bring columns of their own, and labels that are joined or missing."""

from __future__ import annotations

import inspect
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.metrics import roc_auc_score

import ooc_svm
from ooc_svm import InputError, OocLogisticRegression, OocNuSVR, OocRanker, OocSVC, OocSVR, UsageError

RNG = np.random.default_rng(7)
X = RNG.standard_normal((200, 4)).astype(np.float32)
VALUES = X @ [1.0, 2.0, -1.0, 0.0]
SIDES = np.where(VALUES > 0.0, "stim", "ctrl")
THREE = np.digitize(VALUES, [-1.0, 1.0]) + 1
FEATURES = ["w", "x", "y", "z"]


def cells(label, **columns):
    index = [f"cell{i}" for i in range(len(X))]
    obs = pd.DataFrame({"label": label, **columns}, index=index)
    return anndata.AnnData(X.copy(), obs=obs, var=pd.DataFrame(index=FEATURES))


@pytest.mark.parametrize(("kind", "label"), [(OocSVC, SIDES), (OocSVR, VALUES), (OocNuSVR, VALUES)])
def test_weights_of_annotated_rows(kind, label):
    weighted = cells(label, weight=RNG.random(len(X)) + 0.1)
    own = kind().fit(weighted)
    trained = ooc_svm.train(weighted, problem=own.problem)
    np.testing.assert_array_equal(own.coef_.ravel(), trained.coef_.ravel())
    given = kind().fit(weighted, sample_weight=np.ones(len(X)))
    np.testing.assert_array_equal(given.coef_, kind().fit(cells(label)).coef_)
    assert not np.array_equal(own.coef_, given.coef_)


def test_queries_of_annotated_rows():
    grades = np.clip(np.round(VALUES + RNG.standard_normal(len(X))), 0, 3)
    ranked = cells(grades, qid=np.repeat(np.arange(20), 10))
    own, trained = OocRanker().fit(ranked), ooc_svm.train(ranked, problem="ranking")
    assert own.model_.problem == "ranking"
    np.testing.assert_array_equal(own.coef_, trained.coef_)
    assert own.score(ranked) == ooc_svm.evaluate(trained, ranked, "ndcg@10")["ndcg@10"]
    assert own.score(ranked) != own.score(ranked, qid=np.zeros(len(X), int))
    assert OocRanker().fit(cells(grades)).model_.problem == "ordinal"


def test_features_of_a_store_have_names(tmp_path):
    named = cells(SIDES)
    with warnings.catch_warnings(action="ignore"):
        named.write_zarr(tmp_path / "a.zarr")
    estimator = OocSVC().fit(tmp_path / "a.zarr")
    assert estimator.feature_names_in_.tolist() == FEATURES
    assert estimator.score(named) == estimator.model_.score(named)
    backwards = named[:, ::-1].copy()
    for other in (backwards, pd.DataFrame(X[:, ::-1], columns=FEATURES[::-1])):
        with pytest.raises(ValueError, match="feature names"):
            estimator.predict(other)
    ooc_svm.convert_matrix(X, VALUES > 0.0, tmp_path / "b.zarr")
    assert not hasattr(estimator.fit(tmp_path / "b.zarr"), "feature_names_in_")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [OocSVC, OocLogisticRegression])
@pytest.mark.parametrize("positive", [[2], [1, 2], [3, 1], ["2"]])
def test_the_score_of_labels_that_are_joined(kind, positive, weighted):
    estimator = kind(positive=positive).fit(X, THREE)
    weight = np.linspace(0.5, 2.0, len(X)) if weighted else np.ones(len(X))
    sides = np.isin(THREE, [int(label) for label in positive])
    right = (estimator.decision_function(X) > 0.0) == sides
    score = estimator.score(X, THREE, sample_weight=weight if weighted else None)
    assert score == pytest.approx(np.average(right, weights=weight), abs=1e-12)
    if not weighted:
        found = ooc_svm.evaluate(estimator.model_, X, "accuracy", labels=THREE)
        assert score == pytest.approx(found["accuracy"], abs=1e-12)


def test_the_score_of_names_that_are_joined():
    names = np.array(["low", "middle", "high"])[THREE - 1]
    estimator = OocSVC(positive=["high", "low"]).fit(X, names)
    right = (estimator.decision_function(X) > 0.0) == (names != "middle")
    assert estimator.score(X, names) == pytest.approx(right.mean(), abs=1e-12)
    # The smaller of two labels may be the positive one.
    smaller = OocSVC(positive=["ctrl"]).fit(X, SIDES)
    assert smaller.score(X, SIDES) == np.mean(smaller.predict(X) == SIDES) > 0.9


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.float32, np.uint64])
@pytest.mark.parametrize(
    ("positive", "classes"), [(1, [-1, 1]), ([1, 3], [2, 1]), ([2, 3], [1, 2]), ([1, 2], [3, 1])]
)
def test_classes_that_are_joined_have_the_type_of_the_labels(dtype, positive, classes):
    """First that of the others, then the positive one, so that positive scores stand for it."""
    y = THREE.astype(dtype)
    estimator = OocSVC(positive=positive).fit(X, y)
    unsigned = np.dtype(dtype).kind == "u" and min(classes) < 0
    assert estimator.classes_.tolist() == classes
    assert estimator.classes_.dtype == estimator.predict(X).dtype == (np.int64 if unsigned else dtype)
    sides = estimator.decision_function(X) > 0.0
    np.testing.assert_array_equal(estimator.predict(X), estimator.classes_[sides.astype(int)])
    probable = OocLogisticRegression(positive=positive).fit(X, y)
    assert probable.classes_.tolist() == classes
    np.testing.assert_array_equal(probable.predict_proba(X)[:, 1] > 0.5, probable.decision_function(X) > 0.0)


@pytest.mark.parametrize("dtype", ["<U1", object])
def test_names_that_are_joined_are_not_cut(dtype):
    names = np.array(["a", "b", "c"])[THREE - 1].astype(dtype)
    for positive, classes in (("b", ["-1", "b"]), (["a", "c"], ["b", "a"])):
        estimator = OocSVC(positive=positive).fit(X, names)
        assert estimator.classes_.tolist() == classes
        assert (estimator.classes_.dtype == object) == (dtype is object)
        assert set(estimator.predict(X)) <= set(classes)


def test_labels_of_true_and_false():
    truth = VALUES > 0.0
    weighted = OocSVC(class_weight={True: 2.0, False: 1.0}).fit(X, truth)
    by_number = OocSVC(class_weight={1: 2.0, 0: 1.0}).fit(X, truth.astype(int))
    np.testing.assert_array_equal(weighted.coef_, by_number.coef_)
    assert OocSVC(positive=[False]).fit(X, truth).score(X, truth) > 0.9


@pytest.mark.parametrize("positive", [(), [], None])
def test_sets_of_labels_with_none_named(positive):
    sets = np.stack([VALUES > 0.0, X[:, 0] > 0.0], axis=1).astype(int)
    if positive is None:
        with pytest.raises(UsageError):
            OocSVC(positive=["a"]).fit(X, sets)
        return
    assert OocSVC(positive=positive).fit(X, sets).score(X, sets) > 0.9


def test_rows_of_a_store_without_a_label(tmp_path):
    gaps = cells(pd.Categorical([None, *SIDES[1:]]))
    with warnings.catch_warnings(action="ignore"):
        gaps.write_zarr(tmp_path / "gaps.zarr")
    estimator = OocSVC(unlabelled="skip").fit(tmp_path / "gaps.zarr")
    assert estimator.score(tmp_path / "gaps.zarr") > 0.9
    with pytest.raises(InputError, match="leave them out"):
        OocSVC().fit(tmp_path / "gaps.zarr")


@pytest.mark.parametrize(
    "label", [["", *SIDES[1:]], pd.Categorical([None, *SIDES[1:]]), [np.nan, *THREE[1:]]]
)
def test_annotated_rows_without_a_label(label):
    weight = np.linspace(0.5, 2.0, len(X))
    gaps = cells(label, weight=weight)
    with pytest.raises(InputError, match="row 0, from 0, has no label"):
        OocSVC().fit(gaps)
    estimator = OocSVC(unlabelled="skip").fit(gaps)
    known = np.asarray(gaps.obs["label"])[1:]
    rest = OocSVC().fit(X[1:], known, sample_weight=weight[1:])
    np.testing.assert_array_equal(estimator.coef_, rest.coef_)
    given = OocSVC(unlabelled="skip").fit(gaps, sample_weight=weight)
    np.testing.assert_array_equal(given.coef_, rest.coef_)
    assert estimator.score(gaps) == rest.score(X[1:], known)
    assert estimator.score(gaps, sample_weight=weight) == rest.score(X[1:], known, sample_weight=weight[1:])
    with pytest.raises(InputError, match="row 0, from 0, has no label"):
        rest.set_params(unlabelled="error").score(gaps)


def test_columns_that_are_no_numbers():
    """Weights that are left out change the model."""
    heavy, asked = cells(SIDES, weight=["heavy"] * len(X)), "weight is a column of numbers"
    for refused in (
        lambda: OocSVC().fit(heavy),
        lambda: ooc_svm.train(heavy),
        lambda: OocSVR().fit(cells(VALUES, weight=["1"] * len(X))),
    ):
        with pytest.raises(InputError, match=asked):
            refused()
    estimator = OocSVC().fit(heavy, sample_weight=np.ones(len(X)))
    np.testing.assert_array_equal(estimator.coef_, OocSVC().fit(cells(SIDES)).coef_)
    assert estimator.predict(heavy).tolist() == estimator.predict(cells(SIDES)).tolist()
    assert estimator.score(heavy) == estimator.score(heavy, SIDES, sample_weight=np.ones(len(X))) > 0.9
    grades = cells(THREE, qid=np.repeat(np.arange(20.0), 10))
    for refused in (lambda: OocRanker().fit(grades), lambda: ooc_svm.train(grades, problem="ranking")):
        with pytest.raises(InputError, match="qid is a column of whole numbers"):
            refused()
    ooc_svm.train(grades)  # which has no use for them


def test_a_store_is_scored_with_its_own_columns(tmp_path):
    ooc_svm.convert_matrix(X, VALUES > 0.0, tmp_path / "s.zarr")
    for estimator in (OocSVC(), OocSVR()):
        estimator.fit(tmp_path / "s.zarr")
        with pytest.raises(UsageError, match="bring their own sample_weight"):
            estimator.score(tmp_path / "s.zarr", sample_weight=np.ones(len(X)))


def test_rankings_are_scored_without_weights():
    """All queries count the same in the metrics: there is no parameter that would be ignored."""
    assert "sample_weight" not in inspect.signature(OocRanker.score).parameters
    with config_context(enable_metadata_routing=True), pytest.raises(TypeError, match="sample_weight"):
        OocRanker().set_score_request(sample_weight=True)


@pytest.mark.parametrize("kind", [OocSVC, OocLogisticRegression])
def test_categories_of_a_store_are_sorted(kind, tmp_path):
    """The model has the order of the store, of numbers by size (9 before 10), the estimator sorts them."""
    names = np.array(["9", "10", "11"])[THREE - 1]
    data = cells(pd.Categorical(names, categories=["9", "10", "11"]))
    with warnings.catch_warnings(action="ignore"):
        data.write_zarr(tmp_path / "a.zarr")
    calibrated = {"calibrate": "sigmoid"} if kind is OocSVC else {}
    estimator = kind(C=0.1, **calibrated).fit(tmp_path / "a.zarr")
    model = estimator.model_
    assert (model.classes_.tolist(), estimator.classes_.tolist()) == (["9", "10", "11"], ["10", "11", "9"])
    order = [1, 2, 0]
    np.testing.assert_array_equal(estimator.coef_, model.coef_[order])
    np.testing.assert_array_equal(estimator.intercept_, model.intercept_[order])
    gaps = [each["gap"] for each in model.report["models"]]
    np.testing.assert_array_equal(estimator.dual_gap_, np.array(gaps)[order])
    scores = estimator.decision_function(data)
    np.testing.assert_array_equal(scores, model.decision_function(data)[:, order])
    np.testing.assert_array_equal(estimator.predict_proba(data), model.predict_proba(data)[:, order])
    np.testing.assert_array_equal(estimator.predict(data), model.predict(data))
    np.testing.assert_array_equal(estimator.predict(data), estimator.classes_[scores.argmax(axis=1)])
    assert roc_auc_score(names, estimator.predict_proba(data), multi_class="ovr") > 0.9
    assert estimator.score(data) == estimator.score(tmp_path / "a.zarr") == model.score(data)


def test_support_vectors_of_sorted_categories(tmp_path):
    data = cells(pd.Categorical(np.array(["c", "a", "b"])[THREE - 1], categories=["c", "a", "b"]))
    with warnings.catch_warnings(action="ignore"):
        data.write_zarr(tmp_path / "a.zarr")
    estimator = OocSVC(kernel="rbf").fit(tmp_path / "a.zarr")
    model, order = estimator.model_, [1, 2, 0]
    assert estimator.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(estimator.dual_coef_, model.dual_coef_[order])
    np.testing.assert_array_equal(estimator.n_support_, model.n_support_[order])
