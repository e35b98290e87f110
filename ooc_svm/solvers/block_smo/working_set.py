"""The rows that block SMO works on between two reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array, RowBlock
from ooc_svm.ops import gram
from ooc_svm.ops.rows import row_squares
from ooc_svm.passes.gather import take_rows
from ooc_svm.solvers.block_smo import set_loops
from ooc_svm.solvers.block_smo.candidates import Candidates
from ooc_svm.solvers.block_smo.copied_rows import CopiedRows
from ooc_svm.solvers.block_smo.update import KernelModel

KEPT_SHARE = 0.5  # Of the rows of a set, those that stay for the next one at most
# Kernel values of a set, as a share of those of a read, up to which rows stay that need not.
SET_SHARE = 0.5
SHARE = 0.05  # Of the violation at the start of a solve, at which it ends
STEPS_A_ROW = 50  # Steps of a solve at most, for each row of the set


@dataclass(slots=True)
class WorkingSet(CopiedRows):
    """Some rows, their multipliers before and after the steps, and what a checkpoint holds of them.

    Those that came last are at the end.
    """

    before: Float64Array = field(default_factory=lambda: np.empty(0))
    v: Float64Array = field(default_factory=lambda: np.empty(0))
    h: Float64Array = field(default_factory=lambda: np.empty(0))
    targets: Float64Array = field(default_factory=lambda: np.empty(0))
    costs: Float64Array = field(default_factory=lambda: np.empty(0))

    @property
    def moved(self) -> BoolArray:
        """Which of them have moved."""
        moved: BoolArray = self.v != self.before
        return moved

    def kept(self, model: KernelModel, size: int, bias: float, margin: float) -> tuple[Int64Array, int]:
        """Places of the rows that may stay in the next set, and how many of them, the first, have to.

        Those that moved and are free have to, the newest ones. The others may where there is room: in the
        order of what their scores have to move by before they violate their condition at a bias, up to
        ``margin``. Without them two sets of a few violators take turns: what is consistent with the rows of
        the one is not with those of the other.
        """
        boxes, (up, down) = self.boxes(model), self._slopes(model)
        distance = np.minimum(bias - up, down - bias)
        free = (self.v > boxes[0]) & (self.v < boxes[1]) & (self.v != 0.0) & self.moved
        first = np.flatnonzero(free)[-int(KEPT_SHARE * size) :]
        distance[first] = np.inf
        near = np.argsort(distance, kind="stable")[: np.count_nonzero(distance <= margin)]
        return np.concatenate([first, near]), len(first)

    def boxes(self, model: KernelModel) -> Float64Array:
        """See `set_loops.fill_boxes`."""
        boxes = np.empty((4, len(self.numbers)))
        set_loops.fill_boxes(model.loss, self.targets, self.costs, boxes)
        return boxes

    def settle(self, places: Int64Array, scores: Float64Array) -> None:
        """All rows have followed the steps; these places have the scores, in the order of their numbers."""
        self.before = self.v.copy()
        self.h[places[np.argsort(self.numbers[places])]] = scores

    def replace(self, places: Int64Array, n_first: int, found: Candidates, size: int, n_rows: int) -> None:
        """Take other rows in, and keep those at the first places, ``n_first`` of them or more.

        ``size``: of the set at most. ``n_rows``: of the data.
        """
        n_found, n_new = len(found.numbers), n_first + len(found.numbers)
        most = min(max(n_new, int((SET_SHARE * n_rows * n_new) ** 0.5)), size)
        own = Candidates(
            self.numbers, self.v, self.h, self.targets, self.costs, self.v, self.v, self.rows
        ).taken(np.sort(places[: most - n_found]))
        whole = own.joined(found)
        self._take(whole.numbers, whole.rows)
        self.v, self.h, self.before = whole.v, whole.h, whole.v.copy()
        self.targets, self.costs = whole.targets, whole.costs

    def solve(self, model: KernelModel, bias: float, kind: str, precision: str) -> tuple[int, float]:
        """Steps on these rows alone; returns their number and the smallest curvature that was met.

        Their scores follow, as far as kernel values of this precision tell.

        ``bias``: the sum of all multipliers where it is penalized, else 0.
        """
        m = len(self.numbers)
        squares, places = np.empty(m), np.arange(m, dtype=np.uint64)
        row_squares(*self.rows.arrays, model.scale2, places, squares)
        kernel, buffers = model.kernel_with_buffers(squares, self.ends, squares, precision)
        K = np.empty((m, m), precision)
        gram.fill_values(
            *(kernel, *self.rows.arrays, places, squares),
            *(*self.rows.arrays, squares, model.scale2, *buffers, K),
        )
        if kind == "penalized":
            K += K.dtype.type(1.0)
        d = self.targets - self.h - bias
        solve = set_loops.solve_pairs if kind == "free" else set_loops.solve_free_sum
        found: tuple[int, float] = solve(K, self.boxes(model), self.v, d, SHARE, STEPS_A_ROW * m)
        bias += float((self.v - self.before).sum()) if kind == "penalized" else 0.0
        self.h = self.targets - bias - d
        return found

    def bias(self, model: KernelModel) -> float:
        """The bias in the middle of what these rows allow, if it is free; not finite if all are at bounds."""
        up, down = self._slopes(model)
        return 0.5 * (float(up.max(initial=-np.inf)) + float(down.min(initial=np.inf)))

    def _slopes(self, model: KernelModel) -> Float64Array:
        """Slopes of D upwards and downwards, shape (2, rows)."""
        found = np.empty((2, self.n_rows))
        set_loops.slopes(model.loss, self.v, self.h, self.targets, self.costs, found[0], found[1])
        return found

    def changes(self) -> tuple[Int64Array, RowBlock, Int64Array]:
        """Places of the rows that moved, in the order of their numbers; these rows; their numbers."""
        places = np.flatnonzero(self.moved)
        places = places[np.argsort(self.numbers[places])]
        return places, take_rows(self.rows, places), self.numbers[places]

    def is_sound(self, n_features: int) -> bool:
        """Whether its parts fit each other; a saved one may come from anywhere."""
        vectors: list[Any] = [self.before, self.v, self.h, self.targets, self.costs]
        return all(len(each) == self.n_rows for each in vectors) and self._are_rows(n_features)
