"""The working set of cuts and the master problem over it.

    min_w  1/2 |w|^2 + C sum_g r_g,     r_g >= 0,   r_g >= delta_k - a_k.w   for the cuts k of group g
    dual:  max delta.beta - 1/2 |w|^2,   w = sum_k beta_k a_k,   beta >= 0,   sum_{k in g} beta_k <= C

Free parameters are the last coordinates of w and of the planes, and take no part in ``|w|^2``: there, the sum
over the cuts is 0 in the dual, and the parameters come from its multipliers. Where losses can be less than 0,
so can r_g, and the sums of multipliers are C.

The dual value of any feasible beta is a lower bound on the optimum of the whole problem. Cuts that have had
no multiplier for a while are dropped, which leaves that value as it is; where memory runs out, each group's
cuts are replaced by their combination (weights beta), which leaves it too. With free parameters an idle cut
still has a small multiplier: then dropping it does change the value, until the next solution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.solvers.cutting_plane.cuts import Cuts
from ooc_svm.solvers.cutting_plane.free_master import solve_free_master
from ooc_svm.solvers.cutting_plane.master import solve_master
from ooc_svm.solvers.rounding import Rounding, gamma, inner

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
    # Operations that combinations of cuts have added to those that a cut was made in
    combining: float = 0.0
    unsolved: int = 0  # 1 where a time limit came before `beta` was that of the newest cuts
    free: Float64Array = field(default_factory=lambda: np.empty(0))  # The free parameters
    # Whether sums of multipliers are C
    equal: bool = field(default=False, metadata={"saved": False})
    _room: Float64Array = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def fresh(cls, capacity: int, dimension: int, n_free: int = 0, *, equal: bool = False) -> Bundle:
        """A bundle without cuts."""
        return cls(capacity, np.empty((0, dimension)), free=np.zeros(n_free), equal=equal)

    @property
    def n_cuts(self) -> int:
        """Number of cuts."""
        return len(self.offsets)

    def is_sound(self, dimension: int, n_groups: int, n_free: int = 0) -> bool:
        """Whether the parts fit each other and the problem; a saved bundle may come from anywhere."""
        m = self.n_cuts
        lengths = {len(self.beta), len(self.group), len(self.idle)}
        shapes = (self.planes.shape, self.gram.shape)
        if not (m <= self.capacity and lengths == {m} and shapes == ((m, dimension), (m, m))):
            return False
        if self.free.shape != (n_free,) or not np.isfinite(self.free).all():
            return False
        known = bool(((self.group >= 0) & (self.group < n_groups)).all() and (self.beta >= 0.0).all())
        return known and bool(np.isfinite(self.beta).all()) and 0.0 <= self.combining < math.inf

    def is_feasible(self, C: float, n_groups: int) -> bool:
        """Whether each group's multipliers sum up to C at most, but for rounding.

        Where sums have to be C, they may be less as long as the newest cuts are not solved for: the cuts
        that were dropped for these had small multipliers.
        """
        totals, share = self._totals(n_groups), gamma(self.n_cuts + 2)
        exact = self.equal and not self.unsolved
        enough = not exact or bool((totals >= C * (1.0 - share)).all())
        return enough and bool((totals <= C * (1.0 + share)).all())

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Give the arrays of a release that counted no rounding those of today."""
        # It does not say whether cuts were combined: as if all of them had been, a hundred times.
        saved.setdefault("combining", np.asarray(100.0 * (len(saved.get("offsets", ())) + 2)))
        saved.setdefault("unsolved", np.asarray(0))
        # It had no free parameters either.
        saved.setdefault("free", np.empty(0))

    def add(self, *cuts: Cuts) -> None:
        """Add cuts, of each one for each group; the Gram matrix grows by as many rows."""
        new = sum(len(each.offsets) for each in cuts)
        if not new:
            return
        self._make_room(new)
        m, room = self.n_cuts, self._rows()
        np.concatenate([each.planes for each in cuts], out=room[m : m + new])
        self.planes = room[: m + new]
        products = self._penalized(self.planes) @ self._penalized(room[m : m + new]).T
        gram = np.empty((m + new, m + new))
        gram[:m, :m] = self.gram
        gram[:, m:] = products
        gram[m:, :m] = products[:m].T
        self.gram = gram
        self.offsets = np.concatenate([self.offsets, *(each.offsets for each in cuts)])
        self.beta = np.concatenate([self.beta, np.zeros(new)])
        self.group = np.concatenate([self.group, *(np.arange(len(each.offsets)) for each in cuts)])
        self.idle = np.concatenate([self.idle, np.zeros(new, dtype=np.int64)])

    def solve(self, C: float, n_groups: int, tolerance: float, deadline: float | None = None) -> bool:
        """Solve the master problem to a duality gap of ``tolerance``.

        Returns whether it is solved. If not, the deadline has come: the multipliers are as they were, and
        solving again finds what it would have found.
        """
        self.unsolved = 0
        if not np.isfinite(self.gram).all():
            self.beta = np.full(self.n_cuts, math.nan)
            return True
        if self._n_free:
            return self._solve_free(C, n_groups, tolerance, deadline)
        solution = solve_master(
            *(self.gram, self.offsets, self.group, n_groups, C),
            start=self.beta,
            tolerance=tolerance,
            deadline=deadline,
        )
        self.unsolved = int(not solution.in_time)
        if solution.in_time:
            self.beta = solution.beta
            self._limit_totals(C, n_groups)
            self.idle = np.where(self.beta > 0.0, 0, self.idle + 1)
        return solution.in_time

    def go_back(self, start: Float64Array, C: float, n_groups: int, *, whole: bool) -> None:
        """Go back from a solution to the multipliers that there were, or towards them: to the largest D.

        D along the way is that of vectors: products of cuts that are far longer than w are too coarse for it.
        """
        if whole:
            self.beta = start
        else:
            step = self.beta - start
            w, along = self._penalized(start @ self.planes), self._penalized(step @ self.planes)
            slope, bend = float(self.offsets @ step) - inner(w, along), inner(along, along)
            t = min(max(slope / bend, 0.0), 1.0) if bend > 0.0 else 0.0
            self.beta = (1.0 - t) * start + t * self.beta
            self._limit_totals(C, n_groups)
        self.idle[self.beta > 0.0] = 0

    def _limit_totals(self, C: float, n_groups: int) -> None:
        """See to it that multipliers are feasible: rounding may add up in a group's sum."""
        if not self.is_feasible(C, n_groups):
            self.beta *= (C / np.maximum(self._totals(n_groups), C))[self.group]

    def _solve_free(self, C: float, n_groups: int, tolerance: float, deadline: float | None) -> bool:
        """Solve the master problem with free parameters."""
        solution = solve_free_master(
            *(self.gram, self.offsets, self.planes[:, self._n_penalized :].T, self.group, n_groups, C),
            start=self.free,
            tolerance=tolerance,
            active=(self.beta > 0.0) & (self.idle == 0),
            equal=self.equal,
            deadline=deadline,
        )
        self.unsolved = int(not solution.in_time)
        if solution.in_time:
            self.beta, self.free = solution.beta, solution.free
            self.idle = np.where(solution.idle, self.idle + 1, 0)
        return solution.in_time

    @property
    def w(self) -> Float64Array:
        """The point of the multipliers; not finite if products of the cuts overflow."""
        w: Float64Array = self.beta @ self.planes
        w[self._n_penalized :] = self.free
        return w

    def bound(
        self, w: Float64Array, rounding: Rounding, operations: float, box: float = 0.0
    ) -> tuple[float, float]:
        """The dual value of the multipliers, whose point is w, and its rounding.

        ``operations``: that a cut was made in. ``box``: free parameters of an optimum are no larger. So the
        bound holds whatever the sums over their coordinates are, which are 0 but for rounding.
        """
        linear, own = float(self.offsets @ self.beta), self._penalized(w)
        total = float(self._totals(int(self.group.max(initial=0)) + 1).max(initial=0.0))
        error = rounding.dual(linear, total, self.n_cuts, w, operations + self.combining, box)
        if self.equal:
            # Sums are C but for rounding, and no loss is larger than this: what a row has without its score,
            # its score, and each of two free parameters are at most the box.
            error += gamma(self.n_cuts + 2) * total * 4.0 * rounding.constant * (1.0 + box)
        left = np.abs(self.beta @ self.planes[:, self._n_penalized :]).sum()
        return linear - 0.5 * inner(own, own) - box * float(left), error

    @property
    def is_monotone(self) -> bool:
        """Whether the dual value never falls by more than rounding, from one master problem to the next."""
        return not self._n_free

    @property
    def _n_free(self) -> int:
        return len(self.free)

    @property
    def _n_penalized(self) -> int:
        return int(self.planes.shape[1]) - len(self.free)

    def _penalized(self, planes: Float64Array) -> Float64Array:
        """The coordinates that take part in ``|w|^2``."""
        return planes[..., : self._n_penalized]

    def loss_at_least(self, w: Float64Array) -> float:
        """What the cuts say that the loss at w is at least."""
        least = -math.inf if self.equal else 0.0
        heights = np.full(int(self.group.max(initial=0)) + 1, least)
        np.maximum.at(heights, self.group, self.offsets - self.planes @ w)
        return float(heights.sum())

    def _totals(self, n_groups: int) -> Float64Array:
        """The sum of each group's multipliers."""
        return np.bincount(self.group, weights=self.beta, minlength=n_groups).astype(np.float64)

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
        unused = np.flatnonzero(self.idle > 0 if self._n_free else self.beta == 0.0)
        oldest = unused[np.argsort(-self.idle[unused], kind="stable")][:excess]
        self._keep(np.setdiff1d(np.arange(self.n_cuts), oldest))
        if self.n_cuts + new > self.capacity:
            self._combine()

    def _combine(self) -> None:
        """Replace the cuts of each group by their convex combination with the weights beta."""
        self.combining += self.n_cuts + 3
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
