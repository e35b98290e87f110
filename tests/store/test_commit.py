"""Killed, starved, raced: the target is absent, the old store or the new one; the next run cleans up."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from faults.calls import NEVER, CallFault
from helpers.store_data import assert_same, labelled, random_rows, read_all, write_store

from ooc_svm.errors import StorageError, UsageError
from ooc_svm.store import StoreWriter, open_store, verify_store

pytestmark = pytest.mark.fault


def write_small(target: str, mode: str) -> None:
    matrix, labels = random_rows(2, n_rows=6)
    write_store(Path(target), matrix, labels, chunk_elements=64, chunk_rows=64, overwrite=mode == "overwrite")


def steps(calls: int) -> list[int]:
    """Calls to fail at: the order matters at the end; before, one file is written after another."""
    return sorted({*range(1, calls, 15), *range(max(calls - 9, 1), calls + 1)})


def leftovers(target: Path) -> set[str]:
    return {entry.name for entry in target.parent.iterdir()} - {target.name}


@pytest.mark.parametrize("counted", [("fsync",), ("rename", "unlink", "mkdir", "chmod", "rmdir")])
@pytest.mark.parametrize("mode", ["new", "overwrite"])
def test_killed_at_every_step(fork_server, tmp_path, mode, counted):
    def run(at):
        fault = CallFault(counted, at, at, "s", signal.SIGKILL)
        return fork_server.call(
            "store.test_commit:write_small", str(target), mode, fault=fault, within=tmp_path
        )

    target = tmp_path / "s"
    old, old_labels = random_rows(1, n_rows=4)
    new, _ = random_rows(2, n_rows=6)
    seen = set()
    if mode == "overwrite":
        write_store(target, old, old_labels)
    calls = run(NEVER).calls
    assert 8 < calls < 250
    for n in steps(calls):
        for name in leftovers(target):  # sweeping them is for the last run: it would shift the counts
            entry = tmp_path / name
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if mode == "new":
            shutil.rmtree(target, ignore_errors=True)
        elif open_store(target).n_rows != 4:
            write_store(target, old, old_labels, overwrite=True)
        assert run(n).code == -signal.SIGKILL
        assert leftovers(target)
        found = None
        if target.exists():
            store = open_store(target)
            found = store.n_rows
            assert_same(read_all(store), old if found == 4 else new)
        seen.add(found)
        if found is None and mode == "overwrite":  # killed between the two renames: the old one comes back
            with pytest.raises(UsageError, match="exists"):
                StoreWriter(target)
    if mode == "new":
        shutil.rmtree(target, ignore_errors=True)
    assert run(NEVER).code == 0
    verify_store(target)
    assert open_store(target).n_rows == 6
    assert leftovers(target) == set()
    assert seen >= ({None, 6} if mode == "new" else {4, 6})


def test_old_store_comes_back_after_a_kill_between_the_two_renames(tmp_path):
    target = tmp_path / "s"
    matrix, labels = random_rows(1)
    write_store(target, matrix, labels)
    target.rename(tmp_path / "s.replaced-0123456789abcdef")
    (tmp_path / "s.building-0123456789abcdef").mkdir(mode=0o700)
    with pytest.raises(UsageError, match="exists"):
        StoreWriter(target)
    assert_same(read_all(open_store(target)), matrix)


def test_leaving_without_commit_leaves_nothing(tmp_path):
    matrix, labels = random_rows(1)
    with StoreWriter(tmp_path / "s") as writer:
        writer.append(labelled(matrix, labels))
    with pytest.raises(UsageError, match="closed"):
        writer.commit()
    assert list(tmp_path.iterdir()) == []


def test_second_writer_is_refused_at_once(tmp_path):
    with StoreWriter(tmp_path / "s"), pytest.raises(StorageError, match="another run is writing"):
        StoreWriter(tmp_path / "s")
    StoreWriter(tmp_path / "s").close()


def test_lock_of_another_process(tmp_path):
    with open(tmp_path / "s.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another run is writing"):
            StoreWriter(tmp_path / "s")
    StoreWriter(tmp_path / "s").close()
    assert list(tmp_path.iterdir()) == []


def test_only_our_stores_are_overwritten(tmp_path):
    matrix, labels = random_rows(1)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("keep")
    (tmp_path / "text").write_text("keep")
    (tmp_path / "link").symlink_to(mine)
    for name in ("mine", "text", "link"):
        with pytest.raises(UsageError, match="exists and was not written by this program"):
            StoreWriter(tmp_path / name, overwrite=True)
    assert (mine / "file").read_text() == (tmp_path / "text").read_text() == "keep"
    write_store(tmp_path / "s", matrix, labels)
    with pytest.raises(UsageError, match="exists; remove it"):
        StoreWriter(tmp_path / "s")
    write_store(tmp_path / "s", matrix[:3], labels[:3], overwrite=True)
    assert open_store(tmp_path / "s").n_rows == 3
    assert {entry.name for entry in tmp_path.iterdir()} == {"mine", "text", "link", "s"}


def test_two_dots_behind_a_link_are_the_systems(tmp_path):
    """They lead to the parent of what the link leads to, not to that of the link."""
    matrix, labels = random_rows(1)
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "inner")
    write_store(tmp_path / "link" / ".." / "s", matrix, labels)
    assert open_store(tmp_path / "link" / ".." / "s").n_rows == len(labels)
    assert [entry.name for entry in (tmp_path / "real").iterdir() if entry.name != "inner"] == ["s"]
    assert not (tmp_path / "s").exists()


def test_the_building_is_private_and_the_store_is_not(tmp_path):
    matrix, labels = random_rows(1)
    with StoreWriter(tmp_path / "s") as writer:
        (building,) = tmp_path.glob("s.building-*")
        assert stat.S_IMODE(building.stat().st_mode) == 0o700
        writer.append(labelled(matrix, labels))
        writer.commit()
    plain = tmp_path / "plain"
    plain.mkdir()
    assert (tmp_path / "s").stat().st_mode == plain.stat().st_mode


def test_missing_parent(tmp_path):
    with pytest.raises(StorageError, match=r"writing .*none/s failed: No such file"):
        StoreWriter(tmp_path / "none" / "s")


@pytest.mark.parametrize(
    ("name", "number"), [("fsync", errno.EIO), ("write", errno.ENOSPC), ("rename", errno.EACCES)]
)
def test_every_failed_call_fails_the_commit(fork_server, tmp_path, name, number):
    def write(target, at):
        fault = CallFault((name,), at, at, "e", number)
        return fork_server.call(
            "store.test_commit:write_small", str(target), "new", fault=fault, within=tmp_path
        )

    calls = write(tmp_path / "counting", NEVER).calls
    for stop in steps(calls):
        target = tmp_path / f"s{stop}"
        ended = write(target, stop)
        assert ended.spoiled == 1
        assert ended.error[0] == "StorageError"
        assert str(target) in ended.error[1]
        assert os.strerror(number) in ended.error[1]
        if target.exists():  # only the last step, the parent folder's fsync, fails after the rename
            verify_store(target)
            shutil.rmtree(target)
        assert leftovers(target) == {"counting"}


def test_an_old_store_that_cannot_be_read_is_no_foreign_one(fork_server, tmp_path):
    target = tmp_path / "s"
    matrix, labels = random_rows(1, n_rows=4)
    write_store(target, matrix, labels)
    fault = CallFault(("pread",), 1, 1, "e", errno.EIO)
    arguments = (str(target), "overwrite")
    ended = fork_server.call("store.test_commit:write_small", *arguments, fault=fault, within=tmp_path)
    assert ended.spoiled == 1
    assert ended.error[0] == "StorageError"
    assert f"{target}/zarr.json failed: Input/output error" in ended.error[1]
    assert_same(read_all(open_store(target)), matrix)
    assert leftovers(target) == set()


def test_disk_full(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system of its own")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], check=False).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        matrix, labels = random_rows(1, n_rows=4000, n_features=200)
        with pytest.raises(StorageError, match=r"disk/s failed: No space left on device; free some space"):
            write_store(disk / "s", matrix, labels, batches=(500,), chunk_elements=4096, chunk_rows=512)
        assert list(disk.iterdir()) == []
        write_store(
            disk / "s", matrix[:100], labels[:100], batches=(500,), chunk_elements=4096, chunk_rows=512
        )
        assert_same(read_all(open_store(disk / "s")), matrix[:100])
    finally:
        subprocess.run(["umount", disk], check=True)


def test_file_size_limit(tmp_path):
    matrix, labels = random_rows(1, n_rows=4000, n_features=200)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(StorageError, match="File too large"):
            write_store(tmp_path / "s", matrix, labels, batches=(500,), chunk_elements=4096, chunk_rows=512)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert list(tmp_path.iterdir()) == []
