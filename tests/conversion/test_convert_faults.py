"""Conversions that are killed, starved and raced: the output is absent, the old store or the new one."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from faults.calls import NEVER, CallFault

import ooc_svm.conversion.reorder
from ooc_svm.conversion.convert import convert
from ooc_svm.conversion.reorder import shuffle_rows
from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import InputError, Interrupted, StorageError, UsageError
from ooc_svm.store import builder, verify_store
from ooc_svm.system import private_folders
from ooc_svm.system.files import atomic_write, check_writable
from ooc_svm.system.folders import Building
from ooc_svm.system.signals import handle_signals
from ooc_svm.text.writer import format_rows

pytestmark = pytest.mark.fault

ROWS = 60
OPTIONS = {"shuffle": 1, "bad_lines": "skip", "threads": 1}
STEPS = ("fsync", "rename", "mkdir", "unlink", "rmdir")
WRITES = ("open", "write")


def tiny_shuffle(rows, seed, folder, memory, expected_bytes):
    """A shuffle that spills a few dozen rows."""
    return shuffle_rows(rows, seed, folder, 4000, 4000)


def make_text(path, n_rows=ROWS, label=1):
    lines = [f"{label * (-1) ** row} {row % 7 + 1}:{row + 1} {row % 7 + 9}:0.5" for row in range(n_rows)]
    lines.insert(n_rows // 2, "bad line")
    path.write_text("\n".join(lines) + "\n")
    return path


def n_rows_of(target):
    """Rows of a store that is whole; None where there is none."""
    return verify_store(target).n_rows if target.exists() else None


def write_large_text(path, n_bytes):
    """Rows of 20 elements, some hundred bytes each."""
    rng = np.random.default_rng(0)
    size = 5000
    indices = np.cumsum(rng.integers(1, 100, (size, 20)), axis=1).astype(np.int32)
    values = rng.integers(1, 10_000, (size, 20)).astype(np.float32) / 8
    rows = RowBlock(0, np.arange(size + 1) * 20, indices.ravel(), values.ravel())
    lines = format_rows(LabelledRows(rows, rng.choice([-1.0, 1.0], size)))
    with path.open("wb") as file:
        for _ in range(max(n_bytes // len(lines), 1)):
            file.write(lines)
    return path


def convert_small(text, target, mode):
    """What is killed and starved below; run in a process of its own."""
    ooc_svm.conversion.reorder.shuffle_rows = tiny_shuffle
    convert(text, target, overwrite=mode == "overwrite", **OPTIONS)


@pytest.fixture
def conversion(fork_server, tmp_path):
    """Convert with a fault in the calls below the folder."""

    def run(text, target, mode, fault):
        arguments = (str(text), str(target), mode)
        return fork_server.call(
            "conversion.test_convert_faults:convert_small", *arguments, fault=fault, within=tmp_path
        )

    return run


def sample(calls, count):
    """So many calls to be killed at, and all of the last ones: there the order matters."""
    return sorted({*range(1, calls, max(calls // count, 1)), *range(max(calls - 6, 1), calls + 1)})


@pytest.mark.parametrize(("counted", "count"), [(STEPS, 12), (WRITES, 6)])
@pytest.mark.parametrize("mode", ["new", "overwrite"])
def test_killed_at_every_step(conversion, tmp_path, mode, counted, count):
    text, target = make_text(tmp_path / "a.svm"), tmp_path / "a.zarr"
    old = make_text(tmp_path / "old.svm", 10)
    content = text.read_bytes()
    seen, leftovers = set(), set()

    def run(at):
        return conversion(text, target, mode, CallFault(counted, at, at, "s", signal.SIGKILL))

    if mode == "overwrite":
        convert(old, target, bad_lines="skip")
    calls = run(NEVER).calls
    assert 20 < calls < 2000
    for n in sample(calls, count):
        if mode == "new":
            shutil.rmtree(target, ignore_errors=True)
        elif n_rows_of(target) != 10:
            convert(old, target, bad_lines="skip", overwrite=True)
        assert run(n).code == -signal.SIGKILL
        found = n_rows_of(target)
        seen.add(found)
        assert found != ROWS or (tmp_path / "a.zarr.rejected").exists()
        names = {path.name for path in tmp_path.iterdir()}
        leftovers |= {name.split("-")[0] for name in names if "-" in name}
    if mode == "new":
        shutil.rmtree(target, ignore_errors=True)
    assert run(NEVER).calls > 20
    # Every run has removed what the one before it left.
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "old.svm", "a.zarr", "a.zarr.rejected"}
    assert n_rows_of(target) == ROWS
    assert text.read_bytes() == content
    assert seen <= ({None, ROWS} if mode == "new" else {None, 10, ROWS})
    assert (None if mode == "new" else 10) in seen
    assert leftovers >= {"a.zarr.building", "a.zarr.scratch"}


@pytest.mark.parametrize(
    ("name", "number"), [("fsync", errno.EIO), ("write", errno.ENOSPC), ("rename", errno.EACCES)]
)
def test_failed_call_fails_the_conversion(conversion, tmp_path, name, number):
    text, target = make_text(tmp_path / "a.svm"), tmp_path / "a.zarr"

    def run(at):
        return conversion(text, target, "new", CallFault((name,), at, at, "e", number))

    calls = run(NEVER).calls
    shutil.rmtree(target)
    (tmp_path / "a.zarr.rejected").unlink()
    harmless = 0
    for stop in sample(calls, 6):
        ended = run(stop)
        assert ended.spoiled == 1
        if name == "rename" and ended.error is None:  # of the scratch folder, which is removed
            harmless += 1
            assert n_rows_of(target) == ROWS
            shutil.rmtree(target)
            (tmp_path / "a.zarr.rejected").unlink()
            assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]
            continue
        assert ended.error[0] == "StorageError"
        assert os.strerror(number) in ended.error[1]
        assert str(tmp_path) in ended.error[1]
        if target.exists():  # the parent folder's fsync failed, after the rename
            assert n_rows_of(target) == ROWS
            shutil.rmtree(target)
        assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]
    assert harmless <= 1


@pytest.mark.parametrize("shuffle", [None, 1])
def test_disk_full(tmp_path, monkeypatch, shuffle):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system of its own")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", disk], check=False).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        monkeypatch.setattr(ooc_svm.conversion.reorder, "shuffle_rows", tiny_shuffle)
        text = write_large_text(tmp_path / "large.svm", 3 * 10**6)
        with pytest.raises(StorageError, match=r"disk/.*: No space left on device; "):
            convert(text, disk / "a.zarr", bad_lines="skip", shuffle=shuffle)
        assert list(disk.iterdir()) == []
        convert(make_text(tmp_path / "a.svm"), disk / "a.zarr", bad_lines="skip", shuffle=shuffle)
        assert n_rows_of(disk / "a.zarr") == ROWS
    finally:
        subprocess.run(["umount", disk], check=True)


def test_no_room_for_the_bad_lines(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system of its own")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        (tmp_path / "a.svm").write_text("1 1:1\n" + ("bad line " * 20 + "\n") * 10_000)
        with pytest.raises(StorageError, match="No space left on device"):
            convert(tmp_path / "a.svm", disk / "a.zarr", bad_lines="skip")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("new", ["1 1:1\n", "1 1:1\nother words\n"])
def test_a_store_that_stays_keeps_its_bad_lines(tmp_path, monkeypatch, new):
    def full(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    text, target = tmp_path / "a.svm", tmp_path / "a.zarr"
    text.write_text("1 1:1\n-1 2:1\nwords\n")
    bad = convert(text, target, bad_lines="skip").rejected.read_bytes()
    text.write_text(new)
    monkeypatch.setattr(Building, "publish", full)
    with pytest.raises(StorageError, match="No space left"):
        convert(text, target, bad_lines="skip", overwrite=True)
    assert n_rows_of(target) == 2
    assert (tmp_path / "a.zarr.rejected").read_bytes() == bad
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "a.zarr", "a.zarr.rejected"}


def test_two_conversions_to_one_target(tmp_path):
    text, target = make_text(tmp_path / "a.svm"), tmp_path / "a.zarr"
    code = "import sys; from ooc_svm.conversion.convert import convert; convert('-', sys.argv[1], shuffle=1)"
    process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdin=subprocess.PIPE)
    process.stdin.write(b"1 1:1\n")
    process.stdin.flush()
    lock = tmp_path / "a.zarr.lock"
    while not list(tmp_path.glob("a.zarr.scratch-*")):
        assert process.poll() is None
        time.sleep(0.02)
    assert lock.exists()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError, match="another run is writing"):
        convert(text, target, **OPTIONS)
    assert sorted(tmp_path.rglob("*")) == before
    process.stdin.write(b"-1 2:1\n")
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    assert n_rows_of(target) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "a.zarr"}


def test_what_is_not_ours_is_not_overwritten(tmp_path):
    text = make_text(tmp_path / "a.svm")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("keep")
    for target in (folder, text):
        with pytest.raises(UsageError, match="not written by this program"):
            convert(text, target, overwrite=True, **OPTIONS)
    with pytest.raises(UsageError, match="exists"):
        convert(text, folder)
    assert (folder / "file").read_text() == "keep"
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "folder"}


def test_leftovers_that_are_not_ours_stay(tmp_path):
    text = make_text(tmp_path / "a.svm")
    mine = tmp_path / "a.zarr.scratch-0123456789abcdef"
    os.close(private_folders.make(mine))
    (mine / "rows.0").write_text("left")
    kept = {"a.zarr.scratch-notes", "b.zarr.scratch-0123456789abcdef", "a.zarr.scratch-0000000000000000"}
    (tmp_path / "a.zarr.scratch-notes").mkdir()
    (tmp_path / "b.zarr.scratch-0123456789abcdef").mkdir()
    (tmp_path / "a.zarr.scratch-0000000000000000").symlink_to(tmp_path / "a.zarr.scratch-notes")
    convert(text, tmp_path / "a.zarr", **OPTIONS)
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"a.svm", "a.zarr", "a.zarr.rejected"} | kept


@pytest.mark.parametrize("change", ["grown", "truncated", "replaced", "removed"])
def test_source_changes_while_it_is_read(tmp_path, change):
    text = write_large_text(tmp_path / "a.svm", 3 * 10**6)
    changes = []

    def spoil(bytes_done, bytes_total, rows):
        if changes:
            return
        changes.append(bytes_done)
        if change == "grown":
            with text.open("ab") as file:
                file.write(b"1 1:1\n")
        elif change == "truncated":
            os.truncate(text, 2 * 10**6)
        elif change == "replaced":
            shutil.copy(text, tmp_path / "copy")
            os.replace(tmp_path / "copy", text)
        else:
            text.unlink()

    with pytest.raises(InputError, match=r"a\.svm: the file changed while it was read"):
        convert(text, tmp_path / "a.zarr", threads=1, memory="335MB", progress=spoil)
    assert 0 < changes[0] < 2 * 10**6
    assert {path.name for path in tmp_path.iterdir()} <= {"a.svm"}


def test_interrupted(tmp_path):
    text = write_large_text(tmp_path / "a.svm", 3 * 10**6)

    def interrupt(bytes_done, bytes_total, rows):
        raise KeyboardInterrupt

    for options in ({"threads": 1}, {"threads": 3}, {"shuffle": 1}):
        before = threading.active_count()
        with pytest.raises(KeyboardInterrupt):
            convert(text, tmp_path / "a.zarr", bad_lines="skip", progress=interrupt, **options)
        assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]
        assert threading.active_count() <= before + 1  # Zarr keeps its event loop


@pytest.mark.parametrize("place", ["_mark", "flock", "RowFacts"])
@pytest.mark.parametrize("shuffle", [None, 1])
def test_interrupted_while_the_store_is_begun(tmp_path, monkeypatch, place, shuffle):
    """A signal may come when its folder is there, and nobody has it yet."""

    def signalled(owner):
        made = getattr(owner, place)

        def call(*args, **options):
            fired.append(signal.raise_signal(signal.SIGTERM))
            return made(*args, **options)

        monkeypatch.setattr(owner, place, call)

    fired = []
    text = make_text(tmp_path / "a.svm")
    signalled({"_mark": private_folders, "flock": fcntl, "RowFacts": builder}[place])
    with pytest.raises(Interrupted), handle_signals(grace=0):
        convert(text, tmp_path / "a.zarr", bad_lines="skip", shuffle=shuffle)
    assert fired
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.parametrize("place", ["_open_mark", "_empty", "close_unwritten"])
@pytest.mark.parametrize("write", [check_writable, lambda path: atomic_write(path, lambda file: None)])
def test_interrupted_while_a_temporary_file_is_made_or_removed(tmp_path, monkeypatch, place, write):
    own, fired = getattr(private_folders, place), []

    def call(*args):
        if not fired:
            fired.append(True)
            signal.raise_signal(signal.SIGTERM)
        return own(*args)

    monkeypatch.setattr(private_folders, place, call)
    with pytest.raises(Interrupted), handle_signals(grace=0):
        write(tmp_path / "a")
    assert fired
    assert {path.name for path in tmp_path.iterdir()} <= {"a"}


# Memory

PEAK = """
import sys
from ooc_svm.conversion.convert import convert
from ooc_svm.system.memory import peak_memory
text, target, threads, memory, shuffle = sys.argv[1:]
report = convert(text, target, threads=int(threads), memory=memory, shuffle=int(shuffle) or None)
print(report.rows, peak_memory())
"""


@pytest.fixture(scope="module")
def large_texts(tmp_path_factory):
    """120 and 480 MB of text: rows of 90 and 360 MB in memory, both more than any buffer of a conversion."""
    folder = tmp_path_factory.mktemp("large")
    return [write_large_text(folder / f"{size}.svm", size * 10**6) for size in (120, 480)]


def peak_of_conversion(text, target, *options):
    command = [sys.executable, "-c", PEAK, text, target, *options]
    result = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return [int(number) for number in result.stdout.split()]


@pytest.mark.parametrize(("budget", "shuffle"), [(350, 0), (390, 1)])
def test_peak_memory_does_not_grow_with_the_rows(tmp_path, large_texts, budget, shuffle):
    small, large = (
        peak_of_conversion(text, tmp_path / text.stem, 1, f"{budget}MB", shuffle) for text in large_texts
    )
    assert large[0] > 3.9 * small[0]
    assert large[1] < 1.1 * small[1]
    assert large[1] < budget * 10**6


def test_peak_memory_stays_below_the_budget_with_more_threads(tmp_path, large_texts):
    small, large = (peak_of_conversion(text, tmp_path / text.stem, 2, "450MB", 0)[1] for text in large_texts)
    assert large < 1.1 * small
    assert large < 450 * 10**6


def test_peak_memory_stays_below_the_budget_in_the_run_that_compiles(tmp_path, large_texts, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    _, peak = peak_of_conversion(large_texts[0], tmp_path / "a.zarr", 1, "335MB", 0)
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) > 5  # it did compile
    assert peak < 335 * 10**6
