"""The augmented Lagrangian for powers of the slack (Nie et al. 2014), one read of the data an iteration.

    min_{w,b,e}  1/2 |w|^2 + sum_i l_i(e_i)        subject to  e_i = r_i = y_i - w.x_i - b
    L(w, b, e)   = 1/2 |w|^2 + sum_i (l_i(e_i) + v_i (r_i - e_i) + mu_i (r_i - e_i)^2 / 2)

(their equations 5 to 8; v is -lambda, and ``mu_i = mu c_i / C``, so that a row of weight 2 is two rows). The
paper minimises L over e and over (w, b) in turn: an exact step, by LSQR (Algorithm 1), or a step along the
gradient (Algorithm 2). Here e is eliminated: at its minimum (equations 10 to 13) L is a smooth function of w
and b, which both methods minimise.

* ``alm`` takes Newton's direction, by a Gram matrix of the rows whose multiplier is at no bound, which the
  read accumulates; where that does not fit, by conjugate gradients, each product of which is a read.
* ``inexact-alm`` takes a quasi-Newton direction.

A read sums L, its gradient and its curvature at some steps along the direction; the best one is taken. When
the gradient is small next to ``mu |r - e|^2``, the multipliers are updated (equation 9), and mu grows, by a
rate that follows from the two and no further than equation 29 allows.

Certificate: the multipliers of each read are inside their bounds, so ``l_i(r) >= v_i r - l*_i(v_i)``: those
above 0 and those below make a cutting plane each. D is that of the best combination of the planes kept (the
master problem of the cutting planes), in which those of a free bias sum up to 0. P is the smallest one along
the segments to the newest points, found by scores alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Overlap, Steps
from ooc_svm.passes.curvature import CurvaturePass, CurvatureSums
from ooc_svm.passes.linear import LinearSums
from ooc_svm.solvers.alm import directions, trial_loops
from ooc_svm.solvers.alm.penalty import next_penalty, obstacles
from ooc_svm.solvers.alm.rounding import AlmRounding
from ooc_svm.solvers.alm.rules import RowModel, SlopeProducts, Trials
from ooc_svm.solvers.alm.state import AlmState
from ooc_svm.solvers.alm.values import N_GROUPS, AlmValues
from ooc_svm.solvers.base import Sample
from ooc_svm.solvers.certificate import STALL_PASSES
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import CERTIFIED, Stopping

# Steps along a direction that a read tries, next to the first one, which the curvature is taken at; 0 is
# where it is looked from
NEWTON_STEPS = (1.0, 0.5, 0.25, 0.1, 0.0)
QUASI_NEWTON_STEPS = (1.0, 0.25, 0.5, 2.0, 4.0, 0.0)
PAPER_CHANGE = 1e-4  # A change of P that ends the paper's runs, as a share of it
SHORTER = 0.1  # A direction that leads nowhere is looked along from so much of the first step on


@dataclass(slots=True)
class Alm(AlmValues):
    """The solver of one model.

    ``by_products``: Newton's direction comes from products with the curvature, not from a Gram matrix.
    """

    model: RowModel
    space: LinearSpace
    stopping: Stopping
    state: AlmState
    inexact: bool
    by_products: bool
    _origin: str | None = None

    @property
    def diagonal(self) -> bool:
        """Whether a read accumulates only the diagonal of the curvature."""
        return self.inexact or self.by_products

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        model = self.model
        return dict.fromkeys([model.scores, model.direction, model.reference, model.best], np.float64)

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return {self.model.slopes: np.float64}

    def is_sound(self) -> bool:
        return self.state.is_sound(self.space.dimension, self.space.n_free, diagonal=self.diagonal)

    def metadata(self, n_rows: int) -> dict[str, float]:
        """Part of the report: the penalty at the end, and what the paper's rules go by.

        ``gradient``: the norm of the gradient of the augmented Lagrangian at the newest point.
        ``paper_passes``: reads after which one lowered P by less than 1e-4 of it for the first time; 0: none.
        """
        state = self.state
        values = [upper for _, upper, _ in self.certificate.history]
        falls = [(before - after) / abs(after) if after else 0.0 for before, after in pairwise(values)]
        small = (number for number, fall in enumerate(falls, 2) if 0.0 < fall < PAPER_CHANGE)
        gradient = float(np.linalg.norm(directions.gradient(state, self.space.n_penalized)))
        return {
            "mu": state.penalty.ratio * self.model.C, "gradient": gradient, "paper_passes": next(small, 0)
        }  # fmt: skip

    def hints(self) -> dict[str, str]:
        return directions.hints_by_products() if self.by_products else {}

    def obstacles(self) -> dict[str, str]:
        certified = self.certificate.stop_reason == CERTIFIED
        return {} if certified else obstacles(self.state.penalty, self.model.C)

    def sample(self) -> Sample:
        return Sample((), (self._trials(),))

    def steps(self) -> Steps:
        state, certificate = self.state, self.certificate
        if self._origin is not None:
            yield from self._check_saved()
        while certificate.stop_reason is None:
            if state.search.active:
                yield from self._multiply()
            else:
                yield from self._look()
            if not state.search.active:
                self._choose_direction()
            certificate.record(self.stopping, moves=certificate.passes - state.fell < STALL_PASSES)
        yield from self._count_support()

    @property
    def _thetas(self) -> Float64Array:
        if self.certificate.passes == 0:
            return np.zeros(1)
        return self.state.reach * np.array(QUASI_NEWTON_STEPS if self.inexact else NEWTON_STEPS)

    def _trials(self) -> CurvaturePass:
        state = self.state
        rule = Trials(self.model, state.pending, state.penalty.ratio, self._thetas, self.diagonal)
        return CurvaturePass(self._linear(state.direction, rule), self.model.slopes, self.diagonal)

    def _look(self) -> Steps:
        """A read along the direction; the point moves to the best step, and so do P and D."""
        thetas = self._thetas
        if self.certificate.passes == 0:
            result, found = yield Overlap((self._trials(), self._magnitudes()))
            self.state.sizes = np.array(AlmRounding.sizes_of(found, self.space))
            self.certificate.scale = self._scale(found)
        else:
            result = yield self._trials()
        self._move(thetas, result)
        yield from self._improve_best()
        self._solve_master(self.stopping.deadline)

    def _move(self, thetas: Float64Array, result: CurvatureSums) -> None:
        """Take the step with the smallest augmented Lagrangian."""
        state, space, sums = self.state, self.space, result.linear.sums[0]
        ends = state.w + thetas[:, None] * state.direction
        values = 0.5 * (ends[:, : space.n_penalized] ** 2).sum(axis=1) + sums[:, trial_loops.LAGRANGIAN]
        k = int(np.argmin(values))
        own = sums[k]
        sides = slice(trial_loops.DISTANCE, trial_loops.DISTANCE + N_GROUPS)
        coefficients = own[sides] * np.array([1.0, -1.0])
        rows = result.linear.vectors[:, N_GROUPS * k : N_GROUPS * (k + 1), 0]
        free = [coefficients] * space.n_free
        planes = space.from_data(rows, coefficients, free)
        offsets = own[trial_loops.GAIN : trial_loops.GAIN + N_GROUPS]
        if values[-1] - values[k] > self.certificate.primal_rounding:
            state.fell = self.certificate.passes
        before = directions.gradient(state, space.n_penalized)
        was_renewed = bool(state.renews)
        step = float(thetas[k])
        norms = float(np.linalg.norm(state.w)), float(np.linalg.norm(state.direction))
        state.score_error = self._rounding.scores(state.score_error, norms[0], step, norms[1])
        state.w, state.plane, state.step = ends[k], planes.sum(axis=0), step
        state.renews, state.before = 0, state.penalty.ratio
        state.curvature = self._curvature(result)
        sizes = np.array([own[sides].max(), own[trial_loops.SIZE]])
        state.largest = np.maximum(state.largest, sizes)
        self._add_planes(planes, offsets)
        if self.certificate.passes > 0:
            state.reach = 1.0 if step > 0.0 else state.reach * SHORTER
            if self.inexact and step == 0.0:
                directions.forget(state.memory)
            elif self.inexact and not was_renewed:
                change = directions.gradient(state, space.n_penalized) - before
                directions.remember(state.memory, step * state.direction, change)
        self._update_penalty(own)

    def _curvature(self, result: CurvatureSums) -> Float64Array:
        """The products of the columns in the coordinates of the solver, see `AlmState`."""
        space, products = self.space, result.products
        size, scale = space.dimension, np.ones(space.n_features + 1)
        if space.scale is not None:
            scale[:-1] = space.scale
        if self.diagonal:
            total = float(products[-1])
            sums = np.append(result.linear.vectors[:, -1, 0], total)
            common = sums / math.sqrt(total) if total > 0.0 else sums
            return np.stack([products * scale, common])[:, :size] * scale[:size]
        whole = np.triu(products) + np.triu(products, 1).T
        found: Float64Array = (whole * np.outer(scale, scale))[:size, :size]
        return found

    @property
    def _least(self) -> float:
        """Least curvature of a free parameter: a share of what it is where all rows have a slope."""
        return directions.LEAST_CURVATURE * self.state.penalty.ratio * max(self.certificate.scale, 1e-300)

    def _update_penalty(self, own: Float64Array) -> None:
        """Update the multipliers in the next read, and mu, if the gradient is small enough."""
        state, n = self.state, self.space.n_penalized
        left = directions.gradient(state, n)
        renewed = next_penalty(
            state.penalty,
            self.model.C,
            residual=float(left[:n] @ left[:n]),
            violation=float(own[trial_loops.VIOLATION]),
            value=0.5 * float(state.w[:n] @ state.w[:n]) + float(own[trial_loops.LOSS]),
            inexact=self.inexact,
        )
        if renewed is not None:
            state.penalty, state.renews = renewed, 1

    def _choose_direction(self) -> None:
        """The next direction, or the search for one."""
        state, n, least = self.state, self.space.n_penalized, self._least
        if self.inexact:
            state.direction = directions.quasi_newton(state, n, least)
        elif not self.by_products:
            state.direction = directions.newton(state, n, least)
        elif state.search.products:
            state.direction, state.search.products = state.search.found, 0
        else:
            directions.begin_search(state, n, least)
            if not state.search.active:
                state.direction = state.search.found

    def _multiply(self) -> Steps:
        """A read for one product with the curvature; nothing else changes."""
        state, space = self.state, self.space
        result: LinearSums = yield self._linear(
            state.search.along, SlopeProducts(self.model, state.pending, state.penalty.ratio)
        )
        total = result.sums[0]
        product = space.from_data(result.vectors[:, 0], total, [total] * space.n_free)[0]
        directions.go_on(state, product, space.n_penalized, self._least)
