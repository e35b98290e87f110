"""Classification: a model for each class against the others, or for one set of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import OTHERS, BinaryProblem, binary_problems, label_text
from ooc_svm.data.source import Source
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import LabelSet, ModelSpec, Problem, held_ranges, read_finite_labels
from ooc_svm.problems.multilabel import MULTILABEL
from ooc_svm.problems.targets import CODES, ClassTargets
from ooc_svm.rowvectors.collection import RowVectors

if TYPE_CHECKING:
    from ooc_svm.pairs.request import Pairs


class Classification(Problem):
    """Labels are classes; see `ooc_svm.problems.base.Problem`."""

    target_bytes = 2
    has_classes = True
    of_sets: Problem = MULTILABEL  # The problem where rows have sets of labels

    def of_labels(self, labels: LabelSet) -> Problem:
        """Of one label a row, or of sets of labels."""
        return self if labels.sets is None else self.of_sets

    def check(self, labels: LabelSet, options: TrainOptions) -> Float64Array:
        """The classes, ascending."""
        return self._binary(labels, options)[0]

    def fold_classes(self, labels: LabelSet, options: TrainOptions) -> list[list[float]]:
        """Each class, or the negative and the positive labels."""
        classes, problems = self._binary(labels, options)
        if len(problems) > 1:
            return [[label] for label in classes.tolist()]
        positive = problems[0].sign > 0
        return [classes[~positive].tolist(), classes[positive].tolist()]

    def n_models(self, labels: LabelSet, options: TrainOptions) -> int:
        """One for each C and each class, or for two classes."""
        return len(options.C) * len(self._binary(labels, options)[1])

    def fill(
        self, vectors: RowVectors, source: Source, labels: LabelSet, options: TrainOptions, sorting_bytes: int
    ) -> None:
        """Make the row vectors of class numbers and weights."""
        classes, codes = self.check(labels, options), vectors.create(CODES, np.uint16)
        for start, stop in held_ranges(vectors, source):
            found = read_finite_labels(source, start, stop, "value to learn")
            codes.write(vectors.place(start), np.searchsorted(classes, found).astype(np.uint16))
        self.fill_weights(vectors, source, options)

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """For each C, a model for each class against the others."""
        _, binary = self._binary(labels, options)
        return [
            ModelSpec(C, loss, ClassTargets(each.sign, each.weight, CODES, row_weight), None, each)
            for C in options.C
            for each in binary
        ]

    def _binary(self, labels: LabelSet, options: TrainOptions) -> tuple[Float64Array, list[BinaryProblem]]:
        weight = labels.class_weight(options)
        names, text = labels.names, label_text(OTHERS)
        named_others: float | None = OTHERS
        if names is not None:
            named_others = float(names.index(text)) if text in names else None
        positive = labels.positive(options)
        return binary_problems(labels.counts, positive, weight, labels.trained, named_others, labels.names)


CLASSIFICATION = Classification()
