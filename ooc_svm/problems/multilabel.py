"""Classification where a row has any number of labels: a model for each label, against rows without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import LabelProblem
from ooc_svm.data.label_sets import LabelSets
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, parameter, shown
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import LabelSet, ModelSpec, Problem, held_ranges, read_finite_labels
from ooc_svm.problems.targets import CODES, LabelTargets
from ooc_svm.rowvectors.collection import RowVectors

if TYPE_CHECKING:
    from ooc_svm.pairs.request import Pairs

# Labels that a message names.
_NAMED = 10


class MultiLabel(Problem):
    """Labels are numbers of sets of labels; see `ooc_svm.problems.base.Problem`."""

    target_bytes = 4
    has_classes = True

    def of_labels(self, labels: LabelSet) -> Problem:
        """The problem itself: it is for sets of labels."""
        return self

    def check(self, labels: LabelSet, options: TrainOptions) -> Float64Array:
        """The numbers of all labels; InputError if a label that is wanted has no rows, or all."""
        sets, counts = _sets(labels), labels.counts or {}
        rows, n_rows = sets.rows(counts), sum(counts.values())
        if not sets.labels:
            raise InputError("no row has a label; training needs rows with a label, and rows without it")
        wanted = self._wanted(labels, options)
        if empty := [k for k in wanted if rows[k] == 0]:
            if options.held_out_share is not None:
                raise InputError(
                    f"{parameter('validation', options.held_out_share)} holds all rows of the label "
                    f"{_listed(sets, empty)} out; give a smaller share or another {parameter('seed')}"
                )
            raise InputError(
                f"no row has the label {_listed(sets, empty)}, of which nothing can be learned; leave it out "
                f"of the data, or name the labels to train as {parameter('positive')}"
            )
        if whole := [k for k in wanted if rows[k] == n_rows]:
            raise InputError(
                f"all rows have the label {_listed(sets, whole)}, of which nothing can be learned; leave it "
                f"out of the data, or name the labels to train as {parameter('positive')}"
            )
        return np.arange(len(sets.labels), dtype=np.float64)

    def class_rows(self, labels: LabelSet, classes: Sequence[float]) -> list[int]:
        """The rows with each label."""
        rows = _sets(labels).rows(labels.counts or {})
        return [int(rows[int(k)]) for k in classes]

    def fold_classes(self, labels: LabelSet, options: TrainOptions) -> list[list[float]]:
        """The sets by the label of fewest rows that each has: rows of rare labels are shared out evenly."""
        sets, counts = _sets(labels), labels.counts or {}
        rows = sets.rows(counts)
        rarest = np.full(len(sets.names), -1)
        for k in np.argsort(-rows, kind="stable").tolist():
            rarest[sets.sets_with(k)] = k
        order = np.argsort(rarest, kind="stable")
        bounds = np.flatnonzero(np.diff(rarest[order])) + 1
        return [part.astype(np.float64).tolist() for part in np.split(order, bounds)]

    def n_models(self, labels: LabelSet, options: TrainOptions) -> int:
        """One for each C and each label."""
        return len(options.C) * len(self._wanted(labels, options))

    def fill(
        self, vectors: RowVectors, source: Source, labels: LabelSet, options: TrainOptions, sorting_bytes: int
    ) -> None:
        """Make the row vectors of the numbers of sets, and of weights."""
        codes = vectors.create(CODES, np.int32)
        for start, stop in held_ranges(vectors, source):
            found = read_finite_labels(source, start, stop, "set of labels")
            codes.write(vectors.place(start), found.astype(np.int32))
        self.fill_weights(vectors, source, options)

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """For each C, a model for each label."""
        problems = self._problems(labels, options)
        return [
            ModelSpec(C, loss, LabelTargets(each.members, each.side_weight, CODES, row_weight), None, each)
            for C in options.C
            for each in problems
        ]

    def _wanted(self, labels: LabelSet, options: TrainOptions) -> list[int]:
        """The labels that models are trained for: those that are named as positive, or all."""
        named = {int(label) for label in labels.positive(options)}
        return sorted(named) or list(range(len(_sets(labels).labels)))

    def _problems(self, labels: LabelSet, options: TrainOptions) -> list[LabelProblem]:
        """The problem of each label.

        Weights "balanced" count the rows that are trained on; those by label are for rows that have it.
        """
        sets, weight = _sets(labels), labels.class_weight(options)
        trained = labels.trained or labels.counts or {}
        rows, n_rows = sets.rows(trained), sum(trained.values())
        found = []
        for k in self._wanted(labels, options):
            inside = int(rows[k])
            sides = (1.0, 1.0)
            if weight == "balanced":
                sides = (n_rows / (2 * (n_rows - inside)), n_rows / (2 * inside))
            elif isinstance(weight, Mapping):
                sides = (1.0, weight.get(float(k), 1.0))
            found.append(LabelProblem(float(k), sets.members[k], sides))
        return found


def _sets(labels: LabelSet) -> LabelSets:
    assert labels.sets is not None
    return labels.sets


def _listed(sets: LabelSets, labels: Sequence[int]) -> str:
    """Some labels for a message."""
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return ", ".join(shown(sets.labels[k]) for k in labels[:_NAMED]) + more


MULTILABEL = MultiLabel()
