"""Sequential minimal optimization of a linear model: its weights are kept (section 2.4 of Platt's report)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.base import Steps
from ooc_svm.solvers.base import LinearFunction
from ooc_svm.solvers.smo.examine_pass import Examined
from ooc_svm.solvers.smo.objective import LinearObjective
from ooc_svm.solvers.smo.rows import HeldRows
from ooc_svm.solvers.smo.scorers import LinearScorer
from ooc_svm.solvers.smo.solver import Smo, SmoState, columns_of


@dataclass(slots=True)
class LinearState(SmoState):
    """With the weights of the multipliers and of the best point, in units of the data."""

    w: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (n_features,)
    best: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (n_features,)

    def is_sound(self, n_features: int) -> bool:
        shapes = self.w.shape == self.best.shape == (n_features,)
        return shapes and bool(np.isfinite(self.w).all()) and SmoState.is_sound(self, n_features)


@dataclass(slots=True, eq=False)
class LinearSmo(Smo):
    """The solver of one linear model."""

    _start: Float64Array = field(default_factory=lambda: np.empty(0))  # Weights that the read began with

    def solution(self) -> LinearFunction:
        return LinearFunction(self.state.best, self.state.best_b)

    def _begin_read(self) -> Steps:
        self._start = self.state.w
        self.state.w = self._start.copy()
        yield from ()

    def _scorer(self) -> LinearScorer:
        w = self.state.w
        start = self._start if len(self._start) else w
        return LinearScorer(start, w if self._changed else None, self.space.scale2)

    def _arrays(self, rows: HeldRows) -> tuple[Any, Any]:
        w, scale2, columns = self.state.w, self.space.scale2, columns_of(rows)
        every, squares = np.arange(len(rows.ids), dtype=np.uint64), rows.squares(scale2)
        row_ops.row_scores(*rows.block.arrays, every, w, columns[-1])
        space = w, np.zeros(len(w)), np.empty((2, 0))
        return None, (*rows.block.arrays, scale2, squares, squares, *columns, *space)

    def _stays(self, rows: HeldRows) -> BoolArray:
        return rows.is_free

    def _end_read(self, found: Examined) -> Float64Array:
        # Many small steps leave a residue.
        self.state.w += found.weights - self._start
        return self._start

    def _keep_best(self, point: Float64Array) -> Steps:
        self.state.best = point
        yield from ()

    def _make_objective(self, found: Examined) -> LinearObjective:
        return LinearObjective(found.magnitudes, self.space, self.model.C)

    def _saved_points(self) -> Generator[Any, Any, tuple[Any, Examined]]:
        found = yield from self._score_again(LinearScorer(self.state.best, None, self.space.scale2))
        self._know(found)
        return self.state.best, found
