"""Counts of out-of-fold scores in bins, from the scores that solvers have kept: no read of the data.

A calibration needs no more than these: of each bin the rows of both classes and the mean of their scores. The
edges follow from the scores in a few passes over row vectors, so that bins are narrow where either class has
many scores, of whatever size these are. Sums have the same bits on every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.passes.base import RowSlice, union
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.targets import RowTargets
from ooc_svm.solvers.base import KeptScores

BINS = 4096
"""Bins of the scores of a function."""
REFINEMENTS = 2
"""How often the edges of the bins are drawn again from the counts so far."""
TOGETHER = 16
"""Functions whose scores are counted in the same pass: 2 MB of sums."""

# The first edges: powers of two, between which most scores of any size are, and 0.
_POWERS = 2.0 ** np.arange(-64, 65)
_FIRST_EDGES = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])
_SCORES = 1 << 16  # Rows that are looked at together


@dataclass(frozen=True, slots=True, eq=False)
class BinnedScores:
    """Bins with rows in them, by ascending scores, each of shape (bins,)."""

    scores: Float64Array  # Mean of the rows of a bin, each counting by its weight
    negatives: Float64Array  # Rows of each class, by weights whose mean is 1
    positives: Float64Array
    n_rows: int  # In all bins together


@dataclass(frozen=True, slots=True, eq=False)
class FunctionScores:
    """Where the scores of a function for rows are that it was not trained on.

    Of a row with the mark k they are ``kept[k]``; other rows do not count.
    """

    targets: RowTargets  # Their sign is the side of a row
    row_weight: str | None  # Row vector of the weights; None: each row counts the same
    marks: str  # Row vector of the marks
    kept: Mapping[int, KeptScores]


@dataclass(frozen=True, slots=True, eq=False)
class CountScores:
    """Rule on row vectors: bins of the scores of a function.

    Sums (4, bins): rows, weights of negative rows, of positive rows, scores times weights.
    """

    function: FunctionScores
    edges: Float64Array  # Ascending, between the bins
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        own = self.function
        weight = () if own.row_weight is None else (own.row_weight,)
        return union([own.targets.reads, (own.marks, *weight), *(each.reads for each in own.kept.values())])

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (4, len(self.edges) + 1)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        for first in range(0, len(rows.vectors[self.function.marks]), _SCORES):
            part = slice(first, first + _SCORES)
            self._count({name: rows.vectors[name][part] for name in self.reads}, sums)

    def _count(self, vectors: Mapping[str, Any], sums: Float64Array) -> None:
        own = self.function
        sides, _ = own.targets.values(vectors)
        weights = np.ones(len(sides)) if own.row_weight is None else vectors[own.row_weight]
        scores, counted = np.zeros(len(sides)), np.zeros(len(sides), np.bool_)
        for mark, kept in own.kept.items():
            marked = vectors[own.marks] == mark
            scores[marked] = kept.of(vectors)[marked]
            counted |= marked
        counted &= weights > 0.0
        scores, weights, positive = scores[counted], weights[counted], sides[counted] > 0.0
        bins, n_bins = np.searchsorted(self.edges, scores, side="right"), sums.shape[1]
        sums[0] += np.bincount(bins, minlength=n_bins)
        sums[1] += np.bincount(bins, np.where(positive, 0.0, weights), n_bins)
        sums[2] += np.bincount(bins, np.where(positive, weights, 0.0), n_bins)
        sums[3] += np.bincount(bins, scores * weights, n_bins)


def binned_scores(engine: Engine, functions: Sequence[FunctionScores]) -> Iterator[list[BinnedScores]]:
    """The bins of each function, of some functions after another."""
    for first in range(0, len(functions), TOGETHER):
        own = functions[first : first + TOGETHER]
        edges = [_FIRST_EDGES] * len(own)
        sums = _counted(engine, own, edges)
        for _ in range(REFINEMENTS):
            edges = [refined(known, counts) for known, counts in zip(edges, sums, strict=True)]
            sums = _counted(engine, own, edges)
        yield [_bins_of(counts) for counts in sums]


def _counted(
    engine: Engine, functions: Sequence[FunctionScores], edges: Sequence[Float64Array]
) -> list[Float64Array]:
    rules = [CountScores(own, known) for own, known in zip(functions, edges, strict=True)]
    return engine.stream([RowPass(rule, next(iter(rule.function.kept.values())).rows) for rule in rules])


def refined(edges: Float64Array, sums: Float64Array) -> Float64Array:
    """Edges between bins of equal shares: half of the bins by the rows of each class.

    Rows are taken to lie evenly between the edges known, ``sums`` being the counts of `CountScores`. So the
    few rows of a rare class have bins of their own.
    """
    sides = [own / own.sum() for own in sums[1:3] if own.sum() > 0.0]
    if not sides:
        return edges
    below = np.cumsum(np.mean(sides, axis=0))[:-1]
    return np.unique(np.interp(np.arange(1, BINS) / BINS, below, edges))


def _bins_of(sums: Float64Array) -> BinnedScores:
    rows, negatives, positives, products = sums[:, sums[0] > 0.0]
    weights = negatives + positives
    n_rows = int(rows.sum())
    scale = n_rows / weights.sum() if n_rows else 1.0
    return BinnedScores(products / weights, negatives * scale, positives * scale, n_rows)
