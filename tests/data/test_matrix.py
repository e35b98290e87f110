"""A matrix in memory as a source of row blocks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.problems_data import cut_rows, noisy_rows
from helpers.store_data import assert_same

from ooc_svm.data import matrix as module
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.errors import InputError

LABELS = np.arange(6.0)
DENSE = np.array([[0, 2, 0, 3], [0, 0, 0, 0], [1, 0, 0, 0], [4, 5, 6, 7], [0, 0, 0, 8], [9, 0, 0, 0.5]])


def collected(source):
    """The matrix out of the blocks."""
    parts = []
    for index, span in enumerate(source.blocks):
        block = source.read_block(index)
        assert (block.start, block.stop) == (span.start, span.stop)
        assert len(block.indices) == span.n_nonzeros
        values = np.ones(len(block.indices)) if block.values is None else block.values
        parts.append(
            sp.csr_matrix((values, block.indices, block.indptr), shape=(block.n_rows, source.n_features))
        )
    return sp.vstack(parts, format="csr")


@pytest.mark.parametrize(
    "form", [np.array, sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_matrix, sp.lil_array]
)
def test_every_form_of_a_matrix(form):
    source = MatrixSource(form(DENSE), LABELS)
    assert (source.n_rows, source.n_features, source.n_nonzeros) == (6, 4, 10)
    assert_same(collected(source), sp.csr_matrix(DENSE))
    assert source.value_type == "float64"
    assert not source.has_weight


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float32, np.float64, np.longdouble])
def test_every_type_of_number(dtype):
    source = MatrixSource(DENSE.astype(dtype), LABELS)
    expected = {bool: "ones", np.float32: "float32"}.get(dtype, "float64")
    assert source.value_type == expected
    np.testing.assert_array_equal(collected(source).toarray(), DENSE.astype(dtype).astype(np.float64))


def test_unsorted_ids_and_duplicates_are_put_right_in_a_copy():
    indptr, indices, data = np.array([0, 3, 4]), np.array([2, 0, 2, 1]), np.array([1.0, 2.0, 3.0, 4.0])
    matrix = sp.csr_matrix((data, indices, indptr), shape=(2, 3))
    source = MatrixSource(matrix, [1.0, 2.0])
    np.testing.assert_array_equal(collected(source).toarray(), [[2.0, 0.0, 4.0], [0.0, 4.0, 0.0]])
    assert source.read_block(0).indices.tolist() == [0, 2, 1]
    assert (indices.tolist(), data.tolist()) == ([2, 0, 2, 1], [1.0, 2.0, 3.0, 4.0])


def test_blocks_end_at_rows_and_stay_small(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 50)
    monkeypatch.setattr(module, "BLOCK_ROWS", 20)
    matrix, _ = noisy_rows(200, 30)
    matrix.sort_indices()
    wide = sp.vstack([matrix, sp.csr_array(np.ones((3, 30))), sp.csr_array((50, 30))], format="csr")
    source = MatrixSource(wide, np.zeros(253))
    assert_same(collected(source), sp.csr_matrix(wide))
    assert all(span.stop - span.start <= 20 for span in source.blocks)
    assert all(span.n_nonzeros <= 50 or span.stop == span.start + 1 for span in source.blocks)
    assert all(span.nbytes > 0 for span in source.blocks)


def test_given_spans_are_taken():
    matrix, labels = noisy_rows()
    matrix.sort_indices()
    spans = cut_rows(matrix, 7)
    source = MatrixSource(matrix, labels, spans=spans)
    assert source.blocks is spans
    assert_same(collected(source), sp.csr_matrix(matrix))


def test_labels_and_weights():
    source = MatrixSource(DENSE, [1, 2, 3, 4, 5, 6], np.arange(6))
    assert source.has_weight
    assert source.read_labels(1, 3).tolist() == [2.0, 3.0]
    assert source.read_weights(4, 6).tolist() == [4.0, 5.0]


def test_groups():
    assert not MatrixSource(DENSE, LABELS).has_qid
    source = MatrixSource(DENSE, LABELS, qids=[1, 1, 7, 7, 7, 2**62])
    assert source.has_qid
    assert source.read_qids(2, 6).tolist() == [7, 7, 7, 2**62]
    assert source.id != MatrixSource(DENSE, LABELS).id
    with pytest.raises(InputError, match=r"6 rows but qid of shape \(2,\)"):
        MatrixSource(DENSE, LABELS, qids=[1, 2])
    with pytest.raises(InputError, match="qid has the type float64"):
        MatrixSource(DENSE, LABELS, qids=np.ones(6))


def test_no_rows_and_no_features():
    for shape in ((0, 3), (0, 0)):
        source = MatrixSource(np.zeros(shape), [])
        assert (source.n_rows, list(source.blocks)) == (0, [])
    source = MatrixSource(np.zeros((6, 0)), LABELS)
    assert (len(source.blocks), source.n_nonzeros) == (1, 0)


def test_the_id_is_that_of_the_content():
    base = MatrixSource(DENSE, LABELS)
    assert MatrixSource(sp.csc_array(DENSE), LABELS.tolist()).id == base.id
    wider = np.hstack([DENSE, np.zeros((6, 1))])
    others = [
        MatrixSource(wider, LABELS),
        MatrixSource(DENSE, LABELS[::-1]),
        MatrixSource(DENSE, LABELS, np.ones(6)),
        MatrixSource(DENSE.astype(np.float32), LABELS),
        MatrixSource(DENSE[::-1], LABELS),
        MatrixSource(DENSE != 0, LABELS),
    ]
    assert len({base.id, *(other.id for other in others)}) == 7


def out_of_range(change):
    matrix = sp.csr_matrix(DENSE)
    change(matrix)
    return matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.where(DENSE == 8, np.nan, DENSE), "not finite"),
        (np.where(DENSE == 8, -np.inf, DENSE), "not finite"),
        (DENSE.astype(complex), "real numbers"),
        (DENSE.astype(str), "numbers"),
        (DENSE[0], "two dimensions|not a valid matrix"),
        (DENSE[None], "not a valid matrix"),
        ("text", "not a valid matrix"),
        (None, "not a valid matrix"),
        (out_of_range(lambda m: m.indices.__setitem__(3, 4)), "not a valid matrix"),
        (out_of_range(lambda m: m.indices.__setitem__(3, -1)), "not a valid matrix"),
        (out_of_range(lambda m: m.indptr.__setitem__(2, 10**6)), "not a valid matrix"),
        (out_of_range(lambda m: m.indptr.__setitem__(2, 5)), "not a valid matrix"),
        (sp.csr_matrix((6, 2**31), dtype=float), "at most 2147483647"),
    ],
)
def test_refused_matrices(matrix, message):
    with pytest.raises(InputError, match=message):
        MatrixSource(matrix, LABELS)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (LABELS[:5], r"6 rows but labels of shape \(5,\)"),
        (LABELS[:, None], r"6 rows but labels of shape \(6, 1\)"),
        (3.0, r"6 rows but labels of shape \(\)"),
        (np.append(LABELS[:5], np.inf), "labels have values that are not finite"),
        (["a"] * 5 + [1.0], "labels are (text, but that of row 5|not numbers)"),
        ([None] * 6, "labels"),
        ([[1], [1, 2], 3, 4, 5, 6], "labels are not numbers"),
    ],
)
def test_refused_columns(column, message):
    with pytest.raises(InputError, match=message):
        MatrixSource(DENSE, column)
    with pytest.raises(InputError, match=message.replace("labels", "weights")):
        MatrixSource(DENSE, LABELS, column if column is not None else [])


def test_labels_that_are_missing_are_counted_or_left_out():
    labels = np.append(LABELS[:4], [np.nan, np.nan])
    with pytest.raises(InputError, match=r"2 of 6 labels are missing \(NaN\), the first in row 4"):
        MatrixSource(DENSE, labels)
    source = MatrixSource(DENSE, labels, skip_unlabelled=True)
    assert (source.n_rows, source.n_unlabelled) == (4, 2)


@pytest.mark.parametrize("labels", [["b", None, "a", "", "b", np.nan], np.array(["b", "", "a", "", "b", ""])])
def test_rows_without_a_name_for_a_label_are_left_out(labels):
    source = MatrixSource(DENSE, labels, skip_unlabelled=True)
    assert (source.n_rows, source.n_unlabelled) == (3, 3)
    assert source.label_names == ("a", "b")
    assert source.read_labels(0, 3).tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_that_float64_does_not_tell_apart_are_refused(dtype):
    matrix = sp.csr_array(np.eye(3))
    largest = np.array([2**53 - 1, 0, 1], dtype)
    assert MatrixSource(matrix, largest).read_labels(0, 3).tolist() == [2.0**53 - 1, 0.0, 1.0]
    with pytest.raises(
        InputError, match=f"an integer of 9,007,199,254,740,992 or more, {2**53 + 1} in place 0"
    ):
        MatrixSource(matrix, largest + dtype(2))


def test_missing_text_of_pandas_is_left_out():
    labels = pd.Series(["a", pd.NA, "b", ""], dtype="string")
    source = MatrixSource(sp.csr_array(np.eye(4)), labels, skip_unlabelled=True)
    assert source.n_rows == 2
    assert source.n_unlabelled == 2
    assert source.label_names == ("a", "b")


def test_whole_numbers_as_objects_keep_their_digits():
    rows = sp.eye(4, format="csr")
    assert MatrixSource(rows, np.array([3, 1, 2, 1], object), qids=np.array([1, 1, 2, 2], object)).has_qid
    for labels in ([2**53 + 1, 2**53, 5, 6], [2**70, 1, 2, 3]):
        with pytest.raises(InputError):
            MatrixSource(rows, np.array(labels, object))


def test_labels_that_are_text_where_there_are_some():
    rows = sp.eye(3, format="csr")
    with pytest.raises(
        InputError, match="labels are text, but that of row 0, from 0, is nan; give text for each"
    ):
        MatrixSource(rows, np.array([np.nan, "a", "b"], object))
