"""SIGINT and SIGTERM: a first signal asks a run to end by itself, then it is ended.

A run that can stop at a good place looks at `requested` there. One that does not get there in time is
interrupted by an exception, and one that does not end on that either leaves the process without tidying up:
files are written so that this harms nothing, see `ooc_svm.system.files`.

On its way that exception is no `Exception`, so that no library takes it for a failure that it can deal with.
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
"""What a run has to come to a good place after the first signal."""

TIDY_SECONDS = 1.5
"""What is left for closing files after that, before the process ends whatever it does."""

_AGAIN_SECONDS = 0.01
"""After what time an exception is raised once more that was raised where nothing propagates."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Signalled(BaseException):
    """On its way to the end of `install`."""


class _Watch:
    """The handlers of one `install`, and what they have seen."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.first: int | None = None
        self.raised = False
        self._handlers: dict[int, Any] = {}
        self._timer = (0.0, 0.0)
        self._tidy_seconds = TIDY_SECONDS
        self._unraisable_hook = sys.unraisablehook

    def start(self) -> None:
        sys.unraisablehook = self._on_unraisable
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._on_signal)

    def stop(self) -> None:
        """Put back what was there before."""
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
        """Raise again what met a callback (of the garbage collector, say) that lets nothing through."""
        if not isinstance(unraisable.exc_value, _Signalled):
            self._unraisable_hook(unraisable)
            return
        self.raised = False
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def _raise(self, number: int) -> None:
        if self.raised:  # whoever sends a third signal gets what it does to any other program
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_DFL)
        self.raised = True
        signal.setitimer(signal.ITIMER_REAL, self._tidy_seconds)
        raise _Signalled(number)


_watches: list[_Watch] = []


def requested() -> int | None:
    """Number of the signal that asks this run to end, or None."""
    return _watches[-1].first if _watches else None


@contextlib.contextmanager
def install(grace: float = GRACE_SECONDS) -> Iterator[None]:
    """Answer SIGINT and SIGTERM while the context lasts; outside the main thread this does nothing.

    The first signal is noted for `requested`. After `grace` seconds, or at a second signal, the main thread
    is interrupted wherever it is; if tidying up then takes longer than `TIDY_SECONDS`, the process exits with
    the code of the signal.

    Parameters
    ----------
    grace : float
        Seconds; 0 raises at the first signal, and leaves all the time for tidying up.

    Raises
    ------
    Interrupted
        When the context is left after that.
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
        raise told(signalled).with_traceback(signalled.__traceback__) from None
    finally:
        _watches.remove(watch)
        watch.stop()


def told(error: BaseException) -> BaseException:
    """The error that users see: `Interrupted` for what a signal raised, any other one as it is.

    `install` does this; its caller may be left with the first by a signal in its last moments.
    """
    if not isinstance(error, _Signalled):
        return error
    [number] = error.args
    name = signal.Signals(number).name
    return Interrupted(
        number, f"interrupted by {name} before the end; run it again, with --resume if it had --checkpoint"
    )
