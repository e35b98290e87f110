"""The one way this package compiles a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with Numba: without the GIL, cached on disk, strict floating point.

    Sums must not depend on how a loop was vectorised, so there is no ``fastmath`` here.
    """
    return njit(nogil=True, cache=True)(function)  # type: ignore[no-any-return]
