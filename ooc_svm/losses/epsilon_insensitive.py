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


@implements(EpsilonInsensitive)
def breakpoint(loss):  # type: ignore[no-untyped-def]
    """Both pieces begin at the edge of the tube."""
    return loss.epsilon


@implements(EpsilonInsensitive)
def pieces(loss):  # type: ignore[no-untyped-def]
    """Values above and below the tube."""
    return 2


@implements(EpsilonInsensitive)
def piece_sign(loss, p, t):  # type: ignore[no-untyped-def]
    """Above it first."""
    return 1.0 if p == 0 else -1.0


quadratic(EpsilonInsensitive)
