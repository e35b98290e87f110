"""Progress on standard error: a bar on a terminal, plain lines elsewhere, or nothing.

Progress that cannot be written is no reason to end a run.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ooc_svm.cli.format import bound, count, objective, seconds, short
from ooc_svm.system.memory import format_size

if TYPE_CHECKING:
    from ooc_svm.training.progress import Progress

# Seconds between two lines about bytes where there is no terminal.
LINE_INTERVAL = 10.0

TrainProgress = Callable[["Progress"], None]
ByteProgress = Callable[..., None]


def on_terminal() -> bool:
    """Whether standard error is a terminal that can redraw a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def write_line(line: str) -> None:
    """One line on standard error, if it can be written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def train_progress(quiet: bool) -> Iterator[TrainProgress | None]:
    """What a training run is told to call after each pass.

    Parameters
    ----------
    quiet : bool
        Gives None.
    """
    if quiet:
        yield None
    elif on_terminal():
        from ooc_svm.cli.bars import train_bar

        with train_bar() as bar:
            yield bar
    else:
        yield PassLines()


@contextlib.contextmanager
def byte_progress(verb: str, quiet: bool) -> Iterator[ByteProgress | None]:
    """What a reader is told to call with the bytes done, the bytes to do (or None), and perhaps the rows.

    Parameters
    ----------
    verb : str
        What is done, the first word of each line.
    quiet : bool
        Gives None.
    """
    if quiet:
        yield None
    elif on_terminal():
        from ooc_svm.cli.bars import byte_bar

        with byte_bar(verb) as bar:
            yield bar
    else:
        yield ByteLines(verb)


class PassLines:
    """A plain line for each pass and each note; blocks are passed over."""

    def __init__(self) -> None:
        self._speed = Speed()

    def __call__(self, event: Progress) -> None:
        """Called by a training run."""
        if event.kind == "note":
            write_line(event.message)
        elif event.kind == "pass":
            write_line(pass_line(event, self._speed(event.bytes_read, event.seconds)))


class Speed:
    """Bytes a second since it was asked last."""

    def __init__(self) -> None:
        self._bytes, self._seconds = 0, 0.0

    def __call__(self, n_bytes: int, elapsed: float) -> float:
        """The speed, from the bytes and seconds of a run so far."""
        speed = (n_bytes - self._bytes) / max(elapsed - self._seconds, 1e-3)
        self._bytes, self._seconds = n_bytes, elapsed
        return max(speed, 0.0)


def pass_line(event: Progress, bytes_a_second: float) -> str:
    """``pass 12  gap 3.4e-3 (target 1e-3)  P 577.8  D 575.9  1.2 GB read  310 MB/s  8.1 s``.

    Reading has a speed where something was read: blocks that are kept in memory are read once.
    """
    parts = [
        f"pass {event.passes}",
        f"gap {bound(event.relative_gap)} (target {short(event.tol)})",
        f"P {objective(event.primal)}",
        f"D {objective(event.dual)}",
        f"{format_size(event.bytes_read)} read",
    ]
    if bytes_a_second > 0:
        parts.append(f"{format_size(bytes_a_second)}/s")
    parts.append(seconds(event.seconds))
    if event.models_running > 1:
        parts.append(count(event.models_running, "model") + " to go")
    return "  ".join(parts)


class GapShare:
    """How far a gap has come from where it was first seen to its target, on a log scale."""

    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self, gap: float | None, tol: float) -> float:
        """The share done, 0 to 1, of a relative gap."""
        if gap is None or not math.isfinite(gap):
            return 0.0
        if gap <= tol:
            return 1.0
        if self._first is None:
            self._first = max(1.0, gap)
        return min(max(math.log(self._first / gap) / math.log(self._first / tol), 0.0), 1.0)


class ByteLines:
    """A plain line now and then: bytes done, bytes a second, rows.

    Parameters
    ----------
    verb : str
    interval : float
        Seconds between two lines.
    """

    def __init__(self, verb: str, interval: float = LINE_INTERVAL) -> None:
        self._verb = verb
        self._interval = interval
        self._began = self._last = time.monotonic()

    def __call__(self, done: int, total: int | None, rows: int | None = None) -> None:
        """Called with the bytes done, of how many if that is known, and the rows."""
        now = time.monotonic()
        if now - self._last < self._interval:
            return
        self._last = now
        amount = format_size(done) + ("" if total is None else f" of {format_size(total)}")
        parts = [f"{self._verb} {amount}", f"{format_size(done / (now - self._began))}/s"]
        if rows is not None:
            parts.append(count(rows, "row"))
        write_line("  ".join(parts))
