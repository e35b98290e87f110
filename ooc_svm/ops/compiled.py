"""The one way this package compiles a function.

Numba caches on disk what it compiled, and compiles again when the file of the function has changed. It does
not see a change of what the function calls, such as a loss in a file of its own: so the cache of this package
lies in a folder whose name changes with every file that may have compiled functions.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numba
from numba import njit
from numba.core import event
from numba.core.caching import NullCache
from numba.core.registry import cpu_target

from ooc_svm.errors import UsageError
from ooc_svm.ops import compile_events
from ooc_svm.ops.cache import CheckedCache

_PACKAGE = Path(__file__).parent.parent
_COMPILED_FOLDERS = ("ops", "losses", "text")
_SETTINGS: Any = numba.config

if _SETTINGS.DISABLE_JIT:
    raise UsageError(
        "NUMBA_DISABLE_JIT is set, but rows are read and solved by functions that Numba compiles; unset it"
    )


class _Listener(event.Listener):
    def on_start(self, event: Any) -> None:
        compile_events.report(True)

    def on_end(self, event: Any) -> None:
        compile_events.report(False)


event.register("numba:compile", _Listener())


def compiled_files() -> Iterator[str]:
    """The files that have compiled functions, or that those call.

    They are known by their names: reading all files of the package takes longer than loading most functions.
    """
    for folder, folders, names in os.walk(_PACKAGE):
        folders[:] = set(folders) - {"__pycache__"}
        ending = ".py" if os.path.basename(folder) in _COMPILED_FOLDERS else "_loops.py"
        yield from (os.path.join(folder, name) for name in names if name.endswith(ending))


def _cache_folder() -> str:
    """The folder of this state of the package: in it, or in NUMBA_CACHE_DIR if that is set.

    Empty where the package cannot be written and so is not edited either: Numba finds a place for the user.
    """
    files = sorted((os.stat(path).st_mtime_ns, path) for path in compiled_files())
    name = f"numba-{zlib.crc32(repr(files).encode()):08x}"
    if _SETTINGS.CACHE_DIR:
        return os.path.join(_SETTINGS.CACHE_DIR, name)
    if not os.access(_PACKAGE, os.W_OK):
        return ""
    folder = _PACKAGE / "__pycache__" / name
    if not folder.exists():
        for older in folder.parent.glob("numba-*"):
            if older != folder:  # which another process may have made meanwhile
                shutil.rmtree(older, ignore_errors=True)
    return str(folder)


_CACHE_FOLDER = _cache_folder()


@cache
def _warn_of_no_cache() -> None:
    """Warn, once a process."""
    warnings.warn(
        "compiled functions cannot be kept, so every run compiles them again; name a folder that can be "
        "written with NUMBA_CACHE_DIR",
        RuntimeWarning,
        stacklevel=2,
    )


class _LateCache:
    """The cache of a function, found when it is first used: most functions are not called in a process."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @cached_property
    def _found(self) -> CheckedCache | NullCache:
        try:
            return CheckedCache(self._function, _CACHE_FOLDER)
        except RuntimeError:  # there is no folder for a cache
            _warn_of_no_cache()
            return NullCache()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    """Compile with Numba: without the GIL, cached on disk if possible, strict floating point.

    Sums must not depend on how a loop was vectorised, so there is no ``fastmath`` here. Nothing in C calls
    these functions, and compiling takes a twentieth less without wrappers for that.
    """
    options |= {"no_cfunc_wrapper": True}  # Numba's type hints do not have it
    dispatcher = njit(nogil=True, **options)(function)
    dispatcher._cache = _LateCache(function)
    return dispatcher


def cache_folder() -> Path | None:
    """The folder where compiled functions are kept; None where they cannot be."""
    try:
        found = Path(CheckedCache(_compile, _CACHE_FOLDER).cache_path)
    except RuntimeError:
        return None
    return found.parent if str(found.parent) == _CACHE_FOLDER else found


def was_compiled(what: str) -> bool:
    """Whether `keep_compiled` was called for this by any process, for this machine and these versions."""
    mark = _mark(what)
    return mark is not None and mark.exists()


def keep_compiled(what: str) -> None:
    """Note that all that is named so is compiled and kept; where no note can be made, none is."""
    mark = _mark(what)
    if mark is not None:
        with suppress(OSError):
            mark.touch()


def _mark(what: str) -> Path | None:
    """A file whose name stands for this, and for what Numba's own files are looked up by."""
    folder = cache_folder()
    if folder is None:
        return None
    machine = cpu_target.target_context.codegen().magic_tuple()
    key = zlib.crc32(repr((what, machine, numba.__version__, sys.version_info[:2])).encode())
    return folder / f"compiled-{key:08x}"


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
