"""The rows of a store that have labels: the others are taken out of each block when it is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import RowBlock
from ooc_svm.parameters import checks
from ooc_svm.store.blocks import BlockBuffers, BlockSpan
from ooc_svm.store.label_summary import RunCounter
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.reader import BUFFERS, INDEX, Column, Store, StoreParts


class LabelledStore(Store):
    """A store whose rows are those of another one that have a label.

    Rows are numbered as if the others had never been there; blocks without a row that has a label are left
    out. Which rows these are is read again with each block, so nothing is kept for each row.
    """

    def __init__(self, metadata: StoreMetadata, parts: StoreParts) -> None:
        self._every = Store(metadata, parts)
        self._own_spans, self._numbers, n_groups = self._counted()
        n_nonzeros = sum(span.n_nonzeros for span in self._own_spans)
        n_rows = metadata.n_rows - metadata.n_unlabelled
        own = replace(metadata, n_rows=n_rows, n_nonzeros=n_nonzeros, qid_groups=n_groups)
        super().__init__(own, parts)

    def _counted(self) -> tuple[tuple[BlockSpan, ...], list[int], int]:
        """The blocks, the numbers that they have in the store, and how many groups there are.

        The memory of a block is that of the whole one.
        """
        spans: list[BlockSpan] = []
        numbers: list[int] = []
        groups = RunCounter()
        for span in self._every.blocks:
            kept = self._kept(span)
            if not kept.any():
                continue
            pointers = np.empty(span.n_rows + 1, np.int64)
            self._every.parts.indptr.read_into(span.start, span.stop + 1, pointers)
            start = spans[-1].stop if spans else 0
            n_nonzeros = int(np.diff(pointers)[kept].sum())
            stop = start + int(np.count_nonzero(kept))
            spans.append(BlockSpan(len(spans), start, stop, n_nonzeros, span.nbytes))
            numbers.append(span.index)
            if self._every.parts.qid is not None:
                groups.add(self._every.parts.qid.read(span.start, span.stop)[kept])
        return tuple(spans), numbers, groups.n_runs

    def _kept(self, span: BlockSpan) -> npt.NDArray[np.bool_]:
        """Which rows of a block have a label."""
        assert self._every.parts.label is not None
        kept: npt.NDArray[np.bool_] = np.isfinite(self._every.parts.label.read(span.start, span.stop))
        return kept

    def _spans(self) -> tuple[BlockSpan, ...]:
        return self._own_spans

    def require_labels(self) -> None:
        """See `Store.require_labels`: every row has one."""

    def new_buffers(self) -> BlockBuffers:
        """Buffers for the largest block with all its rows."""
        return self._every.new_buffers()

    @checks(index=INDEX, buffers=BUFFERS)
    def read_block(self, index: int, buffers: BlockBuffers | None = None) -> RowBlock:
        """See `Store.read_block`."""
        self._check_index(index)
        whole = self._every.read_block(self._numbers[index], buffers)
        kept = self._kept(self._every.blocks[self._numbers[index]])
        if not kept.all():
            lengths = np.diff(whole.indptr)
            elements = np.repeat(kept, lengths)
            n_rows, n_nonzeros = int(np.count_nonzero(kept)), int(np.count_nonzero(elements))
            np.cumsum(lengths[kept], out=whole.indptr[1 : n_rows + 1])
            indices, values = whole.indices[:n_nonzeros], whole.values
            indices[:] = whole.indices[elements]
            if values is not None:
                values[:n_nonzeros] = values[elements]
                values = values[:n_nonzeros]
            whole = RowBlock(0, whole.indptr[: n_rows + 1], indices, values)
        return replace(whole, start=self.blocks[index].start)

    def announce_block(self, index: int) -> None:
        """See `Store.announce_block`."""
        self._every.announce_block(self._numbers[index])

    def _stored_bytes(self, index: int) -> int:
        return self._every.block_stored_bytes(self._numbers[index])

    def _row_in_file(self, row: int) -> int:
        place = next(place for place, span in enumerate(self.blocks) if row < span.stop)
        whole = self._every.blocks[self._numbers[place]]
        return whole.start + int(np.flatnonzero(self._kept(whole))[row - self.blocks[place].start])

    def _entries(self, column: Column, start: int, stop: int) -> npt.NDArray[Any]:
        parts = [column.read(start, start)]
        for span, number in zip(self.blocks, self._numbers, strict=True):
            if span.start < stop and span.stop > start:
                whole = self._every.blocks[number]
                entries = column.read(whole.start, whole.stop)[self._kept(whole)]
                parts.append(entries[max(start - span.start, 0) : stop - span.start])
        return np.concatenate(parts)
