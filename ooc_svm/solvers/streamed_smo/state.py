"""What streamed SMO knows between two reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.effort import SLOW, Effort
from ooc_svm.solvers.streamed_smo.multipliers import Multipliers
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.rounding import SmoRounding
from ooc_svm.solvers.streamed_smo.sweep import COST
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

# Error of the scores at the best point where a state was saved without it, as a share of the norm of w.
SCORES = 1e-12

# A penalized bias moves by this share of the mean squared norm of a row for each unit of the multipliers, if
# that is less than 1. Rows of many columns have little in common but the bias: where it moves by 1, the steps
# of some undo those of others (61 M generated nonzeros, C of 1 and 8: 18.5 and 61 n steps in place of 9 and
# 26 n).
LOOSE = 0.03

# Weights and resident rows from which on what comes between two rounds is worth a thread of its own: below,
# most of it is Python, and threads would wait for each other.
WORTH_A_THREAD = 1 << 15

# Share of the free rows that are resident, from which on they decide alone where P is taken next.
MOSTLY = 0.5


@dataclass(slots=True)
class SmoState:
    """Everything the solver knows between two reads, apart from the row vectors."""

    # shape (n_features,): weights of the multipliers and of the best point, in units of the data
    w: Float64Array
    best: Float64Array
    multipliers: Multipliers = field(metadata={"saved_as": ""})
    gaps: Float64Array  # shape (rounds,): the sum of the row gaps that each round saw before its steps
    certificate: Certificate
    # shape (rounds,): the rows of each round that were free and not resident; -1: not known
    free: Float64Array
    # The bias of the moment without ``rho sum_i v_i``; the bias of the best point
    b: float = 0.0
    best_b: float = 0.0
    # What the bias adds to the squared norm of a row: 0 without one, or before it is found; for a free one,
    # the penalty of the method of multipliers; for a penalized one, that of the proximal point method or 1
    rho: float = 0.0
    center: float = 0.0  # Of the targets; b and best_b are without it
    unit: float = 0.0  # Of residuals: values are about as far as that from the center; 0: not known yet
    mean: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (n_features,) or (0,)
    rounding: SmoRounding = field(default_factory=SmoRounding)
    visited: float = 0.0  # Rows looked at so far
    # Of the multipliers that the bound is of: D without its norm, and the square of that
    feasible: Float64Array = field(default_factory=lambda: np.array([-np.inf, 0.0]))
    waits: int = 0  # 1 if it is likely to go on from another model, see `Path`
    rests: int = 0  # 1 if no more steps were needed in the last read, as it seemed, see `Foresight`
    # shape (n_features,) or (0,): weights that the next read scores the rows with, in place of those of the
    # moment, and their bias
    start: Float64Array = field(default_factory=lambda: np.empty(0))
    start_b: float = 0.0

    @classmethod
    def fresh(cls, n_features: int, n_rounds: int, rows: ResidentRows) -> SmoState:
        """The state before the first read; ``rows``: the resident ones, of all models."""
        w, best, (thetas, gaps) = np.zeros(n_features), np.zeros(n_features), np.zeros((2, n_rounds))
        free = np.full(n_rounds, -1.0)
        return cls(w, best, Multipliers(WorkingSet(rows), thetas), gaps, Certificate(), free)

    @property
    def of_models(self) -> list[SmoState]:
        """The states of the models that multipliers are saved of."""
        return [self]

    @property
    def mean_row(self) -> Float64Array | None:
        """The mean, if one is taken from the rows."""
        return self.mean if len(self.mean) else None

    @property
    def free_elsewhere(self) -> float:
        """About how many rows are free and not resident: rounds not known yet have as many as the others."""
        seen = self.free[self.free >= 0.0]
        return float(seen.mean() * len(self.free)) if len(seen) else 0.0

    def answering(self, model: DualModel, r: int) -> tuple[float, float]:
        """Shares of the free rows that have answered to the last b, in the round r.

        Of the resident rows, and of these and the round's. b follows the multipliers as far as they follow b:
        all of them have where all free rows are resident.
        """
        resident = self.multipliers.working_set.count_free(model)
        everywhere = resident + self.free_elsewhere
        if not everywhere > 0.0:
            return 1.0, 1.0
        return float(resident / everywhere), float((resident + self.free[r]) / everywhere)

    def creeps(self, before: float, tol: float) -> bool:
        """Whether the sum of the multipliers, which was ``before``, hardly answers to the bias."""
        total, size = self.multipliers.total, float(self.rounding.moves[dual_loops.WAS_DISTANCE])
        return before * (total - SLOW * before) > 0.0 and abs(total) > tol * size

    @property
    def scale(self) -> float:
        """What the losses amount to where all scores are 0, at least; 0 before the first read."""
        # The mean of squared residuals is at least the square of their mean.
        return float(self.rounding.rows[COST]) * min(self.unit, self.unit * self.unit)

    def bias(self, space: LinearSpace) -> Float64Array:
        """The bias of the moment, shape (3,), see `dual_loops`."""
        total, rho = self.multipliers.total, self.rho
        if not len(self.mean):
            return np.array([self.b + rho * total, rho, total])
        rho += space.inner(self.mean, self.mean)
        return np.array([self.b + rho * total - space.inner(self.w, self.mean), rho, total])

    def is_loose(self, space: LinearSpace) -> bool:
        """Whether a penalized bias is not the sum of the multipliers before an optimum is reached."""
        return space.penalized_bias and self.rho < 1.0

    def loosen(self, model: DualModel) -> None:
        """Let a penalized bias move less with each multiplier, if that saves steps; it stays where it is.

        With few columns proximal steps do. Where every row has a loss, each follows the bias all the time.
        """
        space, square = model.space, self.rounding.mean_square
        has_steps = space.n_features <= self.multipliers.working_set.rows.most_columns
        saves = space.penalized_bias and not has_steps and model.has_end
        if saves and square > 0.0:
            rho = min(self.rho, LOOSE * square)
            self.b += (self.rho - rho) * self.multipliers.total
            self.rho = rho

    def point(self, space: LinearSpace) -> tuple[Float64Array, float]:
        """Weights and bias of the moment: a mean that is taken from all rows is taken from their sum."""
        bias = self.bias(space)
        w = self.w - bias[dual_loops.TOTAL] * self.mean if len(self.mean) else self.w
        return w, float(bias[dual_loops.B])

    def helper(self, model: DualModel) -> Callable[[], bool] | None:
        """`help`, if it may be of use."""
        return self.help if self.multipliers.working_set.is_helped(model.space.n_features) else None

    def help(self) -> bool:
        """Take part in the solving of the working set, which may have come from another model meanwhile."""
        return self.multipliers.working_set.help()

    def least_priority(self, model: DualModel, effort: Effort) -> float:
        """The priority of a row out of reach; what is far in a regression depends on the values' unit.

        No row is where those in reach cannot take up what the multipliers of a free bias sum up to, since the
        bias has far to go then, or where all rows come at once: nothing is near the first weights.
        """
        if not (model.targets.in_margins and model.has_end):
            return 0.0
        least = 1.0 / (1.0 + effort.margin_reach)
        if self.certificate.passes == 0:
            return 0.0 if effort.at_once else least
        working_set, excess = self.multipliers.working_set, self.multipliers.total
        short = model.free_bias and not working_set.takes_up(model, excess, least)
        return 0.0 if short else least

    @property
    def is_large(self) -> bool:
        """Whether what a solver does between two rounds is worth a thread of its own."""
        return len(self.w) + len(self.multipliers.working_set.rows.ids) >= WORTH_A_THREAD

    def limited(self, model: DualModel, step: float) -> float:
        """A step of b, which is no long one where all rows elsewhere answer to it, and stop at no bound."""
        return step if model.has_end else min(max(step, -self.unit), self.unit)

    def settle(self, model: DualModel) -> None:
        """Take the feasible point near by, at which D is, for the multipliers: resident rows lead there."""
        multipliers = self.multipliers
        if model.free_bias and len(multipliers.working_set.places):
            w = self.w.copy()
            sums = multipliers.working_set.settle(model, multipliers.total, w)
            self.w = w
            self.rounding.moved(sums, model.space.norm(w))
            multipliers.linear += float(sums[dual_loops.LINEAR])
            multipliers.total += float(sums[dual_loops.MOVED])

    def dual_at(self, model: DualModel, ratio: float = 1.0) -> float:
        """D at the multipliers times a number, for C times that number.

        Where those of a free bias do not sum up to 0, that is charged as the method of multipliers does.
        """
        w, total = self.point(model.space)[0], self.multipliers.total
        rho = 1.0 if model.space.penalized_bias else self.rho
        square = model.space.inner(w, w) + rho * total * total
        return ratio * self.multipliers.linear - 0.5 * ratio * ratio * square

    def go_on_from(self, other: SmoState, model: DualModel, ratio: float) -> None:
        """Go on with the multipliers of the same problem whose C, times ``ratio``, is the one of the model.

        The best point and the row vectors are left to the caller.
        """
        space = model.space
        self.w, self.gaps, self.free = other.w * ratio, other.gaps * ratio, other.free.copy()
        self.start = np.empty(0)
        self.multipliers = other.multipliers.copy()
        self.multipliers.rescale(model, ratio)
        self.mean = other.mean
        if model.free_bias:
            # The bias of the moment stays what it is there.
            self.b = other.b
            self.b += float(other.bias(space)[dual_loops.B] - self.bias(space)[dual_loops.B])
        elif self.is_loose(space):
            b = ratio * float(other.bias(space)[dual_loops.B])
            self.b = b - self.rho * self.multipliers.total
        own = self.rounding
        self.rounding = replace(other.rounding, rows=own.rows, scores=own.scores, per_score=own.per_score)
        self.rounding.rescale(ratio)

    def choose_start(self, model: DualModel) -> None:
        """Score the rows in the next read with weights between the mean of this one's and those of its end.

        Resident rows stand for themselves, and the weights of the rounds for the others. Where most free rows
        are resident, the end is better alone: they have been solved.
        """
        share = self.answering(model, 0)[0]
        w, b = self.point(model.space)
        if share > MOSTLY:
            share = 1.0
        self.start = self.start + share * (w - self.start)
        self.start_b += share * (b + self.center - self.start_b)

    def is_far(self, model: DualModel, ratio: float) -> bool:
        """Whether multipliers times ``ratio``, for C times that, are a far worse start than none."""
        return ratio > 1.0 and self.dual_at(model, ratio) < -abs(self._primal_at(model, ratio))

    def rescale(self, model: DualModel, ratio: float) -> None:
        """Go on from the state of the same problem whose C, times ``ratio``, is the one of the model.

        Multipliers times ``ratio`` are feasible here. The best point stays; its losses are summed again from
        its scores, and w from the multipliers. The row vectors of multipliers and steps are left to the
        caller.
        """
        bounds = (
            (self._primal_at(model, each), max(self.dual_at(model, each), 0.0)) for each in (1.0, ratio)
        )
        before, after = (primal - dual for primal, dual in bounds)
        self.w = self.w * ratio
        self.start = np.empty(0)
        self.gaps *= ratio
        if math.isfinite(after - before):
            # With the row gaps of the other C alone the working set would be solved too far.
            self.gaps += max(after - before, 0.0) / len(self.gaps)
        self.visited = 0.0
        self.multipliers.rescale(model, ratio)
        self.rho = 0.0
        if model.space.penalized_bias:
            self.b = 0.0
        self.rounding.rows[:] = 0.0
        self.certificate = Certificate()

    def _primal_at(self, model: DualModel, ratio: float) -> float:
        """P of the best point for C times a number."""
        square = model.space.inner(self.best, self.best)
        if model.space.penalized_bias:
            square += self.best_b * self.best_b
        return ratio * self.certificate.upper - 0.5 * (ratio - 1.0) * square

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Give the arrays of a release that had neither centers nor rounding those of today."""
        if "unit" not in saved and {"gaps", "best"} <= saved.keys():
            rounding = SmoRounding(scores=SCORES * float(np.linalg.norm(saved["best"])))
            free = np.full(len(saved["gaps"]), -1.0)
            saved |= {"free": free, "center": np.asarray(0.0), "unit": np.asarray(1.0), "mean": np.empty(0)}
            saved |= {f"rounding/{name}": np.asarray(value) for name, value in asdict(rounding).items()}
        for name in ("per_score", "rescalings"):
            saved.setdefault(f"rounding/{name}", np.asarray(0.0))
        saved.setdefault("feasible", np.array([-np.inf, 0.0]))
        saved.setdefault("waits", np.asarray(0))
        if "rests" not in saved:
            saved["rests"] = np.asarray(0)
            if any(np.any(saved.get(name, 0.0)) for name in ("w", "linear", "total")):
                # Rounding was not counted for longer than a read: they are to be recomputed.
                saved["rounding/largest"] = np.asarray(np.inf)

    def is_sound(self, n_features: int, n_rounds: int) -> bool:
        """Whether the parts fit each other and the data; a saved state may come from anywhere."""
        return (
            self.w.shape == self.best.shape == (n_features,)
            and self.gaps.shape == self.free.shape == (n_rounds,)
            and len(self.start) in (0, n_features)
            and len(self.mean) in (0, n_features)
            and len(self.feasible) == 2
            and self.rounding.is_sound()
            and self.certificate.is_sound()
            and self.multipliers.is_sound(n_features, n_rounds)
        )
