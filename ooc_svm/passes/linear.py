"""Scores of weight vectors, rules on them, and weighted sums of the rows, all in one read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock, tiles
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import ANY_NUMBER, WHOLE, Fused, Position, RowSlice, union
from ooc_svm.passes.rowwise import RowRule

# Elements of one tile: scores and the sum of rows of a tile are computed while its rows are in the cache.
TILE_ELEMENTS = 1 << 18


@dataclass(slots=True)
class LinearSums:
    """Result of a linear pass for each of its models."""

    # shape (n_features, total width of the rules, groups): sums of the rows, weighted with the rules'
    # coefficients
    vectors: Float64Array
    sums: list[Float64Array]  # The rules' own sums
    tables: list[Float64Array]  # shape (cells of the rule, n_features): sums of the rows in each slot


@dataclass(frozen=True, slots=True)
class LinearPass:
    """Scores of K weight vectors, a rule for each on its scores, and the weighted sums of the rows."""

    weights: Float64Array  # shape (n_features, K)
    intercepts: Float64Array  # shape (K,)
    rules: tuple[RowRule, ...]
    groups: int = 1  # Rows of the same number modulo ``groups`` are summed together
    # A row vector that is 1 where rows that belong together begin: rules see them at once where they are in
    # one block
    query_starts: str | None = None
    position: Position = WHOLE
    rows: ClassVar[None] = None
    prefetch: ClassVar[tuple[int, ...]] = ()
    needs_data: ClassVar[bool] = True
    fewest: ClassVar[int] = 2
    most: ClassVar[int] = ANY_NUMBER

    @property
    def kind(self) -> Hashable:
        """Sums of the same groups of rows, which share one decode and one cache line."""
        return self.groups, self.query_starts

    @staticmethod
    def fuse(parts: Sequence[LinearPass]) -> Fused:
        """The models of all of them."""
        joined = LinearPass(
            np.concatenate([part.weights for part in parts], axis=1),
            np.concatenate([part.intercepts for part in parts]),
            tuple(rule for part in parts for rule in part.rules),
            parts[0].groups,
            parts[0].query_starts,
            next((part.position for part in parts if part.position.ends), parts[0].position),
        )
        return Fused(joined, partial(_split, parts))

    @property
    def reads(self) -> tuple[str, ...]:
        query_starts = () if self.query_starts is None else (self.query_starts,)
        return union((*(rule.reads for rule in self.rules), query_starts))

    @property
    def writes(self) -> tuple[str, ...]:
        return union(rule.writes for rule in self.rules)

    @property
    def width(self) -> int:
        """Number of weighted sums of rows, over all rules."""
        return sum(rule.width for rule in self.rules)

    def empty(self) -> LinearSums:
        d = len(self.weights)
        sums = [np.zeros(rule.sums_shape) for rule in self.rules]
        tables = [np.zeros((rule.n_cells, d)) for rule in self.rules]
        return LinearSums(np.zeros((d, self.width, self.groups)), sums, tables)

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: LinearSums) -> None:
        assert block is not None
        K, width = len(self.rules), self.width
        query_starts = None if self.query_starts is None else rows.vectors[self.query_starts]
        for first, last in tiles(block.indptr, TILE_ELEMENTS, query_starts=query_starts):
            tile, csr = rows.part(first, last), (*block.arrays, first, last)
            scores = np.empty((last - first, K))
            row_ops.scores_of_models(*csr, self.weights, self.intercepts, scores)
            coefficients = np.zeros((width, last - first))
            at = 0
            for k, rule in enumerate(self.rules):
                own = coefficients[at : at + rule.width]
                cells = rule(tile, np.ascontiguousarray(scores[:, k]), own, partial.sums[k])
                if cells is not None:
                    row_ops.add_to_cells(*csr, cells.numbers, cells.weights, partial.tables[k])
                at += rule.width
            if width:
                V = np.ascontiguousarray(coefficients.T)
                row_ops.add_rows_by_group(*csr, V, tile.start, self.groups, partial.vectors)

    def merge(self, left: LinearSums, right: LinearSums) -> LinearSums:
        left.vectors += right.vectors
        for a, b in zip(left.sums + left.tables, right.sums + right.tables, strict=True):
            a += b
        return left


def _split(parts: Sequence[LinearPass], result: LinearSums) -> list[LinearSums]:
    """What each of some passes has of the result of all."""
    found, model, column = [], 0, 0
    for part in parts:
        vectors = result.vectors[:, column : column + part.width]
        own = slice(model, model + len(part.rules))
        found.append(LinearSums(vectors, result.sums[own], result.tables[own]))
        model, column = own.stop, column + part.width
    return found
