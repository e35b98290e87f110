"""Scores of any data, streamed in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

from ooc_svm.data.blocks import Float64Array, Int64Array, tiles
from ooc_svm.errors import MemoryBudgetError, UsageError
from ooc_svm.model.decision import Decision, select_C
from ooc_svm.model.model import Model
from ooc_svm.prediction.rows import Ignored, RowStream, StreamBlock, open_rows
from ooc_svm.system.memory import INTERPRETER_BYTES, format_size, memory_budget

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
        One column for each function that predicts; of one-vs-rest in ascending order of the classes.
    labels : ndarray of float64, shape (n_rows,), or None
        Labels of the rows, if the data have any.
    qids : ndarray of int64, shape (n_rows,), or None
        Query ids of the rows, if the data have any.
    """

    start: int
    scores: Float64Array
    labels: Float64Array | None
    qids: Int64Array | None = None


class ScoreStream(Iterator[ScoreBlock]):
    """Scores of any data, in row order; made by `decision_scores`. A context manager.

    Closing it ends its threads before the end of the data.

    Attributes
    ----------
    decision : Decision
        What the scores mean.
    rows : RowStream
        The rows that are scored.
    ignored : Ignored
        Rows and entries of columns that the model does not have, up to the last block returned.
    spare_bytes : int
        Part of the allowed memory that is left to the consumer of the scores.
    """

    def __init__(
        self, decision: Decision, rows: RowStream, threads: int, memory_bytes: int, spare_bytes: int
    ) -> None:
        self.decision, self.rows, self.ignored = decision, rows, Ignored()
        self.spare_bytes, self._threads = spare_bytes, threads
        self._tile_rows = max(TILE_SCORES // decision.scorer.n_scores, 1)
        self._steps = self._run(memory_bytes)

    def __next__(self) -> ScoreBlock:
        return next(self._steps)

    def close(self) -> None:
        """Stop; there are no more blocks after that."""
        self._steps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self, memory_bytes: int) -> Generator[ScoreBlock, None, None]:
        threads, n_features = self._threads, self.decision.scorer.n_features
        with (
            ThreadPoolExecutor(threads, thread_name_prefix="score") as pool,
            closing(self.rows.blocks(n_features, pool, threads, memory_bytes)) as blocks,
        ):
            for block in blocks:
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


def decision_scores(
    model: Model,
    data: Any,
    *,
    labels: Any = None,
    qid: Any = None,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    C: float | None = None,
    spare_share: float = 0.0,
) -> ScoreStream:
    """Scores of every row, such as ``f_k(x) = w_k.x + b_k``, block after block in row order.

    Columns that the model does not have are ignored and counted. Text is read as `ooc_svm.convert` would
    have stored it for training: values are rounded to the type of the training data.

    Parameters
    ----------
    model : Model
    data : path, paths, Store or matrix
        A store (a folder or a name that ends in ``.zarr``), SVMlight text (one file or several, ``-`` is
        standard input), an open store, or rows in memory.
    labels : array_like of shape (n_rows,), optional
        Labels of the rows of a matrix.
    qid : array_like of int, shape (n_rows,), optional
        Query ids of the rows of a matrix.
    threads : int, optional
        By default all processors that the process may use. The scores do not depend on it.
    memory : str or int, optional
        Bytes or a size like ``"600MB"``; by default half of what the process may use.
    index_base : {0, 1}, optional
        Number of the first column in text; by default that of the model's training data.
    label : str, optional
        Column of an AnnData store that holds the labels.
    C : float, optional
        Which functions predict, of a model trained with several values of C; see `Model.selected`.
    spare_share : float
        Share of the memory that is not needed for scoring to leave to the caller, as ``spare_bytes``.

    Returns
    -------
    ScoreStream
        An iterator of `ScoreBlock`; ``ignored`` counts what was ignored.

    Raises
    ------
    UsageError
        If an option is not possible, or the data are of no known kind.
    MemoryBudgetError
        If `memory` is too small; the message holds the sum.
    InputError
        If there are no such data; while reading, for bad text or a score that is not finite.
    DamageError, StorageError
        If a store is damaged, or reading fails.
    """
    decision = Decision.of(select_C(model, C))
    base = model.index_base if index_base is None else index_base
    dtype = "float64" if model.report.get("value_type") == "float64" else "float32"
    rows = open_rows(data, labels, qid=qid, index_base=base, dtype=dtype, label=label)
    if threads is not None and threads < 1:
        raise UsageError(f"threads must be at least 1, not {threads}")
    workers = threads or len(os.sched_getaffinity(0))
    left = _memory_left(decision, rows, workers, memory)
    spare = int(spare_share * left)
    return ScoreStream(decision, rows, workers, rows.least_bytes + left - spare, spare)


def _memory_left(decision: Decision, rows: RowStream, threads: int, memory: str | int | None) -> int:
    """Bytes of the allowed memory that scoring does not need; MemoryBudgetError if it is not enough."""
    total = memory_budget(memory)
    tile = max(TILE_SCORES, decision.scorer.n_scores)
    items = {
        "Python and libraries": INTERPRETER_BYTES,
        "weights": decision.scorer.nbytes,
        "rows being read": rows.least_bytes,
        "scores": tile * (8 * (threads + 2) + _WRITING),
    }
    needed = sum(items.values())
    if needed > total:
        parts = " + ".join(f"{name} {format_size(size)}" for name, size in items.items())
        raise MemoryBudgetError(
            f"scoring {rows.name} needs {format_size(needed)} of memory, allowed are {format_size(total)}: "
            f"{parts}; allow more with --memory"
        )
    return total - needed
