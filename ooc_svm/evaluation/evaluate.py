"""Streamed evaluation: how well a model predicts the labels of any data, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.evaluation.binary_rows import WAITING_BYTES, SidedRows, labels_of, rows_of_ranks
from ooc_svm.evaluation.label_codes import LabelCodes
from ooc_svm.evaluation.label_rows import LabelCounts, check_kind, count_labels
from ooc_svm.evaluation.metrics import (
    BinaryCounts,
    ClassCounts,
    OrderCounts,
    ProbabilitySums,
    RequestedMetric,
    TopCounts,
    ValueSums,
    compares_queries,
    requested_metrics,
)
from ooc_svm.evaluation.query_rows import ENTRY_BYTES, QueryRows
from ooc_svm.evaluation.rankings import RankedQueries
from ooc_svm.evaluation.report import EvaluationReport, class_scores, confusion_of
from ooc_svm.evaluation.workspace import Workspace
from ooc_svm.model.decision import LABEL_SETS, SEVERAL_CLASSES, TWO_CLASSES, TWO_RANKS, predicted_by
from ooc_svm.model.file import ModelOrPath, opened_model
from ooc_svm.parameters import FLAG, TEXT, Kind, MissingFeatures, checks, choice, read_items
from ooc_svm.prediction.scores import SCORING, ScoredRows, decision_scores
from ooc_svm.rowvectors.score_ranges import sorted_ties

# Bytes of a row (score and side) that is kept for the order of the scores.
_ORDER_BYTES = 9

# Rows of values that are summed at a time.
_SLICE_ROWS = 1 << 13

# Counts by `RequestedMetric.key`.
Counts = dict[tuple[type, int | None], Any]


def _read_metrics(metrics: Any) -> list[str]:
    return [TEXT.convert(name) for name in ([metrics] if isinstance(metrics, str) else read_items(metrics))]


METRICS = Kind("str or sequence of str", "the name of a metric, or a sequence of names", _read_metrics)
_EVALUATING = SCORING | {"metrics": METRICS, "unlabelled": choice("error", "skip")}


@checks(**_EVALUATING)
def evaluate(
    model: ModelOrPath,
    data: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    labels: Any = None,
    qid: Any = None,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    layer: str | None = None,
    unlabelled: str = "error",
    C: float | None = None,
    feature_names: Any = None,
    missing_features: MissingFeatures = "error",
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
) -> dict[str, float]:
    """Score labelled data and compare the predictions with the labels.

    `ooc_svm.evaluation_report` says more: of each class, of rows that were left out.

    A row is positive if its label is one of those that the model was trained to take for positive. Where the
    data or the model have names for labels, it is the names that are compared.

    Parameters
    ----------
    model, data, labels, qid, threads, memory, index_base, label, layer, C, feature_names, missing_features
        See `ooc_svm.decision_scores`. Scores that do not fit the memory go to scratch files.
    cache, cache_size
        See `ooc_svm.decision_scores`.
    unlabelled : {"error", "skip"}
        Whether rows without a label, and rows of a class that the model was not trained on, are an error or
        left out. Of sets, labels that the model was not trained on count as not predicted with "error", and
        rows that have them are left out with "skip".
    metrics : str or sequence of str, optional
        Names in `ooc_svm.evaluation.metrics.METRICS`, with a number for k as in ``ndcg@10``; what the model
        predicts decides which of them fit, and which are the default. By default metrics without a value
        are left out: auc has none where all rows are of one class, prbep none without positives. Metrics of
        rankings only compare rows of equal qid, where the data have qids.

    Returns
    -------
    dict of str to float
        In the order of `metrics`.

    Raises
    ------
    UsageError
        If a metric does not exist or does not fit the model, or rows have no labels; also as
        `decision_scores` does.
    InputError
        If there are labels that the model was not trained on or rows without one, no rows, no value of a
        requested metric, or rows of a qid in several places, where a metric needs them together; also as
        `decision_scores` does.
    MemoryBudgetError, DamageError, StorageError
        See `decision_scores`.
    """
    given = {"labels": labels, "qid": qid, "threads": threads, "memory": memory, "index_base": index_base}
    given |= {"label": label, "layer": layer, "unlabelled": unlabelled, "C": C}
    given |= {"feature_names": feature_names, "missing_features": missing_features}
    given |= {"cache": cache, "cache_size": cache_size}
    return evaluation_report(model, data, metrics, **given).metrics


@checks(**_EVALUATING, confusion=FLAG)
def evaluation_report(
    model: ModelOrPath,
    data: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    confusion: bool = False,
    labels: Any = None,
    qid: Any = None,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    layer: str | None = None,
    unlabelled: str = "error",
    C: float | None = None,
    feature_names: Any = None,
    missing_features: MissingFeatures = "error",
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
) -> EvaluationReport:
    """Score labelled data and compare the predictions with the labels, class by class.

    Parameters
    ----------
    model, data, metrics, labels, qid, threads, memory, index_base, label, layer, unlabelled, C
        See `ooc_svm.evaluate`.
    feature_names, missing_features, cache, cache_size
        See `ooc_svm.evaluate`.
    confusion : bool
        Whether to count the rows of each class that are predicted as each other one; for classes only.

    Returns
    -------
    EvaluationReport

    Raises
    ------
    UsageError, InputError, MemoryBudgetError, DamageError, StorageError
        See `ooc_svm.evaluate`.
    """
    model = opened_model(model)
    predicted = predicted_by(model)
    if confusion and predicted not in (TWO_CLASSES, SEVERAL_CLASSES):
        raise UsageError(f"{parameter('confusion')} is for classes, and the model predicts {predicted}")
    requested = requested_metrics(predicted, metrics, probabilities=model.gives_probabilities)
    stream = decision_scores(
        model,
        data,
        labels=labels,
        qid=qid,
        threads=threads,
        memory=memory,
        index_base=index_base,
        label=label,
        layer=layer,
        unlabelled=unlabelled,
        C=C,
        feature_names=feature_names,
        missing_features=missing_features,
        cache=cache,
        cache_size=cache_size,
        spare_share=0.5,
    )
    with stream:
        codes = _label_codes(stream, skip_unknown=unlabelled == "skip")
        counts = _count(stream, codes, requested, confusion=confusion)
        stream.tell_ignored()
        of_labels: LabelCounts | None = counts.get((LabelCounts, None))
        return EvaluationReport(
            metrics=_values(requested, counts, optional=not metrics),
            classes=class_scores(stream.decision.texts, of_labels or counts.get((ClassCounts, None))),
            confusion=confusion_of(stream.decision.texts, counts) if confusion else None,
            n_unlabelled=stream.rows.n_unlabelled,
            n_unknown=_n_unknown(codes, counts),
            unknown_labels={} if of_labels is None else of_labels.unknown,
        )


class Measured(NamedTuple):
    """Metrics, and what they leave out.

    Stored values of features that the model lacks, rows without a label, and rows of classes or with labels
    that the model was not trained on.
    """

    values: dict[str, float]
    ignored: int
    n_unlabelled: int
    n_unknown: int


def measure_data(
    model: ModelOrPath, data: Any, metric: str | None, *, unlabelled: str, **options: Any
) -> Measured:
    """One metric of labelled data, or those that `ooc_svm.evaluate` gives by default.

    ``unlabelled`` is as in `ooc_svm.evaluate`; other options, and what is raised, as in
    `ooc_svm.decision_scores`.
    """
    skip = unlabelled == "skip"
    with decision_scores(model, data, spare_share=0.5, unlabelled=unlabelled, **options) as stream:
        values, n_unknown = _measure(stream, metric, skip_unknown=skip)
        return Measured(values, stream.ignored.entries, stream.rows.n_unlabelled, n_unknown)


def measure(rows: ScoredRows, metric: str) -> float:
    """One metric of rows that have scores.

    UsageError for a metric that does not fit.
    InputError where it has no value, for labels of no class, and rows of a qid in several places.
    """
    return _measure(rows, metric, skip_unknown=False)[0][metric]


def _measure(rows: ScoredRows, metric: str | None, *, skip_unknown: bool) -> tuple[dict[str, float], int]:
    """One metric by name, or those that are the default and have a value; see also `_n_unknown`."""
    decision = rows.decision
    requested = requested_metrics(decision.predicted, metric, probabilities=decision.has_probabilities)
    codes = _label_codes(rows, skip_unknown=skip_unknown)
    counts = _count(rows, codes, requested, confusion=False)
    return _values(requested, counts, optional=metric is None), _n_unknown(codes, counts)


def _n_unknown(codes: LabelCodes, counts: Counts) -> int:
    """Rows left out of the counts for a label that the model was not trained on."""
    of_labels: LabelCounts | None = counts.get((LabelCounts, None))
    return codes.n_unknown if of_labels is None else of_labels.n_left_out


def _count(
    stream: ScoredRows, codes: LabelCodes, requested: Sequence[RequestedMetric], *, confusion: bool
) -> Counts:
    """The counts that the requested metrics are functions of."""
    predicted, kinds = stream.decision.predicted, {each.counts for each in requested}
    if predicted == LABEL_SETS:
        labels = count_labels(stream, skip_unknown=codes.skip_unknown)
        _require_rows(stream, labels.n_rows)
        return {(LabelCounts, None): labels}
    if predicted == SEVERAL_CLASSES:
        return _count_classes(stream, codes, requested, kinds, confusion=confusion)
    ranking = {each.key: each.new_counts() for each in requested if compares_queries(each)}
    waits = predicted == TWO_RANKS and not stream.decision.sides
    entry_bytes = WAITING_BYTES * waits + _ORDER_BYTES * (OrderCounts in kinds) + ENTRY_BYTES * bool(ranking)
    with Workspace(stream.spare_bytes, entry_bytes) as workspace:
        queries = _query_rows(stream, workspace, ranking) if ranking else None
        if predicted == TWO_RANKS:
            rows = rows_of_ranks(stream, workspace)
        elif predicted == TWO_CLASSES:
            rows = _rows_of_classes(stream, codes)
        else:
            return ranking | _count_values(stream, workspace, queries, ValueSums in kinds)
        return ranking | _count_sides(stream, rows, workspace, queries, kinds)


def _query_rows(stream: ScoredRows, workspace: Workspace, ranking: Counts) -> QueryRows:
    """The queries of the rows, counted as soon as they are complete."""

    def take(queries: RankedQueries) -> None:
        for counts in ranking.values():
            counts.add(queries)

    if stream.rows.has_qid or stream.rows.n_rows is None:
        return QueryRows(take, workspace)
    return QueryRows(take, workspace, first_rows=stream.rows.n_rows)


def _label_codes(stream: ScoredRows, *, skip_unknown: bool) -> LabelCodes:
    """Codes for the labels of the data; raises at once if known counts of labels have a wrong one."""
    decision, rows = stream.decision, stream.rows
    wants_sets = decision.predicted == LABEL_SETS
    check_kind(rows.name, has_sets=rows.label_sets, wants_sets=wants_sets)
    texts = list(decision.sides) if decision.predicted == TWO_CLASSES else decision.texts
    codes = LabelCodes(texts, rows.name, rows.label_names, skip_unknown=skip_unknown)
    of_classes = decision.predicted in (TWO_CLASSES, SEVERAL_CLASSES)
    if of_classes and rows.label_counts is not None and not skip_unknown:
        codes.check({label: count for label, count in rows.label_counts.items() if count})
    return codes


def _known_rows(
    stream: ScoredRows, codes: LabelCodes
) -> Iterator[tuple[Float64Array, Int64Array, Int64Array | None]]:
    """Scores, class numbers and qids of the rows whose class the model knows."""
    for block in stream:
        places = codes.codes(labels_of(block))
        known = places >= 0
        if known.all():
            yield block.scores, places, block.qids
        elif codes.skip_unknown and known.any():
            yield block.scores[known], places[known], None if block.qids is None else block.qids[known]
    codes.check()


def _rows_of_classes(stream: ScoredRows, codes: LabelCodes) -> Iterator[SidedRows]:
    """Rows of the positive classes of the model, and of its other classes."""
    signs = np.array(list(stream.decision.sides.values()), np.int8)
    for scores, places, qids in _known_rows(stream, codes):
        yield SidedRows(scores[:, 0], signs[places], qids)


def _count_sides(
    stream: ScoredRows,
    rows: Iterable[SidedRows],
    workspace: Workspace,
    queries: QueryRows | None,
    kinds: set[type],
) -> Counts:
    """Counts of rows of two sides."""
    binary, n_rows, ordered = BinaryCounts(), stream.rows.n_rows, OrderCounts in kinds
    shares = ProbabilitySums()
    slices = _FixedSlices(shares, 4)
    scores, sides = workspace.vector(np.float64, n_rows), workspace.vector(np.int8, n_rows)
    for part in rows:
        binary.add(part.scores, part.signs)
        if ProbabilitySums in kinds:
            found = stream.decision.log_probabilities(part.scores[:, None])
            slices.add(*ProbabilitySums.measures_of(found, (part.signs > 0).astype(np.int8)))
        if ordered:
            scores.append(part.scores)
            sides.append(part.signs)
        if queries is not None:
            queries.add(part.scores, (part.signs > 0).astype(np.float64), part.qids)
    slices.finish()
    _finish(stream, workspace, queries, binary.n_rows)
    order = OrderCounts(binary.positives, binary.negatives)
    if ordered:
        for ties in sorted_ties(scores, sides, workspace.free):
            order.add(ties)
    return {(BinaryCounts, None): binary, (OrderCounts, None): order, (ProbabilitySums, None): shares}


def _count_classes(
    stream: ScoredRows,
    codes: LabelCodes,
    requested: Sequence[RequestedMetric],
    kinds: set[type],
    *,
    confusion: bool,
) -> Counts:
    """Counts of rows of several classes."""
    decision = stream.decision
    counts = ClassCounts(len(decision.texts), confusion=confusion)
    tops = {each.key: each.new_counts() for each in requested if each.counts is TopCounts}
    shares = ProbabilitySums()
    slices = _FixedSlices(shares, 4)
    for scores, places, _ in _known_rows(stream, codes):
        counts.add(places, decision.choices(scores))
        for top in tops.values():
            top.add(places, scores)
        if ProbabilitySums in kinds:
            slices.add(*ProbabilitySums.measures_of(decision.log_probabilities(scores), places))
    slices.finish()
    _require_rows(stream, counts.n_rows)
    return {(ClassCounts, None): counts, (ProbabilitySums, None): shares} | tops


def _count_values(
    stream: ScoredRows, workspace: Workspace, queries: QueryRows | None, summed: bool
) -> Counts:
    """Sums over rows whose labels are numbers."""
    if stream.rows.label_names is not None:
        raise InputError(
            f"{stream.rows.name} has names for labels, and the model gives values; "
            f"choose a column of numbers as {parameter('label')}"
        )
    sums, n_rows = ValueSums(), 0
    slices = _FixedSlices(sums, 2)
    for block in stream:
        values, labels = block.scores[:, 0], labels_of(block)
        n_rows += len(labels)
        if summed:
            slices.add(values, labels)
        if queries is not None:
            queries.add(values, labels, block.qids)
    slices.finish()
    _finish(stream, workspace, queries, n_rows)
    return {(ValueSums, None): sums}


def _finish(stream: ScoredRows, workspace: Workspace, queries: QueryRows | None, n_rows: int) -> None:
    """Close the last query, with the memory that reading no longer needs: as much as was spare."""
    _require_rows(stream, n_rows)
    workspace.grow(stream.spare_bytes)
    if queries is not None:
        queries.finish(stream.rows.name)


def _require_rows(stream: ScoredRows, n_rows: int) -> None:
    if n_rows == 0:
        raise InputError(f"{stream.rows.name} has no rows to evaluate")


def _values(requested: Sequence[RequestedMetric], counts: Counts, *, optional: bool) -> dict[str, float]:
    """The metrics from their counts; with `optional` those that have no value are left out, but not all."""
    found: dict[str, float] = {}
    missing: InputError | None = None
    for each in requested:
        try:
            found[each.name] = each.function(counts[each.key])
        except InputError as error:
            missing = error
            if not optional:
                raise
    if missing is not None and not found:
        raise missing
    return found


class _FixedSlices:
    """Adds numbers of rows to sums, in slices of a fixed length.

    The blocks of a stream depend on the allowed memory, and floating sums must not.
    """

    def __init__(self, sums: ValueSums | ProbabilitySums, width: int) -> None:
        self._sums, self._filled = sums, 0
        self._numbers = np.empty((width, _SLICE_ROWS))

    def add(self, *numbers: Float64Array) -> None:
        """Take more rows: several numbers of each."""
        taken, n_rows = 0, len(numbers[0])
        while taken < n_rows:
            count = min(n_rows - taken, _SLICE_ROWS - self._filled)
            for room, own in zip(self._numbers, numbers, strict=True):
                room[self._filled : self._filled + count] = own[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == _SLICE_ROWS:
                self.finish()

    def finish(self) -> None:
        """Add the slice as far as it is filled."""
        self._sums.add(*self._numbers[:, : self._filled])
        self._filled = 0
