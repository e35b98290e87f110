"""Memory for rows: arrays as any other, for which no huge pages are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.pages import fitted, row_room
from ooc_svm.store.blocks import BlockBuffers
from ooc_svm.store.held_blocks import POINTER_BYTES, HeldBlocks


@pytest.mark.parametrize("n", [0, 1, 1000, (1 << 20) + 3, 5_000_001])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64])
def test_arrays_are_as_those_of_numpy(n: int, dtype: npt.DTypeLike) -> None:
    array = row_room(n, dtype)
    assert array.shape == (n,)
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.flags.writeable
    array[:] = 3
    assert (array == 3).all()


@pytest.fixture
def smaps() -> None:
    if not Path("/proc/self/smaps").exists():
        pytest.skip("the system does not say how it maps memory")


@pytest.mark.usefixtures("smaps")
def test_no_huge_pages_are_asked_for() -> None:
    buffers, n = BlockBuffers(10, 5 << 20, np.float32), 5 << 20
    assert buffers.values is not None
    held = HeldBlocks(1 << 30, np.float32, POINTER_BYTES)
    rows = RowBlock(0, np.array([0, n]), np.zeros(n, np.int32), np.zeros(n, np.float32))
    held.append(rows, rows.values, [0])
    (block,) = held.hand_over(np.float32)
    assert block.values is not None
    for array in (row_room(1 << 24, np.uint8), buffers.indices, buffers.values, block.indices, block.values):
        assert "hg" not in flags_of(array)


def test_a_part_lasts_without_the_rest() -> None:
    array = row_room(8 << 20, np.int32)
    array[:] = 7
    most, few = fitted(array, 7 << 20), fitted(array, 2 << 20)
    assert np.shares_memory(most, array)
    assert not np.shares_memory(few, array)
    del array
    assert (len(most), len(few)) == (7 << 20, 2 << 20)
    assert (most == 7).all()
    assert (few == 7).all()


def flags_of(array: npt.NDArray[Any]) -> list[str]:
    """What Linux says of the middle of an array."""
    address, inside = array.ctypes.data + array.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *others = line.split()
        if "-" in first and not first.endswith(":"):
            start, stop = (int(number, 16) for number in first.split("-"))
            inside = start <= address < stop
        elif inside and first == "VmFlags:":
            return others
    raise AssertionError("the array is nowhere")


def test_more_than_there_is() -> None:
    with pytest.raises(MemoryError):
        row_room(1 << 56, np.uint8)
