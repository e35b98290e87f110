"""The squared hinge loss of a classifier: ``c max(0, 1 - y s)^2``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ooc_svm.losses.functions import implements
from ooc_svm.losses.quadratic import quadratic


class SquaredHinge(NamedTuple):
    """``l*(v) = v^2 / (4 c)`` for ``y v >= 0``."""


@implements(SquaredHinge)
def dual_box(loss, t, c):  # type: ignore[no-untyped-def]
    """Without an end on the side of the class."""
    if c == 0.0:
        return 0.0, 0.0, 0.0, 0.0
    return (0.0, np.inf, 0.0, 0.5 / c) if t > 0.0 else (-np.inf, 0.0, 0.0, 0.5 / c)


quadratic(SquaredHinge)
