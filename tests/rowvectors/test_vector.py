"""Row vectors behave alike in memory and on disk, and fail in one clear sentence."""

from __future__ import annotations

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ooc_svm.data.blocks import SLICE_ROWS, row_slices
from ooc_svm.errors import StorageError
from ooc_svm.rowvectors.vector import DiskVector, MemoryVector, RowVector


def make(kind: str, n_rows: int, dtype: str, folder: Path, fill: float = 0) -> RowVector:
    return MemoryVector(n_rows, dtype, fill) if kind == "memory" else DiskVector(n_rows, dtype, folder, fill)


both = pytest.mark.parametrize("kind", ["memory", "disk"])


def test_slices_cover_every_row_once():
    for n_rows in (0, 1, 6, 7, 8, 21):
        slices = list(row_slices(n_rows, 7))
        assert [row for start, stop in slices for row in range(start, stop)] == list(range(n_rows))
        assert all(0 < stop - start <= 7 for start, stop in slices)


@both
@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64", "bool"])
@pytest.mark.parametrize("fill", [0, 1])
def test_starts_filled_and_returns_what_was_written(kind, dtype, fill, tmp_path):
    n_rows = SLICE_ROWS + 11
    vector = make(kind, n_rows, dtype, tmp_path, fill)
    expected = np.full(n_rows, fill, dtype)
    assert vector.dtype == np.dtype(dtype)
    assert vector.nbytes == expected.nbytes
    np.testing.assert_array_equal(vector.read(0, n_rows), expected)
    random = np.random.default_rng(0)
    for start, stop in ((0, 5), (5, 5), (17, 4000), (SLICE_ROWS - 3, n_rows)):
        part = random.integers(0, 2, stop - start).astype(dtype)
        vector.write(start, part)
        expected[start:stop] = part
    np.testing.assert_array_equal(vector.read(0, n_rows), expected)
    np.testing.assert_array_equal(vector.read(3, 4001), expected[3:4001])
    vector.close()


@both
def test_a_strided_or_wider_array_is_converted(kind, tmp_path):
    vector = make(kind, 10, "float32", tmp_path)
    vector.write(0, np.arange(20, dtype=np.float64)[::2])
    np.testing.assert_array_equal(vector.read(0, 10), np.arange(0, 20, 2, dtype=np.float32))
    vector.close()
    vector = make(kind, 10, "int8", tmp_path)
    with pytest.raises(TypeError, match="same_kind"):
        vector.write(0, np.full(3, 0.5))
    vector.close()


@both
def test_a_view_changed_in_place_can_be_written_back(kind, tmp_path):
    vector = make(kind, 10, "int64", tmp_path)
    part = vector.read(2, 8)
    part += 7
    vector.write(2, part)
    assert vector.read(0, 10).tolist() == [0, 0, 7, 7, 7, 7, 7, 7, 0, 0]
    vector.close()


@both
def test_rows_that_do_not_exist_are_refused(kind, tmp_path):
    vector = make(kind, 10, "float64", tmp_path)
    for start, stop in ((-1, 3), (3, 2), (0, 11), (11, 11)):
        with pytest.raises(IndexError):
            vector.read(start, stop)
    for start, length in ((-1, 1), (8, 3), (10, 1)):
        with pytest.raises(IndexError):
            vector.write(start, np.zeros(length))
    vector.close()


def test_only_numbers():
    with pytest.raises(TypeError, match="numbers"):
        MemoryVector(3, object)


def test_memory_reads_are_views_and_disk_reads_fill_the_buffer(tmp_path):
    in_memory, on_disk = MemoryVector(100, "float64"), DiskVector(100, "float64", tmp_path, fill=2.5)
    assert np.shares_memory(in_memory.read(0, 50), in_memory.read(40, 60))
    buffer = np.zeros(64)
    part = on_disk.read(10, 50, buffer)
    assert np.shares_memory(part, buffer)
    assert part.tolist() == [2.5] * 40
    assert buffer[40:].tolist() == [0.0] * 24
    with pytest.raises(TypeError, match="buffer"):
        on_disk.read(0, 65, buffer)
    with pytest.raises(TypeError, match="buffer"):
        on_disk.read(0, 4, np.zeros(4, np.float32))
    on_disk.close()


def test_wrap_shares_the_array():
    array = np.arange(6.0)
    vector = MemoryVector.wrap(array)
    vector.write(1, np.full(2, 9.0))
    assert array.tolist() == [0, 9, 9, 3, 4, 5]
    assert (vector.n_rows, vector.nbytes, vector.dtype) == (6, 48, np.dtype("float64"))


@both
def test_disjoint_ranges_from_many_threads(kind, tmp_path):
    vector = make(kind, 40_000, "int64", tmp_path)
    ready = threading.Barrier(4)

    def work(worker: int) -> bool:
        ready.wait(timeout=30)
        ok = True
        for start, stop in row_slices(40_000, 997):
            if start // 997 % 4 == worker:
                vector.write(start, np.arange(start, stop))
                ok &= bool((vector.read(start, stop) == np.arange(start, stop)).all())
        return ok

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    np.testing.assert_array_equal(vector.read(0, 40_000), np.arange(40_000))
    vector.close()


def test_the_scratch_file_is_private_nameless_and_freed(tmp_path):
    vector = DiskVector(1000, "float64", tmp_path)
    status = os.fstat(vector._file.fileno())
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == 8000
    assert list(tmp_path.iterdir()) == []
    vector.close()
    vector.close()
    assert vector._file.closed


def test_a_missing_scratch_folder_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere"):
        DiskVector(10, "int8", tmp_path / "nowhere")


@pytest.mark.fault
def test_a_full_disk_is_found_at_creation(tmp_path, monkeypatch):
    fired = []

    def full(fd: int, offset: int, length: int) -> None:
        fired.append(length)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"No space left.*TMPDIR") as caught:
        DiskVector(1000, "float64", tmp_path)
    assert fired == [8000]
    assert caught.value.exit_code == 5
    assert str(tmp_path) in str(caught.value)


@pytest.mark.fault
def test_a_file_system_that_cannot_reserve_is_used_all_the_same(tmp_path, monkeypatch):
    fired = []

    def unsupported(fd: int, offset: int, length: int) -> None:
        fired.append(length)
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    vector = DiskVector(1000, "float64", tmp_path)
    assert fired == [8000]
    assert vector.read(0, 1000).tolist() == [0.0] * 1000
    vector.close()


@pytest.mark.fault
@pytest.mark.parametrize("call", ["preadv", "pwrite"])
def test_a_failing_disk_is_a_storage_error(call, tmp_path, monkeypatch):
    vector = DiskVector(10, "float64", tmp_path)
    fired = []

    def broken(*_: object) -> int:
        fired.append(call)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(StorageError, match="Input/output error"):
        vector.read(0, 10) if call == "preadv" else vector.write(0, np.zeros(10))
    assert fired == [call]
    vector.close()


@pytest.mark.fault
def test_partial_transfers_are_continued(tmp_path, monkeypatch):
    vector = DiskVector(1000, "int64", tmp_path)
    preadv, pwrite, counts = os.preadv, os.pwrite, {"preadv": 0, "pwrite": 0}

    def short_read(fd: int, buffers: list[memoryview], offset: int) -> int:
        counts["preadv"] += 1
        return preadv(fd, [buffers[0][:13]], offset)

    def short_write(fd: int, data: memoryview, offset: int) -> int:
        counts["pwrite"] += 1
        return pwrite(fd, data[:13], offset)

    monkeypatch.setattr(os, "preadv", short_read)
    monkeypatch.setattr(os, "pwrite", short_write)
    vector.write(0, np.arange(1000))
    assert vector.read(0, 1000).tolist() == list(range(1000))
    assert min(counts.values()) > 600
    os.truncate(vector._file.fileno(), 100)
    with pytest.raises(StorageError, match="shorter"):
        vector.read(0, 1000)
    vector.close()
