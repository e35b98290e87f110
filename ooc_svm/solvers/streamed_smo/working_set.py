"""The working set: the rows that matter most, in memory, as a compact CSR matrix of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, Values
from ooc_svm.ops import rows as row_ops
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows, by_falling_priority

# Limits of the search for a bias: doublings of a step, and halvings of the interval that is found.
MAX_DOUBLINGS, BISECTIONS = 60, 20

_SAMPLE = 1 << 18  # Number of elements from which the spread of the columns is estimated


@dataclass(slots=True)
class WorkingSet:
    """Rows held in memory."""

    capacity: int = field(metadata={"saved": False})  # Nonzeros and rows together that are held at most
    values: Values  # Empty where every stored value is 1
    all_ones: bool = field(metadata={"saved": False})  # Whether there are no values
    ids: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # shape (m,): row numbers
    indptr: Int64Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))  # shape (m + 1,)
    indices: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    # shape (m, 2): target and cost of each row
    targets: Float64Array = field(default_factory=lambda: np.empty((0, 2)))
    # shape (m,): multipliers, and how far each row was from being stationary when last looked at
    dual: Float64Array = field(default_factory=lambda: np.empty(0))
    stationarity: Float64Array = field(default_factory=lambda: np.empty(0))
    # The lowest priority that was kept when there was no room for all rows, else 0; rows below it need not be
    # candidates
    cutoff: float = field(default=0.0, metadata={"saved_as": "least"})
    # shape (k,): squared norms of the first rows, and their products with the mean; those that came since the
    # last solving have none yet
    squares: Float64Array = field(default_factory=lambda: np.empty(0), metadata={"saved": False})
    moments: Float64Array = field(default_factory=lambda: np.empty(0), metadata={"saved": False})
    _indices_room: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    _values_room: Values = field(default_factory=lambda: np.empty(0))

    def take(
        self,
        model: DualModel,
        candidates: Sequence[CandidateRows],
        theta: float,
        min_priority: float = 0.0,
        unit: float = 1.0,
    ) -> tuple[Int64Array, Float64Array]:
        """Keep the best of the candidates and of the rows here.

        ``theta``: the share of their steps that was taken.
        ``min_priority``: rows of a lower priority are not kept.
        ``unit``: of residuals.
        Returns ids and multipliers of the rows that leave.
        """
        own_priority = np.empty(len(self.ids))
        dual_loops.priorities(model.loss, self.dual, self.stationarity, unit, self.targets, own_priority)
        priority = np.concatenate([own_priority, *(rows.priority for rows in candidates)])
        sizes = np.concatenate([np.diff(self.indptr), *(np.diff(rows.indptr) for rows in candidates)]) + 1
        wanted = (priority >= min_priority) & (sizes <= self.capacity)
        kept = wanted
        if full := int(sizes[wanted].sum()) > self.capacity:
            order = by_falling_priority(priority)
            order = order[wanted[order]]
            kept = np.zeros(len(priority), dtype=np.bool_)
            kept[order[np.cumsum(sizes[order]) <= self.capacity]] = True
        if candidates:
            self.cutoff = float(priority[kept].min()) if full else 0.0
        at = len(self.ids)
        own = kept[:at]
        leaving = self.ids[~own], self.dual[~own]
        self._drop(own)
        for rows in candidates:
            self._append(rows, np.flatnonzero(kept[at : at + len(rows.ids)]), theta)
            at += len(rows.ids)
        return leaving

    def rescale(self, model: DualModel, ratio: float) -> None:
        """Go on with C times ``ratio``: costs and multipliers are multiplied."""
        self.dual *= ratio
        self.targets[:, 1] *= ratio
        dual_loops.put_inside(model.loss, self.dual, self.targets)

    def solve(
        self,
        model: DualModel,
        w: Float64Array,
        bias: Float64Array,
        seed: np.uint64,
        wanted: float,
        most_elements: int,
        mean: Float64Array | None = None,
    ) -> Float64Array:
        """Improve the multipliers here until their gaps sum up to ``wanted``; w and b follow.

        ``bias`` and ``mean``: see `dual_loops`.

        Returns the sums of `dual_loops.solve`, shape (N_SUMS,).
        """
        sums = np.zeros(dual_loops.N_SUMS)
        if len(self.ids):
            dual_loops.solve(
                model.loss, *self.matrix, *self._products(model, mean), model.space.scale2, w, bias,
                self.targets, self.dual, self.stationarity, seed, wanted, most_elements, sums,
            )  # fmt: skip
        return sums

    def bias_step(self, model: DualModel, w: Float64Array, bias: Float64Array, step: float) -> float:
        """The change of b at which the losses' slopes sum up to 0, those of rows elsewhere staying.

        ``step`` is returned where that is less: the sum would have changed its sign before.
        """
        total = float(bias[dual_loops.TOTAL])
        elsewhere = total - float(self.dual.sum())
        residual = np.empty(len(self.ids))
        moments = None if not len(self.moments) else self.moments
        dual_loops.residuals(*self.matrix, moments, w, bias, self.targets, residual)

        def beyond(shift: float) -> bool:
            """Whether the sum at a shift still has the sign that it has now."""
            slopes = dual_loops.slope_sum(model.loss, residual, shift, self.targets)
            return bool((elsewhere + slopes) * total > 0.0)

        near, far = step, 2.0 * step
        if not math.isfinite(far) or step == 0.0 or not beyond(near):
            return step
        for _ in range(MAX_DOUBLINGS):
            if not beyond(far):
                break
            near, far = far, 2.0 * far
        else:
            return step
        for _ in range(BISECTIONS):
            middle = 0.5 * (near + far)
            if beyond(middle):
                near = middle
            else:
                far = middle
        return near

    def sums_before(self, model: DualModel) -> Float64Array:
        """The sums of the multipliers here, see `dual_loops.count_before`."""
        sums = np.zeros(dual_loops.N_SUMS)
        marks = np.zeros(len(self.dual), np.uint8)
        dual_loops.count_before(model.loss, self.dual, self.targets, marks, sums)
        return sums

    def sum_of_rows(self, model: DualModel) -> Float64Array:
        """Sum of ``v_i x_i`` over the rows here, in units of the data."""
        total = np.zeros(model.space.n_features)
        row_ops.add_rows(*self.matrix, model.space.scale2, self.dual, total)
        return total

    def absorb(self, model: DualModel, excess: float, w: Float64Array) -> tuple[float, float, Float64Array]:
        """Move w as if the multipliers here took away an excess of their sum; they stay as they are.

        Those off their bounds go first, since D does not feel them in first order; no multiplier changes its
        sign.

        Returns the change of D without its norm, what could not be taken away, and sums of the changes as
        `dual_loops.solve` has them.
        """
        away = -np.sign(excess)
        m = len(self.dual)
        room, inside, change = np.empty(m), np.empty(m, np.bool_), np.zeros(m)
        dual_loops.rooms(model.loss, self.dual, self.targets, away, room, inside)
        rest = abs(excess)
        for tier in (inside, ~inside):
            most = float(room[tier].sum())
            if rest > 0.0 and most > 0.0:
                part = min(1.0, rest / most)
                change[tier] = away * part * room[tier]
                rest = rest - most if part == 1.0 else 0.0
        gains = np.empty(m)
        dual_loops.gains(model.loss, self.dual, change, self.targets, gains)
        row_ops.add_rows(*self.matrix, model.space.scale2, change, w)
        sums = np.zeros(dual_loops.N_SUMS)
        sums[dual_loops.CHANGES] = np.count_nonzero(change)
        sums[dual_loops.DISTANCE] = np.abs(change).sum()
        sums[dual_loops.SIZE] = np.abs(gains).sum() + 2.0 * np.abs(change * self.targets[:, 0]).sum()
        return float(gains.sum()), max(rest, 0.0), sums

    def holds(self, rows: CandidateRows) -> bool:
        """Whether some rows are here, the same to the last bit."""
        order = np.argsort(self.ids)
        place = np.minimum(np.searchsorted(self.ids, rows.ids, sorter=order), len(order) - 1)
        own = order[place]
        if not np.array_equal(self.ids[own], rows.ids):
            return False
        if not np.array_equal(np.diff(self.indptr)[own], np.diff(rows.indptr)):
            return False
        indices = np.empty_like(rows.indices)
        values = None if rows.values is None else np.empty_like(rows.values)
        row_ops.gather_rows(
            *self.matrix, own, row_ops.unsigned(rows.indptr), row_ops.unsigned(indices), values
        )
        same = np.array_equal(indices, rows.indices) and np.array_equal(self.targets[own], rows.targets)
        return same and (rows.values is None or np.array_equal(np.asarray(values), rows.values))

    def column_spread(self, n_features: int) -> float:
        """How the sizes of the columns differ, a twentieth of them left out on each side.

        The first elements are enough to tell.
        """
        if self.all_ones or not len(self.indices):
            return 1.0
        largest = np.zeros(n_features)
        np.maximum.at(largest, self.indices[:_SAMPLE], np.abs(self.values[:_SAMPLE]))
        used = np.sort(largest[largest > 0.0])
        outside = len(used) // 20
        return float(used[-1 - outside] / used[outside])

    def is_one_sided(self) -> bool:
        """Whether no value is negative; the first elements are enough to tell."""
        return len(self.indices) > 0 and (self.all_ones or float(self.values[:_SAMPLE].min()) >= 0.0)

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Turn the arrays of version 1 of the format into today's: it had bounds and damping for the cost."""
        box = saved.pop("box", None)
        if box is not None and box.ndim == 2 and box.shape[1] == 4:
            with np.errstate(divide="ignore"):
                cost = np.where(box[:, 3] > 0.0, 0.5 / box[:, 3], np.maximum(-box[:, 1], box[:, 2]))
            saved["targets"] = np.column_stack([box[:, 0], cost])

    def is_sound(self, n_features: int) -> bool:
        """Whether the parts fit each other; a saved set may come from anywhere."""
        m, size = len(self.ids), len(self.indices)
        if not (self.targets.shape == (m, 2) and len(self.dual) == len(self.stationarity) == m):
            return False
        if len(self.indptr) != m + 1 or len(self.values) != (0 if self.all_ones else size):
            return False
        rising = self.indptr[0] == 0 and self.indptr[-1] == size and (np.diff(self.indptr) >= 0).all()
        ids = self.indices
        return bool(rising and size + m <= self.capacity and ((ids >= 0) & (ids < n_features)).all())

    @property
    def matrix(self) -> tuple[Values, Values, Values | None]:
        """The rows' CSR arrays as compiled functions take them."""
        values = None if self.all_ones else self.values
        return row_ops.unsigned(self.indptr), row_ops.unsigned(self.indices), values

    def _products(
        self, model: DualModel, mean: Float64Array | None
    ) -> tuple[Float64Array, Float64Array | None]:
        """Squared norms of the rows, and their products with the mean if there is one."""
        known = len(self.squares)
        new = np.arange(known, len(self.ids))
        squares = np.empty(len(new))
        row_ops.row_squares(*self.matrix, model.space.scale2, new, squares)
        self.squares = np.concatenate([self.squares, squares])
        if mean is None:
            return self.squares, None
        indptr, indices, values = self.matrix
        moments = np.empty(len(new))
        first = np.uint64(known)
        row_ops.scores(indptr, indices, values, first, np.uint64(1), mean, moments)
        self.moments = np.concatenate([self.moments, moments])
        return self.squares, self.moments

    def _drop(self, kept: np.ndarray) -> None:
        if not kept.all():
            size = row_ops.compact_rows(*self.matrix, kept)
            lengths = np.diff(self.indptr)[kept]
            self.indptr = np.concatenate([[0], np.cumsum(lengths)])
            self.indices, self.values = self.indices[:size], self.values[:size]
            self.ids, self.targets = self.ids[kept], self.targets[kept]
            self.dual, self.stationarity = self.dual[kept], self.stationarity[kept]
            self.squares = self.squares[kept[: len(self.squares)]]
            self.moments = self.moments[kept[: len(self.moments)]]
        self._make_room()

    def _append(self, rows: CandidateRows, chosen: Int64Array, theta: float) -> None:
        if not len(chosen):
            return
        before = len(self.indices)
        indptr = np.concatenate([[before], before + np.cumsum(np.diff(rows.indptr)[chosen])])
        self._use(int(indptr[-1]))
        row_ops.gather_rows(
            row_ops.unsigned(rows.indptr), row_ops.unsigned(rows.indices), rows.values, chosen,
            row_ops.unsigned(indptr), row_ops.unsigned(self.indices), None if self.all_ones else self.values,
        )  # fmt: skip
        self.indptr = np.concatenate([self.indptr, indptr[1:]])
        self.ids = np.concatenate([self.ids, rows.ids[chosen]])
        self.targets = np.concatenate([self.targets, rows.targets[chosen]])
        self.dual = np.concatenate([self.dual, rows.dual[chosen] + theta * rows.step[chosen]])
        self.stationarity = np.concatenate([self.stationarity, np.zeros(len(chosen))])

    def _make_room(self) -> None:
        """Room for all rows that may come, made once: the system gives memory to what is used."""
        if len(self._indices_room) != self.capacity:
            size = len(self.indices)
            self._indices_room = np.empty(self.capacity, dtype=np.int32)
            self._indices_room[:size] = self.indices
            self._values_room = np.empty(0 if self.all_ones else self.capacity, dtype=self.values.dtype)
            self._values_room[:size] = self.values
            self._use(size)

    def _use(self, size: int) -> None:
        self.indices = self._indices_room[:size]
        self.values = self._values_room[:size]
