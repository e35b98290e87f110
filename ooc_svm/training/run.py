"""A training under way: where it begins, its checkpoints, and what happens before every read of the data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

from ooc_svm.engine.base import Engine
from ooc_svm.engine.base import Solver as Drivable
from ooc_svm.errors import DamageError, Interrupted, OocSvmError, parameter
from ooc_svm.model.model import Model
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import Context, Solver
from ooc_svm.system import signals
from ooc_svm.training import hints
from ooc_svm.training.checkpoint import Checkpoints, check_feature_names, saved_item
from ooc_svm.training.hints import Hint
from ooc_svm.training.keys import family_of
from ooc_svm.training.memory_plan import Budget
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Recorder
from ooc_svm.training.result import make_model
from ooc_svm.training.warm_start import warm_start

if TYPE_CHECKING:
    from ooc_svm.training.validation import Measuring

HINT_PASSES = 1  # Reads after which a solver may give a hint
CHECKPOINT_SHARE = 0.1  # Share of the time that writing checkpoints may take


@cache
def _libraries() -> ThreadpoolController:
    """The linear algebra libraries of this process; finding them takes milliseconds."""
    return ThreadpoolController()


def one_thread_a_product() -> AbstractContextManager[Any]:
    """Let products of matrices be made by one thread: a library adds in another order on more processors."""
    limited: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limited


@dataclass(slots=True)
class Run:
    """One training: its parts, and what happens before every read of the data."""

    prepared: Preparation
    models: Sequence[ModelSpec]
    solvers: Sequence[Solver]
    context: Context  # What the solvers share
    budget: Budget
    engine: Engine
    recorder: Recorder
    checkpoints: Checkpoints | None
    variant: int = 0  # The point of a grid whose models the model file is made of
    sizes: list[int] = field(init=False)  # Rows of each class
    hints: list[Hint] = field(init=False)  # Those given so far
    measuring: Measuring | None = None  # The quality on other rows, where it is asked for
    unpruned: list[dict[str, Any]] = field(default_factory=list)  # What the models were before pruning
    _last_saved: float = field(default_factory=time.monotonic)
    _save_seconds: float = 0.0

    def __post_init__(self) -> None:
        prepared = self.prepared
        self.sizes = prepared.problem.class_rows(prepared.data.labels, prepared.classes.tolist())
        resident = self.budget.plan.report.get("resident", 1.0)
        facts = self.prepared.data, self.prepared.options, self.final[0], self.sizes, resident
        self.hints = []
        self._give(hints.of_labels(*facts))
        if self.prepared.tuning is None and self.prepared.options.validation is not None:
            from ooc_svm.training.validation import measuring

            self.measuring = measured = measuring(self)
            self.recorder.measure, self.recorder.measured_on = measured.measure, measured.rows_id

    @property
    def final(self) -> tuple[list[ModelSpec], list[Solver]]:
        """The models that a model file is made of, with their solvers.

        In a batch of folds alone, those of its first one: what they are made into reaches no file.
        """
        return self.of_fold(self.final_fold)

    @property
    def final_fold(self) -> int | None:
        """The fold that is held out of these: none, or the first of a batch of folds alone."""
        batch = self.prepared.batch
        return None if batch is None or batch.fold_parts[0] == 0 else batch.folds[0]

    def of_fold(self, fold: int | None) -> tuple[list[ModelSpec], list[Solver]]:
        """The models that a fold is held out of, with their solvers."""
        numbers = self.numbers(fold)
        return [self.models[number] for number in numbers], [self.solvers[number] for number in numbers]

    def numbers(self, fold: int | None) -> list[int]:
        """Where they are among the models of the run."""
        wanted = self.variant, fold
        return [k for k, spec in enumerate(self.models) if (spec.variant, spec.fold) == wanted]

    def start(self) -> None:
        """Begin where another run ended, if that is asked for."""
        if self.prepared.options.warm_start is not None:
            self.recorder.note(f"starting from {warm_start(self)}")

    def restore(self) -> None:
        """Go on from the newest checkpoint."""
        assert self.checkpoints is not None
        counters = self.engine.counters
        states = [solver.state for solver in self.solvers]
        metadata = self.checkpoints.restore(states, self.engine.vectors, self._saved_vectors)
        check_feature_names(metadata, self.prepared.data.feature_names, self.checkpoints.folder)
        fits = saved_item(metadata, "cut", list) == list(self.budget.plan.cut)
        if not fits or not all(solver.is_sound() for solver in self.solvers):
            raise DamageError(
                f"the checkpoint in {self.checkpoints.folder} does not fit the data; start the run again"
            )
        counters.passes = saved_item(metadata, "passes", int)
        counters.bytes_read = saved_item(metadata, "bytes_read", int)
        history, seconds = saved_item(metadata, "history", list), saved_item(metadata, "seconds", float)
        # Another share of the rows makes another run, so that its key has told already.
        same = "validation" in metadata and metadata["validation"] == self.recorder.measured_on
        same |= self.prepared.options.held_out_share is not None
        self.recorder.resume(history, seconds, same_rows=same)
        for solver in self.solvers:
            if solver.certificate.passes:
                solver.distrust(str(self.checkpoints.folder))
                solver.certificate.reopen(solver.stopping)
        self.recorder.note(f"going on after {self.recorder.passes} passes")

    def run(self) -> None:
        """Drive the solvers to their end."""
        self.drive(self.solvers, self.between)
        self.recorder.passed()
        if self.checkpoints is not None:
            self.save()

    def drive(self, solvers: Sequence[Drivable], between: Callable[[], None]) -> None:
        """Drive solvers, or what they do after their end; ``between`` is called before each read."""
        # What overflows is reported by the certificate.
        with np.errstate(over="ignore", invalid="ignore"), one_thread_a_product():
            self.engine.run(solvers, between)

    def between(self) -> None:
        """Before every read of the data: history, checkpoint, interruption, a hint."""
        self.recorder.passed()
        passes, signal = self.engine.counters.passes, signals.stop_requested()
        if self.checkpoints is not None and passes:
            since = time.monotonic() - self._last_saved
            if signal is not None or self._save_seconds <= CHECKPOINT_SHARE * since:
                self.save()
        if signal is not None:
            raise self.interrupted(signal)
        if self.recorder.passes == HINT_PASSES:
            self._give(hints.of_columns(self.solvers[0].hints(), self.prepared.data, None))

    def _give(self, found: Iterable[Hint]) -> None:
        for hint in found:
            self.hints.append(hint)
            self.recorder.hint(hint.message)

    def heed_signals(self) -> None:
        """Raise Interrupted if a signal has asked the run to end."""
        if (signal := signals.stop_requested()) is not None:
            raise self.interrupted(signal)

    def interrupted(self, signal: int) -> Interrupted:
        """The error that ends the run; with the best points so far, unless values of C are compared."""
        kept = (
            f"there is no checkpoint to go on from; for one, give {parameter('checkpoint')} a folder"
            if self.checkpoints is None
            else f"go on with {parameter('resume', True)} from {self.prepared.options.checkpoint}"
        )
        whole = all(solver.certificate.passes for solver in self.solvers)
        model = None
        if whole and self.prepared.tuning is None:
            # Whatever keeps it from being made, the signal is what has ended the run.
            with suppress(OocSvmError):
                model = self.model()
        passes = self.prepared.passes_before + self.recorder.passes
        counted = "1 pass" if passes == 1 else f"{passes} passes"
        return Interrupted(signal, f"interrupted after {counted}; {kept}", model)

    def save(self) -> None:
        """Write a checkpoint."""
        assert self.checkpoints is not None
        data, counters = self.prepared.data, self.engine.counters
        began = time.monotonic()
        names = data.feature_names
        metadata = {
            "C": [spec.C for spec in self.models],
            "family": family_of(self.prepared).texts[0],
            "feature_names": None if names is None else names.digest(),
            "parameters": asdict(self.budget.plan.parameters),
            "cut": list(self.budget.plan.cut),
            "seconds": self.recorder.seconds,
            "history": self.recorder.history,
            "validation": self.recorder.measured_on,
            "passes": counters.passes,
            "bytes_read": counters.bytes_read,
        }
        states = [solver.state for solver in self.solvers]
        self.checkpoints.save(counters.passes, states, self.engine.vectors, self._saved_vectors(), metadata)
        self._last_saved = time.monotonic()
        self._save_seconds = self._last_saved - began

    def model(self, *, ended: bool = False, room: int | None = None) -> Model:
        """The model of the best points so far; its quality is measured where the run has ``ended``.

        ``room``: bytes for support vectors, where the run goes on.
        """
        return make_model(self, measured=ended, room=room)

    def _saved_vectors(self) -> list[str]:
        """Names of the row vectors that solvers go on from; the others are made again from the data."""
        return [name for solver in self.solvers for name in solver.vectors]
