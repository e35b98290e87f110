"""When the multipliers are updated, and how mu grows."""

from __future__ import annotations

from ooc_svm.errors import parameter
from ooc_svm.solvers.alm.state import Penalty

# Of the gradient's norm to ``sqrt(mu) |r - e|``: below the first mu grows fast, below the second slowly; and
# the two rates. (Measured on four data sets, for p of 1, 1.5 and 2: of Newton's method and of the other one.)
EXACT, INEXACT = (0.3, 3.0, 4.0, 2.0), (1.0, 10.0, 2.0, 1.4)
MOST = 1e5  # Upper limit of mu, the paper's
FIRST = 0.3  # The first mu, as a multiple of C: at a score of 0 no multiplier is at a bound


def first_ratio(C: float) -> float:
    """The first penalty as a multiple of C."""
    return min(FIRST, MOST / C)


def obstacles(now: Penalty, C: float) -> dict[str, str]:
    """What to do where mu can grow no further, see `ooc_svm.solvers.base.Solver`."""
    if now.ratio < MOST / C:
        return {}
    smaller, columns = parameter("C"), parameter("scale", "maxabs")
    return {
        "penalty-limit": f"the penalty mu of the augmented Lagrangian is at its upper limit of {MOST:g}, "
        f"and the gap is not certified: take a smaller {smaller}, columns of one size ({columns}) or "
        f"{parameter('solver', 'streamed-smo')}"
    }


def next_penalty(
    now: Penalty, C: float, *, residual: float, violation: float, value: float, inexact: bool
) -> Penalty | None:
    """The penalty after an update of the multipliers; None: it is too early for one.

    ``residual``: squared norm of the gradient. ``violation``: ``mu |r - e|^2``.
    ``value``: ``|w|^2 / 2`` and the losses at e.

    Equation 29: ``mu |r - e|^2 / 2`` with the new mu may be as large as it was before with the old one, and
    by as much larger as the value has fallen.
    """
    near, far, fast, slow = INEXACT if inexact else EXACT
    if residual >= far * far * violation:
        return None
    wanted = now.ratio * (fast if residual < near * near * violation else slow)
    limit = wanted
    if violation > 0.0 and now.violation > 0.0:
        limit = now.ratio * (0.5 * now.violation + now.value - value) / (0.5 * violation)
    return Penalty(max(min(wanted, limit, MOST / C), now.ratio), violation, value)
