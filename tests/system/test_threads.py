"""Work on several threads."""

from __future__ import annotations

import pytest

from ooc_svm.system.threads import parallel_map


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_are_in_order_and_errors_are_raised(threads):
    assert parallel_map(divmod, [(7, 2), (9, 3)], threads) == [(3, 1), (3, 0)]
    assert parallel_map(divmod, [], threads) == []
    with pytest.raises(ZeroDivisionError):
        parallel_map(divmod, [(1, 1), (1, 0), (2, 1)], threads)
