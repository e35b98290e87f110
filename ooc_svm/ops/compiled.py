"""The one way this package compiles a function.

Numba caches on disk what it compiled, and compiles again when the file of the function has changed. It does
not see a change of what the function calls, such as a loss in a file of its own: so the cache of this package
lies in a folder whose name changes with every file of the package.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numba
from numba import njit

_PACKAGE = Path(__file__).parent.parent
_SETTINGS: Any = numba.config


def _cache_folder() -> str:
    """The folder of this state of the package: in it, or in NUMBA_CACHE_DIR if that is set.

    Empty where the package cannot be written and so is not edited either: Numba finds a place for the user.
    """
    files = sorted((path.stat().st_mtime_ns, str(path)) for path in _PACKAGE.rglob("*.py"))
    name = f"numba-{zlib.crc32(repr(files).encode()):08x}"
    if _SETTINGS.CACHE_DIR:
        return os.path.join(_SETTINGS.CACHE_DIR, name)
    if not os.access(_PACKAGE, os.W_OK):
        return ""
    folder = _PACKAGE / "__pycache__" / name
    if not folder.exists():
        for older in folder.parent.glob("numba-*"):
            shutil.rmtree(older, ignore_errors=True)
    return str(folder)


_CACHE_FOLDER = _cache_folder()


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    """Compile with Numba: without the GIL, cached on disk, strict floating point.

    Sums must not depend on how a loop was vectorised, so there is no ``fastmath`` here.
    """
    others = _SETTINGS.CACHE_DIR
    _SETTINGS.CACHE_DIR = _CACHE_FOLDER or others
    try:
        return njit(nogil=True, cache=True, **options)(function)
    finally:
        _SETTINGS.CACHE_DIR = others


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function; for use as a decorator."""
    return _compile(function)


def inlined(
    function: Callable[..., Any] | None = None, *, error_model: Literal["python", "numpy"] = "python"
) -> Any:
    """Compile likewise, and put the code into every caller.

    A call counts references to each of its arrays, with two atomic operations: more than a short row costs.
    They are left out of the code of functions with one loop, not of those with several: keep to one. With the
    error model "numpy" a division does not test its divisor. Without a function, the result is a decorator.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return _compile(function, forceinline=True, error_model=error_model)

    return decorate if function is None else decorate(function)
