"""Regression: labels are values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import LabelSet, ModelSpec, Problem, held_ranges, read_finite_labels
from ooc_svm.problems.targets import TARGET, ValueTargets
from ooc_svm.rowvectors.collection import RowVectors

if TYPE_CHECKING:
    from ooc_svm.pairs.request import Pairs


class Regression(Problem):
    """A score is a value; see `ooc_svm.problems.base.Problem`."""

    target_bytes = 8
    name = "svr"

    def check(self, labels: LabelSet, options: TrainOptions) -> Float64Array:
        """Any numbers will do; InputError for labels with names."""
        if labels.names is not None:
            raise InputError(
                f"{parameter('problem', self.name)} needs values to learn, and these labels are names; "
                f"choose a column of numbers as {parameter('label')}"
            )
        return np.empty(0)

    def fill(
        self, vectors: RowVectors, source: Source, labels: LabelSet, options: TrainOptions, sorting_bytes: int
    ) -> None:
        """Make the row vectors of values and weights."""
        values = vectors.create(TARGET, np.float64)
        for start, stop in held_ranges(vectors, source):
            found = read_finite_labels(source, start, stop, "value to learn")
            values.write(vectors.place(start), found)
        self.fill_weights(vectors, source, options)

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """A model for each C."""
        return [ModelSpec(C, loss, ValueTargets(TARGET, row_weight)) for C in options.C]


REGRESSION = Regression()
