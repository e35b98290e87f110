"""AnnData on the command line, from a file to predictions in its cells."""

from __future__ import annotations

import json
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.train_data import store_rows
from typer.testing import CliRunner

from ooc_svm.cli.app import app

KINDS = ("B, naive", "NK", "T")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    counts, labels = store_rows(240, 20)
    kinds = np.where(labels > 0, KINDS[0], np.array(KINDS[1:])[np.arange(240) % 2])
    obs = pd.DataFrame({"cell_type": pd.Categorical(kinds)}, index=[f"cell{i}" for i in range(240)])
    path = tmp_path_factory.mktemp("cells") / "atlas.h5ad"
    with warnings.catch_warnings(action="ignore"):
        data = anndata.AnnData(sp.csc_matrix(counts.shape), obs=obs, layers={"counts": counts.tocsc()})
        data.write_h5ad(path)
        data.write_zarr(path.with_suffix(".zarr"))
    return path


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.stdout, result.stderr)
    return result.stdout if code == 0 else result.stderr


def test_from_a_file_to_predictions_in_its_cells(cells, tmp_path):
    store, model = tmp_path / "atlas.zarr", tmp_path / "atlas.model"
    out = run("convert", cells, "-o", store, "--layer", "counts", "--quiet")
    assert [line.split() for line in out.splitlines() if "cell_type" in line] == [
        ["columns", "of", "cells", "cell_type"]
    ]
    assert "exists" in run("convert", cells, "-o", store, code=2)
    run("train", store, "-o", model, "--label", "cell_type", "--quiet")
    run("predict", model, store, "--label", "cell_type", "--to-obs", "svm", "--scores")
    with warnings.catch_warnings(action="ignore"):
        obs = anndata.read_zarr(store).obs
    assert list(obs.columns) == ["cell_type", "svm", *(f"svm_score_{kind}" for kind in KINDS)]
    share = float(np.mean(obs["svm"] == obs["cell_type"]))
    found = json.loads(run("evaluate", model, store, "--label", "cell_type", "--json", "-"))
    assert found["accuracy"] == share
    assert "already" in run("predict", model, store, "--label", "cell_type", "--to-obs", "svm", code=2)
    again = "predict", model, store, "--label", "cell_type", "--to-obs", "svm", "--overwrite"
    assert "which belongs to 'svm' and would be left as it is: write it as well" in run(*again, code=2)
    run(*again, "--scores")


def test_a_file_is_to_be_converted_whatever_the_options(cells, tmp_path):
    store, model = tmp_path / "atlas.zarr", tmp_path / "atlas.model"
    advice = f"is HDF5 (AnnData), no text; make a store: ooc-svm convert {cells} -o NEW.zarr"
    assert advice in run("train", cells, "--label", "cell_type", "-o", model, code=3)
    run("convert", cells, "-o", store, "--layer", "counts", "--quiet")
    run("train", store, "-o", model, "--label", "cell_type", "--quiet")
    for option in ("--label", "--layer"):
        assert advice in run("evaluate", model, cells, option, "counts", code=3)
        assert "for AnnData" in run("evaluate", model, __file__, option, "counts", code=2)


@pytest.mark.parametrize(("columns", "listed"), [(["kind", "batch"], "kind   batch"), ([], "none")])
def test_the_columns_of_cells_are_listed(tmp_path, columns, listed):
    obs = pd.DataFrame({name: ["a", "b"] for name in columns}, index=["c0", "c1"])
    with warnings.catch_warnings(action="ignore"):
        anndata.AnnData(sp.csr_matrix(np.eye(2)), obs=obs).write_h5ad(tmp_path / "two.h5ad")
    converted = run("convert", tmp_path / "two.h5ad", "-o", tmp_path / "two.zarr", "--quiet")
    if not columns:
        assert "\nlabels    none\n" in converted
    lines = run("info", tmp_path / "two.zarr").splitlines()
    assert f"columns of cells  {listed}" in lines


def test_a_column_without_any_label(tmp_path):
    obs = pd.DataFrame({"label": [np.nan, np.nan]}, index=["c0", "c1"])
    with warnings.catch_warnings(action="ignore"):
        anndata.AnnData(sp.csr_matrix(np.eye(2)), obs=obs).write_zarr(tmp_path / "two.zarr")
    lines = run("info", tmp_path / "two.zarr", "--label", "label").splitlines()
    assert ["labels", "none"] in [line.split() for line in lines]


@pytest.mark.parametrize(
    "options",
    [
        [
            "--positive",
            "B, naive",
            "--positive",
            "T",
            "--class-weight",
            "B, naive:2",
            "--class-weight",
            "NK:3",
        ],
        ["--positive", '"B, naive",T', "--class-weight", '"B, naive:2", NK:3'],
    ],
)
def test_labels_with_commas(cells, tmp_path, options):
    store, model = tmp_path / "atlas.zarr", tmp_path / "atlas.model"
    run("convert", cells, "-o", store, "--layer", "counts", "--quiet")
    run("train", store, "-o", model, "--label", "cell_type", "--quiet", *options)
    kept = json.loads(run("info", model, "--json"))["options"]
    assert kept["positive"] == [0.0, 2.0]  # the places of these names
    assert kept["class_weight"] == [["B, naive", 2], ["NK", 3]]


def test_files_that_are_converted_first(cells, tmp_path):
    store, model = tmp_path / "atlas.zarr", tmp_path / "atlas.model"
    run("convert", cells, "-o", store, "--layer", "counts", "--quiet")
    run("train", store, "-o", model, "--label", "cell_type", "--quiet")
    for command in (["predict", model], ["evaluate", model]):
        assert f"ooc-svm convert {cells} -o NEW.zarr" in run(*command, cells, code=3)
    message = run("train", cells, "-o", tmp_path / "other.model", code=3)
    assert f"ooc-svm convert {cells} -o NEW.zarr" in message
    by_columns = cells.with_suffix(".zarr")
    message = run("train", by_columns, "-o", tmp_path / "other.model", "--layer", "counts", code=3)
    assert f"ooc-svm convert {by_columns} -o NEW.zarr --layer counts" in message
    assert "is not for AnnData" in run("convert", cells, "-o", tmp_path / "b.zarr", "--shuffle", code=2)
