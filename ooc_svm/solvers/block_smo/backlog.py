"""Rows that moved since the scores of all rows were brought up to date."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.passes.gather import join_rows, take_rows
from ooc_svm.solvers.block_smo.copied_rows import CopiedRows


@dataclass(slots=True)
class Backlog(CopiedRows):
    """Rows in the order of their numbers, and by how much their multipliers have changed.

    The rows that are set aside have not followed these changes yet, so that a checkpoint holds them.
    """

    change: Float64Array = field(default_factory=lambda: np.empty(0))

    def joined(self, numbers: Int64Array, rows: RowBlock, change: Float64Array) -> Backlog:
        """These and other changes; those of one row are added up."""
        own = [self.rows] if self.n_rows else []
        numbers, first, places = np.unique(
            np.concatenate([self.numbers, numbers]), return_index=True, return_inverse=True
        )
        total = np.bincount(places, np.concatenate([self.change, change]), len(numbers)).astype(np.float64)
        both = self.emptied()
        both._take(numbers, take_rows(join_rows([*own, rows]), first))
        both.change = total
        return both

    def is_sound(self, n_features: int, n_rows: int) -> bool:
        """Whether its parts fit each other; a saved one may come from anywhere."""
        numbers = self.numbers
        inside = not len(numbers) or (numbers[0] >= 0 and numbers[-1] < n_rows)
        fits = len(self.change) == len(numbers) and bool(np.isfinite(self.change).all())
        rising = bool((numbers[1:] > numbers[:-1]).all())
        return bool(inside and fits and rising) and self._are_rows(n_features)
