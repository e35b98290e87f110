"""Losses that are sums over rows, with parameters that have no penalty: a bias, a margin, a tube.

    R(w, b)    = sum_i omega_i l(t_i - s_i - b)                                     (a free bias)
    R(w, b, k) = sum_i omega_i l_k(t_i - s_i - b) + nu W (k - k_0)                  (the nu problems)

l_k is the loss with its breakpoint moved by k, W the sum of the weights. Of the hinge loss, ``rho = 1 - k``
is the margin and k_0 = 1 (Yajima and Kawasoe, 3.20 and 3.22; their C is 1 / W, their decision w.x - b). Of
the epsilon-insensitive one with epsilon 0, k is half the width of the tube and k_0 = 0.

The paper eliminates the free parameters: its cuts are taken at the best ones for w, which is known only once
all scores are. Here they are parameters of the master problem, whose dual gets an equality for each
(`ooc_svm.solvers.cutting_plane.free_master`): a cut at (w, b, k) follows from each row alone, so it comes
from the read that finds the scores, at several places at a time, and for groups of rows with a slack each.
Between two reads the best free parameters for the best w are found exactly, by order statistics of its
scores.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.errors import InputError, parameter
from ooc_svm.passes.base import WHOLE, Position, Request
from ooc_svm.passes.columns import Magnitudes, NormedMagnitudes
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.problems.targets import ShiftedTargets
from ooc_svm.solvers.cutting_plane.cuts import BoundInBox, Cuts
from ooc_svm.solvers.cutting_plane.quantile import weighted_quantiles
from ooc_svm.solvers.cutting_plane.row_oracle import RowCutOracle, RowSegment
from ooc_svm.solvers.cutting_plane.row_rules import FreeEnds, LossesAt, TargetPass, ValueAgain
from ooc_svm.solvers.rounding import UNIT, Rounding, gamma

FIRST_THETAS = (0.0, 0.5, 1.0)  # Where the first cuts are taken, between a bias too small and one too large
VANISHING = 1e-12  # Of the first bound, times the tolerance: next to nothing, where P tends to 0
EDGE = 1e-9  # A row so close to a breakpoint is on it, as a share of the sizes of its residual


@dataclass(slots=True)
class FreeCutOracle(RowCutOracle):
    """What the cutting-plane solvers need to know of such a loss.

    Attributes
    ----------
    nu : float or None
    mean : bool
        Whether C is of the mean of the losses, not of their sum.
    center : float
        What the targets are reduced by, so that they are around 0.
    largest_norm : float
        Of a row.
    """

    nu: float | None = None
    mean: bool = False
    center: float = 0.0
    largest_norm: float = math.inf

    @property
    def equal(self) -> bool:  # type: ignore[override]
        """Whether the loss has no lower bound, and so the multipliers of the cuts add up to C."""
        return self.nu is not None

    @property
    def price(self) -> float:
        """What k costs, nu W."""
        return 0.0 if self.nu is None else self.nu * self.targets.weight

    @property
    def origin(self) -> float:
        """The k that costs nothing, k_0."""
        return 1.0 if self.losses.targets.in_margins else 0.0

    def open(self) -> Generator[Request, Any, None]:
        """Weights and targets of the rows; values are counted from the middle of their range."""
        found = self.targets = yield TargetPass(self.losses)
        if self.mean and found.weight > 0.0:
            self.C /= found.weight
        if not self.losses.targets.in_margins and found.weight > 0.0:
            self.center = 0.5 * found.least + 0.5 * found.most
            self.losses = replace(self.losses, targets=ShiftedTargets(self.losses.targets, self.center))
            self.targets.least -= self.center
            self.targets.most -= self.center
        self._check_nu()

    def _check_nu(self) -> None:
        found = self.targets
        if self.nu is None:
            return
        if not found.weight > 0.0:
            raise InputError(
                f"all rows have a weight of 0, and {parameter('nu')} is a share of the weights; give rows "
                "another weight"
            )
        if not self.losses.targets.in_margins:
            return
        smaller = min(found.falling, found.rising)
        if not smaller > 0.0:
            raise InputError(
                f"all rows of a class have a weight of 0, and {parameter('nu')} is at most twice the share "
                "of the smaller class; give rows of it a weight above 0"
            )
        most = 2.0 * smaller / found.weight
        if self.nu > most * (1.0 + gamma(4)):
            raise InputError(
                f"{parameter('nu')} is {self.nu:g}, and of the rows that are trained on it can be at most "
                f"{_below(most)}, twice the share of the smaller class; take a smaller value"
            )

    def start(self) -> tuple[Float64Array, Float64Array, Float64Array]:
        """The ends of the first segment, and where on it the first cuts are taken; weights are 0.

        All pieces of one sign have a loss at one end, all of the other sign at the other.
        """
        ends = np.zeros((2, self.space.dimension))
        far = 1.0 if self.losses.targets.in_margins else 2.0 * self.reach + 1.0
        ends[:, self.space.n_penalized] = -far, far
        if self.nu is not None and self.losses.targets.in_margins:
            ends[:, -1] = 0.5
        return ends[0], ends[1], np.array(FIRST_THETAS)

    def constant_cuts(self) -> list[Cuts]:
        """Cuts that take no read: where a loss is charged for k alone, that of no losses."""
        if self.nu is None:
            return []
        none = np.zeros(self.groups)
        return [self._cut(np.zeros((self.space.n_features, self.groups)), none, none, none)]

    def box(self, upper: float, lower: float = -math.inf) -> float:
        """The free parameters of an optimum are no larger, whose value is between ``lower`` and ``upper``.

        They are order statistics of ``t_i - s_i``, up to the breakpoint, or half the sum or difference of
        two. ``|w|^2 / 2 <= P`` where no loss is negative. Those of margins by nu grow like w, b and rho: P is
        ``-|w|^2 / 2`` at the optimum. Also, the multipliers of the rows add up to C nu W.
        """
        norm = self.largest_norm + self.space.penalized_bias
        if self.nu is not None and self.losses.targets.in_margins:
            weights = min(self.C * self.price * norm, math.sqrt(2.0 * max(-lower, 0.0)))
        else:
            weights = math.sqrt(2.0 * max(upper, 0.0))
        return 1.01 * (self.reach + 1.0 + norm * weights)

    def in_box(self, upper: float, bound: BoundInBox) -> tuple[float, float]:
        """A bound of the optimum, with its rounding, in the box that follows from it.

        ``bound``: takes a box that the free parameters of the optimum are in.
        """
        box = self.box(upper)
        value, rounding = bound(box)
        closer = self.box(upper, value - rounding)
        return bound(closer) if closer < box else (value, rounding)

    def magnitudes(self, position: Position = WHOLE) -> NormedMagnitudes:
        space = self.space
        return NormedMagnitudes(space.n_features, position, self.losses.targets.row_weight, space.scale2)

    def rounding(self, found: Magnitudes) -> Rounding:
        self.largest_norm = math.sqrt(found.square)
        reach = self.reach + (0.0 if self.nu is None else 2.0)
        return Rounding.of_rows(found, self.space, self.losses.targets.largest_weight, reach)

    def vanishing(self, tol: float, share: float = VANISHING) -> float:
        """See `Certificate.vanishing`.

        The first bound is ``|w|^2 / 2`` of the mean rows of the two classes, or so. It does not depend on
        where the rows are, as the multipliers of both classes have the same sum.
        """
        return share * tol if self.equal and self.losses.targets.in_margins else 0.0

    def _value_rule(self, w: Float64Array, step: float | None) -> ValueAgain:
        return ValueAgain(self.losses, step, self._pair(w))

    def value_again(
        self, w: Float64Array, step: float | None
    ) -> Generator[Request, Any, tuple[float, float]]:
        loss, difference = yield from RowCutOracle.value_again(self, w, step)
        return self._charged(loss, w), difference

    def _pair(self, w: Float64Array) -> tuple[float, float]:
        """The bias and k."""
        free = self.space.free(w).tolist()
        return free[0], free[1] if len(free) > 1 else 0.0

    def _charged(self, loss: float, w: Float64Array) -> float:
        """The losses of the rows and the price of k."""
        return loss if self.nu is None else loss + self.price * (self._pair(w)[1] - self.origin)

    @property
    def cut_vectors(self) -> dict[str, npt.DTypeLike]:
        return self.vectors

    def cut(
        self, w: Float64Array, counted: None = None
    ) -> Generator[Request, Any, tuple[float, int, list[Cuts], Float64Array, None]]:
        """One read of the data: loss and rows with a loss at w with the best free parameters; cuts at w."""
        best, last, thetas = (w, w, np.ones(1)) if w.any() else self.start()
        cuts, _, _ = yield from self.read(last, 0.0, thetas, np.empty(0), None, best)
        if not w.any():
            cuts = [*self.constant_cuts(), *cuts]
        settled, loss = yield from self.settle(1.0, w, math.inf)
        found: Float64Array = yield RowPass(LossesAt(self.losses, 1.0, self._pair(settled)))
        return loss, int(found[1]), cuts, settled, None

    def read(
        self,
        w: Float64Array,
        step: float,
        thetas: Float64Array,
        forecast: Float64Array,
        counted: None,
        best: Float64Array,
    ) -> Generator[Request, Any, tuple[list[Cuts], RowSegment, Float64Array]]:
        cuts, segment, forecast = yield from RowCutOracle.read(self, w, step, thetas, forecast, counted, best)
        if self.nu is not None:
            (_, k_start), (_, k_end) = segment.free
            loss = replace(
                segment.loss,
                c=segment.loss.c + self.price * (k_start - self.origin),
                d=segment.loss.d - self.price * (k_end - k_start),
            )
            segment = RowSegment(loss, segment.free)
        return cuts, segment, forecast

    def _ends(self, best: Float64Array, w: Float64Array) -> FreeEnds:
        return self._pair(best), self._pair(w)

    def _cut(
        self, rows: Float64Array, offsets: Float64Array, coefficients: Float64Array, sizes: Float64Array
    ) -> Cuts:
        own = [coefficients]
        if self.nu is not None:
            price = self.price / self.groups
            own.append(sizes - price)
            offsets = offsets - price * self.origin
        return Cuts(self.space.from_data(rows, coefficients, own), offsets)

    def loss_at(self, t: float, w: Float64Array) -> Generator[Request, Any, float]:
        sums: Float64Array = yield RowPass(LossesAt(self.losses, t, self._pair(w)))
        return self._charged(float(sums[0]), w)

    def settle(
        self, t: float, best: Float64Array, loss: float
    ) -> Generator[Request, Any, tuple[Float64Array, float]]:
        """The middle of the best free parameters at the scores that a line search ended at; the loss there.

        The paper has them from complementary slackness (3.6, 3.25): the same places of the same order.
        """
        found, settled = self.targets, best.copy()
        free = self.space.free(settled)
        if self.nu is None:
            [ends] = yield from weighted_quantiles(self.losses, t, [(0.0, found.falling)], found.n_rows)
            free[0] = _middle(ends)
        else:
            half = 0.5 * self.price
            wanted = [(1.0, found.falling - half), (-1.0, half)]
            upper, lower = map(_middle, (yield from weighted_quantiles(self.losses, t, wanted, found.n_rows)))
            free[:] = 0.5 * (upper + lower), 0.5 * (upper - lower)
        settled_loss = yield from self.loss_at(t, settled)
        return (settled, settled_loss) if not settled_loss > loss else (best, loss)

    def count_support(
        self, step: float, best: Float64Array
    ) -> Generator[Request, Any, tuple[int, dict[str, float]]]:
        b, k = self._pair(best)
        edge = EDGE * (1.0 + abs(b) + abs(k) + self.reach)
        found: Float64Array = yield RowPass(LossesAt(self.losses, step, (b, k), edge))
        _, n_support, errors, support = found.tolist()
        if self.nu is None:
            return int(n_support), {}
        name, value = ("rho", 1.0 - k) if self.losses.targets.in_margins else ("epsilon", k)
        weight = self.targets.weight
        shares = {"margin_errors": errors / weight, "support_vectors": support / weight}
        return int(n_support), {"nu": self.nu, name: value, **shares}

    def solution(self, w: Float64Array) -> tuple[Float64Array, float]:
        weights, bias = self.space.to_data(w)
        return weights, bias + self.center

    def score_offset(self, w: Float64Array) -> float:
        return self._pair(w)[0] + self.center

    @property
    def scale(self) -> float:
        """What the losses amount to where all scores are 0, at least, once the targets are known."""
        return self.C * (self.targets.weight * max(self.reach, 1.0) + self.center_losses)

    @property
    def center_losses(self) -> float:
        return self.targets.weight * abs(self.center)

    def solution_error(self, w: Float64Array) -> float:
        # The sum of b and the center is rounded, and no loss is steeper than its row weighs.
        return self.targets.weight * UNIT * abs(self.score_offset(w)) if self.center else 0.0


def _middle(ends: tuple[float, float]) -> float:
    """The middle of an interval."""
    return 0.5 * ends[0] + 0.5 * ends[1]


def _below(share: float) -> str:
    """A number with six digits that is not larger."""
    for digits in (6, 9, 12, 17):
        text = f"{share:.{digits}g}"
        if float(text) <= share:
            return text
    return repr(share)
