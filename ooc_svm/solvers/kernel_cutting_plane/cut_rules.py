"""What cutting planes of a kernel model do with row vectors.

A piece of a row's loss is ``omega max(0, sign (t - s) - kink - theta)``, where theta is ``b + k`` for the
sign 1 and ``k - b`` for the sign -1 (`ooc_svm.solvers.cutting_plane.free_oracle`). A cut takes each piece
with a share h of its weight: all of it where there is a loss, none where there is none, and a fraction on
the breakpoint, so that the sums of the signs are what the free parameters ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import RowSlice
from ooc_svm.solvers.cutting_plane.row_rules import ScoredLosses

Pair = tuple[float, float]  # Of the signs 1 and -1

BEYOND = 2.0**-45  # Share of a row's weight by which rounding may have put a cut outside


@dataclass(frozen=True, slots=True)
class SidedLosses(ScoredLosses):
    """Losses of rows at their scores, and the pieces of each sign."""

    def sides(self, rows: RowSlice, thetas: Pair) -> Iterator[tuple[int, Float64Array, Float64Array]]:
        """Of each sign: its place in a pair, weights of the pieces (0: none), by how much they are above."""
        t, weight = self.targets.values(rows.vectors)
        residual = t - rows.vectors[self.previous]
        for place, sign in enumerate((1.0, -1.0)):
            own = np.where(t == sign, weight, 0.0) if self.targets.in_margins else weight
            yield place, own, sign * residual - self.kink - thetas[place]


@dataclass(frozen=True, slots=True)
class SideSums:
    """Rule on row vectors: weights of the pieces with a loss, of each sign; of those on a breakpoint."""

    losses: SidedLosses
    thetas: Pair
    edge: float  # Distance from a breakpoint that counts as none
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (4,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.reads

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        for place, weight, above in self.losses.sides(rows, self.thetas):
            sums[place] += weight[above > self.edge].sum()
            sums[2 + place] += weight[np.abs(above) <= self.edge].sum()


# Sums over a cut: its offset, ``sum h``, ``sum |h|``, and its height at the scores
OFFSET, TOTAL, SIZE, HEIGHT = range(4)


@dataclass(frozen=True, slots=True)
class TakeCut:
    """Rule on row vectors: the cut, with these fractions of the pieces on a breakpoint."""

    losses: SidedLosses
    thetas: Pair
    edge: float
    fractions: Pair
    to: str
    sums_shape: ClassVar[tuple[int, ...]] = (4,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.losses.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.to,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        t, _ = self.losses.targets.values(rows.vectors)
        h = np.zeros(len(t))
        for place, weight, above in self.losses.sides(rows, self.thetas):
            share = np.where(
                above > self.edge, 1.0, np.where(above >= -self.edge, self.fractions[place], 0.0)
            )
            h += (1.0 - 2.0 * place) * share * weight
        size = np.abs(h)
        offset = float(t @ h) - self.losses.kink * float(size.sum())
        sums += [offset, h.sum(), size.sum(), offset - float(h @ rows.vectors[self.losses.previous])]
        rows.vectors[self.to][:] = h


@dataclass(frozen=True, slots=True)
class CountOutside:
    """Rule on row vectors: entries of cuts that are above the weight of the row, or of the wrong side.

    ``most``: what the weights are multiplied by.
    """

    losses: SidedLosses
    names: tuple[str, ...]
    most: float = 1.0
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.names, *self.losses.targets.reads)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        t, weight = self.losses.targets.values(rows.vectors)
        for name in self.names:
            h = rows.vectors[name]
            inside = np.abs(h) <= self.most * weight * (1.0 + BEYOND)
            if self.losses.targets.in_margins:
                inside &= h * t >= 0.0
            sums[0] += (~inside).sum()


@dataclass(frozen=True, slots=True)
class CountFar:
    """Rule on row vectors: number of entries that differ by more than allowed, over pairs of vectors."""

    pairs: tuple[tuple[str, str], ...]
    allowed: Float64Array  # Of each pair
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for pair in self.pairs for name in pair)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        for (one, other), allowed in zip(self.pairs, self.allowed.tolist(), strict=True):
            # What is not a number is far.
            sums[0] += (~(np.abs(rows.vectors[one] - rows.vectors[other]) <= allowed)).sum()


# Sums over a combination: ``v.s``, ``v.t``, ``sum v``, ``sum |v|``, ``sum_k beta_k sum |h_k|``
SQUARE, LINEAR, SUM, MASS, PARTS = range(5)


@dataclass(frozen=True, slots=True)
class Combine:
    """Rule on row vectors: ``v = sum_k beta_k h_k`` and the scores ``s = sum_k beta_k g_k``."""

    losses: SidedLosses
    cuts: tuple[tuple[str, str], ...]  # Row vectors of h and g
    beta: Float64Array
    to: str
    sums_shape: ClassVar[tuple[int, ...]] = (5,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*(name for cut in self.cuts for name in cut), *self.losses.targets.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.to, self.losses.previous)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        (v, s), parts = np.zeros((2, len(rows.vectors[self.to]))), 0.0
        for (h, g), beta in zip(self.cuts, self.beta.tolist(), strict=True):
            v += beta * rows.vectors[h]
            s += beta * rows.vectors[g]
            parts += beta * float(np.abs(rows.vectors[h]).sum())
        t, _ = self.losses.targets.values(rows.vectors)
        sums += [v @ s, v @ t, v.sum(), np.abs(v).sum(), parts]
        rows.vectors[self.to][:], rows.vectors[self.losses.previous][:] = v, s


@dataclass(frozen=True, slots=True)
class Products:
    """Rule on row vectors: inner products of one with others."""

    one: str
    others: tuple[str, ...]
    writes: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.one, *self.others)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return (len(self.others),)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        sums += [rows.vectors[name] @ rows.vectors[self.one] for name in self.others]


@dataclass(frozen=True, slots=True)
class MixVectors:
    """Rule on row vectors: one becomes a weighted sum of some."""

    names: tuple[str, ...]
    weights: Float64Array
    to: str
    sums_shape: ClassVar[tuple[int, ...]] = (0,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.names

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.to,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        mixed = np.zeros(len(rows.vectors[self.to]))
        for name, weight in zip(self.names, self.weights.tolist(), strict=True):
            mixed += weight * rows.vectors[name]
        rows.vectors[self.to][:] = mixed
