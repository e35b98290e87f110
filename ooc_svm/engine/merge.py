"""Segments of the data, and the fixed tree in which their sums are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ooc_svm.data.source import Span
from ooc_svm.passes.base import Segment, StridedRange

MIN_SEGMENTS, MAX_SEGMENTS = 4, 64


def cut_segments(blocks: Sequence[Span], n_features: int) -> tuple[Segment, ...]:
    """Cut the blocks into segments whose sums are kept apart and merged in a fixed tree.

    Their number is a power of two that depends on the data alone, never on the machine or on what else
    is computed in the same read: fewer where a vector of weights is large next to the data, since each
    segment zeroes and merges such vectors. Segments of a coarser cut are made of whole segments of a finer
    one, so that workers can hold the rows of the finest; ``n_features`` 0 gives the finest.
    """
    if not blocks:
        return ()
    sizes = np.array([span.n_nonzeros + (span.stop - span.start) for span in blocks], dtype=np.int64)
    total = int(sizes.sum())
    worth = total // (4 * n_features) if n_features else total
    wanted = min(max(worth, MIN_SEGMENTS), MAX_SEGMENTS, len(blocks))
    count = 1 << (wanted.bit_length() - 1)
    finest = 1 << (min(MAX_SEGMENTS, len(blocks)).bit_length() - 1)
    middles = np.cumsum(sizes) - sizes // 2
    owner = np.minimum(middles * finest // max(total, 1), finest - 1)
    edges = np.searchsorted(owner, np.arange(finest + 1))
    # No segment is empty, however uneven the blocks are.
    ahead = np.arange(finest + 1)
    edges = np.minimum(np.maximum.accumulate(edges - ahead) + ahead, len(blocks) - finest + ahead)
    ranges = tuple(StridedRange(index, span.start, span.stop) for index, span in enumerate(blocks))
    return tuple(ranges[a:b] for a, b in pairwise(edges[:: finest // count].tolist()))


class MergeTree:
    """Merges the partials of segments pairwise in a fixed binary tree, in whatever order they come.

    ``n_segments``: a power of two.
    ``merge``: ``merge(left, right)`` of two neighbours.
    """

    def __init__(self, n_segments: int, merge: Callable[[Any, Any], Any]) -> None:
        self._n_segments = n_segments
        self._merge = merge
        self.nodes: dict[tuple[int, int], Any] = {}  # What is merged so far, by (width, place)

    def add(self, place: int, partial: Any, width: int = 1) -> None:
        """Put in the partial of a segment, or of ``width`` of them from ``place * width`` on, and merge."""
        while width < self._n_segments:
            sibling = self.nodes.pop((width, place ^ 1), None)
            if sibling is None:
                break
            partial = self._merge(sibling, partial) if place & 1 else self._merge(partial, sibling)
            width, place = 2 * width, place >> 1
        self.nodes[width, place] = partial

    @property
    def total(self) -> Any:
        """The merged partial of all segments."""
        return self.nodes[self._n_segments, 0]
