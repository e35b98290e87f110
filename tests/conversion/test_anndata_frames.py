"""The frames of AnnData files: attributes and names of all types that AnnData reads, and long text."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

import ooc_svm
from ooc_svm.conversion import anndata_frames
from ooc_svm.errors import DamageError, InputError
from ooc_svm.store import layout, open_store
from ooc_svm.store.zarr_files import StoreFiles

N_ROWS = 6
CELLS = [f"cell é{i}" for i in range(N_ROWS)]
GENES = ["g0", "g1", "g2"]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AnnData and Zarr on their own plans
        yield


def write(path, dtype=object, **columns):
    columns = {"label": [1, -1] * 3} | columns
    cells = anndata.AnnData(
        sp.csr_matrix(np.arange(18, dtype=np.float32).reshape(N_ROWS, 3)),
        obs=pd.DataFrame(columns, index=pd.Index(CELLS, dtype=dtype)),
        var=pd.DataFrame(index=pd.Index(GENES, dtype=dtype)),
    )
    with anndata.settings.override(allow_write_nullable_strings=True):
        cells.write_h5ad(path) if path.suffix == ".h5ad" else cells.write_zarr(path)
    return path


def fix_lengths(node):
    """Store the attributes of a group or dataset, and of all in it, as text of a fixed length."""
    for name, value in dict(node.attrs).items():
        if isinstance(value, str):
            node.attrs[name] = np.bytes_(value.encode())
        elif isinstance(value, np.ndarray) and value.dtype == object:
            node.attrs[name] = np.array([text.encode() for text in value])
    for child in node.values() if isinstance(node, h5py.Group) else ():
        fix_lengths(child)


def test_attributes_of_a_fixed_length(tmp_path):
    source = write(tmp_path / "a.h5ad", kind=pd.Categorical(["a", "b"] * 3))
    with h5py.File(source, "r+") as file:
        fix_lengths(file)
        assert isinstance(file.attrs["encoding-type"], np.bytes_)
        assert file["obs"].attrs["column-order"].dtype.kind == "S"
    expected = anndata.read_h5ad(source)
    ooc_svm.convert(source, tmp_path / "a.zarr")
    found = anndata.read_zarr(tmp_path / "a.zarr")
    pd.testing.assert_frame_equal(found.obs, expected.obs)
    assert open_store(tmp_path / "a.zarr", label="kind").label_names == ("a", "b")


@pytest.mark.fault
def test_attributes_that_are_no_text(tmp_path):
    source = write(tmp_path / "a.h5ad")
    with h5py.File(source, "r+") as file:
        file["obs"].attrs["encoding-type"] = np.bytes_(b"\xff\xfe")
    with pytest.raises(DamageError, match=r"a.h5ad/obs cannot be read"):
        ooc_svm.convert(source, tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["a.h5ad", "b.zarr"])
def test_names_of_the_type_string(tmp_path, name):
    source = write(tmp_path / name, "string")
    with h5py.File(source) if name == "a.h5ad" else nullcontext(zarr.open_group(source, mode="r")) as root:
        assert sorted(root["obs/_index"]) == ["mask", "values"]
    ooc_svm.convert(source, tmp_path / "out.zarr")
    found = anndata.read_zarr(tmp_path / "out.zarr")
    assert (list(found.obs_names), list(found.var_names)) == (CELLS, GENES)
    store = open_store(tmp_path / "out.zarr")
    assert (store.read_row_names(0, N_ROWS), list(store.feature_names)) == (CELLS, GENES)


def test_a_store_is_read_with_names_of_the_type_string(tmp_path):
    store = open_store(write(tmp_path / "a.zarr", "string"))
    assert store.read_row_names(1, 3) == CELLS[1:3]
    assert list(store.feature_names) == GENES


def test_long_text_is_written_and_read(tmp_path):
    texts = [f"{i}" + "é" * 20_000 for i in range(N_ROWS)]
    source = write(tmp_path / "a.h5ad", remark=texts)
    ooc_svm.convert(source, tmp_path / "a.zarr")
    assert list(anndata.read_zarr(tmp_path / "a.zarr").obs["remark"]) == texts
    ooc_svm.verify_store(tmp_path / "a.zarr", label="label")


def test_long_names_are_written_and_read(tmp_path):
    names = [f"{i}" + "x" * 2_000 for i in range(N_ROWS)]
    cells = anndata.AnnData(sp.csr_matrix(np.ones((N_ROWS, 3), np.float32)))
    cells.obs = pd.DataFrame({"label": [1, -1] * 3}, index=names)
    cells.write_zarr(tmp_path / "a.zarr")
    assert open_store(tmp_path / "a.zarr").read_row_names(0, N_ROWS) == names
    ooc_svm.convert(tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert open_store(tmp_path / "b.zarr").read_row_names(0, N_ROWS) == names


def test_text_that_could_not_be_read_again_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(anndata_frames, "most_text_bytes", lambda n: 4 * (1 + n) + 120)
    exact = [f"{i}-" + 9 * "é" for i in range(N_ROWS)]
    ooc_svm.convert(write(tmp_path / "a.h5ad", remark=exact), tmp_path / "a.zarr")
    source = write(tmp_path / "b.h5ad", remark=[*exact[:-1], exact[-1] + "x"])
    with pytest.raises(
        InputError, match=r"obs/remark of .*b.h5ad has more than 120 bytes of text in 6 entries"
    ):
        ooc_svm.convert(source, tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()


def test_chunks_of_long_text_do_not_add_up(tmp_path, monkeypatch):
    """Text takes as much as it is long: one chunk of it is in memory at a time."""
    monkeypatch.setattr(anndata_frames, "CHUNK_ROWS", 4)
    monkeypatch.setattr(layout, "CHUNK_ROWS", 4)
    monkeypatch.setattr(anndata_frames, "_LONG_TEXT", 1000)
    put, write_chunk, waiting, most = StoreFiles.put, StoreFiles.write_chunk, set(), []

    def counted_put(self, write, index, content):
        if content.dtype.kind == "O" and len(content[0]) > 100:
            waiting.add((write.__self__.name, index))
            most.append(len(waiting))
        put(self, write, index, content)

    def slow_write(self, name, index, content):
        time.sleep(0.02)
        found = write_chunk(self, name, index, content)
        waiting.discard((name, index))
        return found

    monkeypatch.setattr(StoreFiles, "put", counted_put)
    monkeypatch.setattr(StoreFiles, "write_chunk", slow_write)
    columns = {name: [f"{name} {i}" + "x" * 1000 for i in range(N_ROWS - 1)] + ["x" * 101] for name in "ab"}
    ooc_svm.convert(write(tmp_path / "a.h5ad", **columns), tmp_path / "a.zarr", threads=3)
    assert most == [1] * 4
    copied = anndata.read_zarr(tmp_path / "a.zarr").obs
    assert {name: list(copied[name]) for name in "ab"} == columns


@pytest.mark.parametrize("value", [np.nan, 1 + 2j, h5py.Empty("f8")])
def test_only_attributes_with_a_meaning_are_copied(tmp_path, value):
    source = write(tmp_path / "a.h5ad", kind=pd.Categorical(["a", "b"] * 3, ordered=True))
    with h5py.File(source, "r+") as file:
        file["obs/kind"].attrs["of mine"] = value
    ooc_svm.convert(source, tmp_path / "a.zarr")
    kept = dict(zarr.open_group(tmp_path / "a.zarr")["obs/kind"].attrs)
    assert kept == {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": True}


def test_columns_named_twice_or_as_files_of_a_store(tmp_path):
    source = write(tmp_path / "a.h5ad", kind=[1.0, 2.0] * 3)
    with h5py.File(source, "r+") as file:
        file["obs"].move("kind", "zarr.json")
        file["obs"].attrs["column-order"] = ["label", "zarr.json", "label"]
    report = ooc_svm.convert(source, tmp_path / "a.zarr")
    assert report.columns == ("label",)
    assert any("zarr.json" in warning for warning in report.warnings)
