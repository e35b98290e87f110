"""Data frames: their columns have names, by which they are found in other data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ooc_svm
from ooc_svm.errors import InputError, UsageError

RNG = np.random.default_rng(2)
X = RNG.standard_normal((150, 4))
LABELS = np.where(X @ [3.0, -1.0, 0.5, 0.0] > 0.0, 1, -1)
NAMES = ["a", "b", "c", "d"]
FRAME = pd.DataFrame(X, columns=NAMES)


def accuracy(model, data, **options):
    return ooc_svm.evaluate(model, data, "accuracy", labels=LABELS, **options)["accuracy"]


@pytest.mark.parametrize("saved", [False, True])
def test_columns_in_another_order_are_found_by_their_names(saved, tmp_path):
    model = ooc_svm.train(FRAME, LABELS)
    np.testing.assert_array_equal(model.coef_, ooc_svm.train(X, LABELS).coef_)
    if saved:
        ooc_svm.save_model(model, tmp_path / "m")
        model = ooc_svm.load_model(tmp_path / "m")
    assert list(model.feature_names) == NAMES
    expected = ooc_svm.predict(model, FRAME)
    turned = FRAME[NAMES[::-1]]
    np.testing.assert_array_equal(ooc_svm.predict(model, turned), expected)
    assert accuracy(model, turned) == accuracy(model, X) > 0.9
    more = FRAME.assign(e=1.0)[["e", *NAMES[::-1]]]
    with pytest.warns(UserWarning, match="1 column that is no feature of the model"):
        np.testing.assert_array_equal(ooc_svm.predict(model, more), expected)
    with pytest.raises(InputError, match="'b'"):
        ooc_svm.predict(model, FRAME[["a", "c", "d"]])


def test_names_that_are_given_as_well_have_to_be_the_same():
    model = ooc_svm.train(FRAME, LABELS, feature_names=NAMES)
    turned = FRAME[NAMES[::-1]]
    assert accuracy(model, turned, feature_names=NAMES[::-1]) == accuracy(model, FRAME)
    for use in (
        lambda: ooc_svm.train(FRAME, LABELS, feature_names=NAMES[::-1]),
        lambda: accuracy(model, turned, feature_names=NAMES),
    ):
        with pytest.raises(UsageError, match="names its features; leave feature_names out"):
            use()


@pytest.mark.parametrize("columns", [[0, 1, 2, 3], ["a", "a", "b", "c"], ["a", "b", "", "c"], ["a", 1, 2, 3]])
def test_columns_without_names_of_their_own_are_taken_by_their_places(columns):
    frame = pd.DataFrame(X, columns=columns)
    model = ooc_svm.train(frame, LABELS)
    assert model.feature_names is None
    assert accuracy(model, frame) == accuracy(model, FRAME) > 0.9
