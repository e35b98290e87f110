"""One read of the data, cut into rounds of lanes: numbers of the algorithm, never of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ooc_svm.data.blocks import BoolArray, Int64Array
from ooc_svm.data.source import Span
from ooc_svm.passes.base import Position, RowSet, Segment, StridedRange
from ooc_svm.solvers.streamed_smo.choice_loops import inside_ranges

MIN_ROWS = 64  # Rows of a lane below which rounds are not worth their overhead


@dataclass(frozen=True)
class Round:
    """The rows of a round, a segment for each lane; where it stands in the read, and what comes behind it."""

    rows: RowSet
    position: Position
    # Blocks that the next round begins with; none behind the last round, which may end the run
    prefetch: tuple[int, ...]

    @cached_property
    def n_rows(self) -> int:
        """Number of its rows."""
        return self.rows.n_rows

    @cached_property
    def ranges(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Starts, stops and steps of its ranges, shape (k,), by rising start."""
        ranges = sorted((p.start, p.stop, p.step) for segment in self.rows.segments for p in segment)
        starts, stops, steps = np.array(ranges, dtype=np.int64).reshape(-1, 3).T.copy()
        return starts, stops, steps

    def inside(self, ids: Int64Array) -> BoolArray:
        """Which of the row numbers are among its rows."""
        return np.asarray(inside_ranges(ids, *self.ranges))

    def those_inside(self, ids: Int64Array) -> Int64Array:
        """Those of the row numbers that are among its rows."""
        return ids[np.flatnonzero(self.inside(ids))]


def cut_rounds(blocks: Sequence[Span], n_rounds: int, n_lanes: int) -> list[Round]:
    """Cut the data into rounds of lanes.

    With fewer blocks than rounds, the rounds of a block each take every k-th row of it, so that they are
    alike however the rows are sorted, and its lanes a part of the block each. Otherwise lanes are whole
    blocks that follow one another, or even parts of blocks.

    ``n_rounds``: wanted; there are fewer where there are not enough rows, a few more where blocks do not
        divide well.
    ``n_lanes``: a power of two.
    """
    n_rows = sum(span.stop - span.start for span in blocks)
    n_rounds = max(1, min(n_rounds, n_rows // (MIN_ROWS * n_lanes)))
    a_block = round(n_rounds / len(blocks))
    if a_block >= 1:
        strided = [_strided(index, span, a_block, n_lanes) for index, span in enumerate(blocks)]
        return _rounds([lanes for of_block in strided for lanes in of_block], n_lanes)
    n_segments = n_rounds * n_lanes
    a_block = max(1, round(n_segments / len(blocks)))
    ranges: list[StridedRange] = []
    for index, span in enumerate(blocks):
        edges = np.linspace(span.start, span.stop, a_block + 1).astype(np.int64).tolist()
        ranges += [StridedRange(index, a, b) for a, b in pairwise(edges) if a < b]
    a_lane = max(1, round(len(ranges) / n_segments))
    lanes: list[Segment] = [tuple(ranges[i : i + a_lane]) for i in range(0, len(ranges), a_lane)]
    return _rounds([tuple(lanes[i : i + n_lanes]) for i in range(0, len(lanes), n_lanes)], n_lanes)


def first_blocks(segments: Sequence[Segment], each: int = 1) -> tuple[int, ...]:
    """The first blocks of each of some segments, ``each`` of them."""
    ranges = [segment[k] for k in range(each) for segment in segments if k < len(segment)]
    return tuple(dict.fromkeys(part.block for part in ranges))


def opening(rounds: Sequence[Round]) -> tuple[int, ...]:
    """The blocks that a read begins with, two of each lane: for when nothing else is read."""
    return first_blocks(rounds[0].rows.segments, 2)


def _strided(index: int, span: Span, n_rounds: int, n_lanes: int) -> list[tuple[Segment, ...]]:
    """Rounds of one block: each takes every ``n_rounds``-th row, its lanes a part of the block each."""
    edges = np.linspace(span.start, span.stop, n_lanes + 1).astype(np.int64).tolist()
    rounds = (
        tuple((StridedRange(index, a + r, b, n_rounds),) for a, b in pairwise(edges) if a + r < b)
        for r in range(n_rounds)
    )
    return [segments for segments in rounds if segments]


def _rounds(lanes: Sequence[tuple[Segment, ...]], n_lanes: int) -> list[Round]:
    total = sum(len(segment) for segments in lanes for segment in segments)
    rounds: list[Round] = []
    before = 0
    for number, segments in enumerate(lanes):
        behind = lanes[number + 1] if number + 1 < len(lanes) else ()
        rows = RowSet(segments + ((),) * (n_lanes - len(segments)))
        rounds.append(Round(rows, Position(before, rows.n_ranges, total), first_blocks(behind)))
        before += rows.n_ranges
    return rounds
