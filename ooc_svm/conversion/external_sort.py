"""Rows in the order of their keys in bounded memory: spilled to buckets, then sorted bucket by bucket.

A bucket is a range of keys. One that turns out too large for the memory is divided again, by the next bits of
its keys, until it has one key: its rows are in the order they came in, and stay so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ooc_svm.conversion.spill import Bucket, Column, KeyedRows, Keys, WeightedRows, join
from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock

KEY_BITS = 64
# Bits of a key that choose a bucket: at most, and where the size of the data is unknown.
_MOST_BITS, _BITS_FOR_UNKNOWN_SIZE = 10, 5
# Elements and rows of one block of the output.
_BLOCK_ELEMENTS, _BLOCK_ROWS = 2**20, 2**16


class _Divider:
    """Distributes rows over buckets: a row goes to bucket ``key >> shift``, of which `bits` bits count.

    `batch_bytes` of rows are kept in memory before they are written together.
    """

    def __init__(self, folder: Path, prefix: str, shift: int, bits: int, batch_bytes: int) -> None:
        self.shift, self._batch_bytes = shift, batch_bytes
        self._mask = np.uint64(2**bits - 1)
        self._buckets = [Bucket(folder / f"{prefix}.{number}") for number in range(2**bits)]
        self._waiting, self._spilled = 0, False

    def add(self, rows: KeyedRows) -> None:
        numbers = ((rows.keys >> np.uint64(self.shift)) & self._mask).astype(np.uint16)
        sorted_rows = rows.take(np.argsort(numbers, kind="stable"))
        ends = np.cumsum(np.bincount(numbers, minlength=len(self._buckets))).tolist()
        for bucket, start, stop in zip(self._buckets, [0, *ends], ends, strict=False):
            if stop > start:
                bucket.add(sorted_rows.rows(start, stop))
        self._waiting += rows.nbytes
        if self._waiting > self._batch_bytes:
            self._spill()

    def _spill(self) -> None:
        for bucket in self._buckets:
            bucket.flush()
        self._waiting = 0
        self._spilled = True

    def finish(self) -> list[Bucket]:
        """The buckets with rows in the order of their keys; all rows are in files if any are."""
        if self._spilled:
            self._spill()
        return [bucket for bucket in self._buckets if bucket.n_rows]


class RowSorter:
    """Sorts rows by ascending key; rows of one key stay in the order they came in.

    The files in `folder` are removed as they are used up. `memory` is in bytes; a row that takes more is held
    all the same. The closer `expected_bytes` is to the size of all rows, the fewer buckets are divided again.
    All methods raise StorageError where reading or writing in the folder failed.
    """

    def __init__(self, folder: Path, name: str, memory: int, expected_bytes: int | None = None) -> None:
        self._folder, self._name = folder, name
        # In memory with the rows of a bucket are the joined copy or their order, and a block of the output.
        self._limit = max(memory // 3, 1)
        bits = _BITS_FOR_UNKNOWN_SIZE
        if expected_bytes is not None:
            bits = min((2 * expected_bytes // self._limit).bit_length(), _MOST_BITS)
        self._divider = _Divider(folder, name, KEY_BITS - bits, bits, self._limit)
        self.n_rows = self.nbytes = self._divisions = 0

    def fill(self, blocks: Iterable[KeyedRows]) -> None:
        """Take all rows."""
        for rows in blocks:
            self.n_rows += rows.n_rows
            self.nbytes += rows.nbytes
            self._divider.add(rows)

    def drain(self) -> Iterator[KeyedRows]:
        """All rows in their new order; once."""
        return self._in_order(self._divider.finish(), self._divider.shift)

    def _in_order(self, buckets: Iterable[Bucket], shift: int) -> Iterator[KeyedRows]:
        for bucket in buckets:
            if bucket.nbytes <= self._limit:
                rows = join(bucket.blocks(), bucket.n_rows, bucket.n_nonzeros)
                bucket.clear()
                yield from _sorted_blocks(rows)
                del rows
            elif bucket.has_one_key:
                yield from bucket.blocks()
                bucket.clear()
            else:
                yield from self._in_order(*self._divide(bucket, shift))

    def _divide(self, bucket: Bucket, shift: int) -> tuple[list[Bucket], int]:
        """Distribute the rows of a bucket over new ones by the next bits of their keys."""
        bits = min((2 * bucket.nbytes // self._limit).bit_length(), _MOST_BITS, shift)
        self._divisions += 1
        prefix = f"{self._name}.{self._divisions}"
        divider = _Divider(self._folder, prefix, shift - bits, bits, self._limit)
        for block in bucket.blocks():
            divider.add(block)
        bucket.clear()
        return divider.finish(), divider.shift


def with_keys(labelled: LabelledRows, weights: Float64Array | None, keys: Keys) -> KeyedRows:
    """Rows with keys and columns to sort; `numbered` undoes it."""
    rows = labelled.rows
    columns = {"label": labelled.labels, "qid": labelled.qids, "weight": weights}
    present: dict[str, Column] = {name: own for name, own in columns.items() if own is not None}
    return KeyedRows(keys, rows.indptr, rows.indices, rows.values, present)


def numbered(blocks: Iterable[KeyedRows]) -> Iterator[WeightedRows]:
    """Sorted rows as rows of the data, numbered from 0, with their weights if there are any."""
    start = 0
    for block in blocks:
        rows = RowBlock(start, block.indptr, block.indices, block.values)
        columns = block.columns
        yield LabelledRows(rows, columns["label"], columns.get("qid")), columns.get("weight")
        start += block.n_rows


def _sorted_blocks(rows: KeyedRows) -> Iterator[KeyedRows]:
    """Rows by ascending key, in blocks of about a million elements."""
    order = np.argsort(rows.keys, kind="stable")
    ends = np.cumsum((rows.indptr[1:] - rows.indptr[:-1])[order])
    start = done = 0
    while start < rows.n_rows:
        stop = int(np.searchsorted(ends, done + _BLOCK_ELEMENTS, side="right"))
        stop = min(max(stop, start + 1), start + _BLOCK_ROWS)
        yield rows.take(order[start:stop])
        done = int(ends[stop - 1])
        start = stop
