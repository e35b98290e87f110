"""Chunks of text to rows: the compiled parser with its arrays; bad lines are described or stepped over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ooc_svm.data.blocks import Int64Array, LabelledRows, RowBlock
from ooc_svm.data.classes import MAX_CLASSES
from ooc_svm.data.label_sets import MAX_SETS
from ooc_svm.text import svmlight
from ooc_svm.text.diagnostics import NO_LIMIT, FeatureLimit, explain, label_at, token_at
from ooc_svm.text.inputs import TextChunk
from ooc_svm.text.label_names import number_names
from ooc_svm.text.svmlight import RowArrays, parse_lines

# Largest number of bad lines that one step of parsing keeps; the next step finds more.
_BAD_LINES_A_STEP = 1000

_LABEL_KINDS = {"numbers": svmlight.NUMBERS, "text": svmlight.NAMES, "sets": svmlight.SETS}
_MOST_NAMES = {"text": MAX_CLASSES, "sets": MAX_SETS}
_UNREADABLE = {"text": svmlight.BAD_NAME, "sets": svmlight.BAD_SET}


@dataclass(frozen=True)
class BadLine:
    """A line that breaks a rule; lines and rows before it are counted from the start of the parsing step."""

    lines_before: int
    rows_before: int
    column: int
    text: bytes
    message: str


@dataclass(frozen=True)
class Parsed:
    """What one step of parsing made of a chunk, from byte `start` to ``state[POSITION]``.

    Labels that are names are places in ``names``, which is None where there are too many, or none.
    """

    chunk: TextChunk
    start: int
    given_rule: int
    rows: LabelledRows
    names: list[bytes] | None
    state: list[int]
    bad: list[BadLine]


class ChunkParser:
    """Parses chunks of text, in any number of threads."""

    def __init__(
        self, index_base: int, dtype: str, skip: bool, labels: str = "numbers", limit: FeatureLimit = NO_LIMIT
    ) -> None:
        self.skip, self._labels, self._limit = skip, labels, limit
        self._index_base = index_base
        self._dtype = dtype

    def parse(self, chunk: TextChunk, start: int, qid_rule: int) -> Parsed:
        """Parse from a position as far as the arrays, the bad lines kept, or the first bad line allow."""
        arrays = RowArrays.for_text(chunk.n_bytes - start, self._dtype)
        unreadable: list[int] = []
        while True:
            arrays.clear(start, qid_rule, _LABEL_KINDS[self._labels])
            bad = self._parse_lines(chunk, arrays, unreadable)
            rows = _rows(arrays)
            names: list[bytes] | None = None
            found: list[int] = []
            if self._labels != "numbers":
                names, found = number_names(chunk.buffer, rows.labels, _MOST_NAMES[self._labels])
            if not found:
                return Parsed(chunk, start, qid_rule, rows, names, arrays.state.tolist(), bad)
            # Only Python knows what is readable. It is rare that a label is not, so all is parsed again:
            # without its line, the rule for qids may be another one.
            unreadable = sorted(unreadable + found)[:_BAD_LINES_A_STEP]

    def _parse_lines(self, chunk: TextChunk, arrays: RowArrays, unreadable: list[int]) -> list[BadLine]:
        """Fill the arrays; the bad lines, to which those of labels belong that begin at `unreadable`."""
        bad: list[BadLine] = []
        labels = iter(unreadable)
        label = next(labels, None)
        while True:
            stop = chunk.n_bytes if label is None else _start_of_line(chunk, label)
            code = parse_lines(
                chunk.buffer,
                stop,
                self._index_base,
                self._limit.count,
                arrays.labels,
                arrays.qids,
                arrays.indptr,
                arrays.indices.view(np.uint32),
                arrays.values,
                arrays.state,
            )
            if code == svmlight.DONE and label is not None:
                code, arrays.state[svmlight.ERROR_OFFSET] = _UNREADABLE[self._labels], label
                label = next(labels, None)
            if code in (svmlight.DONE, svmlight.FULL):
                return bad
            bad.append(self._step_over_bad_line(chunk, code, arrays.state))
            if not self.skip or len(bad) == _BAD_LINES_A_STEP:
                return bad

    def _step_over_bad_line(self, chunk: TextChunk, code: int, state: Int64Array) -> BadLine:
        """Describe the line that the parser stopped at and move to the next one."""
        start, offset = int(state[svmlight.POSITION]), int(state[svmlight.ERROR_OFFSET])
        text = _line_at(chunk, start)
        token_from = label_at if code in _UNREADABLE.values() else token_at
        token = token_from(text, offset - start)
        message = explain(code, token, self._index_base, self._dtype, self._limit)
        lines, rows = int(state[svmlight.LINES]), int(state[svmlight.ROWS])
        bad = BadLine(lines, rows, offset - start + 1, text, message)
        state[svmlight.POSITION] = start + len(text) + 1
        state[svmlight.LINES] += 1
        return bad


def _start_of_line(chunk: TextChunk, position: int) -> int:
    """Where the line begins in which only blanks stand before a position."""
    while position > 0 and chunk.buffer[position - 1] != ord("\n"):
        position -= 1
    return position


def _line_at(chunk: TextChunk, start: int) -> bytes:
    """The line that starts at a position of a chunk, without its line feed."""
    length = 4096
    while True:
        text = chunk.buffer[start : min(start + length, chunk.n_bytes)].tobytes()
        end = text.find(b"\n")
        if end >= 0:
            return text[:end]
        length *= 4


def _rows(arrays: RowArrays) -> LabelledRows:
    """The rows parsed, counted from 0, as views: the unfilled rest of the arrays is memory never touched."""
    n_rows, n = int(arrays.state[svmlight.ROWS]), int(arrays.state[svmlight.NONZEROS])
    rows = RowBlock(
        start=0,
        indptr=arrays.indptr[: n_rows + 1],
        indices=arrays.indices[:n],
        values=arrays.values[:n] if arrays.state[svmlight.OTHER_THAN_ONE] else None,
    )
    qids = arrays.qids[:n_rows] if arrays.state[svmlight.QID_RULE] == svmlight.QID_ON_ALL else None
    return LabelledRows(rows, arrays.labels[:n_rows], qids)
