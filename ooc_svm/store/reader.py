"""`Store`: blocks of rows read from a store, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock, Values
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import DamageError, InputError, UsageError, parameter
from ooc_svm.parameters import LOCAL_PATH, SIZE, Kind, at_least, checks
from ooc_svm.store.blocks import BlockBuffers, BlockSpan
from ooc_svm.store.chunk_files import Elements
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.metadata import ArrayInfo
from ooc_svm.store.row_names import open_row_names
from ooc_svm.store.storage import Storage
from ooc_svm.store.validate import NOT_FINITE, UNSORTED, RuleError, check_rows, check_sorted, refusal

INDEX = at_least(0)
# Chunks that are fetched ahead even if no memory is left for it: what a plan leaves unplanned is enough.
_LEAST_AHEAD = 8
# Rows ahead of those read whose entries of a column are fetched, where all are read one after another.
_ROWS_AHEAD = 1 << 20


def _read_buffers(buffers: Any) -> BlockBuffers:
    if not isinstance(buffers, BlockBuffers):
        raise TypeError
    return buffers


BUFFERS = Kind("BlockBuffers", "buffers that new_buffers() made", _read_buffers)


class Column(Protocol):
    """One entry a row."""

    @property
    def array(self) -> Elements:
        """What is stored."""

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Entries of the rows ``start <= i < stop``."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers as it is stored, converted to ``dtype``; of strings where that is object."""

    array: Elements
    dtype: npt.DTypeLike

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        out = np.empty(stop - start, self.dtype)
        self.array.read_into(start, stop, out)
        return out


@dataclass(frozen=True)
class NamedColumn:
    """Labels that are names: a code stands for the place of its name among the sorted names, its rank."""

    array: Elements
    ranks: Float64Array
    location: str
    dtype: str = "int16"  # Of the codes

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        codes = np.empty(stop - start, self.dtype)
        self.array.read_into(start, stop, codes)
        if ((codes < 0) | (codes >= len(self.ranks))).any():
            raise DamageError(f"{self.location} has labels without a name; the store is damaged")
        return self.ranks[codes]


@dataclass(frozen=True)
class Tails:
    """The part of each block's last row that lies in a chunk of the next block.

    There are n_blocks + 1 pointers; ``values`` is None where all values are 1.
    """

    pointers: Int64Array
    indices: Elements
    values: Elements | None


@dataclass(frozen=True)
class StoreParts:
    """The arrays of a store, opened.

    ``data`` is None where all values are 1. ``block_rows`` and ``block_nonzeros`` have the first row and the
    first element of each block, and the end. Without ``tails`` the chunk after a block is read for the end of
    its last row. ``chunk_sizes`` has the bytes of each chunk file of ``X/indptr``, ``X/indices`` and
    ``X/data``. ``feature_names`` reads the names of the features, where they may have names.
    """

    storage: Storage
    indptr: Elements
    indices: Elements
    data: Elements | None
    block_rows: Int64Array
    block_nonzeros: Int64Array
    tails: Tails | None
    label: Column | None
    qid: Column | None
    weight: Column | None
    chunk_sizes: dict[str, tuple[ArrayInfo, Int64Array]]
    feature_names: Callable[[], FeatureNames | None] | None = None
    decoding_nbytes: int = 0  # What decoding takes of each thread, in addition to blocks


class Store:
    """Rows on disk, read block by block; some may be held in memory. Made by `open_store`.

    Reading is thread-safe as long as every thread has its own `BlockBuffers`.

    Attributes
    ----------
    path : Path
    label, layer : str or None
        Of an AnnData store without a manifest: the column of its labels, and its matrix if that is not ``X``.
    n_rows, n_features, n_nonzeros : int
    value_type : {"ones", "float32", "float64"}
        "ones": every stored value is 1 and blocks have no values.
    has_qid, has_weight : bool
    n_unlabelled : int
        Rows without a label, which a store opened with ``unlabelled="keep"`` has and "skip" leaves out.
    index_base : {0, 1}
        What the source counts its features from; column ids here count from 0.
    blocks : sequence of BlockSpan
        All rows, in order.
    labels : LabelSummary
    label_runs : int
        Number of runs of equal labels in row order.
    label_names : tuple of str, or None
        Where the labels are names: the label of a row is the place of its name here.
    label_sets : bool
        Whether these are names of sets of labels, see `ooc_svm.data.label_sets`.
    qid_groups : int
        Number of runs of equal qids in row order; 0 without qids.
    provenance : dict
        Sources, options and versions as its writer gave them.
    format_version : int or None
        None for an AnnData store without a manifest.
    n_chunks, n_bytes : int
        Chunk files of the arrays that are used, and their bytes.
    unused : tuple of str
        Columns ``obs/weight`` and ``obs/qid`` of an AnnData store that have no plain numbers.
    remark : str or None
        Which arrays of an AnnData store have no checksums, so that damaged bytes may not be noticed.
    feature_names : FeatureNames or None
        The names of the features, a sequence of str: the index of ``var`` where it is text.
    parts : StoreParts
        The arrays behind it, for `ooc_svm.store.verify`.
    columns_nbytes : int
        Bytes of labels, qids and weights that are in memory.
    writing_seconds : float
        Time in which it was written after it was made.
    """

    def __init__(self, metadata: StoreMetadata, parts: StoreParts) -> None:
        self.path, self.remark, self._metadata = metadata.path, metadata.remark, metadata
        self.unused = metadata.unused
        self.n_rows, self.n_features = metadata.n_rows, metadata.n_features
        self.n_nonzeros, self.value_type = metadata.n_nonzeros, metadata.value_type
        self.labels, self.label_runs = metadata.labels, metadata.label_runs
        self.label_names, self.index_base = metadata.label_names, metadata.index_base
        self.qid_groups, self.provenance = metadata.qid_groups, metadata.provenance
        self.n_chunks, self.n_bytes = metadata.n_chunks, metadata.n_bytes
        self.label, self.layer, self.format_version = metadata.label, metadata.layer, metadata.format_version
        self.n_unlabelled, self.label_sets = metadata.n_unlabelled, metadata.label_sets
        self.has_qid, self.has_weight = parts.qid is not None, parts.weight is not None
        self.parts = parts
        self._value_dtype = None if metadata.value_type == "ones" else np.dtype(metadata.value_type)
        self.blocks: Sequence[BlockSpan] = self._spans()
        self.columns_nbytes, self.writing_seconds = 0, 0.0
        self._column_ends: dict[int, int] = {}  # Where the last rows read of each column end
        self._held: dict[int, RowBlock] = {}  # Decoded blocks by number

    def _spans(self) -> tuple[BlockSpan, ...]:
        rows, nonzeros = self.parts.block_rows.tolist(), self.parts.block_nonzeros.tolist()
        width = 4 + (0 if self._value_dtype is None else self._value_dtype.itemsize)
        spans = []
        for index in range(len(rows) - 1):
            count = nonzeros[index + 1] - nonzeros[index]
            nbytes = 8 * (rows[index + 1] - rows[index] + 1) + width * count
            spans.append(BlockSpan(index, rows[index], rows[index + 1], count, nbytes))
        return tuple(spans)

    @property
    def id(self) -> str:
        """What tells the store from others: other rows, labels or order make another id.

        With a manifest it is a hash of all checksums, so that a copy has the same. Without one it follows
        from labels and row pointers, from the size, inode and time of change of every chunk file, and from a
        sample of their bytes.
        """
        return self._metadata.id

    @property
    def shared_id(self) -> str:
        """The id without what differs between machines that share the files."""
        return self._metadata.shared_id

    @cached_property
    def feature_names(self) -> FeatureNames | None:
        """Names of the features, read when they are first asked for; None where features have numbers.

        Raises DamageError and StorageError as `read_block` does.
        """
        return None if self.parts.feature_names is None else self.parts.feature_names()

    @property
    def bytes_read(self) -> int:
        """Bytes read from the disk since the store was opened, as stored."""
        return self.parts.storage.bytes_read

    @property
    def block_nbytes(self) -> int:
        """Bytes of the largest block when decoded."""
        return max((span.nbytes for span in self.blocks), default=0)

    def new_buffers(self) -> BlockBuffers:
        """Buffers for the largest block of this store."""
        n_rows = max((span.n_rows for span in self.blocks), default=0)
        n_nonzeros = max((span.n_nonzeros for span in self.blocks), default=0)
        return BlockBuffers(n_rows, n_nonzeros, self._value_dtype)

    @checks(index=INDEX, buffers=BUFFERS)
    def read_block(self, index: int, buffers: BlockBuffers | None = None) -> RowBlock:
        """Read, decode and check a block.

        Parameters
        ----------
        index : int
            Number of the block.
        buffers : BlockBuffers, optional
            Where to: the block is then a view that lasts until the next read into them.

        Returns
        -------
        RowBlock
            ``values`` is None where ``value_type`` is "ones".

        Raises
        ------
        DamageError
            A chunk is missing or damaged, or a row breaks the rules; the message names the chunk.
        StorageError
            Reading failed.
        """
        self._check_index(index)
        if index in self._held:
            return self._held[index]
        span = self.blocks[index]
        if buffers is None:
            buffers = BlockBuffers(span.n_rows, span.n_nonzeros, self._value_dtype)
        elif len(buffers.indptr) <= span.n_rows or len(buffers.indices) < span.n_nonzeros:
            raise UsageError(
                f"the buffers are smaller than block {index} of {self.path}; make them by new_buffers()"
            )
        first, split = self._outside_tails(index)
        indptr = buffers.indptr[: span.n_rows + 1]
        indices = buffers.indices[: span.n_nonzeros]
        values = None if buffers.values is None else buffers.values[: span.n_nonzeros]
        self._announce_elements(first, split)
        try:
            self.parts.indptr.read_into(span.start, span.stop + 1, indptr)
            self._read_elements(index, first, split, indices, values)
        except DamageError as error:
            raise DamageError(f"block {index} of {self.path}: {error}") from error
        indptr -= first
        block = RowBlock(span.start, indptr, indices, values)
        self._check(span, first, block)
        return block

    def hold(self, blocks: Sequence[RowBlock]) -> None:
        """Have `read_block` give these, the first of the blocks as they were written, without reading."""
        assert all(
            (block.start, block.n_rows, len(block.indices)) == (span.start, span.n_rows, span.n_nonzeros)
            for block, span in zip(blocks, self.blocks, strict=False)
        )
        self._held = dict(enumerate(blocks))

    def settle(self, n_bytes: int) -> None:
        """Write what is only in memory, if blocks and columns take more than so many bytes."""

    def hold_only(self, numbers: Collection[int]) -> None:
        """Drop the blocks that are held but for some."""
        self._held = {index: block for index, block in self._held.items() if index in numbers}

    @property
    def blocks_ahead(self) -> int:
        """Blocks that a thread announces before it reads them; 0 where the system reads ahead."""
        return 0 if self.parts.storage.is_local else 1

    @property
    def ahead_nbytes(self) -> int:
        """Bytes of chunks that a reading thread has fetched at most: of its block and those ahead."""
        if self.parts.storage.is_local:
            return 0
        stored = (self._stored_bytes(span.index) for span in self.blocks)
        return (1 + self.blocks_ahead) * max(stored, default=0)

    def limit_ahead(self, n_bytes: int) -> None:
        """Fetch no more bytes of chunks ahead of reading than about so many; a few chunks always are."""
        largest = max((int(sizes.max(initial=1)) for _, sizes in self.parts.chunk_sizes.values()), default=1)
        self.parts.storage.limit_ahead(max(n_bytes // largest, _LEAST_AHEAD))

    @checks(folder=LOCAL_PATH, size=SIZE)
    def keep_chunks(self, folder: str | os.PathLike[str], size: int | str | None = None) -> None:
        """Keep chunks of a store in a bucket on a local disk, and read those that are there from it.

        Parameters
        ----------
        folder : path
            Shared by runs, on any stores; made if it is missing.
        size : int or str, optional
            Bytes that all chunks in the folder may have; by default half of what is free on the disk.

        Raises
        ------
        UsageError
            The store is on a local disk, or has no manifest, which knows the content of chunks.
        StorageError
            The folder cannot be used.
        """
        from ooc_svm.store.chunk_cache import ChunkCache, size_of
        from ooc_svm.store.object_storage import ObjectStorage

        storage = self.parts.storage
        if not isinstance(storage, ObjectStorage):
            raise UsageError(f"{self.path} is on a local disk; leave {parameter('cache')} out")
        if self.format_version is None:
            raise UsageError(
                f"{self.path} was not written by this program, so that its chunks cannot be told from others "
                f"of another time; convert it to a store (convert), or leave {parameter('cache')} out"
            )
        place = Path(folder)
        n_bytes = sum(
            int(sizes.sum()) for name, (_, sizes) in self.parts.chunk_sizes.items() if "indptr" not in name
        )
        storage.cache = ChunkCache(place, self.id, n_bytes, size_of(place, size))

    def announce_block(self, index: int) -> None:
        """Begin to fetch the chunks of a block that will be read soon, where that takes time."""
        if not self.blocks_ahead or index in self._held:
            return
        parts, span = self.parts, self.blocks[index]
        parts.indptr.announce(span.start, span.stop + 1)
        self._announce_elements(*self._outside_tails(index))

    def _announce_elements(self, first: int, stop: int) -> None:
        self.parts.indices.announce(first, stop)
        if self.parts.data is not None:
            self.parts.data.announce(first, stop)

    def _check_index(self, index: int) -> None:
        if index >= len(self.blocks):
            raise UsageError(f"there is no block {index} in {self.path}; it has {len(self.blocks)}, from 0")

    def _outside_tails(self, index: int) -> tuple[int, int]:
        """The nonzeros of a block that are read from ``X``."""
        first, last = self.parts.block_nonzeros[index : index + 2].tolist()
        tails = self.parts.tails
        return first, last if tails is None else last - int(tails.pointers[index + 1] - tails.pointers[index])

    def _read_elements(
        self, index: int, first: int, split: int, indices: npt.NDArray[np.int32], values: Values | None
    ) -> None:
        parts, tails = self.parts, self.parts.tails
        begin, end = (0, 0) if tails is None else tails.pointers[index : index + 2].tolist()
        parts.indices.read_into(first, split, indices[: split - first])
        if tails is not None:
            tails.indices.read_into(begin, end, indices[split - first :])
        if values is not None and parts.data is not None:
            parts.data.read_into(first, split, values[: split - first])
            if tails is not None and tails.values is not None:
                tails.values.read_into(begin, end, values[split - first :])

    def _check(self, span: BlockSpan, first: int, block: RowBlock) -> None:
        """Check a block against the rules; rows of other writers may need sorting first."""
        is_ours, values = self.format_version is not None, block.values
        check = check_rows if is_ours or values is None else check_sorted
        try:
            check(block.indptr, block.indices, values, self.n_features)
        except RuleError as offence:
            if not is_ours and values is not None and offence.reason in (UNSORTED, NOT_FINITE):
                raise refusal(self.path, block, values, offence) from None
            raise DamageError(self._describe(span, first, offence)) from None

    def _describe(self, span: BlockSpan, first: int, offence: RuleError) -> str:
        name = {1: "X/indptr", 4: "X/data"}.get(offence.reason, "X/indices")
        place = span.start + offence.row if offence.position < 0 else first + offence.position
        info, _ = self.parts.chunk_sizes[name]
        chunk = self.path / info.key(min(place // info.chunk, max(info.n_chunks - 1, 0)))
        return (
            f"row {span.start + offence.row} in block {span.index} of {self.path} breaks the rules: "
            f"{offence} (chunk {chunk}); make the store again from its source"
        )

    @checks(index=INDEX)
    def block_stored_bytes(self, index: int) -> int:
        """Bytes of the chunk files that reading a block fetches, 0 if it is held (tails apart: tiny)."""
        self._check_index(index)
        return 0 if index in self._held else self._stored_bytes(index)

    def _stored_bytes(self, index: int) -> int:
        span, parts = self.blocks[index], self.parts
        first, last = self._outside_tails(index)
        total = 0
        for name, (info, sizes) in parts.chunk_sizes.items():
            start, stop = (span.start, span.stop + 1) if name == "X/indptr" else (first, last)
            if stop > start and info.inner_chunk == info.chunk:
                total += int(sizes[start // info.chunk : (stop - 1) // info.chunk + 1].sum())
            elif stop > start:  # parts of shards
                total += int(sizes.sum()) * (stop - start) // info.length
        return total

    @checks(start=INDEX, stop=INDEX)
    def read_labels(self, start: int, stop: int) -> Float64Array:
        """Labels of the rows ``start <= i < stop``, float64, NaN for none; raises as `read_block` does."""
        return self._read_column("label", self.parts.label, start, stop)

    @property
    def has_labels(self) -> bool:
        """Whether there is a column of labels; rows without one may be among its entries."""
        return self.parts.label is not None

    def require_labels(self) -> None:
        """Raise InputError unless every row has a label."""
        if not self.has_labels or self.n_unlabelled:
            raise InputError(
                f"{self.path} was opened with rows that have no label; open it with "
                f"{parameter('unlabelled', 'skip')}, which leaves them out"
            )

    @checks(start=INDEX, stop=INDEX)
    def read_qids(self, start: int, stop: int) -> Int64Array:
        """Group numbers of the rows ``start <= i < stop``, int64; UsageError where the store has none."""
        return self._read_column("qid", self.parts.qid, start, stop)

    @checks(start=INDEX, stop=INDEX)
    def read_weights(self, start: int, stop: int) -> Float64Array:
        """Weights of the rows ``start <= i < stop``, float64; UsageError where the store has none."""
        return self._read_column("weight", self.parts.weight, start, stop)

    @cached_property
    def _row_names(self) -> Column | None:
        is_foreign = self.format_version is None
        names = open_row_names(self.parts.storage, int(self.parts.block_rows[-1])) if is_foreign else None
        return None if names is None else NumberColumn(names, object)

    @checks(start=INDEX, stop=INDEX)
    def read_row_names(self, start: int, stop: int) -> list[str] | None:
        """Names of the rows ``start <= i < stop``; None where rows are only numbered."""
        if not 0 <= start <= stop <= self.n_rows:
            raise UsageError(f"rows {start} to {stop} are not within the {self.n_rows} rows of {self.path}")
        return None if self._row_names is None else self._entries(self._row_names, start, stop).tolist()

    def _entries(self, column: Column, start: int, stop: int) -> npt.NDArray[Any]:
        if self.blocks_ahead:
            ahead = _ROWS_AHEAD if start == self._column_ends.get(id(column)) else 0
            column.array.announce(start, min(stop + ahead, self.n_rows))
            self._column_ends[id(column)] = stop
        return column.read(start, stop)

    def _row_in_file(self, row: int) -> int:
        return row

    def _read_column(self, name: str, column: Column | None, start: int, stop: int) -> npt.NDArray[Any]:
        if column is None:
            raise UsageError(f"{self.path} has no column obs/{name}")
        if not 0 <= start <= stop <= self.n_rows:
            raise UsageError(f"rows {start} to {stop} are not within the {self.n_rows} rows of {self.path}")
        entries = self._entries(column, start, stop)
        missing = name == "label" and self.n_unlabelled
        if name != "qid" and not missing and not np.isfinite(entries).all():
            place = int(np.argmin(np.isfinite(entries)))
            row = start + place
            if self.format_version is None:
                raise InputError(
                    f"row {self._row_in_file(row)}, from 0, of {self.path} has the {name} "
                    f"{entries[place]} in obs/{name}, not finite; remove that row or mend the value first"
                )
            raise DamageError(
                f"row {row} of {self.path} has no finite {name}; make the store again from its source"
            )
        return entries
