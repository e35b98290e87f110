"""Row vectors by name: in memory while it lasts, then on disk; saved and loaded raw."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

from ooc_svm.data.blocks import SLICE_ROWS
from ooc_svm.errors import DamageError
from ooc_svm.rowvectors.collection import RowVectors


def test_vectors_move_to_disk_when_memory_is_used_up(tmp_path):
    with RowVectors(1000, 17_000, tmp_path) as vectors:
        assert [vectors.create(name, "float64").in_memory for name in ("a", "b", "c")] == [True, True, False]
        assert vectors.create("d", "int8").in_memory
        assert vectors.bytes_in_memory == 17_000
        assert vectors.names() == ["a", "b", "c", "d"]
        assert "b" in vectors
        vectors.drop("b")
        assert "b" not in vectors
        assert vectors.create("e", "float64", fill=3).in_memory
        assert vectors["e"].read(998, 1000).tolist() == [3, 3]
        with pytest.raises(ValueError, match="already"):
            vectors.create("a", "int8")
        with pytest.raises(KeyError):
            vectors["b"]
        on_disk = vectors["c"]
    assert on_disk._file.closed
    assert vectors.names() == []


def test_the_default_folder_follows_tmpdir(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert RowVectors(1, 0).scratch_dir == tmp_path
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert RowVectors(1, 0).scratch_dir == Path("/var/tmp")


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("dtype", ["float64", "int8", "float32"])
def test_save_and_load_stream_the_raw_entries(memory, dtype, tmp_path):
    n_rows = 2 * SLICE_ROWS + 5
    entries = np.random.default_rng(1).integers(-100, 100, n_rows).astype(dtype)
    file = io.BytesIO(b"")
    with RowVectors(n_rows, memory, tmp_path) as vectors:
        vectors.create("v", dtype).write(0, entries)
        vectors.save("v", file)
        assert file.getvalue() == entries.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    file.seek(0)
    with RowVectors(n_rows, memory, tmp_path) as vectors:
        vectors.create("v", dtype)
        vectors.load("v", file)
        np.testing.assert_array_equal(vectors["v"].read(0, n_rows), entries)
        file.seek(1)
        with pytest.raises(DamageError, match="'v'"):
            vectors.load("v", file)


def test_short_reads_of_a_raw_stream_are_put_together(tmp_path):
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(7, size or 0))

    with RowVectors(100, 0, tmp_path) as vectors:
        vectors.create("v", "int64")
        vectors.load("v", Trickle(np.arange(100, dtype="<i8").tobytes()))
        assert vectors["v"].read(0, 100).tolist() == list(range(100))
