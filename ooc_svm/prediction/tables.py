"""Predictions in a file, by the ending of its name: plain lines, or a table as CSV, TSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock
from ooc_svm.data.label_sets import SEPARATOR
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.model.decision import LABEL_SETS, Decision
from ooc_svm.system import delimited
from ooc_svm.text.writer import format_rows

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"

# Entries of a table that are written to Parquet together, as a row group.
_GROUP_ENTRIES = 1 << 20


class PredictionWriter(Protocol):
    """Writes predictions, from the scores of one block after another."""

    def begin(self, file: BinaryIO) -> None:
        """Write what comes before all rows."""

    def add(self, scores: Float64Array) -> None:
        """Write some rows."""

    def end(self) -> None:
        """Write what comes after all rows."""

    def abandon(self) -> None:
        """After an error: let go of the file, which is still open, without an error of its own."""


@dataclass(frozen=True, slots=True)
class Details:
    """What follows a label or a value: scores, probabilities of the labels, both or nothing."""

    decision: Decision
    scores: bool = False
    probabilities: bool = False

    def __bool__(self) -> bool:
        return self.scores or self.probabilities

    def names(self, score: str = "score", of: str = " of ", probability: str = "probability") -> list[str]:
        """A name for each column."""
        decision, names = self.decision, []
        if self.scores:
            several = decision.scorer.n_scores > 1 or decision.predicted == LABEL_SETS
            names += [f"{score}{of}{text}" for text in decision.texts] if several else [score]
        if self.probabilities:
            names += [f"{probability}{of}{text}" for text in decision.texts]
        return names

    def of(self, scores: Float64Array) -> Float64Array:
        """The columns, shape (n, columns)."""
        if not self.probabilities:
            return scores
        found = self.decision.probabilities(scores)
        return np.column_stack([scores, found]) if self.scores else found


def writer_for(details: Details, output: Any) -> PredictionWriter:
    """The writer for a path, by its ending, or for a stream.

    UsageError where a library is missing.
    InputError where a name of a class cannot be written as is asked for.
    """
    suffix = Path(os.fspath(output)).suffix.lower() if isinstance(output, str | os.PathLike) else ""
    if suffix == PARQUET:
        return ParquetTable(details)
    delimiter = DELIMITERS.get(suffix)
    return Lines(details, delimiter=delimiter or "\t", quoted=delimiter is not None)


def column_names(details: Details) -> list[str]:
    """The label or the value, then the details."""
    decision = details.decision
    sets = decision.predicted == LABEL_SETS
    return ["labels" if sets else "label" if decision.texts else "value", *details.names()]


class Lines:
    """A line for each row.

    Plain lines have the label or value alone, or with the details under a header; names stand there as they
    are. ``quoted`` ones always have a header, and names in quotes where they need them.
    """

    def __init__(self, details: Details, *, delimiter: str, quoted: bool) -> None:
        self._details, self._delimiter = details, delimiter
        self._decision = decision = details.decision
        if not quoted:
            _check_plain(decision.texts, with_details=bool(details))
        names = column_names(details)
        texts = list(decision.texts)
        if quoted:
            names, texts = [[delimited.quoted(text, delimiter) for text in own] for own in (names, texts)]
        self._header = f"{delimiter.join(names)}\n".encode()
        self._has_header = quoted or bool(details)
        end = delimiter if details else "\n"
        self._starts = [f"{text}{end}".encode() for text in texts]
        self._end, self._quoted = end, quoted

    def begin(self, file: BinaryIO) -> None:
        """See `PredictionWriter`."""
        self._file = file
        if self._has_header:
            file.write(self._header)

    def add(self, scores: Float64Array) -> None:
        """See `PredictionWriter`."""
        self._file.write(self._of(scores))

    def end(self) -> None:
        """See `PredictionWriter`: nothing."""

    def abandon(self) -> None:
        """See `PredictionWriter`: nothing."""

    def _of(self, scores: Float64Array) -> bytes:
        starts: list[bytes] = []
        if self._decision.predicted == LABEL_SETS:
            starts = [self._start_of_set(labels) for labels in self._decision.sets(scores)]
        elif len(self._decision.labels):
            starts = [self._starts[choice] for choice in self._decision.choices(scores).tolist()]
        if starts and not self._details:
            return b"".join(starts)
        numbers = self._details.of(scores)
        if self._details and not len(self._decision.labels):  # the score is both prediction and score
            numbers = numbers.repeat(2, axis=1)
        lines = _decimal_lines(numbers, self._delimiter)
        if not starts:
            return lines
        return b"".join([part for row in zip(starts, lines.splitlines(True), strict=True) for part in row])

    def _start_of_set(self, labels: Sequence[str]) -> bytes:
        """The field of the labels of a row; quoted where a table has it empty: an empty line is no row."""
        text = SEPARATOR.join(labels)
        if self._quoted:
            text = delimited.quoted(text, self._delimiter) or '""'
        return f"{text}{self._end}".encode()


def _check_plain(texts: Sequence[str], *, with_details: bool) -> None:
    """Refuse names that plain lines cannot hold."""
    broken = [text for text in texts if len(f"{text}.".splitlines()) > 1 or (with_details and "\t" in text)]
    if broken:
        raise InputError(
            f"the class {broken[0]!r:.80} has a line break or a tab in its name, and a row is one line; "
            f"write a table that quotes it ({parameter('output')} with the ending .csv), or predict into an "
            "array"
        )


def _decimal_lines(numbers: Float64Array, delimiter: str) -> bytes:
    """A line of numbers for each row of an array, in the fewest digits that keep them."""
    flat = numbers.reshape(-1)
    empty = RowBlock(0, np.zeros(len(flat) + 1, np.int64), np.empty(0, np.int32), None)
    text = np.frombuffer(bytearray(format_rows(LabelledRows(empty, flat))), np.uint8)
    ends = np.flatnonzero(text == ord("\n")).reshape(numbers.shape)
    text[ends[:, :-1]] = ord(delimiter)
    return text.tobytes()


class ParquetTable:
    """A table of Parquet: labels as numbers or, where they have names, as text; details as floats.

    Sets of labels are lists of text.
    """

    def __init__(self, details: Details) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise UsageError(
                "writing .parquet needs pyarrow; install it (pip install 'ooc-svm[parquet]'), or write .csv"
            ) from None
        self._pa, self._pq, self._details = pa, pq, details
        self._decision = decision = details.decision
        self._names = column_names(details)
        labels = decision.labels
        self._answers: Any = np.array(decision.texts, dtype=object) if decision.named else labels
        if not decision.named and len(labels) and (labels == np.round(labels)).all():
            self._answers = labels.astype(np.int64)
        kind = pa.string() if decision.named else pa.from_numpy_dtype(self._answers.dtype)
        self._sets = decision.predicted == LABEL_SETS
        kind = pa.list_(pa.string()) if self._sets else kind
        types = [kind if len(labels) else pa.float64(), *[pa.float64()] * (len(self._names) - 1)]
        self._schema = pa.schema(list(zip(self._names, types, strict=True)))
        self._waiting: list[Float64Array] = []
        self._n_waiting = 0  # Entries; rows may wait one by one
        self._writer: Any = None

    def begin(self, file: BinaryIO) -> None:
        """See `PredictionWriter`."""
        self._writer = self._pq.ParquetWriter(file, self._schema)

    def add(self, scores: Float64Array) -> None:
        """See `PredictionWriter`; rows wait until they are a group."""
        self._waiting.append(scores)
        self._n_waiting += scores.size
        if self._n_waiting >= _GROUP_ENTRIES:
            self._write()

    def end(self) -> None:
        """See `PredictionWriter`."""
        self._write()
        self._writer.close()

    def abandon(self) -> None:
        """See `PredictionWriter`: a writer that is not closed prints an error when it is collected."""
        if self._writer is not None:
            with suppress(Exception):  # the disk may be full
                self._writer.close()
            self._writer.is_open = False

    def _write(self) -> None:
        if not self._waiting:
            return
        scores, decision = np.concatenate(self._waiting), self._decision
        self._waiting.clear()
        self._n_waiting = 0
        if self._sets:
            first: Any = decision.sets(scores)
        else:
            first = self._answers[decision.choices(scores)] if len(decision.labels) else scores[:, 0]
        columns = [first, *(self._details.of(scores).T if self._details else ())]
        arrays = [self._pa.array(column, own.type) for column, own in zip(columns, self._schema, strict=True)]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))
