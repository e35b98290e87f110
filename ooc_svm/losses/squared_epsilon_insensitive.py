"""The squared epsilon-insensitive loss of a regression: ``c max(0, |z - s| - epsilon)^2``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ooc_svm.losses.functions import implements
from ooc_svm.losses.quadratic import quadratic


class SquaredEpsilonInsensitive(NamedTuple):
    """``l*(v) = epsilon |v| + v^2 / (4 c)``; epsilon is half the width of the tube that costs nothing."""

    epsilon: float


@implements(SquaredEpsilonInsensitive)
def dual_box(loss, t, c):  # type: ignore[no-untyped-def]
    """Without ends, with a kink at 0."""
    if c == 0.0:
        return 0.0, 0.0, loss.epsilon, 0.0
    return -np.inf, np.inf, loss.epsilon, 0.5 / c


quadratic(SquaredEpsilonInsensitive)
