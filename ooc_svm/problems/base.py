"""What a problem is: from labels to the models to be trained, and the row vectors that they need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import BinaryProblem, LabelProblem, label_text
from ooc_svm.data.label_sets import LabelSets
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.problems.targets import HELD_OUT, WEIGHT, RowTargets
from ooc_svm.rowvectors.collection import RowVectors

if TYPE_CHECKING:
    from ooc_svm.data.folds import HeldOut
    from ooc_svm.pairs.request import Pairs


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The labels of the data."""

    counts: Mapping[float, int] | None  # Rows of each label; None where there are too many labels
    names: tuple[str, ...] | None  # What the labels 0, 1, ... stand for
    has_qid: bool
    # Rows of each label that are trained on, where some are held out and ``counts`` has them too
    trained: Mapping[float, int] | None = None
    # Where rows have sets of labels, which the counts are of; ``names`` are then those of the labels
    sets: LabelSets | None = None

    def of_sets(self, source: str) -> LabelSet:
        """The same where the names are those of sets of labels; DamageError, with their `source`, if not."""
        sets = LabelSets.of(self.names or (), source)
        return replace(self, names=sets.labels, sets=sets)

    def positive(self, options: TrainOptions) -> tuple[float, ...]:
        """The labels that are named as positive; InputError, UsageError if there is no such label."""
        return tuple(dict.fromkeys(self._label(label) for label in options.positive))

    def class_weight(self, options: TrainOptions) -> str | dict[float, float] | None:
        """Class weights by label.

        InputError, UsageError if there is no such label, or it is given two weights.
        """
        weight = options.class_weight
        if not isinstance(weight, Mapping):
            return weight
        labels = [self._label(label) for label in weight]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise UsageError(f"the label {label_text(twice)} is given two weights; give one")
        return dict(zip(labels, weight.values(), strict=True))

    def _label(self, label: float | str) -> float:
        if self.sets is not None and not isinstance(label, str):
            label = label_text(label)
        if isinstance(label, str) and self.names is not None:
            if label not in self.names:
                known = ", ".join(map(repr, self.names[:20]))
                raise InputError(f"no row has the label {label[:80]!r}; the labels are {known}")
            return float(self.names.index(label))
        try:
            return float(label)
        except ValueError as error:
            raise UsageError(
                f"the label {label!r:.80} is not a number, and the labels have no names"
            ) from error


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model to be trained."""

    C: float
    loss: Any  # See `ooc_svm.losses.functions`
    targets: RowTargets | None = None  # Of the rows; None where losses are of pairs
    pairs: Pairs | None = None
    # What a positive and a negative score stand for; None for values and ranks
    classes: BinaryProblem | LabelProblem | None = None
    # Row vector that marks the rows that cost nothing, for which the scores at the best point are wanted
    held_out: str | None = None
    nu: float | None = None  # Of the nu problems
    mean: bool = False  # Whether C is of the mean of the losses
    fold: int | None = None  # Of several, the one that is held out: ``held_out`` has its number then
    variant: int = 0  # Of a grid, the point whose numbers it has


class Problem(ABC):
    """One problem; its attributes are constants of the class or of the instance.

    Attributes
    ----------
    target_bytes : int
        Bytes a row of the row vectors that are made from the labels.
    rowwise : bool
        Whether those of a row follow from the row alone, so that every worker can make its own.
    has_classes : bool
        Whether a model has classes, and its scores labels.
    in_queries : bool
        Whether rows are compared inside queries only.
    """

    target_bytes: int
    rowwise: bool = True
    has_classes: bool = False
    in_queries: bool = False

    def of_labels(self, labels: LabelSet) -> Problem:
        """The same problem for such labels.

        InputError where rows have sets of labels, if the problem is for one label a row.
        """
        if labels.sets is not None:
            raise InputError(
                f"rows have sets of labels, which are for {parameter('problem', 'svc')} or nu-svc; other "
                "problems need one label a row"
            )
        return self

    def class_rows(self, labels: LabelSet, classes: Sequence[float]) -> list[int]:
        """The rows of each of some classes."""
        counts = labels.counts or {}
        return [counts.get(label, 0) for label in classes]

    def held_out(self, options: TrainOptions) -> HeldOut | None:
        """Which rows are held out of training, if any are."""
        share = options.held_out_share
        if share is None:
            return None
        from ooc_svm.data.folds import HeldOut

        return HeldOut(share, options.seed, self.in_queries)

    def fill_weights(self, vectors: RowVectors, source: Source, options: TrainOptions) -> None:
        """Make the row vector of the weights of the rows held, if rows have weights or are held out.

        InputError for a negative weight.
        """
        held_out = self.held_out(options)
        if not source.has_weight and held_out is None:
            return
        vector = vectors.create(WEIGHT, np.float64)
        marks = None if held_out is None else vectors.create(HELD_OUT, np.uint8)
        for start, stop in held_ranges(vectors, source):
            weights = source.read_weights(start, stop) if source.has_weight else np.ones(stop - start)
            if weights.min(initial=0.0) < 0.0:
                row = start + int(np.argmin(weights))
                raise InputError(
                    f"row {row} has the negative weight {weights.min()} in obs/weight; weights are 0 or more"
                )
            if held_out is not None and marks is not None:
                mask = held_out.mask(source, start, stop)
                weights = np.where(mask, 0.0, weights)
                marks.write(vectors.place(start), mask.astype(np.uint8))
            vector.write(vectors.place(start), weights)

    @abstractmethod
    def check(self, labels: LabelSet, options: TrainOptions) -> Float64Array:
        """The labels that rows are told apart by, ascending; empty where labels are values or too many.

        Raises
        ------
        InputError, UsageError
            The problem cannot be solved with such labels.
        """

    def fold_classes(self, labels: LabelSet, options: TrainOptions) -> list[list[float]]:
        """The labels of each class, of which every fold needs rows; empty where there are no classes."""
        return []

    def fold_pairs(
        self, vectors: RowVectors, pairs: Pairs | None, n_folds: int, sorting_bytes: int
    ) -> list[Pairs | None]:
        """For each fold the pairs of rows outside of it, from the row vector of folds."""
        return [None] * n_folds

    def n_models(self, labels: LabelSet, options: TrainOptions) -> int:
        """How many models there will be: one for each C."""
        return len(options.C)

    def n_ranks(self, labels: LabelSet) -> int:
        """Ranks of the rows where all rows are compared; 0 where they are not, or there are too many."""
        return 0

    def sample_labels(self, n_rows: int) -> Float64Array:
        """Labels of made-up rows with which all functions are used that others use: for compiling them."""
        labels: Float64Array = np.where(np.arange(n_rows) % 3 == 0, 1.0, 0.0)
        return labels

    @abstractmethod
    def fill(
        self, vectors: RowVectors, source: Source, labels: LabelSet, options: TrainOptions, sorting_bytes: int
    ) -> Pairs | None:
        """Make the row vectors of the rows held, block by block; the pairs, where losses are of pairs.

        Raises
        ------
        InputError
            A label or a weight that cannot be.
        """

    @abstractmethod
    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """The models, for each C one after another."""


def held_ranges(vectors: RowVectors, source: Source) -> Sequence[tuple[int, int]]:
    """The rows that the vectors are of, block by block."""
    return [held for span in source.blocks for held in vectors.held_within(span.start, span.stop)]


def read_finite_labels(source: Source, start: int, stop: int, what: str) -> Float64Array:
    """The labels of some rows; InputError if a row has none; ``what`` names what it lacks."""
    found = source.read_labels(start, stop)
    if not np.isfinite(found).all():
        row = start + int(np.argmin(np.isfinite(found)))
        raise InputError(f"row {row} has no {what}, {found[row - start]}; remove such rows")
    return found
