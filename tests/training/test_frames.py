"""Data frames: their columns have names, by which they are found in other data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ooc_svm
from ooc_svm.errors import InputError

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


def test_names_that_are_given_come_before_those_of_the_frame():
    genes = ["g1", "g2", "g3", "g4"]
    model = ooc_svm.train(FRAME, LABELS, feature_names=genes)
    assert list(model.feature_names) == genes
    turned = FRAME[NAMES[::-1]]
    assert accuracy(model, turned, feature_names=genes[::-1]) == accuracy(model, X) > 0.9
    with pytest.raises(InputError, match="'g1'"):
        ooc_svm.predict(model, FRAME)


def test_a_store_of_a_frame_has_the_names(tmp_path):
    ooc_svm.convert_matrix(FRAME, LABELS, tmp_path / "s.zarr")
    model = ooc_svm.train(tmp_path / "s.zarr")
    assert list(model.feature_names) == NAMES
    assert accuracy(model, FRAME[NAMES[::-1]]) == accuracy(model, X) > 0.9
    ooc_svm.convert_matrix(FRAME, LABELS, tmp_path / "t.zarr", feature_names=["1", "2", "3", "4"])
    assert list(ooc_svm.open_store(tmp_path / "t.zarr").feature_names) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("columns", [[0, 1, 2, 3], ["a", "a", "b", "c"], ["a", "b", "", "c"], ["a", 1, 2, 3]])
def test_columns_without_names_of_their_own_are_taken_by_their_places(columns):
    frame = pd.DataFrame(X, columns=columns)
    model = ooc_svm.train(frame, LABELS)
    assert model.feature_names is None
    assert accuracy(model, frame) == accuracy(model, FRAME) > 0.9
