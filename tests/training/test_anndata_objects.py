"""AnnData in memory and its layers, trained on, predicted and evaluated."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.train_data import make_store, store_rows

import ooc_svm
from ooc_svm.errors import InputError, UsageError

NAMES = np.array(["B", "NK"])


@pytest.fixture(scope="module")
def cells():
    """Cells whose layer "counts" is what labels follow from; X is noise."""
    counts, labels = store_rows(200, 20)
    noise = sp.random(200, 20, 0.3, format="csr", random_state=np.random.default_rng(3))
    kinds = NAMES[(labels > 0).astype(int)]
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical(kinds, categories=["NK", "unused", "B"]),
            "text": kinds,
            "number": labels,
            "grade": pd.Categorical(np.where(labels > 0, 3.0, 2.0)),
            "gap": pd.Categorical([None, *kinds[1:]]),
            "label": -labels,
            "weight": np.linspace(0.5, 2, 200),
        },
        index=[f"cell{i}" for i in range(200)],
    )
    return anndata.AnnData(noise, obs=obs, layers={"counts": counts, "dense": counts.toarray()})


def trained(data, labels=None, **options):
    return ooc_svm.train(data, labels, tol=1e-6, **options)


def test_an_object_is_a_matrix_with_columns(cells):
    labels, weight = cells.obs["number"].to_numpy(), cells.obs["weight"].to_numpy()
    by_hand = trained(cells.layers["counts"], labels, sample_weight=weight)
    for layer in ("counts", "dense"):
        model = trained(cells, label="number", layer=layer)
        np.testing.assert_allclose(model.functions.weights, by_hand.functions.weights, rtol=1e-3, atol=1e-5)
    by_default = trained(cells)
    of_x = trained(cells.X, -labels, sample_weight=weight)
    np.testing.assert_array_equal(by_default.functions.weights, of_x.functions.weights)
    own_labels = trained(cells, labels, layer="counts")
    np.testing.assert_array_equal(own_labels.functions.weights, by_hand.functions.weights)


@pytest.mark.parametrize("column", ["cell_type", "text", "grade"])
def test_labels_keep_their_names(cells, column):
    model = trained(cells, label=column, layer="counts")
    named = cells.obs[column].astype(object).to_numpy()
    predicted = ooc_svm.predict(model, cells)
    assert np.mean(predicted == named) > 0.85
    assert set(predicted) <= set(named)
    metrics = ooc_svm.evaluate(model, cells, "accuracy", label=column)
    assert metrics["accuracy"] == np.mean(predicted == named)


def test_the_layer_of_the_training_is_that_of_predictions(cells, tmp_path):
    model = trained(cells, label="text", layer="counts")
    expected = ooc_svm.predict(model, cells.layers["counts"])
    with warnings.catch_warnings(action="ignore"):
        cells.write_zarr(tmp_path / "cells.zarr")
    for data in (cells, tmp_path / "cells.zarr"):
        np.testing.assert_array_equal(ooc_svm.predict(model, data), expected)
        of_x = ooc_svm.predict(model, data, layer="X")
        assert np.mean(of_x == expected) < 0.8
        assert ooc_svm.evaluate(model, data, "accuracy", label="text", layer="X")["accuracy"] < 0.8
    stored = make_store(tmp_path / "own.zarr", cells.layers["counts"], cells.obs["number"].to_numpy())
    np.testing.assert_array_equal(ooc_svm.predict(model, stored), expected)
    from_store = trained(tmp_path / "cells.zarr", label="text", layer="counts")
    np.testing.assert_allclose(from_store.functions.weights, model.functions.weights, rtol=1e-3, atol=1e-5)
    with pytest.raises(InputError, match="has no layer 'raw'"):
        trained(tmp_path / "cells.zarr", label="text", layer="raw")
    with pytest.raises(InputError, match="has no layer 'raw'; its only matrix is X"):
        ooc_svm.predict(model, stored, layer="raw")


def test_columns_are_found_by_the_names_of_genes(cells):
    model = trained(cells, label="text", layer="counts")
    assert list(model.feature_names) == list(cells.var_names)
    turned = cells[:, ::-1].copy()
    np.testing.assert_array_equal(ooc_svm.predict(model, turned), ooc_svm.predict(model, cells))
    with pytest.raises(UsageError, match="the AnnData names its features; leave feature_names out"):
        trained(cells, label="text", feature_names=list(cells.var_names))


def test_estimators_read_a_layer(cells, tmp_path):
    estimator = ooc_svm.OocSVC(tol=1e-6, label="text", layer="counts").fit(cells)
    rows, text, weight = cells.layers["counts"], cells.obs["text"].to_numpy(), cells.obs["weight"]
    by_hand = ooc_svm.OocSVC(tol=1e-6).fit(rows, text, sample_weight=weight.to_numpy())
    np.testing.assert_array_equal(estimator.coef_, by_hand.coef_)
    expected = by_hand.predict(cells.layers["counts"])
    assert estimator.score(cells) == np.mean(expected == cells.obs["text"])
    with warnings.catch_warnings(action="ignore"):
        cells.write_zarr(tmp_path / "cells.zarr")
    for data in (cells, tmp_path / "cells.zarr"):
        np.testing.assert_array_equal(estimator.predict(data), expected)
    with pytest.raises(InputError, match="no layer 'raw'"):
        ooc_svm.OocSVC(label="text", layer="raw").fit(cells)


def test_objects_are_told_by_their_form(cells, monkeypatch):
    """AnnData is not imported, nor anything of the same form refused."""
    monkeypatch.setitem(sys.modules, "anndata", None)
    names = ("X", "obs", "var", "layers", "obs_names", "shape")
    alike = SimpleNamespace(**{name: getattr(cells, name) for name in names})
    model = trained(alike, label="text", layer="counts")
    np.testing.assert_array_equal(ooc_svm.predict(model, alike), ooc_svm.predict(model, cells))


def test_an_object_is_converted(cells, tmp_path):
    ooc_svm.convert_matrix(cells, None, tmp_path / "a.zarr", label="number", layer="dense", dtype="float64")
    store = ooc_svm.open_store(tmp_path / "a.zarr")
    assert (store.n_nonzeros, store.has_weight) == (cells.layers["counts"].nnz, True)
    np.testing.assert_array_equal(store.read_labels(0, 200), cells.obs["number"])
    assert list(store.feature_names) == list(cells.var_names)
    ooc_svm.convert_matrix(cells, None, tmp_path / "b.zarr", label="cell_type", layer="counts")
    assert ooc_svm.open_store(tmp_path / "b.zarr").label_names == ("B", "NK")
    ooc_svm.convert_matrix(cells, None, tmp_path / "c.zarr", label="text", layer="counts")
    named, from_store = trained(cells, label="text", layer="counts"), trained(tmp_path / "c.zarr")
    np.testing.assert_array_equal(
        ooc_svm.predict(from_store, cells, layer="counts"), ooc_svm.predict(named, cells)
    )
    with pytest.raises(InputError, match=r"no label in .*; leave such rows out, or give them one$"):
        ooc_svm.convert_matrix(cells, None, tmp_path / "d.zarr", label="gap")
    with pytest.raises(UsageError, match="layer is for an AnnData object"):
        ooc_svm.convert_matrix(cells.X, cells.obs["number"], tmp_path / "b.zarr", layer="counts")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"label": "none"}, InputError, r"no column obs\['none'\] .*'cell_type', 'text'"),
        ({"layer": "none"}, InputError, r"no layer 'none'; choose one \(layer\): 'counts', 'dense'"),
        ({"label": "gap"}, InputError, r"row 0, from 0, has no label in obs\['gap'\]"),
        ({"label": "text", "labels": np.ones(200)}, UsageError, "give one"),
    ],
)
def test_what_an_object_does_not_have(cells, options, error, message):
    with pytest.raises(error, match=message):
        ooc_svm.train(cells, **options)


def test_labels_are_given_once(cells, tmp_path):
    labels = cells.obs["number"]
    model = trained(cells, label="number", layer="counts")
    given_twice = (
        lambda: ooc_svm.convert_matrix(cells, labels, tmp_path / "a.zarr", label="text"),
        lambda: ooc_svm.evaluate(model, cells, labels=labels, label="text"),
    )
    for call in given_twice:
        with pytest.raises(UsageError, match="labels and label both name the labels; give one"):
            call()
    assert not (tmp_path / "a.zarr").exists()


def test_an_object_in_a_file_is_refused(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    try:
        with pytest.raises(UsageError, match=r"backed by the file '.*cells.h5ad'; convert that file"):
            ooc_svm.train(backed, label="text")
    finally:
        backed.file.close()


@pytest.mark.parametrize("column", ["gap", "text_gap", "number_gap"])
def test_rows_without_a_label_are_left_out(cells, column):
    """As those of a store are; rows to be predicted need no labels."""
    given = cells.copy()
    given.obs["text_gap"] = [np.nan, *given.obs["text"].iloc[1:]]
    given.obs["number_gap"] = [np.nan, *given.obs["number"].iloc[1:]]
    model = trained(given, label=column, layer="counts", unlabelled="skip")
    assert model.report["n_rows"] == 199
    assert model.report["unlabelled_rows"] == 1
    rest = trained(given[1:].copy(), label=column, layer="counts")
    np.testing.assert_array_equal(model.functions.weights, rest.functions.weights)
    found = ooc_svm.evaluate(model, given, "accuracy", label=column, unlabelled="skip")
    assert found == ooc_svm.evaluate(model, given[1:].copy(), "accuracy", label=column)
    with pytest.raises(InputError, match=r"leave such rows out \(unlabelled='skip'\)"):
        ooc_svm.evaluate(model, given, label=column)
    assert len(ooc_svm.predict(model, given, label=column)) == 200


def test_labels_of_every_type_of_pandas(cells):
    given = cells.copy()
    number = given.obs["number"].astype(int)
    given.obs["nullable"] = number.astype("Int64").mask(np.arange(200) == 3)
    given.obs["truth"] = (number > 0).astype("boolean").mask(np.arange(200) == 3)
    given.obs["blank"] = pd.Categorical(["" if i == 3 else kind for i, kind in enumerate(given.obs["text"])])
    rest = given[np.arange(200) != 3].copy()
    for column in ("nullable", "truth", "blank"):
        model = trained(given, label=column, unlabelled="skip")
        assert model.report["unlabelled_rows"] == 1, column
        assert bool(model.label_names) == (column == "blank")
        own = trained(rest, label="text" if column == "blank" else "number")
        np.testing.assert_array_equal(model.functions.weights, own.functions.weights)
        with pytest.raises(InputError, match="row 3, from 0, has no label"):
            trained(given, label=column)


def test_labels_that_cannot_be_told_apart(cells):
    given = cells.copy()
    given.obs["mixed"] = pd.Series([1, *given.obs["text"].iloc[1:]], index=given.obs_names, dtype=object)
    with pytest.raises(
        InputError, match=r"row 0, from 0, has the label 1 in .*, next to labels that are text"
    ):
        trained(given, label="mixed", unlabelled="skip")
    large = 2**53 + np.arange(200)
    for column in (large, pd.Categorical(large), pd.array(large, dtype="Int64")):
        given.obs["large"] = column
        with pytest.raises(InputError, match="beyond which float64 does not tell integers apart"):
            trained(given, label="large")


def test_a_column_that_is_not_used_may_have_gaps(cells):
    given, labels = cells.copy(), cells.obs["number"].to_numpy()
    given.obs["label"] = given.obs["label"].mask(np.arange(200) < 5)
    model = trained(given, labels)
    expected = trained(cells, labels)
    np.testing.assert_array_equal(model.functions.weights, expected.functions.weights)
    assert ooc_svm.evaluate(model, given, labels=labels) == ooc_svm.evaluate(expected, cells, labels=labels)


def test_estimators_need_no_x(cells):
    without = cells.copy()
    without.X = None
    for kind in (ooc_svm.OocSVC, ooc_svm.OocSVR, ooc_svm.OocRanker):
        fitted = kind(layer="counts", label="grade").fit(without)
        np.testing.assert_array_equal(fitted.coef_, kind(layer="counts", label="grade").fit(cells).coef_)
        fitted.score(without)
