"""Batches of models: those that are trained at the same time, where not all of them fit the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ooc_svm.problems.base import ModelSpec


@dataclass(frozen=True, slots=True)
class Batch:
    """Models of some values of C; or of one value, some of the classes or some of the folds."""

    number: int  # From 0
    total: int  # Batches of the run
    costs: tuple[float, ...]
    classes: tuple[int, int]  # Of the models of each C the first one, and the one after the last
    n_classes: int  # Models of each C in the whole run
    n_final: int  # Models of the whole run, those of folds left out
    # Which rows its models are trained on, a range: 0 is for all rows, k for those without fold k - 1; and
    # how many of these there are in the whole run
    fold_parts: tuple[int, int] = (0, 1)
    n_fold_parts: int = 1

    @property
    def n_models(self) -> int:
        """Its own models, those of folds left out."""
        return 0 if self.fold_parts[0] else len(self.costs) * (self.classes[1] - self.classes[0])

    @property
    def n_trained(self) -> int:
        """Its own models, those of folds as well."""
        first, last = self.fold_parts
        return (last - first) * len(self.costs) * (self.classes[1] - self.classes[0])

    @property
    def splits_classes(self) -> bool:
        """Whether models that predict together are in several batches."""
        return self.classes != (0, self.n_classes)

    @property
    def folds(self) -> range:
        """The folds that it has models without."""
        first, last = self.fold_parts
        return range(max(first - 1, 0), last - 1)

    @property
    def name(self) -> str:
        """As messages and folders name it."""
        return f"batch {self.number + 1} of {self.total}"

    @property
    def content(self) -> str:
        """How many of the models of the run it has, for people."""
        return f"{self.n_trained} of {self.n_final * self.n_fold_parts} models"

    def finished_bytes(self, n_features: int) -> int:
        """Bytes of the weights of all models, which are kept from batch to batch."""
        return 8 * n_features * self.n_final

    def of(self, models: Sequence[ModelSpec]) -> list[ModelSpec]:
        """The models of this batch, of those of the run."""
        first, last = self.classes
        found: list[ModelSpec] = []
        for (_, fold, C), own in groupby(models, key=lambda spec: (spec.variant, spec.fold, spec.C)):
            part = 0 if fold is None else 1 + fold
            if C in self.costs and self.fold_parts[0] <= part < self.fold_parts[1]:
                found += list(own)[first:last]
        return found


def batches_of(
    costs: Sequence[float], n_classes: int, total: int, n_folds: int, *, divides_folds: bool
) -> list[Batch]:
    """At least so many batches, as equal as can be: of whole values of C where there are as many.

    ``n_classes``: models of each value of C.
    ``n_folds``: that there are models without, in addition to those of all rows.
    ``divides_folds``: whether these are divided where there are more batches than values, not the classes.
    """
    n_final, n_fold_parts = len(costs) * n_classes, 1 + n_folds
    all_classes, all_parts = (0, n_classes), (0, n_fold_parts)
    of_each = -(-total // len(costs))
    if total <= len(costs):
        found = [
            (tuple(costs[first:last]), all_classes, all_parts) for first, last in _cut(len(costs), total)
        ]
    elif divides_folds:
        found = [
            ((C,), all_classes, own) for C in costs for own in _cut(n_fold_parts, min(of_each, n_fold_parts))
        ]
    else:
        found = [((C,), own, all_parts) for C in costs for own in _cut(n_classes, min(of_each, n_classes))]
    return [
        Batch(number, len(found), values, classes, n_classes, n_final, fold_parts, n_fold_parts)
        for number, (values, classes, fold_parts) in enumerate(found)
    ]


def _cut(count: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of nearly equal length, the longer ones first."""
    return list(pairwise(-(-count * part // parts) for part in range(parts + 1)))
