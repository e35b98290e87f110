"""Predictions for any data: labels or values, as an array or as lines of text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO, overload

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock
from ooc_svm.errors import InputError, UsageError
from ooc_svm.model.decision import Decision
from ooc_svm.model.file import check_no_model
from ooc_svm.model.model import Model
from ooc_svm.prediction.rows import Ignored
from ooc_svm.prediction.scores import ScoreStream, decision_scores
from ooc_svm.system.files import atomic_write
from ooc_svm.text.writer import format_rows


@dataclass(frozen=True, slots=True)
class Predicted:
    """Result of `predict` with an output: rows written, and what the model has no columns for."""

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
    """Predict the label of every row, or of a regressor the value.

    A score above 0 stands for the positive label, any other score for the negative one. A one-vs-rest model
    predicts the class with the largest score, the first of equals.

    Parameters
    ----------
    model, data, threads, memory, index_base, label, C
        See `ooc_svm.decision_scores`.
    output : path or binary stream, optional
        One line is written for each row: the label as in text (``1``, ``-1``, ``0.5``), the name of the
        class where the training data had names, or the value in the fewest digits that are read back as the
        same float64. A file appears whole or not at all.
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
        raise UsageError("scores are written to an output; use decision_scores to get them as arrays")
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
        if stream.rows.holds(output):
            raise UsageError(f"{os.fspath(output)}: is part of the data; choose another name to write to")
        check_no_model(output)
        written: list[Predicted] = []
        atomic_write(output, lambda file: written.append(_write(stream, lines, file)))
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
                f"the class {broken[0]!r:.80} has a line break in its name, and a row is one line; "
                "predict into an array, or rename the class and train again"
            )
        self._decision, self._with_scores = decision, with_scores
        end = " " if with_scores else "\n"
        self._starts = [f"{text}{end}".encode() for text in decision.texts]

    def of(self, scores: Float64Array) -> bytes:
        """One line for each row."""
        starts: list[bytes] = []
        if len(self._decision.labels):
            starts = [self._starts[choice] for choice in self._decision.choices(scores).tolist()]
            if not self._with_scores:
                return b"".join(starts)
        elif self._with_scores:  # the score is both prediction and score
            scores = scores.repeat(2, axis=1)
        lines = _decimal_lines(scores)
        if not starts:
            return lines
        return b"".join([part for row in zip(starts, lines.splitlines(True), strict=True) for part in row])


def _decimal_lines(numbers: Float64Array) -> bytes:
    """A line of numbers for each row of an array, in the fewest digits that keep the float64."""
    flat = numbers.reshape(-1)
    empty = RowBlock(0, np.zeros(len(flat) + 1, np.int64), np.empty(0, np.int32), None)
    text = np.frombuffer(bytearray(format_rows(LabelledRows(empty, flat))), np.uint8)
    ends = np.flatnonzero(text == ord("\n")).reshape(numbers.shape)
    text[ends[:, :-1]] = ord(" ")
    return text.tobytes()
