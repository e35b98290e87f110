"""Durations, and what was read of the data, as text for people."""

from __future__ import annotations

from ooc_svm.system.memory import format_size


def format_seconds(duration: float) -> str:
    """A duration: ``0.02 s``, ``8.1 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if duration < 0.05:
        return f"{round(duration, 3):.1g} s"
    if duration < 99.5:
        return f"{duration:.1f} s" if duration < 9.95 else f"{duration:.0f} s"
    minutes, rest = divmod(round(duration), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_read(n_bytes: int) -> str:
    """What was read of the data: ``309 MB read``."""
    return f"{format_size(n_bytes)} read" if n_bytes else "rows in memory"
