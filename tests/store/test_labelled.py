"""Rows of AnnData stores without a label: an error that counts them, left out, or kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.anndata_data import N_ROWS, rewrite, write
from helpers.store_data import assert_same, random_rows, read_all

from ooc_svm.errors import InputError, UsageError
from ooc_svm.store import open_store, store_info, verify_store

MISSING = np.r_[3, 4, 5, 17, np.arange(30, 45)]
"""More rows in sequence than a block has: a block without any label is left out."""


@pytest.fixture
def matrix():
    return random_rows(1, n_rows=N_ROWS)[0]


@pytest.fixture
def kept():
    return np.setdiff1d(np.arange(N_ROWS), MISSING)


def holed(matrix, path):
    """A store whose columns all lack a label in the same rows."""
    numbers = np.arange(N_ROWS) % 3.0
    numbers[MISSING] = np.nan
    names = np.array(["B", "T", "NK"])[np.arange(N_ROWS) % 3].astype(object)
    names[MISSING] = None
    texts = np.where(names == None, "", names)  # noqa: E711
    columns = {
        "number": numbers,
        "category": pd.Categorical(names),
        "empty category": pd.Categorical(texts),
        "text": texts.astype(object),
    }
    write(path, matrix, **columns)
    # So small that there are several blocks.
    rewrite(path, "X/indices", matrix.indices, chunks=(20,))
    rewrite(path, "X/data", matrix.data, chunks=(20,))
    return path


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("ooc_svm.store.anndata.BLOCK_ROWS", 7)
    monkeypatch.setattr("ooc_svm.store.anndata.BLOCK_CHUNKS", 1)
    monkeypatch.setattr("ooc_svm.store.anndata.CHUNK_ELEMENTS", 20)


COLUMNS = ["number", "category", "empty category", "text"]


@pytest.mark.parametrize("column", COLUMNS)
def test_the_error_counts_them_and_names_the_option(tmp_path, matrix, column):
    store = holed(matrix, tmp_path / "a")
    message = rf"19 of 60 rows .* no label in obs/{column}, the first is row 3; .*unlabelled='skip'"
    with pytest.raises(InputError, match=message):
        open_store(store, label=column)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("column", COLUMNS)
def test_they_are_left_out(tmp_path, matrix, kept, column):
    path = holed(matrix, tmp_path / "a")
    store = open_store(path, label=column, unlabelled="skip")
    whole = open_store(path, label=column, unlabelled="keep")
    assert 1 < len(store.blocks) < len(whole.blocks)
    rest = matrix[kept]
    assert (store.n_rows, store.n_nonzeros, store.n_unlabelled) == (len(kept), rest.nnz, len(MISSING))
    assert [span.index for span in store.blocks] == list(range(len(store.blocks)))
    buffers, parts = store.new_buffers(), []
    for span in store.blocks:
        block = store.read_block(span.index, buffers)
        assert (block.start, block.n_rows, len(block.indices)) == (span.start, span.n_rows, span.n_nonzeros)
        assert block.nbytes <= span.nbytes
        parts.append(sp.csr_matrix((block.values, block.indices, block.indptr), (span.n_rows, 20), copy=True))
    assert_same(sp.vstack(parts), rest)
    labels = store.read_labels(0, len(kept))
    if store.label_names is not None:
        assert [store.label_names[int(code)] for code in labels] == list(np.array(["B", "T", "NK"])[kept % 3])
    else:
        np.testing.assert_array_equal(labels, kept % 3)
    np.testing.assert_array_equal(store.read_labels(5, 23), labels[5:23])
    np.testing.assert_array_equal(store.read_qids(5, 23), (kept // 7)[5:23])
    assert store.qid_groups == len(np.unique(kept // 7)) < len(np.unique(np.arange(N_ROWS) // 7))
    assert store.read_row_names(2, 9) == [f"r{row}" for row in kept[2:9]]
    assert sum(store.labels.counts.values()) == len(kept)
    store.require_labels()
    numbers = [span.index for span in whole.blocks if np.isin(np.arange(span.start, span.stop), kept).any()]
    stored = [whole.block_stored_bytes(number) for number in numbers]
    assert [store.block_stored_bytes(span.index) for span in store.blocks] == stored
    with pytest.raises(UsageError, match="index"):
        store.read_block(-1)


@pytest.mark.parametrize("column", COLUMNS)
def test_they_are_kept(tmp_path, matrix, column):
    store = open_store(holed(matrix, tmp_path / "a"), label=column, unlabelled="keep")
    assert_same(read_all(store), matrix)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(store.read_labels(0, N_ROWS))), MISSING)
    assert store.n_unlabelled == len(MISSING)
    assert store_info(store)["unlabelled"] == len(MISSING)
    with pytest.raises(InputError, match="open it with unlabelled='skip'"):
        store.require_labels()


def test_a_store_without_the_column_is_read_where_labels_are_not_needed(tmp_path, matrix):
    write(tmp_path / "a", matrix, drop=["label"])
    store = open_store(tmp_path / "a", unlabelled="keep")
    assert not store.has_labels
    assert_same(read_all(store), matrix)
    with pytest.raises(UsageError, match="no column obs/label"):
        store.read_labels(0, 1)
    assert verify_store(tmp_path / "a").n_rows == N_ROWS
    assert store_info(tmp_path / "a")["labels"] == {}
    for unlabelled in ("error", "skip"):
        with pytest.raises(InputError, match="no column obs/label"):
            open_store(tmp_path / "a", unlabelled=unlabelled)
    with pytest.raises(InputError, match="no column obs/other"):
        open_store(tmp_path / "a", label="other", unlabelled="keep")


def test_a_column_that_holds_no_labels_does_no_harm_there(tmp_path, matrix):
    write(tmp_path / "a", matrix, label=pd.array([1, None] * (N_ROWS // 2), dtype="Int64"))
    with pytest.raises(InputError, match="labels are numbers, strings or categories"):
        open_store(tmp_path / "a")
    assert not open_store(tmp_path / "a", unlabelled="keep").has_labels
    assert verify_store(tmp_path / "a").n_rows == N_ROWS


def test_a_store_whose_rows_all_have_labels_is_the_same_in_all_three_ways(tmp_path, matrix):
    write(tmp_path / "a", matrix)
    stores = [open_store(tmp_path / "a", unlabelled=how) for how in ("error", "skip", "keep")]
    assert len({(store.id, store.n_rows, store.n_unlabelled, type(store)) for store in stores}) == 1
