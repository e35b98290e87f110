"""Threads that have nothing else to do take pieces of the loops of one that solves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ooc_svm.passes.crew import Alone, Piece

# For so long a helper waits for the next loop, and stays in all, before its thread may do something else.
LINGER_SECONDS, STRETCH_SECONDS = 0.002, 0.005


class _Loop:
    """A loop over pieces that several threads go through, each piece done by one of them."""

    def __init__(self, work: Callable[[Any], None], pieces: Sequence[Any]) -> None:
        self._work, self._pieces, self._undone = work, iter(pieces), len(pieces)
        self._lock, self._done = threading.Lock(), threading.Event()
        self._failure: BaseException | None = None

    def take_part(self) -> bool:
        """Do pieces until none is left; whether there was one."""
        found = False
        while True:
            with self._lock:
                piece = next(self._pieces, self)
            if piece is self:
                return found
            found = True
            try:
                self._work(piece)
            except BaseException as error:
                self._failure = error
            with self._lock:
                self._undone -= 1
                if not self._undone:
                    self._done.set()

    def finish(self) -> None:
        """Wait for the pieces that others have begun; raises what one has raised."""
        self._done.wait()
        if self._failure is not None:
            raise self._failure


class ThreadCrew(Alone):
    """A crew of the threads of an engine; see `ooc_svm.passes.crew.Crew`."""

    def __init__(self) -> None:
        self._loop: _Loop | None = None
        self._at_work, self._changed = False, threading.Condition()

    def begin(self) -> None:
        """Loops follow: those who help stay in between."""
        self._at_work = True

    def end(self) -> None:
        """There are no more loops for now."""
        self._at_work = False
        self._show(None)

    def each(self, work: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
        """Do a work for each piece; it has to let other threads run meanwhile, as compiled functions do."""
        if len(pieces) < 2:
            super().each(work, pieces)
            return
        loop = _Loop(work, pieces)
        self._show(loop)
        loop.take_part()
        loop.finish()

    def help(self) -> bool:
        """Take part in the loop of the moment, and in those that follow at once; whether there was one."""
        found, until = False, time.monotonic() + STRETCH_SECONDS
        while self._at_work and time.monotonic() < until:
            loop = self._loop
            found |= loop is not None and loop.take_part()
            with self._changed:
                if self._loop is loop and not self._changed.wait(LINGER_SECONDS):
                    break
        return found

    def _show(self, loop: _Loop | None) -> None:
        with self._changed:
            self._loop = loop
            self._changed.notify_all()
