"""The one way this package compiles a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compile with Numba: without the GIL, cached on disk, strict floating point.

    Sums must not depend on how a loop was vectorised, so there is no ``fastmath`` here.
    """
    return njit(nogil=True, cache=True)(function)


def inlined(
    function: Callable[..., Any] | None = None, *, error_model: Literal["python", "numpy"] = "python"
) -> Any:
    """Compile likewise, and put the code into every caller.

    A call counts references to each of its arrays, with two atomic operations: more than a short row costs.
    They are left out of the code of functions with one loop, not of those with several: keep to one.

    Parameters
    ----------
    function : callable, optional
        Without it, the result is a decorator.
    error_model : {"python", "numpy"}
        With "numpy" a division does not test its divisor.
    """
    decorate = njit(nogil=True, cache=True, forceinline=True, error_model=error_model)
    return decorate if function is None else decorate(function)
