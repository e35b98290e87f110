"""`RowWriter`: rows that were checked in, a committed store out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock, Values
from ooc_svm.store.array_writer import GrowingArray
from ooc_svm.store.builder import StoreBuilder
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.options import StoreOptions
from ooc_svm.store.row_columns import NO_TAIL
from ooc_svm.store.row_facts import RowFacts
from ooc_svm.system.address import AnyPath


class RowWriter:
    """Writes a store; a context manager that removes what was not committed.

    See `ooc_svm.store.writer.StoreWriter`, which checks what it is given.
    """

    def __init__(self, path: str | os.PathLike[str], options: StoreOptions) -> None:
        self._builder = StoreBuilder(path, options)
        self._dtype = np.dtype(options.dtype)
        with self._builder.writing():
            self._indices = self._elements("X/indices", np.int32, -1)
        self._data: GrowingArray | None = None
        self._open_tail = NO_TAIL

    @property
    def path(self) -> AnyPath:
        """Where the store will be."""
        return self._builder.path

    @property
    def facts(self) -> RowFacts:
        """What is known of the rows appended so far."""
        return self._builder.facts

    def _elements(self, name: str, dtype: npt.DTypeLike, fill_value: float) -> GrowingArray:
        chunk = self._builder.options.chunk_elements
        return GrowingArray(self._builder.files, name, dtype, chunk, fill_value=fill_value)

    def append(self, labelled: LabelledRows, values: Values | None, weights: Float64Array | None) -> None:
        """Append rows that `RowFacts.check` has let through, with the ``values`` that it gave."""
        rows, first = labelled.rows, self.facts.n_nonzeros
        with self._builder.writing():
            tails = self._builder.append(rows.indptr, labelled.labels, labelled.qids, weights)
            self._append_elements(rows, values, first, tails)

    def _append_elements(
        self, rows: RowBlock, values: Values | None, first: int, tails: list[tuple[int, int]]
    ) -> None:
        if values is not None and self._data is None:
            self._data = self._elements("X/data", self._dtype, np.nan)
            self._data.extend_ones(first)
            self._builder.tails.begin_values()
        if values is None and self._data is not None:
            values = np.ones(len(rows.indices), self._dtype)
        self.facts.add_ids(rows.indices)
        self._append_tails(rows, values, first, tails)
        self._indices.extend(rows.indices)
        if self._data is not None and values is not None:
            self._data.extend(values)

    def _append_tails(
        self, rows: RowBlock, values: Values | None, first: int, tails: list[tuple[int, int]]
    ) -> None:
        """Store the tails of the blocks that end before one of these rows; keep what may be the next."""
        chunk = self._builder.options.chunk_elements
        stop = first + len(rows.indices)
        for start, end in tails:
            if end > first:
                inside = slice(start - first, end - first)
                tail = (rows.indices[inside], None if values is None else values[inside])
            else:
                tail = self._open_tail if end > start else NO_TAIL
            self._builder.tails.append(*tail)
        last_start = first + int(rows.indptr[-2])
        reach = stop % chunk if stop // chunk > last_start // chunk else 0
        begin = len(rows.indices) - reach
        self._open_tail = (rows.indices[begin:].copy(), None if values is None else values[begin:].copy())

    def commit(
        self,
        n_features: int | None,
        provenance: dict[str, Any] | None,
        label_names: Sequence[str] | None,
    ) -> StoreMetadata:
        """See `ooc_svm.store.writer.StoreWriter.commit`."""
        with self._builder.writing():
            if self._data is None:
                self._data = self._elements("X/data", np.uint8, 0)
                self._data.extend_ones(self.facts.n_nonzeros)
            elements = self._indices, self._data
            return self._builder.commit(elements, n_features or 0, provenance, label_names)

    def close(self) -> None:
        """Release everything; what was not committed is removed."""
        self._builder.close()

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
