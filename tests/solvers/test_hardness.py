"""How hard the working set is solved after slow reads."""

from __future__ import annotations

import pytest

from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.streamed_smo.effort import hardness_after


# 5 to the power of 500 is no float.
@pytest.mark.parametrize(("n_slow", "hardness"), [(0, 1.0), (1, 5.0), (2, 25.0), (3, 25.0), (500, 25.0)])
def test_it_has_a_limit(n_slow, hardness):
    gaps = [1.0] * (n_slow + 1) + [0.25]
    certificate = Certificate(history=[(number, gap, 0.0) for number, gap in enumerate(gaps)])
    assert hardness_after(certificate.history) == hardness
