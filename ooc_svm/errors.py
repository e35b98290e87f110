"""The exceptions of the package; each knows the exit code of the command line."""

from __future__ import annotations

from typing import Any


class OocSvmError(Exception):
    """Base of every error this package raises on purpose: one sentence, what to do included."""

    exit_code = 1


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
    """The memory allowed cannot hold what the run needs; the message holds the sum."""

    exit_code = 6


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
