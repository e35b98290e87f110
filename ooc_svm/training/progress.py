"""What a run tells while it goes on, and its report at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ooc_svm.engine.base import Engine
from ooc_svm.solvers.certificate import Certificate

BLOCK_INTERVAL = 0.2  # Least time between two reports of blocks, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One report of a running training.

    Attributes
    ----------
    kind : {"block", "pass", "note"}
        A part of a pass is done, a pass is done, or there is something to say.
    passes, bytes_read : int
        Reads of the data done, and bytes fetched.
    blocks_done, n_blocks : int
        Of the pass under way.
    primal, dual, relative_gap : float or None
        Of the model that is furthest from its certificate; None before the first pass.
    tol : float
        The relative gap wanted.
    seconds : float
        Since the run began, earlier parts of a resumed run included.
    models_running : int
    message : str
        For "note".
    """

    kind: Literal["block", "pass", "note"]
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


def seconds_text(seconds: float) -> str:
    """A time for people: ``0.21 s``, ``12 min``, ``3.4 h``."""
    for unit, factor in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


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
        self.history: list[dict[str, Any]] = []
        if progress is not None:
            engine.on_block, engine.on_note = self._block, self.note

    @property
    def seconds(self) -> float:
        """Time used so far."""
        return time.monotonic() - self._began

    def resume(self, history: list[dict[str, Any]], seconds: float) -> None:
        """Go on from the history of an earlier part of the run."""
        self.history = history
        self._began = time.monotonic() - seconds

    def passed(self) -> None:
        """Note that a pass is done."""
        worst, passes = self._worst(), self._engine.counters.passes
        if worst is None or (self.history and self.history[-1]["pass"] >= passes):
            return
        self.history.append(
            {
                "pass": passes,
                "seconds": self.seconds,
                "bytes_read": self._engine.counters.bytes_read,
                "primal": worst.primal,
                "dual": worst.dual,
                "relative_gap": worst.relative_gap,
            }
        )
        self._tell("pass")

    def note(self, message: str) -> None:
        """Say something."""
        self._tell("note", message=message)

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

    def _tell(
        self, kind: Literal["block", "pass", "note"], done: int = 0, n_blocks: int = 0, message: str = ""
    ) -> None:
        if self._progress is None:
            return
        worst = self._worst()
        counters = self._engine.counters
        self._progress(
            Progress(
                kind=kind,
                passes=counters.passes,
                bytes_read=counters.bytes_read,
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
        )
