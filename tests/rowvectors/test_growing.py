"""Vectors that grow: what was appended is read back, wherever the segments are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc_svm.errors import StorageError
from ooc_svm.rowvectors import growing
from ooc_svm.rowvectors.growing import GrowingVector


@settings(deadline=None, max_examples=50)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=12),
    first_rows=st.integers(0, 9),
    memory_bytes=st.sampled_from([0, 100, 10**6]),
    ranges=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=8),
    buffered=st.booleans(),
)
def test_any_range_reads_what_was_appended(
    lengths: list[int], first_rows: int, memory_bytes: int, ranges: list[tuple[float, float]], buffered: bool
) -> None:
    total = sum(lengths)
    expected = np.arange(total, dtype=np.float64)
    with GrowingVector(np.float64, memory_bytes, first_rows=first_rows) as vector:
        for part in np.split(expected, np.cumsum(lengths)[:-1] if lengths else []):
            vector.append(part)
        assert (vector.n_rows, vector.nbytes) == (total, 8 * total)
        assert vector.bytes_in_memory <= memory_bytes
        for one, other in [*ranges, (0.0, 1.0)]:
            start, stop = sorted((round(one * total), round(other * total)))
            out = np.empty(total) if buffered else None
            np.testing.assert_array_equal(vector.read(start, stop, out), expected[start:stop])
        with pytest.raises(IndexError):
            vector.read(0, total + 1)


def test_entries_can_be_written_again(tmp_path: Path) -> None:
    with GrowingVector(np.int8, 5, tmp_path, first_rows=2) as vector:
        vector.append(np.zeros(30, np.int8))
        assert not vector.in_memory
        vector.write(1, np.arange(25, dtype=np.int8))
        assert vector.read(0, 30).tolist() == [0, *range(25), 0, 0, 0, 0]


def test_segments_stop_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "_LARGEST_SEGMENT", 8)
    with GrowingVector(np.int8, 10**6, first_rows=3) as vector:
        vector.append(np.zeros(40, np.int8))
        assert vector.bytes_in_memory == 3 + 6 + 8 * 4  # and not 3 + 6 + 12 + 24
    with GrowingVector(np.int8, 10**6, first_rows=40) as vector:
        vector.append(np.zeros(40, np.int8))
        assert vector.bytes_in_memory == 40  # a length known before is one segment


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        GrowingVector(np.float64, 0, tmp_path / "missing") as vector,
        pytest.raises(StorageError, match="missing"),
    ):
        vector.append(np.zeros(3))


def test_scratch_files_have_no_name_and_are_closed(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with GrowingVector(np.float64, 0, tmp_path) as vector:
        vector.append(np.zeros(3))
        assert os.listdir(tmp_path) == []
        assert len(os.listdir("/proc/self/fd")) > len(before)
    assert len(os.listdir("/proc/self/fd")) == len(before)
