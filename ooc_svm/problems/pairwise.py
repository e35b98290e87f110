"""From labels, groups and weights of the data to the row vectors that pairs are counted from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import SLICE_ROWS, Float64Array, row_slices
from ooc_svm.data.classes import label_text
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.active import scratch_vectors, sum_of_pairs
from ooc_svm.pairs.counts import check_trainable
from ooc_svm.pairs.request import PairRows, Pairs
from ooc_svm.problems.base import LabelSet, ModelSpec, Problem, read_finite_labels
from ooc_svm.problems.targets import FOLDS, WEIGHT
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.group_numbers import GroupNumbers
from ooc_svm.rowvectors.sort import sort_by_score
from ooc_svm.rowvectors.vector import RowVector

RANKS, QUERY_STARTS = "ranks", "query_starts"
_LABELS = "labels"

# Rows of which the labels are sorted in memory together, and bytes for counting them.
_SORTED_ROWS, _COUNTING_BYTES = 1 << 14, 1 << 23
_NUMBERS_BYTES = 1 << 24  # For the numbers of the groups


@dataclass(frozen=True)
class Pairwise(Problem):
    """Losses are of pairs of rows of different rank; see `ooc_svm.problems.base.Problem`."""

    name: str  # {"ordinal", "roc-area", "ranking"}
    target_bytes: int
    in_queries: bool = False
    rowwise: bool = False

    def check(self, labels: LabelSet, options: TrainOptions) -> Float64Array:
        """The labels that rows are told apart by, ascending; empty where there are too many to list.

        InputError for what `check_ranks` refuses, labels without an order, and no qids for "ranking".
        """
        if self.in_queries and not labels.has_qid:
            raise InputError(
                f"{parameter('problem', 'ranking')} compares rows of equal qid, and the data have none; "
                "write qid:N after the label of each row and convert again, give obs a column qid, or take "
                f"{parameter('problem', 'ordinal')}"
            )
        if self.name != "roc-area" and labels.names is not None:
            raise InputError(
                f"{parameter('problem', self.name)} needs labels in an order, and these are names; "
                f"choose a column of numbers as {parameter('label')}"
            )
        return check_ranks(self.name, labels.counts, labels.positive(options))

    def fold_classes(self, labels: LabelSet, options: TrainOptions) -> list[list[float]]:
        """The lower and the higher rank of "roc-area"; folds of others are drawn without regard to ranks."""
        if self.name != "roc-area" or labels.counts is None:
            return []
        ranks = self.check(labels, options).tolist()
        higher = labels.positive(options) or ranks[-1:]
        return [[label for label in ranks if (label in higher) == side] for side in (False, True)]

    def fold_pairs(
        self, vectors: RowVectors, pairs: Pairs | None, n_folds: int, sorting_bytes: int
    ) -> list[Pairs | None]:
        """Pairs of rows whose weight is 0 in the fold."""
        assert pairs is not None
        found: list[Pairs | None] = []
        for fold in range(n_folds):
            weight = vectors.create(f"{WEIGHT} without fold {fold}", np.float64)
            for start, stop in row_slices(vectors.n_rows):
                own = vectors[pairs.rows.weight].read(start, stop) if pairs.rows.weight else 1.0
                weight.write(start, own * (vectors[FOLDS].read(start, stop) != fold))
            rows = replace(pairs.rows, weight=f"{WEIGHT} without fold {fold}")
            total = sum_of_pairs(rows, vectors, sorting_bytes)
            if total == 0.0:
                raise InputError(
                    f"without fold {fold + 1} of {n_folds} no two rows can be compared and have different "
                    f"labels; give fewer {parameter('folds')}"
                )
            found.append(Pairs(rows, total))
        return found

    def n_ranks(self, labels: LabelSet) -> int:
        """Ranks of the rows where all rows are compared."""
        if self.name == "roc-area":
            return 2
        return len(labels.counts or ()) if self.name == "ordinal" else 0

    def sample_labels(self, n_rows: int) -> Float64Array:
        """Labels of made-up rows: several ranks, where more than two are counted in another way than two."""
        ranks = np.arange(n_rows) % 3
        return (ranks if self.name == "ordinal" else ranks == 0).astype(np.float64)

    def fill(
        self, vectors: RowVectors, source: Source, labels: LabelSet, options: TrainOptions, sorting_bytes: int
    ) -> Pairs:
        """Make the row vectors of ranks, groups and weights, and sum up the weights of all pairs."""
        self.fill_weights(vectors, source, options)
        weight = WEIGHT if WEIGHT in vectors else None
        ranks, positive = self.check(labels, options), labels.positive(options)
        return fill_pairs(vectors, source, self.name, ranks, positive, weight, sorting_bytes)

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """A model for each C."""
        return [ModelSpec(C, loss, pairs=pairs) for C in options.C]


ORDINAL, ROC_AREA, RANKING = (
    Pairwise("ordinal", 4),
    Pairwise("roc-area", 4),
    Pairwise("ranking", 5, in_queries=True),
)


def check_ranks(
    problem: str, counts: Mapping[float, int] | None, positive: Collection[float] = ()
) -> Float64Array:
    """The labels that rows are told apart by, ascending; empty where there are too many to list.

    ``problem``: {"ordinal", "roc-area", "ranking"}.
    ``counts``: None where there are more labels than are counted.
    ``positive``: labels of the higher rank of "roc-area"; empty: the larger one of two.
    InputError for fewer than two ranks; more than two labels for "roc-area" and none named; a label named
        that no row has.
    """
    labels = sorted(label for label, rows in (counts or {}).items() if rows)
    found = ", ".join(label_text(label) for label in labels[:20]) + (", ..." if len(labels) > 20 else "")
    if counts is not None and len(labels) < 2:
        raise InputError(
            f"{parameter('problem', problem)} needs rows of at least two ranks, found {{{found}}}; "
            "add rows of another rank"
        )
    if problem != "roc-area":
        return np.array(labels)
    missing = [label for label in positive if label not in labels]
    if missing and counts is not None:
        raise InputError(f"no row has the label {label_text(missing[0])}; the labels are {found}")
    if len(positive) == len(labels) and counts is not None:
        raise InputError("all labels are named as positive; training needs rows of another label")
    if not positive and len(labels) != 2:
        how_many = "many" if counts is None else len(labels)
        raise InputError(
            f"{parameter('problem', 'roc-area')} compares two ranks, and there are {how_many} labels; "
            f"name those of the higher rank as {parameter('positive')}"
        )
    return np.array(labels)


def fill_pairs(
    vectors: RowVectors,
    source: Source,
    problem: str,
    labels: Float64Array,
    positive: Collection[float],
    weight: str | None,
    sorting_bytes: int,
) -> Pairs:
    """Make the row vectors of ranks and groups, and sum up the weights of all pairs.

    ``labels`` are those of `check_ranks`; ``weight`` names the row vector of weights.
    InputError for rows of a group in several places or of different weights, no pairs at all, too many pairs.
    """
    ranks = vectors.create(RANKS, np.int32)
    if problem == "roc-area":
        higher = np.array(sorted(positive) or labels[-1:])
        _fill(ranks, source, lambda found: np.isin(found, higher))
        n_ranks = 2
    elif len(labels):
        _fill(ranks, source, lambda found: np.searchsorted(labels, found))
        n_ranks = len(labels)
    else:
        _fill(vectors.create(_LABELS, np.float64), source, lambda found: found)
        n_ranks = _rank(vectors[_LABELS], ranks, vectors, sorting_bytes)
        vectors.drop(_LABELS)
    query_starts = QUERY_STARTS if problem == "ranking" else None
    if query_starts is not None:
        _fill_query_starts(vectors.create(query_starts, np.uint8), source, sorting_bytes)
        if weight is not None:
            _check_group_weights(vectors[query_starts], vectors[weight])
    rows = PairRows(RANKS, n_ranks, weight, query_starts)
    total = sum_of_pairs(rows, vectors, sorting_bytes)
    if total == 0.0 or weight is None:
        check_trainable(int(total))
    return Pairs(rows, total)


def _fill(vector: RowVector, source: Source, entries: Callable[[Float64Array], npt.NDArray[Any]]) -> None:
    """Write what a function makes of the labels, block by block."""
    for span in source.blocks:
        labels = read_finite_labels(source, span.start, span.stop, "rank")
        vector.write(span.start, entries(labels).astype(vector.dtype))


def _rank(labels: RowVector, ranks: RowVector, vectors: RowVectors, sorting_bytes: int) -> int:
    """Write dense ranks of labels of which there are many; their number."""
    with scratch_vectors(labels.n_rows, 1, vectors, sorting_bytes) as (scratch, most):
        ordered = scratch.create("ordered", np.float64)
        sizes = {"best": min(_SORTED_ROWS, most), "most": most, "rows": min(SLICE_ROWS, most)}
        sort_by_score([labels], [ordered], **sizes, memory_bytes=_COUNTING_BYTES)
        n_ranks, last = 0, -np.inf
        for first, end in row_slices(labels.n_rows, most):
            distinct = np.unique(ordered.read(first, end))
            distinct = distinct[distinct > last]
            if not len(distinct):
                continue
            last = distinct[-1]
            for start, stop in row_slices(labels.n_rows, min(SLICE_ROWS, most)):
                own = labels.read(start, stop)
                inside = (own >= distinct[0]) & (own <= last)
                entries = ranks.read(start, stop).copy()
                entries[inside] = n_ranks + np.searchsorted(distinct, own[inside])
                ranks.write(start, entries)
            n_ranks += len(distinct)
    return n_ranks


def _fill_query_starts(query_starts: RowVector, source: Source, memory_bytes: int) -> None:
    """Mark the first row of each group; groups have to be in one place."""
    last: int | None = None
    with closing(GroupNumbers(min(memory_bytes, _NUMBERS_BYTES))) as numbers:
        for span in source.blocks:
            qids = source.read_qids(span.start, span.stop)
            if not len(qids):
                continue
            first = np.empty(len(qids), np.bool_)
            first[0] = last is None or qids[0] != last
            np.not_equal(qids[1:], qids[:-1], out=first[1:])
            numbers.add(qids[first])
            query_starts.write(span.start, first.astype(np.uint8))
            last = int(qids[-1])
        numbers.check(parameter("problem", "ranking"))


def _check_group_weights(query_starts: RowVector, weight: RowVector) -> None:
    """Refuse a row whose weight is not that of the row before it in its group."""
    last = np.empty(0)
    for start, stop in row_slices(query_starts.n_rows):
        weights = np.concatenate([last, weight.read(start, stop)])
        inside = query_starts.read(start, stop)[1 - len(last) :] == 0
        differs = inside & (weights[1:] != weights[:-1])
        if differs.any():
            place = int(np.argmax(differs))
            raise InputError(
                f"row {start + place + 1 - len(last)} has the weight {weights[place + 1]}, the row before it "
                f"in its group has {weights[place]}; for {parameter('problem', 'ranking')} a weight is of a "
                "whole group"
            )
        last = weights[-1:]
