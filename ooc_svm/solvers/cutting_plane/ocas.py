"""Cutting planes with exact line search (Franc and Sonnenburg's OCAS), one read of the data an iteration.

    min_w P(w) = 1/2 |w|^2 + C sum_g R_g(w)          a cut and a slack for each group g of rows

Kept: the best point w_b with its scores. An iteration reads the data once, at the master problem's w: scores
of w, and cuts at points of a ray. Then P is minimised along the ray from w_b through w (score vectors only;
exactly, or as closely as the problem says) and ``w_b <- w_b + t (w - w_b)``.

The cut is wanted a little behind the best point of the ray, ``w_b + 0.1 (w - w_b)`` after the move, which is
known only after the read. A cut is valid wherever it is taken:

* Where the loss is a sum over rows, it is taken on the ray of the same read, whose scores are row-local
  combinations, at a trial place that follows from the t of the last line search: ``t + 0.1 (1 - t)``. Where
  the data is large next to the number of parameters, seven places around t are taken instead, since t jumps
  from one iteration to the next and a read is dear, a cut cheap: that takes half the reads. Thirteen places
  save another tenth to fifth of them, for two to three times the computing.
* Where a row's part in the cut depends on the scores of all rows, an exact cut comes one read late, on the
  ray of the read before, and cuts that are nearly exact in the read itself where that is possible.

The run ends when ``P(w_b) - D <= tol P(w_b)``, D the dual value of the master problem.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Request, Steps
from ooc_svm.solvers.base import KeptScores, Sample
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.bundle import Bundle
from ooc_svm.solvers.cutting_plane.cuts import Cuts
from ooc_svm.solvers.cutting_plane.oracle_solver import CutOracle, OracleSolver
from ooc_svm.solvers.rounding import Rounding
from ooc_svm.solvers.stopping import Stopping

# What the scores in a checkpoint that does not say it can be off by, and are checked against: a share of the
# sizes of their products.
ASSUMED_ERROR = 1e-10


class RayOracle(CutOracle, Protocol):
    """What the solver needs to know of the losses beyond cuts: their sum along a ray."""

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]: ...

    @property
    def forecast_size(self) -> int: ...

    def read(
        self,
        w: Float64Array,
        step: float,
        thetas: Float64Array,
        forecast: Float64Array,
        counted: Any,
        best: Float64Array,
    ) -> Generator[Request, Any, tuple[list[Cuts], Any, Float64Array]]: ...

    def places(self, t: float, points: int) -> Float64Array: ...

    def line_search(
        self, segment: Any, slope: float, curvature: float
    ) -> Generator[Request, Any, tuple[float, float, Any]]: ...

    def start(self) -> tuple[Float64Array, Float64Array, Float64Array] | None: ...

    def constant_cuts(self) -> list[Cuts]: ...

    def settle(
        self, t: float, best: Float64Array, loss: float
    ) -> Generator[Request, Any, tuple[Float64Array, float]]: ...

    def loss_at(self, t: float, w: Float64Array) -> Generator[Request, Any, float]: ...


@dataclass(slots=True)
class OcasState:
    """Everything the solver knows between two reads, apart from the scores in the row vectors."""

    # shape (dimension,): the best point and the master problem's newest one
    best: Float64Array
    w: Float64Array
    bundle: Bundle
    certificate: Certificate
    thetas: Float64Array  # Where the next cuts are taken, from ``best`` (0) towards ``w`` (1)
    # shape (forecast size of the problem,): what the problem keeps of a read for the next one
    forecast: Float64Array
    # How far the scores of the best point still have to move towards those of the last read
    step: float = 0.0
    # What those can be off by then, all together (`ooc_svm.solvers.rounding`)
    score_error: float = 0.0

    @classmethod
    def fresh(cls, oracle: RayOracle, max_cuts: int) -> OcasState:
        """The state before the first read."""
        w, best = np.zeros((2, oracle.space.dimension))
        bundle = Bundle.fresh(max_cuts, len(w), oracle.space.n_free, equal=oracle.equal)
        return cls(best, w, bundle, Certificate(), np.ones(1), np.zeros(oracle.forecast_size))

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Give the arrays of a release that did not count rounding those of today."""
        saved.setdefault("score_error", np.asarray(math.nan))


@dataclass(slots=True)
class Ocas(OracleSolver):
    """The solver: `steps` yields one read of the data an iteration, and passes over row vectors.

    ``points`` cuts are taken at a time, as many as the problem has places for.
    """

    oracle: RayOracle
    stopping: Stopping
    state: OcasState
    points: int = 1
    _rounding: Rounding | None = None
    _origin: str | None = None
    _facts: dict[str, float] = field(default_factory=dict)

    def steps(self) -> Steps:
        oracle, state, certificate = self.oracle, self.state, self.certificate
        yield from oracle.open()
        if self._origin is not None:
            yield from self._go_on(state.step)
        elif not (certificate.passes or state.bundle.n_cuts) and (start := oracle.start()) is not None:
            state.best, state.w, state.thetas = start
            state.bundle.add(*oracle.constant_cuts())
        # What a line search has counted for the next read; it counts again after a restart.
        counted = None
        while certificate.stop_reason is None:
            cuts, segment, state.forecast = yield from self._reading(
                oracle.read(state.w, state.step, state.thetas, state.forecast, counted, state.best)
            )
            direction = state.w - state.best
            own = oracle.space.penalized(direction)
            slope, curvature = float(oracle.space.penalized(state.best) @ own), float(own @ own)
            t, loss, counted = yield from oracle.line_search(segment, slope, curvature)
            if curvature > 0.0:
                state.thetas = oracle.places(t, self.points)
            best, loss = yield from oracle.settle(t, state.best + t * direction, loss)
            if not self._move(t, best, loss, direction):
                state.step, counted = 0.0, None
            state.bundle.drop_idle()
            state.bundle.add(*cuts)
            self._solve_master(self.stopping.deadline)
            certificate.record(self.stopping)
        certificate.n_support, self._facts = yield from oracle.count_support(state.step, state.best)

    def prune(self, features: npt.NDArray[np.bool_]) -> Steps:
        oracle, state = self.oracle, self.state
        state.w = oracle.space.without(state.best, features)
        read = oracle.read(state.w, state.step, state.thetas, state.forecast, None, state.best)
        yield from self._reading(read)
        loss = yield from oracle.loss_at(1.0, state.w)
        best, loss = yield from oracle.settle(1.0, state.w, loss)
        score_error, loss_error = self._errors_at(1.0, best, state.w - state.best)
        self.certificate.prune(*self._value(best, loss, loss_error), self.stopping)
        state.best, state.step, state.score_error = best, 1.0, score_error
        self.certificate.n_support, self._facts = yield from oracle.count_support(1.0, best)

    def _errors_at(self, t: float, best: Float64Array, direction: Float64Array) -> tuple[float, float]:
        """Rounding of the scores and of the loss at t on the ray, where the best point moves to ``best``."""
        state, rounding = self.state, self.rounding
        ahead = abs(t) * rounding.products(direction)
        score_error = rounding.moved_scores(self._score_error(), state.w, best, t, ahead)
        return score_error, self._loss_error(score_error, rounding.products(state.best) + ahead, t)

    def _move(self, t: float, best: Float64Array, loss: float, direction: Float64Array) -> bool:
        """Move the best point along the ray, to ``best``, if P is smaller there; returns whether it is."""
        state = self.state
        score_error, loss_error = self._errors_at(t, best, direction)
        self._check_cuts(best, loss, loss_error)
        if not self.certificate.offer_primal(*self._value(best, loss, loss_error)):
            return False
        state.best, state.step, state.score_error = best, t, score_error
        return True

    def _score_error(self) -> float:
        if math.isnan(self.state.score_error):
            assumed = self.rounding.weight + self.rounding.products(self.state.best)
            self.state.score_error = ASSUMED_ERROR * assumed
        return self.state.score_error

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        return self.oracle.vectors

    def kept_scores(self) -> KeptScores:
        start, end = self.oracle.vectors
        return KeptScores(start, end, self.state.step, self.oracle.score_offset(self.state.best))

    def sample(self) -> Sample:
        thetas = self.oracle.places(0.5, self.points)
        state = self.state
        read = self.oracle.read(state.w, 0.0, thetas, state.forecast, None, state.best)
        return self._sample(read)

    def is_sound(self) -> bool:
        places = len(self.oracle.places(1.0, self.points))
        known = self.state.forecast.shape == (self.oracle.forecast_size,)
        return known and len(self.state.thetas) in {1, 3, places} and OracleSolver.is_sound(self)
