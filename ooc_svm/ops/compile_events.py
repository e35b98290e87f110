"""When functions are being compiled, and who else may do it.

Importing this imports nothing, so that a command can listen early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

listeners: list[Callable[[bool], None]] = []
"""Called with True where a compilation begins and False where it ends; it may be inside another one.

Loading a function from the cache is none.
"""

helpers: list[Callable[[Callable[..., Any], Any], bool]] = []
"""Called with a function that is not in the cache and the types of its arguments: whether it is there now.

This process compiles what none of them has compiled.
"""


def report(begins: bool) -> None:
    """Tell all listeners."""
    for listener in listeners:
        listener(begins)
