"""Which rows a measure counts: all of them, or those that a row vector marks or does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import union
from ooc_svm.problems.targets import HELD_OUT
from ooc_svm.solvers.base import KeptScores


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows with a mark other than 0, if ``marked``, or with the mark 0; without marks all rows."""

    marks: str | None = None  # Row vector
    marked: bool = False

    def reads(self, name: str, scores: Sequence[KeptScores] = ()) -> tuple[str, ...]:
        """What a rule reads that compares a row vector with scores, row by row."""
        own = () if self.marks is None else (self.marks,)
        return union([(name, *own), *(each.reads for each in scores)])

    def of(self, vectors: Mapping[str, Any], part: slice = slice(None)) -> Mapping[str, Any]:
        """The slices of row vectors that a rule has, those of the chosen rows of a part of them."""
        return _Chosen(vectors, part, self)


ROWS_HELD_OUT = RowChoice(HELD_OUT, marked=True)


class _Chosen(Mapping[str, Any]):
    def __init__(self, vectors: Mapping[str, Any], part: slice, choice: RowChoice) -> None:
        self._vectors, self._part = vectors, part
        self._kept: Any = slice(None)
        if choice.marks is not None:
            self._kept = np.flatnonzero((vectors[choice.marks][part] != 0) == choice.marked)

    def __getitem__(self, name: str) -> Float64Array:
        found: Float64Array = self._vectors[name][self._part][self._kept]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)
