"""Rows that are held make the store that is written, which is on the disk only where it has to be."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, fields

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.store_data import from_lengths
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import InputError, StorageError, UsageError
from ooc_svm.store import StoreWriter, held_blocks, open_store
from ooc_svm.store.held_store import HeldRows

EVERYTHING = 10**9
SIZES = {"chunk_elements": 7, "chunk_rows": 5, "block_chunks": 2, "block_rows": 6}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(held_blocks, "_USUAL_ELEMENTS", 3)  # arrays grow


def batches(matrix, size=11, labels=None, qids=None, weights=None):
    """All rows with their columns, so many at a time."""
    for start in range(0, matrix.shape[0], size):
        own = slice(start, start + size)
        some = matrix[own]
        rows = RowBlock(0, some.indptr.astype(np.int64), some.indices.astype(np.int32), some.data)
        every = np.arange(matrix.shape[0]) % 3.0 if labels is None else labels
        label, qid, weight = (None if column is None else column[own] for column in (every, qids, weights))
        yield LabelledRows(rows, label, qid), weight


def held(path, matrix, most_bytes=EVERYTHING, commit=None, size=11, columns=None, **options):
    """The store of rows, held as far as they fit; and the same store, written."""
    details, made = {"n_features": matrix.shape[1], "provenance": {"from": "here"}} | (commit or {}), []
    with HeldRows(most_bytes, False, path / "held", durable=False, **options) as rows:
        for batch in batches(matrix, size, **columns or {}):
            rows.append(*batch)
        made.append(rows.commit(**details))
    assert rows.path == made[0].path == path / "held"
    with StoreWriter(path / "written", durable=False, **options) as writer:
        for batch in batches(matrix, 4, **columns or {}):
            writer.append(*batch)
        made.append(writer.commit(**details))
    differ = {"path", "id", "shared_id", "n_chunks", "n_bytes"}
    one, other = ({name: known[name] for name in known.keys() - differ} for known in map(asdict, made))
    assert one == other
    return rows.store(), open_store(path / "written")


def assert_same(store, other):
    """The same rows and columns, with the same types."""
    spans = [[(span.start, span.stop, span.n_nonzeros) for span in each.blocks] for each in (store, other)]
    assert spans[0] == spans[1]
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
    bytes_of_rows = 40 * len(lengths) + (4 + matrix.dtype.itemsize) * matrix.nnz
    assert (path / "held").exists() == (bytes_of_rows > most_bytes)
    assert_same(store, written)
    assert store.id == store.shared_id == written.id
    assert (path / "held").exists()
    assert (store.n_chunks, store.n_bytes) == (written.n_chunks, written.n_bytes)
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
    assert store.bytes_read == store.writing_seconds == 0
    assert sum(map(store.block_stored_bytes, blocks)) == 0
    assert not (tmp_path / "held").exists()


def test_it_is_written_when_blocks_are_dropped(tmp_path):
    store, written = held(tmp_path, some_rows(), **SIZES)
    store.hold_only({1, 3})
    assert_same(store, written)
    assert store.writing_seconds > 0
    read = [span.index for span in store.blocks if store.block_stored_bytes(span.index)]
    assert read == [span.index for span in store.blocks if span.index not in (1, 3)]
    assert store.bytes_read > 0
    assert open_store(tmp_path / "held").id == written.id


@pytest.mark.parametrize("most_bytes", [EVERYTHING, 2500, 0])
def test_columns_and_names_are_held_too(tmp_path, most_bytes):
    n_rows, names = 40, ["pear", "apple", "fig"]
    rows = np.arange(n_rows)
    columns = {"labels": rows % 3.0, "qids": rows // 4, "weights": rows / 8.0}
    features = [f"f{number}" for number in range(20)]
    options = {"named_labels": True, "feature_names": features, "provenance": {"by": "me"}, **SIZES}
    commit = {"label_names": names, "n_features": None}
    store, written = held(tmp_path, some_rows(n_rows), most_bytes, commit, columns=columns, **options)
    is_written = most_bytes < EVERYTHING
    assert (tmp_path / "held").exists() == is_written
    beside = [own.nbytes - other.nbytes for own, other in zip(store.blocks, written.blocks, strict=True)]
    assert beside == [0 if is_written else 24 * span.n_rows for span in store.blocks]
    assert_same(store, written)
    assert list(store.feature_names) == list(written.feature_names) == features
    assert store.label_names == ("apple", "fig", "pear")
    assert store.read_labels(0, 3).tolist() == [2.0, 0.0, 1.0]
    assert store.provenance == {"by": "me", "from": "here"}


@pytest.mark.parametrize("most_bytes", [EVERYTHING, 0])
def test_the_number_of_columns_follows_from_the_rows(tmp_path, most_bytes):
    matrix = some_rows()[:, :17]
    matrix.eliminate_zeros()
    store, written = held(tmp_path, matrix, most_bytes, {"n_features": None}, **SIZES)
    assert store.n_features == written.n_features == matrix.indices.max() + 1


def test_sets_of_labels_need_the_newer_format(tmp_path):
    columns = {"labels": np.arange(40) % 2.0}
    store, written = held(
        tmp_path, some_rows(), commit={"label_names": ["1", "1,2"]}, columns=columns, label_sets=True, **SIZES
    )
    assert store.format_version == written.format_version
    assert_same(store, written)


def refusal(rows, batch):
    """What is said of rows that are refused."""
    with pytest.raises(InputError) as refused:
        rows.append(*batch)
    return str(refused.value)


def test_rows_are_refused_as_a_writer_refuses_them(tmp_path):
    infinite, huge = some_rows(), some_rows().astype(np.float64)
    infinite.data[5], huge.data[5] = np.inf, 1e300
    labels = np.arange(40.0)
    labels[2] = np.nan
    bad = [
        next(batches(infinite)),
        next(batches(huge)),
        next(batches(some_rows(), labels=labels)),
        next(batches(some_rows(), qids=np.arange(40))),  # which begin late
    ]
    with HeldRows(EVERYTHING, False, tmp_path / "s") as rows, StoreWriter(tmp_path / "s") as writer:
        for each in (rows, writer):
            each.append(*next(batches(some_rows())))
        for batch in bad:
            assert refusal(rows, batch) == refusal(writer, batch)
        assert rows.commit().n_rows == writer.commit().n_rows == 11
    assert_same(rows.store(), open_store(tmp_path / "s"))


@pytest.mark.parametrize("names", [["1"], ["1", "1"], None])
def test_names_that_are_not_those_of_the_labels(tmp_path, names):
    with HeldRows(EVERYTHING, False, tmp_path / "s", named_labels=True) as rows:
        rows.append(*next(batches(some_rows())))
        with pytest.raises(UsageError, match=r"label_names are for named_labels=True"):
            rows.commit(label_names=names)


def test_no_rows(tmp_path):
    rows = HeldRows(EVERYTHING, False, tmp_path / "s")
    with rows, pytest.raises(InputError, match=r"there are no rows to write to .*/s"):
        rows.commit()


def test_what_is_not_committed_is_removed(tmp_path):
    with HeldRows(0, False, tmp_path / "s", durable=False) as rows:
        rows.append(*next(batches(some_rows())))
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_the_place_is_the_one_at_the_start(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with HeldRows(EVERYTHING, False, "s") as rows:
        rows.append(*next(batches(some_rows())))
        rows.commit()
    monkeypatch.chdir("elsewhere")
    assert rows.store().id == open_store(tmp_path / "s").id


@pytest.mark.fault
def test_a_full_disk_when_it_is_written_late(tmp_path, monkeypatch):
    store, written = held(tmp_path, some_rows(), **SIZES)
    full = []

    def write_fully(descriptor, content):
        full.append(len(content))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("ooc_svm.store.fsync.write_fully", write_fully)
        with pytest.raises(StorageError, match=r"writing .*/held failed: No space left"):
            store.hold_only(())
    assert full
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
    assert_same(store, written)  # which are held as before
    store.hold_only(())
    assert_same(store, written)
    assert store.id == written.id


def test_options_are_those_of_a_writer(tmp_path):
    with pytest.raises(UsageError, match="dtype"):
        HeldRows(EVERYTHING, False, tmp_path / "s", dtype="int8")
