"""When functions are being compiled; importing this imports nothing, so that a command can listen early."""

from __future__ import annotations

from collections.abc import Callable

listeners: list[Callable[[bool], None]] = []
"""Called with True where a compilation begins and False where it ends; it may be inside another one.

Loading a function from the cache is none.
"""


def report(begins: bool) -> None:
    """Tell all listeners."""
    for listener in listeners:
        listener(begins)
