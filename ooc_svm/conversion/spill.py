"""Rows with weights or with keys, and rows spilled to files of the scratch folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, LabelledRows, RowBlock, Values
from ooc_svm.data.take import take_rows
from ooc_svm.system.records import RecordFile, append_record

Keys = npt.NDArray[np.uint64]
Column = npt.NDArray[Any]
WeightedRows = tuple[LabelledRows, Float64Array | None]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """CSR rows with a key each and the columns that travel with them.

    Row pointers start at 0; values are None where every stored value is 1.
    """

    keys: Keys
    indptr: Int64Array
    indices: Int32Array
    values: Values | None
    columns: dict[str, Column]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        values = 0 if self.values is None else self.values.nbytes
        columns = sum(column.nbytes for column in self.columns.values())
        return self.keys.nbytes + self.indptr.nbytes + self.indices.nbytes + values + columns

    def rows(self, start: int, stop: int) -> KeyedRows:
        """The rows ``start <= i < stop``, as views except for the row pointers."""
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        return KeyedRows(
            self.keys[start:stop],
            self.indptr[start : stop + 1] - first,
            self.indices[first:last],
            None if self.values is None else self.values[first:last],
            {name: column[start:stop] for name, column in self.columns.items()},
        )

    def take(self, order: Int64Array) -> KeyedRows:
        """The rows ``order[0]``, ``order[1]``, ..., copied."""
        taken = take_rows(RowBlock(0, self.indptr, self.indices, self.values), order)
        columns = {name: column[order] for name, column in self.columns.items()}
        return KeyedRows(self.keys[order], taken.indptr, taken.indices, taken.values, columns)


def join(blocks: Iterable[KeyedRows], n_rows: int, n_nonzeros: int) -> KeyedRows:
    """Blocks one after another in new arrays; one block at a time is held in addition to them.

    There is at least one block, all have the same columns, and the counts are those of all of them together.
    """
    keys, indptr = np.empty(n_rows, np.uint64), np.zeros(n_rows + 1, np.int64)
    indices = np.empty(n_nonzeros, np.int32)
    values: Values | None = None
    columns: dict[str, Column] = {}
    row = element = 0
    for block in blocks:
        next_row, next_element = row + block.n_rows, element + len(block.indices)
        keys[row:next_row] = block.keys
        indptr[row + 1 : next_row + 1] = block.indptr[1:] + element
        indices[element:next_element] = block.indices
        if values is None and block.values is not None:
            values = np.empty(n_nonzeros, block.values.dtype)
            values[:element] = 1
        if values is not None:
            values[element:next_element] = 1 if block.values is None else block.values
        for name, column in block.columns.items():
            if name not in columns:
                columns[name] = np.empty(n_rows, column.dtype)
            columns[name][row:next_row] = column
        row, element = next_row, next_element
    return KeyedRows(keys, indptr, indices, values, columns)


class Bucket:
    """Spilled rows: those added last are in memory, the others in a file, which the first `flush` makes.

    The counts are those of all rows added; ``has_one_key`` says whether no two of them have different keys.
    `flush` and `blocks` raise StorageError: the file failed, or what is read is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_rows = self.n_nonzeros = self.nbytes = 0
        self.has_one_key = True
        self._key: np.uint64 | None = None
        self._pending: list[KeyedRows] = []
        self._records = 0
        self._value_type: np.dtype[Any] | None = None
        self._column_types: dict[str, np.dtype[Any]] = {}

    def add(self, rows: KeyedRows) -> None:
        """Add rows, at least one; they stay in memory for now."""
        self._key = rows.keys[0] if self._key is None else self._key
        self.has_one_key = self.has_one_key and bool((rows.keys == self._key).all())
        self._pending.append(rows)
        self.n_rows += rows.n_rows
        self.n_nonzeros += len(rows.indices)
        self.nbytes += rows.nbytes
        if rows.values is not None:
            self._value_type = rows.values.dtype
        self._column_types = {name: column.dtype for name, column in rows.columns.items()}

    def flush(self) -> None:
        """Write the rows in memory to the file."""
        if not self._pending:
            return
        n_rows = sum(block.n_rows for block in self._pending)
        rows = join(self._pending, n_rows, sum(len(block.indices) for block in self._pending))
        self._pending.clear()
        values = [] if rows.values is None else [rows.values]
        sizes = np.array([n_rows, len(rows.indices), len(values)], np.int64)
        append_record(
            self.path, [sizes, rows.keys, rows.indptr, *rows.columns.values(), rows.indices, *values]
        )
        self._records += 1

    def blocks(self) -> Iterator[KeyedRows]:
        """All rows, in the blocks in which they were written and added."""
        if self._records:
            with RecordFile(self.path) as file:
                for _ in range(self._records):
                    yield self._read_record(file)
        yield from self._pending

    def _read_record(self, file: RecordFile) -> KeyedRows:
        n_rows, n_nonzeros, has_values = file.read(3, np.int64).tolist()
        file.require(0 <= n_rows <= self.n_rows and 0 <= n_nonzeros <= self.n_nonzeros)
        keys = file.read(n_rows, np.uint64)
        indptr = file.read(n_rows + 1, np.int64)
        columns = {name: file.read(n_rows, dtype) for name, dtype in self._column_types.items()}
        indices = file.read(n_nonzeros, np.int32)
        values = None
        if has_values and self._value_type is not None:
            values = file.read(n_nonzeros, self._value_type)
        file.end_record()
        return KeyedRows(keys, indptr, indices, values, columns)

    def clear(self) -> None:
        """Drop the rows and remove the file."""
        self._pending.clear()
        if self._records:
            self.path.unlink(missing_ok=True)
