"""What estimators say of calls that cannot be answered."""

from __future__ import annotations

import re
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

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
)

X = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize("name", ["coef_", "intercept_", "report_", "n_iter_", "dual_gap_"])
@pytest.mark.parametrize("estimator", [OocSVC(), OocSVR(), OocRanker(), OocNuSVC()])
def test_an_attribute_before_fit(estimator, name):
    with pytest.raises(NotFittedError, match=f"This {type(estimator).__name__} instance is not fitted yet"):
        getattr(estimator, name)
    assert not hasattr(estimator, name)


@pytest.mark.parametrize(("label", "shown"), [(1.0, "1.0"), (3, "3"), ("a", "'a'"), (True, "True")])
def test_one_class_is_shown_as_it_is(label, shown):
    with pytest.raises(InputError, match=f"y has one class: {shown}$"):
        OocSVC().fit(X, np.full(6, label))


def test_labels_of_sets_are_told_by_0_and_1():
    Y = np.where(np.arange(18).reshape(6, 3) % 4 < 2, -1, 1)
    message = (
        "y is a matrix, which says by 0 and 1 what labels a row has, and has -1 in row 0, column 0, from 0; "
        "give one label a row, or 0 and 1 alone"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        OocSVC().fit(X, Y)


def test_labels_that_all_rows_have_are_still_told():
    with pytest.raises(InputError, match="of each label y has either no row or all rows"):
        OocSVC().fit(X, np.column_stack([np.ones(6, int), np.zeros(6, int)]))


ROWS = np.random.default_rng(3).standard_normal((60, 4))
GRADES = np.digitize(ROWS[:, 0] + 0.1 * ROWS[:, 1], [-0.5, 0.5])
FRAME, OTHER = pd.DataFrame(ROWS, columns=list("abcd")), pd.DataFrame(-ROWS, columns=list("wxyz"))
CELLS = anndata.AnnData(
    OTHER.to_numpy(),
    obs=pd.DataFrame({"label": GRADES}, index=[f"cell{i}" for i in range(60)]),
    var=pd.DataFrame(index=list("wxyz")),
)


def _state(estimator):
    """All that is known after `fit`, arrays as lists."""
    fitted = {name: value for name, value in vars(estimator).items() if name not in estimator.get_params()}
    return {name: getattr(value, "tolist", lambda value=value: value)() for name, value in fitted.items()}


@pytest.mark.parametrize("kind", [OocSVC, OocLogisticRegression, OocNuSVC, OocSVR, OocNuSVR, OocRanker])
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(kind, tmp_path, monkeypatch):
    """Otherwise the columns of the new data would come with the weights of the old."""
    labels = (GRADES > 0).astype(int) if kind is OocNuSVC else GRADES
    estimator = kind().fit(FRAME, labels)
    before, predicted = _state(estimator), estimator.predict(FRAME)
    assert before["feature_names_in_"] == list("abcd")
    ooc_svm.convert_matrix(OTHER, None, tmp_path / "one.zarr")
    sets = np.column_stack([labels > 0, ROWS[:, 2] > 0]).astype(int)

    def refused(error, X, y, sample_weight=None, **parameters):
        usual = estimator.get_params()
        with pytest.raises(error):
            estimator.set_params(**parameters).fit(X, y, sample_weight=sample_weight)
        estimator.set_params(**usual)
        assert _state(estimator) == before
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.predict(OTHER)
        np.testing.assert_array_equal(estimator.predict(FRAME), predicted)

    refused(UsageError, OTHER, labels, tol=-1.0)
    refused(UsageError, OTHER, labels, label="cell_type")
    refused(UsageError, CELLS, None, tol=-1.0)
    refused(UsageError, OTHER, sets, tol=-1.0)
    refused(ValueError, OTHER, labels, np.where(np.arange(60) == 3, -1.0, 1.0))
    refused(ValueError, OTHER, np.where(labels > 0, np.nan, 1.0))
    refused(UsageError, tmp_path / "one.zarr", labels)
    with warnings.catch_warnings(action="error", category=ConvergenceWarning):
        refused(ConvergenceWarning, OTHER, labels, tol=1e-14, max_passes=1)
        refused(ConvergenceWarning, CELLS, labels, tol=1e-14, max_passes=1)


def test_a_fit_to_a_store_that_fails_leaves_the_estimator_as_it_was(tmp_path):
    ooc_svm.convert_matrix(OTHER, GRADES, tmp_path / "a.zarr")
    estimator = OocSVC().fit(FRAME, GRADES)
    before = _state(estimator)
    with (
        warnings.catch_warnings(action="error", category=ConvergenceWarning),
        pytest.raises(ConvergenceWarning),
    ):
        estimator.set_params(tol=1e-14, max_passes=1).fit(tmp_path / "a.zarr")
    assert _state(estimator) == before


def test_options_are_checked_before_the_rows():
    class Rows:
        shape = X.shape

        def __array__(self, *args, **kwargs):
            raise AssertionError("the rows were read")

    for estimator in (OocSVC(C=-1.0), OocSVR(C=-1.0), OocRanker(C=-1.0)):
        with pytest.raises(UsageError, match="C must be positive"):
            estimator.fit(Rows(), [1, 0, 1, 0, 1, 0])


def test_a_warning_names_the_line_that_fits():
    with pytest.warns(ConvergenceWarning) as found:
        OocSVC(tol=1e-14, max_passes=1).fit(ROWS, GRADES)
    assert [each.filename for each in found if each.category is ConvergenceWarning] == [__file__]


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("cat 1:1\ndog 2:1\n", "labels='text'"),
        ("1,2 1:1\n2 2:1\n", "labels='sets'"),
        ("1 0:1\n-1 2:1\n", "index_base=0"),
        ("1 1:1e300\n-1 2:1\n", "dtype='float64'"),
    ],
)
def test_text_that_is_read_in_another_way_is_to_be_converted(text, option, tmp_path):
    path = tmp_path / "a.svm"
    path.write_text(text)
    message = (
        f"; an estimator has no such parameter: convert the text first, with ooc_svm.convert(..., {option}), "
        "and give the store"
    )
    fitted = OocSVC().fit(X[:, :1], [0, 0, 0, 1, 1, 1])
    refused = [lambda: OocSVC().fit(path), lambda: OocSVC().fit([path])]
    if option == "index_base=0":
        refused += [lambda: fitted.predict(path), lambda: fitted.score(path)]
    for call in refused:
        with pytest.raises(InputError, match=f"{re.escape(message)}$"):
            call()
    with pytest.raises(InputError, match=re.escape(option)) as error:
        ooc_svm.train(path)  # which has these parameters
    assert "estimator" not in str(error.value)


@pytest.mark.parametrize("kind", [OocSVC, OocSVR, OocRanker])
def test_a_score_needs_labels(kind):
    estimator = kind().fit(X, [0, 0, 0, 1, 1, 1])
    message = "score needs y with a matrix; a store, text and AnnData bring their own labels"
    with pytest.raises(UsageError, match=f"^{message}$"):
        estimator.score(X)
