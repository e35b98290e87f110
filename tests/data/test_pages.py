"""Memory for rows: arrays as any other, in pages of the usual size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ooc_svm.data.pages import row_room


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


def test_large_arrays_do_not_ask_for_huge_pages() -> None:
    if not Path("/proc/self/smaps").exists():
        pytest.skip("the system does not say how it maps memory")
    array = row_room(1 << 24, np.uint8)
    assert "hg" not in flags_of(array)


def flags_of(array: npt.NDArray[np.uint8]) -> list[str]:
    """What Linux says of the middle of an array."""
    address, inside = array.ctypes.data + len(array) // 2, False
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
