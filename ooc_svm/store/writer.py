"""`StoreWriter`: labelled rows in, a committed store out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock, Values
from ooc_svm.errors import InputError
from ooc_svm.store.array_writer import GrowingArray
from ooc_svm.store.builder import OutlineWriter
from ooc_svm.store.layout import LARGEST_FEATURE_COUNT
from ooc_svm.store.validate import RuleError, check_rows


class StoreWriter(OutlineWriter):
    """Writes a store; it appears at its path complete, by `commit`, or not at all.

    Use it as a context manager: leaving without `commit` removes everything. Memory is bounded by a few
    chunks whatever is written. The bytes of a store follow from the rows and the options alone:
    not from the pieces they came in nor from the number of threads.

    Parameters
    ----------
    path : path-like
        Where the store will be; its parent folder must exist.
    dtype : {"float32", "float64"}
        Type of the values. Where every value is 1 no values are kept at all.
    index_base : {0, 1}
        What the source counts its features from (kept as a fact; column ids here count from 0).
    n_features : int, optional
        Number of columns; by default one more than the largest column id.
    overwrite : bool
        Replace a store of ours.
    threads : int
        Chunks compressed at once.
    provenance : dict, optional
        Anything JSON can hold: sources, options, versions.
    chunk_elements, chunk_rows : int
        Elements in a chunk of the data, rows in a chunk of the columns.
    block_chunks, block_rows : int
        See `ooc_svm.store.blocks.BlockCutter`.

    Raises
    ------
    UsageError
        Contradicting options, or the path exists and may not be replaced.
    StorageError
        Another run is writing there, or the folder cannot be written.
    """

    def _create(self) -> None:
        super()._create()
        self._indices = self._elements("X/indices", np.int32, -1)
        self._data: GrowingArray | None = None
        self._open_tail: tuple[npt.NDArray[np.int32], Values | None] = (np.empty(0, np.int32), None)

    def _elements(self, name: str, dtype: npt.DTypeLike, fill_value: float) -> GrowingArray:
        chunk = self._chunk_elements
        return GrowingArray(self._files, self._behind, name, dtype, chunk, fill_value=fill_value)

    def append(self, labelled: LabelledRows, weights: Float64Array | None = None) -> None:
        """Append rows.

        Parameters
        ----------
        labelled : LabelledRows
            Any number of them; ``labelled.rows.start`` is not looked at. The arrays are copied.
        weights : ndarray of float64, shape (n_rows,), optional
            Weights of the rows; given for all rows of a store or for none. The same holds for qids.

        Raises
        ------
        InputError
            Rows that break the rules of a block, or a label, qid or weight that is no finite number.
        StorageError
            Writing failed.
        """
        rows = labelled.rows
        if not rows.n_rows:
            return
        self._require_open()
        values = self._checked_values(rows)
        self._check_columns(rows.n_rows, labelled.labels, labelled.qids, weights)
        with self._writing():
            first = self.n_nonzeros
            tails = self._append_columns(rows.indptr, labelled.labels, labelled.qids, weights)
            self._append_elements(rows, values, first, tails)

    def _checked_values(self, rows: RowBlock) -> Values | None:
        """Values in the type of the store, None where all are 1; raises InputError."""
        values = rows.values
        if values is not None:
            with np.errstate(over="ignore"):  # what overflows is found by the check
                values = values.astype(self._dtype, copy=False)
        limit = LARGEST_FEATURE_COUNT if self._n_features is None else self._n_features
        try:
            check_rows(rows.indptr, rows.indices, values, limit)
        except RuleError as offence:
            raise InputError(
                f"row {self.n_rows + offence.row} cannot be written to {self.path}: {offence} "
                f"(n_features is {limit}, values are {self._dtype})"
            ) from None
        return None if values is None or bool((values == 1).all()) else values

    def _append_elements(
        self, rows: RowBlock, values: Values | None, first: int, tails: list[tuple[int, int]]
    ) -> None:
        if values is not None and self._data is None:
            self._data = self._elements("X/data", self._dtype, np.nan)
            self._data.extend_ones(first)
            self._begin_tail_values()
        if values is None and self._data is not None:
            values = np.ones(len(rows.indices), self._dtype)
        if len(rows.indices):
            self._largest_id = max(self._largest_id, int(rows.indices.max()))
        self._append_tails(rows, values, first, tails)
        self._indices.extend(rows.indices)
        if self._data is not None and values is not None:
            self._data.extend(values)

    def _append_tails(
        self, rows: RowBlock, values: Values | None, first: int, tails: list[tuple[int, int]]
    ) -> None:
        """Store the tails of the blocks that end before one of these rows; keep what may be the next."""
        stop = first + len(rows.indices)
        for start, end in tails:
            if end > first:
                inside = slice(start - first, end - first)
                self._store_tail(rows.indices[inside], None if values is None else values[inside])
            else:
                self._store_tail(*(self._open_tail if end > start else (np.empty(0, np.int32), None)))
        last_start = first + int(rows.indptr[-2])
        reach = (
            stop % self._chunk_elements
            if stop // self._chunk_elements > last_start // self._chunk_elements
            else 0
        )
        begin = len(rows.indices) - reach
        self._open_tail = (rows.indices[begin:].copy(), None if values is None else values[begin:].copy())

    def _finish_elements(self) -> Sequence[GrowingArray]:
        if self._data is None:
            self._data = self._elements("X/data", np.uint8, 0)
            self._data.extend_ones(self.n_nonzeros)
        return self._indices, self._data
