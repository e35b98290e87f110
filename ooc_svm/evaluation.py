"""Streamed evaluation: how well a model predicts the labels of any data, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.classes import label_text
from ooc_svm.decision import Decision, class_names
from ooc_svm.errors import InputError, UsageError
from ooc_svm.growing import GrowingVector
from ooc_svm.metrics import (
    METRICS,
    BinaryCounts,
    ClassCounts,
    OrderCounts,
    ValueSums,
    multiclass_metrics,
)
from ooc_svm.model import Model
from ooc_svm.prediction import ScoreBlock, ScoreStream, decision_scores
from ooc_svm.rows import Float64Array, Int64Array
from ooc_svm.rowvectors import SLICE_ROWS
from ooc_svm.ties import sorted_groups

BINARY_METRICS = ("accuracy", "error", "precision", "recall", "f1", "auc", "prbep")
CLASS_METRICS = ("accuracy", "error", "macro-f1")
VALUE_METRICS = ("mse", "mae", "r2")

# Rows of values that are summed at a time.
_SLICE_ROWS = 1 << 13

# Labels of no class that a message names.
_NAMED_LABELS = 10


def evaluate(
    model: Model,
    data: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    labels: Any = None,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    C: float | None = None,
) -> dict[str, float]:
    """Score labelled data and compare the predictions with the labels.

    A row is positive if its label is one of those that the model was trained to take for positive. Where the
    data or the model have names for labels, it is the names that are compared.

    Parameters
    ----------
    model, data, labels, threads, memory, index_base, label, C
        See `ooc_svm.prediction.decision_scores`. Scores that do not fit the memory go to a scratch file.
    metrics : str or sequence of str, optional
        Of a binary classifier: accuracy, error, precision, recall, f1, auc, prbep; of one-vs-rest: accuracy,
        error, macro-f1; of a regressor: mse, mae, r2; see `ooc_svm.metrics`. By default all
        that have a value: auc has none where all rows are of one class, prbep none without positives.

    Returns
    -------
    dict of str to float
        In the order of `metrics`.

    Raises
    ------
    UsageError
        A metric that does not exist or does not fit the model, rows without labels, and what
        `decision_scores` raises.
    InputError
        Labels that the model was not trained on, no rows, a metric asked for that has no value for these
        rows, and what `decision_scores` raises.
    MemoryBudgetError, DamageError, StorageError
        See `decision_scores`.
    """
    names = metric_names(model, metrics)
    stream = decision_scores(
        model,
        data,
        labels=labels,
        threads=threads,
        memory=memory,
        index_base=index_base,
        label=label,
        C=C,
        spare_share=0.5,
    )
    with stream:
        if model.is_regressor:
            return _evaluate_values(stream, names)
        if model.is_one_vs_rest:
            return _evaluate_classes(stream, names)
        return _evaluate_binary(stream, model, names, optional=not metrics)


def metric_names(model: Model, metrics: str | Sequence[str] | None) -> tuple[str, ...]:
    """The metrics asked for, by default those that fit the model; UsageError for any that does not."""
    fitting: tuple[str, ...]
    if model.is_regressor:
        fitting, kind = VALUE_METRICS, "values"
    elif model.is_one_vs_rest:
        fitting, kind = CLASS_METRICS, "several classes"
    else:
        fitting, kind = BINARY_METRICS, "two classes"
    asked = (metrics,) if isinstance(metrics, str) else tuple(dict.fromkeys(metrics or fitting))
    for name in asked:
        if name not in fitting:
            exists = name in (*BINARY_METRICS, *CLASS_METRICS, *VALUE_METRICS)
            what = f"{name} is no metric for {kind}" if exists else f"there is no metric {name!r:.80}"
            raise UsageError(f"{what}; for this model choose from {', '.join(fitting)}")
    return asked


class LabelCodes:
    """Labels of rows to the numbers of the classes they are of.

    Parameters
    ----------
    texts : sequence of str
        The classes, as people write them.
    source : str
        Name of the data, for messages.
    names : sequence of str, or None
        What the labels of the data stand for, if they are places in these names.

    Attributes
    ----------
    n_unknown : int
        Rows so far whose label is of no class.
    """

    def __init__(self, texts: Sequence[str], source: str, names: Sequence[str] | None) -> None:
        self._classes = {text: code for code, text in enumerate(texts)}
        self._source, self._names = source, names
        self._labels: Float64Array = np.empty(0)  # seen and known, ascending, and their classes
        self._codes: Int64Array = np.empty(0, np.int64)
        self._unknown: dict[str, int] = {}
        self.n_unknown = 0

    def codes(self, labels: Float64Array) -> Int64Array:
        """Class numbers of labels, -1 where there is none."""
        codes = self._find(labels)
        new = codes < 0
        if new.any():
            distinct, n_rows = np.unique(labels[new], return_counts=True)
            self._learn(dict(zip(distinct.tolist(), n_rows.tolist(), strict=True)))
            codes = self._find(labels)
        return codes

    def check(self, counts: Mapping[float, int] | None = None) -> None:
        """Raise InputError for labels of no class, among those seen or given with their rows."""
        if counts is not None:
            self._learn(counts)
        if not self.n_unknown:
            return
        named = [f"{text!r:.80} ({rows} rows)" for text, rows in self._unknown.items()]
        more = self.n_unknown - sum(self._unknown.values())
        known = list(self._classes)[:_NAMED_LABELS]
        rest = len(self._classes) - len(known)
        raise InputError(
            f"{self._source}: {self.n_unknown} rows have labels that the model was not trained on: "
            f"{', '.join(named)}{f' and others ({more} rows)' if more else ''}; it knows "
            f"{', '.join(known)}{f' and {rest} more' if rest else ''}: leave such rows out or train on them"
        )

    def _find(self, labels: Float64Array) -> Int64Array:
        if not len(self._labels):
            return np.full(len(labels), -1)
        places = np.minimum(np.searchsorted(self._labels, labels), len(self._labels) - 1)
        return np.where(self._labels[places] == labels, self._codes[places], -1)

    def _learn(self, counts: Mapping[float, int]) -> None:
        """Look up labels not seen so far; what is of no class is counted."""
        found: dict[float, int] = dict(zip(self._labels.tolist(), self._codes.tolist(), strict=True))
        for label, n_rows in counts.items():
            text = label_text(label) if self._names is None else self._names[int(label)]
            if text in self._classes:
                found[label] = self._classes[text]
                continue
            self.n_unknown += n_rows
            if text in self._unknown or len(self._unknown) < _NAMED_LABELS:
                self._unknown[text] = self._unknown.get(text, 0) + n_rows
        self._labels = np.array(sorted(found))
        self._codes = np.array([found[label] for label in self._labels.tolist()], np.int64)


def _label_codes(stream: ScoreStream, texts: Sequence[str]) -> LabelCodes:
    """Codes for the labels of the data; wrong ones are refused now where they are known already."""
    codes = LabelCodes(texts, stream.rows.name, stream.rows.label_names)
    if stream.rows.label_counts is not None:
        codes.check({label: count for label, count in stream.rows.label_counts.items() if count})
    return codes


def _labels_of(block: ScoreBlock) -> Float64Array:
    if block.labels is None:
        raise UsageError("the rows to evaluate have no labels; give labels beside the matrix")
    return block.labels


def _row_vector(stream: ScoreStream, dtype: npt.DTypeLike, share: float) -> GrowingVector:
    """A vector for the rows of a stream that may use a share of the spare memory."""
    rows = SLICE_ROWS if stream.rows.n_rows is None else stream.rows.n_rows
    return GrowingVector(dtype, int(share * stream.spare_bytes), first_piece=rows)


def _evaluate_binary(
    stream: ScoreStream, model: Model, names: Sequence[str], *, optional: bool
) -> dict[str, float]:
    """Metrics of two classes; with `optional` those that have no value are left out."""
    targets = _binary_targets(stream.decision, model)
    codes = _label_codes(stream, list(targets))
    signs = np.array(list(targets.values()), np.int8)
    counts = BinaryCounts()
    in_order = any(METRICS[name].needs_order for name in names)
    with _row_vector(stream, np.float64, 8 / 9) as scores, _row_vector(stream, np.int8, 1 / 9) as sides:
        for block in stream:
            places = codes.codes(_labels_of(block))
            if codes.n_unknown:
                continue  # their number is told at the end
            counts.add(block.scores[:, 0], signs[places])
            if in_order:
                scores.append(block.scores[:, 0])
                sides.append(signs[places])
        codes.check()
        _require_rows(stream, counts.n_rows)
        order = OrderCounts(counts.positives, counts.negatives)
        if in_order:
            used = scores.bytes_in_memory + sides.bytes_in_memory
            # What the rows were read with is free now: as much as is spare.
            for groups in sorted_groups(scores, sides, 2 * stream.spare_bytes - used):
                order.add(groups)
    has_value = {"auc": counts.positives and counts.negatives, "prbep": counts.positives}
    return {
        name: METRICS[name].function(order if METRICS[name].needs_order else counts)
        for name in names
        if not optional or has_value.get(name, True)
    }


def _binary_targets(decision: Decision, model: Model) -> dict[str, int]:
    """1 or -1 for every class, by its name."""
    if not model.classes:
        return dict(zip(decision.texts, (-1, 1), strict=True))
    listed = model.options.get("positive")
    labels = {each for each in listed if isinstance(each, int | float)} if isinstance(listed, list) else set()
    labels = labels or {decision.labels.tolist()[1]}
    sides = [1 if each in labels else -1 for each in model.classes]
    return dict(zip(class_names(model), sides, strict=True))


def _evaluate_classes(stream: ScoreStream, names: Sequence[str]) -> dict[str, float]:
    decision = stream.decision
    codes = _label_codes(stream, decision.texts)
    counts = ClassCounts(len(decision.texts))
    for block in stream:
        places = codes.codes(_labels_of(block))
        if not codes.n_unknown:
            counts.add(places, decision.choices(block.scores))
    codes.check()
    _require_rows(stream, int(counts.actual.sum()))
    results = multiclass_metrics(counts)
    return {name: results[name] for name in names}


def _evaluate_values(stream: ScoreStream, names: Sequence[str]) -> dict[str, float]:
    if stream.rows.label_names is not None:
        raise InputError(
            f"{stream.rows.name} has names for labels, and the model gives values; "
            "choose a column of numbers with --label"
        )
    sums = ValueSums()
    for values, targets in _fixed_slices(stream):
        sums.add(values, targets)
    _require_rows(stream, sums.n_rows)
    return {name: METRICS[name].function(sums) for name in names}


def _fixed_slices(stream: ScoreStream) -> Iterator[tuple[Float64Array, Float64Array]]:
    """Values and labels in slices of a fixed length; each is valid until the next one is taken.

    The blocks of a stream depend on the memory allowed, and floating sums must not.
    """
    values, labels = np.empty(_SLICE_ROWS), np.empty(_SLICE_ROWS)
    filled = 0
    for block in stream:
        given = _labels_of(block)
        taken = 0
        while taken < len(given):
            count = min(len(given) - taken, _SLICE_ROWS - filled)
            values[filled : filled + count] = block.scores[taken : taken + count, 0]
            labels[filled : filled + count] = given[taken : taken + count]
            taken, filled = taken + count, filled + count
            if filled == _SLICE_ROWS:
                yield values, labels
                filled = 0
    if filled:
        yield values[:filled], labels[:filled]


def _require_rows(stream: ScoreStream, n_rows: int) -> None:
    if n_rows == 0:
        raise InputError(f"{stream.rows.name} has no rows to evaluate")
