"""Predictions written into the obs of an AnnData store, whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import warnings
from contextlib import nullcontext

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr
from helpers.train_data import make_store, store_rows
from scipy import sparse

import ooc_svm
from ooc_svm.errors import InputError, Interrupted, StorageError, UsageError
from ooc_svm.store import obs_columns, open_store
from ooc_svm.store.obs_columns import ObsColumns
from ooc_svm.system.signals import handle_signals


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(obs_columns, "CHUNK_ROWS", 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def rows():
    return store_rows(150, 12)


@pytest.fixture(params=[2, 3])
def store(tmp_path, rows, request):
    return save(tmp_path / "cells.zarr", rows, request.param)


def save(path, rows, zarr_format):
    matrix, labels = rows
    names = [f"cell {i}" for i in range(150)]
    three = np.array(["T", "B", "N, K"])[np.arange(150) % 3]
    obs = pd.DataFrame(
        {"kind": np.where(labels > 0, "yes", "no"), "label": labels, "three": three}, index=names
    )
    with warnings.catch_warnings(action="ignore"), anndata.settings.override(zarr_write_format=zarr_format):
        anndata.AnnData(matrix, obs=obs).write_zarr(path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory, rows):
    path = save(tmp_path_factory.mktemp("models") / "cells.zarr", rows, 3)
    return {
        "kind": ooc_svm.train(path, label="kind"),
        "label": ooc_svm.train(path),
        "three": ooc_svm.train(path, label="three"),
        "value": ooc_svm.train(path, problem="svr"),
    }


def read_both_ways(path):
    """By consolidated metadata, and by those of each group: both must tell the same."""
    found = anndata.read_zarr(path).obs
    pd.testing.assert_frame_equal(found, read_plain(path))
    return found


def read_plain(path):
    zarr_format = 3 if (path / "zarr.json").exists() else 2
    root = zarr.open_group(path, mode="r", use_consolidated=False, zarr_format=zarr_format)
    return anndata.io.read_elem(root["obs"])


@pytest.mark.parametrize("name", ["kind", "label", "three", "value"])
def test_a_column_of_predictions_and_scores(store, models, name):
    before = read_both_ways(store)
    expected = ooc_svm.predict(models[name], store)
    done = ooc_svm.predict(models[name], store, to_obs="svm", scores=True)
    assert done.rows == 150
    found = read_both_ways(store)
    assert list(found["svm"]) == list(expected)
    assert (found["svm"].dtype == "category") == (name in ("kind", "three"))
    pd.testing.assert_frame_equal(found[before.columns], before)
    with ooc_svm.decision_scores(models[name], store) as stream:
        scores = np.concatenate([block.scores for block in stream])
    columns = [f"svm_score_{text}" for text in ("B", "N, K", "T")] if name == "three" else ["svm_score"]
    np.testing.assert_array_equal(found[columns], scores)
    if name != "value":
        again = open_store(store, label="svm")
        labels = again.read_labels(0, 150)
        names = again.label_names
        assert list(expected) == [labels[i] if names is None else names[int(labels[i])] for i in range(150)]
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_what_the_model_has_no_columns_for_is_counted(tmp_path, rows):
    X, labels = rows
    store = save(tmp_path / "cells.zarr", rows, 3)
    less, more = X[:, :10], sparse.hstack([X, X[:, :1]], format="csr")
    for own, counts in ((less, (0, 2)), (more, (1, 0))):
        model = ooc_svm.train(own, labels, max_passes=1)
        with pytest.warns(UserWarning, match="lacks 1 of the model") if counts[0] else nullcontext():
            done = ooc_svm.predict(model, store, to_obs="svm", overwrite=True, missing_features="zero")
        assert (done.missing, done.extra) == counts


def test_a_column_that_is_there(store, models):
    ooc_svm.predict(models["kind"], store, to_obs="svm")
    with pytest.raises(UsageError, match=r"has a column 'svm' in obs already; .*overwrite"):
        ooc_svm.predict(models["label"], store, to_obs="svm")
    order = list(read_both_ways(store).columns)
    ooc_svm.predict(models["label"], store, to_obs="svm", overwrite=True)
    found = read_both_ways(store)
    assert list(found.columns) == order
    assert list(found["svm"]) == list(ooc_svm.predict(models["label"], store))


def test_scores_of_other_predictions_are_not_left(store, models):
    ooc_svm.predict(models["three"], store, to_obs="svm", scores=True)
    before = read_both_ways(store)
    for name, more in (("three", {}), ("kind", {"scores": True})):
        with pytest.raises(UsageError, match=r"column 'svm_score_B' in obs, which belongs to 'svm' and"):
            ooc_svm.predict(models[name], store, to_obs="svm", overwrite=True, **more)
    pd.testing.assert_frame_equal(read_both_ways(store), before)
    ooc_svm.predict(models["three"], store, to_obs="svm", scores=True, overwrite=True)


@pytest.mark.parametrize("column", ["a/b", "..", "_index", ".x", "x" * 300])
def test_names_that_cannot_be(store, models, column):
    with pytest.raises(UsageError, match=r"cannot be the name|is too long"):
        ooc_svm.predict(models["kind"], store, to_obs=column)


@pytest.mark.parametrize(
    ("name", "message"),
    [("B/T", "class 'B/T' has a / in its name"), ("B" * 200, "class 'B.* has a name that is too long")],
)
def test_classes_that_no_column_is_named_after(store, rows, name, message):
    kinds = np.array([name, "T", "N"])[np.arange(150) % 3]
    model = ooc_svm.train(rows[0], kinds, loss="logistic")
    for options in ({"scores": True}, {"probabilities": True}):
        with pytest.raises(UsageError, match=rf"{message}.* of obs .*\(output with the ending \.csv\)"):
            ooc_svm.predict(model, store, to_obs="q", **options)
        ooc_svm.predict(model, store, output=store.parent / "q.csv", **options)
    assert ooc_svm.predict(model, store, to_obs="q").rows == 150
    assert name in set(read_both_ways(store)["q"])
    two = ooc_svm.train(rows[0], np.where(kinds == "T", "T", name))
    assert ooc_svm.predict(two, store, to_obs="two", scores=True).rows == 150


def test_data_that_take_no_columns(tmp_path, rows, models):
    own = make_store(tmp_path / "own.zarr", *rows)
    with pytest.raises(UsageError, match=r"to_obs writes to the obs of an AnnData store"):
        ooc_svm.predict(models["label"], own, to_obs="svm")
    with pytest.raises(UsageError, match="the matrix is none"):
        ooc_svm.predict(models["label"], rows[0], to_obs="svm")
    with pytest.raises(UsageError, match="two places"):
        ooc_svm.predict(models["label"], own, to_obs="svm", output=tmp_path / "out")
    with pytest.raises(UsageError, match="has a manifest"):
        ObsColumns(own, 150, {"svm": None}, overwrite=False)


class Killed(BaseException):
    pass


@pytest.mark.fault
@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_anywhere(tmp_path, rows, models, overwrite, monkeypatch):
    """After each step that others see, what is listed is whole; the next run goes through."""
    fired = 0
    for zarr_format in (2, 3):
        for step in range(1, 30):
            path = save(tmp_path / f"{zarr_format}-{step}.zarr", rows, zarr_format)
            if overwrite:
                ooc_svm.predict(models["kind"], path, to_obs="svm")
            old = read_both_ways(path)
            with monkeypatch.context() as patch:
                killed = kill_at(patch, step)
                try:
                    ooc_svm.predict(models["label"], path, to_obs="svm", overwrite=overwrite)
                except Killed:
                    fired += 1
            for frame in (
                anndata.read_zarr(path).obs,
                read_plain(path),
            ):
                pd.testing.assert_frame_equal(
                    frame[["kind", "label", "three"]], old[["kind", "label", "three"]]
                )
                if "svm" in frame:
                    new = list(frame["svm"]) == list(ooc_svm.predict(models["label"], path))
                    assert new or (overwrite and list(frame["svm"]) == list(old["svm"]))
            ooc_svm.predict(models["label"], path, to_obs="svm", overwrite=True)
            assert list(read_both_ways(path)["svm"]) == list(ooc_svm.predict(models["label"], path))
            shutil.rmtree(path)
            if not killed():
                break
        else:
            pytest.fail("never went through")
    assert fired > 4


def kill_at(patch, step):
    """Die before the given rename: of metadata files, or of the folder of a column."""
    count = 0

    def rename(*arguments, _rename=os.rename):
        nonlocal count
        count += 1
        if count >= step:
            raise Killed
        _rename(*arguments)

    patch.setattr(os, "rename", rename)
    return lambda: count >= step


@pytest.mark.fault
@pytest.mark.parametrize("step", range(1, 7))
def test_a_signal_while_columns_are_replaced(store, models, monkeypatch, step):
    """It waits until the new ones are there."""
    ooc_svm.predict(models["kind"], store, to_obs="svm")
    with monkeypatch.context() as patch:
        fired = signal_at(patch, step)
        with pytest.raises(Interrupted), handle_signals(grace=0):
            ooc_svm.predict(models["label"], store, to_obs="svm", overwrite=True)
    assert fired() == [signal.SIGTERM]
    assert list(read_both_ways(store)["svm"]) == list(ooc_svm.predict(models["label"], store))
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def signal_at(patch, step):
    """A signal comes with the given rename."""
    count, rename = [], os.rename

    def counted(*arguments):
        count.append(None)
        if len(count) == step:
            count[-1] = signal.SIGTERM
            signal.raise_signal(signal.SIGTERM)
        rename(*arguments)

    patch.setattr(os, "rename", counted)
    return lambda: [number for number in count if number is not None]


@pytest.mark.fault
@pytest.mark.usefixtures("keyboard")
def test_nothing_is_written_after_an_interruption(store, models, monkeypatch):
    """Zarr goes on in a thread of its own where waiting for it is interrupted."""
    create, began = ObsColumns._create, threading.Event()

    def slow(*arguments):
        began.set()
        time.sleep(0.3)
        return create(*arguments)

    def interrupt():
        began.wait()
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ObsColumns, "_create", slow)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ooc_svm.predict(models["label"], store, to_obs="svm")
    thread.join()
    time.sleep(0.5)
    assert [path.name for path in store.parent.iterdir()] == [store.name]


@pytest.mark.fault
def test_a_full_disk(store, models, monkeypatch):
    before = read_both_ways(store)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zarr, "create_array", full)
    with pytest.raises(StorageError, match="No space left"):
        ooc_svm.predict(models["label"], store, to_obs="svm")
    pd.testing.assert_frame_equal(read_both_ways(store), before)
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_two_runs_at_once_and_too_few_rows(store):
    with ObsColumns(store, 150, {"a": None}, overwrite=False) as writer:
        with pytest.raises(StorageError, match="another run writes columns"):
            ObsColumns(store, 150, {"b": None}, overwrite=False)
        writer.append({"a": np.ones(100)})
        with pytest.raises(InputError, match="100 predictions for 150 rows"):
            writer.commit()
    assert "a" not in read_both_ways(store)


def test_names_of_rows(store, rows):
    assert open_store(store).read_row_names(148, 150) == ["cell 148", "cell 149"]
    own = make_store(store.parent / "own.zarr", *rows)
    assert open_store(own).read_row_names(0, 3) is None
