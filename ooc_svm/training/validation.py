"""The quality of a run's best points on rows that it is not trained on, measured between two reads.

The scores of rows held out are made in the reads of training anyway, so nothing is read for them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ooc_svm.data.classes import LabelProblem
from ooc_svm.engine.base import Engine
from ooc_svm.errors import InputError, MemoryBudgetError, parameter
from ooc_svm.pairs.request import PairRows, SwappedPairs
from ooc_svm.passes.base import Request
from ooc_svm.problems.base import ModelSpec
from ooc_svm.problems.targets import HELD_OUT
from ooc_svm.solvers.base import KeptScores, Solver
from ooc_svm.training.class_quality import ClassMetrics
from ooc_svm.training.label_quality import LabelMetrics
from ooc_svm.training.memory_plan import validation_bytes
from ooc_svm.training.quality import Measures
from ooc_svm.training.validation_store import ValidationStore
from ooc_svm.training.value_quality import ValueMetrics

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


class Measuring(ABC):
    """Measures the models of each C; those whose best points have not moved since are not measured again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._models, self._solvers = run.final
        size = len(self._models) // len({spec.C for spec in self._models})
        self._groups = [slice(first, first + size) for first in range(0, len(self._models), size)]
        self._known: list[tuple[tuple[float, ...], Measures]] = [((), {})] * len(self._groups)

    def measure(self) -> list[Measures] | None:
        """``C`` and the metrics of the models of each C; None before their first read is complete."""
        certificates = [solver.certificate for solver in self._solvers]
        if not all(certificate.passes for certificate in certificates):
            return None
        for number, group in enumerate(self._groups):
            reached = tuple(certificate.primal for certificate in certificates[group])
            if reached != self._known[number][0]:
                C = self._models[group][0].C
                self._known[number] = reached, {"C": C, **self._measured(group, C)}
        return [dict(quality) for _, quality in self._known]

    @property
    @abstractmethod
    def rows_id(self) -> str:
        """What tells the rows from others that a run may be measured on."""

    @property
    def left_out(self) -> dict[str, Any]:
        """Part of the report: rows that are left out of the measures, where there are any."""
        return {}

    @abstractmethod
    def _measured(self, group: slice, C: float) -> Measures:
        """The metrics of the models of one C; the first of them decides between the values of C."""


class HeldOutRows(Measuring):
    """On rows that are held out of training.

    InputError if they cannot be compared.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._metrics = _metrics(self._models[self._groups[0]], self._solvers[0], run.engine)

    @property
    def rows_id(self) -> str:
        """See `Measuring`; runs that hold other rows out are other runs."""
        return "held out"

    def _measured(self, group: slice, C: float) -> Measures:
        scores = [kept for solver in self._solvers[group] if (kept := solver.kept_scores())]
        return self._metrics.values(self._run.engine.stream(self._metrics.requests(scores)))


class OtherStore(Measuring):
    """On the rows of another store, which is read for it.

    What `ooc_svm.evaluate` finds wrong with the store is found wrong before the first pass.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._store = ValidationStore(run)
        self._model: Any = None  # Of all values of C, while these are measured
        self._measured(self._groups[0], self._models[0].C)
        self._model = None
        self._store.tell_left_out()
        self._told = False

    @property
    def rows_id(self) -> str:
        """See `Measuring`."""
        return self._store.id

    @property
    def left_out(self) -> dict[str, Any]:
        """See `Measuring`."""
        return self._store.left_out

    def measure(self) -> list[Measures] | None:
        """See `Measuring`; None as well where the models take too much memory by now."""
        try:
            return super().measure()
        except MemoryBudgetError as error:
            if not self._told:
                self._run.recorder.note(
                    f"the quality on {self._run.prepared.options.validation} is left out: {error}"
                )
            self._told = True
            return None
        finally:
            self._model = None

    def _measured(self, group: slice, C: float) -> Measures:
        spare = self._run.budget.left
        if self._model is None:
            self._model = self._run.model(room=spare + validation_bytes(self._run.prepared.options))
        return self._store.measure(self._model, None, C, spare)


def measuring(run: Run) -> Measuring:
    """What measures the quality of a run on other rows after each pass."""
    kind = OtherStore if run.prepared.options.held_out_share is None else HeldOutRows
    return kind(run)


class _Metrics(Protocol):
    """How the models of one C are measured: what is asked of the row vectors, and what follows from it."""

    def requests(self, scores: Sequence[KeptScores]) -> list[Request]: ...

    def values(self, answers: Sequence[Any]) -> Measures: ...


def _metrics(models: Sequence[ModelSpec], solver: Solver, engine: Engine) -> _Metrics:
    """The metrics of a problem; the first of each is the one that decides between values of C."""
    spec = models[0]
    if spec.pairs is not None:
        metrics = _PairMetrics(spec.pairs.rows)
        # At any scores there is a share, if there are pairs.
        ranks = KeptScores(spec.pairs.rows.ranks, spec.pairs.rows.ranks)
        if math.isnan(metrics.values(engine.stream(metrics.requests([ranks])))["swapped-pairs"]):
            raise InputError(
                "no two of the rows held out can be compared and have different labels; give a larger "
                f"{parameter('validation')}"
            )
        return metrics
    if isinstance(spec.classes, LabelProblem):
        return LabelMetrics(models)
    if spec.classes is not None:
        return ClassMetrics(models)
    kept = solver.kept_scores()
    return ValueMetrics.of(engine, None if kept is None else kept.rows)


@dataclass(frozen=True, slots=True)
class _PairMetrics:
    """Share of the pairs of rows held out that are in the wrong order, equal scores counting half."""

    rows: PairRows

    def requests(self, scores: Sequence[KeptScores]) -> list[Request]:
        (own,) = scores
        return [SwappedPairs(self.rows, own.start, own.end, own.t, HELD_OUT)]

    def values(self, answers: Sequence[Any]) -> Measures:
        return {"swapped-pairs": answers[0]}
