"""Indicator matrices as labels: the same as sets of labels in text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.label_data import LABELS, make_labels
from helpers.train_data import bits
from scipy import sparse
from sklearn.metrics import accuracy_score, f1_score, hamming_loss

import ooc_svm
from ooc_svm.errors import DamageError, InputError

DATA = make_labels()
COLUMNS = [str(k) for k in range(len(LABELS))]


def with_data(csr, dtype):
    """CSR whose values are of a type that SciPy does not compute in."""
    csr.data = csr.data.astype(dtype)
    return csr


def test_the_same_as_text(tmp_path):
    ooc_svm.convert(DATA.write(tmp_path / "a.svm"), tmp_path / "a.zarr", labels="sets", dtype="float64")
    options = {"C": [0.3, 2.0], "bias": "free", "class_weight": "balanced"}
    of_text = ooc_svm.train(tmp_path / "a.zarr", **options)
    model = ooc_svm.train(DATA.X, DATA.Y, **options)
    assert model.multilabel
    assert [row["label"] for row in model.report["models"]] == COLUMNS * 2
    for mine, other in zip(model.report["models"], of_text.report["models"], strict=True):
        assert mine["primal"] == pytest.approx(other["primal"], rel=2e-3)
        assert mine["rows"] == other["rows"]
    found = ooc_svm.predict(model, DATA.X)
    assert found.shape == DATA.Y.shape
    # A model of named labels takes an indicator in the order of its labels.
    for each in (model, of_text):
        measured = ooc_svm.evaluate(each, DATA.X, ["subset-accuracy", "micro-f1"], labels=DATA.Y)
        own = ooc_svm.predict(each, DATA.X)
        assert measured["subset-accuracy"] == accuracy_score(DATA.Y, own)
        assert measured["micro-f1"] == pytest.approx(f1_score(DATA.Y, own, average="micro"))


@pytest.mark.parametrize(
    "form",
    [
        lambda Y: Y.astype(np.float32),
        lambda Y: Y.astype(int).tolist(),
        lambda Y: list(Y.astype(np.uint8)),
        sparse.csr_matrix,
        lambda Y: sparse.coo_array(Y.astype(np.int8)),
        lambda Y: with_data(sparse.csr_array(Y), np.float16),
        lambda Y: pd.DataFrame(Y, columns=LABELS),
    ],
)
def test_forms(form):
    options = {"max_passes": 2, "solver": "ocas"}
    assert bits(ooc_svm.train(DATA.X, form(DATA.Y), **options)) == bits(
        ooc_svm.train(DATA.X, DATA.Y, **options)
    )


def test_explicit_zeros_and_one_column():
    Y = sparse.csr_array(DATA.Y.astype(float))
    Y.data[::3] = 0.0
    model = ooc_svm.train(DATA.X, Y, max_passes=2)
    assert [row["rows"] for row in model.report["models"]] == (Y.toarray() > 0).sum(axis=0).tolist()
    one = ooc_svm.train(DATA.X, sparse.csr_array(DATA.Y[:, :1]), solver="ocas")
    column = ooc_svm.train(DATA.X, DATA.Y[:, 0], solver="ocas")
    assert bits(one) == bits(column)
    np.testing.assert_array_equal(one.predict(DATA.X)[:, 0], column.predict(DATA.X))


@pytest.mark.parametrize("call", ["train", "fit", "evaluate"])
def test_a_matrix_stays_as_it_is(call):
    """Its ids may be shared with other matrices, and be read-only."""
    options = {"tol": 0.1}
    indicator = sparse.csr_array(DATA.Y.astype(np.int8))
    indicator.data[::3] = 0
    row = slice(*indicator.indptr[np.argmax(np.diff(indicator.indptr)) :][:2])
    indicator.indices[row] = indicator.indices[row][::-1]
    model = ooc_svm.train(DATA.X, DATA.Y, **options)
    arrays = indicator.data, indicator.indices, indicator.indptr
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    {
        "train": lambda: ooc_svm.train(DATA.X, indicator, **options),
        "fit": lambda: ooc_svm.OocSVC(**options).fit(DATA.X, indicator),
        "evaluate": lambda: ooc_svm.evaluate(model, DATA.X, ["micro-f1"], labels=indicator),
    }[call]()
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_folds_rows_held_out_and_a_checkpoint(tmp_path):
    model = ooc_svm.tune(DATA.X, DATA.Y, C=[0.1, 1.0], folds=3, metric="hamming-loss")
    assert model.report["tuning"]["metric"] == "hamming-loss"
    held = ooc_svm.train(DATA.X, DATA.Y, validation=0.2)
    assert "micro-f1" in held.report["validation"]
    assert ooc_svm.plan(DATA.X, DATA.Y).n_models == 5
    ooc_svm.train(DATA.X, DATA.Y, checkpoint=tmp_path / "c", max_passes=1)
    again = ooc_svm.train(DATA.X, DATA.Y, checkpoint=tmp_path / "c", resume=True)
    assert bits(again) == bits(ooc_svm.train(DATA.X, DATA.Y))
    with pytest.raises(DamageError, match="other data"):
        ooc_svm.train(DATA.X, DATA.Y[:, ::-1], checkpoint=tmp_path / "c", resume=True)


def test_some_labels():
    model = ooc_svm.train(DATA.X, DATA.Y, positive=["1", 3])
    assert [row["label"] for row in model.report["models"]] == ["1", "3"]
    found = ooc_svm.evaluate(model, DATA.X, "hamming-loss", labels=DATA.Y)["hamming-loss"]
    assert found == pytest.approx(hamming_loss(DATA.Y[:, [1, 3]], model.predict(DATA.X)))


def test_nu():
    model = ooc_svm.train(DATA.X, DATA.Y, problem="nu-svc", nu=0.2)
    for k, row in enumerate(model.report["models"]):
        alone = ooc_svm.train(DATA.X, DATA.Y[:, k], problem="nu-svc", nu=0.2)
        assert row["nu"] == 0.2
        assert row["primal"] == pytest.approx(alone.report["models"][0]["primal"], rel=2e-3)
        assert row["margin_errors"] <= 0.2


WRONG = [
    (DATA.Y[:-1], "labels are a matrix of 299 rows and 5 columns; here it needs 300 rows and 5"),
    (DATA.Y * 2, r"has 2 in row \d+, column \d, from 0; give one label a row, or 0 and 1 alone"),
    (np.where(DATA.Y, 1.0, np.nan), "has nan in row"),
    (np.zeros((300, 2, 2)), "needed|shape"),
    ([["a", "b"]] * 300, "labels are not a valid matrix: its type is <U1"),
    ([[1, 0], [1]] * 150, "labels are not a valid matrix"),
    (np.c_[DATA.Y, np.zeros(300)], "no row has the label '5', of which nothing can be learned"),
    (np.c_[DATA.Y, np.ones(300)], "all rows have the label '5'"),
    (sparse.csr_array((300, 70_000)), "labels have 70000 columns; at most"),
]


@pytest.mark.parametrize(("labels", "message"), WRONG)
def test_errors(labels, message):
    with pytest.raises(InputError, match=message):
        ooc_svm.train(DATA.X, labels)


def test_of_other_problems_and_models(tmp_path):
    with pytest.raises(InputError, match="rows have sets of labels, which are for problem='svc' or nu-svc"):
        ooc_svm.train(DATA.X, DATA.Y, problem="svr")
    with pytest.raises(InputError, match="labels are an indicator matrix, which no store is made of"):
        ooc_svm.convert_matrix(DATA.X, DATA.Y, tmp_path / "s")
    model = ooc_svm.train(DATA.X, DATA.Y, max_passes=1)
    with pytest.raises(InputError, match="matrix of 300 rows and 4 columns; here it needs 300 rows and 5"):
        ooc_svm.evaluate(model, DATA.X, labels=DATA.Y[:, :4])
    of_classes = ooc_svm.train(DATA.X, DATA.Y[:, 0], max_passes=1)
    with pytest.raises(InputError, match="has sets of labels, and the model predicts none"):
        ooc_svm.evaluate(of_classes, DATA.X, labels=DATA.Y)
