"""Streamed evaluation: how well a model predicts the labels of any data, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.errors import InputError, UsageError
from ooc_svm.evaluation.binary_rows import SidedRows, labels_of, rows_of_ranks
from ooc_svm.evaluation.label_codes import LabelCodes
from ooc_svm.evaluation.metrics import (
    BinaryCounts,
    ClassCounts,
    OrderCounts,
    ValueSums,
    metric,
    multiclass_metrics,
)
from ooc_svm.evaluation.query_groups import QueryGroups
from ooc_svm.evaluation.ranking_metrics import NDCG, RankingCounts, cutoff
from ooc_svm.model.model import Model
from ooc_svm.prediction.scores import ScoreStream, decision_scores
from ooc_svm.rowvectors.growing import GrowingVector
from ooc_svm.rowvectors.score_ranges import sorted_ties
from ooc_svm.rowvectors.vector import SLICE_ROWS

BINARY_METRICS = ("accuracy", "error", "precision", "recall", "f1", "auc", "prbep")
CLASS_METRICS = ("accuracy", "error", "macro-f1")
VALUE_METRICS = ("mse", "mae", "r2")
RANKING_METRICS = ("ndcg@k", "map", "kendall-tau", "swapped-pairs")

# Of problems that are no classification: metrics by default, others that fit, what such models are for.
_OF_PROBLEM = {
    "svr": (VALUE_METRICS, RANKING_METRICS, "values"),
    "ordinal": (("swapped-pairs", "kendall-tau"), RANKING_METRICS, "grades"),
    "roc-area": (("auc", "swapped-pairs"), ("prbep", *RANKING_METRICS), "the order of two classes"),
    "ranking": (("ndcg@10", "map", "swapped-pairs"), RANKING_METRICS, "rankings"),
}

# Share of the spare memory for rows that wait until it is known which of two labels is the larger one.
_HELD_SHARE = 1 / 4

# Rows of values that are summed at a time.
_SLICE_ROWS = 1 << 13


def evaluate(
    model: Model,
    data: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    labels: Any = None,
    qid: Any = None,
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
    model, data, labels, qid, threads, memory, index_base, label, C
        See `ooc_svm.prediction.predict.decision_scores`. Scores that do not fit the memory go to a
        scratch file.
    metrics : str or sequence of str, optional
        Of a binary classifier: accuracy, error, precision, recall, f1, auc, prbep; of one-vs-rest: accuracy,
        error, macro-f1; of a regressor: mse, mae, r2; see `ooc_svm.evaluation.metrics`. By default all of
        these that have a value: auc has none where all rows are of one class, prbep none without positives.
        Of all but one-vs-rest also ndcg@k (as ndcg@10), map, kendall-tau, swapped-pairs; see
        `ooc_svm.evaluation.ranking_metrics`. They compare rows of equal qid alone, where the data have qids.
        Problems of pairs have defaults among these.

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
        rows, rows of a qid in several places where groups count, and what `decision_scores` raises.
    MemoryBudgetError, DamageError, StorageError
        See `decision_scores`.
    """
    names = metric_names(model, metrics)
    stream = decision_scores(
        model,
        data,
        labels=labels,
        qid=qid,
        threads=threads,
        memory=memory,
        index_base=index_base,
        label=label,
        C=C,
        spare_share=0.5,
    )
    with stream:
        if model.problem == "roc-area":
            held = int(_HELD_SHARE * stream.spare_bytes)
            ranks = rows_of_ranks(stream, held)
            return _evaluate_sides(stream, ranks, names, 1 - _HELD_SHARE, optional=not metrics)
        if not model.positive:
            return _evaluate_values(stream, names, optional=not metrics)
        if model.is_one_vs_rest:
            return _evaluate_classes(stream, names)
        return _evaluate_sides(stream, _rows_of_classes(stream), names, 1.0, optional=not metrics)


def metric_names(model: Model, metrics: str | Sequence[str] | None) -> tuple[str, ...]:
    """The metrics asked for, by default those of its problem; UsageError for any that does not fit."""
    default, others, kind = _metrics_of(model)
    fitting = tuple(dict.fromkeys((*default, *others)))
    asked = (metrics,) if isinstance(metrics, str) else tuple(dict.fromkeys(metrics or default))
    for name in asked:
        general = "ndcg@k" if name.startswith(NDCG) else name
        if general not in fitting and name not in fitting:
            exists = general in (*BINARY_METRICS, *CLASS_METRICS, *VALUE_METRICS, *RANKING_METRICS)
            what = f"{name} is no metric for {kind}" if exists else f"there is no metric {name!r:.80}"
            raise UsageError(f"{what}; for this model choose from {', '.join(fitting)}")
        if general == "ndcg@k" and cutoff(name) is None:
            raise UsageError(f"{name!r:.80} does not say how many ranks count; write for example ndcg@10")
    return asked


def _metrics_of(model: Model) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Metrics by default, others that fit the model, and what it is for."""
    if model.problem in _OF_PROBLEM:
        return _OF_PROBLEM[model.problem]
    if model.is_one_vs_rest:
        return CLASS_METRICS, (), "several classes"
    return BINARY_METRICS, RANKING_METRICS, "two classes"


def _label_codes(stream: ScoreStream, texts: Sequence[str]) -> LabelCodes:
    """Codes for the labels of the data; wrong ones are refused now where they are known already."""
    codes = LabelCodes(texts, stream.rows.name, stream.rows.label_names)
    if stream.rows.label_counts is not None:
        codes.check({label: count for label, count in stream.rows.label_counts.items() if count})
    return codes


def _row_vector(stream: ScoreStream, dtype: npt.DTypeLike, share: float) -> GrowingVector:
    """A vector for the rows of a stream that may use a share of the spare memory."""
    rows = SLICE_ROWS if stream.rows.n_rows is None else stream.rows.n_rows
    return GrowingVector(dtype, int(share * stream.spare_bytes), first_rows=rows)


def _ranked_rows(stream: ScoreStream, counts: RankingCounts, share: float) -> QueryGroups:
    """The groups of the rows, counted in a share of the spare memory."""
    memory_bytes = int(share * stream.spare_bytes)
    if stream.rows.has_qid or stream.rows.n_rows is None:
        return QueryGroups(counts.add, memory_bytes)
    return QueryGroups(counts.add, memory_bytes, first_piece=stream.rows.n_rows)


def _rows_of_classes(stream: ScoreStream) -> Iterator[SidedRows]:
    """Rows of the classes that the model takes for positive, and others of its classes."""
    sides = stream.decision.sides
    codes = _label_codes(stream, list(sides))
    signs = np.array(list(sides.values()), np.int8)
    for block in stream:
        places = codes.codes(labels_of(block))
        if not codes.n_unknown:  # their number is told at the end
            yield SidedRows(block.scores[:, 0], signs[places], block.qids)
    codes.check()


def _evaluate_sides(
    stream: ScoreStream, rows: Iterable[SidedRows], names: Sequence[str], share: float, *, optional: bool
) -> dict[str, float]:
    """Metrics of two sides, in a share of the spare memory; `optional` leaves out those without a value."""
    counts, ranking = BinaryCounts(), RankingCounts(names)
    kinds = {metric(name).counts for name in names}
    share /= max(len(kinds & {OrderCounts, RankingCounts}), 1)
    with (
        _row_vector(stream, np.float64, share * 8 / 9) as scores,
        _row_vector(stream, np.int8, share / 9) as sides,
        _ranked_rows(stream, ranking, share) as groups,
    ):
        for part in rows:
            counts.add(part.scores, part.signs)
            if OrderCounts in kinds:
                scores.append(part.scores)
                sides.append(part.signs)
            if RankingCounts in kinds:
                groups.add(part.scores, (part.signs > 0).astype(np.float64), part.qids)
        _require_rows(stream, counts.n_rows)
        # What the rows were read with is free now: as much as is spare.
        memory_bytes = int(2 * share * stream.spare_bytes)
        groups.finish(stream.rows.name, memory_bytes)
        order = OrderCounts(counts.positives, counts.negatives)
        if OrderCounts in kinds:
            used = scores.bytes_in_memory + sides.bytes_in_memory
            for ties in sorted_ties(scores, sides, memory_bytes - used):
                order.add(ties)
    return _values(names, (counts, order, ranking), optional=optional)


def _values(names: Sequence[str], counts: Iterable[object], *, optional: bool) -> dict[str, float]:
    """The metrics from their counts; with `optional` those that have no value are left out, but not all."""
    of_kind = {type(each): each for each in counts}
    found: dict[str, float] = {}
    missing: InputError | None = None
    for name in names:
        try:
            found[name] = metric(name).function(of_kind[metric(name).counts])
        except InputError as error:
            missing = error
            if not optional:
                raise
    if missing is not None and not found:
        raise missing
    return found


def _evaluate_classes(stream: ScoreStream, names: Sequence[str]) -> dict[str, float]:
    decision = stream.decision
    codes = _label_codes(stream, decision.texts)
    counts = ClassCounts(len(decision.texts))
    for block in stream:
        places = codes.codes(labels_of(block))
        if not codes.n_unknown:
            counts.add(places, decision.choices(block.scores))
    codes.check()
    _require_rows(stream, int(counts.actual.sum()))
    results = multiclass_metrics(counts)
    return {name: results[name] for name in names}


def _evaluate_values(stream: ScoreStream, names: Sequence[str], *, optional: bool) -> dict[str, float]:
    """Metrics of labels that are numbers; with `optional` those that have no value are left out."""
    if stream.rows.label_names is not None:
        raise InputError(
            f"{stream.rows.name} has names for labels, and the model gives values; "
            "choose a column of numbers with --label"
        )
    sums, ranking = ValueSums(), RankingCounts(names)
    kinds = {metric(name).counts for name in names}
    slices, n_rows = _FixedSlices(sums), 0
    with _ranked_rows(stream, ranking, 1.0) as groups:
        for block in stream:
            values, labels = block.scores[:, 0], labels_of(block)
            n_rows += len(labels)
            if ValueSums in kinds:
                slices.add(values, labels)
            if RankingCounts in kinds:
                groups.add(values, labels, block.qids)
        _require_rows(stream, n_rows)
        slices.finish()
        groups.finish(stream.rows.name, 2 * stream.spare_bytes)
    return _values(names, (sums, ranking), optional=optional)


class _FixedSlices:
    """Adds values and targets in slices of a fixed length.

    The blocks of a stream depend on the memory allowed, and floating sums must not.
    """

    def __init__(self, sums: ValueSums) -> None:
        self._sums = sums
        self._values, self._targets = np.empty(_SLICE_ROWS), np.empty(_SLICE_ROWS)
        self._filled = 0

    def add(self, values: Float64Array, targets: Float64Array) -> None:
        """Take more rows."""
        while len(values):
            count = min(len(values), _SLICE_ROWS - self._filled)
            room = slice(self._filled, self._filled + count)
            self._values[room], self._targets[room] = values[:count], targets[:count]
            values, targets = values[count:], targets[count:]
            self._filled += count
            if self._filled == _SLICE_ROWS:
                self.finish()

    def finish(self) -> None:
        """Add what there is of a slice."""
        self._sums.add(self._values[: self._filled], self._targets[: self._filled])
        self._filled = 0


def _require_rows(stream: ScoreStream, n_rows: int) -> None:
    if n_rows == 0:
        raise InputError(f"{stream.rows.name} has no rows to evaluate")
