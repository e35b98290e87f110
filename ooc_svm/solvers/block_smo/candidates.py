"""Rows that offer themselves for the working set, and how the most promising ones are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.ops.hashing import mix_keys
from ooc_svm.passes.gather import join_rows, take_rows

NO_ROWS = RowBlock(0, np.zeros(1, np.int64), np.empty(0, np.int32), None)


def _none() -> Float64Array:
    return np.empty(0)


@dataclass(slots=True)
class Candidates:
    """Some rows of the data, with their multipliers, scores and slopes."""

    numbers: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    v: Float64Array = field(default_factory=_none)
    h: Float64Array = field(default_factory=_none)
    targets: Float64Array = field(default_factory=_none)
    costs: Float64Array = field(default_factory=_none)
    up: Float64Array = field(default_factory=_none)
    down: Float64Array = field(default_factory=_none)
    rows: RowBlock = NO_ROWS

    @property
    def arrays(self) -> dict[str, Any]:
        """What there is one entry of for each row, by name."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "rows"}

    def taken(self, places: Int64Array) -> Candidates:
        """Copies of some of them, in this order."""
        own = {name: array[places] for name, array in self.arrays.items()}
        return Candidates(**own, rows=take_rows(self.rows, places))

    def joined(self, other: Candidates) -> Candidates:
        """Both, one after the other."""
        theirs = other.arrays
        own = {name: np.concatenate([array, theirs[name]]) for name, array in self.arrays.items()}
        return Candidates(**own, rows=join_rows([part.rows for part in (self, other) if len(part.numbers)]))


@dataclass(frozen=True, slots=True)
class Choice:
    """How candidates are chosen on each of the two sides.

    The row with the largest slope is, and others are drawn among those that violate their condition. The
    worst ones alone would be much alike: after steps of a few of them the others are consistent, and it takes
    two to three times as many reads (measured).
    """

    count: int  # Of candidates on each side, at most
    pivot: float  # The bias against which slopes are judged
    seed: int

    def places(self, numbers: Int64Array, up: Float64Array, down: Float64Array) -> Int64Array:
        """Places of the chosen ones, ascending; slopes that are infinite are not chosen."""
        keys = np.empty(len(numbers), np.uint64)
        mix_keys((numbers + (self.seed << 32)).view(np.uint64), keys)
        chosen = np.zeros(len(numbers), np.bool_)
        for slope in (up - self.pivot, self.pivot - down):
            chosen[self._of_side(slope, keys)] = True
        return np.flatnonzero(chosen)

    def _of_side(self, slope: Float64Array, keys: npt.NDArray[np.uint64]) -> Int64Array:
        if not len(slope) or slope.max() == -np.inf:
            return np.empty(0, np.int64)
        worst = int(np.argmax(slope))
        others = np.flatnonzero(slope > 0.0)
        others = others[others != worst]
        if len(others) >= self.count:
            others = others[np.argpartition(keys[others], self.count - 1)[: self.count - 1]]
        return np.append(others, worst)

    def better_of(self, known: Candidates, offered: Candidates) -> Candidates:
        """Those of both that would be chosen among all."""
        names = "numbers", "up", "down"
        joined = [np.concatenate([getattr(known, name), getattr(offered, name)]) for name in names]
        places, n = self.places(*joined), len(known.numbers)
        return known.taken(places[places < n]).joined(offered.taken(places[places >= n] - n))
