"""The resident set: the rows that matter most, in memory, as a compact CSR matrix of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, Values
from ooc_svm.ops import rows as row_ops
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualProblem
from ooc_svm.solvers.streamed_smo.sweep import Rows, by_falling_key

# Elements that tell how the columns differ.
_SAMPLE = 1 << 18


def _floats() -> Float64Array:
    return np.empty(0)


@dataclass(slots=True)
class Residents:
    """Rows held in memory.

    Attributes
    ----------
    capacity : int
        Nonzeros and rows together that are held at most.
    values : ndarray of the data's type
        Empty where every stored value is 1.
    ids : ndarray of int64, shape (m,)
        Row numbers.
    indptr : ndarray of int64, shape (m + 1,)
    indices : ndarray of int32
    box : ndarray of float64, shape (m, 4)
    dual, stationarity : ndarray of float64, shape (m,)
        Multipliers, and how far each row was from being stationary when last looked at.
    least : float
        The key of the least row that was kept when there was no room for all, or what rows must be worth to
        be kept at all; rows below need no offering.
    all_ones : bool
        Whether there are no values.
    squares : ndarray of float64, shape (k,)
        Squared norms of the first rows; those that came since the last solving have none yet.
    """

    capacity: int = field(metadata={"saved": False})
    values: Values
    all_ones: bool = field(metadata={"saved": False})
    ids: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    indptr: Int64Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    indices: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    box: Float64Array = field(default_factory=lambda: np.empty((0, 4)))
    dual: Float64Array = field(default_factory=_floats)
    stationarity: Float64Array = field(default_factory=_floats)
    least: float = 0.0
    squares: Float64Array = field(default_factory=_floats, metadata={"saved": False})
    _indices_room: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    _values_room: Values = field(default_factory=_floats)

    def take(
        self, offered: Sequence[Rows], theta: float, eps: float, worth: float = 0.0
    ) -> tuple[Int64Array, Float64Array]:
        """Keep the best of the rows offered and of those here.

        Parameters
        ----------
        offered : sequence of Rows
        theta : float
            The share of their steps that was taken.
        eps : float
        worth : float
            Rows with a smaller key are not kept.

        Returns
        -------
        ids, multipliers : ndarrays of int64 and float64
            Of the rows that leave.
        """
        own_keys = np.empty(len(self.ids))
        dual_loops.priorities(self.dual, self.stationarity, self.box, eps, own_keys)
        keys = np.concatenate([own_keys, *(rows.keys for rows in offered)])
        sizes = np.concatenate([np.diff(self.indptr), *(np.diff(rows.indptr) for rows in offered)]) + 1
        wanted = (keys >= worth) & (sizes <= self.capacity)
        order = by_falling_key(keys)
        order = order[wanted[order]]
        kept = np.zeros(len(keys), dtype=np.bool_)
        kept[order[np.cumsum(sizes[order]) <= self.capacity]] = True
        if offered:
            full = kept.any() and not kept[wanted].all()
            self.least = float(keys[kept].min()) if full else worth
        at = len(self.ids)
        own = kept[:at]
        leaving = self.ids[~own], self.dual[~own]
        self._drop(own)
        for rows in offered:
            self._append(rows, np.flatnonzero(kept[at : at + len(rows.ids)]), theta)
            at += len(rows.ids)
        return leaving

    def rescale(self, ratio: float) -> None:
        """Go on with C times ``ratio``: so are multipliers and bounds, what damps is divided by it."""
        self.dual *= ratio
        self.box[:, 1:3] *= ratio
        self.box[:, 3] /= ratio

    def solve(
        self,
        problem: DualProblem,
        w: Float64Array,
        bias: Float64Array,
        seed: np.uint64,
        wanted: float,
        most_elements: int,
    ) -> Float64Array:
        """Improve the multipliers here until their gaps sum up to ``wanted``; w and b follow.

        Returns
        -------
        ndarray of float64, shape (N_SUMS,)
            See `ooc_svm.solvers.streamed_smo.dual_loops.solve`.
        """
        sums = np.zeros(dual_loops.N_SUMS)
        if len(self.ids):
            dual_loops.solve(
                *self.matrix, self._all_squares(problem), problem.metric, w, bias, self.box, problem.epsilon,
                self.dual, self.stationarity, seed, wanted, most_elements, sums,
            )  # fmt: skip
        return sums

    def sum_of_rows(self, problem: DualProblem) -> Float64Array:
        """Sum of ``v_i x_i`` over the rows here, in units of the data."""
        total = np.zeros(problem.space.n_features)
        row_ops.add_rows(*self.matrix, problem.metric, self.dual, total)
        return total

    def absorb(self, problem: DualProblem, excess: float, w: Float64Array) -> tuple[float, float]:
        """Move w as if the multipliers here took away an excess of their sum; they stay as they are.

        Those off their bounds go first, since D does not feel them in first order; no multiplier changes its
        sign.

        Returns
        -------
        gain, rest : float
            Change of D without its norm, and what could not be taken away.
        """
        v, (t, low, high, damping) = self.dual, self.box.T
        away = -np.sign(excess)
        end = np.where(away > 0.0, high - v, v - low)
        room = np.maximum(np.minimum(end, np.abs(v)), 0.0)
        inside = (v > low) & (v < high)
        change = np.zeros(len(v))
        rest = abs(excess)
        for tier in (inside, ~inside):
            most = float(room[tier].sum())
            if rest > 0.0 and most > 0.0:
                part = min(1.0, rest / most)
                change[tier] = away * part * room[tier]
                rest = rest - most if part == 1.0 else 0.0
        new = v + change
        gains = t * change - problem.epsilon * (np.abs(new) - np.abs(v)) - 0.5 * damping * change * (new + v)
        row_ops.add_rows(*self.matrix, problem.metric, change, w)
        return float(gains.sum()), max(rest, 0.0)

    def column_spread(self, n_features: int) -> float:
        """How the sizes of the columns differ: the 95th percentile of their largest values over the 5th.

        The first elements are enough to tell.
        """
        if self.all_ones or not len(self.indices):
            return 1.0
        largest = np.zeros(n_features)
        np.maximum.at(largest, self.indices[:_SAMPLE], np.abs(self.values[:_SAMPLE]))
        small, large = np.percentile(largest[largest > 0.0], (5, 95))
        return float(large / small)

    def is_sound(self, n_features: int) -> bool:
        """Whether the parts fit each other; a saved set may come from anywhere."""
        m, size = len(self.ids), len(self.indices)
        if not (self.box.shape == (m, 4) and len(self.dual) == len(self.stationarity) == m):
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

    def _all_squares(self, problem: DualProblem) -> Float64Array:
        new = np.arange(len(self.squares), len(self.ids))
        squares = np.empty(len(new))
        row_ops.row_squares(*self.matrix, problem.metric, new, squares)
        self.squares = np.concatenate([self.squares, squares])
        return self.squares

    def _drop(self, kept: np.ndarray) -> None:
        if not kept.all():
            size = row_ops.compact_rows(*self.matrix, kept)
            lengths = np.diff(self.indptr)[kept]
            self.indptr = np.concatenate([[0], np.cumsum(lengths)])
            self.indices, self.values = self.indices[:size], self.values[:size]
            self.ids, self.box = self.ids[kept], self.box[kept]
            self.dual, self.stationarity = self.dual[kept], self.stationarity[kept]
            self.squares = self.squares[kept[: len(self.squares)]]
        self._make_room()

    def _append(self, rows: Rows, chosen: Int64Array, theta: float) -> None:
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
        self.box = np.concatenate([self.box, rows.box[chosen]])
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
