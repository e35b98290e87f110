"""The master problem where some parameters have no penalty: a primal-dual interior point method.

    max  offsets.beta - 1/2 beta.G beta   over   beta >= 0,  sum_{k in g} beta_k <= C,  sum_k beta_k E_jk = 0

E_jk is the coordinate of cut k for the free parameter j. That parameter takes no part in ``|w|^2``, so the
master problem is at its optimum in it where the cuts' coordinates, weighted with the multipliers, add up to
0; its value is the multiplier of that equality. Where losses have no lower bound of 0, the sums of the groups
are C and not less.

Mehrotra's predictor and corrector (Nocedal and Wright, *Numerical Optimization*, chapter 14 and 16.6), in
units in which C is 1 and the largest of the offsets and of the diagonal of C G is 1. The system is small and
dense; a proximal term keeps the free parameters where they are as long as the cuts do not bound them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array

MOST_STEPS = 100
# Mean complementarity and infeasibility at which the problem is solved, in the units above, and the share of
# the tolerance that they may be
SMALLEST, FEASIBLE, TOLERANCE_SHARE = 1e-10, 1e-12, 0.01
PROXIMAL = 1e-10  # Of the free parameters, in those units
# Cuts that are solved for at once, and the share of the tolerance that those left out may be above
FEW_CUTS, PART_SHARE = 160, 0.3
STEP_SHARE = 0.995  # Of the way to the nearest bound


@dataclass(frozen=True, slots=True)
class FreeSolution:
    """Multipliers, the values of the free parameters, and which cuts the solution does not rest on."""

    beta: Float64Array
    free: Float64Array
    idle: BoolArray
    in_time: bool = True


def solve_free_master(
    G: Float64Array,
    offsets: Float64Array,
    E: Float64Array,
    group: Int64Array,
    n_groups: int,
    C: float,
    start: Float64Array,
    tolerance: float,
    *,
    active: BoolArray | None = None,
    equal: bool = False,
    deadline: float | None = None,
) -> FreeSolution:
    """Solve the master problem with free parameters, over a part of the cuts where there are many.

    The part begins with the ``active`` cuts, which a solution is known to rest on. As long as others are
    above it, the highest one of each group joins it.

    Parameters are those of `solve_all`.
    """
    m = len(offsets)
    if m <= FEW_CUTS or active is None or not active.any():
        return solve_all(G, offsets, E, group, n_groups, C, start, tolerance, equal=equal, deadline=deadline)
    # Rounding may have left a group none, and its sum is C all the same.
    part = np.flatnonzero(active | ~np.isin(group, group[active]) if equal else active)
    while True:
        own = (G[np.ix_(part, part)], offsets[part], E[:, part], group[part])
        found = solve_all(*own, n_groups, C, start, tolerance, equal=equal, deadline=deadline)
        start = found.free
        heights = offsets - G[:, part] @ found.beta - start @ E
        reached = np.full(n_groups, -np.inf if equal else 0.0)
        np.maximum.at(reached, own[3], heights[part])
        above = heights - reached[group]
        above[part] = 0.0
        highest = np.full(n_groups, 0.0)
        np.maximum.at(highest, group, above)
        if not found.in_time or not C * highest.sum() > PART_SHARE * tolerance:
            break
        joining = np.flatnonzero((above > 0.0) & (above >= highest[group]))
        part = np.union1d(part, joining)
    beta, idle = np.zeros(m), np.ones(m, np.bool_)
    beta[part], idle[part] = found.beta, found.idle
    return FreeSolution(beta, start, idle, found.in_time)


def solve_all(
    G: Float64Array,
    offsets: Float64Array,
    E: Float64Array,
    group: Int64Array,
    n_groups: int,
    C: float,
    start: Float64Array,
    tolerance: float,
    *,
    equal: bool = False,
    deadline: float | None = None,
) -> FreeSolution:
    """Solve the master problem with free parameters.

    ``G`` (float64, shape (m, m)): Gram matrix of the cuts without the coordinates of free parameters.
    ``offsets``: float64, shape (m,). ``E``: those coordinates, shape (free parameters, m).
    ``group`` (int64, shape (m,)): number of each cut's group.
    ``C``: upper bound of each group's sum; with ``equal`` the sum itself.
    ``start``: values of the free parameters to begin with.
    ``tolerance``: largest duality gap of the answer.
    """
    m, n_free = len(offsets), len(E)
    unit = max(float(np.abs(offsets).max()), C * float(np.abs(np.diagonal(G)).max()), 1e-300)
    n_slack = 0 if equal else n_groups
    size = m + n_slack
    H = np.zeros((size, size))
    H[:m, :m] = G * (C / unit)
    linear = np.concatenate([offsets / -unit, np.zeros(n_slack)])
    largest = np.maximum(np.abs(E).max(axis=1, initial=0.0), 1e-300)
    A = np.zeros((n_groups + n_free, size))
    A[group, range(m)] = 1.0
    A[range(n_slack), range(m, size)] = 1.0
    A[n_groups:, :m] = E / largest[:, None]
    target = np.concatenate([np.ones(n_groups), np.zeros(n_free)])
    members = np.bincount(group, minlength=n_groups) + (not equal)
    x = 1.0 / members[np.concatenate([group, np.arange(n_slack)])]
    s, y = np.ones(size), np.concatenate([np.zeros(n_groups), start * largest / -unit])
    enough = min(SMALLEST, TOLERANCE_SHARE * tolerance / (C * unit * size))
    in_time = True
    for _ in range(MOST_STEPS):
        dual, primal = H @ x + linear - y @ A - s, A @ x - target
        complementarity = float(x @ s) / size
        feasible = max(np.abs(dual).max(), np.abs(primal).max()) <= FEASIBLE
        if feasible and complementarity <= enough:
            break
        if deadline is not None and time.monotonic() >= deadline:
            in_time = False
            break
        system = np.zeros((size + len(A),) * 2)
        system[:size, :size], system[:size, size:], system[size:, :size] = H, -A.T, A
        diagonal = np.arange(len(system))
        system[diagonal[:size], diagonal[:size]] += s / x
        system[diagonal[size:], diagonal[size:]] = PROXIMAL
        move = _Newton(system, x, s, dual, primal)
        try:
            dx, _, ds = move.direction(x * s)
            ahead = float((x + _room(x, dx) * dx) @ (s + _room(s, ds) * ds)) / size
            centering = (ahead / complementarity) ** 3 * complementarity
            dx, dy, ds = move.direction(x * s + dx * ds - centering)
        except np.linalg.LinAlgError:
            break
        step = min(1.0, STEP_SHARE * min(_room(x, dx), _room(s, ds)))
        if not (step > 1e-12 and np.isfinite(dx).all() and np.isfinite(ds).all()):
            break
        x, y, s = x + step * dx, y + step * dy, s + step * ds
    beta = C * x[:m]
    sums = np.bincount(group, weights=beta, minlength=n_groups)
    beta *= (C / (sums if equal else np.maximum(sums, C)))[group]
    return FreeSolution(beta, y[n_groups:] * -unit / largest, x[:m] < s[:m], in_time)


@dataclass(frozen=True, slots=True)
class _Newton:
    """The linear system at one point."""

    system: Float64Array
    x: Float64Array
    s: Float64Array
    dual: Float64Array
    primal: Float64Array

    def direction(self, complementarity: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Changes of x, y and s that make the residuals and the products ``x s`` 0, to first order."""
        size = len(self.x)
        found = np.linalg.solve(
            self.system, np.concatenate([-self.dual - complementarity / self.x, -self.primal])
        )
        dx = found[:size]
        return dx, found[size:], -(complementarity + self.s * dx) / self.x


def _room(values: Float64Array, change: Float64Array) -> float:
    """The largest step up to 1 along which values stay above 0."""
    falling = change < 0.0
    return min(1.0, float((values[falling] / -change[falling]).min(initial=1.0)))
