"""Training keeps the names of features, and does not mix features of other names."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import anndata_data

from ooc_svm import convert_matrix, load_model, open_store, save_model, train
from ooc_svm.errors import InputError, UsageError

N = 12
NAMES = [f"gene {j}" for j in range(N)]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    matrix = sp.random(80, N, 0.5, "csr", random_state=rng, dtype=np.float32)
    return matrix, np.where(matrix @ rng.normal(size=N) > 0, 1.0, -1.0)


@pytest.fixture
def store(rows, tmp_path):
    convert_matrix(*rows, tmp_path / "named.zarr", feature_names=NAMES)
    return tmp_path / "named.zarr"


def test_a_model_has_the_names_of_its_data(rows, store, tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    convert_matrix(*rows, tmp_path / "plain.zarr")
    for model in (
        train(store),
        train(open_store(store)),
        train(*rows, feature_names=NAMES),
        train(*rows, feature_names=np.array(NAMES, object)),
        train(tmp_path / "plain.zarr", feature_names=tmp_path / "names.txt"),
    ):
        assert list(model.feature_names) == NAMES
        save_model(model, tmp_path / "m")
        assert list(load_model(tmp_path / "m").feature_names) == NAMES
    assert train(*rows).feature_names is None
    assert train(tmp_path / "plain.zarr").feature_names is None
    assert train(*rows).weights.tolist() == train(*rows, feature_names=NAMES).weights.tolist()


def test_names_that_do_not_fit_are_refused(rows, store, tmp_path):
    convert_matrix(*rows, tmp_path / "plain.zarr")
    with pytest.raises(UsageError, match="names its features; leave feature_names out"):
        train(store, feature_names=NAMES)
    for data in (rows, (tmp_path / "plain.zarr",)):
        with pytest.raises(InputError, match="feature_names has 2 names, and"):
            train(*data, feature_names=["a", "b"])
        with pytest.raises(InputError, match="'a' stands twice"):
            train(*data, feature_names=["a"] * N)


def test_a_run_does_not_go_on_with_features_in_another_order(rows, tmp_path):
    """An AnnData store is known by its rows and labels; the index of its columns may change under it."""
    path, folder = tmp_path / "a.zarr", tmp_path / "saved"
    matrix = rows[0][: anndata_data.N_ROWS]
    anndata_data.write(path, matrix, features=NAMES)
    train(path, max_passes=1, checkpoint=folder)
    train(path, checkpoint=folder, resume=True)
    names = sorted((path / "var").rglob("c/0"))
    assert len(names) == 1
    anndata_data.write(tmp_path / "b.zarr", matrix, features=NAMES[::-1])
    names[0].write_bytes(next((tmp_path / "b.zarr/var").rglob("c/0")).read_bytes())
    assert list(open_store(path).feature_names) == NAMES[::-1]
    for options in ({"resume": True, "checkpoint": folder}, {"warm_start": folder, "C": 2.0}):
        with pytest.raises(UsageError, match="features have other names, or these in another order"):
            train(path, **options)


def test_a_warm_start_is_at_a_model_of_the_same_features(rows, store, tmp_path):
    save_model(train(*rows, feature_names=NAMES[::-1]), tmp_path / "other")
    save_model(train(*rows), tmp_path / "plain")
    save_model(train(store), tmp_path / "same")
    with pytest.raises(
        InputError, match="features have other names than the data's, or these in another order"
    ):
        train(store, warm_start=tmp_path / "other")
    for name in ("plain", "same"):
        train(store, warm_start=tmp_path / name)
