"""Runs that a signal ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def signal_at(question: int) -> Iterator[list[int]]:
    """While this lasts, a run that asks for signals is told of one, once; an entry for each time it asks."""
    asked: list[int] = []

    def stop_requested() -> int | None:
        asked.append(1)
        return signal.SIGTERM if len(asked) == question else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ooc_svm.system.signals.stop_requested", stop_requested)
        yield asked
