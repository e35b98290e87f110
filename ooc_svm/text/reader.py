"""SVMlight text inputs to blocks of rows: parsed in threads, given in the order of the input."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, Literal

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import InputError, OocSvmError, StorageError, UsageError
from ooc_svm.text.chunk_parser import BadLine, BlockParser, Parsed
from ooc_svm.text.inputs import (
    BLOCK_BYTES,
    MAX_LINE_BYTES,
    READ_BYTES,
    FileState,
    LineTooLongError,
    TextBlock,
    TextSource,
    display_name,
    open_source,
)
from ooc_svm.text.svmlight import (
    BLANK_LINES,
    COMMENT_LINES,
    EXPLICIT_ZEROS,
    LINES,
    N_FEATURES,
    NONZEROS,
    POSITION,
    QID_RULE,
    QID_UNKNOWN,
    ROWS,
)

Input = str | os.PathLike[str]


@dataclass
class TextCounts:
    """What was read so far.

    Attributes
    ----------
    rows, nonzeros : int
        Rows and stored values given.
    lines, blank_lines, comment_lines, bad_lines : int
        All lines, and those without a row.
    explicit_zeros : int
        Features with value 0, which are not stored.
    n_features : int
        Columns up to the last one named, explicit zeros included.
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
        """Of both texts together."""
        sums = {name: number + getattr(other, name) for name, number in vars(self).items()}
        return TextCounts(**sums | {"n_features": max(self.n_features, other.n_features)})

    def __sub__(self, other: TextCounts) -> TextCounts:
        """What has come on top of the other; the columns are those of all."""
        rest = {name: number - getattr(other, name) for name, number in vars(self).items()}
        return TextCounts(**rest | {"n_features": self.n_features})


@dataclass(frozen=True)
class SourceFacts:
    """Where rows came from.

    Attributes
    ----------
    name : str
    size : int or None
        Bytes of the file as it is on disk; None for standard input.
    mtime_ns : int or None
        Time of its last change, in nanoseconds; None for standard input.
    compression : str or None
        ``gzip``, ``bzip2``, ``xz`` or ``zstd``.
    """

    name: str
    size: int | None
    mtime_ns: int | None
    compression: str | None


@dataclass(frozen=True)
class TextPart:
    """Lines of one input, and how many lines and rows of this input stand before them.

    Attributes
    ----------
    path : str
    state : FileState or None
        The file as it must be when it is read.
    span : (int, int) or None
        Its bytes that are read; None for all of them.
    lines_before, rows_before : int
    """

    path: str
    state: FileState | None
    span: tuple[int, int] | None = None
    lines_before: int = 0
    rows_before: int = 0


@dataclass(frozen=True)
class TextStart:
    """What the rows before the first one have to do with those that follow.

    Attributes
    ----------
    counts : TextCounts
        Of all inputs so far.
    qid_rule : int
        Whether rows have a qid, as `parse_lines` takes it.
    """

    counts: TextCounts = field(default_factory=TextCounts)
    qid_rule: int = QID_UNKNOWN


def _read_ahead(blocks: Iterator[TextBlock], pool: ThreadPoolExecutor) -> Generator[TextBlock, None, None]:
    """The same blocks, the next one being read while the last one is worked on."""
    upcoming = pool.submit(next, blocks, None)
    try:
        while (block := upcoming.result()) is not None:
            upcoming = pool.submit(next, blocks, None)
            yield block
    finally:
        wait([upcoming])


def _parse_in_order(
    blocks: Iterator[TextBlock],
    parse: Callable[[TextBlock], Parsed],
    pool: ThreadPoolExecutor,
    in_flight: int,
) -> Generator[Parsed, None, None]:
    """Parse blocks in the threads of a pool; the results, and then what made reading fail, in order."""
    pending: deque[Future[Parsed]] = deque()
    failure: OocSvmError | None = None
    try:
        while True:
            try:
                block = next(blocks, None)
            except OocSvmError as error:
                failure = error
                break
            if block is None:
                break
            pending.append(pool.submit(parse, block))
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
    """Rows of SVMlight text, block after block; made by `read_rows`.

    Every iteration reads the inputs from their start (standard input can be read only once).

    Attributes
    ----------
    counts : TextCounts
        Of the last iteration, up to the block given last.
    qid_rule : int
        Whether rows have a qid, as `parse_lines` takes it, after the block given last.
    sources : list of SourceFacts
        The inputs that the last iteration has opened.
    part : TextPart
        The one that the block given last is of.
    total_bytes : int or None
        Size of all inputs as they are on disk; None if standard input is one of them.
    """

    def __init__(
        self,
        parts: Sequence[TextPart],
        parser: BlockParser,
        *,
        start: TextStart | None,
        threads: int,
        max_bad_lines: int | None,
        reject_file: Input | None,
        block_bytes: int,
        read_bytes: int,
        max_line_bytes: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.counts = TextCounts()
        self.qid_rule = QID_UNKNOWN
        self.sources: list[SourceFacts] = []
        self.part = parts[0]
        self._parts = parts
        self._whole = start is None
        self._start = start or TextStart()
        self._parser = parser
        self._threads = threads
        self._max_bad_lines = max_bad_lines
        self._reject_path = None if reject_file is None else os.fspath(reject_file)
        self._reject: IO[bytes] | None = None
        self._block_bytes = block_bytes
        self._read_bytes = read_bytes
        self._max_line_bytes = max_line_bytes
        self._progress = progress
        sizes = [None if part.state is None else part.state.size for part in parts]
        self.total_bytes = None if None in sizes else sum(filter(None, sizes))

    def __iter__(self) -> Iterator[LabelledRows]:
        self.counts = replace(self._start.counts)
        self.qid_rule = self._start.qid_rule
        self.sources = []
        with ExitStack() as stack:
            if self._reject_path is not None:
                self._reject = stack.enter_context(_reject_file(self._reject_path))
            # One thread more for reading; without threads everything happens in the caller's.
            pool = stack.enter_context(ThreadPoolExecutor(self._threads + 1)) if self._threads > 1 else None
            bytes_before = 0
            for part in self._parts:
                self.part = part
                with (
                    open_source(part.path, self._read_bytes, part.span) as source,
                    closing(self._steps(source, pool)) as steps,
                ):
                    if not _is_same(source.state, part.state):
                        raise InputError(f"{source.name}: the file changed after the start: start again")
                    facts = SourceFacts(source.name, source.size, source.mtime_ns, source.compression)
                    self.sources.append(facts)
                    yield from self._source_rows(source, steps, bytes_before)
                    bytes_before += source.bytes_read
        if self._whole:
            require_rows(self.counts.rows, [source.name for source in self.sources])

    def _steps(self, source: TextSource, pool: ThreadPoolExecutor | None) -> Generator[Parsed, None, None]:
        """Parse the blocks of a source, in order."""
        blocks = source.blocks(self._block_bytes, self._max_line_bytes)
        if pool is None:
            yield from map(self._parse, blocks)
            return
        # Reading standard input may wait for ever: only the caller's thread can be interrupted there.
        ahead = blocks if source.size is None else _read_ahead(blocks, pool)
        with closing(ahead), closing(_parse_in_order(ahead, self._parse, pool, self._threads + 1)) as steps:
            yield from steps

    def _parse(self, block: TextBlock) -> Parsed:
        return self._parser.parse(block, 0, self.qid_rule)

    def _source_rows(
        self, source: TextSource, steps: Iterator[Parsed], bytes_before: int
    ) -> Iterator[LabelledRows]:
        """Rows of one source; completes messages with its line numbers."""
        name, first_line = source.name, self.counts.lines - self.part.lines_before
        try:
            for parsed in steps:
                yield from self._block_rows(parsed, name, first_line)
                source.recycle(parsed.block)
                if self._progress is not None:
                    self._progress(bytes_before + parsed.block.bytes_read)
        except LineTooLongError as error:
            line = self.counts.lines - first_line + 1
            raise InputError(f"{name}:{line}: {error}: is this SVMlight text?") from error

    def _block_rows(self, parsed: Parsed, name: str, first_line: int) -> Iterator[LabelledRows]:
        """Rows of a block: of the first parsing step, and of more steps if that did not reach its end."""
        parser = self._parser
        while True:
            rule = self.qid_rule
            # Parsed before it was known whether rows have a qid, and not clearly in agreement: once more.
            if parsed.given_rule != rule and (
                parsed.bad or parsed.state[QID_RULE] not in (QID_UNKNOWN, rule)
            ):
                parsed = parser.parse(parsed.block, parsed.start, rule)
            for number, bad in enumerate(parsed.bad, self.counts.bad_lines + 1):
                self._refuse(bad, number, name, first_line)
            rows = self._count(parsed)
            if rows.rows.n_rows > 0:
                yield rows
            position = parsed.state[POSITION]
            if position == parsed.block.n_bytes:
                return
            parsed = parser.parse(parsed.block, position, self.qid_rule)

    def _count(self, parsed: Parsed) -> LabelledRows:
        """Add a step to the counts; its rows, numbered."""
        counts, state = self.counts, parsed.state
        block = parsed.rows.rows
        rows = RowBlock(counts.rows, block.indptr, block.indices, block.values)
        counts.rows += state[ROWS]
        counts.nonzeros += state[NONZEROS]
        counts.lines += state[LINES]
        counts.blank_lines += state[BLANK_LINES]
        counts.comment_lines += state[COMMENT_LINES]
        counts.bad_lines += len(parsed.bad)
        counts.explicit_zeros += state[EXPLICIT_ZEROS]
        counts.n_features = max(counts.n_features, state[N_FEATURES])
        if state[ROWS] > 0:
            self.qid_rule = state[QID_RULE]
        return LabelledRows(rows, parsed.rows.labels, parsed.rows.qids)

    def _refuse(self, bad: BadLine, number: int, name: str, first_line: int) -> None:
        """Put a bad line aside, or stop if there are more than allowed; `number` counts them from 1."""
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


def require_rows(n_rows: int, names: Sequence[str]) -> None:
    """Raise InputError if there is not one row in inputs that were read to their ends."""
    if n_rows == 0:
        name = names[0] if len(names) == 1 else f"{len(names)} inputs"
        raise InputError(f"{name}: no rows, only blank lines and comments: give SVMlight text")


def _is_same(state: FileState | None, expected: FileState | None) -> bool:
    return state == expected or (state is not None and state.anywhere() == expected)


@contextmanager
def _reject_file(path: str) -> Iterator[IO[bytes]]:
    """An emptied file to write to; what goes wrong when it is opened, written or closed is a StorageError."""
    try:
        with open(path, "wb") as file:
            yield file
    except StorageError:  # of an input
        raise
    except OSError as error:
        raise StorageError(f"{display_name(path)}: cannot be written: {error.strerror}") from error


def read_rows(
    inputs: Sequence[Input | TextPart] | Input,
    *,
    start: TextStart | None = None,
    index_base: int = 1,
    dtype: str = "float32",
    threads: int = 1,
    bad_lines: Literal["stop", "skip"] = "stop",
    max_bad_lines: int | None = None,
    reject_file: Input | None = None,
    block_bytes: int = BLOCK_BYTES,
    read_bytes: int = READ_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
    progress: Callable[[int], None] | None = None,
) -> TextRows:
    """Rows of SVMlight text files, in order.

    Parameters
    ----------
    inputs : path or sequence of paths
        Files, plain or compressed (gzip, bzip2, xz, zstd), read one after another; ``-`` is standard input.
        Instead of a path, a `TextPart`.
    start : TextStart, optional
        What was read before, where these inputs go on; then there need not be rows in them.
    index_base : {1, 0}
        What the first column is called in the text.
    dtype : {"float32", "float64"}
        Type of the values. Decimals are rounded to float64 and then, for float32, once more.
    threads : int
        Threads that parse. The rows do not depend on it.
    bad_lines : {"stop", "skip"}
        What happens at a line that breaks a rule: InputError, or it is left out and counted.
    max_bad_lines : int, optional
        With "skip": InputError when there are more.
    reject_file : path, optional
        With "skip": gets the bad lines, each after a comment with its place and what is wrong.
    block_bytes : int
        Text parsed in one piece.
    read_bytes : int
        Largest single read of a file.
    max_line_bytes : int
        Longest line accepted, without its line feed.
    progress : callable, optional
        Called after every block with the bytes read of all inputs so far, as they are on disk.

    Returns
    -------
    TextRows
        An iterable of `LabelledRows`; ``rows.start`` counts over all inputs, ``values`` is None where all
        values of a block are 1, ``qids`` is None when the rows have none.

    Raises
    ------
    UsageError
        Options that make no sense.
    InputError
        At once: an input is missing, empty, not a regular file, UTF-16 or not what its suffix says. During
        the iteration: bad text, damaged or truncated compressed data, no rows at all, a file that changes
        while it is read.
    StorageError
        Reading an input or writing the reject file failed.
    """
    names = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    if index_base not in (0, 1):
        raise UsageError(f"index_base is {index_base!r}: 0 or 1")
    if dtype not in ("float32", "float64"):
        raise UsageError(f"dtype is {dtype!r}: float32 or float64")
    if bad_lines not in ("stop", "skip"):
        raise UsageError(f"bad_lines is {bad_lines!r}: stop or skip")
    if bad_lines == "stop" and (max_bad_lines is not None or reject_file is not None):
        raise UsageError("max_bad_lines and reject_file need bad_lines='skip'")
    if min(threads, block_bytes, read_bytes, max_line_bytes) < 1 or (max_bad_lines or 0) < 0:
        raise UsageError(
            "threads, block_bytes, read_bytes and max_line_bytes are at least 1, max_bad_lines at least 0"
        )
    return TextRows(
        _find_parts(names, read_bytes, reject_file),
        BlockParser(index_base, dtype, bad_lines == "skip"),
        start=start,
        threads=threads,
        max_bad_lines=max_bad_lines,
        reject_file=reject_file,
        block_bytes=block_bytes,
        read_bytes=read_bytes,
        max_line_bytes=max_line_bytes,
        progress=progress,
    )


def _find_parts(
    inputs: Sequence[Input | TextPart], read_bytes: int, reject_file: Input | None
) -> list[TextPart]:
    """Open and close every file given by its name, so that a bad one is found before the first row."""
    if not inputs:
        raise UsageError("no input: name at least one file, or - for standard input")
    if inputs.count("-") > 1:
        raise UsageError("standard input (-) is named twice, but can be read only once")
    parts = []
    for each in inputs:
        if isinstance(each, TextPart):
            parts.append(each)
            continue
        path = os.fspath(each)
        if path == "-":
            parts.append(TextPart(path, None))
            continue
        with open_source(path, read_bytes) as source:
            parts.append(TextPart(path, source.state))
        if reject_file is not None and os.path.exists(reject_file) and os.path.samefile(reject_file, path):
            raise UsageError(
                f"{source.name} is an input, so the bad lines cannot go there: name another file"
            )
    return parts
