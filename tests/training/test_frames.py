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


@pytest.mark.parametrize("kind", ["mixed", "nullable", "objects"])
def test_columns_of_any_type_of_numbers(kind):
    mixed = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0.0, "c": np.arange(150) % 7, "d": X[:, 3]})
    given = {"mixed": mixed, "nullable": mixed.convert_dtypes(), "objects": mixed.astype(object)}[kind]
    if kind == "objects":
        given = given.to_numpy()
    model, expected = ooc_svm.train(given, LABELS), ooc_svm.train(mixed.to_numpy(np.float64), LABELS)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    np.testing.assert_array_equal(model.predict(given), expected.predict(mixed.astype(np.float64)))


def test_columns_without_numbers_are_named():
    with pytest.raises(InputError, match="its column 'e' is of type category; give rows of real numbers"):
        ooc_svm.train(FRAME.assign(b=X[:, 1] > 0.0, e=pd.Categorical(list("uvw") * 50)), LABELS)
    holes = FRAME.convert_dtypes()
    holes.iloc[3, 2] = pd.NA
    with pytest.raises(InputError, match="not finite: nan in row 3, column 2"):
        ooc_svm.train(holes, LABELS)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["a", "b", 2, "d"], "but 2 is no text"),
        (list("abca"), "'a' stands twice"),
        (["a", "b", "", "d"], "the name of feature 2, from 0, is ''"),
    ],
)
def test_names_that_would_be_lost_are_refused(names, what, tmp_path):
    frame, model = pd.DataFrame(X, columns=names), ooc_svm.train(X, LABELS)
    for function in (
        lambda: ooc_svm.train(frame, LABELS),
        lambda: ooc_svm.predict(model, frame),
        lambda: ooc_svm.convert_matrix(frame, LABELS, tmp_path / "s.zarr"),
    ):
        with pytest.raises(InputError, match=what):
            function()


def test_a_store_of_a_frame_has_the_names(tmp_path):
    ooc_svm.convert_matrix(FRAME, LABELS, tmp_path / "s.zarr")
    model = ooc_svm.train(tmp_path / "s.zarr")
    assert list(model.feature_names) == NAMES
    assert accuracy(model, FRAME[NAMES[::-1]]) == accuracy(model, X) > 0.9
    ooc_svm.convert_matrix(FRAME, LABELS, tmp_path / "t.zarr", feature_names=["1", "2", "3", "4"])
    assert list(ooc_svm.open_store(tmp_path / "t.zarr").feature_names) == ["1", "2", "3", "4"]


def test_columns_without_names_are_taken_by_their_places():
    frame = pd.DataFrame(X)
    model = ooc_svm.train(frame, LABELS)
    assert model.feature_names is None
    assert accuracy(model, frame) == accuracy(model, FRAME) > 0.9
