"""Rows that are held in memory as the store that they would make, and written only where they have to be.

`HeldRows` takes them as a writer does, `HeldStore` is read as any other store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock
from ooc_svm.store import layout
from ooc_svm.store.feature_names import given_names
from ooc_svm.store.held_blocks import POINTER_BYTES, HeldBlocks
from ooc_svm.store.label_summary import label_ranks
from ooc_svm.store.manifest import StoreMetadata, ValueType
from ooc_svm.store.open import open_store
from ooc_svm.store.options import StoreOptions
from ooc_svm.store.reader import Column, NamedColumn, NumberColumn, Store, StoreParts
from ooc_svm.store.row_facts import RowFacts
from ooc_svm.store.row_writer import RowWriter
from ooc_svm.store.storage import LocalStorage
from ooc_svm.system.address import AnyPath, located
from ooc_svm.system.malloc import trim_freed_memory
from ooc_svm.system.signals import ending_at_once, entered, uninterrupted

_COLUMNS = ("label", "qid", "weight")

# Bytes of a row apart from its elements: its pointer and columns, one of which is there twice while it is
# joined
_ROW_BYTES = POINTER_BYTES + 8 * (len(_COLUMNS) + 1)


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
    """A store whose blocks are all held in memory, as its columns are.

    It is written, by ``write``, when not all blocks are held any more, or its id is asked for. From then on
    its columns are read from the disk.
    """

    def __init__(
        self,
        metadata: StoreMetadata,
        parts: StoreParts,
        columns_nbytes: int,
        blocks: Sequence[RowBlock],
        write: Callable[[Sequence[RowBlock]], Store],
    ) -> None:
        super().__init__(metadata, parts)
        assert len(blocks) == len(self.blocks)
        self.hold(blocks)
        self.columns_nbytes = columns_nbytes
        self._write: Callable[[Sequence[RowBlock]], Store] | None = write

    @property
    def id(self) -> str:
        """See `Store.id`."""
        self._write_once()
        return super().id

    @property
    def shared_id(self) -> str:
        """See `Store.shared_id`."""
        self._write_once()
        return super().shared_id

    def settle(self, n_bytes: int) -> None:
        """See `Store.settle`."""
        if sum(span.nbytes for span in self.blocks) + self.columns_nbytes > n_bytes:
            self._write_once()

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
            store = self._write(list(self._held.values()))
        self._write, self._metadata, self.parts, self.columns_nbytes = None, store._metadata, store.parts, 0
        self.n_chunks, self.n_bytes = store.n_chunks, store.n_bytes
        trim_freed_memory()
        self.writing_seconds += time.monotonic() - began


class HeldRows:
    """Takes rows as a `StoreWriter` does, and holds the first blocks of the store, as many as fit.

    Where all of them do, the store is written only when `HeldStore` needs it on the disk.

    Parameters
    ----------
    path, **options
        As for `StoreWriter`.
    most_bytes : int
        Memory for rows.
    write_always : bool
        Whether the store is written in any case, while the rows come in.

    Raises
    ------
    UsageError, StorageError
        As `StoreWriter` does.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, most_bytes: int, write_always: bool, **options: Any
    ) -> None:
        self._path = located(path).absolute()
        names = given_names(options.get("feature_names"))
        self._options = StoreOptions(**options | {"feature_names": names})
        row_bytes = POINTER_BYTES if write_always else _ROW_BYTES
        self._blocks = HeldBlocks(most_bytes, self._options.dtype, row_bytes)
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}  # Those of rows that are not written
        self._facts = RowFacts(self._path, self._options, names)
        self._writer: RowWriter | None = None
        self._store: Store | None = None
        if write_always:
            self._begin_to_write([])

    @property
    def path(self) -> AnyPath:
        """Where the store is, or would be."""
        return self._path

    def append(self, labelled: LabelledRows, weight: Float64Array | None = None) -> None:
        """See `StoreWriter.append`."""
        rows = labelled.rows
        if not rows.n_rows:
            return
        values = self._facts.check(labelled, weight)
        if self._writer is None and not self._blocks.has_room(rows):
            self._begin_to_write(self._blocks.stop())
        if self._writer is None:
            self._add(labelled, weight)
        else:
            self._writer.append(labelled, values, weight)
        self._blocks.append(rows, values, self._facts.block_starts)

    def _add(self, labelled: LabelledRows, weights: Float64Array | None) -> None:
        """Take all of the rows but their elements."""
        columns = labelled.labels, labelled.qids, weights
        self._facts.add(labelled.rows.indptr, *columns)
        self._facts.add_ids(labelled.rows.indices)
        for name, column in zip(_COLUMNS, columns, strict=True):
            if column is not None:
                self._columns.setdefault(name, []).append(column.copy())

    def _begin_to_write(self, blocks: Sequence[RowBlock]) -> None:
        """Write the rows so far; those to come are written as they are appended."""
        with uninterrupted():
            self._writer = RowWriter(self._path, self._options)
        self._facts = self._writer.facts
        _append_blocks(self._writer, blocks, _joined(self._columns))

    def commit(
        self,
        *,
        n_features: int | None = None,
        provenance: dict[str, Any] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> StoreMetadata:
        """See `StoreWriter.commit`; of a store that is not written, the ids are empty and the sizes 0."""
        if self._writer is not None:
            return self._writer.commit(n_features, provenance, label_names)
        has_values = self._blocks.has_values
        known = self._facts.of_all(n_features or 0, provenance, label_names, has_values=has_values)
        names = None if label_names is None else tuple(sorted(label_names))
        metadata = StoreMetadata(
            path=self._path, id="", shared_id="", n_chunks=0, n_bytes=0, label_names=names, **known
        )
        columns = _joined(self._columns)
        self._store = HeldStore(
            metadata,
            self._parts(columns, label_names),
            sum(column.nbytes for column in columns.values()),
            self._blocks.hand_over(_value_dtype(metadata.value_type)),
            partial(_write_store, self._path, self._options, columns, (n_features, provenance, label_names)),
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
        if self._store is None:
            self._store = open_store(self._path)
            self._store.hold(self._blocks.hand_over(_value_dtype(self._store.value_type)))
        return self._store

    def close(self) -> None:
        """Release everything; what was not committed is removed."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> HeldRows:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _write_store(
    path: AnyPath,
    options: StoreOptions,
    columns: Mapping[str, npt.NDArray[Any]],
    details: tuple[int | None, dict[str, Any] | None, Sequence[str] | None],
    blocks: Sequence[RowBlock],
) -> Store:
    """Write rows that were held; ``details`` are for the commit."""
    with entered(partial(RowWriter, path, options)) as writer:
        _append_blocks(writer, blocks, columns)
        writer.commit(*details)
    return open_store(path)


def _append_blocks(
    writer: RowWriter, blocks: Sequence[RowBlock], columns: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Append rows that were checked."""
    for block in blocks:
        label, qid, weight = (
            columns[name][block.start : block.stop] if name in columns else None for name in _COLUMNS
        )
        assert label is not None
        writer.append(LabelledRows(block, label, qid), block.values, weight)


def _joined(columns: dict[str, list[npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """The parts of each column as one; they are no longer there."""
    return {name: np.concatenate(columns.pop(name)) for name in list(columns)}


def _value_dtype(value_type: ValueType) -> str | None:
    return None if value_type == "ones" else value_type
