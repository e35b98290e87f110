"""Rows that come block by block, passed on as whole queries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, tiles
from ooc_svm.evaluation.large_rankings import LargeRanking
from ooc_svm.evaluation.rankings import ROW_BYTES, RankedQueries, Rankings
from ooc_svm.evaluation.workspace import NUMBER_BYTES, Workspace
from ooc_svm.rowvectors.vector import MemoryVector

# Bytes of a row (score and grade) of a query that is not complete.
_ROW_BYTES = 16

# Bytes in the division of a workspace: a row, a query number, and as much as a row for the work on queries.
ENTRY_BYTES = 2 * _ROW_BYTES + NUMBER_BYTES

# Rows of a query for which memory is taken at first.
_FIRST_ROWS = 1 << 12


class QueryRows:
    """Cuts scored rows into queries: runs of equal qid, or without qids all rows.

    `take` receives all queries, in order, as soon as they are complete; its argument is valid during the
    call. Memory comes from `workspace`, at first for `first_rows` rows of a query, and for the work on
    queries. Rows of a query that do not fit go to scratch files.
    """

    def __init__(
        self, take: Callable[[RankedQueries], None], workspace: Workspace, first_rows: int = _FIRST_ROWS
    ) -> None:
        self._take, self._workspace, self._first_rows = take, workspace, first_rows
        self._numbers = workspace.group_numbers()
        self._start_query()
        self._open_number: int | None = None

    def add(self, scores: Float64Array, grades: Float64Array, qids: Int64Array | None) -> None:
        """Take the next rows, scores and grades finite; `qids` are None in all calls or in none."""
        if qids is None or len(qids) == 0:
            self._append(scores, grades)
            return
        query_starts = np.flatnonzero(qids[1:] != qids[:-1]) + 1
        if self._open_number != qids[0]:
            query_starts = np.concatenate([[0], query_starts])
        if len(query_starts):
            first, last = int(query_starts[0]), int(query_starts[-1])
            self._append(scores[:first], grades[:first])
            self._end_query()
            self._take_queries(scores[first:last], grades[first:last], query_starts - first)
            scores, grades = scores[last:], grades[last:]
            self._numbers.add(qids[query_starts])
            self._open_number = int(qids[-1])
        self._append(scores, grades)

    def finish(self, source: str) -> None:
        """Pass on the last query; InputError, naming `source`, if rows of one query are in several places."""
        self._end_query()
        self._numbers.check(source)

    def _start_query(self) -> None:
        self._scores = self._workspace.vector(np.float64, self._first_rows)
        self._grades = self._workspace.vector(np.float64, self._first_rows)

    def _append(self, scores: Float64Array, grades: Float64Array) -> None:
        self._scores.append(scores)
        self._grades.append(grades)

    def _end_query(self) -> None:
        n_rows = self._scores.n_rows
        if n_rows == 0:
            return
        if n_rows * ROW_BYTES > self._workspace.free:
            self._take(LargeRanking(self._scores, self._grades, self._workspace.free))
        else:
            scores, grades = self._scores.read(0, n_rows), self._grades.read(0, n_rows)
            self._take(Rankings(scores, grades, np.array([0, n_rows])))
        self._workspace.release(self._scores, self._grades)
        self._start_query()

    def _take_queries(self, scores: Float64Array, grades: Float64Array, starts: Int64Array) -> None:
        """Pass on queries, as many at a time as fit the memory."""
        most_rows = self._workspace.free // ROW_BYTES
        for first, last in tiles(starts, most_rows, len(starts)):
            begin, end = int(starts[first]), int(starts[last])
            rows = slice(begin, end)
            if end - begin > most_rows:
                vectors = MemoryVector.wrap(scores[rows]), MemoryVector.wrap(grades[rows])
                self._take(LargeRanking(*vectors, self._workspace.free))
            else:
                self._take(Rankings(scores[rows], grades[rows], starts[first : last + 1] - begin))
