"""Matrices and their columns as parameters of public functions: any form, or refused before any work."""

from __future__ import annotations

import os
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import ooc_svm
from ooc_svm.errors import InputError, UsageError
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model

DENSE = np.array([[1.0, 0, 2], [0, 3, 0], [0, 0, 0], [4, 5, 6]])
LABELS = np.array([1.0, -1, 1, -1])
MODEL = Model(
    problem="svc",
    loss="hinge",
    solver="streamed-smo",
    functions=LinearFunctions(np.array([[1.0, 2, 3]]), np.zeros(1)),
    positive=[1.0],
    negative=-1.0,
)

# Arguments with which each function works, and the parameters that have an entry a row.
FUNCTIONS = {
    "train": ({"data": DENSE, "labels": LABELS}, ("labels", "qid", "sample_weight")),
    "plan": ({"data": DENSE, "labels": LABELS}, ("labels", "qid", "sample_weight")),
    "convert_matrix": (
        {"matrix": DENSE, "labels": LABELS, "output": "new.zarr"},
        ("labels", "qid", "weight"),
    ),
    "StoreWriter.append": ({"matrix": DENSE, "labels": LABELS}, ("labels", "qid", "weight")),
    "decision_scores": ({"model": MODEL, "data": DENSE, "labels": LABELS}, ("labels", "qid")),
    "evaluate": ({"model": MODEL, "data": DENSE, "labels": LABELS}, ("labels", "qid")),
    "evaluation_report": ({"model": MODEL, "data": DENSE, "labels": LABELS}, ("labels", "qid")),
}
COLUMNS = [(function, column) for function, (_, columns) in FUNCTIONS.items() for column in columns]
MATRICES = [
    (function, "matrix" if "matrix" in arguments else "data")
    for function, (arguments, _) in FUNCTIONS.items()
]


class Like:
    """What pandas and others are to NumPy: an object with an array in it."""

    def __init__(self, array):
        self.array, self.shape = array, np.shape(array)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.array, dtype)


def changed(form, **arrays):
    """A sparse matrix whose arrays were changed after it was made."""
    matrix = sp.csr_array(DENSE).asformat(form)
    for name, change in arrays.items():
        array = getattr(matrix, name).copy()
        change(array)
        setattr(matrix, name, array)
    return matrix


def put(place, number):
    return lambda array: array.__setitem__(place, number)


BAD_MATRICES = {
    "empty list": [],
    "flat list": [1, 1],
    "list of None": [None],
    "ragged": [[1], [1, 2]],
    "text in lists": [["a", "b"]],
    "digits in lists": [["1", "2"]],
    "text": np.full((4, 3), "a"),
    "objects": np.where(DENSE == 3, None, DENSE.astype(object)),
    "text in objects": np.where(DENSE == 3, "3", DENSE.astype(object)),
    "complex": DENSE.astype(complex),
    "times": np.zeros((4, 3), "datetime64[s]"),
    "huge": [[10**400, 1]],
    "nan": np.where(DENSE == 3, np.nan, DENSE),
    "inf": sp.csc_array(np.where(DENSE == 3, -np.inf, DENSE)),
    "masked": np.ma.masked_equal(DENSE, 3),
    "like, of one dimension": Like(DENSE[0]),
    "frame of text": pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}),
    "complex csr": sp.csr_array(DENSE.astype(complex)),
    "csr, column beyond": changed("csr", indices=put(1, 3)),
    "csr, column negative": changed("csr", indices=put(1, -1)),
    "csr, pointers fall": changed("csr", indptr=put(1, 4)),
    "csr, pointers beyond": changed("csr", indptr=put(-1, 10**6)),
    "csc, row beyond": changed("csc", indices=put(1, 10**6)),
    "csc, row negative": changed("csc", indices=put(1, -(10**6))),
    "bsr, column beyond": changed("bsr", indices=put(0, 10**6)),
    "coo, row beyond": changed("coo", row=put(1, 10**6)),
    "coo, column negative": changed("coo", col=put(1, -(10**6))),
    "coo of one dimension": sp.coo_array(DENSE[0]),
    "too wide": sp.csr_array((4, 2**31), dtype=float),
}
BAD_COLUMNS = {
    "empty": [],
    "short": [1, -1, 1],
    "of two dimensions": LABELS[:, None],
    "a number": 1.0,
    "True": True,
    "text": "abcd",
    "ragged": [[1], [1, 2], 3, 4],
    "text and numbers": ["1", -1, 1, "-1"],
    "text and gaps": np.array(["a", None, "a", "b"], dtype=object),
    "bytes": np.array([b"a", b"b", b"a", b"b"]),
    "objects": np.array([1, -1, None, 1], dtype=object),
    "complex": LABELS.astype(complex),
    "times": np.zeros(4, "datetime64[s]"),
    "nan": [1, np.nan, 1, -1],
    "inf": [1, np.inf, 1, -1],
    "huge": [1, 10**400, 1, -1],
    "masked": np.ma.masked_equal(LABELS, 1),
    "dict": {1: 2},
    "set": {1, 2, 3, 4},
    "sparse": sp.csr_array(LABELS[:, None]),
    "like, too short": Like(LABELS[:2]),
}
# Labels in memory may be text; those of stores, weights and qids may not.
BAD_TEXTS = {"digits": ["1", "-1", "1", "-1"], "names": np.array(["a", "b", "a", "b"])}
BAD_WEIGHTS = {"negative": [1, 1, -1, 1]}
BAD_QIDS = {
    "negative": [0, 0, -1, 1],
    "floats": [0.0, 0.0, 1.0, 1.0],
    "flags": [False, False, True, True],
    "too large": np.array([0, 0, 1, 2**63], np.uint64),
}


def called(function, arguments):
    if function != "StoreWriter.append":
        return getattr(ooc_svm, function)(**arguments)
    with ooc_svm.StoreWriter("new.zarr") as writer:
        return writer.append(**arguments)


def check_refused(function, parameter, value):
    arguments = FUNCTIONS[function][0] | {parameter: value}
    with pytest.raises((InputError, UsageError)) as error:
        called(function, arguments)
    assert re.search(rf"\b{parameter}\b", str(error.value)), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [kind for kind, matrix in BAD_MATRICES.items() if sp.issparse(matrix)])
@pytest.mark.parametrize("function", ["train", "evaluate"])
def test_refused_labels_in_a_matrix(function, kind, nothing_done):
    check_refused(function, "labels", BAD_MATRICES[kind])


@pytest.mark.parametrize("kind", BAD_MATRICES)
@pytest.mark.parametrize(("function", "parameter"), MATRICES)
def test_refused_matrices(function, parameter, kind, nothing_done):
    check_refused(function, parameter, BAD_MATRICES[kind])


@pytest.mark.parametrize(("function", "parameter"), COLUMNS)
def test_refused_columns(function, parameter, nothing_done):
    texts = {} if parameter == "labels" else BAD_TEXTS
    bad = (
        BAD_COLUMNS
        | texts
        | (BAD_WEIGHTS if "weight" in parameter else BAD_QIDS if parameter == "qid" else {})
    )
    for value in bad.values():
        with warnings.catch_warnings(action="error"):
            check_refused(function, parameter, value)


def test_what_is_wrong_is_shown():
    with pytest.raises(InputError, match=r"^labels have values that are not finite: inf in row 1, from 0;"):
        ooc_svm.train(DENSE, [1, np.inf, 1, -1])
    with pytest.raises(InputError, match=r"^2 of 4 labels are missing \(NaN\), the first in row 1, from 0;"):
        ooc_svm.train(DENSE, [1, np.nan, np.nan, -1])
    with pytest.raises(InputError, match=r"^2 of 4 labels .* from 0; leave such rows out$"):
        ooc_svm.convert_matrix(DENSE, [1, np.nan, np.nan, -1], "new.zarr")  # which cannot skip them
    with pytest.raises(InputError, match=r"^row 2 has -1 in qid; integers from 0 to 2\^63 - 1 are needed"):
        ooc_svm.train(DENSE, LABELS, qid=[0, 0, -1, 1])
    with pytest.raises(InputError, match=r"^row 2 has the negative weight -1.0 in sample_weight;"):
        ooc_svm.train(DENSE, LABELS, sample_weight=[1, 1, -1, 1])
    with pytest.raises(
        InputError, match=r"^data has values that are not finite: nan in row 1, column 1, from 0"
    ):
        ooc_svm.train(BAD_MATRICES["nan"], LABELS)
    with pytest.raises(
        InputError, match=r"^matrix is not a valid matrix: its type is complex128; give rows of"
    ):
        ooc_svm.convert_matrix(DENSE.astype(complex), LABELS, "new.zarr")


def double(matrix):
    """The same matrix with each entry in two halves, unsorted."""
    coo = sp.coo_array(matrix)
    order = np.random.default_rng(1).permutation(2 * coo.nnz)
    row, col = np.tile(coo.row, 2)[order], np.tile(coo.col, 2)[order]
    return sp.coo_array((np.tile(coo.data / 2, 2)[order], (row, col)), shape=matrix.shape)


def wide_ids(matrix):
    csr = sp.csr_array(matrix)
    csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    return csr


GOOD_MATRICES = {
    **{
        form: sp.csr_array(DENSE).asformat(form) for form in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
    },
    "csr_matrix": sp.csr_matrix(DENSE),
    "int8": DENSE.astype(np.int8),
    "uint64": sp.csr_array(DENSE.astype(np.uint64)),
    "float16": DENSE.astype(np.float16),
    "longdouble": DENSE.astype(np.longdouble),
    "Fortran": np.asfortranarray(DENSE),
    "reversed": DENSE[::-1, ::-1][::-1, ::-1],
    "lists": DENSE.tolist(),
    "tuples": tuple(map(tuple, DENSE.tolist())),
    "matrix": DENSE.view(np.matrix),  # making one warns
    "frame": pd.DataFrame(DENSE),
    "frame of integers": pd.DataFrame(DENSE.astype(int)),
    "like": Like(DENSE),
    "duplicates": double(DENSE),
    "duplicates in csr": sp.csr_matrix((np.ones(9), [0, 2, 2, 1, 1, 1, 0, 1, 2], [0, 3, 6, 6, 9])),
    "int64 ids": wide_ids(DENSE),
    "unsorted": sp.csr_array(([2.0, 1.0], [2, 0], [0, 2, 2, 2, 2]), shape=(4, 3)),
}


@pytest.mark.parametrize("kind", GOOD_MATRICES)
def test_any_form_of_a_matrix_is_that_matrix(kind):
    matrix = GOOD_MATRICES[kind]
    dense = matrix.toarray() if sp.issparse(matrix) else np.array(matrix, np.float64)
    with ooc_svm.decision_scores(MODEL, matrix) as stream:
        scores = np.concatenate([block.scores[:, 0] for block in stream])
    np.testing.assert_array_equal(scores, dense @ [1, 2, 3])


def test_sums_of_duplicates_of_small_integers_do_not_overflow():
    ids = np.array([0, 0]), np.array([1, 1])
    matrix = sp.coo_array((np.array([100, 100], np.int8), ids), shape=(1, 3))
    assert ooc_svm.predict(MODEL, matrix).tolist() == [1.0]
    with ooc_svm.decision_scores(MODEL, matrix) as stream:
        assert next(stream).scores.tolist() == [[400.0]]


def test_a_matrix_is_not_changed():
    matrix = changed("csr")
    matrix.indices[:2] = matrix.indices[1::-1]
    before = [array.copy() for array in (matrix.data, matrix.indices, matrix.indptr)]
    ooc_svm.predict(MODEL, matrix)
    for array, copy in zip((matrix.data, matrix.indices, matrix.indptr), before, strict=True):
        np.testing.assert_array_equal(array, copy)


GOOD_LABELS = (LABELS.tolist(), LABELS.astype(np.int8), pd.Series(LABELS), Like(LABELS), LABELS > 0)


@pytest.mark.parametrize(
    "labels",
    [
        ["spam", "ham", "spam", "ham"],
        np.array(["spam", "ham", "spam", "ham"]),
        np.array(["spam", "ham", "spam", "ham"], dtype=object),
        np.array(["spam", "ham", "spam", "ham"], dtype=np.dtypes.StringDType()),
        pd.Series(["spam", "ham", "spam", "ham"]),
        pd.Series(["spam", "ham", "spam", "ham"], dtype="string"),
        pd.Categorical(["spam", "ham", "spam", "ham"], categories=["spam", "ham"]),
    ],
    ids=lambda labels: f"{type(labels).__name__} {getattr(labels, 'dtype', '')}",
)
def test_labels_that_are_text_come_back(labels):
    numbers = ooc_svm.train(DENSE, LABELS)
    model = ooc_svm.train(DENSE, labels, class_weight={"spam": 1.0})
    assert np.array_equal(model.weights, numbers.weights)
    assert model.label_names == ("ham", "spam")
    names = np.where(ooc_svm.predict(numbers, DENSE) > 0, "spam", "ham")
    assert ooc_svm.predict(model, DENSE).tolist() == names.tolist()
    found = ooc_svm.evaluate(model, DENSE, labels=labels)
    assert found == ooc_svm.evaluate(numbers, DENSE, labels=LABELS)
    assert ooc_svm.plan(DENSE, labels).total == ooc_svm.plan(DENSE, LABELS).total
    with pytest.raises(InputError, match=r"not trained on: 'eggs' \(2 rows\); it knows ham"):
        ooc_svm.evaluate(model, DENSE, labels=["spam", "eggs", "eggs", "ham"])
    for problem in ("svr", "ordinal"):
        with pytest.raises(InputError, match="names"):
            ooc_svm.train(DENSE, labels, problem=problem)


@pytest.mark.parametrize("labels", GOOD_LABELS)
def test_any_form_of_labels(labels, tmp_path):
    ooc_svm.convert_matrix(DENSE, labels, tmp_path / "a.zarr", qid=np.arange(4, dtype=np.uint8))
    store = ooc_svm.open_store(tmp_path / "a.zarr")
    assert store.read_labels(0, 4).tolist() == np.asarray(labels, np.float64).tolist()
    assert store.read_qids(0, 4).tolist() == [0, 1, 2, 3]


def test_a_value_beyond_float32_is_named(tmp_path):
    matrix = np.where(DENSE == 5, 1e39, DENSE)
    message = "row 3, column 1, from 0, has the value 1e+39, beyond the range of float32; write "
    with pytest.raises(InputError) as error:
        ooc_svm.convert_matrix(sp.csr_array(matrix), LABELS, tmp_path / "a.zarr")
    assert str(error.value) == f"{message}{tmp_path}/a.zarr with dtype='float64'"
    assert os.listdir(tmp_path) == []
    ooc_svm.convert_matrix(matrix, LABELS, tmp_path / "a.zarr", dtype="float64")
    assert ooc_svm.open_store(tmp_path / "a.zarr").read_block(0).values.max() == 1e39
