"""Progress on standard error: a bar on a terminal, plain lines elsewhere, or nothing.

Progress that cannot be written does not end a run.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ooc_svm.cli.exit_codes import complain
from ooc_svm.cli.format import bound, count, objective, short
from ooc_svm.system.amounts import format_read, format_seconds
from ooc_svm.system.memory import format_size

if TYPE_CHECKING:
    from ooc_svm.training.progress import Progress as TrainEvent

# Seconds between two lines about bytes where there is no terminal.
LINE_INTERVAL = 10.0

# Share of the way, 0 to 1, below which the time that is left is not shown: the guess would be poor.
MIN_SHARE = 0.05

# Least time left that is shown, in seconds; of a gap that is all but reached nothing can be said.
LEAST_LEFT = 0.1

TrainProgress = Callable[["TrainEvent"], None]
ByteProgress = Callable[..., None]


def on_terminal() -> bool:
    """Whether standard error is a terminal that can redraw a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def write_line(line: str) -> None:
    """Write a line to standard error, if it can be written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def train_progress(quiet: bool) -> Iterator[TrainProgress | None]:
    """Give the function that a training run calls with its events, or None if ``quiet``."""
    if quiet:
        yield None
    elif on_terminal():
        with _train_bar() as show:
            yield show
    else:
        yield PassLines()


class _Remarks:
    """Gives the text of notes, and of each hint once: every batch of a run has those of the data."""

    def __init__(self) -> None:
        self._hints: set[str] = set()

    def __call__(self, event: TrainEvent) -> str | None:
        """The text to show, None for a hint that was shown."""
        if event.kind == "hint":
            if event.message in self._hints:
                return None
            self._hints.add(event.message)
        return str(event)


@contextlib.contextmanager
def byte_progress(verb: str, quiet: bool) -> Iterator[ByteProgress | None]:
    """Give the function that a reader calls with bytes done, bytes to do or None, and perhaps rows.

    `verb` is the first word of each line; if ``quiet``, give None.
    """
    if quiet:
        yield None
    elif on_terminal():
        with _byte_bar(verb) as show:
            yield show
    else:
        yield ByteLines(verb)


class Hints:
    """Prints each hint of a run once: as it comes, or with the results where no progress is shown."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._shown: set[str] = set()

    def __call__(self, event: TrainEvent) -> None:
        """Notice what the progress shows."""
        if event.kind == "hint" and not self._quiet:
            self._shown.add(event.message)

    def rest(self, report: Mapping[str, Any]) -> None:
        """Print those of a report that were not shown yet."""
        for hint in report["hints"]:
            if hint["message"] not in self._shown:
                complain("hint", hint["message"])


class PassLines:
    """A plain line for each pass and each note; events of blocks are ignored."""

    def __init__(self) -> None:
        self._gap_share, self._speed, self._left = GapShare(), _Speed(), _TimeLeft()
        self._remarks = _Remarks()
        self._converted = ByteLines("convert")

    def __call__(self, event: TrainEvent) -> None:
        """Write the line of an event of a training run."""
        if event.kind == "conversion":
            self._converted(event.bytes_read, event.n_bytes, event.n_rows)
        elif event.kind in ("note", "hint"):
            if (text := self._remarks(event)) is not None:
                write_line(text)
        elif event.kind == "pass":
            share = self._gap_share(event.relative_gap, event.tol)
            speed = self._speed(event.bytes_read, event.seconds)
            write_line(_pass_line(event, speed, self._left(event, share)))


class ByteLines:
    """A plain line every `interval` seconds: bytes done, bytes a second, rows."""

    def __init__(self, verb: str, interval: float = LINE_INTERVAL) -> None:
        self._verb, self._interval = verb, interval
        self._began = self._last = time.monotonic()

    def __call__(self, done: int, total: int | None, rows: int | None = None) -> None:
        """Write a line if the interval is over."""
        now = time.monotonic()
        if now - self._last < self._interval:
            return
        self._last = now
        amount = format_size(done) + ("" if total is None else f" of {format_size(total)}")
        parts = [f"{self._verb} {amount}", f"{format_size(done / (now - self._began))}/s"]
        if rows is not None:
            parts.append(count(rows, "row"))
        write_line("  ".join(parts))


class GapShare:
    """How far the gap has come from the first one seen to its target, on a log scale."""

    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self, gap: float | None, tol: float) -> float:
        """The share of the way, 0 to 1, at a relative gap."""
        if gap is None or not math.isfinite(gap):
            return 0.0
        if gap <= tol:
            return 1.0
        if self._first is None:
            self._first = max(1.0, gap)
        return min(max(math.log(self._first / gap) / math.log(self._first / tol), 0.0), 1.0)


class _Speed:
    """Bytes a second since the previous call."""

    def __init__(self) -> None:
        self._bytes, self._seconds = 0, 0.0

    def __call__(self, n_bytes: int, elapsed: float) -> float:
        """The speed, from the bytes and seconds of a run so far."""
        speed = (n_bytes - self._bytes) / max(elapsed - self._seconds, 1e-3)
        self._bytes, self._seconds = n_bytes, elapsed
        return max(speed, 0.0)


class _TimeLeft:
    """The time left, as the passes behind the first one tell: that one may have waited for compiling."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None

    def __call__(self, event: TrainEvent, share: float) -> list[str]:
        """The time left at a share of the way, once so much is done that it can be guessed."""
        if self._began is None:
            self._began = (event.seconds, share) if event.kind == "pass" else None
            return []
        took, done = event.seconds - self._began[0], share - self._began[1]
        left = took * (1 - share) / max(done, MIN_SHARE)
        if done < MIN_SHARE or left < LEAST_LEFT:
            return []
        return [f"about {format_seconds(left)} left"]


def _pass_line(event: TrainEvent, bytes_a_second: float, left: list[str]) -> str:
    """``pass 12  gap 3.4e-3 (target 1e-3)  P 577.8  D 575.9  1.2 GB read  310 MB/s  8.1 s``, and time left.

    The speed is left out where nothing was read: blocks that are kept in memory are read once.
    """
    values = f"P {objective(event.primal)}  D {objective(event.dual)}"
    parts = [f"pass {event.passes}", _gap(event), values, format_read(event.bytes_read)]
    parts += [*_quality(event), *_pace(event, bytes_a_second)]
    return "  ".join([*parts, *left, *_to_go(event)])


def _bar_text(event: TrainEvent, bytes_a_second: float, left: list[str]) -> str:
    """The text to the right of the bar: gap, reading speed, time used and left, models that still run."""
    pace = _pace(event, bytes_a_second)
    return "  ".join([_gap(event), *_quality(event), *pace, *left, *_to_go(event)])


def _gap(event: TrainEvent) -> str:
    return f"gap {bound(event.relative_gap)} (target {short(event.tol)})"


def _pace(event: TrainEvent, bytes_a_second: float) -> list[str]:
    speed = [f"{format_size(bytes_a_second)}/s"] if bytes_a_second > 0 else []
    return [*speed, format_seconds(event.seconds)]


def _quality(event: TrainEvent) -> list[str]:
    """The best quality on rows held out."""
    if event.validation is None:
        return []
    from ooc_svm.training.progress import best_quality

    _, metric, value = best_quality(event.validation)
    return [f"{metric} {value:.4g}"]


def _to_go(event: TrainEvent) -> list[str]:
    return [count(event.models_running, "model") + " to go"] if event.models_running > 1 else []


@contextlib.contextmanager
def _train_bar() -> Iterator[TrainProgress]:
    """A bar that fills as the gap falls, on a log scale."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[facts]}"))
    gap_share, speed, left, remarks = GapShare(), _Speed(), _TimeLeft(), _Remarks()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=1.0, facts="")

        def show(event: TrainEvent) -> None:
            if event.kind in ("note", "hint"):
                if (text := remarks(event)) is not None:
                    bar.console.print(text, markup=False, highlight=False)
                return
            if event.kind == "conversion":
                bar.update(task, description="convert  ", **_conversion(event, speed))
                return
            share = gap_share(event.relative_gap, event.tol)
            within = event.kind == "block"
            percent = f"{100 * event.blocks_done // max(event.n_blocks, 1)} %" if within else ""
            scaling = event.primal is None and not event.models_running
            read = "scaling " if scaling else f"pass {event.passes + within:<3d}"
            bar.update(
                task,
                description=f"{read} {percent:>5}",
                completed=share,
                facts=_bar_text(event, speed(event.bytes_read, event.seconds), left(event, share)),
            )

        yield show


def _conversion(event: TrainEvent, speed: _Speed) -> dict[str, Any]:
    """How the bar shows text that is converted."""
    share = 0.0 if not event.n_bytes else min(event.bytes_read / event.n_bytes, 1.0)
    facts = [
        f"{format_size(event.bytes_read)} of text",
        *_pace(event, speed(event.bytes_read, event.seconds)),
    ]
    return {"completed": share, "facts": "  ".join([*facts, count(event.n_rows, "row")])}


@contextlib.contextmanager
def _byte_bar(verb: str) -> Iterator[ByteProgress]:
    """A bar of bytes."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(verb, total=None)

        def show(done: int, total: int | None, rows: int | None = None) -> None:
            bar.update(task, completed=done, total=total)

        yield show
