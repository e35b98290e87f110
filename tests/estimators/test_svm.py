"""Estimators: the same as `ooc_svm.train`, with the habits of scikit-learn."""

from __future__ import annotations

import functools
import inspect
import io
import os
import pickle
import subprocess
import sys

import anndata
import joblib
import numpy as np
import pandas as pd
import pytest
from helpers.label_data import make_labels
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

import ooc_svm
from ooc_svm import (
    InputError,
    OocLogisticRegression,
    OocNuSVC,
    OocNuSVR,
    OocRanker,
    OocSVC,
    OocSVR,
    UsageError,
    convert,
)
from ooc_svm.options import OPTIONS

RNG = np.random.default_rng(5)
X = RNG.standard_normal((200, 6)) * (RNG.random((200, 6)) < 0.7)
VALUES = X @ np.arange(6.0) + RNG.standard_normal(200)
SIGNS = np.where(VALUES > 0.0, 1, -1)
NAMES = np.array(["eggs", "ham", "spam"])[np.digitize(VALUES, [-3.0, 3.0])]
GRADES, QID = np.digitize(VALUES, [-3.0, 3.0]), np.repeat(np.arange(20), 10)

# Options of training that an estimator does not have, as another problem has them.
OF_KERNELS = {"gamma", "degree", "coef0", "sparse_cuts", "landmarks", "polish"}
LEFT_OUT = {
    OocSVC: {"problem", "epsilon", "nu"},
    OocSVR: {"problem", "p", "class_weight", "positive", "nu", "calibrate"},
    OocNuSVC: {"problem", "p", "epsilon", "C", "landmarks", "polish"},
    OocNuSVR: {
        *("problem", "p", "class_weight", "positive", "epsilon", "calibrate"),
        *("landmarks", "polish"),
    },
    OocRanker: {
        *("problem", "p", "epsilon", "nu", "class_weight", "positive", "calibrate"),
        *("resident", "lanes", "warm_start"),
        *OF_KERNELS,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the stores ``signs.zarr`` and ``grades.zarr``, and the text ``signs.svm``."""
    folder = tmp_path_factory.mktemp("stores")
    ooc_svm.convert_matrix(X, SIGNS, folder / "signs.zarr", dtype="float64")
    ooc_svm.convert_matrix(X, GRADES, folder / "grades.zarr", qid=QID, dtype="float64")
    rows = [" ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row.tolist()) if value) for row in X]
    lines = [f"{sign} {row}\n" for sign, row in zip(SIGNS, rows, strict=True)]
    (folder / "signs.svm").write_text("".join(lines))
    return folder


def same_functions(estimator, model):
    assert np.array_equal(estimator.model_.weights, model.weights)
    assert np.array_equal(estimator.model_.bias, model.bias)


@pytest.mark.parametrize("cls", LEFT_OUT)
def test_the_parameters_are_the_options(cls):
    parameters = inspect.signature(cls).parameters
    assert list(parameters) == [name for name in OPTIONS if name not in LEFT_OUT[cls]]
    for name, parameter in parameters.items():
        default = OPTIONS[name].default
        assert parameter.default in (default, *(default if name == "C" else ()))
        assert f"\n    {name} : " in cls.__doc__
    assert cls().get_params() == {name: each.default for name, each in parameters.items()}
    with pytest.raises(TypeError, match="'c'"):
        cls(c=1.0)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix, pd.DataFrame, np.float32])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_a_classifier_is_what_train_returns(kind, bias):
    estimator = OocSVC(C=0.5, bias=bias).fit(kind(X), SIGNS)
    model = ooc_svm.train(kind(X), SIGNS, C=0.5, bias=bias)
    same_functions(estimator, model)
    assert np.array_equal(estimator.predict(kind(X)), ooc_svm.predict(model, kind(X)))
    assert estimator.decision_function(kind(X)).shape == (200,)
    assert estimator.coef_.shape == (1, 6)
    assert estimator.intercept_.tolist() == model.bias.tolist()
    assert estimator.classes_.tolist() == [-1, 1]
    assert estimator.predict(kind(X)).dtype == SIGNS.dtype
    assert estimator.n_features_in_ == 6
    assert estimator.n_iter_ == model.report["passes"]
    assert estimator.dual_gap_ == model.report["models"][0]["gap"] > 0.0
    assert estimator.report_["models"] == model.report["models"]
    assert estimator.score(kind(X), SIGNS) == (ooc_svm.predict(model, kind(X)) == SIGNS).mean()


@pytest.mark.parametrize("labels", [NAMES, list(NAMES), NAMES.astype(object), pd.Series(NAMES)])
def test_labels_may_be_text(labels):
    estimator = OocSVC(class_weight={"spam": 2.0}, bias="penalized").fit(X, labels)
    model = ooc_svm.train(X, NAMES, class_weight={"spam": 2.0}, bias="penalized")
    same_functions(estimator, model)
    assert estimator.classes_.tolist() == ["eggs", "ham", "spam"] == model.classes_.tolist()
    assert estimator.decision_function(X).shape == (200, 3)
    assert estimator.coef_.shape == (3, 6)
    assert estimator.dual_gap_.shape == estimator.intercept_.shape == (3,)
    assert estimator.predict(X).tolist() == ooc_svm.predict(model, X).tolist()
    assert estimator.score(X, labels) == ooc_svm.evaluate(model, X, "accuracy", labels=labels)["accuracy"]


@pytest.mark.parametrize("kind", [OocSVC, OocNuSVC, OocLogisticRegression])
@pytest.mark.parametrize("labels", [SIGNS, NAMES])
def test_probabilities_are_fitted_on_request(kind, labels):
    estimator = kind(calibrate="sigmoid").fit(X, labels)
    problem = {"problem": kind.problem} | ({} if kind.only_loss is None else {"loss": kind.only_loss})
    model = ooc_svm.train(X, labels, calibrate="sigmoid", **problem)
    assert estimator.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(estimator.predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(np.exp(estimator.predict_log_proba(X)), estimator.predict_proba(X))
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(again.predict_proba(X), estimator.predict_proba(X))


def test_only_calibrated_and_logistic_estimators_have_probabilities():
    assert not hasattr(OocSVC(), "predict_proba")
    assert hasattr(OocSVC(calibrate="isotonic"), "predict_proba")
    assert hasattr(OocSVC(loss="logistic"), "predict_proba")
    assert not hasattr(OocNuSVC(), "predict_log_proba")
    with pytest.raises(UsageError, match="calibrate must be 'sigmoid' or 'isotonic', not 'beta'"):
        OocSVC(calibrate="beta").fit(X, SIGNS)
    found = cross_val_score(OocSVC(calibrate="sigmoid"), X, SIGNS, scoring="neg_log_loss")
    assert (found > np.log(0.5)).all()


@pytest.mark.parametrize("labels", [SIGNS > 0, SIGNS.astype(np.int8), SIGNS * 1.0, np.abs(SIGNS - 1) + 7])
def test_predictions_have_the_type_of_the_labels(labels):
    estimator = OocSVC().fit(X, labels)
    assert estimator.classes_.dtype == estimator.predict(X).dtype == labels.dtype
    assert estimator.classes_.tolist() == np.unique(labels).tolist()
    assert estimator.score(X, labels) > 0.8


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("labels", [SIGNS, np.where(SIGNS > 0, "ham", "eggs")])
def test_two_labels_are_sorted_whichever_is_positive(labels, in_memory, tmp_path):
    """Scores of scikit-learn are of the larger label."""
    smaller, larger = np.unique(labels).tolist()
    given = X, labels
    if not in_memory:
        ooc_svm.convert_matrix(X, labels, tmp_path / "s.zarr")
        given = (tmp_path / "s.zarr",)
    usual = OocLogisticRegression().fit(*given)
    estimator = OocLogisticRegression(positive=smaller).fit(*given)
    assert estimator.model_.classes_.tolist() == [larger, smaller]
    assert estimator.classes_.tolist() == usual.classes_.tolist() == [smaller, larger]
    assert estimator.predict(X).tolist() == usual.predict(X).tolist()
    scores = estimator.decision_function(X)
    np.testing.assert_array_equal(scores, -estimator.model_.decision_function(X).ravel())
    np.testing.assert_allclose(X @ estimator.coef_[0] + estimator.intercept_[0], scores, atol=1e-9)
    shares = estimator.predict_proba(X)
    assert estimator.classes_[shares.argmax(axis=1)].tolist() == estimator.predict(X).tolist()
    np.testing.assert_allclose(np.exp(estimator.predict_log_proba(X)), shares, rtol=1e-12)
    assert roc_auc_score(labels == larger, scores) > 0.9
    assert estimator.score(X, labels) == np.mean(estimator.predict(X) == labels)


def test_labels_that_are_joined_are_positive():
    joined = OocSVC(positive=["eggs", "ham"], bias="free").fit(X, NAMES)
    assert ((joined.decision_function(X) > 0) == (NAMES != "spam")).mean() > 0.8


@pytest.mark.parametrize("bias", ["none", "free"])
def test_a_regressor_is_what_train_returns(bias):
    weights = RNG.random(200)
    estimator = OocSVR(C=0.2, epsilon=0.5, bias=bias).fit(X, VALUES, sample_weight=weights)
    model = ooc_svm.train(X, VALUES, problem="svr", C=0.2, epsilon=0.5, bias=bias, sample_weight=weights)
    same_functions(estimator, model)
    assert np.array_equal(estimator.predict(X), ooc_svm.predict(model, X))
    assert estimator.coef_.shape == (6,)
    assert estimator.intercept_.shape == (1,)
    assert estimator.score(X, VALUES) == pytest.approx(model.score(X, VALUES), rel=1e-12)


def test_a_ranker_is_what_train_returns():
    estimator = OocRanker(C=10.0).fit(X, GRADES, qid=QID)
    model = ooc_svm.train(X, GRADES, qid=QID, problem="ranking", C=10.0)
    same_functions(estimator, model)
    assert np.array_equal(estimator.predict(X), estimator.decision_function(X))
    assert estimator.score(X, GRADES, QID) == model.score(X, GRADES, qid=QID) > 0.9
    same_functions(OocRanker().fit(X, GRADES), ooc_svm.train(X, GRADES, problem="ordinal"))


def test_several_values_of_c_predict_as_the_last():
    estimator = OocSVC(C=[0.01, 1.0]).fit(X, SIGNS)
    assert np.array_equal(estimator.coef_[0], estimator.model_.weights[1])


# What the optimum is strictly convex in is known up to the root of twice the gap.
@pytest.mark.parametrize("bias", ["none", "penalized"])
def test_a_classifier_agrees_with_that_of_scikit_learn(bias):
    ours = OocSVC(C=0.3, tol=1e-6, bias=bias).fit(X, NAMES)
    with_bias = bias == "penalized"
    other = LinearSVC(C=0.3, loss="hinge", fit_intercept=with_bias, tol=1e-8, max_iter=10**6).fit(X, NAMES)
    for k in range(3):
        reach = np.sqrt(2.0 * ours.dual_gap_[k]) + 1e-4
        assert np.linalg.norm(ours.coef_[k] - other.coef_[k]) <= reach
    assert (ours.predict(X) == other.predict(X)).mean() > 0.98


def test_a_regressor_agrees_with_that_of_scikit_learn():
    ours = OocSVR(C=0.3, epsilon=0.2, bias="none", tol=1e-6).fit(X, VALUES)
    other = LinearSVR(C=0.3, epsilon=0.2, fit_intercept=False, tol=1e-9, max_iter=10**6).fit(X, VALUES)
    assert np.linalg.norm(ours.coef_ - other.coef_) <= np.sqrt(2.0 * ours.dual_gap_) + 1e-4


@pytest.mark.parametrize("opened", [str, lambda path: path, ooc_svm.open_store])
def test_stores_are_streamed(folder, opened):
    data = opened(folder / "signs.zarr")
    estimator, in_memory = OocSVC().fit(data), OocSVC().fit(X, SIGNS)
    same_functions(estimator, ooc_svm.train(folder / "signs.zarr"))
    assert estimator.n_features_in_ == 6
    assert estimator.classes_.tolist() == [-1.0, 1.0]
    assert estimator.score(data) == estimator.score(X, SIGNS)
    assert np.array_equal(in_memory.decision_function(data), in_memory.decision_function(X))
    assert np.array_equal(in_memory.predict(folder / "signs.svm"), in_memory.predict(X))
    with pytest.raises(UsageError, match="leave y out"):
        OocSVC().fit(data, SIGNS)
    with pytest.raises(UsageError, match="leave sample_weight out"):
        OocSVR().fit(data, sample_weight=np.ones(200))


def test_fits_to_text(tmp_path):
    text = tmp_path / "signs.svm"
    text.write_text("".join(f"{sign} {k + 1}:1 9:0.5\n" for k, sign in enumerate([-1, 1, 1, -1])))
    estimator = OocSVC().fit(text)
    same_functions(estimator, ooc_svm.train(text))
    assert estimator.classes_.tolist() == [-1.0, 1.0]
    assert estimator.predict(text).tolist() == [-1.0, 1.0, 1.0, -1.0]
    assert estimator.score(text) == 1.0


def test_a_ranker_streams_its_store(folder):
    estimator = OocRanker().fit(folder / "grades.zarr")
    assert estimator.score(folder / "grades.zarr") == estimator.score(X, GRADES, QID)


def test_anndata_in_memory_has_names_and_labels():
    frame = pd.DataFrame({"label": NAMES, "sign": SIGNS}, index=[f"cell{i}" for i in range(200)])
    genes = pd.DataFrame(index=[f"gene{j}" for j in range(6)])
    cells = anndata.AnnData(sparse.csr_matrix(X), obs=frame, var=genes)
    estimator = OocSVC().fit(cells)
    same_functions(estimator, ooc_svm.train(X, NAMES))
    assert estimator.feature_names_in_.tolist() == list(cells.var_names)
    assert estimator.score(cells) == (estimator.predict(cells) == NAMES).mean()
    assert OocSVC(label="sign").fit(cells).classes_.tolist() == [-1, 1]
    for others in (cells[:, ::-1], cells[:, :5]):
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.predict(others)
    with pytest.raises(UsageError, match="no column 'cell_type' of labels"):
        OocSVC(label="cell_type").fit(cells)


def test_names_of_a_frame_are_compared():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    estimator = OocSVR().fit(frame, VALUES)
    assert estimator.feature_names_in_.tolist() == list("abcdef")
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(frame[list("fedcba")])


def test_an_unknown_parameter_is_told_with_the_estimator():
    with pytest.raises(TypeError, match=r"OocSVC\(\) got an unexpected keyword argument 'fit_intercept'"):
        OocSVC(fit_intercept=True)


def test_the_model_has_the_names_of_a_frame():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    estimator = OocSVC().fit(frame, SIGNS)
    same_functions(estimator, ooc_svm.train(X, SIGNS))
    assert list(estimator.model_.feature_names) == list("abcdef")
    expected = 2.0 * estimator.coef_[0, 1] + estimator.intercept_[0]
    assert estimator.model_.score_one({"b": 2.0}) == pytest.approx(expected)
    assert estimator.fit(X, SIGNS).model_.feature_names is None


@pytest.mark.parametrize(
    ("estimator", "y", "error", "message"),
    [
        (OocSVC(loss="lasso"), SIGNS, UsageError, "loss must be one of"),
        (OocSVC(C=-1.0), SIGNS, UsageError, "C must be positive"),
        (OocSVC(label="cell_type"), SIGNS, UsageError, "a matrix has none"),
        (OocSVC(), np.ones(200), InputError, "one class"),
        (OocSVR(engine="dask"), VALUES, UsageError, "reads a store"),
        (OocRanker(bias="free"), GRADES, UsageError, "has no bias"),
    ],
)
def test_options_are_checked_when_they_are_used(estimator, y, error, message):
    with pytest.raises(error, match=message):
        estimator.fit(X, y)
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_an_end_before_the_gap_is_told():
    with pytest.warns(ConvergenceWarning, match="tol=1e-12 was asked for"):
        OocSVC(tol=1e-12, max_passes=1).fit(X, SIGNS)


@pytest.mark.parametrize(
    ("estimator", "y"), [(OocSVC(C=2.0), NAMES), (OocSVR(), VALUES), (OocRanker(), GRADES)]
)
def test_estimators_are_copied_and_kept(estimator, y, tmp_path):
    fitted = clone(estimator).fit(X, y)
    assert clone(fitted).get_params() == estimator.get_params()
    joblib.dump(fitted, tmp_path / "fitted")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "fitted")):
        assert np.array_equal(copy.predict(X), fitted.predict(X))
        assert copy.report_ == fitted.report_
    made = functools.partial(type(estimator), C=3.0)()
    assert made.set_params(tol=0.01).get_params() == type(estimator)(C=3.0, tol=0.01).get_params()


def test_a_search_runs_in_two_processes():
    pipeline = make_pipeline(StandardScaler(), OocSVC())
    search = GridSearchCV(pipeline, {"oocsvc__C": [1e-6, 0.1]}, n_jobs=2, cv=3, error_score="raise")
    search.fit(X, NAMES)
    alone = GridSearchCV(pipeline, {"oocsvc__C": [1e-6, 0.1]}, cv=3).fit(X, NAMES)
    assert search.best_params_ == {"oocsvc__C": 0.1}
    assert search.cv_results_["mean_test_score"].tolist() == alone.cv_results_["mean_test_score"].tolist()
    assert search.predict(X[:2]).tolist() == alone.predict(X[:2]).tolist()


def test_parameters_of_fit_are_routed():
    from sklearn import config_context

    with config_context(enable_metadata_routing=True):
        ranker = OocRanker().set_fit_request(qid=True).set_score_request(qid=True)
        scores = cross_val_score(ranker, X, GRADES, cv=GroupKFold(4), params={"qid": QID, "groups": QID})
    assert (scores > 0.8).all()


ABSENT = """
import sys
sys.modules["sklearn"] = None
import ooc_svm
from ooc_svm import *
try:
    ooc_svm.OocSVC
except ImportError as error:
    print(error)
"""


def test_without_scikit_learn_one_sentence_says_so():
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, check=True)
    assert done.stdout == "ooc_svm.OocSVC needs scikit-learn; install it: pip install 'ooc-svm[sklearn]'\n"


def test_scikit_learn_is_imported_for_estimators_alone():
    code = (
        "import sys, numpy, ooc_svm; model = ooc_svm.train(numpy.eye(4), [1, 2, 1, 2]); model.predict("
        "numpy.eye(4)); print('sklearn' in sys.modules); ooc_svm.OocSVC; print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_documentation_of_an_estimator_is_shown():
    stream = io.StringIO()
    print(inspect.getdoc(OocSVC), file=stream)
    assert "OPTIONS" not in stream.getvalue()
    assert "class_weight : " in stream.getvalue()
    assert os.linesep in stream.getvalue()


class TestIndicator:
    """Sets of labels, as an indicator matrix."""

    data = make_labels()

    def test_the_same_as_one_against_the_rest_of_scikit_learn(self):
        X, Y = self.data.X, self.data.Y.astype(int)
        ours = OocSVC(tol=1e-6, bias="penalized").fit(X, Y)
        machine = LinearSVC(loss="hinge", tol=1e-8, max_iter=10**6, random_state=0)
        theirs = OneVsRestClassifier(machine).fit(X, Y)
        scores = ours.decision_function(X)
        np.testing.assert_allclose(scores, theirs.decision_function(X), atol=5e-3)
        found = ours.predict(X)
        np.testing.assert_array_equal(found, scores > 0)
        assert found.dtype == Y.dtype
        assert ours.score(X, Y) == accuracy_score(Y, found)
        assert ours.multilabel_
        np.testing.assert_array_equal(ours.classes_, np.arange(5))
        assert ours.coef_.shape == (5, 12)

    def test_sparse_and_of_labels_that_no_row_has_or_all_have(self):
        X, Y = self.data.X, self.data.Y.astype(int)
        Y = np.column_stack([Y[:, 0], np.zeros(len(Y), int), Y[:, 1:], np.ones(len(Y), int)])
        model = OocLogisticRegression(tol=1e-6).fit(X, sparse.csr_matrix(Y))
        alone = OocLogisticRegression(tol=1e-6).fit(X, self.data.Y)
        np.testing.assert_allclose(
            model.decision_function(X)[:, [0, 2, 3, 4, 5]], alone.decision_function(X), atol=1e-2
        )
        found = model.predict(X)
        assert found.shape == Y.shape
        assert not found[:, 1].any()
        assert found[:, 6].all()
        shares = model.predict_proba(X)
        np.testing.assert_array_equal(shares[:, [1, 6]], [[0.0, 1.0]] * len(X))
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), shares)
        assert [row["label"] for row in model.report_["models"]] == ["0", "2", "3", "4", "5"]

    def test_one_label_a_row_after_sets(self):
        X, Y = self.data.X, self.data.Y
        model = OocSVC().fit(X, Y).fit(X, Y[:, 0])
        assert not model.multilabel_
        assert model.predict(X).shape == (len(X),)

    def test_a_store_of_sets(self, tmp_path):
        self.data.write(tmp_path / "a.svm")
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="sets")
        model = OocSVC().fit(str(tmp_path / "a.zarr"))
        found = model.predict(self.data.X)
        assert found.shape == self.data.Y.shape
        assert model.score(str(tmp_path / "a.zarr")) == accuracy_score(self.data.Y, found)
        assert model.classes_.tolist() == ["1", "2", "10", "cat", "dog"]

    def test_errors(self):
        X, Y = self.data.X, self.data.Y
        with pytest.raises(UsageError, match="y has a column for each label to train; leave positive out"):
            OocSVC(positive=[1]).fit(X, Y)
        with pytest.raises(InputError, match="of each label y has either no row or all rows"):
            OocSVC().fit(X, np.tile([0, 1], (len(X), 1)))
        with pytest.raises(ValueError, match="inconsistent"):
            OocSVC().fit(X, Y[1:])

    def test_cross_validation(self):
        scores = cross_val_score(OocSVC(C=0.5), self.data.X, self.data.Y, cv=3)
        assert (scores > 0.2).all()


def test_kernels_by_nu():
    """The cutting planes of kernels are the one solver of the nu problems with a kernel."""
    classifier = OocNuSVC(nu=0.4, kernel="rbf", gamma=0.2).fit(X, SIGNS)
    assert classifier.model_.solver == "kernel-cutting-plane"
    assert classifier.score(X, SIGNS) > 0.85
    regressor = OocNuSVR(nu=0.5, C=10.0, kernel="rbf", gamma=0.05).fit(X, VALUES)
    assert regressor.score(X, VALUES) > 0.8
    for solver in ("smo", "block-smo"):
        assert OocSVC(kernel="rbf", bias="free", solver=solver).fit(X, SIGNS).score(X, SIGNS) > 0.9
