"""Values that are 0 in the type of the store are dropped and counted, whatever they were converted from."""

from __future__ import annotations

import warnings

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from helpers.store_data import assert_same, read_all

import ooc_svm
from ooc_svm.data.zeros import without_zeros
from ooc_svm.store import open_store

TINY = 1e-50
DENSE = np.array([[1.5, TINY, 0, 2], [0, 0, -TINY, 0], [TINY, 3, 0, 0.5]])
LABELS = np.array([1.0, -1, 1])
KEPT = np.where(np.abs(DENSE) == TINY, 0, DENSE)


def cells(path, matrix):
    with warnings.catch_warnings(action="ignore"):  # AnnData and Zarr on their own plans
        obs = pd.DataFrame({"label": LABELS}, index=["a", "b", "c"])
        anndata.AnnData(matrix, obs=obs).write_h5ad(path)
    return path


def sources(folder):
    """Ways to convert the same rows."""
    np.save(folder / "y.npy", LABELS)
    rows = [np.flatnonzero(row) for row in DENSE]
    lines = (
        f"{label:g} " + " ".join(f"{j + 1}:{row[j]!r}" for j in ids.tolist())
        for label, row, ids in zip(LABELS, DENSE.tolist(), rows, strict=True)
    )
    (folder / "text.svm").write_text("\n".join(lines) + "\n")
    table = {
        "indices": [ids + 1 for ids in rows],
        "values": [row[ids] for row, ids in zip(DENSE, rows, strict=True)],
        "label": LABELS,
    }
    pa.parquet.write_table(pa.table(table), folder / "a.parquet")
    sp.save_npz(folder / "csr.npz", sp.csr_matrix(DENSE))
    sp.save_npz(folder / "csc.npz", sp.csc_matrix(DENSE))
    labels = {"labels_file": folder / "y.npy"}
    return {
        "text": (folder / "text.svm", {}),
        "parquet": (folder / "a.parquet", {}),
        "npz of rows": (folder / "csr.npz", labels),
        "npz of columns": (folder / "csc.npz", labels),
        "rows": (cells(folder / "csr.h5ad", sp.csr_matrix(DENSE)), {}),
        "columns": (cells(folder / "csc.h5ad", sp.csc_matrix(DENSE)), {}),
        "dense": (cells(folder / "dense.h5ad", DENSE), {}),
    }


WAYS = ["text", "parquet", "npz of rows", "npz of columns", "rows", "columns", "dense"]


@pytest.mark.parametrize("way", WAYS)
def test_they_are_dropped_and_counted(tmp_path, way):
    source, options = sources(tmp_path)[way]
    report = ooc_svm.convert(source, tmp_path / "a.zarr", **options)
    assert (report.nonzeros, report.explicit_zeros) == (4, 3)
    assert any("3 explicit zeros were dropped" in warning for warning in report.warnings)
    assert_same(read_all(open_store(tmp_path / "a.zarr", label="label")), sp.csr_matrix(KEPT))
    report = ooc_svm.convert(source, tmp_path / "wide.zarr", dtype="float64", **options)
    assert (report.nonzeros, report.explicit_zeros) == (7, 0)
    assert_same(read_all(open_store(tmp_path / "wide.zarr", label="label")), sp.csr_matrix(DENSE))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
def test_of_a_matrix_in_memory(tmp_path, form):
    report = ooc_svm.convert_matrix(form(DENSE), LABELS, tmp_path / "a.zarr")
    assert (report.nonzeros, report.explicit_zeros) == (4, 3)
    assert_same(read_all(open_store(tmp_path / "a.zarr")), sp.csr_matrix(KEPT))
    assert ooc_svm.convert_matrix(form(DENSE), LABELS, tmp_path / "b.zarr", dtype="float64").nonzeros == 7


def test_rows_without_zeros_are_not_copied():
    values, ids = np.ones(3, np.float32), np.arange(3, dtype=np.int32)
    block = without_zeros(5, np.array([0, 2, 3]), ids, values, np.float32)
    assert (block.start, block.values is values, block.indices is ids) == (5, True, True)
