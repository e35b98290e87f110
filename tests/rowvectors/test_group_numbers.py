"""Numbers of groups: one that is in several places is found in bounded memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from ooc_svm.errors import InputError
from ooc_svm.rowvectors.group_numbers import GroupNumbers

MEMORY = 1_000_000


@pytest.mark.parametrize("n_different", [2, 50_000])
def test_numbers_that_are_repeated_often_do_not_fill_the_memory(n_different: int) -> None:
    groups = GroupNumbers(MEMORY)
    for start in range(0, 2_000_000, 50_000):
        groups.add(np.arange(start, start + 50_000, dtype=np.int64) % n_different)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"rows of the group qid:[0-9]+ are in several places"):
            groups.check("rows")
        assert tracemalloc.get_traced_memory()[1] < 4 * MEMORY
    finally:
        tracemalloc.stop()
        groups.close()
