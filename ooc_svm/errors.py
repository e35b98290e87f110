"""The exceptions of the package; each knows the exit code of the command line.

Messages name parameters through `parameter`: as keywords where the package is used as a library, as options
where a command line runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NOT_GIVEN: Any = object()

# Characters of a value that a message shows.
_SHOWN = 80

# How a command line writes parameters, by their names, where that is not --name; None in a library.
_spelling: Mapping[str, str] | None = None


def spell_parameters(spelling: Mapping[str, str] | None) -> None:
    """Say how messages write parameters from now on, see `parameter_spelling`."""
    global _spelling
    _spelling = spelling


def parameter_spelling() -> Mapping[str, str] | None:
    """None where messages name keywords; on a command line the parameters that are not written ``--name``."""
    return _spelling


def flag(name: str) -> str:
    """The option of a parameter on the command line: ``--max-passes``."""
    return "--" + name.replace("_", "-")


def parameter(name: str, value: Any = _NOT_GIVEN) -> str:
    """A parameter, perhaps with a value, as the user of the moment writes it.

    ``max_passes``, ``max_passes=3`` and ``resume=True``; on the command line ``--max-passes``,
    ``--max-passes 3`` and ``--resume``.
    """
    if _spelling is None:
        return name if value is _NOT_GIVEN else f"{name}={value!r}"
    option = _spelling.get(name, flag(name))
    return option if value is _NOT_GIVEN or value is True else f"{option} {value}"


def shown(value: Any) -> str:
    """A value for a message: its repr on one line, cut."""
    try:
        text = repr(value)
    except Exception:  # of any object; also of an integer with thousands of digits
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def percent(part: int, whole: int) -> str:
    """A share for a message: ``12 %``, and 100 % only where it is all of the whole."""
    share = 100 * part / max(whole, 1)
    if part < whole:
        share = min(share, 99.9)
    return f"{share:.{2 if share < 99 else 3}g} %"


class OocSvmError(Exception):
    """Base of every error this package raises on purpose: one sentence, what to do included."""

    exit_code = 1


class HintWarning(UserWarning):
    """Something that stands in the way of a good model; ``report["hints"]`` has it too."""


class InternalError(OocSvmError):
    """The package found that it was wrong itself: nothing was written, and its authors want to know."""


class UsageError(OocSvmError, ValueError):
    """Options that contradict each other or the data they are used with."""

    exit_code = 2


class InputError(OocSvmError, ValueError):
    """Bad input: the message names the file and the line or the value."""

    exit_code = 3


class DamageError(OocSvmError):
    """A damaged, incomplete or foreign store, model or checkpoint."""

    exit_code = 4


class StorageError(OocSvmError, OSError):
    """Reading or writing failed: no space, no permission, a lost worker."""

    exit_code = 5


class MemoryBudgetError(OocSvmError, MemoryError):
    """The memory allowed cannot hold what the run needs; the message holds the sum.

    Attributes
    ----------
    needed : int
        The sum in bytes: as much is enough. 0 where none is known.
    """

    exit_code = 6

    def __init__(self, message: str, needed: int = 0) -> None:
        super().__init__(message)
        self.needed = needed


class Interrupted(OocSvmError):
    """A run ended by a signal, after its checkpoint was written if one was asked for.

    Attributes
    ----------
    model : Model or None
        The best model so far, with its gap, where there is one.
    """

    def __init__(self, signal_number: int, message: str, model: Any = None) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
        self.model = model
