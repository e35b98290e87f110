"""Regression: labels are values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.source import Source
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.request import Pairs
from ooc_svm.problems.base import LabelSet, ModelSpec, fill_weights, held_ranges, read_finite_labels
from ooc_svm.problems.targets import TARGET, ValueTargets
from ooc_svm.rowvectors.collection import RowVectors


@dataclass(frozen=True, slots=True)
class Regression:
    """A score is a value; see `ooc_svm.problems.base.Problem`."""

    target_bytes: ClassVar[int] = 8
    rowwise: ClassVar[bool] = True
    in_queries: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False

    def check(self, labels: LabelSet, options: TrainOptions) -> Float64Array:
        """Any labels will do."""
        return np.empty(0)

    def n_models(self, labels: LabelSet, options: TrainOptions) -> int:
        """One for each C."""
        return len(options.C)

    def n_ranks(self, labels: LabelSet) -> int:
        """Rows are not compared."""
        return 0

    def sample_labels(self, n_rows: int) -> Float64Array:
        """Labels of made-up rows: a few values."""
        labels: Float64Array = np.where(np.arange(n_rows) % 3 == 0, 1.0, 0.0)
        return labels

    def fill(
        self,
        vectors: RowVectors,
        source: Source,
        labels: LabelSet,
        options: TrainOptions,
        sorting_bytes: int,
    ) -> None:
        """Make the row vectors of values and weights."""
        values = vectors.create(TARGET, np.float64)
        for start, stop in held_ranges(vectors, source):
            found = read_finite_labels(source, start, stop, "value to learn")
            values.write(vectors.place(start), found)
        fill_weights(vectors, source)

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """A model for each C."""
        return [ModelSpec(C, loss, ValueTargets(TARGET, row_weight)) for C in options.C]


REGRESSION = Regression()
