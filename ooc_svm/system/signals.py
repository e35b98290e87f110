"""SIGINT and SIGTERM: a first signal asks a run to end by itself, later ones end it.

A run that can stop at a good place checks `stop_requested` there. A run that does not get there in time is
interrupted by an exception. If the exception does not end it either, the process exits without tidying up:
files are written so that this harms nothing, see `ooc_svm.system.files`.

Until it reaches `handle_signals` that exception is not an `Exception`, so that no library handles it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ooc_svm.errors import Interrupted

GRACE_SECONDS = 8.0
"""Time in which a run may come to a good place after the first signal, in seconds."""

TIDY_SECONDS = 1.5
"""Time for closing files after that, in seconds; then the process exits."""

_AGAIN_SECONDS = 0.01
"""Delay, in seconds, after which an exception is raised again that was raised where nothing propagates."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Signalled(BaseException):
    """Raised by a signal; `handle_signals` replaces it by `Interrupted`."""


class _Watch:
    """The handlers of one `handle_signals`, and the signals that they have received."""

    def __init__(self, grace: float) -> None:
        self.grace, self.raised = grace, False
        self.first: int | None = None
        self._handlers: dict[int, Any] = {}
        self._timer = (0.0, 0.0)
        self._tidy_seconds = TIDY_SECONDS
        self._unraisable_hook = sys.unraisablehook

    def start(self) -> None:
        sys.unraisablehook = self._on_unraisable
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._on_signal)

    def stop(self) -> None:
        """Restore the previous handlers, timer and hook."""
        if self.first is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in list(self._handlers.items()):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self.first is not None:
            signal.setitimer(signal.ITIMER_REAL, *self._timer)
        sys.unraisablehook = self._unraisable_hook

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            self._handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_alarm)
            self._timer = signal.setitimer(signal.ITIMER_REAL, self.grace)
            if self.grace > 0:
                return
            self._tidy_seconds += GRACE_SECONDS
            self._raise(number)
        self._tidy_seconds = TIDY_SECONDS
        self._raise(number)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        assert self.first is not None
        if self.raised:
            os._exit(128 + self.first)
        self._raise(self.first)

    def _on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raise again what was raised in a callback that lets nothing through, such as a finalizer."""
        if not isinstance(unraisable.exc_value, _Signalled):
            self._unraisable_hook(unraisable)
            return
        self.raised = False
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def _raise(self, number: int) -> None:
        if self.raised:  # a third signal does what it does to any other program
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_DFL)
        self.raised = True
        signal.setitimer(signal.ITIMER_REAL, self._tidy_seconds)
        raise _Signalled(number)


_watches: list[_Watch] = []


def stop_requested() -> int | None:
    """The number of the signal that asks this run to end, or None."""
    return _watches[-1].first if _watches else None


@contextlib.contextmanager
def handle_signals(grace: float = GRACE_SECONDS) -> Iterator[None]:
    """Handle SIGINT and SIGTERM while the context lasts; outside the main thread this does nothing.

    The first signal is recorded for `stop_requested`. After `grace` seconds, or at a second signal, the main
    thread is interrupted wherever it is; if tidying up then takes longer than `TIDY_SECONDS`, the process
    exits with the code of the signal. With a grace of 0 the first signal raises, and all the time is left for
    tidying up. `Interrupted` is raised when the context is left after such an interruption.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(grace)
    _watches.append(watch)
    try:
        watch.start()
        yield
    except _Signalled as signalled:
        raise public_error(signalled).with_traceback(signalled.__traceback__) from None
    finally:
        _watches.remove(watch)
        watch.stop()


def public_error(error: BaseException) -> BaseException:
    """The error that users see: `Interrupted` in place of what a signal raised, any other one as it is.

    `handle_signals` does this, but a signal in its last moments may still raise in its caller.
    """
    if not isinstance(error, _Signalled):
        return error
    [number] = error.args
    what = f"interrupted by {signal.Signals(number).name} before the end"
    return Interrupted(number, f"{what}; run it again, with --resume if it had --checkpoint")
