"""How well a model predicts the rows that it was trained on, from scores that its solver has kept.

No read of the data: passes over row vectors, whose sums have the same bits on every engine. The measures have
the names of `ooc_svm.evaluate`, and its meaning: all rows count the same, whatever their weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.data.classes import LabelProblem
from ooc_svm.engine.base import Engine
from ooc_svm.evaluation.metrics import BinaryCounts, ClassCounts, macro_f1
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import KeptScores
from ooc_svm.training.class_quality import ClassHits, class_counts, class_measures
from ooc_svm.training.counted_rows import RowChoice
from ooc_svm.training.value_quality import Values

if TYPE_CHECKING:
    from ooc_svm.evaluation.label_metrics import LabelCounts
    from ooc_svm.pairs.request import Pairs

Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Quality:
    """Of the models of one value of C together, and of each alone; of values the spread of the targets."""

    whole: Measures
    models: Sequence[Measures]
    rows: Sequence[int | None]  # Of the class of each model
    deviation: float = math.nan  # Standard deviation of the targets


def measure(
    engine: Engine, models: Sequence[ModelSpec], kept: Sequence[KeptScores | None]
) -> list[Quality | None]:
    """The quality for each value of C; None where the scores of a model are not known."""
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
            found.append(_of_classes(engine, specs, scores))
        else:
            found.append(_of_values(engine, specs[0], scores[0]))
    return found


def _trained(spec: ModelSpec) -> RowChoice:
    """The rows that are not held out."""
    return RowChoice(spec.held_out)


def _of_classes(engine: Engine, specs: Sequence[ModelSpec], scores: Sequence[KeptScores]) -> Quality:
    rule = ClassHits.of(specs, scores, _trained(specs[0]))
    counts = class_counts(engine.stream([RowPass(rule, scores[0].rows)])[0])
    whole = class_measures(counts)
    if isinstance(counts, BinaryCounts):
        return Quality(whole, [whole], [counts.positives])
    return _of_each({**whole, "macro-f1": macro_f1(counts)}, counts)


def _of_labels(engine: Engine, specs: Sequence[ModelSpec], scores: Sequence[KeptScores]) -> Quality:
    from ooc_svm.training.label_quality import LabelHits, label_counts, label_measures

    rule = LabelHits.of(specs, scores, _trained(specs[0]))
    counts = label_counts(engine.stream([RowPass(rule, scores[0].rows)])[0])
    return _of_each(label_measures(counts), counts)


def _of_each(whole: Measures, counts: ClassCounts | LabelCounts) -> Quality:
    """The quality with the measures of each class or label."""
    columns = counts.hits.tolist(), counts.predicted.tolist(), counts.actual.tolist()
    own = [_own_measures(*each) for each in zip(*columns, strict=True)]
    return Quality(whole, own, counts.actual.tolist())


def _own_measures(hits: int, predicted: int, actual: int) -> Measures:
    return {
        "precision": hits / predicted if predicted else 0.0,
        "recall": hits / actual,
        "f1": 2 * hits / (actual + predicted),
    }


def _of_values(engine: Engine, spec: ModelSpec, scores: KeptScores) -> Quality | None:
    values = Values.of(engine, scores.rows, _trained(spec))
    sums = engine.stream([values.errors(scores)])[0]
    if not np.isfinite(sums).all():
        return None
    found = values.measures(sums)
    whole = {"r2": found["r2"], "mae": found["mae"]}
    return Quality(whole, [whole], [None], values.deviation(sums))


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
