"""Data, models and states that are replaced while a run uses them, or between two runs, are never mixed."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import zarr
from helpers.cluster_data import Some
from helpers.train_data import bits, make_anndata, make_store, store_rows

from ooc_svm import evaluate, predict, train
from ooc_svm.errors import DamageError
from ooc_svm.store import open_store
from ooc_svm.training import checkpoint, engines, on_cluster

pytestmark = [pytest.mark.usefixtures("few_held"), pytest.mark.fault]

module = sys.modules[train.__module__]

BLOCKS = {"chunk_elements": 500, "chunk_rows": 100, "block_rows": 100}


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "s", *store_rows(), weights=np.ones(300), **BLOCKS)


def put_another(path):
    """Overwrite a store with one of the same structure and other values, as ``convert --overwrite`` does."""
    matrix, labels = store_rows()
    matrix.data *= 1.5
    make_store(path, matrix, labels, weights=np.ones(300), overwrite=True, **BLOCKS)


@pytest.fixture
def nothing_cached(monkeypatch):
    """Every pass reads all blocks."""
    divide, resources = engines.divide, on_cluster.Resources
    monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), cache_bytes=0))
    monkeypatch.setattr(on_cluster, "Resources", lambda *sizes: replace(resources(*sizes), cache_bytes=0))


class Replace:
    """Calls a function after the first pass; ``done`` counts the calls."""

    def __init__(self, function):
        self.function, self.done = function, 0

    def __call__(self, event):
        if event.kind == "pass" and not self.done:
            self.done += 1
            self.function()


@pytest.mark.usefixtures("nothing_cached")
class TestStore:
    @pytest.mark.parametrize("solver", ["streamed-smo", "ocas", "cutting-plane"])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_while_it_is_trained_on(self, store, solver, threads):
        replaced = Replace(lambda: put_another(store))
        with pytest.raises(DamageError, match=r"X/data/c/\d+ is not the one .*; run again if the store was"):
            train(store, solver=solver, threads=threads, tol=1e-9, progress=replaced)
        assert replaced.done

    def test_while_workers_train_on_it(self, store, cluster, monkeypatch):
        @contextmanager
        def connected(*arguments, **options):
            yield Some(cluster, 2)

        monkeypatch.setattr("ooc_svm.cluster.connection.connect", connected)
        replaced = Replace(lambda: put_another(store))
        with pytest.raises(DamageError, match=r"X/data/c/\d+ is not the one written there"):
            train(store, engine="dask", tol=1e-9, progress=replaced)
        assert replaced.done

    def test_values_of_an_anndata_store_are_written_again(self, tmp_path):
        path = anndata_store(tmp_path / "a")
        replaced = Replace(lambda: put_other_values(path))
        with pytest.raises(DamageError, match=r"X/data/.* was changed or replaced after the store"):
            train(path, tol=1e-9, progress=replaced)
        assert replaced.done


def test_an_opened_store_is_not_another_one_when_it_predicts(store):
    model, opened = train(store, max_passes=2), open_store(store)
    put_another(store)
    for use in (predict, evaluate):
        with pytest.raises(DamageError, match=r"is not the one written there"):
            use(model, opened)


def anndata_store(path):
    """An AnnData store without compression: other values take as many bytes."""
    matrix, labels = store_rows()
    make_anndata(path, matrix, label=labels)
    content = zarr.open_array(path, path="X/data", mode="r")[:]
    shutil.rmtree(path / "X/data")
    zarr.create_array(path, name="X/data", data=content, chunks=(500,), compressors=None, zarr_format=2)
    return path


def put_other_values(path):
    """Write all values of X in place: sizes and inodes stay."""
    array = zarr.open_array(path, path="X/data", mode="r+")
    before = {chunk.name: chunk.stat().st_size for chunk in (path / "X/data").iterdir()}
    array[:] = array[:] * 1.5
    assert {chunk.name: chunk.stat().st_size for chunk in (path / "X/data").iterdir()} == before


class TestResume:
    def test_on_an_anndata_store_that_was_written_again(self, tmp_path):
        path, options = anndata_store(tmp_path / "a"), {"checkpoint": tmp_path / "c"}
        train(path, max_passes=2, **options)
        put_other_values(path)
        with pytest.raises(DamageError, match=r"a run on other data .*inode .* sample .* copied, moved"):
            train(path, resume=True, **options)

    def test_on_an_anndata_store_that_is_the_same(self, tmp_path):
        path, options = anndata_store(tmp_path / "a"), {"checkpoint": tmp_path / "c"}
        train(path, max_passes=2, **options)
        path.rename(tmp_path / "moved")
        assert bits(train(tmp_path / "moved", resume=True, **options)) == bits(train(tmp_path / "moved"))

    def test_on_a_copy(self, store, tmp_path):
        options = {"checkpoint": tmp_path / "c"}
        train(store, max_passes=2, **options)
        copy = shutil.copytree(store, tmp_path / "copy")
        shutil.rmtree(store)
        assert bits(train(copy, resume=True, **options)) == bits(train(copy))

    def test_on_a_store_that_was_written_again(self, store, tmp_path):
        options = {"checkpoint": tmp_path / "c"}
        train(store, max_passes=2, **options)
        put_another(store)
        with pytest.raises(DamageError, match=r"a run on other data \(these are known by the checksums"):
            train(store, resume=True, **options)

    @pytest.mark.parametrize("solver", ["streamed-smo", "ocas"])
    def test_with_a_state_that_is_written_over_meanwhile(self, store, tmp_path, monkeypatch, solver):
        """The run goes on from the state that was found whole, or not at all."""
        options, other = {"checkpoint": tmp_path / "c", "solver": solver}, {"solver": solver, "C": 3.0}
        train(store, max_passes=4, **options)
        train(store, max_passes=2, checkpoint=tmp_path / "other", **other)
        restore, calls = checkpoint.Checkpoints.restore, []

        def replace_and_restore(self, *arguments):
            for name in ("state", "vectors"):
                for place in (0, 1):
                    path = tmp_path / "other" / f"checkpoint-{place}.{name}"
                    if path.exists():
                        shutil.copy(path, tmp_path / "c" / path.name)
            calls.append(True)
            return restore(self, *arguments)

        monkeypatch.setattr(checkpoint.Checkpoints, "restore", replace_and_restore)
        with pytest.raises(DamageError, match=r"checkpoint-\d.vectors: was changed while it was read"):
            train(store, resume=True, **options)
        assert calls


def test_what_has_no_checksums_is_said_once(tmp_path, store):
    path, notes = anndata_store(tmp_path / "a"), []

    def note(event):
        if event.kind == "note" and "checksum" in event.message:
            notes.append(event.message)

    train(path, max_passes=2, progress=note)
    train(store, max_passes=2, progress=note)
    assert len(notes) == 1
    assert f"X/data, obs/label of {path} have no checksums: there is nothing to check" in notes[0]
