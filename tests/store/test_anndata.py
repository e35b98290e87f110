"""AnnData stores of other writers are read as they are, or refused with a reason."""

from __future__ import annotations

import json
import shutil
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from helpers.store_data import assert_same, random_rows, read_all

from ooc_svm.errors import DamageError, InputError
from ooc_svm.store import open_store, store_info, verify_store

N_ROWS = 60


def write(path, matrix, zarr_format=3, drop=(), **columns):
    """Write an AnnData store as AnnData does."""
    rng = np.random.default_rng(0)
    obs = {
        "label": rng.choice([-1, 1], N_ROWS),
        "cell_type": pd.Categorical(rng.choice(["T", "B", "NK"], N_ROWS)),
        "grade": pd.Categorical(rng.choice([0.5, 2.0], N_ROWS)),
        "flag": rng.random(N_ROWS) < 0.5,
        "qid": np.arange(N_ROWS) // 7,
        "weight": rng.random(N_ROWS),
    }
    frame = pd.DataFrame(obs | columns, index=[f"r{i}" for i in range(N_ROWS)]).drop(columns=list(drop))
    data = anndata.AnnData(matrix, obs=frame)
    previous = anndata.settings.zarr_write_format
    anndata.settings.zarr_write_format = zarr_format
    try:
        with warnings.catch_warnings(action="ignore"):  # AnnData and Zarr on their own plans
            data.write_zarr(path)
    finally:
        anndata.settings.zarr_write_format = previous
    return frame


@pytest.fixture
def matrix():
    return random_rows(1, n_rows=N_ROWS)[0]


def rewrite(path, name, content, **options):
    """Replace an array: other types, chunks, shards and codecs than AnnData chooses."""
    attributes = dict(zarr.open_array(path, path=name, mode="r").attrs)
    shutil.rmtree(path / name)
    array = zarr.create_array(
        path, name=name, shape=content.shape, dtype=content.dtype, attributes=attributes, **options
    )
    array[:] = content
    return path / name


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


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (16,), "shards": (64,)},
        {"chunks": (16,), "compressors": [zarr.codecs.GzipCodec()]},
        {"chunks": (16,), "compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
        {"chunks": (16,), "compressors": None},
    ],
)
def test_codecs_and_shards(tmp_path, matrix, options, monkeypatch):
    monkeypatch.setattr("ooc_svm.store.anndata.CHUNK_ELEMENTS", 16)
    write(tmp_path / "a", matrix)
    for name in ("data", "indices"):
        rewrite(tmp_path / "a", f"X/{name}", getattr(matrix, name), **options)
    store = open_store(tmp_path / "a")
    assert len(store.blocks) > 3
    assert_same(read_all(store), matrix)


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
    with pytest.raises(DamageError, match=f"row {row} .*strictly increasing"):
        read_all(open_store(tmp_path / "a"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(tmp_path, matrix, value):
    matrix.data[9] = value
    write(tmp_path / "a", matrix)
    with pytest.raises(DamageError, match="not finite"):
        read_all(open_store(tmp_path / "a"))


def test_what_is_no_csr_matrix_is_refused(tmp_path, matrix):
    write(tmp_path / "csc", sp.csc_matrix(matrix))
    with pytest.raises(InputError, match=r"'csc_matrix', not as 'csr_matrix'; write it as a CSR"):
        open_store(tmp_path / "csc")
    write(tmp_path / "dense", matrix.toarray())
    with pytest.raises(InputError, match="dense matrix"):
        open_store(tmp_path / "dense")


def test_labels_that_are_missing(tmp_path, matrix):
    grade = pd.Categorical([None if i == 3 else "a" for i in range(N_ROWS)])
    write(tmp_path / "a", matrix, drop=("label",), grade=grade)
    with pytest.raises(InputError, match=r"no column obs/label .* 'cell_type', 'grade'"):
        open_store(tmp_path / "a")
    with pytest.raises(InputError, match=r"row 3 of .* no label in obs/grade"):
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


@pytest.mark.fault
@pytest.mark.parametrize("codec", [zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec(cname="lz4")])
def test_frames_that_would_grow_are_refused_before_they_are_decoded(tmp_path, matrix, codec):
    write(tmp_path / "a", matrix)
    large = np.zeros(2**22, np.float32)
    folder = rewrite(tmp_path / "a", "X/data", large, chunks=(2**22,), compressors=[codec], fill_value=1)
    bomb = (folder / "c" / "0").read_bytes()
    rewrite(tmp_path / "a", "X/data", matrix.data, chunks=(64,), compressors=[codec])
    (folder / "c" / "0").write_bytes(bomb)
    with pytest.raises(DamageError, match=r"X/data/c/0 is no (zstd|blosc) frame of 256 bytes"):
        read_all(open_store(tmp_path / "a"))


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
