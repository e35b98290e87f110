"""How well a model predicts the rows that it was trained on, from scores that its solver has kept.

No read of the data: passes over row vectors, whose sums have the same bits on every engine. The measures have
the names of `ooc_svm.evaluate`, and its meaning: all rows count the same, whatever their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import BinaryProblem, LabelProblem
from ooc_svm.engine.base import Engine
from ooc_svm.evaluation import metrics
from ooc_svm.passes.base import RowSlice
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.base import ModelSpec
from ooc_svm.problems.targets import CODES, TARGET
from ooc_svm.solvers.base import KeptScores

if TYPE_CHECKING:
    from ooc_svm.pairs.request import Pairs

Measures = dict[str, float]

# Scores that are looked at together.
_SCORES = 1 << 16


@dataclass(frozen=True, slots=True)
class Quality:
    """Of the models of one value of C together, and of each alone; of values the spread of the targets."""

    whole: Measures
    models: Sequence[Measures]
    rows: Sequence[int | None]  # Of the class of each model
    deviation: float = math.nan  # Standard deviation of the targets


def measure(
    engine: Engine, models: Sequence[ModelSpec], kept: Sequence[KeptScores | None], sizes: Sequence[int]
) -> list[Quality | None]:
    """The quality for each value of C; None where the scores of a model are not known.

    ``sizes``: rows of each class; rows held out count nowhere.
    """
    found: list[Quality | None] = []
    for _, group in groupby(zip(models, kept, strict=True), key=lambda each: each[0].C):
        specs, scores = zip(*group, strict=True)
        if any(each is None for each in scores):
            found.append(None)
        elif specs[0].pairs is not None:
            found.append(_of_pairs(engine, specs[0], specs[0].pairs, scores[0]))
        elif isinstance(specs[0].classes, LabelProblem):
            found.append(_of_labels(engine, specs, scores))
        elif specs[0].classes is not None:
            found.append(_of_classes(engine, specs, scores, np.array(sizes)))
        else:
            found.append(_of_values(engine, specs[0].held_out, scores[0]))
    return found


class _TrainingRows(Mapping[str, Any]):
    """Slices of row vectors without the rows held out, if a vector marks some."""

    def __init__(self, vectors: Mapping[str, Any], held_out: str | None, part: slice = slice(None)) -> None:
        self._vectors, self._part = vectors, part
        self._kept: Any = slice(None) if held_out is None else vectors[held_out][part] == 0

    def __getitem__(self, name: str) -> Any:
        return self._vectors[name][self._part][self._kept]

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)


def _marks(held_out: str | None) -> tuple[str, ...]:
    return () if held_out is None else (held_out,)


@dataclass(frozen=True, slots=True)
class ClassHits:
    """Rule on row vectors: rows that models predict right.

    Sums (4, models): of positive rows and of negative rows, of the class with the largest score where that is
    the class of the row, and rows that have the largest score there. Model k is that of class k, if there are
    several.
    """

    scores: Sequence[KeptScores]
    signs: Float64Array  # shape (models, classes)
    held_out: str | None = None  # Row vector that marks rows that do not count
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (CODES, *_marks(self.held_out), *(name for each in self.scores for name in each.reads))

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (4, len(self.scores))

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        n_models = len(self.scores)
        length = max(_SCORES // n_models, 1)
        for first in range(0, len(rows.vectors[CODES]), length):
            vectors = _TrainingRows(rows.vectors, self.held_out, slice(first, first + length))
            own = vectors[CODES]
            scores = np.array([each.of(vectors) for each in self.scores])
            upper, positive = scores > 0.0, self.signs[:, own] > 0.0
            sums[0] += np.count_nonzero(upper & positive, axis=1)
            sums[1] += np.count_nonzero(~upper & ~positive, axis=1)
            choices = scores.argmax(axis=0)
            hits = choices[choices == own]
            sums[2] += np.bincount(hits, minlength=n_models)[:n_models]
            sums[3] += np.bincount(choices, minlength=n_models)


def _of_classes(
    engine: Engine, specs: Sequence[ModelSpec], scores: Sequence[KeptScores], sizes: Any
) -> Quality:
    binary = [spec.classes for spec in specs if isinstance(spec.classes, BinaryProblem)]
    signs = np.array([each.sign for each in binary])
    rule = ClassHits(scores, signs, specs[0].held_out)
    hits = engine.stream([RowPass(rule, scores[0].rows)])[0].astype(np.int64)
    positives, n_rows = ((signs > 0) @ sizes).astype(np.int64), int(sizes.sum())
    if len(specs) == 1:
        counts = metrics.BinaryCounts()
        counts.true_positives, counts.true_negatives = int(hits[0, 0]), int(hits[1, 0])
        counts.false_negatives = int(positives[0] - hits[0, 0])
        counts.false_positives = int(n_rows - positives[0] - hits[1, 0])
        whole = {
            "accuracy": metrics.accuracy(counts),
            "balanced-accuracy": metrics.balanced_accuracy(counts),
        }
        return Quality(whole, [whole], [int(positives[0])])
    classes = metrics.ClassCounts(len(specs))
    classes.hits, classes.predicted, classes.actual = hits[2], hits[3], sizes.astype(np.int64)
    whole = {
        "accuracy": metrics.accuracy(classes),
        "balanced-accuracy": metrics.balanced_accuracy(classes),
        "macro-f1": metrics.macro_f1(classes),
    }
    columns = hits[2].tolist(), hits[3].tolist(), sizes.tolist()
    own = [_class_measures(*each) for each in zip(*columns, strict=True)]
    return Quality(whole, own, sizes.tolist())


def _of_labels(engine: Engine, specs: Sequence[ModelSpec], scores: Sequence[KeptScores]) -> Quality:
    from ooc_svm.training.label_quality import LabelHits, label_counts, label_measures

    rule = LabelHits.of(specs, scores, specs[0].held_out)
    counts = label_counts(engine.stream([RowPass(rule, scores[0].rows)])[0])
    whole = label_measures(counts)
    columns = counts.hits.tolist(), counts.predicted.tolist(), counts.actual.tolist()
    own = [_class_measures(*each) for each in zip(*columns, strict=True)]
    return Quality(whole, own, counts.actual.tolist())


def _class_measures(hits: int, predicted: int, actual: int) -> Measures:
    return {
        "precision": hits / predicted if predicted else 0.0,
        "recall": hits / actual,
        "f1": 2 * hits / (actual + predicted),
    }


@dataclass(frozen=True, slots=True)
class TargetSum:
    """Rule on row vectors: sum of the values less an origin, number of rows."""

    origin: float = 0.0
    held_out: str | None = None
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (2,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (TARGET, *_marks(self.held_out))

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        values = _TrainingRows(rows.vectors, self.held_out)[TARGET]
        sums += (values - self.origin).sum(), len(values)


@dataclass(frozen=True, slots=True)
class ValueErrors:
    """Rule on row vectors: sums of squared errors, of errors, of squared deviations from the mean value."""

    scores: KeptScores
    mean: float
    held_out: str | None = None
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (3,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (TARGET, *_marks(self.held_out), *self.scores.reads)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        vectors = _TrainingRows(rows.vectors, self.held_out)
        values = vectors[TARGET]
        errors, deviations = np.abs(values - self.scores.of(vectors)), values - self.mean
        sums += (errors * errors).sum(), errors.sum(), (deviations * deviations).sum()


def mean_of(sums_from: Callable[[float], Float64Array]) -> tuple[float, float]:
    """The mean of values, and their number.

    ``sums_from``: the sum of the values less an origin, and their number. A second sum takes the rounding of
    the first from the mean: equal values then deviate from it by nothing.
    """
    mean = n_rows = 0.0
    for _ in range(2):
        total, n_rows = sums_from(mean).tolist()
        mean += total / n_rows
    return mean, n_rows


def _of_values(engine: Engine, held_out: str | None, scores: KeptScores) -> Quality | None:
    mean, n_rows = mean_of(
        lambda origin: engine.stream([RowPass(TargetSum(origin, held_out), scores.rows)])[0]
    )
    rule = ValueErrors(scores, mean, held_out)
    squares, errors, deviations = engine.stream([RowPass(rule, scores.rows)])[0].tolist()
    if not (math.isfinite(squares) and math.isfinite(deviations)):
        return None
    share = (1.0 if squares else 0.0) if deviations == 0.0 else squares / deviations
    whole = {"r2": 1.0 - share, "mae": errors / n_rows}
    return Quality(whole, [whole], [None], math.sqrt(deviations / n_rows))


def _of_pairs(engine: Engine, spec: ModelSpec, pairs: Pairs, scores: KeptScores) -> Quality:
    from ooc_svm.pairs.request import SwappedPairs

    request = SwappedPairs(pairs.rows, scores.start, scores.end, scores.t, spec.held_out, mark=0)
    swapped: float = engine.stream([request])[0]
    whole = {"swapped-pairs": swapped}
    if pairs.rows.n_ranks == 2 and pairs.rows.query_starts is None:
        whole = {"auc": 1.0 - swapped, **whole}
    return Quality(whole, [whole], [None])


def to_json(models: Sequence[ModelSpec], found: Sequence[Quality | None]) -> list[Mapping[str, Any]]:
    """The quality for each value of C, where it is known."""
    costs = dict.fromkeys(spec.C for spec in models)
    return [{"C": C} | each.whole for C, each in zip(costs, found, strict=True) if each is not None]
