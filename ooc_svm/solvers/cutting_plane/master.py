"""The master problem of the cutting-plane solvers: a small dense quadratic program.

    maximise  offsets.beta - 1/2 beta.G beta   over   beta >= 0,  sum_{k in group g} beta_k <= C  for every g

One group is the dual of Joachims' one-slack problem (2006, OP3 restricted to the working set); several
groups give each group of rows a slack of its own.

Pairwise steps find the multipliers that are not 0, and on easy problems that is all. Where C is large, cuts
are nearly alike and each step moves little: then the maximum over the face of these multipliers is found by
linear systems, and pairwise steps go on from there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.solvers.cutting_plane import master_loops

# Pairwise steps before the first search of a face, which easy problems need none of, and between two of them.
# The gradient is computed again then, which rounding spoils.
FIRST_STEPS, MORE_STEPS = 20_000, 2000
# Added to the diagonal of a face, as a share of its mean: cuts may be sums of others.
RIDGE = 1e-13
# Rounds in which the gap does not fall by a tenth, after which double precision allows no better.
IDLE_ROUNDS = 5
MOST_EDGES = 20  # Edges that a way over faces may lead over before pairwise steps go on


@dataclass(frozen=True, slots=True)
class MasterSolution:
    """Solution of a master problem: multipliers, duality gap, pairwise steps taken."""

    beta: Float64Array
    gap: float
    steps: int
    in_time: bool = True  # Whether it was not the deadline that ended it


def solve_master(
    G: Float64Array,
    offsets: Float64Array,
    group: Int64Array,
    n_groups: int,
    C: float,
    *,
    start: npt.ArrayLike | None = None,
    tolerance: float = 1e-10,
    max_steps: int = 1_000_000,
    deadline: float | None = None,
) -> MasterSolution:
    """Solve the master problem from a warm start.

    ``G`` (float64, shape (m, m)): Gram matrix of the cuts.
    ``offsets``: float64, shape (m,).
    ``group`` (int64, shape (m,)): number of each cut's group.
    ``C``: upper bound of each group's sum.
    ``start`` (array_like of float64, shape (m,), optional): feasible multipliers to begin with.
    ``tolerance``: largest duality gap of the answer.
    ``max_steps``: the best multipliers so far are returned after so many pairwise steps.
    ``deadline``: and at this time on the monotonic clock.
    """
    beta = np.zeros(len(offsets)) if start is None else np.array(start, dtype=np.float64)
    best, least, steps, idle = beta, np.inf, 0, 0
    while True:
        slack = np.maximum(C - np.bincount(group, weights=beta, minlength=n_groups), 0.0)
        gap, taken = master_loops.solve(
            G, group, C, beta, slack, offsets - G @ beta, tolerance,
            min(FIRST_STEPS if steps == 0 else MORE_STEPS, max_steps - steps),
        )  # fmt: skip
        steps += taken
        idle = 0 if gap < 0.9 * least else idle + 1
        if gap < least:
            best, least = beta.copy(), float(gap)
        in_time = deadline is None or time.monotonic() < deadline
        if gap <= tolerance or steps >= max_steps or idle >= IDLE_ROUNDS or not in_time:
            return MasterSolution(best, least, steps, in_time or gap <= tolerance)
        climb_face(G, offsets, group, beta, slack, deadline)


def climb_face(
    G: Float64Array,
    offsets: Float64Array,
    group: Int64Array,
    beta: Float64Array,
    slack: Float64Array,
    deadline: float | None = None,
) -> None:
    """Move ``beta`` and ``slack`` to the maximum over the face of those that are not 0.

    Where the way leads over an edge of the face, what is 0 there stays so and the way goes on from the edge.
    """
    for _ in range(MOST_EDGES):
        free = np.flatnonzero(beta > 0.0)
        if not len(free) or (deadline is not None and time.monotonic() >= deadline):
            return
        own, full = group[free], np.flatnonzero(slack <= 0.0)
        gradient = (offsets - G @ beta)[free]
        face = G[np.ix_(free, free)]
        direction = _newton_direction(face, gradient, (own == full[:, None]).astype(np.float64))
        rise, bend = float(gradient @ direction), float(direction @ face @ direction)
        if not (rise > 0.0 and np.isfinite(direction).all()):
            return
        # Of each multiplier and of each slack, how far it is to 0.
        taken = np.bincount(own, weights=direction, minlength=len(slack))
        taken[full] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            to_edge = np.where(direction < 0.0, beta[free] / -direction, np.inf)
            to_full = np.where(taken > 0.0, slack / taken, np.inf)
        edge = min(to_edge.min(), to_full.min())
        step = min(rise / bend if bend > 0.0 else np.inf, edge)
        if not np.isfinite(step):
            return
        beta[free] = np.where(to_edge <= step, 0.0, beta[free] + step * direction)
        slack[:] = np.where(to_full <= step, 0.0, slack - step * taken)
        if step < edge:
            return


def _newton_direction(face: Float64Array, gradient: Float64Array, sums: Float64Array) -> Float64Array:
    """The step to the maximum of a quadratic function, along which some sums stay."""
    m, size = len(face), len(face) + len(sums)
    diagonal = float(np.trace(face)) / m
    # Of one size with the rest, which elimination chooses its pivots by.
    weight = np.sqrt(diagonal)
    system = np.zeros((size, size))
    system[:m, :m] = face
    system[range(m), range(m)] += RIDGE * diagonal
    system[:m, m:], system[m:, :m] = weight * sums.T, weight * sums
    try:
        direction: Float64Array = np.linalg.solve(system, np.concatenate([gradient, np.zeros(len(sums))]))[:m]
    except np.linalg.LinAlgError:
        return np.zeros(m)
    # Rounding has left something of the sums.
    direction -= sums.T @ ((sums @ direction) / np.maximum(sums.sum(axis=1), 1.0))
    return direction
