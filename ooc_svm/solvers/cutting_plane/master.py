"""The master problem of the cutting-plane solvers: a small dense quadratic program.

    maximise  offsets.beta - 1/2 beta.G beta   over   beta >= 0,  sum_{k in group g} beta_k <= C  for every g

One group is the dual of Joachims' one-slack problem (2006, OP3 restricted to the working set); several
groups give each group of rows a slack of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.solvers.cutting_plane import master_loops

# Steps between two fresh computations of the gradient, which rounding spoils slowly.
STEPS_PER_REFRESH = 20_000


@dataclass(frozen=True, slots=True)
class MasterSolution:
    """Solution of a master problem: multipliers, duality gap, pairwise steps taken."""

    beta: Float64Array
    gap: float
    steps: int


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
) -> MasterSolution:
    """Solve the master problem from a warm start.

    ``G`` (float64, shape (m, m)): Gram matrix of the cuts.
    ``offsets``: float64, shape (m,).
    ``group`` (int64, shape (m,)): number of each cut's group.
    ``C``: upper bound of each group's sum.
    ``start`` (array_like of float64, shape (m,), optional): feasible multipliers to begin with.
    ``tolerance``: largest duality gap of the answer.
    ``max_steps``: the best multipliers so far are returned after so many pairwise steps.
    """
    beta = np.zeros(len(offsets)) if start is None else np.array(start, dtype=np.float64)
    slack = np.maximum(C - np.bincount(group, weights=beta, minlength=n_groups), 0.0)
    gap, steps = np.inf, 0
    while True:
        gradient = offsets - G @ beta
        gap, taken = master_loops.solve(
            G, offsets, group, C, beta, slack, gradient, tolerance, min(STEPS_PER_REFRESH, max_steps - steps)
        )
        steps += taken
        if gap <= tolerance or taken < STEPS_PER_REFRESH or steps >= max_steps:
            return MasterSolution(beta, float(gap), steps)
