"""The line that says that functions are being compiled."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from ooc_svm.cli.progress import write_line
from ooc_svm.ops import compile_events

PATIENCE = 1.0
"""Time since the first compilation after which a command says that it waits, in seconds."""

NOTICE = (
    "ooc-svm: compiling, once for this version on this machine; takes up to a minute "
    "(ooc-svm warmup compiles for all commands)"
)


class _Notice:
    """Waits until compiling has taken long enough for a line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth, self._spent, self._begin = 0, 0.0, 0.0
        self._timer = threading.Timer(PATIENCE, self._tell)
        self._timer.daemon = True
        self._started = False

    def hear(self, begins: bool) -> None:
        """A compilation begins or ends."""
        with self._lock:
            if begins and not self._depth:
                self._begin = time.monotonic()
            self._depth += 1 if begins else -1
            if not self._depth:
                self._spent += time.monotonic() - self._begin
            if not self._started:
                self._started = True
                self._timer.start()

    def _tell(self) -> None:
        if self._depth or self._spent > PATIENCE / 2:
            write_line(NOTICE)

    def stop(self) -> None:
        """There will be no line any more."""
        self._timer.cancel()


@contextlib.contextmanager
def compile_notice(quiet: bool) -> Iterator[None]:
    """Say so, once, where compiling makes the user wait; not if ``quiet``."""
    if quiet:
        yield
        return
    notice = _Notice()
    compile_events.listeners.append(notice.hear)
    try:
        yield
    finally:
        compile_events.listeners.remove(notice.hear)
        notice.stop()
