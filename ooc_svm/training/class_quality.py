"""How well models of classes predict rows, from scores that their solvers have kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import BinaryProblem
from ooc_svm.evaluation.metrics import BinaryCounts, ClassCounts, accuracy, balanced_accuracy
from ooc_svm.passes.base import Request, RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.base import ModelSpec
from ooc_svm.problems.targets import CODES
from ooc_svm.solvers.base import KeptScores
from ooc_svm.training.counted_rows import ROWS_HELD_OUT, RowChoice

# Scores that are looked at together.
_SCORES = 1 << 16


@dataclass(frozen=True, slots=True)
class ClassHits:
    """Rule on row vectors: rows that models predict right.

    Sums (6, models): of positive rows and of negative rows, those that are predicted right, and all; then of
    rows that have the largest score there, those of this class, and all. Model k is that of class k, if
    there are several.
    """

    scores: Sequence[KeptScores]
    signs: Float64Array  # shape (models, classes)
    rows: RowChoice
    writes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, models: Sequence[ModelSpec], scores: Sequence[KeptScores], rows: RowChoice) -> ClassHits:
        """The rule for models of classes."""
        signs = [spec.classes.sign for spec in models if isinstance(spec.classes, BinaryProblem)]
        return cls(scores, np.array(signs), rows)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.rows.reads(CODES, self.scores)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (6, len(self.scores))

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        n_models = len(self.scores)
        length = max(_SCORES // n_models, 1)
        for first in range(0, len(rows.vectors[CODES]), length):
            vectors = self.rows.of(rows.vectors, slice(first, first + length))
            own = vectors[CODES]
            scores = np.array([each.of(vectors) for each in self.scores])
            upper, positive = scores > 0.0, self.signs[:, own] > 0.0
            for k, which in enumerate((upper & positive, ~upper & ~positive, positive, ~positive)):
                sums[k] += np.count_nonzero(which, axis=1)
            choices = scores.argmax(axis=0)
            hits = choices[choices == own]
            sums[4] += np.bincount(hits, minlength=n_models)[:n_models]
            sums[5] += np.bincount(choices, minlength=n_models)


def class_counts(sums: Float64Array) -> BinaryCounts | ClassCounts:
    """The counts of `ClassHits`: of two sides if it is of one model, else of the classes."""
    right, left, positives, negatives, hits, predicted = sums.astype(np.int64)
    if len(hits) == 1:
        two = BinaryCounts()
        two.true_positives, two.true_negatives = int(right[0]), int(left[0])
        two.false_negatives, two.false_positives = int((positives - right)[0]), int((negatives - left)[0])
        return two
    classes = ClassCounts(len(hits))
    classes.hits, classes.predicted, classes.actual = hits, predicted, positives
    return classes


def class_measures(counts: BinaryCounts | ClassCounts) -> dict[str, float]:
    """The metrics that are measured in training."""
    return {"accuracy": accuracy(counts), "balanced-accuracy": balanced_accuracy(counts)}


@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """Share of the rows held out that are predicted right, and its mean over the classes."""

    models: Sequence[ModelSpec]

    def requests(self, scores: Sequence[KeptScores]) -> list[Request]:
        """What is asked of the row vectors."""
        return [RowPass(ClassHits.of(self.models, scores, ROWS_HELD_OUT), scores[0].rows)]

    def values(self, answers: Sequence[Any]) -> dict[str, float]:
        """The metrics from the answers."""
        return class_measures(class_counts(answers[0]))
