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
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Request, VectorRequest
from ooc_svm.solvers.base import Sample, Solver
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.bundle import Bundle
from ooc_svm.solvers.cutting_plane.cuts import Cuts
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping

# The master problem is solved to these shares of the gap that is wanted and of the gap there is: the second
# costs no reads (measured) and saves most of the pairwise steps.
WANTED_SHARE, PRESENT_SHARE = 0.1, 0.05


def master_tolerance(certificate: Certificate, stopping: Stopping) -> float:
    """Duality gap at which the master problem may stop."""
    present = min(certificate.primal, certificate.gap)
    return max(WANTED_SHARE * stopping.tol * certificate.primal, PRESENT_SHARE * present)


class CutOracle(Protocol):
    """What the solver needs to know of the losses."""

    @property
    def C(self) -> float: ...  # noqa: N802

    @property
    def space(self) -> LinearSpace: ...

    @property
    def groups(self) -> int: ...

    @property
    def cut_vectors(self) -> Mapping[str, npt.DTypeLike]: ...

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]: ...

    @property
    def n_counts(self) -> int: ...

    @property
    def no_count(self) -> Any: ...

    def cut(self, w: Float64Array) -> Generator[Request, Any, tuple[float, int, Cuts]]: ...


@dataclass(slots=True)
class CuttingPlaneState:
    """Everything the solver knows between two reads."""

    w: Float64Array  # shape (dimension,): where the next cut is taken
    best: Float64Array  # shape (dimension,): the point of the smallest primal value
    bundle: Bundle
    certificate: Certificate

    @classmethod
    def fresh(cls, dimension: int, max_cuts: int) -> CuttingPlaneState:
        """The state before the first read."""
        bundle = Bundle(max_cuts, np.empty((0, dimension)))
        return cls(np.zeros(dimension), np.zeros(dimension), bundle, Certificate())

    def is_sound(self, oracle: CutOracle) -> bool:
        """Whether the parts fit the oracle; a saved state may come from anywhere."""
        dimension = oracle.space.dimension
        points = self.w.shape == self.best.shape == (dimension,)
        return points and self.certificate.is_sound() and self.bundle.is_sound(dimension, oracle.groups)


class OracleSolver(Solver):
    """What the solvers have in common."""

    oracle: CutOracle

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return self.oracle.scratch_vectors

    def solution(self) -> tuple[Float64Array, float]:
        return self.oracle.space.to_data(self.state.best)

    def _sample(self, requests: Generator[Request, Any, Any]) -> Sample:
        """What a read of the oracle asks for up to its pass over the data."""
        counts: list[VectorRequest] = []
        request = next(requests)
        while isinstance(request, VectorRequest):
            counts.append(request)
            request = requests.send(self.oracle.no_count)
        return Sample(tuple(counts), (request,), n_counts=self.oracle.n_counts)


@dataclass(slots=True)
class CuttingPlane(OracleSolver):
    """The solver: `steps` yields one pass an iteration."""

    oracle: CutOracle
    stopping: Stopping
    state: CuttingPlaneState

    def steps(self) -> Generator[Request, Any, None]:
        oracle, state = self.oracle, self.state
        certificate, bundle = state.certificate, state.bundle
        while certificate.stop_reason is None:
            loss, n_support, cuts = yield from oracle.cut(state.w)
            primal = 0.5 * float(state.w @ state.w) + oracle.C * loss
            if primal < certificate.primal:
                certificate.primal, state.best, certificate.n_support = primal, state.w, n_support
            bundle.drop_idle()
            bundle.add(cuts)
            state.w, dual = bundle.solve(
                oracle.C, oracle.groups, master_tolerance(certificate, self.stopping)
            )
            certificate.record(dual, self.stopping)

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        return self.oracle.cut_vectors

    def sample(self) -> Sample:
        return self._sample(self.oracle.cut(self.state.w))

    def is_sound(self) -> bool:
        return self.state.is_sound(self.oracle)
