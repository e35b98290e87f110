"""Rows that stay together on a cluster: which worker holds them, and which segments of a pass it works on.

A *partition* is a range of consecutive rows that no pass over row vectors cuts: a segment of the finest cut,
or the rows of a lane. Partitions follow from the data and the algorithm; only their owners follow from the
workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ooc_svm.data.source import Span
from ooc_svm.engine.merge import cut_segments
from ooc_svm.passes.base import RowSet, Segment, rows_of


@dataclass(frozen=True, slots=True)
class Partition:
    """The rows ``start <= i < stop``, which lie in these blocks."""

    start: int
    stop: int
    blocks: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class Partitioning:
    """All rows in partitions.

    ``segments``: the row ranges of each partition; may be empty.
    ``lanes``: number of partitions, one after another, that are worked on at the same time; 0: all are.
    """

    def __init__(self, segments: Sequence[Segment], lanes: int = 0) -> None:
        self._lanes = lanes
        self._number = {(p.block, p.stop): k for k, segment in enumerate(segments) for p in segment}
        self.partitions = [
            Partition(s[0].start, s[-1].stop, tuple(dict.fromkeys(p.block for p in s)))
            if s
            else Partition(0, 0, ())
            for s in segments
        ]

    @classmethod
    def of_blocks(cls, blocks: Sequence[Span]) -> Partitioning:
        """The finest segments of passes over all rows."""
        return cls(cut_segments(blocks, 0))

    @classmethod
    def of_lanes(cls, rounds: Sequence[RowSet]) -> Partitioning:
        """The rows of the lanes of a read in rounds."""
        return cls(rows_of(rounds).segments, len(rounds[0].segments))

    def __len__(self) -> int:
        return len(self.partitions)

    def numbers(self, segment: Segment) -> list[int]:
        """The partitions that the row ranges of a segment lie in, ascending.

        ValueError if a row range crosses the border of a partition.
        """
        numbers = [self._number.get((rows.block, rows.stop), -1) for rows in segment]
        for rows, number in zip(segment, numbers, strict=True):
            if number < 0 or rows.start < self.partitions[number].start:
                raise ValueError("the pass visits rows across the partitions: give it the rows of the lanes")
        return sorted(set(numbers))

    def assign(self, n_workers: int, granularity: int) -> list[int]:
        """The worker of each partition.

        ``granularity``: a power of two: where all partitions are worked on at once, they stay together in
            this many groups of neighbours.
        """
        count = len(self)
        if not self._lanes:
            return [k * granularity // count * n_workers // granularity for k in range(count)]
        if n_workers > self._lanes:
            return [k % n_workers for k in range(count)]
        # Neighbouring lanes of a round go to one worker, which merges their answers. Where the numbers do not
        # divide, the worker with one more lane is another one in each round.
        lanes = self._lanes
        return [(k % lanes * n_workers // lanes + k // lanes) % n_workers for k in range(count)]


@dataclass(frozen=True, slots=True)
class SegmentAssignment:
    """Which worker works on which segments of some rows."""

    rows: list[RowSet]  # For each worker the rows with its own segments alone, the others being empty
    prefetch: list[tuple[int, ...]]  # Of the blocks to read ahead, those that it holds
    segments: list[tuple[int, ...]]  # Numbers of its segments
    # Numbers of the partitions that they lie in; none where the pass needs no row vectors
    partitions: list[tuple[int, ...]]


def assign_segments(
    rows: RowSet,
    prefetch: Sequence[int],
    partitioning: Partitioning,
    owners: Sequence[int],
    n_workers: int,
    *,
    anywhere: bool,
) -> SegmentAssignment | None:
    """Assign the segments of some rows; None where several workers hold the rows of one segment.

    ``prefetch``: blocks to read ahead.
    ``owners``: the worker of each partition.
    ``anywhere``: whether any worker may take any segment: the pass needs no row vectors.
    """
    count = len(rows.segments)
    segments: list[list[int]] = [[] for _ in range(n_workers)]
    visited: list[set[int]] = [set() for _ in range(n_workers)]
    for number, segment in enumerate(rows.segments):
        worker = number * n_workers // count
        if not anywhere and segment:
            numbers = partitioning.numbers(segment)
            worker = owners[numbers[0]]
            if any(owners[k] != worker for k in numbers):
                return None
            visited[worker].update(numbers)
        segments[worker].append(number)
    blocks: list[set[int]] = [set() for _ in range(n_workers)]
    for partition, owner in zip(partitioning.partitions, owners, strict=True):
        blocks[owner].update(partition.blocks)
    own_rows = [
        RowSet(tuple(segment if k in own else () for k, segment in enumerate(rows.segments)))
        for own in map(set, segments)
    ]
    own_prefetch = [tuple(block for block in prefetch if block in own) for own in blocks]
    own_partitions = [tuple(sorted(numbers)) for numbers in visited]
    return SegmentAssignment(own_rows, own_prefetch, [tuple(s) for s in segments], own_partitions)
