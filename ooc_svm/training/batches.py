"""Batches of models: those that are trained at the same time, where not all of them fit the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ooc_svm.problems.base import ModelSpec


@dataclass(frozen=True, slots=True)
class Batch:
    """Models of some values of C, or of one value and some of the classes."""

    number: int  # From 0
    total: int  # Batches of the run
    costs: tuple[float, ...]
    classes: tuple[int, int]  # Of the models of each C the first one, and the one after the last
    n_classes: int  # Models of each C in the whole run
    n_final: int  # Models of the whole run, those of folds left out

    @property
    def n_models(self) -> int:
        """Its own models, those of folds left out."""
        return len(self.costs) * (self.classes[1] - self.classes[0])

    @property
    def splits_classes(self) -> bool:
        """Whether models that predict together are in several batches."""
        return self.classes != (0, self.n_classes)

    @property
    def name(self) -> str:
        """As messages and folders name it."""
        return f"batch {self.number + 1} of {self.total}"

    def finished_bytes(self, n_features: int) -> int:
        """Bytes of the weights of all models, which are kept from batch to batch."""
        return 8 * n_features * self.n_final

    def of(self, models: Sequence[ModelSpec]) -> list[ModelSpec]:
        """The models of this batch, of those of the run."""
        first, last = self.classes
        found: list[ModelSpec] = []
        for (*_, C), own in groupby(models, key=lambda spec: (spec.variant, spec.fold, spec.C)):
            if C in self.costs:
                found += list(own)[first:last]
        return found


def batches_of(costs: Sequence[float], n_classes: int, total: int) -> list[Batch]:
    """At least so many batches, as equal as can be: of whole values of C where there are as many.

    ``n_classes``: models of each value of C.
    """
    n_final = len(costs) * n_classes
    if total <= len(costs):
        parts = [(tuple(costs[first:last]), (0, n_classes)) for first, last in _cut(len(costs), total)]
    else:
        classes = _cut(n_classes, min(-(-total // len(costs)), n_classes))
        parts = [((C,), own) for C in costs for own in classes]
    return [Batch(number, len(parts), *part, n_classes, n_final) for number, part in enumerate(parts)]


def _cut(count: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of nearly equal length, the longer ones first."""
    return list(pairwise(-(-count * part // parts) for part in range(parts + 1)))
