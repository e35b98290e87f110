"""Support vectors in memory, and their scores from kernel values with each other, each computed once."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.errors import MemoryBudgetError, parameter
from ooc_svm.ops import gram
from ooc_svm.passes.base import UNCOUNTED, Overlap, RowSlice, WholeRead
from ooc_svm.passes.gather import GatheredRows, GatherPass, NonzeroRows, join_gathered
from ooc_svm.solvers.block_smo.update import KernelModel, Moved

PANEL_BLOCKS = 8  # Blocks of support vectors that the scores of all of them are added up with at a time
PART_OF_MORE = 0.2  # Of memory that is added: some goes to larger sets, and some is never used


def gather_support(
    names: tuple[str, ...], count: int, needed: int, room: int
) -> Generator[Any, Any, GatheredRows]:
    """The rows with an entry in one of some row vectors, ``count`` or so, by an uncounted read.

    ``needed``, ``room``: bytes that they take, and that there are for them.
    """
    if needed > room:
        more = math.ceil((needed - room) / PART_OF_MORE)
        raise MemoryBudgetError(
            f"{count} support vectors take {needed / 1e6:.3g} MB of memory, and there are "
            f"{room / 1e6:.3g} MB for them; allow {math.ceil(more / 1e6)} MB more ({parameter('memory')})"
        )
    parts = yield GatherPass(NonzeroRows(names), names, UNCOUNTED)
    return join_gathered(parts, names)


@dataclass(slots=True)
class Mirrored:
    """What rows add to the scores of rows of earlier blocks, and the additions that a term goes through."""

    sums: Float64Array
    additions: int = 0

    def add(self, other: Mirrored) -> None:
        """Add what other rows add."""
        self.sums += other.sums
        self.additions = max(self.additions, other.additions) + 1


@dataclass(frozen=True, slots=True, eq=False)
class SupportPass(WholeRead):
    """Add kernel values of float64 with some support vectors to the scores of all support vectors.

    The support vectors are in memory, so that no data are read. Of the two of a pair, the later one adds the
    value to its score, and the answer has what is to be added to that of the other one. Blocks of rows are
    shared out among several passes, that can be served at the same time.
    """

    model: KernelModel
    support: Moved  # All support vectors, as rows that move to their multipliers from 0
    first: int  # The scores are begun with 0 where this is 0
    last: int
    part: int
    parts: int
    needs_data: ClassVar[bool] = False
    computes_long: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.model.h,)

    writes = reads

    def empty(self) -> Mirrored:
        return Mirrored(np.zeros(self.last - self.first))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Mirrored) -> None:
        support, model, h = self.support, self.model, rows.vectors[self.model.h]
        here = np.arange(*np.searchsorted(support.numbers, (rows.start, rows.stop)))
        here = here[(here // gram.BLOCK % self.parts == self.part) & (here >= self.first)]
        if not len(here):
            return
        places = support.numbers[here] - rows.start
        sums = h[places] if self.first else np.zeros(len(here))
        kernel, buffers = model.kernel_with_buffers(
            support.squares, support.rows.indptr, support.squares, "float64"
        )
        gram.add_symmetric_values(
            *(kernel, *support.rows.arrays, support.squares, model.scale2),
            *(support.v, here.view(np.uint64), self.first, self.last, *buffers, sums, partial.sums),
        )
        h[places] = sums
        partial.additions = max(partial.additions, len(here)) + 1

    def merge(self, left: Mirrored, right: Mirrored) -> Mirrored:
        left.add(right)
        return left


def add_support_values(model: KernelModel, support: Moved, parts: int) -> Generator[Any, Any, Mirrored]:
    """Begin the scores of all support vectors; returns what those of them that come first still lack."""
    n, width = len(support.numbers), PANEL_BLOCKS * gram.BLOCK
    whole = Mirrored(np.empty(n))
    for first in range(0, n, width):
        last = min(first + width, n)
        passes = (SupportPass(model, support, first, last, part, parts) for part in range(parts))
        found, *others = yield Overlap(tuple(passes))
        for other in others:
            found.add(other)
        whole.sums[first:last] = found.sums
        whole.additions = max(whole.additions, found.additions)
    return whole
