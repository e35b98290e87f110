"""What estimators say of calls that cannot be answered."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from ooc_svm import InputError, OocNuSVC, OocRanker, OocSVC, OocSVR

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
