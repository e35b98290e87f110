"""What to say of a library, or a part of this package, that cannot be loaded."""

from __future__ import annotations

import os
from types import TracebackType


def module_not_loaded(error: BaseException) -> str | None:
    """The module that was being imported when an exception was raised; None if none was."""
    found: str | None = error.name if isinstance(error, ImportError) else None
    if found is not None:
        return found
    if _is_no_python(error):  # the compiler has no frame
        found = "a module"
    step: TracebackType | None = error.__traceback__
    while step is not None:
        code, frame = step.tb_frame.f_code, step.tb_frame
        if code.co_filename.startswith("<frozen importlib"):
            if code.co_name == "_find_and_load":
                found = frame.f_locals["name"]
        elif code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
            found = frame.f_globals["__name__"]
        step = step.tb_next
    return found


def is_damaged(error: BaseException) -> bool:
    """Whether a file cannot be read or loaded, not that a module failed in what it does then."""
    return isinstance(error, OSError | ImportError) or _is_no_python(error)


def _is_no_python(error: BaseException) -> bool:
    """Whether the compiler has refused a file; one of zeros is no SyntaxError before Python 3.11.4."""
    zeros = isinstance(error, ValueError) and "null bytes" in str(error)
    return zeros or isinstance(error, SyntaxError)


def root_cause(error: BaseException) -> BaseException:
    """What a library raises its own exception from, where a file of its could not be loaded."""
    while isinstance(error.__cause__, ImportError | OSError):
        error = error.__cause__
    return error


def variables_of(module: str) -> list[str]:
    """The environment variables that a library reads, by their names."""
    prefix = module.partition(".")[0].upper() + "_"
    return sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(prefix))
