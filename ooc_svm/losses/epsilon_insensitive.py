"""The epsilon-insensitive loss of a regression: ``c max(0, |z - s| - epsilon)``."""

from __future__ import annotations

from typing import NamedTuple

from ooc_svm.losses.functions import implements
from ooc_svm.losses.quadratic import quadratic


class EpsilonInsensitive(NamedTuple):
    """``l*(v) = epsilon |v|`` for ``|v| <= c``; epsilon is half the width of the tube that costs nothing."""

    epsilon: float


@implements(EpsilonInsensitive)
def dual_box(loss, t, c):  # type: ignore[no-untyped-def]
    """From -c to c, with a kink at 0."""
    return -c, c, loss.epsilon, 0.0


quadratic(EpsilonInsensitive)
