"""Certificates of objectives below 0: what the gap is a share of, and when it is next to nothing."""

from __future__ import annotations

import math

import pytest

from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.stopping import CERTIFIED, Stopping


@pytest.mark.parametrize(
    ("primal", "dual", "nothing", "share", "ends", "absolute"),
    [
        (-1.0, -1.0005, 1e-9, 5e-4, True, False),
        (-1.0, -2.0, 1e-9, 0.5, False, False),
        (0.0, -1e-10, 1e-9, 1.0, True, True),
        (0.0, -1e-8, 1e-9, 1.0, False, False),
        (-1e-10, -1.00001e-10, 1e-9, 1e-5, True, False),
        (0.0, -1e-10, 0.0, 1.0, False, False),
    ],
)
def test_the_gap_is_a_share_of_the_larger_one(primal, dual, nothing, share, ends, absolute):
    found = Certificate(vanishing=nothing, passes=1, history=[(1, math.inf, -1.0)])
    assert found.nothing == nothing
    found.offer_primal(primal, 0.0)
    found.offer_dual(dual, 0.0)
    assert found.relative_gap == pytest.approx(share, rel=1e-2)
    assert found.absolute is absolute
    found.record(Stopping(1e-3))
    assert (found.stop_reason == CERTIFIED) is ends
