"""What the rows are to be mapped to, and what their losses weigh, from the row vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.class_loops import look_up
from ooc_svm.data.label_sets import has_label

# Row vectors that are filled from the data: numbers of classes, values, weights.
CODES, TARGET, WEIGHT = "codes", "target", "weight"
# 1 for the rows that are held out of training, 0 for others; their weight is 0.
HELD_OUT = "held out"
FOLDS = "folds"  # The number of the fold of each row, where there are several

Vectors = Mapping[str, Any]


class RowTargets(Protocol):
    """Targets and weights of the rows.

    ``in_margins``: whether a residual is a margin's distance from 1, and so has no unit of the data.
    """

    @property
    def in_margins(self) -> bool: ...

    @property
    def row_weight(self) -> str | None:
        """Name of the row vector of row weights."""

    @property
    def largest_weight(self) -> float:
        """The weight of a row is at most so many times its row weight."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the row vectors."""

    def values(self, vectors: Vectors) -> tuple[Float64Array, Float64Array]:
        """The target and the weight of each row, from slices of the row vectors."""


def _names(first: str, row_weight: str | None) -> tuple[str, ...]:
    return (first,) if row_weight is None else (first, row_weight)


@dataclass(frozen=True, slots=True)
class ClassTargets:
    """+1 or -1 by the class of a row."""

    # shape (classes,): of each class
    sign: Float64Array
    class_weight: Float64Array
    codes: str = CODES  # Name of the row vector of class numbers (uint16)
    row_weight: str | None = None  # Name of the row vector of row weights (float64)
    in_margins: ClassVar[bool] = True

    @property
    def largest_weight(self) -> float:
        return float(self.class_weight.max())

    @property
    def reads(self) -> tuple[str, ...]:
        return _names(self.codes, self.row_weight)

    def values(self, vectors: Vectors) -> tuple[Float64Array, Float64Array]:
        codes = vectors[self.codes]
        sign, weight = np.empty((2, len(codes)))
        look_up(np.stack([self.sign, self.class_weight], axis=1), codes, sign, weight)
        return sign, weight if self.row_weight is None else weight * vectors[self.row_weight]


@dataclass(frozen=True, slots=True)
class LabelTargets:
    """+1 where a row has a label among others, -1 where it has not."""

    members: npt.NDArray[np.uint8]  # Bits of the label, see `ooc_svm.data.label_sets.LabelSets`
    side_weight: tuple[float, float]  # Of rows without the label, and with it
    codes: str = CODES  # Name of the row vector of numbers of sets (int32)
    row_weight: str | None = None  # Name of the row vector of row weights (float64)
    in_margins: ClassVar[bool] = True

    @property
    def largest_weight(self) -> float:
        return max(self.side_weight)

    @property
    def reads(self) -> tuple[str, ...]:
        return _names(self.codes, self.row_weight)

    def values(self, vectors: Vectors) -> tuple[Float64Array, Float64Array]:
        inside = has_label(self.members, vectors[self.codes])
        weight = np.where(inside, self.side_weight[1], self.side_weight[0])
        sign = np.where(inside, 1.0, -1.0)
        return sign, weight if self.row_weight is None else weight * vectors[self.row_weight]


@dataclass(frozen=True, slots=True)
class ValueTargets:
    """The row's own value."""

    value: str = TARGET  # Name of the row vector of the values (float64)
    row_weight: str | None = None  # Name of the row vector of row weights (float64)
    in_margins: ClassVar[bool] = False
    largest_weight: ClassVar[float] = 1.0

    @property
    def reads(self) -> tuple[str, ...]:
        return _names(self.value, self.row_weight)

    def values(self, vectors: Vectors) -> tuple[Float64Array, Float64Array]:
        t = vectors[self.value]
        return t, np.ones(len(t)) if self.row_weight is None else vectors[self.row_weight]


@dataclass(frozen=True, slots=True)
class _OtherTargets:
    """What targets that are made of others take from them."""

    targets: RowTargets

    @property
    def in_margins(self) -> bool:
        return self.targets.in_margins

    @property
    def row_weight(self) -> str | None:
        return self.targets.row_weight

    @property
    def largest_weight(self) -> float:
        return self.targets.largest_weight

    @property
    def reads(self) -> tuple[str, ...]:
        return self.targets.reads


@dataclass(frozen=True, slots=True)
class FoldTargets(_OtherTargets):
    """Other targets, the rows of one fold at no cost."""

    fold: int
    folds: str = FOLDS  # Name of the row vector of fold numbers (uint8)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.targets.reads, self.folds)

    def values(self, vectors: Vectors) -> tuple[Float64Array, Float64Array]:
        t, weight = self.targets.values(vectors)
        return t, np.where(vectors[self.folds] == self.fold, 0.0, weight)


@dataclass(frozen=True, slots=True)
class ShiftedTargets(_OtherTargets):
    """Other targets, less a number."""

    shift: float

    def values(self, vectors: Vectors) -> tuple[Float64Array, Float64Array]:
        t, weight = self.targets.values(vectors)
        return t - self.shift, weight
