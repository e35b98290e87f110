"""Models as LIBSVM's own predictor reads them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import ooc_svm
from ooc_svm import UsageError, export_model


def data(regression=False):
    random = np.random.default_rng(3)
    rows = sp.random(120, 15, 0.4, format="csr", random_state=3)
    values = rows @ random.normal(size=15) + 0.1 * random.normal(size=120)
    return rows, values if regression else np.where(values > np.median(values), 7.0, -3.0)


def predicted(path, rows):
    """Labels and decision values of LIBSVM."""
    libsvm = pytest.importorskip("libsvm.svmutil")
    model = libsvm.svm_load_model(str(path))
    features = [{j + 1: float(x) for j, x in enumerate(row) if x} for row in rows.toarray()]
    labels, _, values = libsvm.svm_predict([0.0] * len(features), features, model, "-q")
    return np.array(labels), np.array(values).ravel()


CASES = [
    {"kernel": "rbf", "gamma": 0.4, "bias": "free"},
    {"kernel": "poly", "gamma": 0.4, "coef0": 1.0, "degree": 2},
    {"kernel": "sigmoid", "gamma": 0.05, "C": 0.1},
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": 0.4, "problem": "nu-svc", "nu": 0.3},
    {"kernel": "rbf", "gamma": 0.4, "problem": "svr", "epsilon": 0.05},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_libsvm_predicts_the_same(tmp_path, options):
    rows, target = data(options.get("problem") == "svr")
    model = ooc_svm.train(rows, target, **options)
    export_model(model, tmp_path / "m", "libsvm")
    labels, values = predicted(tmp_path / "m", rows)
    np.testing.assert_allclose(values, model.decision_function(rows), rtol=1e-5, atol=1e-5)
    if model.is_classifier:
        assert np.array_equal(labels, model.predict(rows))


def test_what_the_format_cannot_express(tmp_path):
    rows, target = data()
    kernel = {"kernel": "rbf", "gamma": 0.4}
    several = ooc_svm.train(rows, np.arange(120) % 3, **kernel)
    with pytest.raises(UsageError, match="and this model has 3, each of one class against the rest; train"):
        export_model(several, tmp_path / "m", "libsvm")
    scaled = ooc_svm.train(rows, target, scale="maxabs", **kernel)
    with pytest.raises(UsageError, match="no scale of the columns"):
        export_model(scaled, tmp_path / "m", "libsvm")
    with pytest.raises(UsageError, match=r"has the kernel rbf.* export to libsvm"):
        export_model(ooc_svm.train(rows, target, **kernel), tmp_path / "m", "liblinear")
    assert not (tmp_path / "m").exists()
