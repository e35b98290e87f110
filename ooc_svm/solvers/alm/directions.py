"""Where to go from a point of the augmented Lagrangian: Newton's direction, and a quasi-Newton one.

With e at its minimum the augmented Lagrangian is a function of w and b alone, with the gradient ``J w - q``
(J leaves out the free parameters, q is the sum of the rows with the multipliers v') and the curvature
``J + sum_i s_i x_i x_i'``, s_i being the slope of v'_i: 0 where the row is at a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.errors import parameter
from ooc_svm.solvers.alm.state import AlmState, Memory, Search

# Least curvature of a free parameter, as a share of what it is where all rows have a slope
LEAST_CURVATURE = 1e-4
# Least curvature of a parameter next to the largest one, for the preconditioner
LEAST_SHARE = 1e-2
KEPT_STEPS = 10  # Of a quasi-Newton direction
# Of the conjugate gradient method: what may be left of the right hand side, and products at most
LEFT, MOST_PRODUCTS = 0.5, 4


def gradient(state: AlmState, n_penalized: int) -> Float64Array:
    """That of the augmented Lagrangian in w and the free parameters."""
    found: Float64Array = -state.plane
    found[:n_penalized] += state.w[:n_penalized]
    return found


def newton(state: AlmState, n_penalized: int, least: float) -> Float64Array:
    """Newton's direction, by the curvature itself; ``least``: of a free parameter."""
    system: Float64Array = state.curvature.copy()
    diagonal = np.arange(len(system))
    system[diagonal[:n_penalized], diagonal[:n_penalized]] += 1.0
    system[diagonal[n_penalized:], diagonal[n_penalized:]] += least
    try:
        direction = np.linalg.solve(system, -gradient(state, n_penalized))
    except np.linalg.LinAlgError:
        # Numbers that are not finite; the certificate reports it.
        return np.full(len(system), math.nan)
    return np.asarray(direction, np.float64)


@dataclass(frozen=True, slots=True)
class Preconditioner:
    """The inverse of the curvature as if columns varied independently of each other about their means.

    With the sum S of the rows' slopes and the means m of the columns, weighted with them, that is
    ``J + diag(sum_i s_i (x_i - m)^2) + S m m'``. Columns whose means are large next to their spread, and a
    bias, are nearly the same direction, along which the diagonal alone is wrong by the number of columns.
    """

    # shape (dimension,): the diagonal, and ``sqrt(S) m``
    spread: Float64Array
    common: Float64Array

    @classmethod
    def of(cls, state: AlmState, n_penalized: int, least: float) -> Preconditioner:
        """That of a state that has the squares of the columns; ``least``: of a free parameter."""
        squares, common = state.curvature
        spread = np.maximum(squares - common * common, 0.0)
        spread[:n_penalized] += 1.0
        spread[n_penalized:] += least
        return cls(np.maximum(spread, LEAST_SHARE * spread.max()), common)

    def __call__(self, vector: Float64Array) -> Float64Array:
        """The product with a vector (the formula of Sherman and Morrison)."""
        along = self.common / self.spread
        share = float(along @ vector) / (1.0 + float(along @ self.common))
        found: Float64Array = vector / self.spread - share * along
        return found


def remember(memory: Memory, step: Float64Array, change: Float64Array) -> None:
    """Keep a step and the change of the gradient, if the curvature along it is above 0."""
    curvature = float(step @ change)
    if curvature > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        memory.steps = np.vstack([memory.steps, step])[-KEPT_STEPS:]
        memory.changes = np.vstack([memory.changes, change])[-KEPT_STEPS:]


def forget(memory: Memory) -> None:
    """Keep nothing."""
    memory.steps, memory.changes = memory.steps[:0], memory.changes[:0]


def quasi_newton(state: AlmState, n_penalized: int, least: float) -> Float64Array:
    """The two loops of limited-memory BFGS (Nocedal and Wright, algorithm 7.4), on the scaled gradient."""
    found, weights = gradient(state, n_penalized), []
    pairs = list(zip(state.memory.steps, state.memory.changes, strict=True))
    precondition = Preconditioner.of(state, n_penalized, least)
    for step, change in reversed(pairs):
        weight = float(step @ found) / float(step @ change)
        found -= weight * change
        weights.append(weight)
    found = precondition(found)
    if pairs:
        step, change = pairs[-1]
        found *= float(step @ change) / float(change @ precondition(change))
    for (step, change), weight in zip(pairs, reversed(weights), strict=True):
        found += (weight - float(change @ found) / float(step @ change)) * step
    return -found


def begin_search(state: AlmState, n_penalized: int, least: float) -> None:
    """Look for Newton's direction by the preconditioned conjugate gradient method.

    In exact arithmetic its iterates are those of LSQR on the same least squares problem, whose two products
    are one read here as well. Where the gradient is 0, there is nothing to look for.
    """
    rest = -gradient(state, n_penalized)
    along = Preconditioner.of(state, n_penalized, least)(rest)
    size = float(rest @ along)
    state.search = Search(np.zeros(len(rest)), rest, along, size, LEFT * LEFT * size, 0, int(size != 0.0))


def go_on(state: AlmState, product: Float64Array, n_penalized: int, least: float) -> None:
    """One step of the method, ``product`` being that of the rows' part of the curvature with `along`."""
    search = state.search
    product[:n_penalized] += search.along[:n_penalized]
    product[n_penalized:] += least * search.along[n_penalized:]
    length = search.size / float(search.along @ product)
    search.found = search.found + length * search.along
    search.rest = search.rest - length * product
    preconditioned = Preconditioner.of(state, n_penalized, least)(search.rest)
    size = float(search.rest @ preconditioned)
    search.along = preconditioned + size / search.size * search.along
    search.size, search.products = size, search.products + 1
    search.active = int(size > search.goal and search.products < MOST_PRODUCTS)


def hints_by_products() -> dict[str, str]:
    """What a user should know where each product is a read, see `ooc_svm.solvers.base.Solver`."""
    return {
        "no-gram-matrix": "the data are too wide for a Gram matrix, or there is no room for one, so that "
        f"each product with it is a read of the data: {parameter('solver', 'inexact-alm')} takes fewer "
        "reads, and streamed-smo the fewest"
    }
