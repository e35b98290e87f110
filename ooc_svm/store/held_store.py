"""Rows that are held in memory as the store that they would make, and written only where they have to be.

`HeldRows` takes them as a writer does, `HeldStore` is read as any other store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock
from ooc_svm.store import layout
from ooc_svm.store.feature_names import given_names
from ooc_svm.store.held_blocks import HeldBlocks
from ooc_svm.store.label_summary import label_ranks
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.open import open_store
from ooc_svm.store.options import StoreOptions
from ooc_svm.store.reader import Column, NamedColumn, NumberColumn, Store, StoreParts
from ooc_svm.store.row_facts import RowFacts
from ooc_svm.store.storage import LocalStorage
from ooc_svm.store.writer import StoreWriter
from ooc_svm.system.address import AnyPath, located
from ooc_svm.system.malloc import trim_freed_memory
from ooc_svm.system.signals import ending_at_once

_COLUMNS = ("label", "qid", "weight")

# Bytes of a row besides its elements: its pointer and columns, one of which is there twice while it is joined
_ROW_BYTES = 8 * (1 + len(_COLUMNS) + 1)


class ArrayInMemory:
    """An array in memory; an `ooc_svm.store.chunk_files.Elements`."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def announce(self, start: int, stop: int) -> None:
        """Do nothing."""

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Copy the elements ``start <= i < stop`` into ``out``."""
        out[:] = self._array[start:stop]


class HeldStore(Store):
    """A store whose blocks are all held in memory, and its columns too.

    It is written, by ``write``, when not all blocks are held any more, or its id is asked for.
    ``column_bytes`` are those of a row in the columns: blocks count them as theirs, so that what has no room
    for all blocks with their columns has the store written, whose columns take no memory.

    Attributes
    ----------
    writing_seconds : float
        Time that this took.
    """

    def __init__(
        self,
        metadata: StoreMetadata,
        parts: StoreParts,
        column_bytes: int,
        blocks: Sequence[RowBlock],
        write: Callable[[Sequence[RowBlock]], Store],
    ) -> None:
        self._row_bytes = 8 + column_bytes
        super().__init__(metadata, parts)
        assert len(blocks) == len(self.blocks)
        self.hold(blocks)
        self._write: Callable[[Sequence[RowBlock]], Store] | None = write
        self.writing_seconds = 0.0

    @property
    def id(self) -> str:
        """See `Store`."""
        self._write_once()
        return super().id

    @property
    def shared_id(self) -> str:
        """See `Store`."""
        self._write_once()
        return super().shared_id

    def hold_only(self, numbers: Collection[int]) -> None:
        """See `Store.hold_only`."""
        if len(numbers) < len(self.blocks):
            self._write_once()
        super().hold_only(numbers)

    def _write_once(self) -> None:
        """Write the store if it is not on the disk, from which all is read then that is not held."""
        if self._write is None:
            return
        began = time.monotonic()
        with ending_at_once():
            written = self._write(list(self._held.values()))
        self._write, self._metadata, self.parts = None, written._metadata, written.parts
        self.n_chunks, self.n_bytes = written.n_chunks, written.n_bytes
        trim_freed_memory()
        self.writing_seconds += time.monotonic() - began


class HeldRows:
    """Takes rows as a `StoreWriter` does, and holds the first blocks of the store, as many as fit.

    Where all of them do, the store is written only if `HeldStore` has to.

    Parameters
    ----------
    most_bytes : int
        Memory for rows.
    written : bool
        Whether the store is written in any case, while the rows come in.
    path, **options
        As for `StoreWriter`.

    Raises
    ------
    UsageError, StorageError
        As `StoreWriter` does.
    """

    def __init__(self, most_bytes: int, written: bool, path: str | os.PathLike[str], **options: Any) -> None:
        self._path, self._options = located(path).absolute(), StoreOptions(**options)
        names = given_names(self._options.feature_names)
        self._open_writer = partial(StoreWriter, self._path, **options | {"feature_names": names})
        self._blocks = HeldBlocks(most_bytes, self._options.dtype, 8 if written else _ROW_BYTES)
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}  # Those of rows that are not written
        self._facts = RowFacts(self._path, self._options, names)
        self._writer: StoreWriter | None = None
        self._store: Store | None = None
        if written:
            self._begin_to_write()

    @property
    def path(self) -> AnyPath:
        """Where the store is, or would be."""
        return self._path

    def append(self, labelled: LabelledRows, weights: Float64Array | None = None) -> None:
        """See `StoreWriter.append`."""
        rows = labelled.rows
        if not rows.n_rows:
            return
        values = self._facts.check(labelled, weights)
        if self._writer is None and not self._blocks.has_room(rows):
            self._begin_to_write()
        if self._writer is None:
            self._add(labelled, weights)
        else:
            self._writer.append_checked(labelled, values, weights)
        self._blocks.append(rows, values, self._facts.block_starts)

    def _add(self, labelled: LabelledRows, weights: Float64Array | None) -> None:
        """Take all of the rows but their elements."""
        columns = labelled.labels, labelled.qids, weights
        self._facts.add(labelled.rows.indptr, *columns)
        self._facts.add_ids(labelled.rows.indices)
        for name, column in zip(_COLUMNS, columns, strict=True):
            if column is not None:
                self._columns.setdefault(name, []).append(column.copy())

    def _begin_to_write(self) -> None:
        """Write the rows so far; those to come are written as they are appended."""
        self._writer = self._open_writer()
        self._facts = self._writer.facts
        _append_blocks(self._writer, self._blocks.so_far(), _joined(self._columns))

    def commit(
        self,
        *,
        n_features: int | None = None,
        provenance: dict[str, Any] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> StoreMetadata:
        """See `StoreWriter.commit`; of a store that is not written, the id and the sizes are empty."""
        details: dict[str, Any] = {
            "n_features": n_features,
            "provenance": provenance,
            "label_names": label_names,
        }
        if self._writer is not None:
            written = self._writer.commit(**details)
            self._store = open_store(self._path)
            self._store.hold(self._blocks.hand_over(_value_dtype(written)))
            return written
        known = self._facts.of_all(
            n_features or 0, provenance, label_names, has_values=self._blocks.has_values
        )
        names = None if label_names is None else tuple(sorted(label_names))
        metadata = StoreMetadata(
            path=self._path, id="", shared_id="", n_chunks=0, n_bytes=0, label_names=names, **known
        )
        columns = _joined(self._columns)
        self._store = HeldStore(
            metadata,
            self._parts(columns, label_names),
            sum(column.itemsize for column in columns.values()),
            self._blocks.hand_over(_value_dtype(metadata)),
            partial(_written, self._open_writer, columns, details),
        )
        return metadata

    def _parts(self, columns: Mapping[str, npt.NDArray[Any]], names: Sequence[str] | None) -> StoreParts:
        """Columns in memory, and no elements: those of all blocks are held."""
        assert isinstance(self._path, Path)
        arrays = {name: ArrayInMemory(column) for name, column in columns.items()}
        nothing = ArrayInMemory(np.empty(0))
        label: Column = NumberColumn(arrays["label"], np.float64)
        if names is not None:
            code_type = layout.code_type(self._options.label_sets)
            label = NamedColumn(arrays["label"], label_ranks(names), str(self._path), code_type)
        tables, feature_names = self._facts.block_tables(), self._facts.feature_names
        return StoreParts(
            storage=LocalStorage(self._path.parent),  # There is none at the path; nothing is read from it
            indptr=nothing,
            indices=nothing,
            data=None,
            block_rows=tables[0],
            block_nonzeros=tables[1],
            tails=None,
            label=label,
            qid=NumberColumn(arrays["qid"], np.int64) if "qid" in arrays else None,
            weight=NumberColumn(arrays["weight"], np.float64) if "weight" in arrays else None,
            chunk_sizes={},
            feature_names=None if feature_names is None else lambda: feature_names,
        )

    def store(self) -> Store:
        """The store, which is committed, with the blocks that are held."""
        assert self._store is not None
        return self._store

    def close(self) -> None:
        """Release everything; what was not committed is removed."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> HeldRows:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _written(
    open_writer: Callable[[], StoreWriter],
    columns: Mapping[str, npt.NDArray[Any]],
    details: Mapping[str, Any],
    blocks: Sequence[RowBlock],
) -> Store:
    """Write rows that were held."""
    with open_writer() as writer:
        _append_blocks(writer, blocks, columns)
        written = writer.commit(**details)
    return open_store(written.path)


def _append_blocks(
    writer: StoreWriter, blocks: Iterable[RowBlock], columns: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Append rows that were checked."""
    for block in blocks:
        label, qid, weight = (
            columns[name][block.start : block.stop] if name in columns else None for name in _COLUMNS
        )
        assert label is not None
        writer.append_checked(LabelledRows(block, label, qid), block.values, weight)


def _joined(columns: dict[str, list[npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """The parts of each column as one; they are no longer there."""
    return {name: np.concatenate(columns.pop(name)) for name in list(columns)}


def _value_dtype(known: StoreMetadata) -> str | None:
    return None if known.value_type == "ones" else known.value_type
