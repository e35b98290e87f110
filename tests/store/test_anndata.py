"""AnnData stores of other writers are read as they are, or refused with a reason."""

from __future__ import annotations

import json
import shutil

import numcodecs
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from helpers.anndata_data import N_ROWS, rewrite, write
from helpers.store_data import assert_same, random_rows, read_all
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

import ooc_svm
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError
from ooc_svm.store import open_store, store_info, verify_store


@pytest.fixture
def matrix():
    return random_rows(1, n_rows=N_ROWS)[0]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_as_written_by_anndata(tmp_path, matrix, zarr_format):
    obs = write(tmp_path / "a", matrix, zarr_format)
    store = open_store(tmp_path / "a")
    assert (store.n_rows, store.n_features, store.n_nonzeros) == (*matrix.shape, matrix.nnz)
    assert (store.value_type, store.format_version, store.label_names) == ("float32", None, None)
    assert_same(read_all(store), matrix)
    np.testing.assert_array_equal(store.read_labels(0, N_ROWS), obs["label"])
    np.testing.assert_array_equal(store.read_qids(0, N_ROWS), obs["qid"])
    np.testing.assert_array_equal(store.read_weights(0, N_ROWS), obs["weight"])
    assert store.qid_groups == 9
    assert not verify_store(tmp_path / "a").manifest
    named = open_store(tmp_path / "a", label="cell_type")
    assert [named.label_names[int(code)] for code in named.read_labels(0, N_ROWS)] == list(obs["cell_type"])
    assert store_info(named)["labels"] == obs["cell_type"].value_counts().to_dict()
    assert named.id != store.id
    for column in ("grade", "flag"):
        labels = open_store(tmp_path / "a", label=column).read_labels(0, N_ROWS)
        np.testing.assert_array_equal(labels, obs[column].astype(float))


@pytest.mark.parametrize(
    "dtype", ["int8", "uint16", "int32", "int64", "float16", "float32", "float64", "bool"]
)
def test_value_types(tmp_path, matrix, dtype):
    matrix.data = np.ceil(matrix.data * 100).astype(np.float32)
    write(tmp_path / "a", matrix)
    rewrite(tmp_path / "a", "X/data", matrix.data.astype(dtype), chunks=(50,))
    store = open_store(tmp_path / "a")
    assert store.value_type == ("float64" if dtype in ("int32", "int64", "float64") else "float32")
    matrix.data = matrix.data.astype(dtype).astype(np.float32)
    assert_same(read_all(store), matrix)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int16", "int64"])
def test_id_types(tmp_path, matrix, dtype):
    write(tmp_path / "a", matrix)
    rewrite(tmp_path / "a", "X/indices", matrix.indices.astype(dtype), chunks=(37,))
    rewrite(tmp_path / "a", "X/indptr", matrix.indptr.astype("int32"), chunks=(13,))
    assert_same(read_all(open_store(tmp_path / "a")), matrix)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_ids_never_wrap_around(tmp_path, matrix, dtype):
    write(tmp_path / "a", matrix)
    wide = matrix.indices.astype(dtype)
    wide[5] += 2**32  # as int32 it would look right
    rewrite(tmp_path / "a", "X/indices", wide)
    with pytest.raises(DamageError, match=r"X/indices holds a column id outside"):
        read_all(open_store(tmp_path / "a"))


def v2(name, **settings):
    """A codec of version 2 in an array of version 3."""
    return {"name": f"numcodecs.{name}", "configuration": settings}


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (16,), "shards": (64,)},
        {"chunks": (16,), "shards": {"shape": (64,), "index_location": "start"}},
        {"chunks": (16,), "serializer": BytesCodec(endian="big"), "compressors": [v2("zlib", level=3)]},
        {"chunks": (16,), "compressors": [v2("shuffle", elementsize=4), v2("bz2", level=3)]},
        {"chunks": (16,), "compressors": [v2("blosc", cname="zstd"), v2("gzip"), Crc32cCodec()]},
        {"chunks": (16,), "filters": [v2("delta", dtype="<i4", astype="<i8")], "compressors": [v2("lz4")]},
        {"chunks": (16,), "compressors": [GzipCodec()]},
        {"chunks": (16,), "compressors": [ZstdCodec(), Crc32cCodec()]},
        {"chunks": (16,), "compressors": None},
    ],
)
def test_codecs_and_shards(tmp_path, matrix, options, monkeypatch):
    monkeypatch.setattr("ooc_svm.store.anndata.CHUNK_ELEMENTS", 16)
    write(tmp_path / "a", matrix)
    rewrite(tmp_path / "a", "X/indices", matrix.indices, **options)
    if "filters" not in options:
        rewrite(tmp_path / "a", "X/data", matrix.data, **options)
    store = open_store(tmp_path / "a")
    assert len(store.blocks) > 3
    assert_same(read_all(store), matrix)


@pytest.mark.parametrize("codec", [None, "gzip", "zlib", "lzma", "bz2", "lz4", "zstd", "blosc"])
@pytest.mark.parametrize("dtype", ["<i4", ">i8", "<u2"])
def test_codecs_of_version_2(tmp_path, matrix, codec, dtype):
    write(tmp_path / "a", matrix, zarr_format=2)
    shutil.rmtree(tmp_path / "a" / "X" / "indices")
    filters = [numcodecs.Delta(dtype), numcodecs.Shuffle(np.dtype(dtype).itemsize)]
    filters += [numcodecs.CRC32(), numcodecs.CRC32C()]
    array = zarr.create_array(
        tmp_path / "a",
        name="X/indices",
        shape=(matrix.nnz,),
        chunks=(16,),
        dtype=dtype,
        filters=filters,
        compressors=None if codec is None else numcodecs.get_codec({"id": codec}),
        zarr_format=2,
    )
    array[:] = matrix.indices
    assert_same(read_all(open_store(tmp_path / "a")), matrix)


def test_unsorted_rows_are_sorted_and_duplicates_refused(tmp_path, matrix):
    write(tmp_path / "a", matrix)
    mixed = matrix.copy()
    for row in range(N_ROWS):
        part = slice(mixed.indptr[row], mixed.indptr[row + 1])
        mixed.indices[part], mixed.data[part] = (
            mixed.indices[part][::-1].copy(),
            mixed.data[part][::-1].copy(),
        )
    rewrite(tmp_path / "a", "X/indices", mixed.indices)
    rewrite(tmp_path / "a", "X/data", mixed.data)
    assert_same(read_all(open_store(tmp_path / "a")), matrix)
    row = int(np.argmax(np.diff(matrix.indptr)))
    twice = matrix.indices.copy()
    twice[matrix.indptr[row] + 1] = twice[matrix.indptr[row]]
    rewrite(tmp_path / "a", "X/indices", twice)
    column = twice[matrix.indptr[row]]
    with pytest.raises(InputError, match=f"row {row}, .* has column {column}, from 0, twice; call sum_dup"):
        read_all(open_store(tmp_path / "a"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(tmp_path, matrix, value):
    matrix.data[9] = value
    write(tmp_path / "a", matrix)
    row, column = int(np.searchsorted(matrix.indptr, 9, side="right")) - 1, matrix.indices[9]
    with pytest.raises(
        InputError, match=f"row {row}, .* has the value {value} in column {column}, from 0, not"
    ):
        read_all(open_store(tmp_path / "a"))


def test_what_is_no_csr_matrix_is_refused(tmp_path, matrix):
    write(tmp_path / "csc", sp.csc_matrix(matrix))
    with pytest.raises(InputError, match=r"stored by columns .* ooc-svm convert .*/csc -o NEW.zarr"):
        open_store(tmp_path / "csc")
    write(tmp_path / "none", None)
    with pytest.raises(InputError, match=r"X of .* is missing; check the path, or name a layer"):
        open_store(tmp_path / "none")


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (60, 20)},
        {"chunks": (7, 20), "compressors": [ZstdCodec(), Crc32cCodec()]},
        {"chunks": (16, 6)},
        {"chunks": (100, 7), "serializer": BytesCodec(endian="big")},
        {"chunks": (9, 6), "chunk_key_encoding": {"name": "default", "separator": "."}},
        {"chunks": (9, 6), "zarr_format": 2, "compressors": None},
        {"chunks": (9, 6), "zarr_format": 2, "order": "F"},
        {"chunks": (9, 6), "zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_dense_matrix_is_read_in_bands_of_chunks(tmp_path, matrix, options, dtype, monkeypatch):
    monkeypatch.setattr("ooc_svm.store.anndata.CHUNK_ELEMENTS", 60)
    entries = np.ceil(matrix.toarray() * 100).astype(dtype)
    write(tmp_path / "a", entries, zarr_format=options.get("zarr_format", 3))
    rewrite(tmp_path / "a", "X", entries, config={"write_empty_chunks": True}, **options)
    store = open_store(tmp_path / "a")
    assert (store.n_rows, store.n_features, store.n_nonzeros) == (*entries.shape, entries.size)
    assert store.value_type == ("float32" if dtype == "float32" else "float64")
    assert len(store.blocks) == -(-N_ROWS // {60: 12, 7: 7, 16: 12, 100: 12, 9: 9}[options["chunks"][0]])
    read = [store.read_block(span.index) for span in store.blocks]
    np.testing.assert_array_equal(np.concatenate([block.values for block in read]), entries.reshape(-1))
    assert_same(read_all(store), sp.csr_matrix(entries.astype(store.value_type)), drop_zeros=True)
    assert verify_store(tmp_path / "a").n_rows == N_ROWS
    before = store.bytes_read
    for span in store.blocks:
        store.read_block(span.index)
    announced = sum(store.block_stored_bytes(span.index) for span in store.blocks)
    assert store.bytes_read - before <= announced


@pytest.mark.fault
def test_damaged_dense_matrices(tmp_path, matrix):
    write(tmp_path / "a", matrix.toarray())
    options = {"chunks": (20, 10), "config": {"write_empty_chunks": True}}
    folder = rewrite(tmp_path / "a", "X", matrix.toarray(), **options)
    store = open_store(tmp_path / "a")
    (folder / "c" / "1" / "1").unlink()
    with pytest.raises(DamageError, match="X/c/1/1 is missing"):
        open_store(tmp_path / "a")
    with pytest.raises(DamageError, match="X/c/1/1 is missing"):
        read_all(store)
    entries = matrix.toarray()
    entries[33, 3] = np.nan
    rewrite(tmp_path / "a", "X", entries, **options)
    with pytest.raises(
        InputError, match=r"row 33, .* has the value nan in column 3, from 0, not finite; rem"
    ):
        read_all(open_store(tmp_path / "a"))
    (folder / "c" / "stray").write_bytes(b"")
    path = folder / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shape": [2**61, 20]}))
    with pytest.raises(DamageError, match="contradict"):
        open_store(tmp_path / "a")


def test_a_layer_takes_the_place_of_x(tmp_path, matrix):
    counts = sp.csr_matrix(np.ceil(matrix.toarray() * 10))
    write(
        tmp_path / "a", matrix, layers={"counts": counts, "dense": counts.toarray(), "cols": counts.tocsc()}
    )
    assert_same(read_all(open_store(tmp_path / "a")), matrix)
    assert open_store(tmp_path / "a", layer="X").id == open_store(tmp_path / "a").id
    layer = open_store(tmp_path / "a", layer="counts")
    assert layer.id != open_store(tmp_path / "a").id
    assert_same(read_all(layer), counts)
    assert_same(read_all(open_store(tmp_path / "a", layer="dense")), counts, drop_zeros=True)
    with pytest.raises(InputError, match=r"layers/cols of .* stored by columns.*/a -o NEW.zarr --layer cols"):
        open_store(tmp_path / "a", layer="cols")
    for name in ("raw", "../X", "counts/data"):
        with pytest.raises(InputError, match=r"no layer .*'cols', 'counts', 'dense'"):
            open_store(tmp_path / "a", layer=name)


def test_labels_that_are_missing(tmp_path, matrix):
    grade = pd.Categorical([None if i == 3 else "a" for i in range(N_ROWS)])
    write(tmp_path / "a", matrix, drop=("label",), grade=grade)
    with pytest.raises(InputError, match=r"no column obs/label .* 'cell_type', 'grade'"):
        open_store(tmp_path / "a")
    with pytest.raises(InputError, match=r"1 of 60 rows .* no label in obs/grade, the first is row 3;"):
        open_store(tmp_path / "a", label="grade")
    with pytest.raises(InputError, match="no column"):
        open_store(tmp_path / "a", label="../X")


@pytest.mark.fault
@pytest.mark.parametrize("name", ["X/data", "X/indices", "X/indptr", "obs/label"])
def test_lost_chunks(tmp_path, matrix, name):
    write(tmp_path / "a", matrix)
    rewrite(tmp_path / "a", name, zarr.open_array(tmp_path / "a", path=name, mode="r")[:], chunks=(20,))
    store = open_store(tmp_path / "a")
    (tmp_path / "a" / name / "c" / "1").unlink()
    with pytest.raises(DamageError, match=f"{name}/c/1 is missing"):
        open_store(tmp_path / "a")
    with pytest.raises(DamageError, match=f"{name}/c/1 is missing"):
        store.read_labels(0, N_ROWS) if name == "obs/label" else read_all(store)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codecs": [{"name": "pickle"}]}, "codec 'pickle'"),
        ({"data_type": "complex64"}, "data type 'complex64'"),
        ({"shape": [2, 3]}, "2 dimensions"),
        ({"shape": [-1]}, "contradict"),
        ({"shape": [10**15]}, r"is missing \(and \d+ more\)"),
        ({"shape": "x"}, "shape 'x'"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2**40]}}}, "limit of 2 GiB"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}}, "contradict"),
        ({"chunk_grid": None}, "malformed"),
        ({"node_type": "group"}, "not an array"),
    ],
)
def test_metadata_is_checked_before_zarr_sees_it(tmp_path, matrix, change, message):
    write(tmp_path / "a", matrix)
    path = tmp_path / "a" / "X" / "data" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DamageError, match=message):
        open_store(tmp_path / "a")


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_labels_that_float64_does_not_tell_apart(tmp_path, matrix, dtype):
    numbers = (np.arange(N_ROWS) % 2).astype(dtype)
    numbers[33] = 2**53 + 1
    write(tmp_path / "a", matrix, label=numbers, category=pd.Categorical(numbers))
    rewrite(tmp_path / "a", "obs/label", numbers, chunks=(20,))
    with pytest.raises(InputError, match=r"a/obs/label has an integer .* 9007199254740993 in place 33, from"):
        open_store(tmp_path / "a")
    with pytest.raises(InputError, match=r"obs/category/categories has an integer .* in place 2, from 0"):
        open_store(tmp_path / "a", label="category")
    assert not open_store(tmp_path / "a", unlabelled="keep").has_labels
    numbers[33] = 2**53 - 1
    rewrite(tmp_path / "a", "obs/label", numbers, chunks=(20,))
    assert open_store(tmp_path / "a").read_labels(33, 34).tolist() == [2.0**53 - 1]


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_bad_input(tmp_path, matrix, value):
    weights, labels = np.ones(N_ROWS), np.arange(N_ROWS) % 2.0
    weights[[3, 33]] = value
    labels[[2, 3]] = np.nan
    write(tmp_path / "a", matrix, weight=weights, label=labels)
    message = f"row {{}}, from 0, of .*a has the weight {value} in obs/weight, not finite; remove that row"
    with pytest.raises(InputError, match=message.format(3)):
        open_store(tmp_path / "a", unlabelled="keep").read_weights(0, N_ROWS)
    labelled = open_store(tmp_path / "a", unlabelled="skip")
    assert labelled.read_weights(0, 31).tolist() == [1.0] * 31
    with pytest.raises(InputError, match=message.format(33)):
        labelled.read_weights(0, N_ROWS - 2)
    with pytest.raises(InputError, match=message.format(33)):
        ooc_svm.train(tmp_path / "a", unlabelled="skip")


def test_weights_and_queries_that_are_categories(tmp_path, matrix):
    numbers = np.arange(N_ROWS) // 5
    write(tmp_path / "a", matrix, weight=pd.Categorical(numbers), qid=pd.Categorical(numbers))
    store = open_store(tmp_path / "a")
    np.testing.assert_array_equal(store.read_weights(3, 20), numbers[3:20])
    np.testing.assert_array_equal(store.read_qids(3, 20), numbers[3:20])
    assert store.read_qids(3, 20).dtype == np.int64
    assert store.qid_groups == len(np.unique(numbers))
    assert "not used" not in (store.remark or "")


def test_weights_and_queries_that_are_missing(tmp_path, matrix):
    numbers = pd.Categorical([None if i == 7 else i // 5 for i in range(N_ROWS)])
    write(tmp_path / "a", matrix, weight=numbers)
    with pytest.raises(InputError, match=r"row 7, from 0, .* has the weight nan in obs/weight"):
        open_store(tmp_path / "a").read_weights(0, N_ROWS)
    write(tmp_path / "b", matrix, qid=numbers)
    with pytest.raises(InputError, match=r"row 7, from 0, has no number in .*obs/qid"):
        open_store(tmp_path / "b")


@pytest.mark.parametrize("entries", [["heavy"] * N_ROWS, pd.Categorical(["heavy"] * N_ROWS), [2] * N_ROWS])
def test_weights_that_are_no_plain_numbers_are_told(tmp_path, matrix, entries):
    weight = pd.array(entries, "Int64") if entries[0] == 2 else entries
    write(tmp_path / "a", matrix, weight=weight)
    store = open_store(tmp_path / "a")
    assert not store.has_weight
    assert "obs/weight" in store.remark
    assert "is not used: its entries are no plain numbers" in store.remark
    with pytest.raises(
        InputError, match=r"^obs/weight of .*a has no plain numbers \(nullable ones are none\)"
    ):
        ooc_svm.train(tmp_path / "a")
    model = ooc_svm.train(matrix, np.arange(N_ROWS) % 2)
    assert len(model.predict(tmp_path / "a")) == N_ROWS


def test_queries_that_are_no_whole_numbers(tmp_path, matrix):
    write(tmp_path / "a", matrix, qid=np.arange(N_ROWS) // 5 + 0.5)
    assert ooc_svm.train(tmp_path / "a", max_passes=1).report["passes"] == 1
    with pytest.raises(InputError, match=r"^obs/qid of .*a has no plain whole numbers"):
        ooc_svm.train(tmp_path / "a", problem="ranking")


def test_chunks_longer_than_their_array_are_in_the_plans(tmp_path, matrix):
    frame = write(tmp_path / "a", matrix)
    model = ooc_svm.train(tmp_path / "a", memory="350MB", threads=1)
    assert open_store(tmp_path / "a").parts.decoding_nbytes == 0
    rewrite(tmp_path / "a", "obs/label", frame["label"].to_numpy().astype(float), chunks=(40_000_000,))
    extra = open_store(tmp_path / "a").parts.decoding_nbytes
    assert 180e6 < extra < 200e6
    with pytest.raises(MemoryBudgetError, match=r"training needs .* allowed are 350 MB"):
        ooc_svm.train(tmp_path / "a", memory="350MB", threads=1)
    with pytest.raises(MemoryBudgetError, match="rows being read 186 MB"):
        ooc_svm.predict(model, tmp_path / "a", memory="450MB")
    assert len(ooc_svm.predict(model, tmp_path / "a", memory="700MB")) == N_ROWS
