"""SIGINT and SIGTERM: a first signal asks a run to end by itself, later ones end it.

A run that can stop at a good place checks `stop_requested` there. A run that does not get there in time is
interrupted by an exception. If the exception does not end it either, the process says so and exits without
tidying up: files are written so that this harms nothing, see `ooc_svm.system.files`.

Until it reaches `handle_signals` that exception is not an `Exception`, so that no library handles it. In a
callback of C code it is lost, or printed, and what the library raises in its place follows from the signal.

The command line imports this before everything else: it imports little.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, TypeVar

from ooc_svm.errors import Interrupted, OocSvmError, parameter

GRACE_SECONDS = 8.0
"""Time in which a run may come to a good place after the first signal, in seconds."""

TIDY_SECONDS = 1.5
"""Time for closing files after that, in seconds; then the process says so and exits."""

_AGAIN_SECONDS = 0.01
"""Delay, in seconds, after which an exception is raised again that was raised where nothing propagates."""

Entered = TypeVar("Entered")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STANDARD_ERROR = 2


class _Signalled(BaseException):
    """Raised by a signal; `handle_signals` replaces it by `Interrupted`."""


class _Watch:
    """The handlers of one `handle_signals`, and the signals that they have received.

    A handler may be interrupted by another signal at any place, so what is done once is done by `setdefault`.
    """

    def __init__(self, grace: float, announced: bool) -> None:
        self.grace, self.announced = grace, announced
        self.raised = False
        self.uninterrupted = 0  # Number of contexts that keep a signal from raising
        self.is_postponed = False  # Whether one of them did
        self.entered: list[contextlib.ExitStack] = []  # What is to be left at the end, see `entered`
        self.interrupted: int | None = None  # The first signal, once it has raised
        # Whether a watch inside this one was interrupted: what was cut short there may be finalised later
        self.cut_short = False
        self.first: int | None = None
        self._handlers: dict[int, Any] = {}
        self._timers: dict[int, tuple[float, float]] = {}
        self._tidy_seconds = TIDY_SECONDS
        self._hooks = sys.unraisablehook, sys.excepthook

    def start(self) -> None:
        sys.unraisablehook, sys.excepthook = self._on_unraisable, self._on_printed
        for number in _SIGNALS:
            self._handlers[number] = signal.getsignal(number)
            signal.signal(number, self._on_signal)

    def stop(self, last: bool) -> None:
        """Restore the previous handlers, timer and hooks; if it is the last one, let the process only end."""
        if self._timers:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in list(self._handlers.items()):
            signal.signal(number, _on_late_signal if last else signal.SIG_DFL if handler is None else handler)
        if self._timers and not last:
            signal.setitimer(signal.ITIMER_REAL, *self._timers[signal.ITIMER_REAL])
        if not last or self.interrupted is None:
            sys.unraisablehook, sys.excepthook = self._hooks

    def leave(self) -> None:
        """Leave what was entered, and was not left since a signal came first."""
        with uninterrupted():
            for stack in reversed(self.entered):
                with contextlib.suppress(OocSvmError):
                    stack.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self.first is not None
        if not again:
            self._handlers.setdefault(signal.SIGALRM, signal.getsignal(signal.SIGALRM))
            self._timers.setdefault(signal.ITIMER_REAL, signal.getitimer(signal.ITIMER_REAL))
            signal.signal(signal.SIGALRM, self._on_alarm)
            self.first = number
            if self.grace > 0:
                signal.setitimer(signal.ITIMER_REAL, self.grace)
                if self.announced:
                    when = f"with this pass, or in {self.grace:g} s"
                    _say(f"ooc-svm: ending {when}; another signal ends it at once")
                return
            self._tidy_seconds += GRACE_SECONDS
        else:
            self._tidy_seconds = TIDY_SECONDS
        self._raise(number)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        assert self.first is not None
        if self.raised:
            _exit(self.first)
        self._raise(self.first)

    def _on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        self._on_lost(unraisable.exc_value, lambda: self._hooks[0](unraisable))

    def _on_printed(self, *exception: Any) -> None:
        self._on_lost(exception[1], lambda: self._hooks[1](*exception))

    def _on_lost(self, error: BaseException | None, report: Callable[[], object]) -> None:
        """Raise again what was raised where nothing propagates.

        That is in finalizers, and in extension modules: they print what keeps them from importing NumPy.
        """
        if isinstance(error, _Signalled):
            self.raised = False
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        elif self.interrupted is None and not self.cut_short:
            report()

    def _raise(self, number: int) -> None:
        if self.raised:  # a third signal does what it does to any other program
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_DFL)
        self.raised = True
        if self.interrupted is None:
            self.interrupted = number
        signal.setitimer(signal.ITIMER_REAL, self._tidy_seconds)
        if self.uninterrupted:
            self.is_postponed = True
        else:
            raise _Signalled(number)


def _exit(number: int) -> NoReturn:
    """End the process at once, with a sentence and the code of a signal."""
    name = signal.Signals(number).name
    with contextlib.suppress(OSError):
        os.set_blocking(_STANDARD_ERROR, False)
    _say(f"ooc-svm: error: interrupted by {name}; what was under way did not end in time")
    os._exit(128 + number)


def _say(line: str) -> None:
    """Write a line to the standard error, past Python's buffers: a handler may have interrupted their use."""
    with contextlib.suppress(OSError):
        os.write(_STANDARD_ERROR, f"{line}\n".encode())


def _on_late_signal(number: int, frame: FrameType | None) -> None:
    """The process is ending: let it, but not for ever."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        signal.setitimer(signal.ITIMER_REAL, TIDY_SECONDS)


_watches: list[_Watch] = []


def stop_requested() -> int | None:
    """The number of the signal that asks this run to end, or None."""
    return _watches[-1].first if _watches else None


@contextlib.contextmanager
def handle_signals(
    grace: float = GRACE_SECONDS, *, last: bool = False, announced: bool = False
) -> Iterator[None]:
    """Handle SIGINT and SIGTERM while the context lasts; outside the main thread this does nothing.

    The first signal is recorded for `stop_requested`. After `grace` seconds, or at a second signal, the main
    thread is interrupted wherever it is; if tidying up then takes longer than `TIDY_SECONDS`, the process
    exits with a sentence and the code of the signal. With a grace of 0 the first signal raises, and all the
    time is left for tidying up. After an interruption `Interrupted` is raised in place of any other exception
    that leaves the context.

    If it is the ``last`` one, the process ends afterwards: it is given `TIDY_SECONDS` after a later signal.
    If it is ``announced``, a line on the standard error answers a first signal that raises nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(grace, announced)
    _watches.append(watch)
    try:
        watch.start()
        yield
    except BaseException as error:
        if watch.interrupted is None:
            raise
        # Another exception follows from the signal: of a callback, or of an import cut short.
        raise public_error(_Signalled(watch.interrupted)).with_traceback(error.__traceback__) from None
    finally:
        try:
            if watch.interrupted is not None:
                watch.leave()
        finally:
            _watches.remove(watch)
            for outer in _watches:
                outer.cut_short |= watch.interrupted is not None
            watch.stop(last)


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Interrupt work that checks no `stop_requested` at the first signal, if signals are handled at all."""
    if not _watches:
        yield
        return
    if (number := stop_requested()) is not None:
        raise public_error(_Signalled(number))
    with handle_signals(grace=0):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a signal raise at the end of the context: by then, what is made in it belongs to what removes it.

    Where that takes too long, the process ends as `handle_signals` says. Where signals are not handled, a
    first Ctrl-C waits for the end, unless the program has a handler of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _watches:
        with _keyboard_waits():
            yield
        return
    watch = _watches[-1]
    watch.uninterrupted += 1
    try:
        yield
    finally:
        watch.uninterrupted -= 1
        if watch.is_postponed and not watch.uninterrupted:
            watch.is_postponed = False
            raise _Signalled(watch.interrupted)


@contextlib.contextmanager
def _keyboard_waits() -> Iterator[None]:
    """Let a first KeyboardInterrupt wait for the end, if Python's own handler would raise it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            signal.default_int_handler(number, frame)
        received.append(number)

    signal.signal(signal.SIGINT, receive)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if received:
            raise KeyboardInterrupt


@contextlib.contextmanager
def entered(make: Callable[[], contextlib.AbstractContextManager[Entered]]) -> Iterator[Entered]:
    """Make something, enter it and leave it at the end; a signal raises before, in between or afterwards.

    What is left is not told of an exception. `handle_signals` leaves it where a signal has come between this
    and the statement that it is for.
    """
    is_main = threading.current_thread() is threading.main_thread()
    opened = _watches[-1].entered if _watches and is_main else []
    with contextlib.ExitStack() as stack:
        with uninterrupted():
            opened.append(stack)
            made = stack.enter_context(make())
        try:
            yield made
        finally:
            with uninterrupted():
                stack.close()
                opened.remove(stack)


def public_error(error: BaseException) -> BaseException:
    """The error that users see: `Interrupted` in place of what a signal raised, any other one as it is.

    `handle_signals` does this, but a signal in its last moments may still raise in its caller.
    """
    if not isinstance(error, _Signalled):
        return error
    [number] = error.args
    what = f"interrupted by {signal.Signals(number).name} before the end"
    again = f"run it again, with {parameter('resume', True)} if it had {parameter('checkpoint')}"
    return Interrupted(number, f"{what}; {again}")
