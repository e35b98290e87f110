"""How well models of the labels of sets predict rows, from scores that their solvers have kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import LabelProblem
from ooc_svm.data.label_sets import has_label
from ooc_svm.evaluation.label_metrics import LabelCounts, micro_f1
from ooc_svm.evaluation.metrics import macro_f1
from ooc_svm.passes.base import Request, RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.base import ModelSpec
from ooc_svm.problems.targets import CODES
from ooc_svm.solvers.base import KeptScores
from ooc_svm.training.counted_rows import ROWS_HELD_OUT, RowChoice


@dataclass(frozen=True, slots=True)
class LabelHits:
    """Rule on row vectors: rows that have a label, that it is predicted for, and both; sums (3, models)."""

    scores: Sequence[KeptScores]
    members: Sequence[npt.NDArray[np.uint8]]  # Of the label of each model
    rows: RowChoice
    writes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, models: Sequence[ModelSpec], scores: Sequence[KeptScores], rows: RowChoice) -> LabelHits:
        """The rule for models of labels."""
        members = [spec.classes.members for spec in models if isinstance(spec.classes, LabelProblem)]
        return cls(scores, members, rows)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.rows.reads(CODES, self.scores)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (3, len(self.scores))

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        vectors = self.rows.of(rows.vectors)
        sets = vectors[CODES]
        for k, (scores, members) in enumerate(zip(self.scores, self.members, strict=True)):
            positive, upper = has_label(members, sets), scores.of(vectors) > 0.0
            sums[:, k] += (
                np.count_nonzero(positive),
                np.count_nonzero(upper),
                np.count_nonzero(positive & upper),
            )


def label_counts(sums: Float64Array) -> LabelCounts:
    """The counts of `LabelHits`."""
    counts = LabelCounts(sums.shape[1])
    counts.actual, counts.predicted, counts.hits = sums.astype(np.int64)
    return counts


def label_measures(counts: LabelCounts) -> dict[str, float]:
    """The metrics that are measured in training."""
    return {"micro-f1": micro_f1(counts), "macro-f1": macro_f1(counts)}


@dataclass(frozen=True, slots=True)
class LabelMetrics:
    """F1 of all labels of the rows held out together, and its mean over the labels."""

    models: Sequence[ModelSpec]

    def requests(self, scores: Sequence[KeptScores]) -> list[Request]:
        """What is asked of the row vectors."""
        return [RowPass(LabelHits.of(self.models, scores, ROWS_HELD_OUT), scores[0].rows)]

    def values(self, answers: Sequence[Any]) -> dict[str, float]:
        """The metrics from the answers."""
        return label_measures(label_counts(answers[0]))
