"""What cuts and the row vectors of a ray are, whatever the loss."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Request
from ooc_svm.solvers.space import LinearSpace

# A bound of the optimum and its rounding, where the free parameters of an optimum are no larger than a number
BoundInBox = Callable[[float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Cuts:
    """A cut for each group: ``R_g(v) >= offsets[g] - planes[g].v`` for every v.

    ``planes`` has shape (groups, dimension), ``offsets`` (groups,), both float64.
    """

    planes: Float64Array
    offsets: Float64Array


class NoFreeParameters:
    """What an oracle says of free parameters where there are none; see `oracle_solver.CutOracle`."""

    equal: bool = False
    space: LinearSpace

    def settle(
        self, t: float, best: Float64Array, loss: float
    ) -> Generator[Request, Any, tuple[Float64Array, float]]:
        """The best free parameters at the scores that a line search ended at, and the loss there."""
        yield from ()
        return best, loss

    def start(self) -> tuple[Float64Array, Float64Array, Float64Array] | None:
        """The ends of the first segment, and where on it the first cuts are taken; None: at 0."""
        return None

    def constant_cuts(self) -> list[Cuts]:
        """Cuts that take no read."""
        return []

    def in_box(self, upper: float, bound: BoundInBox) -> tuple[float, float]:
        """A bound of the optimum, which is at most ``upper``, and its rounding."""
        return bound(0.0)

    def vanishing(self, tol: float) -> float:
        """See `Certificate.vanishing`; 0 where P has a lower bound of 0."""
        return 0.0

    def solution(self, w: Float64Array) -> tuple[Float64Array, float]:
        """Weights in units of the data, and the bias, of parameters."""
        return self.space.to_data(w)

    def score_offset(self, w: Float64Array) -> float:
        """What the scores kept lack of those of the model."""
        return 0.0

    @property
    def center_losses(self) -> float:
        """What the losses have more where all scores are 0, if targets are counted from a center."""
        return 0.0

    def solution_error(self, w: Float64Array) -> float:
        """What the loss may change by where the parameters become the weights and the bias of a model."""
        return 0.0


class RayScores:
    """Names of the row vectors of scores that a line search works on."""

    name: str

    @property
    def best(self) -> str:
        """Scores at the best point."""
        return f"{self.name}/best"

    @property
    def previous(self) -> str:
        """Scores at the point of the last read."""
        return f"{self.name}/previous"
