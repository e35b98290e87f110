"""The matrix of an AnnData file as blocks of rows in bounded memory, however it is stored.

Rows are read in order where they are stored as rows. A matrix stored by columns (CSC) is read once, in order,
and divided into pieces of rows, which the external sort brings together: pieces of one row stay in the order
of their columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.conversion.external_sort import KEY_BITS, RowSorter
from ooc_svm.conversion.spill import KeyedRows
from ooc_svm.data.blocks import Int64Array, RowBlock, Values
from ooc_svm.data.limits import LARGEST_FEATURE_COUNT
from ooc_svm.data.zeros import cast_values, without_zeros
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, parameter
from ooc_svm.store.trees import Tree, TreeArray
from ooc_svm.store.validate import UNSORTED, RuleError, check_sorted
from ooc_svm.system.memory import format_size

# Rows of a block, at most; rows that are decoded at once are read together.
_BLOCK_ROWS = 1 << 16
# Bytes of memory for each stored value of the columns that are divided into pieces of rows.
_PIECE_BYTES = 100
_ENCODINGS = ("csr_matrix", "csc_matrix")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a matrix is stored: ``csr_matrix``, ``csc_matrix`` or ``array``."""

    name: str
    encoding: str
    n_rows: int
    n_features: int


def matrix_layout(tree: Tree, layer: str | None) -> Layout:
    """How ``X`` or a layer is stored; InputError where there is no such matrix."""
    name = "X" if layer in (None, "X") else f"layers/{layer}"
    known = tree.children("layers")
    if layer not in (None, "X", *known) and not (_is_plain(layer) and tree.is_array(name)):
        listed = ", ".join(f"{each!r:.80}" for each in known[:20]) or "none"
        raise InputError(f"{tree.location} has no layer {layer!r:.80}; there are: {listed}")
    attributes = tree.attributes(name)
    shape: Any
    if attributes is None:
        if not tree.is_array(name):
            raise InputError(f"{tree.location} has no {name}; name a layer ({parameter('layer')})")
        encoding, shape = "array", list(tree.matrix(name).shape)
    else:
        encoding, shape = str(attributes.get("encoding-type")), attributes.get("shape")
        if encoding not in _ENCODINGS:
            raise InputError(
                f"{name} of {tree.location} is encoded as {encoding!r:.80}; rows are read from a CSR, CSC or "
                "dense matrix as AnnData 0.8 and later write it"
            )
    return Layout(name, encoding, *checked_shape(name, tree.location, shape))


def checked_shape(name: str, location: str, shape: Any) -> tuple[int, int]:
    """Rows and columns; raises DamageError where they are none, and InputError where there are none."""
    if not isinstance(shape, list) or len(shape) != 2 or any(type(length) is not int for length in shape):
        raise DamageError(f"{name} of {location} has the shape {shape!r:.80}; the file is damaged")
    n_rows, n_features = shape
    if n_rows < 1 or not 1 <= n_features <= LARGEST_FEATURE_COUNT:
        raise InputError(
            f"{name} of {location} has {n_rows} rows and {n_features} columns; nothing can be read"
        )
    return n_rows, n_features


def _is_plain(name: str | None) -> bool:
    return name is not None and "/" not in name and name not in (".", "..")


class MatrixBlocks:
    """Blocks of the rows of a matrix; ``elements`` is the size of a block, ``zeros`` counts what was dropped.

    `spare_bytes` is memory that nothing else uses: larger chunks and longer rows are decoded in it.
    `bytes_done` is what was read so far, of `total_bytes`, both as decoded.
    """

    def __init__(self, tree: Any, layout: Layout, dtype: str, elements: int, spare_bytes: int = 0) -> None:
        self._tree, self._layout, self._dtype = tree, layout, np.dtype(dtype)
        self._elements = elements
        # Two arrays are decoded at a time; a chunk is there as stored and as decoded.
        self._most_bytes = 64 * elements + spare_bytes // 4
        self.zeros = self.bytes_done = 0
        if layout.encoding == "array":
            self._matrix = tree.matrix(layout.name)
            n, d = self._matrix.shape
            self.total_bytes = n * d * self._matrix.dtype.itemsize
            self.check_step(layout.name, self._matrix.step * d * self._matrix.dtype.itemsize)
            return
        names = ("indptr", "indices", "data")
        self._pointers, self._ids, self._data = (tree.array(f"{layout.name}/{name}") for name in names)
        kinds = [array.dtype.kind for array in (self._pointers, self._ids, self._data)]
        n_pointers = (layout.n_rows if layout.encoding == "csr_matrix" else layout.n_features) + 1
        if (
            kinds[0] not in "iu"
            or kinds[1] not in "iu"
            or kinds[2] not in "biuf"
            or self._pointers.length != n_pointers
            or self._ids.length != self._data.length
        ):
            raise self._damage("has pointers, ids and values that do not fit each other")
        self._width = self._ids.dtype.itemsize + self._data.dtype.itemsize
        self.total_bytes = self._ids.length * self._width
        for array in (self._pointers, self._ids, self._data):
            self.check_step(layout.name, array.step * array.dtype.itemsize)

    def check_step(self, name: str, nbytes: int) -> None:
        """What is decoded at once of an array of the file must fit the memory."""
        if nbytes > self._most_bytes:
            raise MemoryBudgetError(
                f"{name} of {self._tree.location} has chunks of {format_size(nbytes)}, and there are "
                f"{format_size(self._most_bytes)} for one: allow more ({parameter('memory')}), or write the "
                "file with smaller chunks"
            )

    def _check_row(self, row: int, n_values: int) -> None:
        """A row is read at once, however long it is: as it is stored, with wide ids, and converted."""
        each = self._width + np.dtype(np.int64).itemsize + self._dtype.itemsize
        if n_values * each > self._most_bytes:
            raise MemoryBudgetError(
                f"row {row}, from 0, of {self._layout.name} of {self._tree.location} has {n_values} stored "
                f"values, and there is memory for {self._most_bytes // each} at once: allow more "
                f"({parameter('memory')})"
            )

    def _damage(self, what: str) -> DamageError:
        return DamageError(f"{self._layout.name} of {self._tree.location} {what}; the file is damaged")

    def blocks(self, scratch: Path, sort_bytes: int) -> Iterator[RowBlock]:
        """The rows in order, without zeros, checked, with values in the type that was asked for."""
        if self._layout.encoding == "array":
            rows = self._dense_rows()
        elif self._layout.encoding == "csr_matrix":
            rows = self._csr_rows()
        else:
            rows = self._csc_rows(scratch, sort_bytes)
        for block in rows:
            self._check(block)
            yield block

    def _spans(self, pointers: TreeArray, n: int) -> Iterator[tuple[int, Int64Array]]:
        """The first line of each block of lines, and their pointers, which are checked."""
        for start in range(0, n, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, n)
            found = pointers.read(start, stop + 1)
            if found.min() < 0 or found.max() > self._ids.length or (found[1:] < found[:-1]).any():
                raise self._damage(f"has pointers from {start} on that decrease or leave its values")
            own = found.astype(np.int64)
            if (start == 0 and own[0] != 0) or (stop == n and own[-1] != self._ids.length):
                raise self._damage("has values that belong to no row or column")
            yield start, own

    def _read(self, first: int, last: int, limit: int) -> tuple[Int64Array, Values]:
        """Ids and values of a range of elements; ids below the limit."""
        ids, values = self._ids.read(first, last), self._data.read(first, last)
        self.bytes_done += (last - first) * self._width
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < limit:
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise self._damage(f"has the id {wrong} outside 0 .. {limit - 1} in elements {first} to {last}")
        return ids.astype(np.int64, copy=False), values

    def _csr_rows(self) -> Iterator[RowBlock]:
        for start, pointers in self._spans(self._pointers, self._layout.n_rows):
            first = 0
            while first < len(pointers) - 1:
                reach = int(np.searchsorted(pointers, pointers[first] + self._elements, side="right")) - 1
                if reach == first:
                    self._check_row(start + first, int(pointers[first + 1] - pointers[first]))
                last = max(first + 1, min(reach, len(pointers) - 1))
                own = pointers[first : last + 1]
                ids, values = self._read(int(own[0]), int(own[-1]), self._layout.n_features)
                rows = without_zeros(start + first, own - own[0], ids, values, self._dtype)
                self.zeros += len(values) - len(rows.indices)
                yield rows
                first = last

    def _dense_rows(self) -> Iterator[RowBlock]:
        n, d = self._matrix.shape
        length = max(self._elements // d, 1)
        step = self._matrix.step
        length = length - length % step if length > step else length
        for start in range(0, n, length):
            stop = min(start + length, n)
            values = self._matrix.read(start, stop)
            self.bytes_done += values.nbytes
            cast = cast_values(values, self._dtype)
            rows, columns = np.nonzero(cast)
            self.zeros += int(np.count_nonzero(values)) - len(rows)
            indptr = np.zeros(stop - start + 1, np.int64)
            np.cumsum(np.bincount(rows, minlength=stop - start), out=indptr[1:])
            yield RowBlock(start, indptr, columns.astype(np.int32), cast[rows, columns])

    def _csc_rows(self, scratch: Path, sort_bytes: int) -> Iterator[RowBlock]:
        n_rows = self._layout.n_rows
        shift = KEY_BITS - max(n_rows - 1, 1).bit_length()
        expected = self._ids.length * (4 + self._dtype.itemsize + 16)
        sorter = RowSorter(scratch, "columns", sort_bytes // 2, expected)
        # The more columns at a time, the longer the pieces of rows, and the fewer.
        elements = max(self._elements, sort_bytes // 2 // _PIECE_BYTES)
        sorter.fill(self._pieces(np.uint64(shift), elements))
        return _joined(sorter.drain(), n_rows, shift, self._dtype)

    def _pieces(self, shift: np.uint64, elements: int) -> Iterator[KeyedRows]:
        """Elements of consecutive columns, sorted by row: the pieces of rows that these columns have."""
        for start, pointers in self._spans(self._pointers, self._layout.n_features):
            for first in range(int(pointers[0]), int(pointers[-1]), elements):
                last = min(first + elements, int(pointers[-1]))
                rows, values = self._read(first, last, self._layout.n_rows)
                columns = np.searchsorted(pointers, np.arange(first, last), side="right") - 1 + start
                cast = cast_values(values, self._dtype)
                kept = cast != 0
                self.zeros += len(values) - int(np.count_nonzero(kept))
                rows, columns, cast = rows[kept], columns[kept], cast[kept]
                if not len(rows):
                    continue
                order = np.argsort(rows, kind="stable")
                rows = rows[order]
                heads = np.append(np.flatnonzero(np.append(True, rows[1:] != rows[:-1])), len(rows))
                keys = rows[heads[:-1]].astype(np.uint64) << shift
                ids = columns[order].astype(np.int32)
                yield KeyedRows(keys, heads.astype(np.int64), ids, cast[order], {})

    def _check(self, block: RowBlock) -> None:
        """Check a block by the rules of a store; rows may need sorting first."""
        try:
            check_sorted(block.indptr, block.indices, block.values, self._layout.n_features)
        except RuleError as offence:
            raise self._refusal(block, offence) from None

    def _refusal(self, block: RowBlock, offence: RuleError) -> Exception:
        row = f"row {block.start + offence.row}, from 0,"
        if offence.reason == UNSORTED:  # even when sorted
            return InputError(
                f"column {int(block.indices[offence.position])} stands twice in {row} of {self._layout.name} "
                f"of {self._tree.location}; call sum_duplicates() of the matrix first"
            )
        if block.values is not None and 0 <= offence.position < len(block.values):
            value = block.values[offence.position]
            if not np.isfinite(value):
                column = int(block.indices[offence.position])
                wide = (
                    ""
                    if self._dtype.itemsize == 8
                    else f" or beyond float32 ({parameter('dtype', 'float64')})"
                )
                return InputError(
                    f"{row} of {self._layout.name} of {self._tree.location} has a value in column {column}, "
                    f"from 0, that is not finite{wide}: {value}; remove or replace it first"
                )
        return self._damage(f"breaks the rules in {row} {offence}")


def _joined(blocks: Iterable[KeyedRows], n_rows: int, shift: int, dtype: np.dtype[Any]) -> Iterator[RowBlock]:
    """Rows from their pieces, which are sorted by row; rows without a piece are empty."""
    following = 0
    waiting: KeyedRows | None = None
    for block in blocks:
        rows = (block.keys >> np.uint64(shift)).astype(np.int64)
        lengths, ids, values = np.diff(block.indptr), block.indices, block.values
        assert values is not None
        if waiting is not None:
            assert waiting.values is not None
            rows = np.append((waiting.keys >> np.uint64(shift)).astype(np.int64), rows)
            lengths = np.append(np.diff(waiting.indptr), lengths)
            ids, values = np.append(waiting.indices, ids), np.append(waiting.values, values)
        # The last row may go on in the next block.
        complete = int(np.searchsorted(rows, rows[-1]))
        end = int(lengths[:complete].sum())
        last = int(rows[-1])
        yield from _rows(following, last, rows[:complete], lengths[:complete], ids[:end], values[:end])
        following = last
        own = len(ids) - end
        indptr = np.array([0, own], np.int64)
        waiting = KeyedRows(
            np.array([last], np.uint64) << np.uint64(shift), indptr, ids[end:].copy(), values[end:].copy(), {}
        )
    if waiting is not None:
        yield from _rows(
            following,
            n_rows,
            np.array([following], np.int64),
            np.diff(waiting.indptr),
            waiting.indices,
            waiting.values,
        )
    else:
        empty = np.empty(0, np.int64)
        yield from _rows(0, n_rows, empty, empty, np.empty(0, np.int32), np.empty(0, dtype))


def _rows(
    start: int, stop: int, rows: Int64Array, lengths: Int64Array, ids: Any, values: Any
) -> Iterator[RowBlock]:
    """The rows ``start <= row < stop`` from pieces of some of them, in blocks of a limited number of rows."""
    done = piece = 0
    for first in range(start, stop, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, stop)
        end = int(np.searchsorted(rows, last))
        counts = np.zeros(last - first, np.int64)
        np.add.at(counts, rows[piece:end] - first, lengths[piece:end])
        indptr = np.zeros(last - first + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        n = int(indptr[-1])
        yield RowBlock(first, indptr, ids[done : done + n], values[done : done + n])
        done, piece = done + n, end
