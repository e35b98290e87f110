"""Rows that offer themselves for the working set, with all that is needed of them, and how they are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
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


def most_promising(up: Float64Array, down: Float64Array, count: int) -> Int64Array:
    """Places of so many rows with the largest slopes upwards, and of as many with the smallest downwards."""
    chosen = [_largest(slope, count) for slope in (up, -down)]
    places: Int64Array = np.union1d(*chosen)
    return places


def _largest(keys: Float64Array, count: int) -> Int64Array:
    possible = np.flatnonzero(keys > -np.inf)
    if len(possible) > count:
        possible = possible[np.argpartition(-keys[possible], count - 1)[:count]] if count else possible[:0]
    return possible


def better_of(known: Candidates, offered: Candidates, count: int) -> Candidates:
    """The most promising of both."""
    joined_up, joined_down = (
        np.concatenate([getattr(known, n), getattr(offered, n)]) for n in ("up", "down")
    )
    places = most_promising(joined_up, joined_down, count)
    n = len(known.numbers)
    if len(places) == n and (places < n).all():
        return known
    return known.taken(places[places < n]).joined(offered.taken(places[places >= n] - n))
