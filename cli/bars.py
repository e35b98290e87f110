"""Progress bars; imported where standard error is a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ooc_svm.cli.format import bound, seconds, short
from ooc_svm.cli.progress import GapShare, Speed
from ooc_svm.system.memory import format_size

if TYPE_CHECKING:
    from ooc_svm.training.progress import Progress as TrainEvent

# Below this share of the way the time that is left is a guess not worth showing.
LEAST_SHARE = 0.05


def train_text(event: TrainEvent, share: float, bytes_a_second: float) -> str:
    """What stands right of the bar: gap, reading speed, time used and left, models that still run."""
    parts = [f"gap {bound(event.relative_gap)} (target {short(event.tol)})"]
    if bytes_a_second > 0:
        parts.append(f"{format_size(bytes_a_second)}/s")
    parts.append(seconds(event.seconds))
    if LEAST_SHARE <= share < 1:
        parts.append(f"about {seconds(event.seconds * (1 - share) / share)} left")
    if event.models_running > 1:
        parts.append(f"{event.models_running} models")
    return "  ".join(parts)


@contextlib.contextmanager
def train_bar() -> Iterator[Callable[[TrainEvent], None]]:
    """A bar that fills as the gap falls, on a log scale; gives what a training run is to call."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[facts]}"))
    gap_share, speed = GapShare(), Speed()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=1.0, facts="")

        def show(event: TrainEvent) -> None:
            if event.kind == "note":
                bar.console.print(event.message, markup=False, highlight=False)
                return
            share = gap_share(event.relative_gap, event.tol)
            within = event.kind == "block"
            percent = f"{100 * event.blocks_done // max(event.n_blocks, 1)} %" if within else ""
            bar.update(
                task,
                description=f"pass {event.passes + within:<3d} {percent:>5}",
                completed=share,
                facts=train_text(event, share, speed(event.bytes_read, event.seconds)),
            )

        yield show


@contextlib.contextmanager
def byte_bar(verb: str) -> Iterator[Callable[..., None]]:
    """A bar of bytes; gives what a reader is to call with bytes done, bytes to do or None, and rows."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(verb, total=None)

        def show(done: int, total: int | None, rows: int | None = None) -> None:
            bar.update(task, completed=done, total=total)

        yield show
