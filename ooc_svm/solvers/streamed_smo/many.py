"""The passes of several models as one: each row's products with all of their weights at a time.

An element of a row meets the weights of all models in one place of memory, which takes a third of the time of
one model after another. Each model has the bits that it has alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.passes.base import Position, RowSet, RowSlice, union
from ooc_svm.solvers.streamed_smo import many_loops
from ooc_svm.solvers.streamed_smo.sweep import LaneSums, ScorePass, SweepPass, offer_best, seed_of


@dataclass(slots=True)
class ManyLanes:
    """What the lanes of a round come back with, of K models."""

    w: Float64Array  # shape (n_features, K)
    rebuilt: Float64Array  # shape (n_features, K) or (0, K)
    lanes: list[LaneSums]  # Of each model, without weights


PassT = TypeVar("PassT", SweepPass, ScorePass)


@dataclass(frozen=True, slots=True)
class _Many(Generic[PassT]):
    """What passes over the rows of one round have in common."""

    parts: tuple[PassT, ...]
    needs_data: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return union(part.reads for part in self.parts)

    @property
    def writes(self) -> tuple[str, ...]:
        return union(part.writes for part in self.parts)

    @property
    def rows(self) -> RowSet:
        return self.parts[0].rows

    @property
    def position(self) -> Position:
        return self.parts[0].position

    @property
    def prefetch(self) -> tuple[int, ...]:
        return self.parts[0].prefetch


@dataclass(frozen=True, slots=True)
class ManySweeps(_Many[SweepPass]):
    """The dual steps of one round, of models whose steps are in the same order."""

    def empty(self) -> ManyLanes:
        w, nothing = _side_by_side([part.w for part in self.parts]), np.empty(0)
        rebuilt = np.zeros((len(w) if self.parts[0].rebuild else 0, len(self.parts)))
        return ManyLanes(w, rebuilt, [LaneSums.without_steps(nothing) for _ in self.parts])

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: ManyLanes) -> None:
        assert block is not None
        first, lanes = self.parts[0], partial.lanes
        pieces = [part.piece(rows, lane) for part, lane in zip(self.parts, lanes, strict=True)]
        targets, marks, dual, step, priority = (np.array(parts) for parts in zip(*pieces, strict=True))
        bias = np.array([part.bias_of(lane) for part, lane in zip(self.parts, lanes, strict=True)])
        sums = np.array([lane.sums for lane in lanes])
        many_loops.sweep(
            first.model.loss, *block.arrays, *rows.piece_of(block), first.visits,
            seed_of(first.seed, rows.start), first.model.space.scale2, partial.w, partial.rebuilt, bias,
            np.array([part.unit for part in self.parts]), targets, marks, dual, step, priority, sums,
        )  # fmt: skip
        for k, (piece, lane) in enumerate(zip(pieces, lanes, strict=True)):
            lane.sums[:] = sums[k]
            piece.step[:] = step[k]
        after = [piece._replace(priority=own) for piece, own in zip(pieces, priority, strict=True)]
        offer_best(self.parts, block, rows, after, lanes)

    def merge(self, left: ManyLanes, right: ManyLanes) -> ManyLanes:
        for k, part in enumerate(self.parts):
            left.w[:, k] += right.w[:, k] - part.w
        left.rebuilt += right.rebuilt
        for own, other in zip(left.lanes, right.lanes, strict=True):
            own.sums += other.sums
            own.candidates += other.candidates
        return left

    def split(self, result: ManyLanes) -> list[LaneSums]:
        """The lanes of each model."""
        # Weights of all models are large: what is taken apart is let go before the next one is.
        nothing = np.empty((0, 0))
        w, result.w = _apart(result.w), nothing
        rebuilt, result.rebuilt = _apart(result.rebuilt), nothing
        for lane, own, before in zip(result.lanes, w, rebuilt, strict=True):
            lane.w, lane.rebuilt = own, before
        return result.lanes


@dataclass(frozen=True, slots=True)
class ManyScores(_Many[ScorePass]):
    """Scores of the rows of a round with the references of several models."""

    def empty(self) -> Float64Array:
        """The references side by side, shape (n_features, K)."""
        return _side_by_side([part.reference for part in self.parts])

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        assert block is not None
        outs = [rows.vectors[part.model.newest] for part in self.parts]
        found = np.empty((len(outs), len(outs[0])))
        many_loops.scores(*block.arrays, *rows.piece_of(block), partial, found)
        for out, own in zip(outs, found, strict=True):
            out[:] = own

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        return left

    def split(self, result: Float64Array) -> list[Float64Array]:
        """Nothing for each: the scores are in the row vectors."""
        return [np.empty(0) for _ in self.parts]


def _side_by_side(weights: Sequence[Float64Array]) -> Float64Array:
    """Weights of K models, shape (n_features, K)."""
    return _apart(np.array(weights))


def _apart(weights: Float64Array) -> Float64Array:
    """The transpose."""
    out = np.empty(weights.shape[::-1])
    many_loops.transpose(weights, out)
    return out
