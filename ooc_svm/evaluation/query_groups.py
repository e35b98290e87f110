"""Rows that come block by block, handed on as whole groups (queries)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, tiles
from ooc_svm.evaluation.large_rankings import LargeRanking
from ooc_svm.evaluation.rankings import ROW_BYTES, RankedGroups, Rankings
from ooc_svm.rowvectors.group_numbers import GroupNumbers
from ooc_svm.rowvectors.growing import GrowingVector
from ooc_svm.rowvectors.vector import MemoryVector

# Shares of the memory: the rows of a group that is not complete, and the numbers of all groups. The rest is
# for the ranking of groups that are.
_OPEN_SHARE = 1 / 4
_NUMBERS_SHARE = 1 / 8

# Rows of a query for which room is made at first.
_FIRST_PIECE = 1 << 12


class QueryGroups:
    """Cuts scored rows into groups: runs of equal qid, or without qids all rows. A context manager.

    Parameters
    ----------
    take : callable
        Gets all groups, in order, as soon as they are complete; what it is given lasts for the call.
    memory_bytes : int
        What this and the groups may use. Rows of a group that does not fit go to scratch files.
    first_piece : int
        Rows of a group for which room is made at first.
    """

    def __init__(
        self, take: Callable[[RankedGroups], None], memory_bytes: int, first_piece: int = _FIRST_PIECE
    ) -> None:
        self._take = take
        self._memory_bytes, self._first_piece = memory_bytes, first_piece
        self._numbers = GroupNumbers(int(_NUMBERS_SHARE * memory_bytes))
        self._open_group()
        self._open_number: int | None = None

    def add(self, scores: Float64Array, grades: Float64Array, qids: Int64Array | None) -> None:
        """Take the next rows.

        Parameters
        ----------
        scores, grades : ndarray of float64, shape (n,)
            Finite.
        qids : ndarray of int64, shape (n,), or None
            None in all calls or in none.
        """
        if qids is None or len(qids) == 0:
            self._append(scores, grades)
            return
        heads = np.flatnonzero(qids[1:] != qids[:-1]) + 1
        if self._open_number != qids[0]:
            heads = np.concatenate([[0], heads])
        if len(heads):
            first, last = int(heads[0]), int(heads[-1])
            self._append(scores[:first], grades[:first])
            self._close_group()
            self._take_groups(scores[first:last], grades[first:last], heads - first)
            scores, grades = scores[last:], grades[last:]
            self._numbers.add(qids[heads])
            self._open_number = int(qids[-1])
        self._append(scores, grades)

    def finish(self, source: str, memory_bytes: int) -> None:
        """Hand on the last group.

        Parameters
        ----------
        source : str
            Name of the data, for messages.
        memory_bytes : int
            What this and the groups may use from now on.

        Raises
        ------
        InputError
            Rows of one group are in several places.
        """
        self._memory_bytes = memory_bytes
        self._close_group()
        self._numbers.check(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for vector in (self._scores, self._grades, self._numbers):
            vector.close()

    @property
    def _working_bytes(self) -> int:
        held = self._scores.bytes_in_memory + self._grades.bytes_in_memory
        return max(int((1 - _NUMBERS_SHARE) * self._memory_bytes) - held, 0)

    def _open_group(self) -> None:
        each = int(_OPEN_SHARE * self._memory_bytes / 2)
        self._scores = GrowingVector(np.float64, each, first_rows=self._first_piece)
        self._grades = GrowingVector(np.float64, each, first_rows=self._first_piece)

    def _append(self, scores: Float64Array, grades: Float64Array) -> None:
        self._scores.append(scores)
        self._grades.append(grades)

    def _close_group(self) -> None:
        n_rows = self._scores.n_rows
        if n_rows == 0:
            return
        if n_rows * ROW_BYTES > self._working_bytes:
            self._take(LargeRanking(self._scores, self._grades, self._working_bytes))
        else:
            scores, grades = self._scores.read(0, n_rows), self._grades.read(0, n_rows)
            self._take(Rankings(scores, grades, np.array([0, n_rows])))
        self._scores.close()
        self._grades.close()
        self._open_group()

    def _take_groups(self, scores: Float64Array, grades: Float64Array, starts: Int64Array) -> None:
        """Hand on groups in pieces that fit the memory."""
        most_rows = self._working_bytes // ROW_BYTES
        for first, last in tiles(starts, most_rows, len(starts)):
            begin, end = int(starts[first]), int(starts[last])
            rows = slice(begin, end)
            if end - begin > most_rows:
                vectors = MemoryVector.wrap(scores[rows]), MemoryVector.wrap(grades[rows])
                self._take(LargeRanking(*vectors, self._working_bytes))
            else:
                self._take(Rankings(scores[rows], grades[rows], starts[first : last + 1] - begin))
