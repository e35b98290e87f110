"""Threads that have nothing else to do work on long rows together with the one that solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.solvers.streamed_smo import team_loops

# Nonzeros of the rows that a helper works on, until its thread may do something else: a millisecond or two.
STRETCH = 1_000_000

# So many helpers are not let in after one that was of no use: where other programs have the processors, a
# leader is better alone. The number doubles each time, up to a limit; a thread of an engine asks some hundred
# times a second.
SHORTEST_REST, LONGEST_REST = 2, 4096

_LINE_BYTES = 128

# Where the parts of each row are, and what the threads tell each other, as integers and as numbers.
Parts = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], Float64Array]


def on_lines(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of n zeros of 8 bytes that begins with a cache line, so that parts share none."""
    room = np.zeros(8 * n + _LINE_BYTES, np.uint8)
    first = -room.ctypes.data % _LINE_BYTES
    return room[first : first + 8 * n].view(dtype)


class Team:
    """The threads that work on the solves of one model, one solve after another.

    A helper may come too late for a solve: then it finds that another one has begun, or none, and changes
    nothing.
    """

    def __init__(self, n_parts: int) -> None:
        self._words: npt.NDArray[np.int64] = on_lines(
            team_loops.HELPERS + (n_parts - 1) * team_loops.LINE, np.int64
        )
        self._numbers: Float64Array = self._words.view(np.float64)
        self._n_parts, self._n_solves = n_parts, 0
        self._solve: tuple[Any, ...] | None = None  # What helpers need to know of it
        # Lines that no helper has: each has its own
        self._lines = list(range(team_loops.HELPERS, len(self._words), team_loops.LINE))
        self._rest = self._refusals = 0  # The last number of helpers to be refused, and those still to be

    def begin(self, *matrix: Any) -> Parts:
        """Let others take part in a solve.

        ``matrix``: the first arguments of `team_loops.product`, up to the weights.
        """
        if self._n_solves == 0:
            # A helper that comes too late, so that all is compiled where none comes.
            team_loops.help_out(*matrix, self._words, self._numbers, -1, team_loops.HELPERS, 0)
        self._n_solves += 1
        team_loops.open_solve(self._words, self._n_parts, self._n_solves)
        self._solve = *matrix, self._words, self._numbers, self._n_solves
        return matrix[3], self._words, self._numbers

    def end(self) -> None:
        """Let the helpers go: none of them changes anything from here on."""
        self._solve = None
        team_loops.open_solve(self._words, self._n_parts, 0)

    def help(self) -> bool:
        """Take part in a solve for a millisecond or two; whether there is one, and help is of use."""
        solve = self._solve
        if solve is None:
            return False
        if self._refusals > 0:
            self._refusals -= 1
            return False
        try:
            line = self._lines.pop()
        except IndexError:  # there are as many threads as parts
            return False
        indptr, indices = solve[:2]
        if team_loops.help_out(*solve, line, max(1, STRETCH * len(indptr) // max(len(indices), 1))):
            self._rest //= 2
        else:
            self._rest = self._refusals = min(max(2 * self._rest, SHORTEST_REST), LONGEST_REST)
        self._lines.append(line)
        return True
