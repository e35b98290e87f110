"""What the cutting-plane solvers have in common: master problem, bounds, checks of a saved state."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Protocol

import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import (
    Overlap,
    Pass,
    Position,
    Request,
    Steps,
    VectorRequest,
    is_pass,
    is_vector_request,
)
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.base import LinearFunction, Prunable, Sample
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.bundle import Bundle
from ooc_svm.solvers.cutting_plane.cuts import BoundInBox, Cuts
from ooc_svm.solvers.rounding import Rounding, inner
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping

# The master problem is solved to these shares of the gap that is wanted and of the gap there is: the second
# costs no reads (measured) and saves most of the pairwise steps.
WANTED_SHARE, PRESENT_SHARE = 0.1, 0.05


def master_tolerance(certificate: Certificate, stopping: Stopping) -> float:
    """Duality gap at which the master problem may stop."""
    size, present = certificate.primal, min(certificate.primal, certificate.gap)
    if size <= 0.0:
        # Below 0, P and D may both tend to it.
        size, present = max(-size, certificate.nothing / stopping.tol), certificate.gap
    return max(WANTED_SHARE * stopping.tol * size, PRESENT_SHARE * present)


def take_solution(
    certificate: Certificate,
    bundle: Bundle,
    before: Float64Array,
    bound: Callable[[Float64Array], tuple[float, float]],
    C: float,
    n_groups: int,
) -> Float64Array:
    """Take D of a solution, which a resumed run has to find again from the cuts that are saved.

    Rounding in the products of cuts may hide that D has become lower. Then the multipliers that are kept lie
    on the way to the solution from those `before`. Returns the point of the solution in any case.

    ``bound``: D of the multipliers of the cuts, and its rounding, for their point.
    """
    w = bundle.w
    value, error = bound(w)
    for whole in (False, True):
        if bundle.is_monotone and value + error < certificate.lower:
            bundle.go_back(before, C, n_groups, whole=whole)
            value, error = bound(bundle.w)
    (certificate.offer_dual if bundle.is_monotone else certificate.set_dual)(value, error)
    return w


def check_bound(
    certificate: Certificate,
    bundle: Bundle,
    bound: Callable[[], tuple[float, float]],
    solve: Callable[[float | None], None],
    stopping: Stopping,
) -> None:
    """Replace D of a saved state unless its cuts have it, and solve for cuts that were not solved for.

    ``bound``: D of the multipliers of the cuts, and its rounding. ``solve``: takes a deadline.
    """
    if bundle.unsolved and not bundle.is_monotone:
        # Cuts of the old D are gone, and no D of the file is believed: the new one must come, even if late.
        solve(None)
        return
    value, error = bound()
    # Not counted: saved by a release that did not know of rounding.
    counted = certificate.dual_rounding > 0.0 or error == 0.0
    if not (counted and certificate.lower <= value + error):
        certificate.set_dual(value, error)
    if bundle.unsolved:
        solve(stopping.deadline)


class CutOracle(Protocol):
    """What the solver needs to know of the losses."""

    @property
    def C(self) -> float: ...  # noqa: N802

    @property
    def space(self) -> LinearSpace: ...

    @property
    def groups(self) -> int: ...

    @property
    def previous(self) -> str: ...

    def open(self) -> Generator[Request, Any, None]: ...

    @property
    def cut_vectors(self) -> Mapping[str, npt.DTypeLike]: ...

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]: ...

    @property
    def n_counts(self) -> int: ...

    @property
    def no_count(self) -> Any: ...

    def cut(
        self, w: Float64Array, counted: Any
    ) -> Generator[Request, Any, tuple[float, int, list[Cuts], Float64Array, Any]]: ...

    def value_again(
        self, w: Float64Array, step: float | None
    ) -> Generator[Request, Any, tuple[float, float]]: ...

    def magnitudes(self, position: Position = ...) -> Pass: ...

    def rounding(self, found: Magnitudes) -> Rounding: ...

    def cut_operations(self, rounding: Rounding) -> float: ...

    def loss_operations(self, rounding: Rounding, t: float = ...) -> float: ...

    def in_box(self, upper: float, bound: BoundInBox) -> tuple[float, float]: ...

    def vanishing(self, tol: float) -> float: ...

    def count_support(
        self, step: float, best: Float64Array
    ) -> Generator[Request, Any, tuple[int, dict[str, float]]]: ...

    def solution(self, w: Float64Array) -> tuple[Float64Array, float]: ...

    def score_offset(self, w: Float64Array) -> float: ...

    @property
    def center_losses(self) -> float: ...

    def solution_error(self, w: Float64Array) -> float: ...

    @property
    def equal(self) -> bool: ...


class OracleSolver(Prunable):
    """A solver that collects the cuts of an oracle.

    Attributes
    ----------
    _rounding : Rounding or None
        What rounding can change, known after the first read.
    _origin : str or None
        The checkpoint that the state came from; None of a fresh one.
    _facts : dict
        What the report says of free parameters, at the end of a run.
    """

    oracle: CutOracle
    _rounding: Rounding | None
    _origin: str | None
    _facts: dict[str, float]

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return self.oracle.scratch_vectors

    def solution(self) -> LinearFunction:
        return LinearFunction(*self.oracle.solution(self.state.best))

    def metadata(self, n_rows: int) -> dict[str, float]:
        return dict(self._facts)

    def distrust(self, origin: str) -> None:
        self._origin = origin

    def is_sound(self) -> bool:
        state, space = self.state, self.oracle.space
        sound: bool = (
            state.w.shape == state.best.shape == (space.dimension,)
            and state.certificate.is_sound()
            and state.bundle.is_sound(space.dimension, self.oracle.groups, space.n_free)
        )
        return sound

    @property
    def rounding(self) -> Rounding:
        """What rounding can change; after the first read."""
        assert self._rounding is not None
        return self._rounding

    def _reading(self, requests: Generator[Request, Any, Any]) -> Generator[Request | Overlap, Any, Any]:
        """Requests of the oracle; the first one that reads the data brings what `rounding` follows from."""
        answer = None
        while True:
            try:
                request = requests.send(answer)
            except StopIteration as end:
                return end.value
            if self._rounding is None and is_pass(request) and request.needs_data:
                answer, found = yield Overlap((request, self.oracle.magnitudes(request.position)))
                self._rounding = self.oracle.rounding(found)
                self.certificate.scale = self.oracle.C * (self._rounding.weight + self.oracle.center_losses)
                self.certificate.vanishing = self.oracle.vanishing(self.stopping.tol)
            else:
                answer = yield request

    def _value(self, w: Float64Array, loss: float, loss_error: float) -> tuple[float, float]:
        """P at w and its rounding, where the loss there is known but for ``loss_error``."""
        C, own = self.oracle.C, self.oracle.space.penalized(w)
        loss_error += self.oracle.solution_error(w)
        return 0.5 * inner(own, own) + C * loss, self.rounding.primal(C, w, loss_error)

    def _score_error(self) -> float:
        """What the scores at the best point can be off by together, see `ooc_svm.solvers.rounding`."""
        return self.rounding.scores(self.state.best)

    def _loss_error(self, score_error: float, reach: float, t: float = 0.0) -> float:
        """Rounding of the loss at t on a ray, of scores off by ``score_error``; see `Rounding.losses`."""
        return self.rounding.losses(score_error, self.oracle.loss_operations(self.rounding, t), reach)

    def _solve_master(self, deadline: float | None) -> None:
        """The next point and its bound; none if there is no time left."""
        oracle, state, bundle = self.oracle, self.state, self.state.bundle
        self._offer_nothing()
        if not math.isfinite(self.certificate.lower):
            deadline = None  # without any bound a run has no end
        tolerance, before = master_tolerance(self.certificate, self.stopping), bundle.beta
        if bundle.solve(oracle.C, oracle.groups, tolerance, deadline):
            state.w = take_solution(self.certificate, bundle, before, self._bound, oracle.C, oracle.groups)
            self._offer_nothing()

    def _offer_nothing(self) -> None:
        """The bound of no multipliers at all, where these are feasible."""
        if not self.oracle.equal:
            self.certificate.offer_dual(0.0, 0.0)

    def _bound(self, w: Float64Array) -> tuple[float, float]:
        """D of the multipliers of the cuts, whose point is w, and its rounding."""
        operations = self.oracle.cut_operations(self.rounding)
        bound = partial(self.state.bundle.bound, w, self.rounding, operations)
        return self.oracle.in_box(self.certificate.upper, bound)

    def _go_on(self, step: float | None) -> Steps:
        """Before a resumed run goes on: check its state by a read that is not counted.

        P is taken from that read and D from the cuts, and what cannot be true is refused, or replaced by what
        is. A state that is as this solver saved it does not change.

        ``step``: by which the scores kept have to move to those of the best point; None if none are kept.
        """
        oracle, certificate, best, bundle = self.oracle, self.certificate, self.state.best, self.state.bundle
        loss, difference = yield from self._reading(oracle.value_again(best, step))
        score_error = self._score_error()
        if not difference <= 2.0 * (score_error + self.rounding.scores(best)):
            raise Certificate.does_not_fit(self._origin, "the scores in it are not those of its weights")
        loss_error = self._loss_error(score_error, self.rounding.products(best))
        primal, error = self._value(best, loss, loss_error)
        certificate.check_primal(primal, error, self._origin)
        certificate.primal_rounding = max(certificate.primal_rounding, error)
        if not bundle.is_feasible(oracle.C, oracle.groups):
            raise Certificate.does_not_fit(self._origin, "multipliers of its cuts are above C")
        self._check_cuts(best, loss, loss_error)
        check_bound(certificate, bundle, lambda: self._bound(bundle.w), self._solve_master, self.stopping)
        self._offer_nothing()
        certificate.amend(self.stopping)

    def _check_cuts(self, w: Float64Array, loss: float, loss_error: float) -> None:
        """Check that the cuts of a checkpoint are below a loss that was measured, but for rounding."""
        if self._origin is None:
            return
        rounding, bundle = self.rounding, self.state.bundle
        operations = self.oracle.cut_operations(rounding) + bundle.combining + bundle.n_cuts
        error = rounding.losses(0.0, operations, rounding.products(w)) + rounding.scores(w)
        found = bundle.loss_at_least(w)
        if found > loss + loss_error + error:
            raise Certificate.does_not_fit(
                self._origin, f"by its cuts the loss is {found!r} at least, and it is {loss!r}"
            )

    def _sample(self, requests: Generator[Request, Any, Any]) -> Sample:
        """What a read of the oracle asks for up to its pass over the data."""
        counts: list[VectorRequest] = []
        request = next(requests)
        while is_vector_request(request):
            counts.append(request)
            request = requests.send(self.oracle.no_count)
        assert is_pass(request)
        return Sample(tuple(counts), (request,), n_counts=self.oracle.n_counts)
