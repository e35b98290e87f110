"""A training under way: where it begins, its checkpoints, and what happens before every read of the data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.errors import DamageError, Interrupted
from ooc_svm.model.model import Model
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import Solver
from ooc_svm.system import signals
from ooc_svm.training.checkpoint import Checkpoints, saved_item
from ooc_svm.training.keys import families
from ooc_svm.training.memory_plan import Budget
from ooc_svm.training.prepare import Preparation
from ooc_svm.training.progress import Recorder
from ooc_svm.training.result import make_model
from ooc_svm.training.warm_start import warm_start

HINT_PASSES = 1  # Reads after which a solver may give a hint
CHECKPOINT_SHARE = 0.1  # Share of the time that writing checkpoints may take


@dataclass(slots=True)
class Run:
    """One training: its parts, and what happens before every read of the data."""

    prepared: Preparation
    models: Sequence[ModelSpec]
    solvers: Sequence[Solver]
    scale: Float64Array | None
    budget: Budget
    engine: Engine
    recorder: Recorder
    checkpoints: Checkpoints | None
    _last_saved: float = field(default_factory=time.monotonic)
    _save_seconds: float = 0.0

    def start(self) -> None:
        """Begin where another run ended, if that is asked for."""
        if self.prepared.options.warm_start is not None:
            self.recorder.note(f"starting from {warm_start(self)}")

    def restore(self) -> None:
        """Go on from the newest checkpoint."""
        assert self.checkpoints is not None
        counters = self.engine.counters
        states = [solver.state for solver in self.solvers]
        metadata = self.checkpoints.restore(states, self.engine.vectors, self._saved_vectors())
        fits = saved_item(metadata, "cut", list) == list(self.budget.plan.cut)
        if not fits or not all(solver.is_sound() for solver in self.solvers):
            raise DamageError(
                f"the checkpoint in {self.checkpoints.folder} does not fit the data; start the run again"
            )
        scaling_passes = counters.passes
        counters.passes = saved_item(metadata, "passes", int)
        counters.bytes_read = saved_item(metadata, "bytes_read", int)
        self.recorder.resume(saved_item(metadata, "history", list), saved_item(metadata, "seconds", float))
        for solver in self.solvers:
            if solver.certificate.passes:
                solver.certificate.reopen(solver.stopping)
        self.recorder.note(
            f"going on after {counters.passes} passes"
            + (f" ({scaling_passes} more for the scale of the columns)" if scaling_passes else "")
        )

    def run(self) -> Model:
        """Drive the solvers to their end."""
        # What overflows is reported by the certificate. The master problem's products are made by one
        # thread: a linear algebra library adds in another order on another number of processors.
        with np.errstate(over="ignore", invalid="ignore"), threadpool_limits(1, user_api="blas"):
            self.engine.run(self.solvers, self.between)
        self.recorder.passed()
        if self.checkpoints is not None:
            self.save()
        return self.model()

    def between(self) -> None:
        """Before every read of the data: history, checkpoint, interruption, a hint."""
        self.recorder.passed()
        passes, signal = self.engine.counters.passes, signals.stop_requested()
        if self.checkpoints is not None and passes:
            since = time.monotonic() - self._last_saved
            if signal is not None or self._save_seconds <= CHECKPOINT_SHARE * since:
                self.save()
        if signal is not None:
            kept = (
                "there is no checkpoint to go on from; ask for one with --checkpoint"
                if self.checkpoints is None
                else f"go on with --resume from {self.checkpoints.folder}"
            )
            whole = all(solver.certificate.passes for solver in self.solvers)
            model = self.model() if whole else None
            raise Interrupted(signal, f"interrupted after {passes} passes; {kept}", model)
        hint = self.solvers[0].hint() if passes == HINT_PASSES else None
        if hint is not None:
            self.recorder.note(hint)

    def save(self) -> None:
        """Write a checkpoint."""
        assert self.checkpoints is not None
        options, data, counters = self.prepared.options, self.prepared.data, self.engine.counters
        began = time.monotonic()
        metadata = {
            "C": [spec.C for spec in self.models],
            "family": families(data.id(), options)[0],
            "parameters": asdict(self.budget.plan.parameters),
            "cut": list(self.budget.plan.cut),
            "seconds": self.recorder.seconds,
            "history": self.recorder.history,
            "passes": counters.passes,
            "bytes_read": counters.bytes_read,
        }
        states = [solver.state for solver in self.solvers]
        self.checkpoints.save(counters.passes, states, self.engine.vectors, self._saved_vectors(), metadata)
        self._last_saved = time.monotonic()
        self._save_seconds = self._last_saved - began

    def model(self) -> Model:
        """The model of the best points so far."""
        return make_model(self)

    def _saved_vectors(self) -> list[str]:
        """Names of the row vectors that solvers go on from; the others are made again from the data."""
        return [name for solver in self.solvers for name in solver.vectors]
