"""The augmented Lagrangian along a direction, row by row.

With the penalty ``mu_i = ratio c_i`` of a row, the residual r and the multiplier v of the last update, the
row's auxiliary variable e minimises ``l(e) + v (r - e) + mu_i (r - e)^2 / 2``. At that e,

    v' = v + mu_i (r - e) = l'(e)

which is the dual step of curvature ``1 / mu_i``; the minimum is ``l(e) + (v'^2 - v^2) / (2 mu_i)``. (The
paper's lambda is -v, and its equations 11 to 13 give e.)
"""

from __future__ import annotations

from ooc_svm.losses.functions import conjugate, dual_step, magnitude, step_slope, value
from ooc_svm.ops.compiled import compiled

# Sums of a trial: the augmented Lagrangian's part; ``mu_i (r - e)^2``; losses at e; of the multipliers v'
# above and below 0: ``t v' - l*(v')``, and ``|v'|``; the sizes of the terms of the former.
LAGRANGIAN, VIOLATION, LOSS, GAIN, DISTANCE, SIZE = 0, 1, 2, 3, 5, 7
N_SUMS = 8


@compiled
def trials(  # type: ignore[no-untyped-def]
    loss, scores, direction, reference, targets, costs, ratio, thetas, sums, coefficients, first_slopes
):  # fmt: skip
    """The augmented Lagrangian at ``scores + theta direction`` for each theta.

    ``reference`` (float64, shape (rows,)): the multipliers v.
    ``sums``: float64, shape (thetas, N_SUMS).
    ``coefficients`` (float64, shape (2 thetas, rows)): v' where it is above 0, and where it is below (out).
    ``first_slopes`` (float64, shape (rows,)): of v' in the score at the first theta, as a magnitude (out).
    """
    for i in range(len(scores)):
        t, c, v = targets[i], costs[i], reference[i]
        first_slopes[i] = 0.0
        if not c > 0.0:
            continue
        curvature = 1.0 / (ratio * c)
        for k in range(len(thetas)):
            r = t - (scores[i] + thetas[k] * direction[i])
            new = dual_step(loss, v, r, t, c, curvature)
            change = curvature * (new - v)
            own = value(loss, r - change, t, c)
            gain = t * new - conjugate(loss, new, t, c)
            side = 0 if new > 0.0 else 1
            coefficients[2 * k + side, i] = new
            sums[k, LAGRANGIAN] += own + 0.5 * curvature * (new * new - v * v)
            sums[k, VIOLATION] += change * (new - v)
            sums[k, LOSS] += own
            sums[k, GAIN + side] += gain
            sums[k, DISTANCE + side] += abs(new)
            sums[k, SIZE] += abs(t * new) + magnitude(loss, new, t, c)
            if k == 0:
                first_slopes[i] = step_slope(loss, new, t, c, curvature)


@compiled
def slopes(loss, scores, reference, targets, costs, before, ratio, found):  # type: ignore[no-untyped-def]
    """Slopes of v' in the score, as magnitudes.

    ``before``: the penalty with which v' of the scores become the multipliers first; 0: they do not.
    ``found`` (float64, shape (rows,)): out.
    """
    for i in range(len(scores)):
        t, c, v = targets[i], costs[i], reference[i]
        found[i] = 0.0
        if c > 0.0:
            r, curvature = t - scores[i], 1.0 / (ratio * c)
            if before > 0.0:
                v = dual_step(loss, v, r, t, c, 1.0 / (before * c))
            found[i] = step_slope(loss, dual_step(loss, v, r, t, c, curvature), t, c, curvature)


@compiled
def update(loss, scores, targets, costs, ratio, reference):  # type: ignore[no-untyped-def]
    """Let v' of the scores be the multipliers from now on, in place."""
    for i in range(len(scores)):
        t, c = targets[i], costs[i]
        if c > 0.0:
            reference[i] = dual_step(loss, reference[i], t - scores[i], t, c, 1.0 / (ratio * c))
