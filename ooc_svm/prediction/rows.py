"""Rows of a store, of text or of a matrix, as one stream of blocks in row order.

A path is a store if it is a folder or ends in ``.zarr``, text otherwise. Threads read ahead, as far as the
allowed memory lets them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, cast

from ooc_svm.data.annotated import Annotated, is_annotated, read_annotated, refuse_two_kinds
from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, MemoryBudgetError, UsageError, parameter, shown
from ooc_svm.parameters import is_path
from ooc_svm.prediction.columns import Columns
from ooc_svm.store import Store, open_store
from ooc_svm.store.open import has_manifest, names_store
from ooc_svm.system.files import is_same_file, is_within
from ooc_svm.text.inputs import CHUNK_BYTES, MAX_LINE_BYTES, LineTooLongError, display_name, expanded
from ooc_svm.text.label_names import LabelNames
from ooc_svm.text.label_set_names import LabelSetNames
from ooc_svm.text.reader import TextRows, new_label_names

LabelKind = Literal["numbers", "text", "sets"]
"""What the labels in text are."""

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
    have names, a label is a position in `label_names`, which are names of sets of labels if there are
    `label_sets`; `label_counts` are the rows of each label, where they
    are known before the first row is read. `n_features` is None where the data do not state how many columns
    they have: text, and stores that were made from it. `n_unlabelled` are the rows without a label, as far as
    they were looked for: left out if that was asked for, else NaN is their label. `may_rename`: whether other
    names of features may be given than the data have. Reading one block at a time needs `least_bytes` of
    memory.
    """

    name: str
    n_rows: int | None = None
    n_features: int | None = None
    label_names: Sequence[str] | None = None
    label_sets: bool = False
    may_rename: bool = False
    label_counts: Mapping[float, int] | None = None
    has_qid: bool | None = None
    n_unlabelled: int = 0
    least_bytes: int = 0

    @abstractmethod
    def blocks(
        self, columns: Columns, pool: ThreadPoolExecutor, threads: int, memory_bytes: int
    ) -> Generator[StreamBlock, None, None]:
        """Read all rows, ahead of the consumer, with those of their columns that are features of the model.

        The pool decodes the blocks of a store; the parsing of text has threads of its own. `memory_bytes` are
        for all blocks alive, at least `least_bytes`.
        """

    @property
    def feature_names(self) -> FeatureNames | None:
        """Names of the columns, where the data have names."""
        return None

    @property
    def anndata_folder(self) -> os.PathLike[str] | None:
        """The folder of an AnnData store without a manifest; None for other data."""
        return None

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file is part of the data."""
        return False


class SourceStream(RowStream):
    """Rows of a store, or of a matrix; labels of a matrix that is not `labelled` are meaningless."""

    def __init__(
        self,
        source: Source,
        *,
        labelled: bool = True,
        label_names: tuple[str, ...] | None = None,
        feature_names: FeatureNames | None = None,
        may_rename: bool = False,
    ) -> None:
        self._source, self._feature_names = source, feature_names
        self.may_rename = may_rename
        self._labelled = source.has_labels if isinstance(source, Store) else labelled
        self.name, self.label_names = "the matrix", label_names
        self.n_rows, self.has_qid = source.n_rows, source.has_qid
        self.n_features = source.n_features
        self._in_memory = not isinstance(source, Store)
        if label_names is None and isinstance(source, Store | MatrixSource):
            self.label_names = source.label_names
        if isinstance(source, MatrixSource):
            self.label_sets = source.label_sets is not None
        if isinstance(source, Store):
            self.name = str(source.path)
            self.label_counts, self.label_sets = source.labels.counts, source.label_sets
            self.least_bytes = _DECODING * source.block_nbytes + source.parts.decoding_nbytes
            if source.format_version is not None and source.parts.feature_names is None:
                self.n_features = None
        if isinstance(source, Store | MatrixSource):
            self.n_unlabelled = source.n_unlabelled

    @property
    def feature_names(self) -> FeatureNames | None:
        """Names of the columns; those of a store are read when they are first asked for."""
        return self._source.feature_names if isinstance(self._source, Store) else self._feature_names

    @property
    def anndata_folder(self) -> os.PathLike[str] | None:
        """See `RowStream`."""
        source = self._source
        return source.path if isinstance(source, Store) and source.format_version is None else None

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a path leads into the folder of the store."""
        source = self._source
        return isinstance(source, Store) and is_within(path, source.path)

    def blocks(
        self, columns: Columns, pool: ThreadPoolExecutor, threads: int, memory_bytes: int
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
                coming.append((pool.submit(self._read, index, buffers, columns), buffers))

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

    def _read(self, index: int, buffers: Any, columns: Columns) -> StreamBlock:
        source, block = self._source, self._source.read_block(index, buffers)
        labels = source.read_labels(block.start, block.stop) if self._labelled else None
        qids = source.read_qids(block.start, block.stop) if source.has_qid else None
        return _selected(block, labels, qids, columns, in_place=not self._in_memory)


class TextStream(RowStream):
    """Rows of SVMlight text; the input ``-`` is standard input. `label_names` grow as the text is read."""

    label_names: LabelNames | None

    def __init__(
        self, inputs: Sequence[str | os.PathLike[str]], index_base: int, dtype: str, label_kind: LabelKind
    ) -> None:
        self._inputs = [os.fspath(path) for path in inputs]
        self._index_base, self._dtype = index_base, dtype
        self._label_kind: LabelKind = label_kind
        self.label_names, self.label_sets = new_label_names(label_kind), label_kind == "sets"
        self._rows: TextRows | None = None
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
            labels=self._label_kind,
            threads=threads,
            chunk_bytes=chunk_bytes,
            max_line_bytes=line_bytes,
        )

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a path is one of the inputs."""
        inputs = [each for each in self._inputs if each != "-"]
        return any(is_same_file(path, each) for each in inputs)

    def blocks(
        self, columns: Columns, pool: ThreadPoolExecutor, threads: int, memory_bytes: int
    ) -> Generator[StreamBlock, None, None]:
        """Read all rows; the pieces of text are as large as the memory permits."""
        names = self.label_names
        if isinstance(names, LabelSetNames):
            names.max_bytes = memory_bytes // 4
            memory_bytes -= names.max_bytes
        text = self._open(threads, memory_bytes)
        text.label_names = names
        rows = cast("Generator[Any, None, None]", iter(text))
        with closing(rows):
            try:
                for labelled in rows:
                    yield _selected(labelled.rows, labelled.labels, labelled.qids, columns, in_place=True)
            except InputError as error:
                if isinstance(error.__cause__, LineTooLongError) and memory_bytes < _ENOUGH_FOR_LINES:
                    raise MemoryBudgetError(
                        f"{error} If it is, allow more ({parameter('memory')})"
                    ) from error
                raise


def _text_bytes(threads: int) -> int:
    """Bytes alive for each byte of the pieces that text is parsed in.

    They are pieces read ahead (1), the arrays of each parsing thread (4.5), and rows that wait (2).
    """
    return 8 * threads + 13


def _selected(
    block: RowBlock, labels: Float64Array | None, qids: Int64Array | None, columns: Columns, *, in_place: bool
) -> StreamBlock:
    """The block with the columns of the model only."""
    rows, n_rows, n_entries = columns.select(block, in_place=in_place)
    return StreamBlock(rows, labels, Ignored(n_rows, n_entries), qids)


def _keep_chunks(data: Any, cache: str | os.PathLike[str] | None, cache_size: int | str | None) -> None:
    """Keep chunks of a store on a local disk, where a folder is named for them."""
    if cache is None:
        if cache_size is not None:
            raise UsageError(f"{parameter('cache_size')} needs {parameter('cache')}")
    elif isinstance(data, Store):
        data.keep_chunks(cache, cache_size)
    else:
        raise UsageError(f"{parameter('cache')} keeps chunks of a store; leave it out for other data")


def open_rows(
    data: Any,
    labels: Any = None,
    *,
    qid: Any = None,
    index_base: int = 1,
    dtype: str = "float32",
    label: str | None = None,
    unlabelled: str = "keep",
    label_kind: LabelKind = "numbers",
    layer: str | None = None,
    trained_layer: str | None = None,
    label_columns: Sequence[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
) -> RowStream:
    """Open any data: a path or paths, a Store, a Source, or a sparse matrix or 2-d ndarray.

    A path is a store if it is a folder or ends in ``.zarr``, text otherwise; several paths are text. `labels`
    and `qid` are those of a matrix; `label` is the column of AnnData that holds the labels, `layer` the layer
    with the rows, by default `trained_layer` of the model. How text is read (`index_base`, `dtype`): see
    `ooc_svm.text.reader.TextRows`; `label_kind` says what its labels are. `unlabelled`: see
    `ooc_svm.open_store`; a matrix has labels for all rows, or none, unless others are skipped. Labels may be
    an indicator matrix, with a column for each of `label_columns`. For `cache` and `cache_size` see
    `ooc_svm.Store.keep_chunks`.

    UsageError if labels or query ids are given for data that have their own, a label column is named for data
    without columns, or `data` is of no known kind. InputError if there is no such file or store, or it cannot
    be read as one. DamageError or StorageError if a store is damaged, or opening fails.
    """
    is_text = is_path(data) or (isinstance(data, list | tuple) and len(data) > 0 and is_path(data[0]))
    if is_path(data):
        data = [data]
    if is_text and len(data) == 1 and names_store(data[0]):
        if layer is None and trained_layer is not None and not has_manifest(data[0]):
            layer = trained_layer
        data = open_store(data[0], label=label, layer=layer, unlabelled=unlabelled)
        is_text, label, layer = False, None, None
    _keep_chunks(data, cache, cache_size)
    matrix: dict[str, Any] = {
        "names": ("data", "weights"),
        "skip_unlabelled": unlabelled == "skip",
        "label_columns": label_columns,
    }
    if is_annotated(data):
        refuse_two_kinds(labels, label)
        gaps = unlabelled if labels is None else "keep"
        own = read_annotated(data, label, layer or trained_layer, labelled=False, unlabelled=gaps)
        return _annotated_stream(own, labels, qid, matrix)
    if is_text:
        stores = [os.fspath(path) for path in data if names_store(path)]
        if stores:
            raise UsageError(f"{stores[0]:.200} is a store; give one store, or text files")
        stream = TextStream(
            expanded(data), index_base, dtype, label_kind
        )  # raises first where the files are no text
    for name, what, value in (("label", "column of labels", label), ("layer", "layer", layer)):
        if value is not None:
            raise UsageError(
                f"{parameter(name)} is {shown(value)}, but a {what} is for AnnData and the path of a store "
                "only"
            )
    if is_text or hasattr(data, "read_block"):
        for name, given in (("labels", labels), ("qid", qid)):
            if given is not None:
                raise UsageError(
                    f"{parameter(name)} can be given with a matrix only; text and stores have their own"
                )
    if is_text:
        return stream
    if hasattr(data, "read_block"):
        if unlabelled != "keep" and isinstance(data, Store):
            data.require_labels()
        return SourceStream(data)
    source, names = MatrixSource(data, labels, qids=qid, **matrix), FeatureNames.of_frame(data)
    return SourceStream(source, labelled=labels is not None, feature_names=names, may_rename=True)


def _annotated_stream(own: Annotated, labels: Any, qid: Any, options: dict[str, Any]) -> SourceStream:
    label_names = own.label_names if labels is None else None
    labels, qid = own.labels if labels is None else labels, own.qids if qid is None else qid
    if own.lacks_labels and labels is own.labels and not options["skip_unlabelled"]:
        labels = label_names = None  # a matrix has labels for all rows, or none
    return SourceStream(
        MatrixSource(own.matrix, labels, qids=qid, **options),
        labelled=labels is not None,
        label_names=label_names,
        feature_names=own.feature_names,
    )
