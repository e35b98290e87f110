"""The working set of cuts and the master problem over it.

    min_w  1/2 |w|^2 + C sum_g r_g,     r_g >= 0,   r_g >= delta_k - a_k.w   for the cuts k of group g
    dual:  max delta.beta - 1/2 |w|^2,   w = sum_k beta_k a_k,   beta >= 0,   sum_{k in g} beta_k <= C

The dual value of any feasible beta is a lower bound on the optimum of the whole problem. Cuts that have had
no multiplier for a while are dropped, which leaves that value as it is; where memory runs out, each group's
cuts are replaced by their combination (weights beta), which leaves it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.solvers.cutting_plane.cuts import Cuts
from ooc_svm.solvers.cutting_plane.master import solve_master

# Master problems a cut may go without a multiplier; keeping it longer saves no reads (measured).
IDLE_LIMIT = 5


@dataclass(slots=True)
class Bundle:
    """Cuts, their Gram matrix and multipliers."""

    capacity: int = field(metadata={"saved": False})  # Largest number of cuts kept
    planes: Float64Array  # shape (m, dimension)
    offsets: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (m,)
    beta: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (m,)
    group: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))  # shape (m,)
    idle: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))  # shape (m,)
    gram: Float64Array = field(default_factory=lambda: np.empty((0, 0)))  # shape (m, m)
    _room: Float64Array = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def n_cuts(self) -> int:
        """Number of cuts."""
        return len(self.offsets)

    def is_sound(self, dimension: int, n_groups: int) -> bool:
        """Whether the parts fit each other and the problem; a saved bundle may come from anywhere."""
        m = self.n_cuts
        lengths = {len(self.beta), len(self.group), len(self.idle)}
        shapes = (self.planes.shape, self.gram.shape)
        if not (m <= self.capacity and lengths == {m} and shapes == ((m, dimension), (m, m))):
            return False
        return bool(((self.group >= 0) & (self.group < n_groups)).all() and (self.beta >= 0.0).all())

    def add(self, *cuts: Cuts) -> None:
        """Add cuts, of each one for each group; the Gram matrix grows by as many rows."""
        new = sum(len(each.offsets) for each in cuts)
        self._make_room(new)
        m, room = self.n_cuts, self._rows()
        np.concatenate([each.planes for each in cuts], out=room[m : m + new])
        self.planes = room[: m + new]
        products = self.planes @ room[m : m + new].T
        gram = np.empty((m + new, m + new))
        gram[:m, :m] = self.gram
        gram[:, m:] = products
        gram[m:, :m] = products[:m].T
        self.gram = gram
        self.offsets = np.concatenate([self.offsets, *(each.offsets for each in cuts)])
        self.beta = np.concatenate([self.beta, np.zeros(new)])
        self.group = np.concatenate([self.group, *(np.arange(len(each.offsets)) for each in cuts)])
        self.idle = np.concatenate([self.idle, np.zeros(new, dtype=np.int64)])

    def solve(self, C: float, n_groups: int, tolerance: float) -> tuple[Float64Array, float]:
        """Solve the master problem to a duality gap of ``tolerance``.

        Returns w and the dual value of the multipliers found: a lower bound on the optimum; NaN if products
        of the cuts overflow.
        """
        if not np.isfinite(self.gram).all():
            return np.zeros(self.planes.shape[1]), math.nan
        solution = solve_master(
            self.gram, self.offsets, self.group, n_groups, C, start=self.beta, tolerance=tolerance
        )
        self.beta = solution.beta
        self.idle = np.where(self.beta > 0.0, 0, self.idle + 1)
        w = self.beta @ self.planes
        return w, float(self.offsets @ self.beta - 0.5 * (w @ w))

    def drop_idle(self) -> None:
        """Drop the cuts that have had no multiplier for long."""
        if (self.idle > IDLE_LIMIT).any():
            self._keep(np.flatnonzero(self.idle <= IDLE_LIMIT))

    def _rows(self) -> Float64Array:
        """Room for all cuts, made once: the system gives memory to the rows that are used."""
        if len(self._room) != self.capacity:
            room = np.empty((self.capacity, self.planes.shape[1]))
            room[: self.n_cuts] = self.planes
            self._room = room
        return self._room

    def _keep(self, kept: Int64Array) -> None:
        room = self._rows()
        for to, source in enumerate(kept):
            if to != source:
                room[to] = room[source]
        self.planes = room[: len(kept)]
        self.gram = self.gram[np.ix_(kept, kept)]
        self.offsets, self.beta = self.offsets[kept], self.beta[kept]
        self.group, self.idle = self.group[kept], self.idle[kept]

    def _make_room(self, new: int) -> None:
        """Drop idle cuts, longest idle first, and at last combine each group's, until ``new`` ones fit."""
        excess = self.n_cuts + new - self.capacity
        if excess <= 0:
            return
        unused = np.flatnonzero(self.beta == 0.0)
        oldest = unused[np.argsort(-self.idle[unused], kind="stable")][:excess]
        self._keep(np.setdiff1d(np.arange(self.n_cuts), oldest))
        if self.n_cuts + new > self.capacity:
            self._combine()

    def _combine(self) -> None:
        """Replace the cuts of each group by their convex combination with the weights beta."""
        groups = np.unique(self.group)
        share = np.zeros((len(groups), self.n_cuts))
        totals = np.zeros(len(groups))
        for row, g in enumerate(groups):
            members = self.group == g
            totals[row] = self.beta[members].sum()
            share[row, members] = self.beta[members] / totals[row]
        room = self._rows()
        room[: len(groups)] = share @ self.planes
        self.planes = room[: len(groups)]
        self.gram = share @ self.gram @ share.T
        self.offsets, self.beta, self.group = share @ self.offsets, totals, groups
        self.idle = np.zeros(len(groups), dtype=np.int64)
