"""Training on text: the model of convert and train, in one process that leaves nothing behind."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.compressors import COMPRESSORS

import ooc_svm
from ooc_svm.engine.local import LocalEngine
from ooc_svm.errors import DamageError, InputError, Interrupted, MemoryBudgetError, StorageError, UsageError
from ooc_svm.store.held_blocks import HeldBlocks
from ooc_svm.system import files
from ooc_svm.system.signals import handle_signals
from ooc_svm.training import engines

LITTLE = {"memory": "391MB", "threads": 1}
"""Hardly more than training needs: no rows are held."""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for scratch data, which is empty in the end."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.fixture(scope="module")
def expected(small) -> ooc_svm.Model:
    return ooc_svm.train(small.store)


def assert_same(model: ooc_svm.Model, other: ooc_svm.Model) -> None:
    arrays, others = model.functions.to_arrays(), other.functions.to_arrays()
    assert arrays.keys() == others.keys()
    assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays)
    assert model.options == other.options
    own = ("seconds", "bytes_read", "history", "models", "passes")
    assert model.report["models"] == other.report["models"]
    assert {name for name in own if name in model.report} == set(own)


def test_text_gives_the_model_of_its_store(small, expected, scratch):
    model = ooc_svm.train(small.text)
    assert_same(model, expected)
    assert 0 < model.report["conversion_seconds"] < 60
    assert "conversion_seconds" not in expected.report
    assert model.report["bytes_read"] == 0 < expected.report["bytes_read"]  # the rows were kept
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    "options",
    [
        LITTLE,
        {"kernel": "rbf", "gamma": 0.1, "landmarks": 16},  # whose rows are not held in memory
    ],
)
def test_rows_are_read_where_none_are_kept(small, scratch, options):
    model = ooc_svm.train(small.text, **options)
    assert_same(model, ooc_svm.train(small.store, **options))
    assert model.report["bytes_read"] > 0


def test_what_no_memory_is_left_for_is_not_held(small, expected, scratch, monkeypatch):
    held = []

    def hand_over(self, dtype):
        blocks = original(self, dtype)
        held.extend(weakref.ref(block.indices) for block in blocks)
        return blocks

    original = HeldBlocks.hand_over
    monkeypatch.setattr(HeldBlocks, "hand_over", hand_over)
    monkeypatch.setattr(LocalEngine, "pinned", frozenset())
    alive = []
    model = ooc_svm.train(
        small.text, progress=lambda _: alive.append([array() is not None for array in held])
    )
    assert_same(model, expected)
    assert held
    assert any(each and all(each) for each in alive)
    assert not any(alive[-1])
    assert model.report["bytes_read"] == expected.report["bytes_read"]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_text_too(small, expected, scratch, tmp_path, suffix):
    packed = tmp_path / f"train.svm{suffix}"
    packed.write_bytes(COMPRESSORS[suffix](small.text.read_bytes()))
    assert_same(ooc_svm.train(packed), expected)


def test_several_files_are_one(small, expected, scratch, tmp_path):
    lines = small.text.read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join(lines[:100]))
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"".join(lines[100:])))
    assert_same(ooc_svm.train([tmp_path / "a", tmp_path / "b.gz"]), expected)


def test_the_store_is_kept_where_that_is_asked_for(small, expected, scratch, tmp_path):
    assert_same(ooc_svm.train(small.text, store=tmp_path / "kept.zarr"), expected)
    assert ooc_svm.open_store(tmp_path / "kept.zarr").id == ooc_svm.open_store(small.store).id
    with pytest.raises(UsageError, match=r"kept\.zarr exists; train on it if .* or give store another name"):
        ooc_svm.train(small.text, store=tmp_path / "kept.zarr")


def stored_files(scratch, text, notes=None, **options):
    """Names of the files of the store while the models are trained; ``notes`` gets what is told."""
    files = set()

    def look(event):
        if event.kind == "note" and notes is not None:
            notes.append(event.message)
        if event.kind == "pass":
            files.update(path.name for path in scratch.glob("*/text.zarr/**/*") if path.is_file())

    return ooc_svm.train(text, progress=look, **options), files


def test_a_store_is_written_only_where_it_has_to_be(small, expected, scratch, tmp_path):
    model, files = stored_files(scratch, small.text)
    assert not files
    assert_same(model, expected)
    for options in (LITTLE, {"checkpoint": tmp_path / "saved"}, {"kernel": "rbf", "landmarks": 16}):
        model, files = stored_files(scratch, small.text, **options)
        assert {"zarr.json", "0"} <= files
        shutil.rmtree(tmp_path / "saved", ignore_errors=True)
        assert_same(model, ooc_svm.train(small.store, **options))


def test_a_run_starts_from_the_state_of_another(small, scratch, tmp_path):
    ooc_svm.train(small.text, C=0.5, checkpoint=tmp_path / "saved")
    model, files = stored_files(scratch, small.text, warm_start=tmp_path / "saved")
    assert files
    assert_same(model, ooc_svm.train(small.store, warm_start=tmp_path / "saved"))


def test_rows_that_training_has_no_room_for_are_written_late(small, expected, scratch, monkeypatch):
    def little_cache(*arguments, **options):
        return replace(original(*arguments, **options), cache_bytes=0)

    original = engines.divide
    monkeypatch.setattr(engines, "divide", little_cache)
    notes = []
    model, files = stored_files(scratch, small.text, notes)
    assert files
    assert_same(model, expected)
    assert model.report["bytes_read"] > 0
    assert any(note.startswith("not all rows fit in memory: they were written in ") for note in notes)


@pytest.mark.fault
def test_a_signal_while_rows_are_written_late_ends_it_at_once(small, scratch, monkeypatch):
    sent, kinds = [], []

    def write_fully(descriptor, content):
        if not sent:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        original(descriptor, content)

    original = files.write_fully
    monkeypatch.setattr(LocalEngine, "pinned", frozenset())
    monkeypatch.setattr("ooc_svm.store.fsync.write_fully", write_fully)
    with pytest.raises(Interrupted, match=r"interrupted by SIGINT before the end"), handle_signals():
        ooc_svm.train(small.text, progress=lambda event: kinds.append(event.kind))
    assert time.monotonic() - sent[0] < 6  # and not the time that a training has to come to its end
    assert "conversion" in kinds
    assert "pass" not in kinds
    assert not list(scratch.iterdir())


def test_only_chunks_of_a_store_that_is_kept_are_forced_to_the_disk(small, scratch, tmp_path, monkeypatch):
    forced = []

    def fsync(descriptor):
        forced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", fsync)
    ooc_svm.train(small.text, checkpoint=tmp_path / "saved")
    assert any(path.startswith(str(scratch)) for path in forced)
    assert not any("/c/" in path for path in forced)
    ooc_svm.train(small.text, store=tmp_path / "kept.zarr")
    for name in ("indptr", "indices", "data"):
        assert any(path.endswith(f"/X/{name}/c/0") for path in forced)


def test_options_of_reading_are_those_of_convert(scratch, tmp_path):
    text = tmp_path / "zero.svm"
    text.write_text("1 0:1.0000000001 2:1\n-1 1:1\nno\n" * 4)
    options = {"index_base": 0, "features": 9, "dtype": "float64", "bad_lines": "skip", "max_bad_lines": 4}
    with pytest.warns(UserWarning, match=r"^4 bad lines were left out; they are in .*s\.zarr\.rejected$"):
        model = ooc_svm.train(text, store=tmp_path / "s.zarr", **options)
    store = ooc_svm.open_store(tmp_path / "s.zarr")
    assert (store.n_rows, store.n_features, store.value_type) == (8, 9, "float64")
    assert model.index_base == 0
    assert (tmp_path / "s.zarr.rejected").read_text().count("no\n") == 4
    with pytest.raises(InputError, match="more than 3 bad lines"):
        ooc_svm.train(text, index_base=0, bad_lines="skip", max_bad_lines=3)
    with pytest.raises(InputError, match=r"zero\.svm:1:3: index 0"):
        ooc_svm.train(text)
    assert not list(scratch.iterdir())


def test_bad_lines_that_are_not_kept_are_said(scratch, tmp_path):
    text = tmp_path / "bad.svm"
    text.write_text("1 1:1\n-1 2:1\nno\n")
    with pytest.warns(
        UserWarning, match=r"^1 bad line was left out; keep the store \(store\), and it is kept"
    ):
        ooc_svm.train(text, bad_lines="skip")


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("store", {"index_base": 0}, "index_base is for text, and this data is none; leave it out"),
        ("store", {"store": "a"}, "store is for text, and this data is none"),
        ("matrix", {"dtype": "float64"}, "dtype is for text"),
        ("text", {"labels": [1.0]}, r"labels must be one of 'numbers', 'text', 'sets', not \[1\.0\]"),
        ("text", {"sample_weight": [1.0]}, "leave sample_weight out"),
        ("text", {"label": "kind"}, "label names a column of a store; text has none"),
        ("text", {"engine": "dask"}, "engine='dask' reads a store; convert the text first"),
        ("text", {"max_bad_lines": 2}, "max_bad_lines needs bad_lines='skip'"),
        ("both", {}, r"train\.zarr is a store; give one store, or text files"),
        ("missing", {}, "missing"),
    ],
)
def test_what_contradicts_itself_is_refused(small, scratch, data, options, message):
    given = {
        "store": small.store,
        "matrix": np.eye(2),
        "text": small.text,
        "both": [small.text, small.store],
        "missing": small.folder / "missing",
    }
    with pytest.raises((UsageError, InputError), match=message):
        ooc_svm.train(given[data], **options)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("magic", "kind"),
    [
        (b"\x89HDF\r\n\x1a\n", r"HDF5 \(AnnData\)"),
        (b"PK\x03\x04", r"an archive \(.npz\)"),
        (b"PAR1", "Parquet"),
    ],
)
def test_files_that_are_no_text_are_answered_with_their_conversion(small, scratch, tmp_path, magic, kind):
    path = tmp_path / "cells.h5ad"
    path.write_bytes(magic + bytes(100))
    with pytest.raises(InputError, match=rf"is {kind}, no text; make a store: ooc-svm convert .*cells.h5ad"):
        ooc_svm.train(path)
    with pytest.raises(UsageError, match="layer names a layer of a store; text has none"):
        ooc_svm.train(small.text, layer="counts")
    assert not list(scratch.iterdir())


def test_a_plan_is_for_stores(small):
    with pytest.raises(UsageError, match=r"train\.svm is text, .*; convert it first \(convert\)"):
        ooc_svm.plan(small.text)


def test_a_run_of_text_is_resumed_by_its_content(small, expected, scratch, tmp_path):
    ooc_svm.train(small.text, checkpoint=tmp_path / "saved", max_passes=2)
    notes = []
    resumed = ooc_svm.train(
        small.text,
        checkpoint=tmp_path / "saved",
        resume=True,
        progress=lambda event: notes.append(event.message) if event.kind == "note" else None,
    )
    assert any("going on after 2 passes" in note for note in notes)
    assert resumed.functions.to_arrays()["weights"].tobytes() == (
        expected.functions.to_arrays()["weights"].tobytes()
    )
    other = tmp_path / "other.svm"
    other.write_bytes(small.text.read_bytes() + b"1 1:1\n")
    with pytest.raises(DamageError, match="on other data"):
        ooc_svm.train(other, checkpoint=tmp_path / "saved", resume=True)


def test_progress_tells_both_parts_apart(small, scratch):
    events = []
    ooc_svm.train(small.text, progress=events.append)
    kinds = [event.kind for event in events]
    converted = [event for event in events if event.kind == "conversion"]
    assert converted[-1].bytes_read == converted[-1].n_bytes == small.text.stat().st_size
    assert converted[-1].n_rows == small.n_rows
    assert max(i for i, kind in enumerate(kinds) if kind == "conversion") < kinds.index("pass")
    assert next(event.message for event in events if event.kind == "note").startswith("converted ")


def test_a_scratch_folder_that_cannot_be_written_is_said(small, tmp_path, monkeypatch):
    monkeypatch.setattr("ooc_svm.training.text.default_scratch_folder", lambda: tmp_path / "none")
    with pytest.raises(StorageError, match=r"name another folder in TMPDIR, or keep the store .* by store"):
        ooc_svm.train(small.text)


KILLED = f"""
import os, signal, sys
import ooc_svm
def end(event):
    if event.kind == "note":
        os.kill(os.getpid(), signal.SIGKILL)
ooc_svm.train(sys.argv[1], progress=end, **{LITTLE})
"""


@pytest.mark.fault
def test_what_a_killed_run_left_is_removed_by_the_next(small, expected, scratch):
    environment = {**os.environ, "TMPDIR": str(scratch)}
    killed = subprocess.run([sys.executable, "-c", KILLED, small.text], env=environment, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    [left] = scratch.iterdir()
    assert left.stat().st_mode & 0o777 == 0o700
    assert (left / "text.zarr" / "zarr.json").exists()
    assert_same(ooc_svm.train(small.text), expected)
    assert not list(scratch.iterdir())


def test_the_libraries_of_both_parts_count(small, scratch):
    with pytest.raises(MemoryBudgetError, match=r"training needs .*: Python and libraries 335 MB"):
        ooc_svm.train(small.text, memory="336MB", threads=1)
    ooc_svm.train(small.store, memory="336MB", threads=1)
    assert not list(scratch.iterdir())
