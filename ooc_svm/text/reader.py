"""SVMlight text inputs to blocks of rows: parsed in threads, yielded in the order of the inputs."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, Literal

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import InputError, OocSvmError, StorageError, UsageError, parameter
from ooc_svm.system.files import is_same_file
from ooc_svm.text import svmlight
from ooc_svm.text.ahead import inspected, opened_in_order
from ooc_svm.text.chunk_parser import BadLine, ChunkParser, Parsed
from ooc_svm.text.diagnostics import NO_LIMIT, FeatureLimit
from ooc_svm.text.inputs import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    READ_BYTES,
    FileState,
    InputMetadata,
    LineTooLongError,
    TextChunk,
    TextInput,
    current_state,
    display_name,
)
from ooc_svm.text.label_names import LabelNames
from ooc_svm.text.label_set_names import LabelSetNames

InputPath = str | os.PathLike[str]

REJECTED = re.compile(rb"# .+:\d+:\d+: ")
"""How a line above a bad line in a reject file begins: with the place."""


@dataclass
class TextCounts:
    """What was read so far.

    ``lines`` are all lines; ``blank_lines``, ``comment_lines`` and ``bad_lines`` those without a row.
    ``explicit_zeros`` are not stored, but ``n_features`` counts columns up to the last one named, theirs
    included.
    """

    rows: int = 0
    nonzeros: int = 0
    lines: int = 0
    blank_lines: int = 0
    comment_lines: int = 0
    bad_lines: int = 0
    explicit_zeros: int = 0
    n_features: int = 0

    def __add__(self, other: TextCounts) -> TextCounts:
        """Counts of both texts together."""
        sums = {name: number + getattr(other, name) for name, number in vars(self).items()}
        return TextCounts(**sums | {"n_features": max(self.n_features, other.n_features)})

    def __sub__(self, other: TextCounts) -> TextCounts:
        """The counts without those of a text read before; the columns are those of all."""
        rest = {name: number - getattr(other, name) for name, number in vars(self).items()}
        return TextCounts(**rest | {"n_features": self.n_features})


@dataclass(frozen=True)
class TextSegment:
    """Lines of one input, and how many lines of this input stand before them.

    ``state`` is the file as it must be when it is read; ``extent`` has start and stop of the lines, in bytes,
    or is None for the whole input.
    """

    path: str
    state: FileState | None
    extent: tuple[int, int] | None = None
    lines_before: int = 0


@dataclass(frozen=True)
class TextStart:
    """What is known of the text before the first row: counts of all inputs so far, and the qid rule."""

    counts: TextCounts = field(default_factory=TextCounts)
    qid_rule: int = svmlight.QID_UNKNOWN  # as `parse_lines` takes it


def _read_ahead(chunks: Iterator[TextChunk], pool: ThreadPoolExecutor) -> Generator[TextChunk, None, None]:
    """The same chunks, each read while the one before is in use."""
    upcoming = pool.submit(next, chunks, None)
    try:
        while (chunk := upcoming.result()) is not None:
            upcoming = pool.submit(next, chunks, None)
            yield chunk
    finally:
        wait([upcoming])


def _parse_in_order(
    chunks: Iterator[TextChunk],
    parse: Callable[[TextChunk], Parsed],
    pool: ThreadPoolExecutor,
    in_flight: int,
) -> Generator[Parsed, None, None]:
    """Parse chunks in the threads of a pool; the results, and then what made reading fail, in order."""
    pending: deque[Future[Parsed]] = deque()
    failure: OocSvmError | None = None
    try:
        while True:
            try:
                chunk = next(chunks, None)
            except OocSvmError as error:
                failure = error
                break
            if chunk is None:
                break
            pending.append(pool.submit(parse, chunk))
            if len(pending) > in_flight:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if failure is not None:
            raise failure
    finally:
        for future in pending:
            future.cancel()


class TextRows:
    """Rows of SVMlight text files, in order: an iterable of `LabelledRows`.

    ``rows.start`` counts over all inputs, ``values`` is None where all values of a block are 1, and ``qids``
    is None when the rows have none. Every iteration reads the inputs from their start (standard input can be
    read only once).

    Parameters
    ----------
    inputs : path or sequence of paths
        Files, plain or compressed (gzip, bzip2, xz, zstd), read one after another; ``-`` is standard input.
        A `TextSegment` may stand for a path.
    start : TextStart, optional
        What was read before, where these inputs go on; then there need not be rows in them.
    index_base : {1, 0}
        Index of the first column in the text.
    limit : FeatureLimit
        A line with an index beyond it breaks a rule.
    dtype : {"float32", "float64"}
        Type of the values. Decimals are rounded to float64 and then, for float32, once more.
    labels : {"numbers", "text", "sets"}
        What the labels are: numbers, names of classes, or sets of labels with commas between them. Names and
        sets are numbered as they appear.
    threads : int
        Threads that parse. The rows do not depend on it.
    bad_lines : {"stop", "skip"}
        What happens at a line that breaks a rule: InputError, or it is left out and counted.
    max_bad_lines : int, optional
        With "skip": InputError when there are more.
    reject_file : path, optional
        With "skip": gets the bad lines, each after a comment with its place and what is wrong.
    chunk_bytes, read_bytes, max_line_bytes : int
        Sizes of the chunks of text that are parsed, of the largest read of a file, and of the longest line
        accepted, without its line feed.
    names_bytes : int, optional
        Memory that the names of sets of labels may take; MemoryBudgetError where they take more.
    progress : callable, optional
        Called after every chunk with the bytes read of all inputs so far, as they are on disk.

    Notes
    -----
    ``label_names`` are the names of labels, or of their sets, so far, None where labels are numbers.
    ``counts``, ``opened`` and ``qid_rule`` (as `parse_lines` takes it) are those of the last iteration, up to
    its last block, which is from ``segment``. ``total_bytes`` is the size of all inputs as they are on disk,
    None if standard input is one of them.

    UsageError is raised for options that make no sense. InputError is raised at once if an input is missing,
    empty, not a regular file, UTF-16 or not what its suffix says; during the iteration for bad text, damaged
    or truncated compressed data, no rows at all, or a file that changes while it is read. StorageError says
    that reading an input or writing the reject file failed.
    """

    def __init__(
        self,
        inputs: Sequence[InputPath | TextSegment] | InputPath,
        *,
        start: TextStart | None = None,
        index_base: int = 1,
        limit: FeatureLimit = NO_LIMIT,
        dtype: str = "float32",
        labels: Literal["numbers", "text", "sets"] = "numbers",
        threads: int = 1,
        bad_lines: Literal["stop", "skip"] = "stop",
        max_bad_lines: int | None = None,
        reject_file: InputPath | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        read_bytes: int = READ_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
        names_bytes: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        names = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
        if index_base not in (0, 1):
            raise UsageError(f"index_base is {index_base!r}: 0 or 1")
        if dtype not in ("float32", "float64"):
            raise UsageError(f"dtype is {dtype!r}: float32 or float64")
        if bad_lines not in ("stop", "skip"):
            raise UsageError(f"bad_lines is {bad_lines!r}: stop or skip")
        if bad_lines == "stop" and (max_bad_lines is not None or reject_file is not None):
            raise UsageError("max_bad_lines and reject_file need bad_lines='skip'")
        if min(threads, chunk_bytes, read_bytes, max_line_bytes) < 1 or (max_bad_lines or 0) < 0:
            raise UsageError(
                "threads, chunk_bytes, read_bytes and max_line_bytes are at least 1, max_bad_lines at least 0"
            )
        self._segments = _find_segments(names, read_bytes, reject_file)
        self._parser = ChunkParser(index_base, dtype, bad_lines == "skip", labels, limit)
        self.label_names = new_label_names(labels, names_bytes)
        self._whole = start is None
        self._start = start or TextStart()
        self._threads = threads
        self._max_bad_lines = max_bad_lines
        self._reject_path = None if reject_file is None else os.fspath(reject_file)
        self._reject: IO[bytes] | None = None
        self._chunk_bytes, self._read_bytes = chunk_bytes, read_bytes
        self._max_line_bytes, self._progress = max_line_bytes, progress
        self.counts = TextCounts()
        self.qid_rule = svmlight.QID_UNKNOWN
        self.opened: list[InputMetadata] = []
        self.segment = self._segments[0]
        sizes = [None if segment.state is None else segment.state.size for segment in self._segments]
        self.total_bytes = None if None in sizes else sum(filter(None, sizes))

    def __iter__(self) -> Iterator[LabelledRows]:
        self.counts = replace(self._start.counts)
        self.qid_rule = self._start.qid_rule
        self.opened = []
        if self.label_names is not None:
            self.label_names.clear()
        with ExitStack() as stack:
            if self._reject_path is not None:
                self._reject = stack.enter_context(_reject_file(self._reject_path))
            # One thread more for reading; without threads everything happens in the caller's.
            pool = stack.enter_context(ThreadPoolExecutor(self._threads + 1)) if self._threads > 1 else None
            bytes_before = 0
            opened = stack.enter_context(opened_in_order(self._segments, self._read_bytes))
            for segment, text in zip(self._segments, opened, strict=True):
                self.segment = segment
                with text, closing(self._steps(text, pool)) as steps:
                    if not _is_same(text.state, segment.state):
                        raise InputError(f"{text.name}: the file changed after the start: start again")
                    self.opened.append(text.metadata)
                    yield from self._input_rows(text, steps, bytes_before)
                    bytes_before += text.bytes_read
        if self._whole:
            require_rows(self.counts, self.opened)

    def require_unchanged(self) -> None:
        """Raise InputError if the input under way is no longer the file it was; to end before its end."""
        expected = self.segment.state
        if expected is not None and not _is_same(current_state(self.segment.path), expected):
            raise InputError(
                f"{display_name(self.segment.path)}: the file changed while it was read: start again when it "
                "is complete"
            )

    def _steps(self, text: TextInput, pool: ThreadPoolExecutor | None) -> Generator[Parsed, None, None]:
        """Parse the chunks of an input, in order."""
        chunks = text.chunks(self._chunk_bytes, self._max_line_bytes)
        if pool is None:
            yield from map(self._parse, chunks)
            return
        # Reading standard input may wait for ever: only the caller's thread can be interrupted there.
        ahead = chunks if text.state is None else _read_ahead(chunks, pool)
        with closing(ahead), closing(_parse_in_order(ahead, self._parse, pool, self._threads + 1)) as steps:
            yield from steps

    def _parse(self, chunk: TextChunk) -> Parsed:
        return self._parser.parse(chunk, 0, self.qid_rule)

    def _input_rows(
        self, text: TextInput, steps: Iterator[Parsed], bytes_before: int
    ) -> Iterator[LabelledRows]:
        """Rows of one input; completes messages with its line numbers."""
        name, first_line = text.name, self.counts.lines - self.segment.lines_before
        try:
            for parsed in steps:
                yield from self._chunk_rows(parsed, name, first_line)
                text.recycle(parsed.chunk)
                if self._progress is not None:
                    self._progress(bytes_before + parsed.chunk.bytes_read)
        except LineTooLongError as error:
            line = self.counts.lines - first_line + 1
            raise InputError(f"{name}:{line}: {error}: is this SVMlight text?") from error

    def _chunk_rows(self, parsed: Parsed, name: str, first_line: int) -> Iterator[LabelledRows]:
        """Rows of a chunk: of the first parsing step, and of more steps if that did not reach its end."""
        parser = self._parser
        while True:
            rule = self.qid_rule
            # Parse again what was parsed before it was known whether rows have a qid, if that may matter.
            if parsed.given_rule != rule and (
                parsed.bad or parsed.state[svmlight.QID_RULE] not in (svmlight.QID_UNKNOWN, rule)
            ):
                parsed = parser.parse(parsed.chunk, parsed.start, rule)
            for number, bad in enumerate(parsed.bad, self.counts.bad_lines + 1):
                self._refuse(bad, number, name, first_line)
            rows = self._count(parsed, name)
            if rows.rows.n_rows > 0:
                yield rows
            position = parsed.state[svmlight.POSITION]
            if position == parsed.chunk.n_bytes:
                return
            parsed = parser.parse(parsed.chunk, position, self.qid_rule)

    def _count(self, parsed: Parsed, name: str) -> LabelledRows:
        """Add a step to the counts; return its rows, numbered, and of labels that are names the numbers."""
        counts, state = self.counts, parsed.state
        block = parsed.rows.rows
        rows = RowBlock(counts.rows, block.indptr, block.indices, block.values)
        counts.rows += state[svmlight.ROWS]
        counts.nonzeros += state[svmlight.NONZEROS]
        counts.lines += state[svmlight.LINES]
        counts.blank_lines += state[svmlight.BLANK_LINES]
        counts.comment_lines += state[svmlight.COMMENT_LINES]
        counts.bad_lines += len(parsed.bad)
        counts.explicit_zeros += state[svmlight.EXPLICIT_ZEROS]
        counts.n_features = max(counts.n_features, state[svmlight.N_FEATURES])
        if state[svmlight.ROWS] > 0:
            self.qid_rule = state[svmlight.QID_RULE]
        labels = parsed.rows.labels
        if self.label_names is not None and len(labels):
            labels = self.label_names.renumber(labels, parsed.names, name)
        return LabelledRows(rows, labels, parsed.rows.qids)

    def _refuse(self, bad: BadLine, number: int, name: str, first_line: int) -> None:
        """Write a bad line to the reject file, or stop if there are too many; `number` counts from 1."""
        line = self.counts.lines - first_line + bad.lines_before + 1
        row = self.counts.rows + bad.rows_before + 1
        where = f"{name}:{line}:{bad.column}"
        if not self._parser.skip:
            raise InputError(f"{where}: {bad.message} (row {row})")
        if self._max_bad_lines is not None and number > self._max_bad_lines:
            raise InputError(f"{where}: {bad.message} (row {row}; more than {self._max_bad_lines} bad lines)")
        if self._reject is not None:
            note = f"# {where}: {bad.message}\n".encode(errors="surrogateescape")
            self._reject.write(note + bad.text + b"\n")


def require_rows(counts: TextCounts, inputs: Sequence[InputMetadata]) -> None:
    """Raise InputError if there is not one row in inputs that were read to their ends."""
    if counts.rows == 0:
        name = inputs[0].name if len(inputs) == 1 else f"{len(inputs)} inputs"
        if counts.bad_lines:
            raise InputError(
                f"{name}: no rows: {counts.bad_lines} bad lines, and else only blank ones and comments; "
                f"leave {parameter('bad_lines', 'skip')} out to see what is wrong with the first"
            )
        raise InputError(f"{name}: no rows, only blank lines and comments: give SVMlight text")


def _is_same(state: FileState | None, expected: FileState | None) -> bool:
    return state == expected or (state is not None and state.anywhere() == expected)


def new_label_names(labels: str, max_bytes: int | None = None) -> LabelNames | None:
    """No names yet of labels that are "text" or "sets"; None where they are numbers.

    `max_bytes`: limit of the memory that names of sets take.
    """
    if labels == "sets":
        return LabelSetNames(max_bytes)
    return LabelNames() if labels == "text" else None


@contextmanager
def _reject_file(path: str) -> Iterator[IO[bytes]]:
    """An empty file to write to; failures to open, write or close it are raised as StorageError."""
    try:
        with open(path, "wb") as file:
            yield file
    except StorageError:  # of an input
        raise
    except OSError as error:
        raise StorageError(
            f"{display_name(path)}: cannot be written: {error.strerror}; free space or check permissions"
        ) from error


def _find_segments(
    inputs: Sequence[InputPath | TextSegment], read_bytes: int, reject_file: InputPath | None
) -> list[TextSegment]:
    """Open and close every file given by its name, so that a bad one is found before the first row."""
    if not inputs:
        raise UsageError("no input: name at least one file, or - for standard input")
    if inputs.count("-") > 1:
        raise UsageError("standard input (-) is named twice, but can be read only once")
    named = [os.fspath(each) for each in inputs if not isinstance(each, TextSegment) and each != "-"]
    texts = iter(inspected(named, read_bytes))
    for path in named:
        if reject_file is not None and is_same_file(reject_file, path):
            raise UsageError(
                f"{display_name(path)} is an input, so the bad lines cannot go there: name another file"
            )
    return [
        each
        if isinstance(each, TextSegment)
        else TextSegment("-", None)
        if each == "-"
        else TextSegment(os.fspath(each), next(texts).state)
        for each in inputs
    ]
