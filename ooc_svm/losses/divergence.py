"""The divergence of two numbers, to all digits: Bregman distances are made of it."""

from __future__ import annotations

import math

from ooc_svm.ops.compiled import inlined

NEAR = 0.1  # Relative distance of two numbers up to which a series has all digits of their divergence
TINY = 1e-300  # Where a number that underflows is not one yet


@inlined(error_model="numpy")
def divergence(a, p, unit, power):  # type: ignore[no-untyped-def]
    """``a log(a / p) - (a - p)``, which is 0 or more; a and p are.

    ``unit``, ``power``: p is ``unit exp(power)``, where it may underflow.
    """
    d = a - p
    if abs(d) > NEAR * p:
        if not a > 0.0:
            return p
        return a * (math.log(a / p) if p > TINY else math.log(a) - math.log(unit) - power) - d
    if d == 0.0:
        return 0.0
    # log(a / p) is 2 artanh(s).
    s = d / (a + p)
    s2 = s * s
    odd = s * (1.0 / 3.0 + s2 * (0.2 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0 + s2 * (1.0 / 11.0 + s2 / 13.0)))))
    return 2.0 * p * s2 / (1.0 - s) * (1.0 + (1.0 + s) * odd)
