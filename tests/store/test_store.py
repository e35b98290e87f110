"""Round trips: what is appended is what is read, in every cut into batches, chunks and blocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anndata
import numpy as np
import pytest
import zarr
from helpers.store_data import SMALL, assert_same, from_lengths, labelled, random_rows, read_all, write_store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import DamageError, InputError, UsageError
from ooc_svm.store import BlockBuffers, StoreWriter, layout, open_store, store_info, verify_store
from ooc_svm.store.chunk_files import ChunkFiles


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """Thousands of tiny files: forcing each to the disk is tested elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize(
    "lengths",
    [
        [3],
        [0],
        [0, 0, 0, 5, 0, 0],
        [7, 7, 7, 7],
        [7, 0, 0, 7, 0, 14, 0, 0],
        [40],
        [1, 60, 0, 2, 45, 0],
        [0] * 80,
        [1] + [0] * 60 + [6] + [0] * 40,
        [14, 0, 0, 0, 1],
        [6, 15, 0, 7, 20, 1, 1],
        [13, 2, 13, 2],
    ],
)
def test_cuts(tmp_path, lengths, ones):
    matrix = from_lengths(lengths, 64, ones)
    labels = np.arange(len(lengths), dtype=float)
    write_store(tmp_path / "s", matrix, labels, batches=(1, 2, 5))
    store = open_store(tmp_path / "s")
    assert_same(read_all(store), matrix)
    np.testing.assert_array_equal(store.read_labels(0, len(lengths)), labels)
    assert store.value_type == ("ones" if ones or not sum(lengths) else "float32")
    verify_store(tmp_path / "s")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=25),
    batches=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    chunk=st.integers(1, 20),
    block_chunks=st.integers(1, 4),
    block_rows=st.integers(1, 8),
    threads=st.integers(1, 2),
    ones=st.booleans(),
)
def test_any_cut_is_the_identity(
    tmp_path_factory, lengths, batches, chunk, block_chunks, block_rows, threads, ones
):
    path = tmp_path_factory.mktemp("any") / "s"
    matrix = from_lengths(lengths, 32, ones)
    write_store(
        path,
        matrix,
        np.zeros(len(lengths)),
        batches=batches,
        chunk_elements=chunk,
        block_chunks=block_chunks,
        block_rows=block_rows,
        threads=threads,
    )
    assert_same(read_all(open_store(path)), matrix)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_and_metadata(tmp_path, dtype):
    matrix, labels = random_rows(1, dtype=np.dtype(dtype))
    qids, weights = np.arange(30) // 4, np.linspace(0, 2, 30)
    write_store(
        tmp_path / "s", matrix, labels, qids, weights=weights, dtype=dtype, index_base=0, provenance={"a": 1}
    )
    store = open_store(tmp_path / "s")
    assert (store.n_rows, store.n_features, store.n_nonzeros) == (*matrix.shape, matrix.nnz)
    assert (store.value_type, store.index_base, store.has_qid, store.has_weight) == (dtype, 0, True, True)
    assert store.provenance == {"a": 1}
    assert store.qid_groups == 8
    assert store.labels.counts == {-1.0: int((labels == -1).sum()), 1.0: int((labels == 1).sum())}
    assert store.label_runs == 1 + int((labels[1:] != labels[:-1]).sum())
    np.testing.assert_array_equal(store.read_qids(3, 17), qids[3:17])
    np.testing.assert_array_equal(store.read_weights(3, 17), weights[3:17])
    np.testing.assert_array_equal(store.read_labels(29, 30), labels[29:])
    assert_same(read_all(store), matrix)
    verify_store(tmp_path / "s")


def test_default_sizes(tmp_path):
    matrix, labels = random_rows(2, n_rows=50)
    with StoreWriter(tmp_path / "s") as writer:
        writer.append(labelled(matrix, labels))
        written = writer.commit()
    store = open_store(tmp_path / "s")
    assert_same(read_all(store), matrix[:, : store.n_features])
    assert store.n_features == matrix.indices.max() + 1
    assert (written.id, written.n_rows, written.value_type) == (store.id, 50, "float32")
    assert [span.n_rows for span in store.blocks] == [50]


def test_values_that_start_as_ones(tmp_path):
    matrix, labels = random_rows(3, n_rows=40)
    matrix.data[: matrix.indptr[25]] = 1
    write_store(tmp_path / "s", matrix, labels, batches=(5,))
    assert_same(read_all(open_store(tmp_path / "s")), matrix)
    verify_store(tmp_path / "s")


def test_anndata_reads_it(tmp_path):
    for ones in (False, True):
        path = tmp_path / f"s{ones}"
        matrix, labels = random_rows(4, ones=ones)
        write_store(path, matrix, labels, np.arange(30))
        with pytest.warns(anndata.ImplicitModificationWarning, match="str index"):
            data = anndata.read_zarr(path)
        assert_same(data.X, matrix)
        np.testing.assert_array_equal(data.obs["label"], labels)
        np.testing.assert_array_equal(data.obs["qid"], np.arange(30))
        assert list(data.var_names) == [str(number) for number in range(1, 21)]
        assert json.loads(data.uns["ooc_svm"]["header"].tobytes())["n_rows"] == 30


def test_each_chunk_is_fetched_once_in_a_pass(tmp_path, monkeypatch):
    matrix, labels = random_rows(5, n_rows=60, density=0.5)
    write_store(tmp_path / "s", matrix, labels)
    store = open_store(tmp_path / "s")
    fetched = Counter()
    decode = ChunkFiles._decode

    def counting(self, index, out):
        fetched[self._info.key(index)] += 1
        decode(self, index, out)

    monkeypatch.setattr(ChunkFiles, "_decode", counting)
    before = store.bytes_read
    read_all(store)
    n_chunks = -(-matrix.nnz // SMALL["chunk_elements"])
    assert n_chunks > 80
    assert len(store.blocks) > 20
    for name in ("indices", "data"):
        assert {key: n for key, n in fetched.items() if key.startswith(f"X/{name}/c/")} == {
            f"X/{name}/c/{index}": 1 for index in range(n_chunks)
        }
    tails = sum(
        fetched[str(path.relative_to(tmp_path / "s"))] * path.stat().st_size
        for path in (tmp_path / "s" / "uns").glob("ooc_svm/tail_*/c/*")
    )
    stored = sum(store.block_stored_bytes(span.index) for span in store.blocks)
    assert store.bytes_read - before == stored + tails


@pytest.mark.parametrize("ones", [False, True])
def test_a_block_is_announced_before_it_is_read(tmp_path, monkeypatch, ones):
    matrix, labels = random_rows(5, n_rows=60, density=0.5, ones=ones)
    write_store(tmp_path / "s", matrix, labels)
    store = open_store(tmp_path / "s")
    events, decode, advise = [], ChunkFiles._decode, os.posix_fadvise

    def decoding(self, index, out):
        events.append(("read", self._info.key(index)))
        decode(self, index, out)

    def advising(descriptor, *arguments):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(("announced", str(path.relative_to(tmp_path / "s"))))
        advise(descriptor, *arguments)

    monkeypatch.setattr(ChunkFiles, "_decode", decoding)
    monkeypatch.setattr(os, "posix_fadvise", advising)
    names = ("X/indices/c/",) if ones else ("X/indices/c/", "X/data/c/")
    for span in store.blocks:
        events.clear()
        store.read_block(span.index)
        elements = [event for event in events if event[1].startswith(names)]
        announced = [key for kind, key in elements if kind == "announced"]
        assert elements == [("announced", key) for key in announced] + [("read", key) for key in announced]
        assert bool(announced) == (span.n_nonzeros > 0)


def test_a_system_that_takes_no_advice(tmp_path, monkeypatch):
    matrix, labels = random_rows(5)
    write_store(tmp_path / "s", matrix, labels)
    monkeypatch.delattr(os, "posix_fadvise")
    assert_same(read_all(open_store(tmp_path / "s")), matrix)


def test_all_ones_never_fetches_values(tmp_path):
    matrix, labels = random_rows(6, ones=True)
    write_store(tmp_path / "s", matrix, labels)
    store = open_store(tmp_path / "s")
    for path in (tmp_path / "s" / "X" / "data" / "c").iterdir():
        path.unlink()
    assert_same(read_all(store), matrix)


def test_buffers_are_reused_and_checked(tmp_path):
    matrix, labels = random_rows(7)
    write_store(tmp_path / "s", matrix, labels)
    store = open_store(tmp_path / "s")
    buffers = store.new_buffers()
    block = store.read_block(0, buffers)
    assert np.shares_memory(block.indices, buffers.indices)
    assert np.shares_memory(block.values, buffers.values)
    assert np.shares_memory(block.indptr, buffers.indptr)
    with pytest.raises(UsageError, match="smaller than block 0"):
        store.read_block(0, BlockBuffers(0, 0, np.float32))


def test_threads_read_the_same(tmp_path):
    matrix, labels = random_rows(8, n_rows=80)
    write_store(tmp_path / "s", matrix, labels)
    store = open_store(tmp_path / "s")
    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(lambda span: store.read_block(span.index), store.blocks))
    np.testing.assert_array_equal(np.concatenate([block.indices for block in blocks]), matrix.indices)
    np.testing.assert_array_equal(np.concatenate([block.values for block in blocks]), matrix.data)


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_bytes_do_not_depend_on_batches_threads_or_time(tmp_path):
    matrix, labels = random_rows(9)
    labels = labels + np.linspace(0, 1, 30)
    options = {"provenance": {"created": "x"}}
    write_store(tmp_path / "a", matrix, labels, batches=(30,), threads=1, **options)
    write_store(tmp_path / "b", matrix, labels, batches=(1, 4), threads=2, **options)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    write_store(tmp_path / "c", matrix, labels, provenance={"created": "y"})
    first, second = files_of(tmp_path / "a"), files_of(tmp_path / "c")
    different = {name for name in first if first[name] != second[name]}
    assert different == {"zarr.json", "uns/ooc_svm/header/c/0"}
    assert open_store(tmp_path / "a").id == open_store(tmp_path / "c").id
    labels[3] += 1
    write_store(tmp_path / "d", matrix, labels)
    assert open_store(tmp_path / "a").id != open_store(tmp_path / "d").id


def test_info(tmp_path):
    matrix, labels = random_rows(10)
    write_store(tmp_path / "s", matrix, labels)
    store = open_store(tmp_path / "s")
    info = store_info(store)
    assert info["labels"] == {"-1": int((labels == -1).sum()), "1": int((labels == 1).sum())}
    assert set(info) == {
        *("n_rows", "n_features", "n_nonzeros", "labels", "qid_groups", "bytes", "chunks", "format_version")
    }
    listed = [f for f in files_of(tmp_path / "s") if "/c/" in f]
    own = [f for f in listed if f.split("/")[2] in ("header", "chunk_sizes", "chunk_checksums")]
    assert info["chunks"] == len(listed) - len(own)
    json.dumps(info)


def test_many_labels_are_summarised(tmp_path):
    matrix, _ = random_rows(11, n_rows=1200, density=0.01)
    labels = np.arange(1200) / 8
    write_store(
        tmp_path / "s", matrix, labels, batches=(500,), chunk_elements=100, chunk_rows=300, block_rows=400
    )
    labels_of = store_info(open_store(tmp_path / "s"))["labels"]
    assert labels_of == {"min": 0.0, "max": labels[-1], "mean": labels.mean()}
    verify_store(tmp_path / "s")


def test_more_than_two_to_the_31_nonzeros_in_the_cut():
    from ooc_svm.store.blocks import BlockCutter

    cutter = BlockCutter(2**20, 4, 2**19)
    starts = np.arange(0, 2**33, 2**21, dtype=np.int64)
    tails = cutter.add(starts, 2**33)
    rows, nonzeros = cutter.finish()
    assert nonzeros[-1] == 2**33
    np.testing.assert_array_equal(np.diff(nonzeros), 2**22)
    assert all(start == end for start, end in tails)
    assert rows[-1] == len(starts)


def rows_of(indptr, indices, values=None):
    values = np.ones(len(indices), np.float64) if values is None else np.array(values, np.float64)
    block = RowBlock(0, np.array(indptr, np.int64), np.array(indices, np.int32), values)
    return LabelledRows(block, np.zeros(len(indptr) - 1))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (rows_of([0, 2], [3, 3]), "row 0 .*strictly increasing"),
        (rows_of([0, 1, 3], [0, 3, 2]), "row 1 .*strictly increasing"),
        (rows_of([0, 1], [20]), "row 0 .*outside"),
        (rows_of([0, 1], [-1]), "row 0 .*outside"),
        (rows_of([0, 2, 1], [1, 2]), "row pointers"),
        (rows_of([0, 2, 3], [1, 2]), "row pointers"),
        (rows_of([0, 1, 2], [1, 2], [1, np.nan]), "row 1 .*not finite"),
        (
            rows_of([0, 1], [1], [1e39]),
            "row 0, column 1, .* has the value 1e.39, beyond the range of float32",
        ),
    ],
)
def test_rows_that_break_the_rules_are_not_written(tmp_path, rows, message):
    with StoreWriter(tmp_path / "s", n_features=20) as writer, pytest.raises(InputError, match=message):
        writer.append(rows)
    assert list(tmp_path.iterdir()) == []


def test_columns_that_break_the_rules_are_not_written(tmp_path):
    matrix, labels = random_rows(12)
    with StoreWriter(tmp_path / "s") as writer:
        with pytest.raises(InputError, match="row 4 has the label nan"):
            writer.append(labelled(matrix, np.where(np.arange(30) == 4, np.nan, labels)))
        writer.append(labelled(matrix, labels))
        with pytest.raises(InputError, match="from row 30 on, qids"):
            writer.append(labelled(matrix, labels, qids=np.arange(30)))
        with pytest.raises(InputError, match="from row 30 on"):
            writer.append(labelled(matrix, labels), weight=np.ones(30))
    with StoreWriter(tmp_path / "s") as writer, pytest.raises(InputError, match="no rows"):
        writer.commit()
    assert list(tmp_path.iterdir()) == []


def test_options_that_contradict(tmp_path):
    for options in ({"dtype": "int8"}, {"index_base": 2}, {"n_features": 2**31}, {"threads": 0}):
        with pytest.raises(UsageError):
            StoreWriter(tmp_path / "s", **options)
    with pytest.raises(InputError, match="does not exist"):
        open_store(tmp_path / "s")
    (tmp_path / "text").write_text("1 1:1\n")
    with pytest.raises(InputError, match="is a file"):
        open_store(tmp_path / "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="not a Zarr store"):
        open_store(tmp_path / "folder")


def test_reads_outside_the_rows_are_refused(tmp_path):
    matrix, labels = random_rows(13)
    write_store(tmp_path / "s", matrix, labels)
    store = open_store(tmp_path / "s")
    with pytest.raises(UsageError, match="not within the 30 rows"):
        store.read_labels(0, 31)
    with pytest.raises(UsageError, match="no column obs/qid"):
        store.read_qids(0, 1)
    with pytest.raises(InputError, match="no column obs/other"):
        open_store(tmp_path / "s", label="other")


def test_importing_the_package_imports_neither_zarr_nor_numba():
    code = "import ooc_svm.store, sys; assert not {'zarr', 'numba', 'anndata'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


class TestRowPointers:
    """They are of four bytes where they fit, as libraries that take no 64-bit indices need them."""

    def test_scikit_learn_takes_what_anndata_reads(self, tmp_path):
        matrix, labels = random_rows(3)
        write_store(tmp_path / "s", matrix, labels)
        with warnings.catch_warnings(action="ignore"):
            read = anndata.read_zarr(tmp_path / "s")
        assert (read.X.indptr.dtype, read.X.indices.dtype) == (np.int32, np.int32)
        svm = LinearSVC().fit(read.X, read.obs["label"])
        np.testing.assert_array_equal(svm.coef_, LinearSVC().fit(matrix, labels).coef_)

    @pytest.mark.parametrize("largest", [0, 1, 40, 100])
    def test_all_are_wide_where_one_does_not_fit(self, tmp_path, monkeypatch, largest):
        matrix, labels = random_rows(4)
        assert matrix.nnz > 100
        monkeypatch.setattr(layout, "LARGEST_NARROW", largest)
        write_store(tmp_path / "s", matrix, labels)
        write_store(tmp_path / "other", matrix, labels, batches=(1, 3))
        assert zarr.open_array(tmp_path / "s" / "X" / "indptr", mode="r").dtype == np.int64
        store = open_store(tmp_path / "s")
        assert_same(read_all(store), matrix)
        assert store.id == open_store(tmp_path / "other").id
        assert verify_store(tmp_path / "s").manifest
        monkeypatch.undo()
        with pytest.raises(DamageError, match="malformed"):
            open_store(tmp_path / "s")
