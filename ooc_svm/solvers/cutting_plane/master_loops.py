"""The compiled loop of the master problem: pairwise steps over a product of simplices."""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled


@compiled
def group_gaps(gradient, beta, group, C, best, gaps):  # type: ignore[no-untyped-def]
    """Each group's share of the duality gap, ``C max(0, max_k gradient_k) - sum_k beta_k gradient_k``.

    ``best[g]`` gets the variable of the largest gradient, or -1 for the slack (whose gradient is 0).
    """
    for g in range(len(gaps)):
        gaps[g] = 0.0
        best[g] = -1
    top = np.zeros(len(gaps))
    for k in range(len(beta)):
        g = group[k]
        gaps[g] -= beta[k] * gradient[k]
        if gradient[k] > top[g]:
            top[g] = gradient[k]
            best[g] = k
    total = 0.0
    for g in range(len(gaps)):
        gaps[g] += C * top[g]
        total += gaps[g]
    return total


@compiled
def solve(G, group, C, beta, slack, gradient, tolerance, max_steps):  # type: ignore[no-untyped-def]
    """Maximise ``offsets.beta - beta.G beta / 2`` with ``sum_{k in g} beta_k + slack_g = C`` in each group g.

    In the group of the largest gap the variable of the largest gradient takes from the one that gains most
    (second-order choice), until the duality gap is at most ``tolerance``. ``beta``, ``slack`` and
    ``gradient`` (``offsets - G beta``) are changed in place. Returns the gap and the number of steps.
    """
    m = len(beta)
    n_groups = len(slack)
    best = np.empty(n_groups, dtype=np.int64)
    gaps = np.empty(n_groups)
    gap = group_gaps(gradient, beta, group, C, best, gaps)
    steps = 0
    while gap > tolerance and steps < max_steps:
        g = np.argmax(gaps)
        up = best[g]
        top = gradient[up] if up >= 0 else 0.0
        own = G[up, up] if up >= 0 else 0.0
        down = -2
        gain = 0.0
        if up >= 0 and slack[g] > 0.0:
            down, gain = -1, top * top / max(own, 1e-300)
        for k in range(m):
            if group[k] != g or beta[k] <= 0.0 or k == up:
                continue
            difference = top - gradient[k]
            if difference <= 0.0:
                continue
            curvature = own + G[k, k] - (2.0 * G[up, k] if up >= 0 else 0.0)
            if difference * difference > gain * max(curvature, 1e-300):
                down, gain = k, difference * difference / max(curvature, 1e-300)
        if down == -2:
            break
        room = slack[g] if down == -1 else beta[down]
        difference = top - (0.0 if down == -1 else gradient[down])
        curvature = own
        if down >= 0:
            curvature += G[down, down] - (2.0 * G[up, down] if up >= 0 else 0.0)
        step = room if curvature * room <= difference else difference / curvature
        # G is symmetric: its rows are read, which lie together in memory.
        if up >= 0:
            own_row = G[up]
            for k in range(m):
                gradient[k] -= step * own_row[k]
        if down >= 0:
            other_row = G[down]
            for k in range(m):
                gradient[k] += step * other_row[k]
        if up >= 0:
            beta[up] += step
        else:
            slack[g] += step
        if down >= 0:
            beta[down] = 0.0 if step == room else beta[down] - step
        else:
            slack[g] = 0.0 if step == room else slack[g] - step
        steps += 1
        gap = group_gaps(gradient, beta, group, C, best, gaps)
    return gap, steps
