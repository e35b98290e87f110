"""Sequential minimal optimisation streamed from disk, with a resident working set.

    min_w  P(w, b) = 1/2 |w|^2 + sum_i loss_i(t_i - w.x_i - b)
    max_v  D(v) = sum_i (t_i v_i - eps |v_i| - damping_i v_i^2 / 2) - 1/2 |sum_i v_i x_i|^2,  low_i <= v_i <= high_i

(`ooc_svm.problems.dual` has the losses.) Platt (1998) changes one multiplier at a time where the threshold is
fixed (equation 23), and alternates passes over all rows with passes over the non-bound ones. Here the pass
over all rows is a read of the data and the non-bound rows are held in memory. A read is cut into rounds:

1. Fresh rows: each lane of a round begins with the same w, moves its rows once and returns the change of w;
   the changes are added with the step ``theta`` in [0, 1] that maximises D.
2. The resident set takes the rows best worth keeping, of the fresh ones and its own.
3. It is solved, with shrinking, until its row gaps sum up to a share of those of all other rows.

Step 3 of one round goes on while the rows of the next are read and swept from the w before it.

Certificate: while a read goes on, all rows are scored with the w that it began with. So P is exact there, and
at every point of the segment to the best point before; D belongs to the multipliers of the moment, with w
rebuilt from them. The run ends when ``P - D <= tol P``.

With a free bias, ``sum_i v_i = 0`` is reached by the method of multipliers: b = b_k + rho sum_i v_i. P takes
the b that is best for the scores, and D a feasible point near by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ooc_svm.ops import sweeps
from ooc_svm.passes import Extent, Pass
from ooc_svm.problems.dual import DualProblem, names
from ooc_svm.rows import Float64Array, Int64Array
from ooc_svm.solvers.resident import Residents
from ooc_svm.solvers.state import Certificate
from ooc_svm.stopping import Stopping
from ooc_svm.sweeps import Held, LaneSums, Rows, SweepPass, seed_of

# Rounds of one read, and lanes of one round.
ROUNDS, LANES = 20, 4

# Sum of the resident rows' gaps at which their solving ends, as a share of the sum of all others' gaps.
SHARE = 0.3

# ... but never below this share of the gap that the run is to end with.
FLOOR = 0.1

MODE = "seen"
LASTF = .1
NOLAG = False

# Nonzeros looked at in one solving of the resident set: a second or two.
MOST_ELEMENTS = 400_000_000

# Points of a segment that are looked at together.
GRID = 9


def _no_ids() -> Int64Array:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class SmoState:
    """Everything the solver knows between two reads, beside the row vectors.

    Attributes
    ----------
    w, best : ndarray of float64, shape (n_features,)
        Weights of the multipliers and of the best point, in units of the data.
    b, best_b : float
        Multiplier of the free bias; the bias of the best point.
    total, linear : float
        ``sum_i v_i``, and D without its norm.
    thetas, gaps : ndarray of float64, shape (rounds,)
        The step taken in each round, and the sum of the row gaps seen there before the steps.
    returned : ndarray of int64; multipliers : ndarray of float64
        Rows that have left the resident set and that no round has met since.
    """

    w: Float64Array
    best: Float64Array
    residents: Residents
    thetas: Float64Array
    gaps: Float64Array
    certificate: Certificate
    b: float = 0.0
    best_b: float = 0.0
    total: float = 0.0
    linear: float = 0.0
    rho: float = 0.0
    visited: float = 0.0
    returned: Int64Array = field(default_factory=_no_ids)
    multipliers: Float64Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def fresh(cls, n_features: int, n_rounds: int, residents: Residents) -> SmoState:
        """The state before the first read."""
        return cls(
            np.zeros(n_features), np.zeros(n_features), residents, np.zeros(n_rounds), np.zeros(n_rounds),
            Certificate(),
        )  # fmt: skip


@dataclass(slots=True)
class StreamedSmo:
    """The solver: `steps` yields the rounds of reads, and passes over row vectors.

    Parameters
    ----------
    problem : DualProblem
    stopping : Stopping
    state : SmoState
    rounds : sequence of Extent
        The data, cut by `ooc_svm.sweeps.cut_rounds`.
    seed : int
    share : float
    """

    problem: DualProblem
    stopping: Stopping
    state: SmoState
    rounds: Sequence[Extent]
    seed: int = 0
    share: float = SHARE
    _offered: list[Rows] = field(default_factory=list)
    _theta: float = 0.0
    _solved: tuple[Float64Array, Float64Array, Float64Array] | None = None
    _last: bool = False
    _leaving: tuple[Int64Array, Float64Array] | None = None

    def steps(self) -> Generator[Pass, Any, None]:
        """Yield passes until the gap is certified or a limit is reached."""
        problem, state = self.problem, self.state
        certificate = state.certificate
        while certificate.stop_reason is None:
            reference, reference_b = state.w, self._bias()
            loss = yield from self._read(reference, reference_b)
            yield from self._improve_best(reference, reference_b, loss)
            certificate.record(self._dual(), self.stopping)
        *_, best = names(problem)
        certificate.n_support = int((yield problem.count_losses(best, state.best_b))[0])

    def _bias(self) -> float:
        return self.state.b + self.state.rho * self.state.total

    def _inner(self, u: Float64Array, v: Float64Array) -> float:
        metric = self.problem.metric
        return float(u @ v) if metric is None else float((u / metric) @ v)

    def _dual(self) -> float:
        """D at the multipliers of the moment."""
        state = self.state
        norm = self._inner(state.w, state.w)
        if self.problem.space.penalized_bias:
            norm += state.total**2
        return state.linear - 0.5 * norm

    def _read(self, reference: Float64Array, reference_b: float) -> Generator[Pass, Any, float]:
        """One read of the data; returns the sum of losses at the reference."""
        problem, state = self.problem, self.state
        number = state.certificate.passes
        if number == 0 and problem.space.penalized_bias:
            state.rho = 1.0
        at_start = np.sort(state.residents.ids)
        loss = 0.0
        self._offered, self._solved = [], None
        first = number == 0
        for r, extent in enumerate(self.rounds):
            if NOLAG:
                self._solve_residents(); self._adopt()
            held = self._held(extent, at_start)
            bias = np.array([self._bias(), state.rho, reference_b])
            request = SweepPass(
                problem,
                state.w,
                np.empty(0) if first else reference,
                False,
                bias,
                float(state.thetas[r]),
                held,
                seed_of(self.seed, number),
                state.residents.capacity // LANES,
                0.0,
                extent,
                self._solve_residents,
            )
            if NOLAG:
                import dataclasses
                request = dataclasses.replace(request, meanwhile=None)
            answer: LaneSums = yield request
            loss += answer.sums[sweeps.REFERENCE_LOSS]
            self._join(r, answer)
        self._last = True
        self._solve_residents()
        self._last = False
        self._adopt()
        return loss

    def _held(self, extent: Extent, at_start: Int64Array) -> Held:
        """What concerns the rows of a round; those given back are handed over."""
        state = self.state
        pieces = [piece for segment in extent.segments for piece in segment]

        def inside(ids: Int64Array) -> Any:
            found = np.zeros(len(ids), dtype=np.bool_)
            for piece in pieces:
                found |= (ids >= piece.start) & (ids < piece.stop) & ((ids - piece.start) % piece.step == 0)
            return found

        back = inside(state.returned)
        held = Held(
            state.residents.ids[inside(state.residents.ids)],
            at_start[inside(at_start)],
            state.returned[back],
            state.multipliers[back],
        )
        state.returned, state.multipliers = state.returned[~back], state.multipliers[~back]
        return held

    def _solve_residents(self) -> None:
        """Take in what the last round offered, and improve the resident rows."""
        state, problem = self.state, self.problem
        ids, multipliers = state.residents.take(self._offered, self._theta, problem.epsilon)
        self._offered = []
        self._leaving = (ids, multipliers)
        w, bias = state.w.copy(), np.array([self._bias(), state.rho])
        floor = FLOOR * self.stopping.tol * max(self._dual(), 0.0)
        share = self.share if not self._last else self.share*LASTF
        wanted = max(share * self._other_gaps(), floor)
        seed = seed_of(self.seed, state.certificate.passes, int(state.visited))
        sums = state.residents.solve(problem, w, bias, seed, wanted, MOST_ELEMENTS)
        self._solved = (w, bias, sums)

    def _other_gaps(self) -> float:
        """Sum of the row gaps of the rows that are not held, as last seen."""
        if MODE == "seen":
            return float(self.state.gaps.sum())
        seen = np.flatnonzero(self.state.thetas > 0.0)
        return float(self.state.gaps.sum()) * len(self.rounds) / max(len(seen), 1)

    def _adopt(self) -> None:
        """What the solving of the resident set has changed."""
        state = self.state
        w, _, sums = self._solved
        state.w = w
        state.linear += sums[sweeps.LINEAR]
        state.total += sums[sweeps.MOVED]
        state.visited += sums[sweeps.ROWS]
        ids, multipliers = self._leaving
        state.returned = np.concatenate([state.returned, ids])
        state.multipliers = np.concatenate([state.multipliers, multipliers])
        self._solved = None

    def _join(self, r: int, answer: LaneSums) -> None:
        """Add the lanes' changes with the step that maximises D."""
        state = self.state
        change = answer.w - state.w
        if not NOLAG: self._adopt()
        s = answer.sums
        moved = s[sweeps.MOVED]
        slope = s[sweeps.LINEAR] - self._inner(state.w, change) - self._bias() * moved
        curvature = self._inner(change, change) + state.rho * moved**2 + s[sweeps.QUADRATIC]
        theta = min(max(slope / curvature, 0.0), 1.0) if curvature > 0.0 else float(s[sweeps.LINEAR] > 0)
        state.w += theta * change
        state.linear += theta * s[sweeps.LINEAR] - 0.5 * theta**2 * s[sweeps.QUADRATIC]
        state.total += theta * moved
        state.thetas[r], state.gaps[r] = theta, s[sweeps.GAP]
        state.visited += s[sweeps.ROWS]
        self._offered, self._theta = answer.best, theta

    def _improve_best(
        self, reference: Float64Array, reference_b: float, loss: float
    ) -> Generator[Pass, Any, None]:
        """Move the best point to the best one of the segment to the reference, by exact values of P."""
        problem, state, certificate = self.problem, self.state, self.state.certificate
        _, _, newest, best = names(problem)
        change = reference - state.best
        change_b = reference_b - state.best_b
        penalized = float(problem.space.penalized_bias)
        n0 = self._inner(state.best, state.best) + penalized * state.best_b**2
        n1 = 2 * (self._inner(state.best, change) + penalized * state.best_b * change_b)
        n2 = self._inner(change, change) + penalized * change_b**2

        def values(points: Float64Array) -> Generator[Pass, Any, Float64Array]:
            at = np.column_stack([points, state.best_b + points * change_b])
            losses = yield problem.values_along(best, newest, at)
            return 0.5 * (n0 + points * n1 + points**2 * n2) + losses

        if certificate.passes == 0:
            certificate.primal = 0.5 * n0 + loss
            certificate.primal = float((yield from values(np.zeros(1)))[0])
            return
        t, primal = yield from lowest(values, 0.0, 2.0, self.stopping.tol)
        if primal < certificate.primal:
            yield problem.move(best, newest, t)
            state.best = state.best + t * change
            state.best_b += t * change_b
            certificate.primal = primal


def lowest(
    values: Callable[[Float64Array], Generator[Pass, Any, Float64Array]], low: float, high: float, tol: float
) -> Generator[Pass, Any, tuple[float, float]]:
    """The smallest value found on grids that close in on the minimum of a convex function."""
    best_t, best_value = 0.0, math.inf
    for _ in range(8):
        points = np.linspace(low, high, GRID)
        found = yield from values(points)
        k = int(np.argmin(found))
        if found[k] < best_value:
            best_t, best_value = float(points[k]), float(found[k])
        around = found[max(k - 1, 0) : k + 2]
        if around.max() - best_value <= 0.01 * tol * abs(best_value):
            break
        low, high = float(points[max(k - 1, 0)]), float(points[min(k + 1, GRID - 1)])
    return best_t, best_value
