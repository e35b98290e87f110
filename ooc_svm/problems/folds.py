"""Models that one fold of the rows is held out of: the same models, those rows at no cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ooc_svm.data.source import Source
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import LabelSet, ModelSpec, Problem
from ooc_svm.problems.targets import FOLDS, FoldTargets
from ooc_svm.rowvectors.collection import RowVectors

if TYPE_CHECKING:
    from ooc_svm.data.folds import Folds
    from ooc_svm.pairs.request import Pairs

Fill = Callable[[RowVectors, Source], Any]
FoldPairs: TypeAlias = "Sequence[Pairs | None]"
"""The pairs of all rows, then those outside of each fold; None where losses are not of pairs."""


def filled_with_folds(fill: Fill, folds: Folds) -> Fill:
    """What makes the row vector of folds in addition to others."""
    return partial(_fill, fill, folds)


def _fill(fill: Fill, folds: Folds, vectors: RowVectors, source: Source) -> Any:
    fill_folds(vectors, source, folds)
    return fill(vectors, source)


def fill_folds(vectors: RowVectors, source: Source, folds: Folds) -> None:
    """Make the row vector of the folds of the rows held."""
    vector = vectors.create(FOLDS, np.uint8)
    for start, numbers in folds.numbers(source):
        for first, last in vectors.held_within(start, start + len(numbers)):
            vector.write(vectors.place(first), numbers[first - start : last - start])


def fold_models(
    problem: Problem,
    folds: Folds,
    labels: LabelSet,
    options: TrainOptions,
    loss: Any,
    row_weight: str | None,
    pairs: Sequence[Pairs | None],
) -> list[ModelSpec]:
    """The models of each fold, one fold after another; class weights follow from the rows trained on.

    ``pairs``: of each fold, see `Problem.fold_pairs`; they have weights that are 0 in the fold.
    """
    found = []
    for fold, own in enumerate(pairs):
        trained = folds.rows_without(fold) if len(folds.labels) else None
        for spec in problem.models(replace(labels, trained=trained), options, loss, row_weight, own):
            targets = None if spec.targets is None else FoldTargets(spec.targets, fold)
            found.append(replace(spec, targets=targets, held_out=FOLDS, fold=fold))
    return found
