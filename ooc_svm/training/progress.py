"""What a run tells while it goes on, and its history."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ooc_svm.engine.base import Engine
from ooc_svm.evaluation.metrics import lower_is_better
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.system.amounts import format_read, format_seconds
from ooc_svm.system.memory import format_size

BLOCK_INTERVAL = 0.2  # Least time between two reports of blocks, in seconds

Kind = Literal["conversion", "block", "pass", "note", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One report of a running training.

    Attributes
    ----------
    kind : {"conversion", "block", "pass", "note", "hint"}
        A part of the text was read, a part of a pass is done, a pass is done, there is something to say, or
        something that the report will have in its ``hints``.
    passes, bytes_read : int
        Reads of the data done, and bytes fetched. The read for the scale of the columns comes before the
        first one and is not counted.
    blocks_done, n_blocks : int
        Of the pass under way.
    primal, dual, relative_gap : float or None
        Of the model that is furthest from its certificate; None before the first pass.
    tol : float
        The relative gap wanted.
    seconds : float
        Since the run began, earlier parts of a resumed run included.
    models_running : int
        0 while the columns are measured.
    message : str
        For "note" and "hint".
    validation : list of dict or None
        For "pass", where rows are held out: ``C`` and the metrics of the models of each C.
    n_bytes : int or None
        For "conversion", of which ``bytes_read`` were read: the size of the text, if it is known.
    n_rows : int
        For "conversion": rows read so far.
    """

    kind: Kind
    passes: int
    bytes_read: int
    blocks_done: int
    n_blocks: int
    primal: float | None
    dual: float | None
    relative_gap: float | None
    tol: float
    seconds: float
    models_running: int
    message: str = ""
    validation: list[dict[str, float]] | None = None
    n_bytes: int | None = None
    n_rows: int = 0

    def __str__(self) -> str:
        """One line: ``pass 12  gap 0.0034 (target 0.001)  P 577.8  D 575.9  1.2 GB read  8.1 s``."""
        if self.kind in ("note", "hint"):
            return f"hint: {self.message}" if self.kind == "hint" else self.message
        time = format_seconds(self.seconds)
        if self.kind == "conversion":
            return f"convert {format_size(self.bytes_read)}  {self.n_rows:,} rows  {time}"
        if self.kind == "block":
            return f"pass {self.passes + 1}  block {self.blocks_done:,} of {self.n_blocks:,}  {time}"
        numbers = ("gap", self.relative_gap), ("P", self.primal), ("D", self.dual)
        gap, *values = (f"{name} {'-' if number is None else f'{number:.6g}'}" for name, number in numbers)
        read = format_read(self.bytes_read)
        return "  ".join([f"pass {self.passes}", f"{gap} (target {self.tol:g})", *values, read, time])

    def history_row(self) -> dict[str, Any]:
        """What the history in the report has of a pass."""
        names = ("seconds", "bytes_read", "primal", "dual", "relative_gap")
        row = {"pass": self.passes} | {name: getattr(self, name) for name in names}
        return row if self.validation is None else row | {"validation": self.validation}


def best_quality(measured: Sequence[dict[str, float]]) -> tuple[float, str, float]:
    """Of the qualities for each C, the best by its first metric: its C, the metric and the value.

    Of equal ones it is that of the least C.
    """
    metric = next(name for name in measured[0] if name != "C")
    sign = 1.0 if lower_is_better(metric) else -1.0
    best = min(measured, key=lambda quality: (sign * quality[metric], quality["C"]))
    return best["C"], metric, best[metric]


class Recorder:
    """Keeps the history of a run and tells a callback.

    ``certificates``: gives the certificate of each solver as it is now.
    """

    def __init__(
        self,
        engine: Engine,
        certificates: Callable[[], Sequence[Certificate]],
        tol: float,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._engine = engine
        self._certificates = certificates
        self._tol = tol
        self._progress = progress
        self._began = time.monotonic()
        self._last_block = 0.0
        self._reads_before = 0  # Those that the solvers had no part in
        self.history: list[dict[str, Any]] = []
        self.measure: Callable[[], list[dict[str, float]] | None] = lambda: None
        """Gives the quality on rows held out, where there are any; called after each pass."""
        self.measured_on: str | None = None
        """What tells these rows from others; saved with the history."""
        if progress is not None:
            engine.on_block, engine.on_note = self._block, self.note

    @property
    def quality(self) -> list[dict[str, float]] | None:
        """The quality on rows held out after the last pass, where it was measured."""
        return self.history[-1].get("validation") if self.history else None

    @property
    def seconds(self) -> float:
        """Time used so far."""
        return time.monotonic() - self._began

    @property
    def passes(self) -> int:
        """Reads that the solvers have had a part in."""
        return self._engine.counters.passes - self._reads_before

    def begin(self) -> None:
        """The solvers begin now: reads so far were for others."""
        self._reads_before = self._engine.counters.passes

    def resume(self, history: list[dict[str, Any]], seconds: float, *, same_rows: bool) -> None:
        """Go on from the history of an earlier part of the run.

        ``same_rows``: whether its quality was measured on the rows that it is measured on now; else it is
        dropped.
        """
        # Version 0.1.0 counted the read for the scale of the columns.
        late = self._reads_before if history and history[0]["pass"] > self._reads_before > 0 else 0
        self.history = [row | {"pass": row["pass"] - late} for row in history]
        if not same_rows:
            for row in self.history:
                row.pop("validation", None)
        self._began = time.monotonic() - seconds

    def passed(self) -> None:
        """Note that a pass is done."""
        if self._worst() is None or (self.history and self.history[-1]["pass"] >= self.passes):
            return
        event = replace(self._event("pass"), validation=self.measure())
        self.history.append(event.history_row())
        if self._progress is not None:
            self._progress(event)

    def note(self, message: str) -> None:
        """Say something."""
        self._tell("note", message=message)

    def wrote(self, seconds: float) -> None:
        """Say that rows were written, and how long it took."""
        self.note(f"not all rows fit in memory: they were written in {format_seconds(seconds)}")

    def hint(self, message: str) -> None:
        """Give a hint, long before the report does."""
        self._tell("hint", message=message)

    def _worst(self) -> Certificate | None:
        """The certificate with the largest gap, of those that still run if any do; None before the first."""
        certificates = [c for c in self._certificates() if c.passes]
        running = [c for c in certificates if c.stop_reason is None] or certificates
        return max(running, key=lambda c: c.relative_gap) if running else None

    def _block(self, done: int, n_blocks: int) -> None:
        now = time.monotonic()
        if now - self._last_block >= BLOCK_INTERVAL:
            self._last_block = now
            self._tell("block", done, n_blocks)

    def _tell(self, kind: Kind, done: int = 0, n_blocks: int = 0, message: str = "") -> None:
        if self._progress is not None:
            self._progress(self._event(kind, done, n_blocks, message))

    def _event(self, kind: Kind, done: int = 0, n_blocks: int = 0, message: str = "") -> Progress:
        """What there is to report now."""
        worst = self._worst()
        return Progress(
            kind=kind,
            passes=self.passes,
            bytes_read=self._engine.counters.bytes_read,
            blocks_done=done,
            n_blocks=n_blocks or len(self._engine.source.blocks),
            primal=None if worst is None else worst.primal,
            dual=None if worst is None else worst.dual,
            relative_gap=None if worst is None else worst.relative_gap,
            tol=self._tol,
            seconds=self.seconds,
            models_running=sum(c.stop_reason is None for c in self._certificates()),
            message=message,
        )
