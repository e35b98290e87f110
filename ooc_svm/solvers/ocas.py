"""Cutting planes with exact line search (Franc and Sonnenburg's OCAS), one read of the data an iteration.

    min_w P(w) = 1/2 |w|^2 + C sum_g R_g(w)          a cut and a slack for each group g of rows

Kept: the best point w_b with its scores. An iteration reads the data once, at the master problem's w: scores
of w, and cuts at points ``w_b + theta (w - w_b)``, whose scores are row-local combinations. Then P is
minimised exactly along the ray from w_b through w (score vectors only) and ``w_b <- w_b + t (w - w_b)``.

The cut is wanted a little behind the best point of the ray, which is known only after the read. A cut is
valid wherever it is taken, so the place is guessed from the t of the last line search: ``t + 0.1 (1 - t)``.
Where the data is large beside the number of parameters, five places around t are taken instead, since t
jumps from one iteration to the next and a read is dear, a cut cheap: that takes half the reads. Thirteen
places save another tenth to fifth of them, for two to three times the computing.

The run ends when ``P(w_b) - D <= tol P(w_b)``, D the dual value of the master problem.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ooc_svm.passes import LinearPass, Pass
from ooc_svm.problems.hinge import Cuts
from ooc_svm.problems.segment import SegmentLoss
from ooc_svm.rows import Float64Array
from ooc_svm.solvers.bundle import Bundle
from ooc_svm.solvers.cutting_plane import CutProblem, master_tolerance
from ooc_svm.solvers.state import Certificate
from ooc_svm.stopping import Stopping

# Where cuts are taken, as (slope, offset) of theta over the t of the last line search; best of those tried.
GUESSES = {
    1: ((0.9, 0.1),),
    5: ((0.3, 0.02), (0.5, 0.0), (0.5, 0.05), (1.0, 0.4), (2.0, 0.0)),
    13: (
        *((0.0, 0.0), (0.25, 0.0), (0.3, 0.02), (0.5, 0.0), (0.5, 0.05), (0.75, 0.01), (1.0, 0.0)),
        *((1.0, 0.02), (1.5, 0.1), (1.0, 0.4), (2.0, 0.0), (3.0, 0.1), (0.0, 1.0)),
    ),
}


def guessed_points(t: float, points: int) -> Float64Array:
    """Where the next cuts are taken on the ray, 0 the best point and 1 the master problem's."""
    return np.array([min(slope * t + offset, max(t, 1.0)) for slope, offset in GUESSES[points]])


class SegmentProblem(CutProblem, Protocol):
    """What the solver needs to know of a problem beyond cuts: the loss along a ray."""

    def guess_pass(self, w: Float64Array, step: float, thetas: Float64Array) -> LinearPass: ...

    def read_guess(self, request: LinearPass, result: Any) -> tuple[list[Cuts], SegmentLoss]: ...

    def line_search(
        self, loss: SegmentLoss, slope: float, curvature: float
    ) -> Generator[Pass, Any, tuple[float, float]]: ...

    def count_pass(self, step: float) -> Pass: ...


@dataclass(slots=True)
class OcasState:
    """Everything the solver knows between two reads, beside the scores in the row vectors.

    Attributes
    ----------
    best, w : ndarray of float64, shape (dimension,)
        The best point and the master problem's newest one.
    step : float
        How far the scores of the best point still have to move towards those of the last read.
    thetas : ndarray of float64
        Where the next cuts are taken, from ``best`` (0) towards ``w`` (1).
    """

    best: Float64Array
    w: Float64Array
    bundle: Bundle
    certificate: Certificate
    thetas: Float64Array
    step: float = 0.0

    @classmethod
    def fresh(cls, dimension: int, max_cuts: int) -> OcasState:
        """The state before the first read."""
        bundle = Bundle(max_cuts, np.empty((0, dimension)))
        return cls(np.zeros(dimension), np.zeros(dimension), bundle, Certificate(), np.ones(1))

    def is_sound(self, problem: CutProblem) -> bool:
        """Whether the parts fit the problem; a saved state may come from anywhere."""
        dimension = problem.space.dimension
        points = self.w.shape == self.best.shape == (dimension,) and len(self.thetas) in {1, *GUESSES}
        return points and self.certificate.is_sound() and self.bundle.is_sound(dimension, problem.groups)


@dataclass(slots=True)
class Ocas:
    """The solver: `steps` yields one read of the data an iteration, and passes over row vectors.

    ``points`` (1, 5 or 13) cuts are taken at a time.
    """

    problem: SegmentProblem
    stopping: Stopping
    state: OcasState
    points: int = 1

    def steps(self) -> Generator[Pass, Any, None]:
        """Yield passes until the gap is certified or a limit is reached."""
        problem, state = self.problem, self.state
        certificate, bundle = state.certificate, state.bundle
        while certificate.stop_reason is None:
            request = problem.guess_pass(state.w, state.step, state.thetas)
            cuts, segment = problem.read_guess(request, (yield request))
            direction = state.w - state.best
            slope, curvature = float(state.best @ direction), float(direction @ direction)
            t, loss = yield from problem.line_search(segment, slope, curvature)
            state.best = state.best + t * direction
            state.step = t
            if curvature > 0.0:
                state.thetas = guessed_points(t, self.points)
            certificate.primal = 0.5 * float(state.best @ state.best) + problem.C * loss
            bundle.drop_idle()
            for cut in cuts:
                bundle.add(cut)
            state.w, dual = bundle.solve(
                problem.C, problem.groups, master_tolerance(certificate, self.stopping)
            )
            certificate.record(dual, self.stopping)
        certificate.n_support = int((yield problem.count_pass(state.step))[0])

    def solution(self) -> tuple[Float64Array, float]:
        """Weights in units of the data, and bias, of the best point."""
        return self.problem.space.to_data(self.state.best)

    def is_sound(self) -> bool:
        """Whether the state fits the problem; a saved one may come from anywhere."""
        return self.state.is_sound(self.problem)
