"""What a user should know of a run whose result is, or may be, worse than it could be.

A hint is data in the report, a short code and a sentence: conditions on the labels are known before the first
read, those on the columns after it, and what the model is worth at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ooc_svm.catalog import PROBLEMS
from ooc_svm.data.classes import LabelProblem, label_name
from ooc_svm.errors import HintWarning, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.stopping import CERTIFIED, STALLED
from ooc_svm.store import Store
from ooc_svm.store.label_summary import runs_by_chance
from ooc_svm.training.data import Data
from ooc_svm.training.quality import Quality

IMBALANCE = 9.0  # Rows of the larger class for each of the smaller one from which on a hint is given
# Standard deviation of the values, over C or over epsilon, outside of which these have another unit.
MOST_DEVIATION, LEAST_DEVIATION = 30.0, 1.0
# Share of what separates a constant prediction from a perfect one below which a model is of no use, and from
# which on no bias is missed.
USELESS, GOOD = 0.1, 0.8
# The measure of a quality that tells how good a model is.
_MEASURES = ("balanced-accuracy", "micro-f1", "r2", "auc", "swapped-pairs")
MOST_NAMED = 5  # Labels that a hint names
ROUNDING = 0.5  # Share of a gap from which on rounding is what keeps it from being certified
DENSE = 0.2  # Share of values that are stored from which on rows fill their side of the origin


@dataclass(frozen=True, slots=True)
class Hint:
    """A sentence, with a code for programs."""

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """As in the report."""
        return {"code": self.code, "message": self.message}


def of_labels(
    data: Data, options: TrainOptions, models: Sequence[ModelSpec], sizes: Sequence[int], resident: float
) -> Iterator[Hint]:
    """What the labels tell before the first read; ``sizes``: rows of each class."""
    if options.class_weight is None:
        yield from _of_imbalance(data, models, sizes)
    yield from _of_single_rows(data, models, sizes)
    yield from _of_others(data, models)
    if isinstance(data.source, Store) and resident < 1.0 and data.source.labels.counts is not None:
        runs = data.source.label_runs
        by_chance = runs_by_chance(data.source.labels.counts, runs)  # Rows held out are in the runs too
        if by_chance is not None:
            yield Hint(
                "sorted-labels",
                f"the labels come in {runs} runs where random order has about {by_chance:.0f}: training on "
                f"sorted rows needs more passes; convert with {parameter('shuffle', 0)}",
            )


def _of_imbalance(data: Data, models: Sequence[ModelSpec], sizes: Sequence[int]) -> Iterator[Hint]:
    """Whether a class has far fewer rows than another one, or a label than rows are without it."""
    classes, weight = models[0].classes, parameter("class_weight", "balanced")
    if isinstance(classes, LabelProblem):
        n_rows = data.source.n_rows - data.n_held_out
        small = min(sizes[int(spec.classes.positive)] for spec in models if spec.classes is not None)
        if n_rows - small >= IMBALANCE * small:
            yield Hint(
                "imbalance",
                f"the label of fewest rows has {small} of {n_rows}: {weight} gives rows with a label and "
                "without it the same weight in its model, and finds more of those with it",
            )
    elif classes is not None:
        several = classes.negative is None  # each class against all others
        sides = [sum(n for n, own in zip(sizes, classes.sign, strict=True) if own == s) for s in (1.0, -1.0)]
        counts = sizes if several else sides
        large, small = max(counts), min(counts)
        if large >= IMBALANCE * small:
            more = "" if several else f", and {parameter('problem', 'roc-area')} learns to rank them"
            yield Hint(
                "imbalance",
                f"the largest class has {large} rows and the smallest {small}: {weight} gives both sides of "
                f"a model the same weight{more}",
            )


def _of_single_rows(data: Data, models: Sequence[ModelSpec], sizes: Sequence[int]) -> Iterator[Hint]:
    """The classes or labels that only one row has: a model learns that row by heart."""
    found, names = {}, data.labels.names
    for each in (spec.classes for spec in models if spec.classes is not None):
        if isinstance(each, LabelProblem):
            rows = {each.positive: sizes[int(each.positive)]}
        else:
            inside, outside = (
                [n for n, own in zip(sizes, each.sign, strict=True) if own == s] for s in (1.0, -1.0)
            )
            rows = {each.positive: sum(inside)}
            if each.negative is not None and len(outside) == 1:
                rows[each.negative] = outside[0]
        for label in (label for label, n in rows.items() if n == 1):
            found[label] = label_name(label, names)
    if found:
        listed = ", ".join(f"{name:.80}" for name in list(found.values())[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        yield Hint(
            "single-row",
            f"only one row has the label {listed}{more}: nothing tells how well such a label is predicted; "
            "more rows would, or leave the label out",
        )


def _of_others(data: Data, models: Sequence[ModelSpec]) -> Iterator[Hint]:
    """Whether the label that stands for all others in predictions is that of one of them as well."""
    classes, counts, names = models[0].classes, data.labels.counts, data.labels.names
    if classes is None or classes.negative is None or counts is None:
        return
    labels = sorted(label for label, count in counts.items() if count)
    others = [
        label_name(label, names) for label, sign in zip(labels, classes.sign, strict=True) if sign < 0.0
    ]
    text = label_name(classes.negative, names)
    if len(others) > 1 and text in others:
        yield Hint(
            "label-of-others",
            f"{text} in predictions stands for all labels that are not {parameter('positive')}, and one of "
            f"them is {text}: a prediction does not tell which it is",
        )


def of_columns(
    found: Mapping[str, str], data: Data, quality: Sequence[Quality | None] | None
) -> Iterator[Hint]:
    """What a solver has found out about the columns; a bias is missed only where that shows in the end."""
    dense = data.source.n_nonzeros >= DENSE * data.source.n_rows * data.source.n_features
    missed = quality is not None and dense and best_skill(quality) < GOOD
    for code, message in found.items():
        if code != "no-bias" or missed:
            yield Hint(code, message)


def of_rounding(certificates: Sequence[Certificate], tol: float) -> Iterator[Hint]:
    """Whether rounding keeps a gap from being certified, however long the run."""
    open_ones = [each for each in certificates if each.stop_reason != CERTIFIED and each.gap > 0.0]
    stalled = [each.relative_gap for each in open_ones if each.stop_reason == STALLED]
    if any(each.rounding / each.gap >= ROUNDING for each in open_ones):
        yield Hint(
            "rounding",
            f"what rounding may have changed is most of the gap, and no more passes certify {tol:g}: "
            "the values are too large or differ too much for double precision (try "
            f"{parameter('scale', 'maxabs')}, columns less their mean, or a smaller {parameter('C')}), or "
            f"the gap asked for is too small ({parameter('tol')})",
        )
    elif stalled:
        yield Hint(
            "no-progress",
            f"P and D no longer moved at a relative gap of {max(stalled):.2g}: the "
            "values are too large, differ too much or are too far from 0 for double precision; try "
            f"{parameter('scale', 'maxabs')}, columns less their mean, or a smaller {parameter('C')}",
        )


def of_quality(options: TrainOptions, quality: Sequence[Quality | None], certified: bool) -> Iterator[Hint]:
    """What the quality on the rows of training tells."""
    known = [each for each in quality if each is not None]
    if not known:
        return
    yield from _of_unit(options, known[0].deviation)
    if certified and best_skill(known) < USELESS:
        name, value = _main_measure(max(known, key=_skill))
        yield Hint(
            "useless-model",
            f"the gap is certified, and yet the model is hardly better than a constant ({name} {value:.3g} "
            f"on the rows of training): {_advice(options, known[0].deviation)}",
        )


def _advice(options: TrainOptions, deviation: float) -> str:
    """Why a model is of no use, and what may help."""
    if deviation == 0.0:
        return "all rows have the same value, so that there is nothing to learn; check the labels"
    names = [f"a larger {parameter('nu')}"] if options.by_nu and options.resolved_nu < 1.0 else []
    others = {"C": "C" not in PROBLEMS[options.problem].without, "bias": not options.by_nu, "scale": True}
    *first, last = [name for name, is_free in others.items() if is_free]
    names.append(f"another {', '.join(first)} or {last}" if first else f"another {last}")
    return f"this is what minimises the objective; choose {', '.join(names)}, or features that say more"


def _of_unit(options: TrainOptions, deviation: float) -> Iterator[Hint]:
    """Whether C and epsilon have the unit of the values to learn; equal values have none."""
    linear = options.resolved_loss == "epsilon-insensitive"
    if linear and deviation > MOST_DEVIATION * max(options.C):
        yield Hint(
            "unit-of-values",
            f"the values have a standard deviation of {deviation:.3g}, and C = {max(options.C):g} limits "
            f"what a row can add to the weights: divide the values by the first, or try "
            f"{parameter('C', float(f'{deviation:.0e}'))}",
        )
    elif 0.0 < deviation < LEAST_DEVIATION * options.resolved_epsilon:
        yield Hint(
            "unit-of-values",
            f"the values have a standard deviation of {deviation:.3g}, and errors of up to "
            f"{options.resolved_epsilon:g} cost nothing: try "
            f"{parameter('epsilon', float(f'{0.1 * deviation:.0e}'))}",
        )


def best_skill(quality: Sequence[Quality | None]) -> float:
    """The skill of the best model, 0 where none is known."""
    return max((_skill(each) for each in quality if each is not None), default=0.0)


def _skill(quality: Quality) -> float:
    """From 0, no better than a constant, to 1."""
    name, value = _main_measure(quality)
    if name == "balanced-accuracy":
        chance = 1.0 / max(len(quality.models), 2)
        return (value - chance) / (1.0 - chance)
    return {"auc": 2.0 * value - 1.0, "swapped-pairs": 1.0 - 2.0 * value}.get(name, value)


def _main_measure(quality: Quality) -> tuple[str, float]:
    name = next(name for name in _MEASURES if name in quality.whole)
    return name, quality.whole[name]


def to_json(hints: Sequence[Hint]) -> list[dict[str, Any]]:
    """As in the report, each code once: as it was given first."""
    return list({hint.code: hint.to_json() for hint in reversed(hints)}.values())[::-1]


def warn(report: Mapping[str, Any], stacklevel: int) -> None:
    """Give the hints of a report as warnings."""
    for hint in report["hints"]:
        warnings.warn(hint["message"], HintWarning, stacklevel=stacklevel + 1)
