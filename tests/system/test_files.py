"""Errors of the system name a file, and what cannot be known is not taken for what is not there."""

from __future__ import annotations

import errno
import os
import signal

import numpy as np
import pytest

from ooc_svm.errors import Interrupted, StorageError
from ooc_svm.model.file import check_model_target
from ooc_svm.system import files, folders, private_folders
from ooc_svm.system.folders import Building
from ooc_svm.system.signals import handle_signals
from ooc_svm.text.inputs import open_input
from ooc_svm.training.checkpoint import Saved


def failing(number=errno.EIO):
    def fail(*arguments, **options):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def loop(tmp_path):
    """A path of which nothing can be known: a link to itself."""
    path = tmp_path / "loop"
    path.symlink_to(path)
    return path


def test_errors_of_an_open_file_name_it(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc" * 10)
    for read in ("read", "readline", "peek"):
        file = files.open_to_read(path)
        os.close(file.fileno())
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            getattr(file, read)()
        assert caught.value.filename == str(path)
        file.close()  # nothing was written, so a failing close says nothing


def test_what_cannot_be_known_is_an_error(loop, tmp_path):
    assert files.status_of(tmp_path / "none") is None
    assert files.status_of(tmp_path / "null\0byte") is None
    assert files.status_of(tmp_path / ("long" * 100)) is None
    assert files.status_of(loop, follow=False) is not None
    for ask in (files.status_of, files.is_folder, check_model_target):
        with pytest.raises(OSError, match="symbolic links"):
            ask(loop)


def test_a_file_that_cannot_be_looked_at_has_not_changed(tmp_path, monkeypatch):
    path = tmp_path / "a.svm"
    path.write_text("1 1:1\n")
    real = os.stat

    def stat(place, **options):
        return failing()() if place == str(path) else real(place, **options)

    with open_input(str(path)) as text, monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        with pytest.raises(StorageError, match=r"a\.svm: cannot be looked at: Input/output error"):
            list(text.chunks())


def test_reading_the_vectors_of_a_checkpoint_names_the_file(tmp_path):
    (tmp_path / "checkpoint-0.vectors").write_bytes(np.zeros(3).tobytes())

    class Vectors:
        n_rows = 3
        load = failing()

    saved = Saved(tmp_path, 0, {"vectors": {"names": ["v"]}}, {}, [0])
    with pytest.raises(StorageError, match=r"checkpoint-0\.vectors failed: Input/output error"):
        saved.load("v", "v", Vectors())


@pytest.fixture
def target(tmp_path):
    """A folder of ours with a file that says which version it is."""
    path = tmp_path / "out"
    path.mkdir()
    (path / "version").write_text("old")
    return path


def build(target):
    building = Building(target, lambda path: True, overwrite=True)
    (building.folder / "inner").mkdir()
    (building.folder / "version").write_text("new")
    return building


@pytest.mark.parametrize("exchanged", [True, False])
def test_a_folder_is_replaced(target, monkeypatch, exchanged):
    if not exchanged:
        monkeypatch.setattr(folders, "exchange", lambda path, other: False)
    with build(target) as building:
        building.publish()
    assert (target / "version").read_text() == "new"
    assert os.listdir(target.parent) == ["out"]


@pytest.mark.fault
def test_several_files_appear_together_or_not_at_all(tmp_path):
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.write_text("old")

    def full(file):
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="b: cannot be written: No space left"):
        files.atomic_writes([(places[0], lambda file: file.write(b"new")), (places[1], full)])
    assert [place.read_text() for place in places] == ["old", "old"]
    files.atomic_writes([(place, lambda file: file.write(b"new")) for place in places])
    assert [place.read_text() for place in places] == ["new", "new"]
    assert sorted(tmp_path.iterdir()) == places


@pytest.mark.fault
def test_a_signal_between_two_renames_waits(tmp_path, monkeypatch):
    def rename(old, new, own=os.rename):
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.undo()
        own(old, new)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(Interrupted), handle_signals(grace=0):
        files.atomic_writes([(tmp_path / name, lambda file: file.write(b"new")) for name in ("a", "b")])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "new"}


def test_what_a_killed_run_has_left_goes_when_a_place_is_tried(tmp_path):
    left, lock = private_folders.make_new(tmp_path, ".a.", ".partial")
    files.check_writable(tmp_path / "a")
    assert left.exists()  # in use
    os.close(lock)
    files.check_writable(tmp_path / "a")
    assert not left.exists()


def test_the_old_folder_stays_where_no_rename_succeeds(target, monkeypatch):
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, failing(errno.EACCES))
    if not files.exchange(target, target):
        pytest.skip("this file system cannot exchange names")
    monkeypatch.setattr(folders, "exchange", failing(errno.EACCES))
    building = build(target)
    with pytest.raises(StorageError, match="Permission denied"), building:
        building.publish()
    assert (target / "version").read_text() == "old"


def test_a_folder_that_exists_never_has_a_moment_without_its_name(target, monkeypatch):
    if not files.exchange(target, target):
        pytest.skip("this file system cannot exchange names")
    with build(target) as building:
        monkeypatch.setattr(os, "rename", failing())
        building.publish()
    assert (target / "version").read_text() == "new"


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_folder_is_removed_though_a_close_fails(tmp_path, monkeypatch, nth):
    path, lock = private_folders.make_new(tmp_path, "a-")
    (path / "b" / "c").mkdir(parents=True)
    (path / "b" / "c" / "d").write_text("")
    real, calls = os.close, []

    def close(descriptor):
        real(descriptor)
        calls.append(descriptor)
        if len(calls) == nth:
            failing()()

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        private_folders.remove(path)
    real(lock)
    assert not path.exists()


def test_a_lock_that_cannot_be_closed_does_not_matter(target, monkeypatch):
    real = os.close
    with build(target) as building:
        building.publish()
        monkeypatch.setattr(os, "close", lambda descriptor: (real(descriptor), failing()()))
    assert (target / "version").read_text() == "new"


def test_a_folder_that_is_missing_is_named(tmp_path):
    for write in (files.check_writable, lambda path: files.atomic_write(path, lambda file: None)):
        with pytest.raises(StorageError, match=f"there is no folder {tmp_path}/none/a; make it") as caught:
            write(tmp_path / "none" / "a" / "model")
        assert str(caught.value).startswith(f"{tmp_path}/none/a/model: cannot be written: ")
    assert not (tmp_path / "none").exists()
