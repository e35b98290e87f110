"""Open stores: what they were opened with is what is trained on, and cannot be chosen again."""

from __future__ import annotations

import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from helpers.train_data import bits, make_store, problem_rows

from ooc_svm import OocSVC, UsageError, open_store, plan, predict, train, tune

N_ROWS = 120


@pytest.fixture(scope="module")
def rows():
    return problem_rows("two classes", N_ROWS, 12, noise=0.5)


@pytest.fixture(scope="module")
def cells(rows, tmp_path_factory):
    """Cells with several columns of labels, and a layer."""
    X, labels = rows
    path = tmp_path_factory.mktemp("cells") / "cells.zarr"
    kind = np.where(labels > 0, "T", "B")
    some = np.where(np.arange(N_ROWS) % 7 == 0, np.nan, labels)
    obs = pd.DataFrame(
        {"kind": pd.Categorical(kind), "text": kind.astype(object), "some": some, "label": -labels},
        index=[f"r{i}" for i in range(N_ROWS)],
    )
    with warnings.catch_warnings(action="ignore"):  # AnnData and Zarr on their own plans
        anndata.AnnData(X, obs=obs, layers={"twice": 2.0 * X, "data": 3.0 * X.toarray()}).write_zarr(path)
    return path


@pytest.mark.parametrize("given", [{"label": "kind"}, {"layer": "twice"}])
@pytest.mark.parametrize("function", [train, tune, plan])
def test_another_column_or_layer_is_refused(cells, given, function):
    [(name, value)] = given.items()
    own = {"label": "label", "layer": "X"}[name]
    with pytest.raises(
        UsageError, match=f"^{name} is '{value}', but the store was opened with '{own}'; open"
    ):
        function(open_store(cells), **given)


def test_the_same_column_and_layer_may_be_said_again(cells, rows, tmp_path):
    given = {"label": "kind", "layer": "twice"}
    said = train(open_store(cells, **given), **given)
    assert bits(said) == bits(train(cells, **given))
    estimator = OocSVC(**given).fit(open_store(cells, **given))
    assert estimator.score(cells) > 0.8
    store = make_store(tmp_path / "s.zarr", *rows)
    assert bits(train(open_store(store), label="label", layer="X")) == bits(train(store))


@pytest.mark.parametrize("label", [None, "kind", "text"])
@pytest.mark.parametrize("layer", [None, "twice", "data"])
def test_it_is_trained_as_by_its_path(cells, label, layer):
    opened = train(open_store(cells, label=label, layer=layer))
    named = train(cells, label=label, layer=layer)
    assert bits(opened) == bits(named)
    assert opened.options["layer"] == named.options["layer"] == layer
    assert list(predict(opened, cells)) == list(predict(named, cells))


def test_a_store_knows_its_column_and_layer(cells, rows, tmp_path):
    found = open_store(cells, label="kind", layer="data")
    assert (found.label, found.layer) == ("kind", "data")
    found = open_store(cells, label="some", unlabelled="skip")
    assert (found.label, found.layer) == ("some", None)
    found = open_store(make_store(tmp_path / "s.zarr", *rows))
    assert (found.label, found.layer) == (None, None)


def test_workers_open_it_the_same_way(cells):
    given = [
        {"label": "kind", "layer": "twice", "unlabelled": "error"},
        {"label": "some", "layer": None, "unlabelled": "skip"},
    ]
    for options in given:
        opened = train(open_store(cells, **options), engine="dask", threads=1, max_passes=2)
        assert bits(opened) == bits(train(open_store(cells, **options), max_passes=2))


def test_it_is_measured_on_another_one_by_the_same_column(cells):
    model = train(open_store(cells, label="text"), validation=cells)
    assert model.report["validation"]["accuracy"] > 0.8
    assert train(open_store(cells), validation=cells).report["validation"]["accuracy"] > 0.8


def test_of_a_store_of_ours_too(rows, tmp_path):
    store = make_store(tmp_path / "s.zarr", *rows)
    with pytest.raises(UsageError, match="layer is 'counts', but the store was opened with 'X'"):
        train(open_store(store), layer="counts")
    assert train(open_store(store)).options["layer"] is None


def test_text_has_no_chunks_to_keep(tmp_path, monkeypatch):
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 2:1\n")

    def convert(*arguments, **options):
        raise AssertionError("work was done")

    monkeypatch.setattr("ooc_svm.training.text._convert", convert)
    with pytest.raises(UsageError, match=r"^cache keeps chunks of a store in a bucket; the text is made"):
        train(tmp_path / "rows.svm", cache=tmp_path / "cache")
