"""Scores of any data, streamed in bounded memory."""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, tiles
from ooc_svm.errors import MemoryBudgetError, UsageError, parameter
from ooc_svm.model.decision import Decision, require_probabilities, select_C
from ooc_svm.model.file import MODEL, ModelOrPath, opened_model
from ooc_svm.model.model import Model
from ooc_svm.parameters import (
    ANY_DATA,
    ARRAY,
    COST,
    FEATURE_NAMES,
    INDEX_BASE,
    LOCAL_PATH,
    MISSING_FEATURES,
    SIZE,
    TEXT,
    THREADS,
    UNLABELLED,
    MissingFeatures,
    checks,
    number,
)
from ooc_svm.prediction.columns import Columns, match_columns
from ooc_svm.prediction.rows import Ignored, LabelKind, RowStream, StreamBlock, TextStream, open_rows
from ooc_svm.system.memory import INTERPRETER_BYTES, format_size, memory_budget, size_needed

# Scores and stored values of a tile, at most; a tile is what a thread scores at a time.
TILE_SCORES = 1 << 16
TILE_ELEMENTS = 1 << 18

# Bytes of a score that is written, including its Python objects.
_WRITING = 160


@dataclass(frozen=True, slots=True)
class ScoreBlock:
    """Scores of consecutive rows.

    Attributes
    ----------
    start : int
        Number of the first row in the whole data, from 0.
    scores : ndarray of float64, shape (n_rows, K)
        One column for each function that predicts; of one-vs-rest in ascending order of the classes, of sets
        in the order of the labels.
    labels : ndarray of float64, shape (n_rows,), or None
        Labels of the rows, if the data have any; NaN for a row without one.
    qids : ndarray of int64, shape (n_rows,), or None
        Query ids of the rows, if the data have any.
    """

    start: int
    scores: Float64Array
    labels: Float64Array | None
    qids: Int64Array | None = None


class ScoredBlock(Protocol):
    """Some rows with scores, see `ScoreBlock`."""

    @property
    def scores(self) -> Float64Array: ...

    @property
    def labels(self) -> Float64Array | None: ...

    @property
    def qids(self) -> Int64Array | None: ...


class RowFacts(Protocol):
    """What is known of the rows, see `ooc_svm.prediction.rows.RowStream`."""

    @property
    def name(self) -> str: ...

    @property
    def n_rows(self) -> int | None: ...

    @property
    def label_names(self) -> Sequence[str] | None: ...

    @property
    def label_counts(self) -> Mapping[float, int] | None: ...

    @property
    def label_sets(self) -> bool: ...

    @property
    def has_qid(self) -> bool | None: ...


class ScoredRows(Protocol):
    """All rows in order, wherever their scores come from; see `ScoreStream`."""

    @property
    def decision(self) -> Decision: ...

    @property
    def rows(self) -> RowFacts: ...

    @property
    def spare_bytes(self) -> int: ...

    def __iter__(self) -> Iterator[ScoredBlock]: ...


class ScoreStream(Iterator[ScoreBlock]):
    """Scores of any data, in row order; made by `decision_scores`. A context manager.

    Closing it ends its threads before the end of the data.

    Attributes
    ----------
    decision : Decision
        What the scores mean.
    rows : RowStream
        The rows that are scored.
    columns : Columns
        Which of their columns are features of the model.
    ignored : Ignored
        Rows and entries of columns that the model does not have, up to the last block returned.
    n_rows : int
        Rows read so far.
    spare_bytes : int
        Part of the allowed memory that is left to the consumer of the scores.
    """

    def __init__(
        self,
        decision: Decision,
        rows: RowStream,
        columns: Columns,
        threads: int,
        memory_bytes: int,
        spare_bytes: int,
    ) -> None:
        self.decision, self.rows, self.columns, self.ignored = decision, rows, columns, Ignored()
        self.n_rows, self.spare_bytes, self._threads = 0, spare_bytes, threads
        self._tile_rows = max(TILE_SCORES // decision.scorer.n_scores, 1)
        self._steps = self._run(memory_bytes)

    def __next__(self) -> ScoreBlock:
        return next(self._steps)

    def close(self) -> None:
        """Stop; there are no more blocks after that."""
        self._steps.close()

    def tell_ignored(self) -> None:
        """Warn of what was ignored, unless the columns were told beforehand; for after the last block."""
        if self.ignored.entries and not self.columns.extra:
            rows, values = self.ignored.rows, self.ignored.entries
            warnings.warn(
                f"{rows:,} row{'s' if rows > 1 else ''} of {self.n_rows:,} {'have' if rows > 1 else 'has'} "
                f"features that the model does not have; {values:,} value{'s' if values > 1 else ''} ignored",
                stacklevel=_level_outside(),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self, memory_bytes: int) -> Generator[ScoreBlock, None, None]:
        threads = self._threads
        with (
            ThreadPoolExecutor(threads, thread_name_prefix="score") as pool,
            closing(self.rows.blocks(self.columns, pool, threads, memory_bytes)) as blocks,
        ):
            for block in blocks:
                self.n_rows += block.rows.n_rows
                self.ignored.rows += block.ignored.rows
                self.ignored.entries += block.ignored.entries
                yield from self._score(block, pool)

    def _score(self, block: StreamBlock, pool: ThreadPoolExecutor) -> Generator[ScoreBlock, None, None]:
        """Score a block in tiles, several at a time."""
        pending: deque[tuple[int, int, Future[Float64Array]]] = deque()

        def oldest() -> ScoreBlock:
            first, last, future = pending.popleft()
            labels = None if block.labels is None else block.labels[first:last]
            qids = None if block.qids is None else block.qids[first:last]
            return ScoreBlock(block.rows.start + first, future.result(), labels, qids)

        try:
            for first, last in tiles(block.rows.indptr, TILE_ELEMENTS, self._tile_rows):
                pending.append((first, last, pool.submit(self.decision.scores, block.rows, first, last)))
                if len(pending) > self._threads:
                    yield oldest()
            while pending:
                yield oldest()
        finally:
            for _, _, future in pending:
                future.cancel()
            wait([future for _, _, future in pending])  # the stream reuses the arrays of the block


SCORING = {
    "model": MODEL,
    "data": ANY_DATA,
    "labels": ARRAY,
    "qid": ARRAY,
    "threads": THREADS,
    "memory": SIZE,
    "index_base": INDEX_BASE,
    "label": TEXT,
    "layer": TEXT,
    "unlabelled": UNLABELLED,
    "C": COST,
    "feature_names": FEATURE_NAMES,
    "missing_features": MISSING_FEATURES,
    "cache": LOCAL_PATH,
    "cache_size": SIZE,
}
"""Kinds of what all functions take that score rows."""


@checks(**SCORING, spare_share=number("a share from 0 to 1", lambda share: 0 <= share <= 1))
def decision_scores(
    model: ModelOrPath,
    data: Any,
    *,
    labels: Any = None,
    qid: Any = None,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    layer: str | None = None,
    unlabelled: str = "keep",
    C: float | None = None,
    feature_names: Any = None,
    missing_features: MissingFeatures = "error",
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
    spare_share: float = 0.0,
) -> ScoreStream:
    """Scores of every row, such as ``f_k(x) = w_k.x + b_k``, block after block in row order.

    Where data and model have names of features, the columns are found by their names, in any order. Else they
    are taken by their numbers. Columns that the model does not have are ignored and counted. Text
    is read as `ooc_svm.convert` would have stored it for training: values are rounded to the type of the
    training data, and the labels are names where the model has names of classes, or sets where it predicts
    sets.

    Parameters
    ----------
    model : Model or path
        A model, or its file.
    data : path, paths, Store or matrix
        A store (a folder or a name that ends in ``.zarr``), SVMlight text (one file or several, ``-`` is
        standard input), an open store, or rows in memory: a matrix, or an AnnData object.
    labels : array_like of shape (n_rows,) or (n_rows, n_labels), optional
        Labels of the rows of a matrix: numbers, or text for the names of classes; of a model of sets of
        labels an indicator matrix of 0 and 1, dense or sparse, with a column for each label of training.
    qid : array_like of int, shape (n_rows,), optional
        Query ids of the rows of a matrix.
    threads : int, optional
        From 1 to 4096; by default all processors that the process may use. The scores do not depend on it.
    memory : int or str, optional
        Bytes or a size like ``"600MB"``; by default half of what the process may use.
    index_base : {0, 1}, optional
        Number of the first column in text; by default that of the text of training, or 1.
    label : str, optional
        Column of an AnnData store, or of an AnnData object, that holds the labels.
    layer : str, optional
        Its layer with the rows, ``"X"`` for its matrix; by default the one that the model was trained on.
    unlabelled : {"error", "skip", "keep"}
        What becomes of rows of an AnnData store without a label, see `ooc_svm.open_store`; rows of a matrix
        whose label is NaN are left out with "skip", and else an error.
    C : float, optional
        Which functions predict, of a model trained with several values of C; see `Model.selected`.
    feature_names : path or sequence of str, optional
        Names of the columns of data that have none: a file of UTF-8 text with a name on each line, or the
        names.
    missing_features : {"error", "zero"}
        Features that the data lack are an error, or 0. Where columns are taken by their numbers, a matrix
        must have as many as the model, or with "zero" any number: columns beyond the model's are ignored.
        Text, and stores made from it, may have any number always. With "zero" a warning says how many
        features are missing.
    cache : path, optional
        Folder that keeps chunks of a store in a bucket, see `ooc_svm.Store.keep_chunks`.
    cache_size : int or str, optional
        Size of that cache; by default half of what is free on the disk.
    spare_share : float
        Share of the memory that is not needed for scoring to leave to the caller, as ``spare_bytes``.

    Returns
    -------
    ScoreStream
        An iterator of `ScoreBlock`; ``ignored`` counts what was ignored.

    Raises
    ------
    UsageError
        If a value is not possible, or the data are of no known kind.
    MemoryBudgetError
        If `memory` is too small; the message holds the sum.
    InputError
        If there are no such data, or they lack features; while reading, for bad text or a score that is not
        finite.
    DamageError, StorageError
        If a store is damaged, or reading fails.
    """
    model = opened_model(model)
    decision = Decision.of(select_C(model, C))
    base = model.index_base if index_base is None else index_base
    dtype = "float64" if model.report.get("value_type") == "float64" else "float32"
    rows = open_rows(
        data,
        labels,
        qid=qid,
        index_base=base,
        dtype=dtype,
        label=label,
        unlabelled=unlabelled,
        label_kind=_label_kind(model),
        layer=layer,
        trained_layer=model.options.get("layer"),
        label_columns=tuple(decision.sides) if model.multilabel else None,
        cache=cache,
        cache_size=cache_size,
    )
    if index_base is not None and not isinstance(rows, TextStream):
        raise UsageError(f"{parameter('index_base')} is for text, and this data is none; leave it out")
    workers = threads or len(os.sched_getaffinity(0))
    columns = match_columns(model, rows, feature_names, missing_features)
    left = _memory_left(decision, rows, columns, workers, memory)
    spare = int(spare_share * left)
    if columns.remark is not None:
        warnings.warn(columns.remark, stacklevel=_level_outside())
    return ScoreStream(decision, rows, columns, workers, rows.least_bytes + left - spare, spare)


def _level_outside() -> int:
    """The ``stacklevel`` with which a warning names the line outside this package that called it."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("ooc_svm."):
        frame, level = frame.f_back, level + 1
    return level


def _label_kind(model: Model) -> LabelKind:
    """What the labels in text are."""
    if model.multilabel:
        return "sets"
    return "numbers" if model.label_names is None else "text"


def score_array(model: ModelOrPath, data: Any, **options: Any) -> Float64Array:
    """Scores of every row as one array, shape (n_rows, K); see `decision_scores`."""
    with decision_scores(model, data, **options) as stream:
        parts = [block.scores for block in stream]
        stream.tell_ignored()
        return np.concatenate(parts) if parts else np.empty((0, stream.decision.scorer.n_scores))


def probability_array(model: ModelOrPath, data: Any, **options: Any) -> Float64Array:
    """Probabilities of every row as one array, see `Model.predict_proba`."""
    model = opened_model(model)
    require_probabilities(model)
    with decision_scores(model, data, **options) as stream:
        parts = [stream.decision.probabilities(block.scores) for block in stream]
        stream.tell_ignored()
        return np.concatenate(parts) if parts else np.empty((0, len(stream.decision.labels)))


def _memory_left(
    decision: Decision, rows: RowStream, columns: Columns, threads: int, memory: str | int | None
) -> int:
    """Bytes of the allowed memory that scoring does not need; MemoryBudgetError if it is not enough."""
    total = memory_budget(memory)
    tile = max(TILE_SCORES, decision.scorer.n_scores)
    items = {
        "Python and libraries": INTERPRETER_BYTES,
        "weights": decision.scorer.nbytes,
        "names of features": columns.nbytes,
        "rows being read": rows.least_bytes,
        "scores": tile * (8 * (threads + 2) + _WRITING) + threads * decision.scorer.tile_bytes,
    }
    needed = sum(items.values())
    if needed > total:
        parts = " + ".join(f"{name} {format_size(size)}" for name, size in items.items() if size)
        raise MemoryBudgetError(
            f"scoring {rows.name} needs {size_needed(needed)} of memory, allowed are {format_size(total)}: "
            f"{parts}; allow more ({parameter('memory')})",
            needed,
        )
    return total - needed
