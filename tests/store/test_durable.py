"""What is renamed into place is on the disk: every file and folder was forced there after its last change."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from helpers.store_data import SMALL, assert_same, labelled, random_rows, read_all, write_store

from ooc_svm.errors import StorageError, UsageError
from ooc_svm.store import StoreWriter, open_store


class Forced:
    """Keeps account of what was forced to the disk, and in which order."""

    def __init__(self, monkeypatch, target):
        self.last = {}  # inode: (number of the call, size, time of the last change)
        self.paths = []  # of the store, the last forced last
        self._target, self._lock, self._calls = target, threading.Lock(), 0
        self._fsync, self._rename = os.fsync, os.rename
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "rename", self.rename)

    def fsync(self, descriptor):
        before = os.fstat(descriptor)
        self._fsync(descriptor)
        with self._lock:
            self._calls += 1
            self.last[before.st_ino] = (self._calls, before.st_size, before.st_mtime_ns)

    def rename(self, source, target):
        if target == self._target:
            order = {}
            for folder, _, files in os.walk(source):
                for path in (folder, *(os.path.join(folder, name) for name in files)):
                    status = os.stat(path)
                    call, *state = self.last.get(status.st_ino, (0, None))
                    assert state == [status.st_size, status.st_mtime_ns], path
                    order[call] = os.path.relpath(path, source)
            self.paths = [order[call] for call in sorted(order)]
        self._rename(source, target)


def test_everything_is_forced_to_the_disk_before_the_rename_and_the_mark_last(tmp_path, monkeypatch):
    matrix, labels = random_rows(3, n_rows=200)
    forced = Forced(monkeypatch, tmp_path / "s")
    with StoreWriter(tmp_path / "s", threads=3, **SMALL) as writer:
        for start in range(0, 200, 50):
            writer.append(labelled(matrix, labels, start, start + 50))
        writer.commit(n_features=20, provenance={"from": "a test"})
    assert len(forced.paths) > 100
    assert forced.paths[-2:] == ["zarr.json", "."]
    store = open_store(tmp_path / "s")
    assert_same(read_all(store), matrix)
    assert store.provenance == {"from": "a test"}


def test_after_a_failure_nothing_can_be_committed(tmp_path, monkeypatch):
    matrix, labels = random_rows(3, n_rows=200)
    fsync, left = os.fsync, [40]

    def failing_once(descriptor):
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    with StoreWriter(tmp_path / "s", threads=3, **SMALL) as writer:
        monkeypatch.setattr(os, "fsync", failing_once)
        with pytest.raises(StorageError, match="Input/output error"):  # noqa: PT012 - whichever call it is
            writer.append(labelled(matrix, labels))
            writer.commit()
        assert left[0] <= 0
        with pytest.raises(UsageError, match="closed"):
            writer.commit()
    assert list(tmp_path.iterdir()) == []


def test_few_files_are_open_at_once(tmp_path, monkeypatch):
    """However slow the disk is, files that wait for it are few."""
    matrix, labels = random_rows(4, n_rows=300)
    fsync, lock, most = os.fsync, threading.Lock(), [0]

    def slow_fsync(descriptor):
        with lock:
            most[0] = max(most[0], len(os.listdir("/proc/self/fd")))
        threading.Event().wait(0.002)
        fsync(descriptor)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fsync", slow_fsync)
    write_store(tmp_path / "s", matrix, labels, threads=2, chunk_elements=20)
    assert before < most[0] < before + 32
    assert_same(read_all(open_store(tmp_path / "s")), matrix)


def test_least_number_of_columns(tmp_path):
    matrix, labels = random_rows(4, n_features=9)
    for given, least, expected in ((None, 30, 30), (None, 2, 9), (None, None, 9), (12, 30, 12)):
        with StoreWriter(tmp_path / "s", overwrite=True, n_features=given) as writer:
            writer.append(labelled(matrix, labels))
            written = writer.commit(n_features=least)
        assert written.n_features == open_store(tmp_path / "s").n_features == expected
        assert written.label_runs == open_store(tmp_path / "s").label_runs
