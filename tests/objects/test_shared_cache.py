"""A cache of chunks that other runs change while it is opened."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from ooc_svm.errors import StorageError
from ooc_svm.store import chunk_cache
from ooc_svm.store.chunk_cache import ChunkCache

OLD, NEW = "old" * 20, "new" * 20


def folder_of(cache: Path, store_id: str) -> Path:
    return cache / f"ooc-svm-chunks-{store_id[:32]}"


def fill(cache: Path, store_id: str) -> Path:
    ChunkCache(cache, store_id, 10_000, 100_000)
    folder = folder_of(cache, store_id)
    (folder / "X.data.c.0").write_bytes(bytes(4000))
    (folder / "X.data.c.1").write_bytes(bytes(3000))
    return folder


@pytest.mark.fault
def test_files_that_are_gone_count_nothing(tmp_path: Path, monkeypatch):
    folder, scandir, gone = fill(tmp_path, OLD), os.scandir, []

    @contextmanager
    def scan(place):
        with scandir(place) as entries:
            found = list(entries)
        for each in found:
            if each.name == "X.data.c.1":
                os.unlink(each.path)
                gone.append(each.name)
        yield iter(found)

    monkeypatch.setattr(chunk_cache.os, "scandir", scan)
    cache = ChunkCache(tmp_path, OLD, 10_000, 100_000)
    monkeypatch.undo()
    assert gone == ["X.data.c.1"]
    assert cache._room == 10_000 - 4000
    assert (folder / "X.data.c.0").exists()


def test_what_a_killed_run_left_is_removed_unless_another_run_is_there(tmp_path: Path):
    folder = fill(tmp_path, OLD)
    left = folder / ".X.data.c.2.99999.1"
    in_use = ChunkCache(tmp_path, OLD, 10_000, 100_000)
    left.write_bytes(bytes(2000))
    ChunkCache(tmp_path, OLD, 10_000, 100_000)
    assert left.exists()
    del in_use
    assert ChunkCache(tmp_path, OLD, 10_000, 100_000)._room == 10_000 - 7000
    assert sorted(path.name for path in folder.iterdir()) == ["X.data.c.0", "X.data.c.1", "lock"]


@pytest.mark.fault
@pytest.mark.parametrize("step", ["listing", "counting", "locking", "removing"])
def test_folders_that_are_gone_count_nothing(tmp_path: Path, monkeypatch, step: str):
    folder, gone = fill(tmp_path, OLD), []

    def remove() -> None:
        if folder.exists():
            gone.append(step)
            rmtree(folder)

    exists, size, flock, rmtree = Path.exists, chunk_cache._size, fcntl.flock, shutil.rmtree

    def exists_before(path, **options):
        found = exists(path, **options)
        if path == folder / "lock":
            gone.append(step)
            rmtree(folder)
        return found

    def size_after(place):
        if step == "counting" and place == folder:
            remove()
        found = size(place)
        if step == "locking" and place == folder:
            remove()
        return found

    def flock_after(lock, operation):
        flock(lock, operation)
        if operation & fcntl.LOCK_EX:
            remove()

    if step == "listing":
        monkeypatch.setattr(Path, "exists", exists_before)
    elif step == "removing":
        monkeypatch.setattr(chunk_cache.fcntl, "flock", flock_after)
    else:
        monkeypatch.setattr(chunk_cache, "_size", size_after)
    cache = ChunkCache(tmp_path, NEW, 10_000, 10_000)
    monkeypatch.undo()
    assert gone == [step]
    assert cache._room == 10_000


@pytest.mark.fault
def test_a_folder_that_is_used_again_while_it_is_removed_stays(tmp_path: Path, monkeypatch):
    folder, rmtree, fired = fill(tmp_path, OLD), shutil.rmtree, []

    def removed_and_made(place):
        rmtree(place)
        place.mkdir()
        (place / "lock").write_bytes(b"")
        fired.append(place)
        os.rmdir(place)

    monkeypatch.setattr(chunk_cache.shutil, "rmtree", removed_and_made)
    assert ChunkCache(tmp_path, NEW, 10_000, 10_000)._room == 10_000
    assert fired == [folder]

    def refused(place):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(chunk_cache.shutil, "rmtree", refused)
    (folder / "X.data.c.0").write_bytes(bytes(4000))
    with pytest.raises(StorageError, match="cannot be removed: Permission denied; remove it"):
        ChunkCache(tmp_path, "third" * 20, 10_000, 10_000)


@pytest.mark.fault
def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch):
    flock, removed = fcntl.flock, []

    def late(lock, operation):
        flock(lock, operation)
        if operation == fcntl.LOCK_SH and not removed:
            removed.append(operation)
            shutil.rmtree(folder_of(tmp_path, NEW))

    monkeypatch.setattr(chunk_cache.fcntl, "flock", late)
    cache = ChunkCache(tmp_path, NEW, 10_000, 10_000)
    assert removed == [fcntl.LOCK_SH]
    assert (folder_of(tmp_path, NEW) / "lock").exists()
    assert cache._room == 10_000


@pytest.mark.parametrize("where", [".", "inner"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, where: str):
    """Such as the disk of a cache that is not mounted."""
    (tmp_path / "cache").symlink_to(tmp_path / "gone")
    with pytest.raises(StorageError, match="give the cache a folder that can be written"):
        ChunkCache(tmp_path / "cache" / where, NEW, 10_000, 100_000)
