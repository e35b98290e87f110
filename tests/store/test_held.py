"""Rows that are held make the store that is written, which is on the disk only where it has to be."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.store_data import from_lengths
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import InputError, UsageError
from ooc_svm.store import StoreWriter, kept, open_store
from ooc_svm.store.held import HeldRows

EVERYTHING = 10**9
SIZES = {"chunk_elements": 7, "chunk_rows": 5, "block_chunks": 2, "block_rows": 6}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(kept, "_USUAL_ELEMENTS", 3)  # arrays grow


def batches(matrix, size=11, labels=None, qids=None, weights=None):
    """All rows with their columns, so many at a time."""
    for start in range(0, matrix.shape[0], size):
        own = slice(start, start + size)
        some = matrix[own]
        rows = RowBlock(0, some.indptr.astype(np.int64), some.indices.astype(np.int32), some.data)
        label = np.arange(matrix.shape[0])[own] % 3.0 if labels is None else labels[own]
        yield LabelledRows(rows, label, None if qids is None else qids[own]), weights and weights[own]


def held(path, matrix, most_bytes=EVERYTHING, commit=None, size=11, columns=None, **options):
    """The store of rows, held as far as they fit; and the same store, written."""
    details, made = {"n_features": matrix.shape[1], "provenance": {"from": "here"}} | (commit or {}), []
    with HeldRows(most_bytes, path / "held", durable=False, **options) as rows:
        for batch in batches(matrix, size, **columns or {}):
            rows.append(*batch)
        made.append(rows.commit(**details))
    with StoreWriter(path / "written", durable=False, overwrite=True, **options) as writer:
        for batch in batches(matrix, 4, **columns or {}):
            writer.append(*batch)
        made.append(writer.commit(**details))
    differ = {"path", "id", "shared_id", "n_chunks", "n_bytes"}
    one, other = ({name: known[name] for name in known.keys() - differ} for known in map(asdict, made))
    assert one == other
    return rows.store(), open_store(path / "written")


def assert_same(store, other):
    """The same rows and columns, with the same types."""
    assert [asdict(span) for span in store.blocks] == [asdict(span) for span in other.blocks]
    for span in store.blocks:
        own, expected = store.read_block(span.index), other.read_block(span.index)
        for field in fields(RowBlock):
            array, wanted = getattr(own, field.name), getattr(expected, field.name)
            np.testing.assert_array_equal(array, wanted)
            assert getattr(array, "dtype", None) == getattr(wanted, "dtype", None)
    assert (store.has_qid, store.has_weight) == (other.has_qid, other.has_weight)
    for name in ("label", "qid", "weight"):
        if name == "label" or getattr(store, f"has_{name}"):
            read, expected = (getattr(each, f"read_{name}s") for each in (store, other))
            for start, stop in ((0, store.n_rows), (store.n_rows // 3, store.n_rows // 2)):
                assert read(start, stop).tobytes() == expected(start, stop).tobytes()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=30),
    size=st.integers(1, 9),
    ones=st.integers(0, 30),
    chunk=st.integers(1, 20),
    dtype=st.sampled_from(["float32", "float64"]),
    most_bytes=st.one_of(st.just(EVERYTHING), st.integers(0, 3000)),
)
def test_a_store_that_is_held_is_the_one_that_is_written(
    tmp_path_factory, lengths, size, ones, chunk, dtype, most_bytes
):
    matrix = from_lengths(lengths, 40).astype(dtype)
    # What comes first has no values, or nothing has.
    matrix.data[: matrix.indptr[min(ones, len(lengths))]] = 1
    path, sizes = tmp_path_factory.mktemp("held"), SIZES | {"chunk_elements": chunk}
    store, written = held(path, matrix, most_bytes, size=size, dtype=dtype, **sizes)
    assert (path / "held").exists() or store.columns_nbytes > 0
    assert_same(store, written)
    assert store.id == store.shared_id == written.id
    assert (path / "held").exists()
    assert store.columns_nbytes == 0
    store.hold_only(())
    assert_same(store, written)


def some_rows(n_rows=40):
    rng = np.random.default_rng(0)
    return sp.random(n_rows, 20, 0.3, format="csr", random_state=rng, dtype=np.float32)


def test_nothing_is_written_where_all_blocks_are_held(tmp_path):
    store, written = held(tmp_path, some_rows(), **SIZES)
    blocks = frozenset(range(len(store.blocks)))
    store.hold_only(blocks)
    assert_same(store, written)
    assert store.bytes_read == 0
    assert sum(map(store.block_stored_bytes, blocks)) == 0
    assert not (tmp_path / "held").exists()


def test_it_is_written_when_blocks_are_dropped(tmp_path):
    store, written = held(tmp_path, some_rows(), **SIZES)
    store.hold_only({1, 3})
    assert_same(store, written)
    read = [span.index for span in store.blocks if store.block_stored_bytes(span.index)]
    assert read == [span.index for span in store.blocks if span.index not in (1, 3)]
    assert store.bytes_read > 0
    assert open_store(tmp_path / "held").id == written.id


@pytest.mark.parametrize("most_bytes", [EVERYTHING, 2500, 0])
def test_columns_and_names_are_held_too(tmp_path, most_bytes):
    n_rows, names = 40, ["pear", "apple", "fig"]
    columns = {"labels": np.arange(n_rows) % 3.0, "qids": np.arange(n_rows) // 4}
    features = [f"f{number}" for number in range(20)]
    store, written = held(
        tmp_path,
        some_rows(n_rows),
        most_bytes,
        {"label_names": names},
        columns=columns,
        named_labels=True,
        feature_names=features,
        **SIZES,
    )
    assert (tmp_path / "held").exists() == (most_bytes < EVERYTHING)
    assert store.columns_nbytes == (16 * n_rows if most_bytes == EVERYTHING else 0)
    assert_same(store, written)
    assert list(store.feature_names) == list(written.feature_names) == features
    assert store.label_names == ("apple", "fig", "pear")
    assert store.read_labels(0, 3).tolist() == [2.0, 0.0, 1.0]
    assert store.labels == written.labels


def test_sets_of_labels_need_the_newer_format(tmp_path):
    columns = {"labels": np.arange(40) % 2.0}
    store, written = held(
        tmp_path, some_rows(), commit={"label_names": ["1", "1,2"]}, columns=columns, label_sets=True, **SIZES
    )
    assert store.format_version == written.format_version
    assert_same(store, written)


def test_rows_are_checked_before_they_are_held(tmp_path):
    matrix = some_rows()
    matrix.data[5] = np.inf
    with HeldRows(EVERYTHING, tmp_path / "s", durable=False) as rows:
        with pytest.raises(InputError, match="not finite"):
            rows.append(*next(batches(matrix)))
        with pytest.raises(InputError, match=r"row 2 has the label nan; .* is not written"):
            rows.append(*next(batches(some_rows(), labels=np.array([1.0, 2.0, np.nan] * 14))))
        with pytest.raises(InputError, match=r"there are no rows to write to .*/s"):
            rows.commit()


def test_what_is_not_committed_is_removed(tmp_path):
    with HeldRows(0, tmp_path / "s", durable=False) as rows:
        rows.append(*next(batches(some_rows())))
        assert list(tmp_path.iterdir())
    assert not [each for each in Path(tmp_path).iterdir() if not each.name.endswith(".lock")]


def test_options_are_those_of_a_writer(tmp_path):
    with pytest.raises(UsageError, match="dtype"):
        HeldRows(EVERYTHING, tmp_path / "s", dtype="int8")
