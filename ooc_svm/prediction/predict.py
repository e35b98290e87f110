"""Streamed prediction: scores of any data in bounded memory, and the labels they stand for."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self, overload

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, LabelledRows, RowBlock, tiles
from ooc_svm.errors import InputError, MemoryBudgetError, UsageError
from ooc_svm.model.decision import Decision, select_C
from ooc_svm.model.model import MODEL_FILE, Model
from ooc_svm.prediction.rows import Ignored, RowStream, StreamBlock, open_rows
from ooc_svm.system.arrayfile import has_magic
from ooc_svm.system.files import atomic_write
from ooc_svm.system.memory import INTERPRETER_BYTES, format_size, memory_budget
from ooc_svm.text.writer import format_rows

# Rows are scored in tiles: at most so many scores and, rows of more apart, so many stored values.
TILE_SCORES = 1 << 16
TILE_ELEMENTS = 1 << 18

# Bytes of a score that is written, its Python objects included.
_WRITING = 160


@dataclass(frozen=True, slots=True)
class ScoreBlock:
    """Scores of consecutive rows.

    Attributes
    ----------
    start : int
        Number of the first row in the whole data, from 0.
    scores : ndarray of float64, shape (n_rows, K)
        One column for each function that predicts; of one-vs-rest the classes ascending.
    labels : ndarray of float64, shape (n_rows,), or None
        The labels the data bring, if they do.
    qids : ndarray of int64, shape (n_rows,), or None
        The group numbers the data bring, if they do.
    """

    start: int
    scores: Float64Array
    labels: Float64Array | None
    qids: Int64Array | None = None


class ScoreStream(Iterator[ScoreBlock]):
    """Scores of any data, in row order; made by `decision_scores`.

    Closing it (it is a context manager) ends its threads before the end of the data.

    Attributes
    ----------
    decision : Decision
        What the scores decide.
    rows : RowStream
        Where the rows come from.
    ignored : Ignored
        Rows and entries of columns that the model does not have, up to the block given last.
    spare_bytes : int
        Part of the memory allowed that is left to who takes the scores.
    """

    def __init__(
        self, decision: Decision, rows: RowStream, threads: int, memory_bytes: int, spare_bytes: int
    ) -> None:
        self.decision = decision
        self.rows = rows
        self.ignored = Ignored()
        self.spare_bytes = spare_bytes
        self._threads = threads
        self._tile_rows = max(TILE_SCORES // decision.n_scores, 1)
        self._steps = self._run(memory_bytes)

    def __next__(self) -> ScoreBlock:
        return next(self._steps)

    def close(self) -> None:
        """Stop; there are no more blocks then."""
        self._steps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, memory_bytes: int) -> Generator[ScoreBlock, None, None]:
        threads, n_features = self._threads, self.decision.n_features
        with (
            ThreadPoolExecutor(threads, thread_name_prefix="score") as pool,
            closing(self.rows.blocks(n_features, pool, threads, memory_bytes)) as blocks,
        ):
            for block in blocks:
                self.ignored.rows += block.ignored.rows
                self.ignored.entries += block.ignored.entries
                yield from self._score(block, pool)

    def _score(self, block: StreamBlock, pool: ThreadPoolExecutor) -> Generator[ScoreBlock, None, None]:
        """Score a block in tiles, a few of them at once."""
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
            wait([future for _, _, future in pending])  # the block's arrays are used again


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
    """Scores ``f_k(x) = w_k.x + b_k`` of every row, block after block in row order.

    Columns that the model does not have are left out and counted. Text is read as `ooc_svm.convert` would
    have stored it for the training: values are rounded to the type of the training data.

    Parameters
    ----------
    model : Model
    data : path, paths, Store or matrix
        A store (a folder or a name that ends in ``.zarr``), SVMlight text (one file or several, ``-`` is
        standard input), an open store, or rows in memory.
    labels : array_like of shape (n_rows,), optional
        Labels of the rows of a matrix.
    qid : array_like of int, shape (n_rows,), optional
        Group numbers of the rows of a matrix.
    threads : int, optional
        All that the process may use by default. The scores do not depend on it.
    memory : str or int, optional
        Bytes or a size like ``"600MB"``; by default half of what the process may use.
    index_base : {0, 1}, optional
        What text calls the first column; that of the model by default.
    label : str, optional
        Column of an AnnData store that holds the labels.
    C : float, optional
        Which functions predict, of a model trained with several values of C; see `Model.selected`.
    spare_share : float
        Share of the memory beside what is needed that is left alone, as ``spare_bytes``.

    Returns
    -------
    ScoreStream
        An iterator of `ScoreBlock`; ``ignored`` counts what was left out.

    Raises
    ------
    UsageError
        Options that are not possible, or data of no known kind.
    MemoryBudgetError
        If `memory` is too small; the message holds the sum.
    InputError
        At once: there are no such data. While reading: bad text, or a score that is not finite.
    DamageError, StorageError
        A store is damaged, or reading fails.
    """
    chosen = select_C(model, C)
    decision = Decision.of(chosen)
    base = model.index_base if index_base is None else index_base
    rows = open_rows(data, labels, qid=qid, index_base=base, dtype=_text_dtype(model), label=label)
    workers = usable_threads(threads)
    left = memory_left(model, decision, rows, workers, memory)
    spare = int(spare_share * left)
    return ScoreStream(decision, rows, workers, rows.least_bytes + left - spare, spare)


def usable_threads(threads: int | None) -> int:
    """Threads asked for, else all that the process may use; UsageError below 1."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads must be at least 1, not {threads}")
    return threads or len(os.sched_getaffinity(0))


def memory_left(
    model: Model, decision: Decision, rows: RowStream, threads: int, memory: str | int | None
) -> int:
    """Bytes of the memory allowed beside what is needed; MemoryBudgetError if it is not enough."""
    total = memory_budget(memory)
    tile = max(TILE_SCORES, decision.n_scores)
    items = {
        "Python and libraries": INTERPRETER_BYTES,
        "weights": model.weights.nbytes + (decision.weights.nbytes if decision.n_scores > 1 else 0),
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


def _text_dtype(model: Model) -> str:
    return "float64" if model.report.get("value_type") == "float64" else "float32"


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was written.

    Attributes
    ----------
    rows : int
    ignored : Ignored
        Rows and entries of columns that the model does not have.
    """

    rows: int
    ignored: Ignored


@overload
def predict(
    model: Model,
    data: Any,
    *,
    output: None = None,
    scores: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    C: float | None = None,
) -> npt.NDArray[Any]: ...


@overload
def predict(
    model: Model,
    data: Any,
    *,
    output: str | os.PathLike[str] | BinaryIO,
    scores: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    C: float | None = None,
) -> Predicted: ...


def predict(
    model: Model,
    data: Any,
    *,
    output: str | os.PathLike[str] | BinaryIO | None = None,
    scores: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    C: float | None = None,
) -> npt.NDArray[Any] | Predicted:
    """Predict the label of every row, or with a regressor the value.

    A score above 0 stands for the positive label, any other for the negative one. Of one-vs-rest the class
    of the largest score is predicted, the first of equals.

    Parameters
    ----------
    model, data, threads, memory, index_base, label, C
        See `decision_scores`.
    output : path or binary stream, optional
        Gets a line for each row: the label as text has it (``1``, ``-1``, ``0.5``), the name of the class
        where the training data had names, or the value in the fewest digits that make the same float64
        again. A file appears whole or not at all.
    scores : bool
        Whether the scores follow on the line, separated by blanks and written as values are. Only with
        `output`; `decision_scores` gives them as arrays.

    Returns
    -------
    ndarray of float64 or str, shape (n_rows,)
        Without `output`: labels, names of classes, or values.
    Predicted
        With `output`.

    Raises
    ------
    UsageError
        Also if `output` is part of the data, or a model.
    StorageError
        Also if `output` cannot be written.
    """
    if scores and output is None:
        raise UsageError("scores are written to an output; take decision_scores to get them as arrays")
    stream = decision_scores(
        model, data, threads=threads, memory=memory, index_base=index_base, label=label, C=C
    )
    with stream:
        if output is None:
            named = model.label_names is not None
            parts = [stream.decision.predictions(block.scores, named=named) for block in stream]
            return np.concatenate(parts) if parts else stream.decision.predictions(np.empty((0, 1)))
        lines = _Lines(stream.decision, scores)
        if not isinstance(output, str | os.PathLike):
            return _write(stream, lines, output)
        return _write_file(stream, lines, output)


def _write_file(stream: ScoreStream, lines: _Lines, path: str | os.PathLike[str]) -> Predicted:
    if stream.rows.holds(path):
        raise UsageError(f"{os.fspath(path)}: is what rows are read from; choose another name to write to")
    if has_magic(path, MODEL_FILE):
        raise UsageError(f"{os.fspath(path)}: is a model of ooc-svm; choose another name to write to")
    written: list[Predicted] = []
    atomic_write(path, lambda file: written.append(_write(stream, lines, file)))
    return written[0]


def _write(stream: ScoreStream, lines: _Lines, file: BinaryIO) -> Predicted:
    n_rows = 0
    for block in stream:
        file.write(lines.of(block.scores))
        n_rows += len(block.scores)
    return Predicted(n_rows, stream.ignored)


class _Lines:
    """Predictions as lines of text."""

    def __init__(self, decision: Decision, with_scores: bool) -> None:
        broken = [text for text in decision.texts if len(f"{text}.".splitlines()) > 1]
        if broken:
            raise InputError(
                f"the class {broken[0]!r:.80} has a line break in its name, and a line a row is written; "
                "predict into an array, or rename the class and train again"
            )
        self._decision = decision
        self._with_scores = with_scores
        end = " " if with_scores else "\n"
        self._starts = [f"{text}{end}".encode() for text in decision.texts]

    def of(self, scores: Float64Array) -> bytes:
        """One line for each row."""
        starts: list[bytes] = []
        if len(self._decision.labels):
            starts = [self._starts[choice] for choice in self._decision.choices(scores).tolist()]
            if not self._with_scores:
                return b"".join(starts)
        elif self._with_scores:  # the value is the prediction, and the score as well
            scores = scores.repeat(2, axis=1)
        lines = _decimal_lines(scores)
        if starts:
            lines = b"".join(
                [part for row in zip(starts, lines.splitlines(True), strict=True) for part in row]
            )
        return lines


def _decimal_lines(numbers: Float64Array) -> bytes:
    """A line of numbers for each row of an array, in the fewest digits that make the same float64 again."""
    flat = numbers.reshape(-1)
    empty = RowBlock(0, np.zeros(len(flat) + 1, np.int64), np.empty(0, np.int32), None)
    text = np.frombuffer(bytearray(format_rows(LabelledRows(empty, flat))), np.uint8)
    ends = np.flatnonzero(text == ord("\n")).reshape(numbers.shape)
    text[ends[:, :-1]] = ord(" ")
    return text.tobytes()
