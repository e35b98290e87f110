"""Rows that are held make the store that is written, which is on the disk only where it has to be."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict

import numpy as np
import pytest
from helpers.store_data import SMALL, assert_same_block, from_lengths, in_batches, random_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.errors import InputError, StorageError, UsageError
from ooc_svm.store import StoreWriter, held_blocks, open_store
from ooc_svm.store.held_store import HeldRows

EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(held_blocks, "_USUAL_ELEMENTS", 3)  # arrays grow


def first_rows(matrix, labels=None, qids=None):
    """The first rows of a matrix."""
    return next(in_batches(matrix, np.arange(matrix.shape[0]) % 3.0 if labels is None else labels, qids))


def held(path, matrix, most_bytes=EVERYTHING, commit=None, size=11, columns=None, **options):
    """The store of rows, held as far as they fit; and the same store, written."""
    details, made = {"n_features": matrix.shape[1], "provenance": {"from": "here"}} | (commit or {}), []
    options |= {"durable": False}
    columns = {"labels": np.arange(matrix.shape[0]) % 3.0} | (columns or {})
    with HeldRows(path / "held", most_bytes=most_bytes, write_always=False, **options) as rows:
        for batch in in_batches(matrix, batches=(size,), **columns):
            rows.append(*batch)
        made.append(rows.commit(**details))
    assert rows.path == made[0].path == path / "held"
    with StoreWriter(path / "written", **options) as writer:
        for batch, weight in in_batches(matrix, batches=(4,), **columns):
            writer.append(batch, weight=weight)
        made.append(writer.commit(**details))
    differ = {"path", "id", "shared_id", "n_chunks", "n_bytes"}
    one, other = ({name: known[name] for name in known.keys() - differ} for known in map(asdict, made))
    assert one == other
    return rows.store(), open_store(path / "written")


def assert_same(store, other):
    """The same rows and columns, with the same types."""
    assert [asdict(span) for span in store.blocks] == [asdict(span) for span in other.blocks]
    for span in store.blocks:
        assert_same_block(store.read_block(span.index), other.read_block(span.index))
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
    path, sizes = tmp_path_factory.mktemp("held"), SMALL | {"chunk_elements": chunk}
    store, written = held(path, matrix, most_bytes, size=size, dtype=dtype, **sizes)
    bytes_of_rows = 40 * len(lengths) + (4 + matrix.dtype.itemsize) * matrix.nnz
    assert (path / "held").exists() == (bytes_of_rows > most_bytes)
    assert_same(store, written)
    assert store.id == store.shared_id == written.id
    assert (path / "held").exists()
    assert (store.n_chunks, store.n_bytes) == (written.n_chunks, written.n_bytes)
    store.hold_only(())
    assert_same(store, written)


def some_rows():
    return random_rows(0, 40)[0]


def test_nothing_is_written_where_all_blocks_are_held(tmp_path):
    store, written = held(tmp_path, some_rows(), **SMALL)
    blocks = frozenset(range(len(store.blocks)))
    nbytes = sum(span.nbytes for span in store.blocks)
    store.settle(nbytes + store.columns_nbytes)
    store.hold_only(blocks)
    assert_same(store, written)
    assert store.bytes_read == store.writing_seconds == 0
    assert sum(map(store.block_stored_bytes, blocks)) == 0
    assert not (tmp_path / "held").exists()


def test_blocks_have_the_room_of_columns_that_are_written(tmp_path):
    store, written = held(tmp_path, some_rows(), **SMALL)
    assert store.columns_nbytes == 8 * 40
    nbytes = sum(span.nbytes for span in store.blocks)
    store.settle(nbytes + store.columns_nbytes - 1)
    assert store.columns_nbytes == 0
    assert open_store(tmp_path / "held").id == written.id
    assert_same(store, written)
    assert sum(store.block_stored_bytes(span.index) for span in store.blocks) == 0  # all are still held


def test_it_is_written_when_blocks_are_dropped(tmp_path):
    store, written = held(tmp_path, some_rows(), **SMALL)
    store.hold_only({1, 3})
    assert_same(store, written)
    assert store.writing_seconds > 0
    read = [span.index for span in store.blocks if store.block_stored_bytes(span.index)]
    assert read == [span.index for span in store.blocks if span.index not in (1, 3)]
    assert store.bytes_read > 0
    assert open_store(tmp_path / "held").id == written.id


@pytest.mark.parametrize("most_bytes", [EVERYTHING, 2500, 0])
def test_columns_and_names_are_held_too(tmp_path, most_bytes):
    rows, names = np.arange(40), ["pear", "apple", "fig"]
    columns = {"labels": rows % 3.0, "qids": rows // 4, "weights": rows / 8.0}
    features = [f"f{number}" for number in range(20)]
    options = {"named_labels": True, "feature_names": features, "provenance": {"by": "me"}, **SMALL}
    commit = {"label_names": names, "n_features": None}
    store, written = held(tmp_path, some_rows(), most_bytes, commit, columns=columns, **options)
    is_written = most_bytes < EVERYTHING
    assert (tmp_path / "held").exists() == is_written
    assert store.columns_nbytes == (0 if is_written else 24 * len(rows))
    assert_same(store, written)
    assert list(store.feature_names) == list(written.feature_names) == features
    assert store.label_names == ("apple", "fig", "pear")
    assert store.read_labels(0, 3).tolist() == [2.0, 0.0, 1.0]
    assert store.provenance == {"by": "me", "from": "here"}


@pytest.mark.parametrize("most_bytes", [EVERYTHING, 0])
def test_the_number_of_columns_follows_from_the_rows(tmp_path, most_bytes):
    matrix = some_rows()[:, :17]
    matrix.eliminate_zeros()
    store, written = held(tmp_path, matrix, most_bytes, {"n_features": None}, **SMALL)
    assert store.n_features == written.n_features == matrix.indices.max() + 1


def test_sets_of_labels_need_the_newer_format(tmp_path):
    columns = {"labels": np.arange(40) % 2.0}
    store, written = held(
        tmp_path, some_rows(), commit={"label_names": ["1", "1,2"]}, columns=columns, label_sets=True, **SMALL
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
        first_rows(infinite),
        first_rows(huge),
        first_rows(some_rows(), labels),
        first_rows(some_rows(), qids=np.arange(40)),  # which begin late
    ]
    with (
        HeldRows(tmp_path / "s", most_bytes=EVERYTHING, write_always=False) as rows,
        StoreWriter(tmp_path / "s") as writer,
    ):
        for each in (rows, writer):
            each.append(*first_rows(some_rows()))
        for batch in bad:
            assert refusal(rows, batch) == refusal(writer, batch)
        assert rows.commit().n_rows == writer.commit().n_rows == 11
    assert_same(rows.store(), open_store(tmp_path / "s"))


@pytest.mark.parametrize("names", [["1"], ["1", "1"], None])
def test_names_that_are_not_those_of_the_labels(tmp_path, names):
    with HeldRows(tmp_path / "s", named_labels=True, most_bytes=EVERYTHING, write_always=False) as rows:
        rows.append(*first_rows(some_rows()))
        with pytest.raises(UsageError, match=r"label_names are for named_labels=True"):
            rows.commit(label_names=names)


def test_no_rows(tmp_path):
    rows = HeldRows(tmp_path / "s", most_bytes=EVERYTHING, write_always=False)
    with rows, pytest.raises(InputError, match=r"there are no rows to write to .*/s"):
        rows.commit()


def test_what_is_not_committed_is_removed(tmp_path):
    with HeldRows(tmp_path / "s", durable=False, most_bytes=0, write_always=False) as rows:
        rows.append(*first_rows(some_rows()))
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_the_place_is_the_one_at_the_start(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with HeldRows("s", most_bytes=EVERYTHING, write_always=False) as rows:
        rows.append(*first_rows(some_rows()))
        rows.commit()
    monkeypatch.chdir("elsewhere")
    assert rows.store().id == open_store(tmp_path / "s").id


@pytest.mark.fault
def test_a_full_disk_when_it_is_written_late(tmp_path, monkeypatch):
    store, written = held(tmp_path, some_rows(), **SMALL)
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
        HeldRows(tmp_path / "s", dtype="int8", most_bytes=EVERYTHING, write_always=False)
