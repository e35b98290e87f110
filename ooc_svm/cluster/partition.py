"""Rows that stay together on a cluster: which worker has them, and which part of a pass it does.

A *lot* is a run of consecutive rows that no pass over row vectors cuts: a segment of the finest cut, or the
rows of a lane. Lots belong to the data and the algorithm; only who has them follows from the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ooc_svm.data.source import Span
from ooc_svm.engine.base import cut_segments
from ooc_svm.passes.base import Extent, Segment, rows_of


@dataclass(frozen=True, slots=True)
class Lot:
    """The rows ``start <= i < stop``, which lie in these blocks."""

    start: int
    stop: int
    blocks: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class Lots:
    """All rows in lots.

    Parameters
    ----------
    segments : sequence of Segment
        The pieces of each lot; may be empty.
    lanes : int
        So many lots, one after another, are worked on at the same time; 0 where all are.
    """

    def __init__(self, segments: Sequence[Segment], lanes: int = 0) -> None:
        self._lanes = lanes
        self._number = {(p.block, p.stop): k for k, segment in enumerate(segments) for p in segment}
        self.lots = [
            Lot(s[0].start, s[-1].stop, tuple(dict.fromkeys(p.block for p in s))) if s else Lot(0, 0, ())
            for s in segments
        ]

    @classmethod
    def of_blocks(cls, blocks: Sequence[Span]) -> Lots:
        """The finest segments of passes over all rows."""
        return cls(cut_segments(blocks, 0))

    @classmethod
    def of_lanes(cls, rounds: Sequence[Extent]) -> Lots:
        """The rows of the lanes of a read in rounds."""
        return cls(rows_of(rounds).segments, len(rounds[0].segments))

    def __len__(self) -> int:
        return len(self.lots)

    def numbers(self, segment: Segment) -> list[int]:
        """The lots that the pieces of a segment lie in, ascending.

        Raises
        ------
        ValueError
            A piece is cut in another way than the lots are.
        """
        numbers = [self._number.get((piece.block, piece.stop), -1) for piece in segment]
        for piece, number in zip(segment, numbers, strict=True):
            if number < 0 or piece.start < self.lots[number].start:
                raise ValueError("the pass visits rows across the lots: give it the extent of the lanes")
        return sorted(set(numbers))

    def deal(self, n_workers: int, runs: int) -> list[int]:
        """The worker of each lot.

        Parameters
        ----------
        n_workers : int
        runs : int
            A power of two: where all lots are worked on at once, so many runs of them stay together.
        """
        if not self._lanes:
            return [k * runs // len(self) * n_workers // runs for k in range(len(self))]
        if n_workers > self._lanes:
            return [k % n_workers for k in range(len(self))]
        # Neighbouring lanes of a round go to one worker, which merges what they bring; where the numbers do
        # not divide, it is another worker in each round that has one more.
        lanes = self._lanes
        return [(k % lanes * n_workers // lanes + k // lanes) % n_workers for k in range(len(self))]


@dataclass(frozen=True, slots=True)
class Division:
    """Who works on which segments of an extent.

    Attributes
    ----------
    extents : list of Extent
        For each worker the extent with its own segments alone, the others being empty, and what it has of the
        blocks ahead.
    segments : list of tuple of int
        Numbers of its segments.
    lots : list of tuple of int
        Numbers of the lots that they lie in; none where the pass needs no row vectors.
    """

    extents: list[Extent]
    segments: list[tuple[int, ...]]
    lots: list[tuple[int, ...]]


def divide(
    extent: Extent, lots: Lots, owners: Sequence[int], n_workers: int, *, anywhere: bool
) -> Division | None:
    """Divide an extent among the workers; None where a segment's rows lie with several of them.

    Parameters
    ----------
    extent : Extent
    lots : Lots
    owners : sequence of int
        The worker of each lot.
    n_workers : int
    anywhere : bool
        Whether the pass needs no row vectors: its segments then go to any worker.
    """
    count = len(extent.segments)
    segments: list[list[int]] = [[] for _ in range(n_workers)]
    visited: list[set[int]] = [set() for _ in range(n_workers)]
    for number, segment in enumerate(extent.segments):
        worker = number * n_workers // count
        if not anywhere and segment:
            numbers = lots.numbers(segment)
            worker = owners[numbers[0]]
            if any(owners[k] != worker for k in numbers):
                return None
            visited[worker].update(numbers)
        segments[worker].append(number)
    blocks = blocks_of(lots, owners, n_workers)
    extents = [
        Extent(
            tuple(segment if k in own else () for k, segment in enumerate(extent.segments)),
            tuple(block for block in extent.ahead if block in blocks[worker]),
            extent.before,
            extent.of,
        )
        for worker, own in enumerate(map(set, segments))
    ]
    return Division(extents, [tuple(s) for s in segments], [tuple(sorted(v)) for v in visited])


def blocks_of(lots: Lots, owners: Sequence[int], n_workers: int) -> list[set[int]]:
    """The blocks that the lots of each worker lie in."""
    blocks: list[set[int]] = [set() for _ in range(n_workers)]
    for lot, owner in zip(lots.lots, owners, strict=True):
        blocks[owner].update(lot.blocks)
    return blocks
