"""A proximal step of the resident rows: all multipliers at once, by Newton's method.

The proximal point method goes from the multipliers v to those that maximise

    D(v') - 1/2 sum_i mu_i (v'_i - v_i)^2,        mu_i = mu / c_i

and is the method of multipliers of the primal problem (Rockafellar 1976). With u for the change of w, each
v'_i is the dual step of its row alone, at the residual ``r_i - x_i.u`` and with the curvature mu_i. So u is
where the gradient of a convex function is 0,

    F(u) = u - sum_i (v'_i(u) - v_i) x_i,         F'(u) = I + sum_i s_i x_i x_i'

with the slopes s_i of v'_i in its residual. F is piecewise linear or smooth: Newton's steps, each to the
lowest point along its line, are few and end exactly. With few columns their directions come from F' itself,
else from the conjugate gradient method, or a dense system where that takes longer. Rows at a bound have no
slope, so that these ways look at free ones alone.

The rows are worked on in pieces, by as many threads as there are; each piece has sums of its own, which are
added in the order of the pieces. So bits follow from the pieces, and these from the number of the elements.

A bias and a mean row are those of `ooc_svm.solvers.streamed_smo.dual_loops`: rows are ``x_i - m`` with a
feature of value ``sqrt(rho - |m|^2)`` more. Vectors are in units of the data; the weight of that feature is
kept apart, as ``.._b``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Values
from ooc_svm.passes.crew import Alone, Crew
from ooc_svm.solvers.base import MANY_COLUMNS
from ooc_svm.solvers.streamed_smo import dual_loops, proximal_loops
from ooc_svm.solvers.streamed_smo.dense_system import (
    ROW_SYSTEM_COST,
    dense_direction,
    row_direction,
    system_cost,
)
from ooc_svm.solvers.streamed_smo.dual import looked_at
from ooc_svm.solvers.streamed_smo.newton_loops import inner, newton_direction

# Columns up to which F' is put together: a row of 14 nonzeros takes the time of five products with it. And up
# to which there are proximal steps: with many columns rows are less alike, and sweeps come to an end soon.
# But rows that have at least this share of their columns may all have a large part in common, which takes
# sweeps very long: 300 rows of 20,000 logarithms of counts had a gap of 1 after 20 s.
MOST_DIRECT, MOST_COLUMNS, MOST_OF_DENSE, DENSE = 256, 4096, MANY_COLUMNS, 0.25
# Of Newton's method: steps at most; what is left of F when it ends, as a share of what it was and of u, since
# the change of w is u - F; a step that leaves more than this share of F, once the first is so, is the last
# one. What is left of the gradient when the search along a line ends, and points that it tries at most.
MOST_STEPS, LEFT, LEFT_OF_WAY, STUCK = 25, 1e-4, (1e-2, 0.3), 0.5
LEFT_ALONG, MOST_TRIED = 0.1, 20
# A slope of D that is less than this share of its terms may be rounding.
ROUNDING = 1e-9

NOT_TAKEN = 0.0, math.inf  # Of a step to nowhere, what `_Step.take` returns

# Steps hold multipliers less firmly each time: at first, and by a factor. Where multipliers have limits and
# columns are many, the less firmly that is, the more products a step takes (the second numbers). Between two
# of them rows are swept once at least, and for this part of what the step has cost: sweeps go where no step
# leads that ends early. But a step that leaves less than this part of the gaps is followed by another one,
# which gains more than a sweep would. Where Newton's method does not come to its end, the next steps are as
# firm as if costs were as small as the multipliers are, which in separable data are far from their limits.
FIRM, LESS_FIRM, LEAST_FIRM, SWEEPS_A_STEP, CLOSER = (0.3, 1.0), (0.3, 0.6), 1e-3, 0.1, 0.1

# A solve ends with a step that leaves this part of the gaps wanted: a sweep leaves less than it sees, a step
# what is seen.
ENOUGH = 0.5

# Nonzeros and rows of a piece at least, a millisecond or two; pieces at most; and rows that are not worth the
# time of another thread.
PIECE_ELEMENTS, MOST_PIECES, FEW_ROWS = 1 << 19, 16, 20_000


def count_pieces(n_elements: int) -> int:
    """The number of pieces of so many nonzeros and rows, from which bits follow."""
    return min(max(n_elements // PIECE_ELEMENTS, 1), MOST_PIECES)


@dataclass(frozen=True, slots=True)
class Solve:
    """The rows of a solve and where it is; see `ooc_svm.solvers.streamed_smo.dual_loops.solve`.

    Attributes
    ----------
    matrix : tuple
        ``indptr``, ``indices``, ``values``.
    mean : ndarray of float64, shape (n_features,), or None
        The mean row, ``moments`` being its products with the rows.
    products : ndarray of float64, shape (len(squares), len(squares)), optional
        The products of all rows of the matrix with each other, where they are known.
    """

    loss: Any
    matrix: tuple[Values, Values, Values | None]
    places: Values
    squares: Float64Array
    moments: Float64Array | None
    mean: Float64Array | None
    scale2: Float64Array | None
    w: Float64Array
    bias: Float64Array
    targets: Float64Array
    dual: Float64Array
    stationarity: Float64Array
    products: Float64Array | None = None

    def count_elements(self) -> int:
        """Nonzeros and rows of a sweep."""
        ends, rows = self.matrix[0], self.places
        return int((ends[rows + np.uint64(1)] - ends[rows]).sum()) + len(rows)


def proximal_step(
    solve: Solve,
    mu: float,
    wanted: float,
    n_elements: int,
    most_elements: int,
    stop: npt.NDArray[np.uint8],
    sums: Float64Array,
    crew: Crew,
) -> tuple[float, float, bool]:
    """Move all multipliers towards those of the proximal step, as far along as D grows; w and b follow.

    Parameters
    ----------
    solve : Solve
        The rows, and the multipliers, w and b that are moved.
    mu : float
        How firmly the multipliers are held where they are, as a multiple of 1 / c.
    wanted : float
        Sum of the row gaps at which the solve ends.
    n_elements, most_elements : int
        Nonzeros and rows there are, and after how many no direction is looked for.
    stop, sums : ndarray
        Those of `ooc_svm.solvers.streamed_smo.dual_loops.solve`.
    crew : Crew
        Other threads that take part.

    Returns
    -------
    longer : float
        The sum of the norms of what rows add to w, which it may have been longer by on the way.
    gap : float
        The sum of the row gaps where the step ends, roughly if it is more than wanted; inf if none is taken.
    is_found : bool
        Whether Newton's method came to its end, within its steps and what may be looked at.
    """
    crew.begin()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # A step to nowhere is not taken.
            step = _Step(solve, mu, n_elements, crew)
            taken = step.take(wanted, sums) if step.find(most_elements, stop) else NOT_TAKEN
            sums[dual_loops.ROWS] += step.rows
            sums[dual_loops.ELEMENTS] += step.elements
            return *taken, step.is_found
    finally:
        crew.end()


class ProximalSteps:
    """What comes between the sweeps of a solve: proximal steps, less firm each time.

    Parameters
    ----------
    solve : Solve
    n_elements : int
        Nonzeros and rows of a sweep.
    stop, sums, crew
        Those of `proximal_step`.
    first : float
        How firmly the first step holds multipliers, 0 if that is not known; as an attribute, how firmly that
        of the next solve should.
    unit : float
        Of residuals, where multipliers have limits.
    by_products : bool
        Whether multipliers have limits and columns are many.
    """

    def __init__(
        self,
        solve: Solve,
        n_elements: int,
        stop: npt.NDArray[np.uint8],
        sums: Float64Array,
        crew: Crew,
        *,
        first: float,
        unit: float,
        by_products: bool,
    ) -> None:
        self._solve, self._sweep, self._unit = solve, n_elements, unit
        self._stop, self._sums, self._crew = stop, sums, crew
        self.first = self._firm = first or FIRM[by_products]
        self._less_firm, self._least = LESS_FIRM[by_products], LEAST_FIRM
        self.is_idle = False  # Whether the last step moved nothing: rounding hides what others would gain

    def go(self, wanted: float, left: int) -> tuple[float, float, int]:
        """Take a step towards a sum of row gaps, with so many nonzeros and rows left to look at.

        Returns ``longer`` and ``gap`` of `proximal_step`, and after how many of them the next one comes: 0 if
        at once.
        ``sums`` has the gaps before, and those after it if there is a step.
        """
        sums, mu = self._sums, self._firm * self._unit
        changes, before, apart = sums[dual_loops.CHANGES], looked_at(sums), sums[dual_loops.GAP]
        of_step = mu, ENOUGH * wanted, self._sweep, left
        longer, gap, is_found = proximal_step(self._solve, *of_step, self._stop, sums, self._crew)
        if is_found:
            self._firm = max(self._less_firm * self._firm, self._least)
        else:
            self._least = self._firm / self._less_firm
            self.first = self._firm = max(self._least, FIRM[0] * self._room())
        spent = looked_at(sums) - before
        left -= spent
        self.is_idle = bool(sums[dual_loops.CHANGES] == changes)
        if self.is_idle:
            return longer, gap, max(left, 1)
        sums[dual_loops.GAP] = gap
        if gap < CLOSER * apart and left > 0:
            return longer, gap, 0
        # A sweep comes to its end in any case.
        return longer, gap, max(min(max(self._sweep, int(SWEEPS_A_STEP * spent)), left), 1)

    def _room(self) -> float:
        """How many times as large as the multipliers their costs are, the larger ones counting for more."""
        dual = np.abs(self._solve.dual)
        squares = float(dual @ dual)
        return float(self._solve.targets[:, 1] @ dual) / squares if squares > 0.0 else 0.0


class _Piece:
    """Some of the rows of a step, and what is known of them; one thread works on it at a time."""

    def __init__(self, step: _Step, begin: int, end: int) -> None:
        solve, d, m, own = step.solve, len(step.solve.w), end - begin, slice(begin, end)
        self.solve, self.mu = solve, step.mu
        self.places, self.targets, self.dual = solve.places[own], solve.targets[own], solve.dual[own]
        self.stationarity = solve.stationarity[own]
        self.moments = None if solve.moments is None else solve.moments[own]
        # v' and s
        self.moved, self.slopes = self.dual.copy(), step.slopes[own]
        # Residuals where the step began, and at the point of the moment; products with the direction
        self.began, self.residual, self.product = np.empty(m), np.empty(m), np.zeros(m)
        # Numbers of the rows that move on the line of the moment, of which the first so many count
        self.moving, self.n_moving = np.arange(m), m
        # Sums: of (v' - v) x; F' or its diagonal; of v' - v; of s
        n_system, n_diagonal = (d + 1, 0) if step.direct else (0, d)
        self.added = np.zeros(d)
        self.products, self.diagonal = np.zeros((n_system, n_system)), np.zeros(n_diagonal)
        self.changes = self.weights = 0.0
        # What has been looked at
        self.rows = self.elements = 0
        # What rows that do not move, and all rows, add to the slope at the end of the line; and what those
        # that move add where it is asked for
        self.others = self.total = self.along = 0.0
        # What `gain_along` and `go` return, and the sums that the latter adds to; of the row gaps at the end
        self.gain = self.moves = 0.0, 0.0, 0.0
        self.sums, self.gap = np.zeros(dual_loops.N_SUMS), 0.0

    def begin(self) -> None:
        """Find the residuals of the rows."""
        self._find_residuals()
        self.began[:] = self.residual

    def foresee_gap(self, theta: float) -> None:
        """Find the gaps of the rows after a share of the step, if w moves by that of u."""
        self.residual += (1.0 - theta) * (self.began - self.residual)
        self._find_gap()

    def end(self) -> None:
        """Find the gaps of the rows where w has come to."""
        self._find_residuals()
        self._find_gap()

    def _find_gap(self) -> None:
        of_rows = self.dual, self.residual, self.targets, self.stationarity
        self.gap = dual_loops.row_gaps(self.solve.loss, *of_rows)

    def _find_residuals(self) -> None:
        solve, of_rows = self.solve, (self.places, self.moments)
        dual_loops.residuals(*solve.matrix, *of_rows, solve.w, solve.bias, self.targets, self.residual)

    def follow(self, theta: float) -> None:
        """Go to a point of the line."""
        solve = self.solve
        changes, weights, rows, elements = proximal_loops.follow(
            solve.loss, *solve.matrix, self.places, solve.scale2, solve.mean, self.targets, self.dual,
            self.mu, self.residual, self.product, theta, self.n_moving, self.moving, self.moved, self.slopes,
            self.added, self.products, self.diagonal,
        )  # fmt: skip
        self.changes, self.weights = self.changes + changes, self.weights + weights
        self.rows, self.elements = self.rows + rows, self.elements + elements

    def look_along(self, direction: Float64Array, shift: float) -> None:
        """Take a direction for the next line."""
        solve = self.solve
        self.n_moving, self.others, self.total = proximal_loops.scores_along(
            solve.loss, *solve.matrix, self.places, direction, shift, self.targets, self.dual, self.mu,
            self.residual, self.product, self.moved, self.moving,
        )  # fmt: skip

    def try_along(self, theta: float) -> None:
        """Find what rows that move add to the slope at a point of the line."""
        self.along = proximal_loops.slope_along(
            self.solve.loss, self.targets, self.dual, self.mu, self.residual, self.product, self.n_moving,
            self.moving, theta,
        )  # fmt: skip

    def find_gain(self) -> None:
        """Find what D gains along the change of the multipliers."""
        self.gain = proximal_loops.gain_along(
            self.solve.loss, self.targets, self.dual, self.moved, self.began
        )

    def go(self, theta: float) -> None:
        """Move the multipliers a share of the way."""
        solve = self.solve
        self.added[:] = 0.0
        self.moves = proximal_loops.go(
            solve.loss, *solve.matrix, self.places, solve.squares, self.moments, solve.scale2,
            solve.bias[dual_loops.RHO], theta, self.targets, self.dual, self.moved, self.product, self.added,
            self.sums,
        )  # fmt: skip


class _Step:
    """The search for u, and the step that follows from it."""

    def __init__(self, solve: Solve, mu: float, n_elements: int, crew: Crew) -> None:
        self.solve, self.mu, self._crew, self._n_elements = solve, mu, crew, n_elements
        m, d, rho = len(solve.dual), len(solve.w), float(solve.bias[dual_loops.RHO])
        of_mean = 0.0 if solve.mean is None else inner(solve.mean, solve.mean, solve.scale2)
        self.direct, self._root = d <= MOST_DIRECT, math.sqrt(max(rho - of_mean, 0.0))
        self.slopes, self._free = np.zeros(m), np.empty(0 if self.direct else m, np.int64)
        n_pieces = min(count_pieces(n_elements), m)
        edges = [m * k // n_pieces for k in range(n_pieces + 1)]
        self._pieces = [_Piece(self, *ends) for ends in pairwise(edges)]
        self._u, self._u_b, self.is_found = np.zeros(d), 0.0, True
        crew.each(_Piece.begin, self._pieces)
        # Looked at by this thread, and by all in the pieces.
        self._rows, self._elements = m, n_elements - m

    @property
    def rows(self) -> int:
        """Rows that were looked at."""
        return self._rows + sum(piece.rows for piece in self._pieces)

    @property
    def elements(self) -> int:
        """Nonzeros that were looked at."""
        return self._elements + sum(piece.elements for piece in self._pieces)

    def find(self, most_elements: int, stop: npt.NDArray[np.uint8]) -> bool:
        """Find u by Newton's method; False where it was stopped."""
        scale2, goal, before, theta = self.solve.scale2, -1.0, math.inf, 0.0
        of_way = LEFT_OF_WAY[not self.direct]
        for number in range(MOST_STEPS + 1):
            self._crew.each(partial(_Piece.follow, theta=theta), self._pieces)
            if stop[0]:
                return False
            gradient, gradient_b = self._gradient()
            size = math.sqrt(inner(gradient, gradient, scale2) + gradient_b * gradient_b)
            goal = LEFT * size if number == 0 else goal
            way = math.sqrt(inner(self._u, self._u, scale2) + self._u_b * self._u_b)
            left = most_elements - self.rows - self.elements
            done = not size > min(goal, of_way * way) or (size <= goal and size > STUCK * before)
            self.is_found = done
            if done or number == MOST_STEPS or left <= 0:
                break
            before = size
            direction, direction_b = self._direction(gradient, gradient_b, left, stop)
            if stop[0]:
                return False
            theta = self._lowest(gradient, gradient_b, direction, direction_b)
            if theta == 0.0:
                self.is_found = True
                break
            self._u += theta * direction
            self._u_b += theta * direction_b
        return True

    def take(self, wanted: float, sums: Float64Array) -> tuple[float, float]:
        """Take as much of the step as D grows by; see `proximal_step`."""
        solve, (change, changes) = self.solve, self._change()
        self._crew.each(_Piece.find_gain, self._pieces)
        slope, terms, bend = (sum(each) for each in zip(*(p.gain for p in self._pieces), strict=True))
        bend += inner(change, change, solve.scale2) + (self._root * changes) * (self._root * changes)
        theta = min(slope / bend, 1.0) if bend > 0.0 else (1.0 if bend == 0.0 else 0.0)
        if not (theta > 0.0 and slope > ROUNDING * terms):
            return NOT_TAKEN
        self._crew.each(partial(_Piece.go, theta=theta), self._pieces)
        longest = 0.0
        for piece in self._pieces:
            b, total, longer = piece.moves
            solve.w[:] += piece.added
            solve.bias[dual_loops.B] += b
            solve.bias[dual_loops.TOTAL] += total
            sums += piece.sums
            longest += longer
        self._crew.each(partial(_Piece.foresee_gap, theta=theta), self._pieces)
        if sum(piece.gap for piece in self._pieces) <= wanted:
            self._crew.each(_Piece.end, self._pieces)
            m = len(solve.dual)
            self._rows, self._elements = self._rows + m, self._elements + self._n_elements - m
        return longest, sum(piece.gap for piece in self._pieces)

    def _change(self) -> tuple[Float64Array, float]:
        """What the rows add to w and to the sum of the multipliers where these are v'."""
        mean, changes = self.solve.mean, sum(piece.changes for piece in self._pieces)
        added = self._pieces[0].added.copy()
        for piece in self._pieces[1:]:
            added += piece.added
        return added if mean is None else added - changes * mean, changes

    def _gradient(self) -> tuple[Float64Array, float]:
        """F at u."""
        change, changes = self._change()
        return self._u - change, self._u_b - self._root * changes

    def _direction(
        self, gradient: Float64Array, gradient_b: float, left: int, stop: npt.NDArray[np.uint8]
    ) -> tuple[Float64Array, float]:
        """Newton's direction, with so many nonzeros and rows left to look at; its bias' part."""
        solve, first, direction = self.solve, self._pieces[0], np.empty(len(gradient))
        # What the only piece has is read; what several have is added up elsewhere.
        products, diagonal = first.products, first.diagonal
        for piece in self._pieces[1:]:
            products, diagonal = products + piece.products, diagonal + piece.diagonal
        weights = sum(piece.weights for piece in self._pieces)
        cost = system_cost(len(direction))
        if solve.products is not None:
            cost = ROW_SYSTEM_COST
        own_b, rows, elements, n_free, of_system = newton_direction(
            *solve.matrix, solve.places, solve.scale2, solve.mean, self._root, self.slopes, self._free,
            gradient, gradient_b, products, diagonal, weights, left, cost, stop, direction,
        )  # fmt: skip
        self._rows, self._elements = self._rows + rows, self._elements + elements + int(of_system)
        if of_system > 0.0 and not stop[0]:
            free = self._free[:n_free]
            of_rows = solve.matrix, solve.places[free], solve.scale2, solve.mean
            side = self._root, self.slopes[free], gradient, gradient_b
            if solve.products is None:
                own_b = dense_direction(*of_rows, *side, stop, direction)
            else:
                moments = None if solve.moments is None else solve.moments[free]
                own_b = row_direction(*of_rows, moments, *side, solve.products, direction)
        return direction, float(own_b)

    def _lowest(
        self, gradient: Float64Array, gradient_b: float, direction: Float64Array, direction_b: float
    ) -> float:
        """Where in [0, 1] the convex function is lowest along a line."""
        scale2, mean, u_b = self.solve.scale2, self.solve.mean, self._u_b
        shift = self._root * direction_b - (0.0 if mean is None else inner(mean, direction, scale2))
        self._crew.each(partial(_Piece.look_along, direction=direction, shift=shift), self._pieces)
        m = len(self.solve.dual)
        self._rows, self._elements = self._rows + m, self._elements + self._n_elements - m
        began = inner(gradient, direction, scale2) + gradient_b * direction_b
        if not began < 0.0:
            return 0.0
        # The derivative of what u itself adds is first + theta second.
        first = inner(self._u, direction, scale2) + u_b * direction_b
        second = inner(direction, direction, scale2) + direction_b * direction_b
        others = sum(piece.others for piece in self._pieces)
        crew = self._crew if sum(piece.n_moving for piece in self._pieces) > FEW_ROWS else Alone()
        near, far, at_near, at_far = 0.0, 1.0, began, first + second + sum(p.total for p in self._pieces)
        theta, here, side = far, at_far, 0
        for _ in range(MOST_TRIED):
            if not (here > -LEFT_ALONG * began or (theta < 1.0 and here < LEFT_ALONG * began)):
                break
            # Regula falsi; an end that stays counts half (the Illinois method).
            theta = near + (far - near) * min(max(at_near / (at_near - at_far), 0.05), 0.95)
            crew.each(partial(_Piece.try_along, theta=theta), self._pieces)
            here = first + theta * second + others + sum(piece.along for piece in self._pieces)
            if here > 0.0:
                far, at_far = theta, here
                at_near, side = 0.5 * at_near if side > 0 else at_near, 1
            else:
                near, at_near = theta, here
                at_far, side = 0.5 * at_far if side < 0 else at_far, -1
        return theta
