"""The methods of a model are those of scikit-learn's estimators."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_svm

RNG = np.random.default_rng(3)
X = RNG.standard_normal((120, 5))
VALUES = X @ np.arange(5.0)
GRADES, QID = np.digitize(VALUES, [-3.0, 3.0]), np.repeat(np.arange(12), 10)


def test_a_binary_classifier():
    labels = np.where(VALUES > 0, 7, 2)
    model = ooc_svm.train(X, labels, bias="free")
    assert model.classes_.tolist() == [2.0, 7.0]
    assert model.coef_.tolist() == model.weights.tolist()
    assert model.intercept_.tolist() == model.bias.tolist()
    scores = model.decision_function(X, threads=1)
    assert scores == pytest.approx(X @ model.coef_[0] + model.intercept_[0], rel=1e-12)
    assert np.array_equal(model.predict(X), np.where(scores > 0, 7.0, 2.0))
    assert model.score(X, labels) == (model.predict(X) == labels).mean()


def test_several_classes_and_values_of_c():
    names = np.array(["low", "middle", "high"])[GRADES]
    model = ooc_svm.train(X, names, bias="none", C=[0.1, 1.0])
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert model.coef_.tolist() == model.weights[3:].tolist()
    scores = model.decision_function(X)
    assert scores == pytest.approx(X @ model.coef_.T, rel=1e-12, abs=1e-12)
    assert np.array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])
    assert model.score(X, names) == ooc_svm.evaluate(model, X, labels=names)["accuracy"]
    assert model.decision_function(X, C=0.1) == pytest.approx(X @ model.weights[:3].T, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("problem", "labels", "metric"),
    [
        ("svr", VALUES, "r2"),
        ("ordinal", GRADES, "kendall-tau"),
        ("roc-area", GRADES > 0, "auc"),
        ("ranking", GRADES, "ndcg@10"),
    ],
)
def test_other_models(problem, labels, metric):
    qid = {"qid": QID} if problem == "ranking" else {}
    model = ooc_svm.train(X, labels, problem=problem, **qid)
    assert model.coef_.shape == (5,)
    assert model.intercept_.shape == (1,)
    assert np.array_equal(model.predict(X), model.decision_function(X))
    assert model.predict(X) == pytest.approx(X @ model.coef_ + model.intercept_, rel=1e-10)
    assert model.score(X, labels, **qid) == ooc_svm.evaluate(model, X, metric, labels=labels, **qid)[metric]
    assert not hasattr(model, "classes_")


def test_data_without_rows():
    model = ooc_svm.train(X, GRADES)
    assert model.decision_function(np.empty((0, 5))).shape == (0, 3)
