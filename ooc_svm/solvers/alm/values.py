"""P and D of a model: the best point by scores alone, and the best combination of the planes."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import UNCOUNTED, WHOLE, Overlap, Pass, Position, Steps
from ooc_svm.passes.columns import Magnitudes, NormedMagnitudes
from ooc_svm.passes.linear import LinearPass, LinearSums
from ooc_svm.passes.rowwise import RowPass, RowRule
from ooc_svm.solvers.alm.rounding import AlmRounding
from ooc_svm.solvers.alm.rules import LossesAgain, LossesToNewest, MoveBest, RowModel
from ooc_svm.solvers.alm.state import AlmState
from ooc_svm.solvers.base import KeptScores, LinearFunction, Solver
from ooc_svm.solvers.best_scores import LOSS, LossCount, SlopeSizes
from ooc_svm.solvers.cutting_plane.cuts import Cuts
from ooc_svm.solvers.cutting_plane.oracle_solver import check_bound, master_tolerance, take_solution
from ooc_svm.solvers.grid_minimum import lowest
from ooc_svm.solvers.rounding import inner
from ooc_svm.solvers.space import LinearSpace

FLAT = 0.01  # Precision of P along a segment, as a share of the gap wanted
N_GROUPS = 2  # Planes of a read: of multipliers above 0 and below


class AlmValues(Solver):
    """What does not depend on how directions are found."""

    model: RowModel
    space: LinearSpace
    state: AlmState
    _origin: str | None

    def solution(self) -> LinearFunction:
        return LinearFunction(*self.space.to_data(self.state.best))

    def distrust(self, origin: str) -> None:
        self._origin = origin

    def kept_scores(self) -> KeptScores:
        return KeptScores(self.model.best, self.model.best)

    def _linear(self, vector: Float64Array, rule: RowRule, position: Position = WHOLE) -> LinearPass:
        """A read with the products of the rows and a vector."""
        weights, intercept = self.space.to_data(vector)
        return LinearPass(weights[:, None], np.array([intercept]), (rule,), position=position)

    def _add_planes(self, planes: Float64Array, offsets: Float64Array) -> None:
        """Keep the planes of a read."""
        self.state.bundle.drop_idle()
        self.state.bundle.add(Cuts(planes, offsets.copy()))

    def _count_support(self) -> Generator[Pass, Float64Array, None]:
        """Rows with a loss at the best point."""
        counted = yield RowPass(LossCount(self.model, 0.0))
        self.certificate.n_support = int(counted[0])

    def _improve_best(self) -> Generator[Pass, float, None]:
        """P along the segment from the best point to the newest one, and over a free bias."""
        state, space, model = self.state, self.space, self.model
        own, change = space.penalized(state.best), state.w - state.best
        along = space.penalized(change)
        n0, n1, n2 = inner(own, own), 2.0 * inner(own, along), inner(along, along)

        def values(points: Float64Array, base: Float64Array) -> Generator[Pass, Float64Array, Float64Array]:
            losses = yield RowPass(LossesToNewest(model, state.step, points))
            return base + losses

        def segment(t: Float64Array) -> Generator[Pass, Float64Array, Float64Array]:
            found = yield from values(np.column_stack([t, 0.0 * t]), 0.5 * (n0 + t * n1 + t * t * n2))
            return found

        tolerance = FLAT * self.stopping.tol
        t, bias = (yield from lowest(segment, 0.0, 2.0, tolerance))[0], 0.0
        if space.n_free:
            half = 0.5 * (n0 + t * n1 + t * t * n2)

            def over_bias(b: Float64Array) -> Generator[Pass, Float64Array, Float64Array]:
                found = yield from values(np.column_stack([np.full(len(b), t), b]), np.full(len(b), half))
                return found

            bias = (yield from lowest(over_bias, -0.1, 0.1, tolerance))[0]
        best = state.best + t * change
        if space.n_free:
            best[-1] += bias
        norms = float(np.linalg.norm(state.best)), float(np.linalg.norm(state.w))
        error = abs(1.0 - t) * state.best_error + abs(t) * state.score_error
        error = self._rounding.scores(error, norms[0] + abs(t) * norms[1] + abs(bias), 0.0, 0.0)
        yield RowPass(MoveBest(model, state.step, t, bias))
        state.best, state.best_error = best, error
        value, rounding = yield from self._primal()
        self.certificate.primal, self.certificate.primal_rounding = math.inf, 0.0
        self.certificate.offer_primal(value, rounding)

    def _primal(self) -> Generator[Pass, Float64Array, tuple[float, float]]:
        """P at the best point by its scores, and its rounding."""
        state, own = self.state, self.space.penalized(self.state.best)
        sums = yield RowPass(SlopeSizes(self.model, 0.0, state.best_error * self._rounding.longest))
        half = 0.5 * inner(own, own)
        rounding = self._rounding.primal(half, sums, state.best_error, len(state.best))
        return half + float(sums[LOSS]), rounding

    @property
    def _rounding(self) -> AlmRounding:
        return AlmRounding(self.space, self.state.sizes, self.state.largest)

    def _solve_master(self, deadline: float | None) -> None:
        """The best combination of the planes, and its bound."""
        certificate, bundle = self.certificate, self.state.bundle
        certificate.offer_dual(0.0, 0.0)
        tolerance, before = master_tolerance(certificate, self.stopping), bundle.beta
        if math.isfinite(tolerance) and bundle.solve(1.0, N_GROUPS, tolerance, deadline):
            take_solution(certificate, bundle, before, self._bound, 1.0, N_GROUPS)
            certificate.offer_dual(0.0, 0.0)

    def _bound(self, w: Float64Array) -> tuple[float, float]:
        """D of the planes' multipliers, whose point is w, and its rounding.

        The bias of an optimum lies among the ``t_i - w.x_i``, and ``|w|^2 / 2 <= P``.
        """
        rounding = self._rounding
        box = 1.0 + rounding.longest * math.sqrt(2.0 * max(self.certificate.upper, 0.0))
        return self.state.bundle.bound(w, rounding, self._plane_operations, box)  # type: ignore[arg-type]

    @property
    def _plane_operations(self) -> float:
        """Operations that a plane is made in."""
        return float(self.state.sizes[3]) + 4.0

    def _check_saved(self) -> Steps:
        """Before a resumed run goes on: P and D again, by a read that is not counted.

        P has to be what the read brings, and D what the planes have, or it is replaced; planes above the
        losses of the read are refused. A state that is as this solver saved it does not change.
        """
        state, certificate, bundle = self.state, self.certificate, self.state.bundle
        norm = float(np.linalg.norm(state.best))
        fresh = self._rounding.scores(0.0, norm, 1.0, norm)
        again = LossesAgain(self.model, fresh * self._rounding.longest)
        read = self._linear(state.best, again, position=UNCOUNTED)
        result: LinearSums
        result, found = yield Overlap((read, self._magnitudes(UNCOUNTED)))
        rounding, sums = self._rounding, result.sums[0]
        if not (state.sizes >= AlmRounding.sizes_of(found, self.space)).all():
            raise certificate.does_not_fit(self._origin, "rows are larger than it says")
        certificate.scale = self._scale(found)
        own = self.space.penalized(state.best)
        half, losses = 0.5 * inner(own, own), float(sums[3])
        value, error = half + losses, rounding.primal(half, sums[:4], fresh, len(own))
        allowed = (state.best_error + fresh) * rounding.longest * max(float(state.sizes[2]), 1.0)
        if not (float(sums[4]) <= allowed and bundle.is_feasible(1.0, N_GROUPS)):
            raise certificate.does_not_fit(self._origin, "P and D are not those of its weights and planes")
        certificate.check_primal(value, error, self._origin)
        # The rounding of P as it was found when the state was saved.
        _, own_error = yield from self._primal()
        certificate.primal_rounding = max(certificate.primal_rounding, own_error)
        operations = self._plane_operations + bundle.combining + bundle.n_cuts
        least = bundle.loss_at_least(state.best)
        if not least <= losses + error + rounding.planes(norm, len(state.best), operations):
            raise certificate.does_not_fit(
                self._origin, f"by its planes the loss is {least!r} at least, and it is {losses!r}"
            )
        check_bound(certificate, bundle, lambda: self._bound(bundle.w), self._solve_master, self.stopping)
        certificate.offer_dual(0.0, 0.0)
        if certificate.lower > certificate.upper:
            raise certificate.does_not_fit(self._origin, "by its planes D is above P")
        certificate.amend(self.stopping)

    def _magnitudes(self, position: Position = WHOLE) -> NormedMagnitudes:
        """What rounding follows from."""
        space = self.space
        return NormedMagnitudes(
            space.n_features, position, self.model.targets.row_weight, scale2=space.scale2
        )

    def _scale(self, found: Magnitudes) -> float:
        """What the losses amount to where all scores are 0."""
        return self.model.C * self.model.targets.largest_weight * found.weight
