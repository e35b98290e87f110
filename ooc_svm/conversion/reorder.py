"""Rows in another order in bounded memory: a random one, or groups of equal qid.

In random order every row gets a key of 64 bits made from the seed and its number (splitmix64), and rows leave
in the order of their keys. No two rows share a key, so the order follows from the seed alone: not from the
memory, the threads, or the blocks in which the rows came.

Rows of equal qid are brought together by sorting twice, by qid and then by the first row of their group,
which is known by then; the rows of a group keep their order. So no table of groups is needed, however many
there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ooc_svm.conversion.external_sort import KEY_BITS, RowSorter, numbered, with_keys
from ooc_svm.conversion.spill import KeyedRows, WeightedRows
from ooc_svm.errors import InputError, parameter
from ooc_svm.ops.hashing import mix_keys, row_keys

_NUMBER = "number"


def shuffle_rows(
    rows: Iterable[WeightedRows], seed: int, folder: Path, memory: int, expected_bytes: int | None = None
) -> Iterator[WeightedRows]:
    """Rows in random order, which follows from the seed (0 to 2^64 - 1) alone.

    ``labelled.rows.start`` is the number of the first row in the whole data. The other parameters and the
    errors are those of `RowSorter`.
    """
    sorter = RowSorter(folder, "rows", memory, expected_bytes)
    sorter.fill(_with_random_keys(rows, np.uint64(seed)))
    yield from numbered(sorter.drain())


def group_rows(
    rows: Iterable[WeightedRows], folder: Path, memory: int, expected_bytes: int | None = None
) -> Iterator[WeightedRows]:
    """Rows of equal qid together, groups in the order of their first rows.

    The parameters are those of `shuffle_rows`; rows without a qid are an InputError.
    """
    groups = RowSorter(folder, "groups", memory // 2, expected_bytes)
    groups.fill(_with_qid_keys(rows))
    sorter = RowSorter(folder, "rows", memory // 2, groups.nbytes)
    # The bits of row numbers in front: buckets are made by the first bits of a key.
    shift = np.uint64(KEY_BITS - max(groups.n_rows - 1, 1).bit_length())
    sorter.fill(_with_first_rows(groups.drain(), shift))
    yield from numbered(sorter.drain())


def _with_random_keys(rows: Iterable[WeightedRows], seed: np.uint64) -> Iterator[KeyedRows]:
    for labelled, weights in rows:
        keys = np.empty(labelled.rows.n_rows, np.uint64)
        row_keys(seed, np.uint64(labelled.rows.start), keys)
        yield with_keys(labelled, weights, keys)


def _with_qid_keys(rows: Iterable[WeightedRows]) -> Iterator[KeyedRows]:
    """Rows with their qids as keys, hashed: buckets of keys have similar sizes whatever the qids."""
    for labelled, weights in rows:
        if labelled.qids is None:
            raise InputError(
                f"{parameter('group', True)} puts rows of equal qid together, and these have none: "
                "leave it out"
            )
        keys = np.empty(labelled.rows.n_rows, np.uint64)
        mix_keys(labelled.qids.view(np.uint64), keys)
        keyed = with_keys(labelled, weights, keys)
        keyed.columns[_NUMBER] = np.arange(labelled.rows.start, labelled.rows.stop, dtype=np.uint64)
        yield keyed


def _with_first_rows(blocks: Iterable[KeyedRows], shift: np.uint64) -> Iterator[KeyedRows]:
    """Rows sorted by group with the number of the first row of their group, shifted, as keys."""
    key = first = np.uint64(0)
    begun = False
    for block in blocks:
        columns = dict(block.columns)
        numbers = columns.pop(_NUMBER)
        heads = np.empty(block.n_rows, np.bool_)
        heads[0] = not begun or block.keys[0] != key
        np.not_equal(block.keys[1:], block.keys[:-1], out=heads[1:])
        firsts = np.concatenate([[first], numbers[heads]])[np.cumsum(heads)]
        key, first, begun = block.keys[-1], firsts[-1], True
        yield replace(block, keys=firsts << shift, columns=columns)
