"""Columns of the resident rows with numbers of their own: other places, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.train_data import bits, make_store, store_rows

from ooc_svm import train
from ooc_svm.errors import DamageError
from ooc_svm.solvers.streamed_smo import plan
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.sweep import CopiedRows
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE, state_path

pytestmark = pytest.mark.usefixtures("few_held")

PROBLEMS = [
    {},
    {"scale": "std", "bias": "penalized"},
    {"bias": "free", "loss": "squared-hinge"},
    {"problem": "svr", "bias": "free"},
    {"problem": "nu-svc", "nu": 0.3, "solver": "streamed-smo"},
    {"loss": "logistic", "C": 3.0},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    blocks = {"chunk_elements": 500, "chunk_rows": 100, "block_rows": 100}
    return make_store(tmp_path_factory.mktemp("store") / "s", *store_rows(), **blocks)


@pytest.fixture(autouse=True)
def no_proximal_steps(monkeypatch):
    """Which data with so many columns that they get numbers do not have."""
    monkeypatch.setattr(plan, "most_columns", lambda *shape: 0)


@pytest.fixture
def numbered(monkeypatch):
    """All columns get numbers; gives those that the rows had in the end."""
    found = []
    original = ResidentRows._number

    def number(rows, indices):
        original(rows, indices)
        found.append(rows.columns)

    monkeypatch.setattr(plan, "MANY_COLUMNS", 0)
    monkeypatch.setattr(ResidentRows, "_number", number)
    return found


def changed_states(folder, *, keep):
    """The column numbers in the states of a folder, to be changed, and the number of columns."""
    for place in (0, 1):
        path = state_path(folder, place)
        content, arrays = read_arrays(path, CHECKPOINT_FILE)
        yield arrays["0/residents/columns"], len(arrays["0/w"])
        if not keep:
            del arrays["0/residents/columns"]
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)


@pytest.mark.parametrize("options", PROBLEMS, ids=str)
def test_no_bit_changes(store, options, request):
    expected = bits(train(store, tol=1e-4, **options))
    found = request.getfixturevalue("numbered")
    assert bits(train(store, tol=1e-4, **options)) == expected
    columns = found[-1]
    assert len(columns) > 1
    assert (np.diff(columns) < 0).any()


def test_a_resumed_run_goes_on_with_the_same_numbers(store, numbered, tmp_path):
    whole = train(store, tol=1e-6)
    train(store, tol=1e-6, max_passes=2, checkpoint=tmp_path)
    before = numbered[-1]
    assert bits(train(store, tol=1e-6, checkpoint=tmp_path, resume=True)) == bits(whole)
    np.testing.assert_array_equal(numbered[-1][: len(before)], before)


def test_a_state_of_an_older_release_goes_on_without_numbers(store, tmp_path, request):
    whole = bits(train(store, tol=1e-6))
    train(store, tol=1e-6, max_passes=2, checkpoint=tmp_path)
    for columns, _ in changed_states(tmp_path, keep=False):
        assert columns.size == 0
    found = request.getfixturevalue("numbered")
    assert bits(train(store, tol=1e-6, checkpoint=tmp_path, resume=True)) == whole
    assert not found


@pytest.mark.parametrize("column", ["twice", "outside"])
def test_a_state_with_impossible_numbers_is_refused(store, numbered, tmp_path, column):
    train(store, tol=1e-6, max_passes=2, checkpoint=tmp_path)
    for columns, n_features in changed_states(tmp_path, keep=True):
        columns[1] = columns[0] if column == "twice" else n_features
    with pytest.raises(DamageError):
        train(store, tol=1e-6, checkpoint=tmp_path, resume=True)


def copied(ids, lists):
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return CopiedRows(np.array(ids), indptr, np.concatenate(lists).astype(np.int32), None)


@pytest.mark.parametrize("first", [[[], []], [[3], [3, 4]]], ids=["empty", "few"])
@pytest.mark.parametrize("leave", [False, True])
def test_first_rows_without_elements_give_no_column_a_number(first, leave):
    """Nor are their numbers known any longer where all of them have left."""
    resident = ResidentRows(1000, np.empty(0), True, n_numbered=6)
    resident.drop(np.ones(0, np.bool_))
    resident.append([(copied([0, 1], first), np.arange(2), np.arange(2))])
    kept = np.full(2, not leave)
    resident.drop(kept)
    rows = copied([5, 6], [[0, 1, 2, 3], [2, 3, 4, 5]])
    resident.append([(rows, np.arange(2), kept.sum() + np.arange(2))])
    assert sorted(resident.columns.tolist()) == list(range(6))
    assert resident.is_sound(6)
    assert resident.holds(rows)
