"""Scores of single rows: the bits of streamed scores, every kind of row, and nothing heavy imported."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import timeit

import numpy as np
import pytest
from helpers.scored_data import model_of
from scipy import sparse

from ooc_svm import decision_scores, save_model
from ooc_svm.errors import InputError, UsageError

N_FEATURES = 300


def binary(**facts):
    facts = {"positive": [1.0], "negative": -1.0, "classes": (-1.0, 1.0), "C": (1.0,)} | facts
    return made(1, **facts)


def made(n_models, n_features=N_FEATURES, **facts):
    rng = np.random.default_rng(n_models)
    weights, bias = rng.normal(size=(n_models, n_features)), rng.normal(size=n_models)
    facts = {"problem": "svc", "loss": "hinge", "solver": "streamed-smo"} | facts
    return model_of(weights=weights, bias=bias, **facts)


def several(**facts):
    """Three classes, not in order, with two values of C."""
    labels = [3.0, 1.0, 2.0] * 2
    return made(6, positive=labels, classes=(1.0, 2.0, 3.0), C=(1.0,) * 3 + (2.0,) * 3, **facts)


MODELS = {
    "binary": binary,
    "several": several,
    "values": lambda: made(1, problem="svr", loss="epsilon-insensitive"),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_bits_are_those_of_streamed_scores(kind):
    model, rng = MODELS[kind](), np.random.default_rng(3)
    for n_entries in (*range(20), 63, 64, 65, 66, 131, 300):
        columns = rng.permutation(N_FEATURES)[:n_entries]
        values = rng.normal(size=n_entries)
        matrix = sparse.csr_array((values, (np.zeros(n_entries, int), columns)), (1, N_FEATURES))
        (block,) = decision_scores(model, matrix)
        rows = [
            dict(zip(columns.tolist(), values.tolist(), strict=True)),
            dict(zip(columns, values, strict=True)),
            (columns, values),
            (columns.tolist(), values.tolist()),
            matrix,
            sparse.coo_matrix(matrix),
            matrix.toarray()[0],
        ]
        expected = block.scores[0].tolist()
        for row in rows:  # zeros of a dense row are left out, as in a matrix
            found = model.score_one(row)
            assert (list(found.values()) if kind == "several" else [found]) == expected
        (dense,) = decision_scores(model, matrix.toarray())
        assert dense.scores[0].tolist() == expected
        prediction = model.predict_one(rows[0])
        if kind == "values":
            assert prediction == expected[0]
        elif kind == "binary":
            assert prediction == (1.0 if expected[0] > 0 else -1.0)
        else:
            assert list(found) == [1.0, 2.0, 3.0]
            assert prediction == 1.0 + np.argmax(expected)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_row_that_is_given_stays_as_it_is(read_only):
    model, arrays = binary(), (np.array([1.0, 2.0, 3.0]), np.array([2, 0, 0]), np.array([0, 3]))
    for array in arrays:
        array.flags.writeable = not read_only
    row = sparse.csr_matrix(arrays, shape=(1, N_FEATURES))
    assert model.score_one(row) == model.score_one({0: 5.0, 2: 1.0})
    assert row.indices.tolist() == [2, 0, 0]
    assert row.data.tolist() == [1.0, 2.0, 3.0]


def test_labels_have_their_names():
    assert binary(label_names=("ham", "spam")).predict_one({}) in ("ham", "spam")
    assert list(several(label_names=("a", "b", "c")).score_one({})) == ["a", "b", "c"]


def test_features_have_names():
    model = binary()
    with pytest.raises(UsageError, match="has no names of features"):
        model.score_one({"word": 1.0})
    model = binary()
    model.feature_names = [f"word {column}" for column in range(N_FEATURES)]
    by_name = {"word 7": 1.0, "word 3": 2, "unknown": 5.0}
    assert model.score_one(by_name) == model.score_one({3: 2.0, 7: 1.0})
    with pytest.raises(UsageError, match="key 'word 3'; give column numbers, or names of features, for all"):
        model.score_one({"word 3": 1.0, 7: 1.0})
    model = binary()
    model.feature_names = ["same"] * N_FEATURES
    with pytest.raises(UsageError, match="two features of the model have the same name"):
        model.score_one({"same": 1.0})


def test_columns_beyond_those_of_the_model_are_ignored():
    for model in (binary(), several()):
        assert model.score_one({3: 1.0, N_FEATURES: 7.0, 10**12: 1.0}) == model.score_one({3: 1.0})
        assert model.score_one(([3, N_FEATURES], [1.0, 7.0])) == model.score_one({3: 1.0})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({1: "2"}, r"value '2' at 1"),
        ({1: True}, r"value True at 1"),
        ({1: None}, r"value None"),
        ({1: math.nan}, r"value nan"),
        ({1: math.inf}, r"value inf"),
        ({1: 10**400}, r"1000000"),
        ({1.5: 1.0}, r"key 1\.5"),
        ({True: 1.0}, r"key True"),
        ({-1: 1.0}, r"column -1"),
        ({np.int64(1): 1.0, 2: 2.0, None: 1.0}, r"key None"),
        (([1, 1], [1.0, 2.0]), "column twice"),
        (([1, -1], [1.0, 2.0]), "column -1"),
        (([1], [1.0, 2.0]), "as many columns as values"),
        (([0.5], [1.0]), "must be integers"),
        (([0, [1]], [1, 2]), r"columns of a row must be integers, not \[0, \[1\]\]"),
        (([0, None], [1, 2]), "columns of a row must be integers"),
        (([0], ["a"]), "finite numbers"),
        (([0], [math.nan]), "value nan"),
        (([[0]], [[1.0]]), "as many columns"),
        (np.ones(3), "3 features, the model 300"),
        (sparse.csr_array(np.ones((2, N_FEATURES))), "a row must be"),
        ([1.0, 2.0], "a row must be"),
        ("text", "a row must be"),
        (None, "a row must be"),
    ],
)
def test_other_rows_are_refused(row, message):
    for model in (binary(), several()):
        for call in (model.score_one, model.predict_one):
            with pytest.raises(UsageError, match=message):
                call(row)


def test_a_score_beyond_the_numbers():
    for model in (binary(), several()):
        with pytest.raises(InputError, match="beyond the range of float64"):
            model.score_one(dict.fromkeys(range(50), 1e308))


def test_what_a_model_is_made_of_may_change_and_be_copied():
    model = several()
    before = model.score_one({3: 1.0})
    model.selected = 0
    assert model.score_one({3: 1.0}) != before
    for other in (pickle.loads(pickle.dumps(binary())), copy.deepcopy(model)):
        other.score_one({3: 1.0})
    one = binary()
    one.score_one({})
    assert pickle.loads(pickle.dumps(one)).score_one({3: 1.0}) == one.score_one({3: 1.0})


def test_serving_imports_little(tmp_path):
    save_model(binary(), tmp_path / "model")
    program = """
import sys, ooc_svm
model = ooc_svm.load_model(sys.argv[1])
model.score_one({3: 1.0}), model.predict_one(([1, 2], [0.5, 1]))
print(*sys.modules)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    heavy = {"numba", "llvmlite", "zarr", "scipy", "dask", "sklearn", "pandas", "typer", "numcodecs"}
    assert heavy.isdisjoint(done.stdout.split())


def test_a_row_takes_microseconds():
    model = binary()
    row = dict.fromkeys(range(0, N_FEATURES, 10), 0.5)
    model.score_one(row)
    assert min(timeit.repeat(lambda: model.score_one(row), number=20, repeat=200)) / 20 < 20e-6
