"""The hinge loss of a classifier: ``c max(0, 1 - y s)``."""

from __future__ import annotations

from typing import NamedTuple

from ooc_svm.losses.functions import implements
from ooc_svm.losses.quadratic import quadratic


class Hinge(NamedTuple):
    """``l*(v) = 0`` for ``0 <= y v <= c``: y v is the multiplier alpha of the usual notation."""


@implements(Hinge)
def dual_box(loss, t, c):  # type: ignore[no-untyped-def]
    """From 0 to c on the side of the class."""
    return (0.0, c, 0.0, 0.0) if t > 0.0 else (-c, 0.0, 0.0, 0.0)


@implements(Hinge)
def breakpoint(loss):  # type: ignore[no-untyped-def]
    """A row has a loss where its slack ``1 - y s`` is above 0."""
    return 0.0


@implements(Hinge)
def pieces(loss):  # type: ignore[no-untyped-def]
    """A row has one."""
    return 1


@implements(Hinge)
def piece_sign(loss, p, t):  # type: ignore[no-untyped-def]
    """Its class."""
    return t


quadratic(Hinge)
