"""A hundred cases of the audit; ``scripts/audit`` tries as many as there is time for."""

from __future__ import annotations

import json

import pytest
from audit.cases import draw
from audit.trial import try_case

SEED, CASES = 2, range(100)


@pytest.mark.parametrize("number", CASES)
def test_the_bounds_of_a_random_case_are_true(number):
    case = draw(SEED, number)
    findings, _ = try_case(case)
    assert not findings, "\n".join([*map(str, findings), f"scripts/audit --repeat '{json.dumps(case)}'"])
