"""Rows of a store, of text or of a matrix, as one stream of blocks in row order.

A path is a store if it is a folder or ends in ``.zarr``, text otherwise. Threads read ahead, as far as the
allowed memory lets them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, MemoryBudgetError, UsageError
from ooc_svm.ops.rows import keep_known, unsigned
from ooc_svm.store import Store, open_store
from ooc_svm.store.layout import LARGEST_FEATURE_COUNT
from ooc_svm.text.inputs import CHUNK_BYTES, MAX_LINE_BYTES, LineTooLongError, display_name
from ooc_svm.text.reader import TextRows

# Memory for a block that is decoded, in blocks: the block and its chunks.
_DECODING = 2

# Bytes of the smallest piece of text that is parsed; share of the memory that one line may take.
_SMALLEST_TEXT = 1 << 16
_LINE_SHARE = 1 / 16
_ENOUGH_FOR_LINES = int(MAX_LINE_BYTES / _LINE_SHARE)


@dataclass(slots=True)
class Ignored:
    """Rows with stored values, and these values (entries), ignored because the model has no such column."""

    rows: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class StreamBlock:
    """Rows of a stream, with the columns of the model only, and what was ignored in them.

    The rows are valid until the next block is taken. Labels and qids are None where the data have none.
    """

    rows: RowBlock
    labels: Float64Array | None
    ignored: Ignored
    qids: Int64Array | None = None


class RowStream(ABC):
    """Blocks of rows in order; `name` is for messages.

    `n_rows` and `has_qid` are None where they are not known before the end, or the first row. Where labels
    have names, a label is a position in `label_names`; `label_counts` are the rows of each label, where they
    are known before the first row is read. Reading one block at a time needs `least_bytes` of memory.
    """

    name: str
    n_rows: int | None = None
    label_names: tuple[str, ...] | None = None
    label_counts: Mapping[float, int] | None = None
    has_qid: bool | None = None
    least_bytes: int = 0

    @abstractmethod
    def blocks(
        self, n_features: int, pool: ThreadPoolExecutor, threads: int, memory_bytes: int
    ) -> Generator[StreamBlock, None, None]:
        """Read all rows, ahead of the consumer; columns from `n_features` on are ignored.

        The pool decodes the blocks of a store; the parsing of text has threads of its own. `memory_bytes` are
        for all blocks alive, at least `least_bytes`.
        """

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file is part of the data."""
        return False


class SourceStream(RowStream):
    """Rows of a store, or of a matrix; labels of a matrix that is not `labelled` are meaningless."""

    def __init__(self, source: Source, *, labelled: bool = True) -> None:
        self._source = source
        self._labelled = labelled
        self.name = "the matrix"
        self.n_rows, self.has_qid = source.n_rows, source.has_qid
        self._in_memory = not isinstance(source, Store)
        if isinstance(source, Store):
            self.name = str(source.path)
            self.label_names = source.label_names
            self.label_counts = source.labels.counts
            self.least_bytes = _DECODING * source.block_nbytes

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a path leads into the folder of the store."""
        source = self._source
        return isinstance(source, Store) and Path(path).resolve().is_relative_to(source.path.resolve())

    def blocks(
        self, n_features: int, pool: ThreadPoolExecutor, threads: int, memory_bytes: int
    ) -> Generator[StreamBlock, None, None]:
        """Read all rows; one block ahead for each thread, as far as they fit."""
        source = self._source
        fitting = threads + 1 if self._in_memory else memory_bytes // max(self.least_bytes, 1)
        free = [source.new_buffers() for _ in range(min(max(fitting, 1), threads + 1, len(source.blocks)))]
        coming: deque[tuple[Future[StreamBlock], Any]] = deque()
        following = iter(range(len(source.blocks)))

        def read_ahead() -> None:
            while free and (index := next(following, None)) is not None:
                buffers = free.pop()
                coming.append((pool.submit(self._read, index, buffers, n_features), buffers))

        try:
            read_ahead()
            while coming:
                future, buffers = coming.popleft()
                yield future.result()
                free.append(buffers)
                read_ahead()
        finally:
            for future, _ in coming:
                future.cancel()
            wait([future for future, _ in coming])

    def _read(self, index: int, buffers: Any, n_features: int) -> StreamBlock:
        source, block = self._source, self._source.read_block(index, buffers)
        labels = source.read_labels(block.start, block.stop) if self._labelled else None
        qids = source.read_qids(block.start, block.stop) if source.has_qid else None
        return _known(block, labels, qids, n_features, in_place=not self._in_memory)


class TextStream(RowStream):
    """Rows of SVMlight text; the input ``-`` is standard input."""

    def __init__(self, inputs: Sequence[str | os.PathLike[str]], index_base: int, dtype: str) -> None:
        self._inputs = [os.fspath(path) for path in inputs]
        self._index_base, self._dtype = index_base, dtype
        self._open(1, 0)  # raises now if a file is missing
        first = display_name(self._inputs[0])
        self.name = first if len(self._inputs) == 1 else f"{first} and {len(self._inputs) - 1} more"
        self.least_bytes = _text_bytes(1) * _SMALLEST_TEXT

    def _open(self, threads: int, memory_bytes: int) -> TextRows:
        chunk_bytes = min(max(memory_bytes // _text_bytes(threads), _SMALLEST_TEXT), CHUNK_BYTES)
        line_bytes = min(max(int(memory_bytes * _LINE_SHARE), _SMALLEST_TEXT), MAX_LINE_BYTES)
        return TextRows(
            self._inputs,
            index_base=self._index_base,
            dtype=self._dtype,
            threads=threads,
            chunk_bytes=chunk_bytes,
            max_line_bytes=line_bytes,
        )

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a path is one of the inputs."""
        inputs = [each for each in self._inputs if each != "-"]
        return os.path.exists(path) and any(os.path.samefile(path, each) for each in inputs)

    def blocks(
        self, n_features: int, pool: ThreadPoolExecutor, threads: int, memory_bytes: int
    ) -> Generator[StreamBlock, None, None]:
        """Read all rows; the pieces of text are as large as the memory permits."""
        rows: Iterator[Any] = iter(self._open(threads, memory_bytes))
        with closing(rows):  # type: ignore[type-var]
            try:
                for labelled in rows:
                    yield _known(labelled.rows, labelled.labels, labelled.qids, n_features, in_place=True)
            except InputError as error:
                if isinstance(error.__cause__, LineTooLongError) and memory_bytes < _ENOUGH_FOR_LINES:
                    raise MemoryBudgetError(f"{error} If it is, allow more with --memory") from error
                raise


def _text_bytes(threads: int) -> int:
    """Bytes alive for each byte of the pieces that text is parsed in.

    They are pieces read ahead (1), the arrays of each parsing thread (4.5), and rows that wait (2).
    """
    return 8 * threads + 13


def _known(
    block: RowBlock, labels: Float64Array | None, qids: Int64Array | None, n_features: int, *, in_place: bool
) -> StreamBlock:
    """The block without columns from `n_features` on."""
    ids = unsigned(block.indices)
    if len(ids) == 0 or int(ids.max()) < n_features:
        return StreamBlock(block, labels, Ignored(), qids)
    indptr, indices, values = block.indptr, block.indices, block.values
    if not in_place:
        indptr, indices = np.empty_like(indptr), np.empty_like(indices)
        values = None if values is None else np.empty_like(values)
    n_before = len(ids)
    shorter = keep_known(
        unsigned(block.indptr), ids, block.values, n_features, unsigned(indptr), unsigned(indices), values
    )
    n = int(indptr[-1])
    kept = RowBlock(block.start, indptr, indices[:n], None if values is None else values[:n])
    return StreamBlock(kept, labels, Ignored(int(shorter), n_before - n), qids)


def open_rows(
    data: Any,
    labels: Any = None,
    *,
    qid: Any = None,
    index_base: int = 1,
    dtype: str = "float32",
    label: str | None = None,
) -> RowStream:
    """Open any data: a path or paths, a Store, a Source, or a sparse matrix or 2-d ndarray.

    A path is a store if it is a folder or ends in ``.zarr``, text otherwise; several paths are text. `labels`
    and `qid` are those of a matrix; `label` is the column of an AnnData store that holds the labels. How text
    is read (`index_base`, `dtype`): see `ooc_svm.text.reader.TextRows`.

    UsageError if labels or query ids are given for data that have their own, a label column is named for data
    without columns, or `data` is of no known kind. InputError if there is no such file or store, or it cannot
    be read as one. DamageError or StorageError if a store is damaged, or opening fails.
    """
    if isinstance(data, str | os.PathLike):
        data = [data]
    is_text = isinstance(data, list | tuple) and all(isinstance(path, str | os.PathLike) for path in data)
    if is_text and len(data) == 1 and _names_store(data[0]):
        data, is_text, label = open_store(data[0], label=label), False, None
    if label is not None:
        raise UsageError(f"a label column ({label!r:.80}) can be named for a path to a store only")
    if is_text or hasattr(data, "read_block"):
        for name, given in (("labels", labels), ("qid", qid)):
            if given is not None:
                raise UsageError(f"{name} can be given with a matrix only; text and stores have their own")
    if is_text:
        stores = [os.fspath(path) for path in data if _names_store(path)]
        if stores:
            raise UsageError(f"{stores[0]:.200} is a store; give one store, or text files")
        return TextStream(data, index_base, dtype)
    if hasattr(data, "read_block"):
        return SourceStream(data)
    return _matrix_stream(data, labels, qid)


def _matrix_stream(matrix: Any, labels: Any, qid: Any) -> SourceStream:
    shape = getattr(matrix, "shape", None)
    if shape is None or len(shape) != 2:
        raise UsageError(
            f"{type(matrix).__name__} is no data: give the path of a store or of text, or a matrix of rows"
        )
    if shape[1] > LARGEST_FEATURE_COUNT:
        raise InputError(f"the matrix has {shape[1]} columns; at most {LARGEST_FEATURE_COUNT} are possible")
    given = np.zeros(shape[0]) if labels is None else labels
    return SourceStream(MatrixSource(matrix, given, qids=qid), labelled=labels is not None)


def _names_store(path: str | os.PathLike[str]) -> bool:
    return os.path.isdir(path) or Path(path).suffix == ".zarr"
