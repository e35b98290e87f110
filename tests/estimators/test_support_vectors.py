"""Support vectors and coefficients of kernels, as attributes of estimators and models."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from ooc_svm import OocLogisticRegression, OocNuSVC, OocNuSVR, OocRanker, OocSVC, OocSVR

RNG = np.random.default_rng(5)
X = RNG.standard_normal((200, 6)) * (RNG.random((200, 6)) < 0.7)
VALUES = X @ np.arange(6.0) + RNG.standard_normal(200)
SIGNS, GRADES = np.where(VALUES > 0.0, 1, -1), np.digitize(VALUES, [-3.0, 3.0])
NAMES = np.array(["eggs", "ham", "spam"])[GRADES]


@pytest.mark.parametrize("kind", [OocSVC, OocSVR, OocNuSVC, OocNuSVR])
def test_support_vectors_give_the_scores(kind):
    """Of a kernel they are public, as in scikit-learn; their order is that of the rows."""
    labels = VALUES if kind in (OocSVR, OocNuSVR) else -SIGNS
    given = {"positive": -1} if kind is OocSVC else {}  # the smaller one of two labels
    estimator = kind(kernel="rbf", gamma=0.1, **given).fit(X, labels)
    vectors, coefficients = estimator.support_vectors_, estimator.dual_coef_
    assert sparse.issparse(vectors)
    assert vectors.shape[1] == 6
    assert coefficients.shape == (1, vectors.shape[0])
    assert estimator.n_support_.tolist() == [vectors.shape[0]]
    assert {tuple(row) for row in vectors.toarray()} <= {tuple(row) for row in X}
    scores = estimator.predict(X) if kind in (OocSVR, OocNuSVR) else estimator.decision_function(X)
    kernel = rbf_kernel(X, vectors.toarray(), gamma=0.1)
    assert scores == pytest.approx(kernel @ coefficients[0] + estimator.intercept_, rel=1e-4, abs=1e-4)
    assert "    n_support_ : " in kind.__doc__


def test_support_vectors_of_several_classes_and_of_one_c():
    """Those that no function of the chosen C has are left out."""
    estimator = OocSVC(kernel="rbf", gamma=0.1, C=[10.0, 0.1]).fit(X, NAMES)
    vectors, coefficients = estimator.support_vectors_, estimator.dual_coef_
    assert coefficients.shape == (3, vectors.shape[0])
    assert (coefficients != 0).any(axis=0).all()
    assert estimator.n_support_.tolist() == np.count_nonzero(coefficients, axis=1).tolist()
    kernel = rbf_kernel(X, vectors.toarray(), gamma=0.1)
    expected = kernel @ coefficients.T + estimator.intercept_
    assert estimator.decision_function(X) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    ones = OocSVC(kernel="rbf", gamma=0.1).fit((X > 0).astype(float), SIGNS).support_vectors_
    assert set(ones.data) == {1.0}


@pytest.mark.parametrize("name", ["support_vectors_", "dual_coef_", "n_support_"])
def test_a_linear_model_has_no_support_vectors(name):
    for estimator, y in ((OocSVC(), SIGNS), (OocRanker(), GRADES)):
        assert not hasattr(estimator, name)
        assert not hasattr(estimator.fit(X, y), name)
        with pytest.raises(AttributeError, match="a linear model has no support vectors"):
            getattr(estimator.model_, name)
    for kind in (OocRanker, OocLogisticRegression):  # which have no other kernel
        assert "support_vectors_" not in kind.__doc__
