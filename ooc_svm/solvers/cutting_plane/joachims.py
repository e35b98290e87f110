"""Algorithm 1 of Joachims, Training Linear SVMs in Linear Time (2006).

    min_w P(w) = 1/2 |w|^2 + C R(w)          R: a convex loss, here a sum over rows (or over groups of rows)

Repeat: solve the master problem over the working set of cuts (OP2 restricted); at its w take the loss and the
most violated constraint, ``R(v) >= delta - a.v`` (lines 5 to 7), in one read of the data. (Where a cut needs
all scores first, as in Algorithm 2, the read brings that of the point before.)

The paper stops when the new constraint is violated by at most n epsilon, ``R(w) - r <= n epsilon``. Here the
run ends when ``P - D <= tol P``, P the smallest primal value met and D the dual value of the master problem.
At an exact master problem, ``P(w) - D = C (R(w) - r)``: the paper's epsilon is ``tol P / (C n)``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Overlap, Request, Steps
from ooc_svm.passes.rowwise import CopyScores, RowPass
from ooc_svm.solvers.base import KeptScores, Sample
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.bundle import Bundle
from ooc_svm.solvers.cutting_plane.cuts import Cuts
from ooc_svm.solvers.cutting_plane.oracle_solver import CutOracle, OracleSolver
from ooc_svm.solvers.rounding import Rounding
from ooc_svm.solvers.stopping import Stopping


@dataclass(slots=True)
class CuttingPlaneState:
    """Everything the solver knows between two reads."""

    w: Float64Array  # shape (dimension,): where the next cut is taken
    best: Float64Array  # shape (dimension,): the point of the smallest primal value
    bundle: Bundle
    certificate: Certificate

    @classmethod
    def fresh(
        cls, dimension: int, max_cuts: int, n_free: int = 0, *, equal: bool = False
    ) -> CuttingPlaneState:
        """The state before the first read; see `Bundle.fresh`."""
        bundle = Bundle.fresh(max_cuts, dimension, n_free, equal=equal)
        return cls(np.zeros(dimension), np.zeros(dimension), bundle, Certificate())


@dataclass(slots=True)
class CuttingPlane(OracleSolver):
    """The solver: `steps` yields one pass an iteration."""

    oracle: CutOracle
    stopping: Stopping
    state: CuttingPlaneState
    kept: str | None = None  # Row vector for the scores at the best point, if they are wanted
    _rounding: Rounding | None = None
    _origin: str | None = None
    _scores: str | None = None  # Row vector of the scores of the best point, if they are kept
    _facts: dict[str, float] = field(default_factory=dict)
    _counted: Any = None  # What the last read has counted for the next one; not of the state

    def steps(self) -> Steps:
        oracle, state, certificate = self.oracle, self.state, self.certificate
        yield from oracle.open()
        if self._origin is not None:
            yield from self._go_on(None)
            self._scores = next(iter(oracle.cut_vectors), None)
        while certificate.stop_reason is None:
            loss, n_support, cuts, point = yield from self._read(state.w)
            loss_error = self._error_at(point)
            if certificate.offer_primal(*self._value(point, loss, loss_error)):
                yield from self._keep(point, n_support)
            elif self._scores == self._last:
                self._scores = None
            self._check_cuts(point, loss, loss_error)
            state.bundle.drop_idle()
            state.bundle.add(*cuts)
            self._solve_master(self.stopping.deadline)
            certificate.record(self.stopping)
        yield from self._find_facts()

    def prune(self, features: npt.NDArray[np.bool_]) -> Steps:
        w = self.oracle.space.without(self.state.best, features)
        loss, n_support, _, point = yield from self._read(w)
        self.certificate.prune(*self._value(point, loss, self._error_at(point)), self.stopping)
        yield from self._keep(point, n_support)
        yield from self._find_facts()

    @property
    def _last(self) -> str | None:
        """Row vector of the scores of the last read, if they are kept."""
        *_, last = None, *self.oracle.cut_vectors
        return last

    def _read(
        self, w: Float64Array
    ) -> Generator[Request | Overlap, Any, tuple[float, int, list[Cuts], Float64Array]]:
        """One read of the data: the loss at w, rows with a loss, cuts, and the point that the loss is of."""
        cut = self.oracle.cut(w, self._counted)
        loss, n_support, cuts, point, self._counted = yield from self._reading(cut)
        return loss, n_support, cuts, point

    def _error_at(self, point: Float64Array) -> float:
        """Rounding of the loss at a point whose scores come from a read."""
        return self._loss_error(self.rounding.scores(point), self.rounding.products(point))

    def _keep(self, point: Float64Array, n_support: int) -> Steps:
        """Take the point of the last read for the best one."""
        self.state.best, self.certificate.n_support = point, n_support
        self._scores = self._last
        if self.kept is not None:
            yield RowPass(CopyScores(self.oracle.previous, self.kept))

    def _find_facts(self) -> Steps:
        if self.oracle.space.n_free:
            _, self._facts = yield from self.oracle.count_support(0.0, self.state.best)

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        kept: dict[str, npt.DTypeLike] = {} if self.kept is None else {self.kept: np.float64}
        return {**self.oracle.cut_vectors, **kept}

    def kept_scores(self) -> KeptScores | None:
        name = self._scores if self.kept is None else self.kept
        return (
            None if name is None else KeptScores(name, name, 0.0, self.oracle.score_offset(self.state.best))
        )

    def sample(self) -> Sample:
        return self._sample(self.oracle.cut(self.state.w, None))
